"""Reads usage for `odradek usage` from a broker's /usage over HTTP, and finds the directory of its spool.

Runs in the process of the command.
"""

import json
import ssl
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from http.client import RemoteDisconnected
from ipaddress import ip_address
from typing import Any, NamedTuple, NoReturn
from urllib.parse import urlencode

from odradek.http_request import HttpError, MalformedError, SlowError, request
from odradek.metrics.usage import PATH

METRICS = "ODRADEK_METRICS"
METRICS_PATH = "/metrics"
DEFAULT_ADDRESS = "127.0.0.1:9404"
_LARGEST_BYTES = 1 << 28
_HOW_TO_SELECT = "select a broker with --metrics HOST:PORT, or with --data-dir DIR for a broker of this machine"


class UsageError(Exception):
    """The usage cannot be read; one line that names the remedy."""


class UsageLocation(NamedTuple):
    """The broker that the options select.

    :param metrics: HOST:PORT of a metrics.listener; None if it was not given.
    :param config_file, overrides, data_dir, pid: select a broker of this machine, with the meaning of `odradek status`.
    :param servers: HOST:PORT of a broker's Kafka listener; None if it was not given.
    """

    metrics: str | None
    config_file: str | None = None
    overrides: Sequence[str] = ()
    data_dir: str | None = None
    pid: int | None = None
    servers: str | None = None

    @property
    def names_a_broker(self) -> bool:
        """Whether the options select a broker of this machine."""
        return bool(self.config_file or self.overrides or self.data_dir or self.pid)


class Source:
    """A broker's HTTP listener. Raises UsageError if its address cannot be determined.

    :param timeout: in seconds, for a response.
    """

    def __init__(self, location: UsageLocation, timeout: float) -> None:
        from odradek.cli.framework.options import command_security
        from odradek.clients.errors import ClientError

        try:
            self._security = command_security()
        except ClientError as error:
            raise UsageError(str(error)) from None
        if location.metrics is None and location.names_a_broker:
            address = _local_address(location)
        elif location.metrics is None and location.servers is not None:
            address = _configured_address(location.servers, timeout)
            if self._security.authorization is not None:
                check_same_host(location.servers, address[0])
        else:
            address = parse_address(location.metrics or DEFAULT_ADDRESS)
        self.host, self.port, self._tls = address
        self._timeout = timeout

    @property
    def address(self) -> str:
        """HOST:PORT."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def usage(self, query: Mapping[str, Sequence[str] | str | int]) -> dict[str, Any]:
        """The response to a query of /usage (`odradek.metrics.usage`). Raises UsageError."""
        return self._document(*self._get(f"{PATH}?{urlencode(query, doseq=True)}"))

    def metrics(self) -> str:
        """The broker's metrics in Prometheus' text format. Raises UsageError."""
        status, body = self._get(METRICS_PATH)
        if status != 200 or b"odradek_" not in body:
            raise self._unexpected_response(status, METRICS_PATH)
        return body.decode("utf-8", "replace")

    def _get(self, path: str) -> tuple[int, bytes]:
        from odradek.clients.errors import ClientError

        url = f"{'https' if self._tls else 'http'}://{self.address}{path}"
        headers = {} if self._security.authorization is None else {"Authorization": self._security.authorization}
        try:
            response = request(
                url, limit_s=self._timeout, largest=_LARGEST_BYTES, context=self._security.context, headers=headers
            )
        except ClientError as error:
            raise UsageError(str(error)) from None
        except HttpError as error:
            self._fail(error)
        return response.status, response.body

    def _fail(self, error: HttpError) -> NoReturn:
        """Raise UsageError, with what may be wrong."""
        reason, cause = str(error), error.__cause__
        if isinstance(error, SlowError):
            raise UsageError(f"{reason}; --timeout sets the time") from None
        if isinstance(error, MalformedError) and cause is not None:
            reason = (
                f"{self.address} is not the metrics.listener of an Odradek broker (the response is not HTTP: "
                f"{type(cause).__name__}; for one with TLS use https://{self.address})"
            )
        elif isinstance(cause, ConnectionRefusedError):
            reason = f"nothing listens on {self.address}: start a broker with metrics.listener, or {_HOW_TO_SELECT}"
            raise UsageError(reason) from None
        elif isinstance(cause, ssl.SSLCertVerificationError):
            raise UsageError(
                f"{reason}; name a file with --command-config that contains ssl.truststore.location"
            ) from None
        elif isinstance(cause, RemoteDisconnected) and not self._tls:
            reason += f"; if it has TLS, use https://{self.address}"
        raise UsageError(f"{reason}; {_HOW_TO_SELECT}") from None

    def _unexpected_response(self, status: int, path: str) -> UsageError:
        if status == HTTPStatus.UNAUTHORIZED:
            return UsageError(
                f"{self.address} requires a password or token: name a file with --command-config that contains"
                " metrics.listener.password.file or metrics.listener.token.file"
            )
        return UsageError(
            f"{self.address} is not the metrics.listener of an Odradek broker (response {status} to {path}); {_HOW_TO_SELECT}"
        )

    def _document(self, status: int, body: bytes) -> dict[str, Any]:
        try:
            document = json.loads(body)
        except ValueError:
            document = None
        if not isinstance(document, dict) or not ({"odradek", "error"} & document.keys()):
            raise self._unexpected_response(status, PATH)
        if status != 200:
            raise UsageError(f"{self.address} responded with {status}: {document.get('error', 'no reason given')}")
        return document


def parse_address(text: str) -> tuple[str, int, bool]:
    """Host, port and whether TLS is used of HOST:PORT, [IPv6]:PORT, or an http:// or https:// URL. Raises UsageError."""
    tls = text.startswith("https://")
    word = text.removeprefix("https://" if tls else "http://").partition("/")[0]
    host, colon, port = word.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise UsageError(f"--metrics '{text}' is not HOST:PORT, e.g. {DEFAULT_ADDRESS}")
    return host, int(port), tls


