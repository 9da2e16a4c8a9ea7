"""Where `odradek usage` gets its figures: from a broker's /usage over HTTP, or from the files of its spool.

In the process of the command.
"""

import http.client
import json
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

from odradek.metrics.spool_files import list_files
from odradek.metrics.usage import PATH

METRICS = "ODRADEK_METRICS"
METRICS_PATH = "/metrics"
DEFAULT_ADDRESS = "127.0.0.1:9404"
_ANSWER_BYTES = 1 << 28
_HOW_TO_NAME = "name it with --metrics HOST:PORT, or --data-dir DIR for one of this machine"


class UsageError(Exception):
    """No figures; one line that says what to do."""


class Place(NamedTuple):
    """What the options say about where the figures are.

    :param metrics: HOST:PORT; None if it was not given.
    :param config_file, overrides, data_dir, pid: of a broker of this machine, as for `odradek status`.
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
        """Whether a broker of this machine is meant."""
        return bool(self.config_file or self.overrides or self.data_dir or self.pid)


class Source:
    """A broker's HTTP listener. Raises UsageError if the options do not say where it is, or it is not there.

    :param timeout: in seconds, for an answer.
    """

    def __init__(self, place: Place, timeout: float) -> None:
        if place.metrics is None and place.names_a_broker:
            self.host, self.port = _of_broker(place)
        elif place.metrics is None and place.servers is not None:
            self.host, self.port = _of_server(place.servers, timeout)
        else:
            self.host, self.port = parse_address(place.metrics or DEFAULT_ADDRESS)
        self._timeout = timeout

    @property
    def address(self) -> str:
        """HOST:PORT."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def ask(self, query: Mapping[str, Sequence[str] | str | int]) -> dict[str, Any]:
        """The document. Raises UsageError."""
        return self._document(*self._get(f"{PATH}?{urlencode(query, doseq=True)}"))

    def metrics(self) -> str:
        """Its metrics, as Prometheus' text. Raises UsageError."""
        status, body = self._get(METRICS_PATH)
        if status != 200 or b"odradek_" not in body:
            raise self._stranger(status, METRICS_PATH)
        return body.decode("utf-8", "replace")

    def _get(self, path: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=self._timeout)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read(_ANSWER_BYTES)
        except TimeoutError:
            raise UsageError(f"{self.address} does not answer within {self._timeout:g} s") from None
        except ConnectionRefusedError:
            raise UsageError(
                f"nothing listens on {self.address}: start a broker with metrics.listener, or {_HOW_TO_NAME}"
            ) from None
        except OSError as error:
            raise UsageError(f"{self.address} cannot be reached: {error.strerror or error}; {_HOW_TO_NAME}") from None
        except http.client.HTTPException as error:
            reason = f"it does not speak HTTP: {type(error).__name__}"
            raise UsageError(
                f"{self.address} is not the metrics.listener of an odradek ({reason}); {_HOW_TO_NAME}"
            ) from None
        finally:
            connection.close()

    def _stranger(self, status: int, path: str) -> UsageError:
        return UsageError(
            f"{self.address} is not the metrics.listener of an odradek (it answers {status} to {path}); {_HOW_TO_NAME}"
        )

    def _document(self, status: int, body: bytes) -> dict[str, Any]:
        try:
            answer = json.loads(body)
        except ValueError:
            answer = None
        if not isinstance(answer, dict) or not ({"odradek", "error"} & answer.keys()):
            raise self._stranger(status, PATH)
        if status != 200:
            raise UsageError(f"{self.address} answers {status}: {answer.get('error', 'no reason given')}")
        return answer


def parse_address(text: str) -> tuple[str, int]:
    """HOST:PORT, [IPv6]:PORT or the http:// URL of it. Raises UsageError."""
    word = text.removeprefix("http://").partition("/")[0]
    host, colon, port = word.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise UsageError(f"--metrics '{text}' is not HOST:PORT, e.g. {DEFAULT_ADDRESS}")
    return host, int(port)


