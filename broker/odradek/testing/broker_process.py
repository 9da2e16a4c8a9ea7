"""A real broker for tests: started in separate processes on a free port, and ended by process id.

Runs in the process of the test. It waits only on descriptors (the readiness datagram, pidfds), never on the clock. It proves
that the process that responds is the process that it started: the kernel's credentials of the readiness message name its
sender, ``odradek.pid`` names the same process with its start time, and that process holds the listening socket. An ended
supervisor stays a zombie until its process group is killed, so that its id cannot be reused before. Between an end and the
next start, this process holds the broker's port, so that no other process takes it.
"""

import os
import select
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from odradek.config.listeners import Listener
from odradek.config.pid_file import BrokerIdentity, read_pid_file, start_ticks
from odradek.testing.create_topics import create_topics
from odradek.testing.process_tree import descendants, group_of, listens_on, open_pidfds, pss_bytes, wait_for_end
from odradek.testing.status import read_status

if TYPE_CHECKING:
    from odradek.testing.certificates import CertificateFiles

_LOG_TAIL_BYTES = 4000
RETRY_AFTER_S = 0.1
_CREDENTIALS = struct.Struct("iII")


WITHOUT_REPORTER = {"metrics.listener": "", "usage.spool.max.bytes": "0"}
"""Defaults that start no reporter process and open no metrics port, unless a test sets these keys."""


class BrokerError(RuntimeError):
    """The broker did not start, stop or respond; the message contains the end of its log."""