def _local_address(location: UsageLocation) -> tuple[str, int, bool]:
    """The metrics.listener of a broker of this machine, from its supervisor's status. Raises UsageError."""
    from odradek.cli.inspection.local_broker import FindError, address_of, find, status_of
    from odradek.config.errors import ConfigError

    try:
        directory, running = find(location.config_file, location.overrides, location.data_dir, location.pid)
        status = status_of(directory, running)
        metrics = status.get("metrics")
    except (ConfigError, FindError) as error:
        raise UsageError(str(error)) from None
    if metrics is None:
        raise UsageError(
            f"the broker of {directory} reports no usage, because its metrics.listener is empty; "
            f"set it, e.g. to {DEFAULT_ADDRESS}"
        )
    return *parse_address(address_of(metrics))[:2], bool(status.get("metrics_tls"))


def _configured_address(servers: str, timeout: float) -> tuple[str, int, bool]:
    """The metrics.listener in the configuration of the broker at a Kafka listener. Raises UsageError."""
    from odradek.cli.framework.options import connection_to
    from odradek.cli.inspection.local_broker import ANY_HOST
    from odradek.clients.cluster import parse_servers
    from odradek.clients.configs import Resource, describe
    from odradek.clients.errors import ClientError

    key = "metrics.listener"
    try:
        address = parse_servers(servers)[0]
        shown = f"{address.host}:{address.port}"
        with connection_to(shown, timeout) as cluster:
            brokers = cluster.view().brokers
            node_id = next((number for number, advertised in brokers.items() if advertised == address), min(brokers))
            entries = describe(cluster, Resource("broker", str(node_id)), [key, f"{key}.tls"])
            entry, tls = entries.get(key), entries.get(f"{key}.tls")
    except ClientError as error:
        raise UsageError(f"{error}; --metrics HOST:PORT selects a broker's metrics.listener directly") from None
    if entry is None:
        raise UsageError(f"the broker at {shown} has no {key}: it is not an Odradek broker, and reports no usage")
    if not entry.value:
        raise UsageError(
            f"the broker at {shown} reports no usage, because its {key} is empty; set it, e.g. to {DEFAULT_ADDRESS}"
        )
    host, _, port = entry.value.rpartition(":")
    host = host.strip("[]")
    if port == "0":
        raise UsageError(
            f"the {key} of the broker at {shown} has port 0, so its actual port is not known; {_HOW_TO_SELECT}"
        )
    host = brokers[node_id].host if host in ANY_HOST else host
    if _is_loopback(host) and not _is_loopback(address.host):
        raise UsageError(
            f"the {key} of the broker at {shown} is {entry.value}, which can be reached only on the broker's machine; "
            "run this command there"
        )
    return host, int(port), tls is not None and tls.value == "true"


def check_same_host(servers: str, host: str) -> None:
    """Raise UsageError if the host to which a password or token would be sent is not that of the command line: a broker names
    it, and could name any."""
    from odradek.clients.cluster import parse_servers

    given = parse_servers(servers)[0].host
    if host != given and not (_is_loopback(host) and _is_loopback(given)):
        raise UsageError(
            f"the broker at {given} names {host} as the host of its metrics.listener; the password or token is not sent there "
            "unless --metrics HOST:PORT names it"
        )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
