"""The work of ``odradek cluster wait``: looks until the cluster is ready, and prints what is missing at the timeout.

Runs in the process of the command.
"""

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import click

from odradek.backoff import Waits
from odradek.cli.framework.echo import echo
from odradek.cli.framework.failure import complain, fail, warn
from odradek.cli.framework.interrupt import interrupt_note
from odradek.cli.framework.options import command_security
from odradek.cli.framework.output import count, echo_json, span
from odradek.clients.cluster import Address, Cluster, parse_servers
from odradek.clients.errors import ClientError, NoBootstrapServerError, UnreachableError
from odradek.clients.readiness import Readiness, Wanted, look
from odradek.clients.security import ClientSecurity
from odradek.printable import one_line

RESPONSE_S = 10.0
"""The longest time that one broker may take to respond, in seconds."""
SHORTEST_RESPONSE_S = 5.0
"""The time that a broker has to respond also shortly before the timeout, so that a short one gives a result, in seconds."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 1.0
PARTITIONS_SHOWN = 20


class Watch:
    """Looks at a cluster through the first bootstrap server that responds, and through the next one after a failure.

    :ivar unreachable: why no bootstrap server responded, by address; empty after a look that succeeded.
    """

    def __init__(self, servers: str, security: ClientSecurity) -> None:
        self._addresses = parse_servers(servers)
        self._security = security
        self._cluster: Cluster | None = None
        self._warned: set[str] = set()
        self.unreachable: dict[str, str] = {}

    def close(self) -> None:
        """Close all connections."""
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None

    def look(self, wanted: Wanted, timeout_s: float) -> Readiness | None:
        """Look once; None if no bootstrap server responds. :param timeout_s: for each response."""
        if self._cluster is not None:
            try:
                return look(self._cluster, wanted)
            except ClientError:
                self.close()  # the broker may be restarting; ask the next one
        self.unreachable = {}
        for address in self._addresses:
            name = _text(address)
            self._cluster = Cluster(name, timeout_s, security=self._security)
            try:
                return look(self._cluster, wanted)
            except ClientError as error:
                self.close()
                self._failed(name, error)
        self._addresses = [*self._addresses[1:], self._addresses[0]]
        return None

    def _failed(self, address: str, error: ClientError) -> None:
        """Note the failure. An error that waiting seldom resolves, such as a wrong password, is also printed, once."""
        text = str(error)
        self.unreachable[address] = text
        refused = isinstance(error, NoBootstrapServerError) and error.refused
        if (refused or not isinstance(error, UnreachableError)) and text not in self._warned and len(self._warned) < 8:
            self._warned.add(text)
            warn(f"{text}; retrying")


def run(servers: str, wanted: Wanted, timeout_s: float, as_json: bool) -> None:
    """Wait and print the result. Ends the command with exit code 1 at the timeout. Raises ClientError for a bad address."""
    watch = Watch(servers, command_security())
    began = time.monotonic()
    seen: Readiness | None = None
    try:
        with interrupt_note(lambda: "the cluster was not ready yet"), _status() as show:
            seen = _until_ready(watch, wanted, timeout_s, show)
    finally:
        watch.close()
    waited_ms = int((time.monotonic() - began) * 1000)
    if seen is not None and seen.ready:
        _print_ready(seen, wanted, waited_ms, as_json)
        return
    missing = _missing(watch, seen, wanted)
    if as_json:
        _print_json(seen, missing, waited_ms)
        sys.exit(1)
    for line in missing:
        complain(line)
    fail(f"the cluster is not ready after {span(waited_ms)}")


def _until_ready(watch: Watch, wanted: Wanted, timeout_s: float, show: "Show") -> Readiness | None:
    backoff = Waits(FIRST_PAUSE_S, LONGEST_PAUSE_S, timeout_s)
    while True:
        seen = watch.look(wanted, min(RESPONSE_S, max(backoff.left_s, SHORTEST_RESPONSE_S)))
        if seen is not None and seen.ready:
            return seen
        missing = _missing(watch, seen, wanted)
        show(missing[0] + (f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""))
        if not backoff.wait():
            return seen


def _missing(watch: Watch, seen: Readiness | None, wanted: Wanted) -> list[str]:
    if seen is None:
        return [f"no bootstrap server responds: {error}" for error in watch.unreachable.values()]
    return seen.lines(wanted, PARTITIONS_SHOWN)


class Show:
    """Shows on a terminal what the command waits for, in one line of standard error that is replaced."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._shown = False

    def __call__(self, text: str) -> None:
        if self._terminal:
            width = 78
            click.echo(f"\r\x1b[K{one_line(text)[:width]}", nl=False, err=True)
            self._shown = True

    def end(self) -> None:
        """Remove the line."""
        if self._shown:
            click.echo("\r\x1b[K", nl=False, err=True)


@contextmanager
def _status() -> Iterator[Show]:
    show = Show()
    try:
        yield show
    finally:
        show.end()


def _print_ready(seen: Readiness, wanted: Wanted, waited_ms: int, as_json: bool) -> None:
    if as_json:
        _print_json(seen, [], waited_ms)
        return
    brokers = count(len(seen.brokers), "broker")
    verb = "is" if len(seen.brokers) == 1 else "are"
    in_sync = f", and all replicas of {count(seen.partitions, 'partition')} are in sync" if wanted.in_sync else ""
    echo(f"{brokers} {verb} registered{in_sync}; waited {span(waited_ms)}")


def _print_json(seen: Readiness | None, missing: Sequence[str], waited_ms: int) -> None:
    document = {
        "ready": seen is not None and seen.ready,
        "waited_ms": waited_ms,
        "brokers": [] if seen is None else sorted(seen.brokers),
        "partitions": 0 if seen is None else seen.partitions,
        "missing_brokers": [] if seen is None else list(seen.unregistered),
        "silent_brokers": {} if seen is None else {str(broker_id): text for broker_id, text in seen.silent.items()},
        "unready_partitions": 0 if seen is None else len(seen.unready),
        "missing": list(missing),
    }
    echo_json(document)


def _text(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