class Broker:
    """A broker in ``directory`` (default: a temporary directory, which is removed at the end).

    ``config`` contains settings of server.properties. ``topics`` are created at the first start: by name the number of
    partitions, or a mapping of topic configuration that may contain ``partitions``. ``python`` is the interpreter to run;
    ``environment`` is added to the environment of this process. ``timeout`` limits the start and the stop, in seconds. With
    ``tls``, the listener is one with TLS, ``certificates`` has the files of the broker and of a client, and
    ``certificates.librdkafka_settings`` the settings of a client.
    """

    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        topics: Mapping[str, int | Mapping[str, str]] | None = None,
        *,
        directory: str | os.PathLike[str] | None = None,
        environment: Mapping[str, str] | None = None,
        python: str = sys.executable,
        timeout: float = 90.0,
        tls: bool = False,
    ) -> None:
        self._owns_directory = directory is None
        self.directory = Path(directory if directory is not None else tempfile.mkdtemp(prefix="odradek-"))
        self.config = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(self.directory / "data")}
        self.config |= WITHOUT_REPORTER
        self.certificates: CertificateFiles | None = None
        if tls:
            from odradek.testing.certificates import make_certificates  # here, because few tests need it

            self.certificates = make_certificates(self.directory / "tls")
            self.config |= {"listeners": "SSL://127.0.0.1:0"} | self.certificates.broker_settings
        self.config |= {name: str(value) for name, value in (config or {}).items()}
        self.data_dir = Path(self.config["log.dirs"].split(",")[0])
        self.log_file = self.directory / "broker.log"
        self.topics = dict(topics or {})
        self.timeout = timeout
        self.start_seconds = 0.0
        self._python = python
        self._environment = dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0
        self._host = self._bound_host = ""
        self._held: socket.socket | None = None
        self._listeners: tuple[Listener, ...] = ()

    def __enter__(self) -> "Broker":
        try:
            self.start()
        except BaseException:
            self._remove_directory()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if self.running:
                # safe if the process has ended by now: it is not reaped, so its id is not reused
                os.kill(self.pid, signal.SIGTERM)
                self._wait_until_stopped()
        finally:
            self._end_group()
            self._release_port()
            self._remove_directory()

    @property
    def running(self) -> bool:
        """Whether the supervisor runs: from a successful start until it ends."""
        if self._process is None or self._process.returncode is not None:
            return False
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    @property
    def pid(self) -> int:
        """The supervisor's process id. Raises BrokerError if the broker was never started."""
        if self._process is None:
            raise BrokerError("the broker was not started")
        return self._process.pid

    @property
    def port(self) -> int:
        """The port to which the first listener is bound."""
        return self._port

    @property
    def host(self) -> str:
        """The host at which clients connect to the first listener."""
        return self._host

    @property
    def metrics_url(self) -> str:
        """The URL of `metrics.listener`, without a slash at the end. Raises BrokerError if the broker has no such listener."""
        status = self.status()
        address = status["metrics"]
        if address is None:
            raise BrokerError("the broker has no metrics.listener")
        host = f"[{address['host']}]" if ":" in address["host"] else address["host"]
        return f"http{'s' if status['metrics_tls'] else ''}://{host}:{address['port']}"

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` for clients."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def start(self) -> None:
        """Start the broker, wait until it is ready, and at the first start create the topics. Raises BrokerError."""
        if self.running:
            raise BrokerError(f"the broker already runs as process {self.pid}")
        first = self._process is None
        self.directory.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        try:
            while not self._attempt():
                if time.monotonic() - began > self.timeout:
                    raise self._error(f"port {self._port}, which the broker had before, is in use by another process")
                time.sleep(RETRY_AFTER_S)
            self._identify()
            self._release_port()
            self.start_seconds = time.monotonic() - began
            if first and self.topics:
                self._create_topics()
        except BaseException:
            self._end_group()
            raise

    def stop(self) -> None:
        """Send SIGTERM and wait for the end. Raises BrokerError on a timeout, or a nonzero exit code."""
        self.signal(signal.SIGTERM)
        self._wait_until_stopped()

    def _wait_until_stopped(self) -> None:
        if not self._wait_for_end([self.pid]):
            self._end_group()
            raise self._error(f"the broker did not stop within {self.timeout:g} s")
        code = self._reap()
        if code != 0:
            raise self._error(f"the broker stopped with exit code {code}")

    def kill(self) -> None:
        """Kill the supervisor (SIGKILL) and wait until its children, which detect its end, have ended too.

        If they do not end in time, kills them and raises BrokerError.
        """
        self.signal(signal.SIGKILL)
        if not self._wait_for_group():
            self._end_group()
            raise self._error(f"children of the killed supervisor still ran after {self.timeout:g} s")
        self._reap()

    def kill_group(self) -> None:
        """Kill all processes of the broker at once (SIGKILL), as in a power failure, and wait for their end."""
        os.killpg(self.pid, signal.SIGKILL)
        if not self._wait_for_group():
            raise self._error("a killed process of the broker did not end")
        self._reap()

    def restart(self) -> None:
        """Stop the broker if it runs, and start it on the same data and the same port. Raises BrokerError."""
        if self.running:
            self.stop()
        self.start()

    def signal(self, number: int) -> None:
        """Send a signal to the supervisor. Raises BrokerError if the broker is not running."""
        if not self.running:
            raise self._error("the broker is not running")
        os.kill(self.pid, number)

    def status(self) -> dict[str, Any]:
        """The supervisor's status. Raises OSError if it does not respond."""
        return read_status(str(self.data_dir), self.timeout)

    def processes(self) -> list[dict[str, Any]]:
        """The processes in the supervisor's status: kind, pid, state, restarts."""
        return list(self.status()["processes"])

    def process_ids(self) -> list[int]:
        """The ids of the broker's processes from /proc, the supervisor first."""
        return descendants(self.pid)

    def pss_bytes(self) -> int:
        """The proportional set size of all processes of the broker, in bytes."""
        return pss_bytes(self.process_ids())

    @property
    def log_bytes(self) -> int:
        """The size of the broker's log."""
        return self.log_file.stat().st_size if self.log_file.exists() else 0

    def log_tail(self, since: int = 0) -> str:
        """The end of the broker's log. :param since: only what follows this number of bytes."""
        if not self.log_file.exists():
            return ""
        return self.log_file.read_bytes()[since:][-_LOG_TAIL_BYTES:].decode(errors="replace").strip()

    def _create_topics(self) -> None:
        first = next((listener for listener in self._listeners if listener.protocol == "PLAINTEXT"), self._listeners[0])
        context = None
        if first.protocol != "PLAINTEXT" and self.certificates is not None:
            context = ssl.create_default_context(cafile=str(self.certificates.ca))
        try:
            create_topics(first.host or "127.0.0.1", first.port, self.topics, self.timeout, context)
        except (OSError, RuntimeError) as error:
            raise self._error(f"the topics were not created: {error}") from error

    def _attempt(self) -> bool:
        """Launch the broker; False if its port is in use, perhaps by a client's end of a connection. Raises BrokerError."""
        log_size = self.log_bytes
        try:
            self._launch()
        except BrokerError:
            with self.log_file.open("rb") as log:
                log.seek(log_size)
                port_in_use = self._keeps_port and b"cannot be opened: the port is in use" in log.read()
            if not port_in_use:
                raise
            self._end_group()
            return False
        return True

    @property
    def _keeps_port(self) -> bool:
        """Whether a restart must use the previous port, which the system had chosen, so that clients find the broker."""
        return bool(self._port) and self.config["listeners"].partition(",")[0].endswith(":0")

    def _launch(self) -> None:
        config = dict(self.config)
        if self._keeps_port:
            first, comma, rest = config["listeners"].partition(",")
            config["listeners"] = f"{first[:-1]}{self._port}{comma}{rest}"
        command = [self._python, "-m", "odradek.cli", "start"]
        for name, value in config.items():
            command += ["--set", f"{name}={value}"]
        with (
            tempfile.TemporaryDirectory(prefix="odradek-ready-") as directory,
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready,
        ):
            ready.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            ready.bind(f"{directory}/notify")
            environment = os.environ | self._environment | {"NOTIFY_SOCKET": f"{directory}/notify"}
            environment.pop("WATCHDOG_USEC", None)
            with self.log_file.open("ab") as log:
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=environment,
                    start_new_session=True,
                )
            self._wait_until_ready(ready)

    def _wait_until_ready(self, ready: socket.socket) -> None:
        """Wait for READY=1 from the process that was started. Raises BrokerError if it ends before, or on a timeout."""
        deadline = time.monotonic() + self.timeout
        pidfd = os.pidfd_open(self.pid)
        try:
            poll = select.poll()
            poll.register(ready, select.POLLIN)
            poll.register(pidfd, select.POLLIN)
            while True:
                events = {descriptor for descriptor, _ in poll.poll(max(0, deadline - time.monotonic()) * 1000)}
                if not events:
                    raise self._error(f"the broker was not ready within {self.timeout:g} s")
                if ready.fileno() in events:
                    message, ancillary, _, _ = ready.recvmsg(4096, socket.CMSG_SPACE(_CREDENTIALS.size))
                    senders = {
                        _CREDENTIALS.unpack(data)[0] for _, _, data in ancillary if len(data) == _CREDENTIALS.size
                    }
                    if self.pid in senders and b"READY=1" in message.split(b"\n"):
                        return
                elif pidfd in events:
                    raise self._error(f"the broker ended with exit code {self._end_group()} before it was ready")
        finally:
            os.close(pidfd)

    def _identify(self) -> None:
        """Read the broker's address, and check that the process that was started is the one that listens."""
        running = read_pid_file(str(self.data_dir))
        if running is None or running.pid != self.pid:
            running = self._from_status()  # the file may be an old one, if the disk had no space for a new one
        if running is None or running.pid != self.pid or not running.is_alive():
            raise self._error(f"odradek.pid in {self.data_dir} names {running} instead of process {self.pid}")
        self._listeners = running.listeners
        first = running.listeners[0]
        if not listens_on(self.pid, first.port):
            raise self._error(f"port {first.port} is not held by process {self.pid}")
        self._port = first.port
        self._bound_host = first.host
        self._host = first.host or "127.0.0.1"

    def _from_status(self) -> BrokerIdentity | None:
        """The broker that responds on the directory's status socket; None if there is no response."""
        try:
            report = read_status(str(self.data_dir))
        except (OSError, ValueError):
            return None
        ticks = start_ticks(report["pid"])
        listeners = tuple(Listener(**listener) for listener in report["listeners"])
        return None if ticks is None else BrokerIdentity(report["pid"], ticks, listeners)

    def _error(self, text: str) -> BrokerError:
        tail = self.log_tail()
        return BrokerError(f"{text}\n--- end of {self.log_file}\n{tail}" if tail else text)

    def _remove_directory(self) -> None:
        if self._owns_directory:
            shutil.rmtree(self.directory)

    def _wait_for_end(self, pids: list[int]) -> bool:
        pidfds = open_pidfds(pids)
        try:
            return wait_for_end(pidfds, self.timeout)
        finally:
            for pidfd in pidfds:
                os.close(pidfd)

    def _wait_for_group(self) -> bool:
        """Wait until the supervisor has ended, and then all its children, including one that it has just forked."""
        return self._wait_for_end([self.pid]) and self._wait_for_end(group_of(self.pid))

    def _reap(self) -> int | None:
        if self._process is None:
            return None
        code = self._process.wait()
        self._hold_port()
        return code

    def _hold_port(self) -> None:
        """Bind the port without listening: the system then assigns it to no other socket, but the broker can listen on it."""
        if not self._keeps_port or self._held is not None:
            return
        addresses = socket.getaddrinfo(
            self._bound_host or None, self._port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        held = socket.socket(addresses[0][0], socket.SOCK_STREAM)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            held.bind(addresses[0][4])
        except OSError:  # another process has taken the port; the next start reports that
            held.close()
        else:
            self._held = held

    def _release_port(self) -> None:
        if self._held is not None:
            self._held.close()
            self._held = None

    def _end_group(self) -> int | None:
        """Kill all remaining processes of the broker's process group; return the supervisor's exit code."""
        if self._process is not None and self._process.returncode is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        return self._reap()