def _of_broker(place: Place) -> tuple[str, int]:
    """Where a broker of this machine listens, as its supervisor says."""
    from odradek.cli.running_broker import FindError, address_of, find, status_of
    from odradek.config import ConfigError

    try:
        directory, running = find(place.config_file, place.overrides, place.data_dir, place.pid)
        metrics = status_of(directory, running).get("metrics")
    except (ConfigError, FindError) as error:
        raise UsageError(str(error)) from None
    if metrics is None:
        raise UsageError(
            f"the broker of {directory} tells nobody: its metrics.listener is empty; give it one, e.g. {DEFAULT_ADDRESS}"
        )
    return parse_address(address_of(metrics))


def _of_server(servers: str, timeout: float) -> tuple[str, int]:
    """Where the broker at a Kafka listener serves its figures, as its configuration says."""
    from odradek.cli.running_broker import ANY_HOST
    from odradek.clients.cluster import Cluster, parse_servers
    from odradek.clients.configs import Resource, describe
    from odradek.clients.errors import ClientError

    key = "metrics.listener"
    try:
        address = parse_servers(servers)[0]
        shown = f"{address.host}:{address.port}"
        with Cluster(shown, timeout) as cluster:
            brokers = cluster.view().brokers
            node_id = next((number for number, one in brokers.items() if one == address), min(brokers))
            entry = describe(cluster, Resource("broker", str(node_id)), [key]).get(key)
    except ClientError as error:
        raise UsageError(f"{error}; --metrics HOST:PORT names a broker's metrics.listener directly") from None
    if entry is None:
        raise UsageError(f"the broker at {shown} has no {key}: it is not an odradek, and reports no usage")
    if not entry.value:
        raise UsageError(
            f"the {key} of the broker at {shown} is empty: it reports no usage; set it, e.g. {DEFAULT_ADDRESS}"
        )
    host, _, port = entry.value.rpartition(":")
    host = host.strip("[]")
    if port == "0":
        raise UsageError(f"the {key} of the broker at {shown} has a port that it chose itself; {_HOW_TO_NAME}")
    host = brokers[node_id].host if host in ANY_HOST else host
    if _is_loopback(host) and not _is_loopback(address.host):
        raise UsageError(
            f"the {key} of the broker at {shown} is {entry.value}, which only its own machine reaches; run this there"
        )
    return host, int(port)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def spool_directory(given: str | None, place: Place, timeout: float) -> Path:
    """Where the files of the spool are: as given, else as configured, else as the broker says. Raises UsageError."""
    if given is not None:
        directory = Path(given)
    elif place.names_a_broker and place.metrics is None:
        directory = _configured_directory(place)
    else:
        source = Source(place, timeout)
        told = source.ask({"used": 1 << 62}).get("spool")
        if not told:
            raise UsageError(f"the broker of {source.address} keeps no history: its usage.spool.max.bytes is 0")
        directory = Path(told["directory"])
        if not directory.is_dir():
            raise UsageError(
                f"the spool {directory} is not on this machine; run this on the broker's, or name a copy with --spool DIR"
            )
    if not directory.is_dir() or not list_files(directory):
        raise UsageError(f"there is no spool in {directory}; name its directory with --spool DIR")
    return directory


def _configured_directory(place: Place) -> Path:
    """Of a broker of this machine, whether it runs or not."""
    from odradek.cli.running_broker import FindError, find
    from odradek.config import ConfigError, load

    try:
        if place.config_file or place.overrides:
            config = load(place.config_file, place.overrides)
            configured = config.text("usage.spool.dir")
            return Path(configured) if configured else Path(config.log_dirs[0])
        directory = place.data_dir or find(None, (), None, place.pid)[0]
    except (ConfigError, FindError) as error:
        raise UsageError(str(error)) from None
    return Path(directory)
