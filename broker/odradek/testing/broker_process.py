"""A real broker for tests: started as processes of its own, on a free port, ended by process id.

Runs in the process of the test. It waits on descriptors only (the readiness datagram, pidfds), never on the clock. What
answers is proved to be what was started: the readiness message carries the kernel's word for its sender,
``odradek.pid`` names the same process with its start time, and that process holds the listening socket. An ended
supervisor stays a zombie until its group was dealt with, so that its id cannot have become another's when the group is
killed. Between an end and the next start its port is held here, so that nobody else is given it meanwhile.
"""

import os
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from odradek.config.listeners import Listener
from odradek.config.pid_file import RunningBroker, read_pid_file, start_ticks
from odradek.testing.create_topics import create_topics
from odradek.testing.process_tree import descendants, group_of, listens_on, open_pidfds, pss_bytes, wait_for_end
from odradek.testing.status import read_status

_LOG_TAIL_BYTES = 4000
AGAIN_AFTER_S = 0.1
_CREDENTIALS = struct.Struct("iII")


WITHOUT_REPORTER = {"metrics.listener": "", "usage.spool.max.bytes": "0"}
"""Nothing that tests do not ask for: no fixed port, no process for it."""


class BrokerError(RuntimeError):
    """The broker did not start, stop or answer as it should; carries the end of its log."""


class Broker:
    """A broker in ``directory`` (by default a temporary one that is removed at the end).

    ``config`` are settings of server.properties; ``topics`` are created once it answers: partitions by name, or a
    mapping of topic configuration with ``partitions`` in it. ``python`` is the interpreter to run, ``environment`` is
    added to this process' own. ``timeout`` in seconds bounds start and stop.
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
    ) -> None:
        self._owns_directory = directory is None
        self.directory = Path(directory if directory is not None else tempfile.mkdtemp(prefix="odradek-"))
        self.config = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(self.directory / "data")}
        self.config |= WITHOUT_REPORTER
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
                os.kill(self.pid, signal.SIGTERM)  # one that has ended since then was not reaped: no harm
                self._stopped()
        finally:
            self._end_group()
            self._let_port_go()
            self._remove_directory()

    @property
    def running(self) -> bool:
        """True from a successful start until it was stopped, killed, or ended by itself."""
        if self._process is None or self._process.returncode is not None:
            return False
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    @property
    def pid(self) -> int:
        """The supervisor's process id. Raises BrokerError if it was never started."""
        if self._process is None:
            raise BrokerError("the broker was not started")
        return self._process.pid

    @property
    def port(self) -> int:
        """The port of the first listener, as bound."""
        return self._port

    @property
    def host(self) -> str:
        """Where clients reach the first listener."""
        return self._host

    @property
    def metrics_url(self) -> str:
        """Where it serves HTTP, without a slash at the end; for a broker with `metrics.listener`. Raises BrokerError."""
        address = self.status()["metrics"]
        if address is None:
            raise BrokerError("the broker has no metrics.listener")
        host = f"[{address['host']}]" if ":" in address["host"] else address["host"]
        return f"http://{host}:{address['port']}"

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` for clients."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def start(self) -> None:
        """Starts it, waits until it is ready, creates the topics if it is the first start. Raises BrokerError."""
        if self.running:
            raise BrokerError(f"the broker already runs as process {self.pid}")
        first = self._process is None
        self.directory.mkdir(parents=True, exist_ok=True)
        began = time.monotonic()
        try:
            while not self._attempt():
                if time.monotonic() - began > self.timeout:
                    raise self._error(f"port {self._port} of the start before is in use by somebody else")
                time.sleep(AGAIN_AFTER_S)
            self._identify()
            self._let_port_go()
            self.start_seconds = time.monotonic() - began
            if first and self.topics:
                self._create_topics()
        except BaseException:
            self._end_group()
            raise

    def stop(self) -> None:
        """Asks it to end (SIGTERM) and waits. Raises BrokerError if it takes too long or ends with an error."""
        self.signal(signal.SIGTERM)
        self._stopped()

    def _stopped(self) -> None:
        if not self._wait_for_end([self.pid]):
            self._end_group()
            raise self._error(f"the broker did not stop within {self.timeout:g} s")
        code = self._reap()
        if code != 0:
            raise self._error(f"the broker stopped with exit code {code}")

    def kill(self) -> None:
        """Kills the supervisor (SIGKILL) and waits until its children, who notice, have ended too.

        Raises BrokerError, after killing them, if they do not.
        """
        self.signal(signal.SIGKILL)
        if not self._wait_for_group():
            self._end_group()
            raise self._error(f"children of the killed supervisor still lived after {self.timeout:g} s")
        self._reap()

    def kill_group(self) -> None:
        """Kills all its processes at once (SIGKILL), as a power failure would, and waits for their end."""
        os.killpg(self.pid, signal.SIGKILL)
        if not self._wait_for_group():
            raise self._error("a killed process of the broker did not end")
        self._reap()

    def restart(self) -> None:
        """Stops it if it runs, and starts it on the same data and the same port. Raises BrokerError."""
        if self.running:
            self.stop()
        self.start()

    def signal(self, number: int) -> None:
        """Sends a signal to the supervisor. Raises BrokerError if it does not run."""
        if not self.running:
            raise self._error("the broker does not run")
        os.kill(self.pid, number)

    def status(self) -> dict[str, Any]:
        """What its supervisor tells of itself. Raises OSError if it does not answer."""
        return read_status(str(self.data_dir), self.timeout)

    def processes(self) -> list[dict[str, Any]]:
        """Its processes as the supervisor knows them: kind, pid, state, restarts."""
        return list(self.status()["processes"])

    def process_ids(self) -> list[int]:
        """All its processes as the kernel knows them, the supervisor first."""
        return descendants(self.pid)

    def pss_bytes(self) -> int:
        """Proportional memory of all its processes."""
        return pss_bytes(self.process_ids())

    def log_tail(self) -> str:
        """The end of what it wrote to its log."""
        if not self.log_file.exists():
            return ""
        return self.log_file.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace").strip()

    def _create_topics(self) -> None:
        try:
            create_topics(self.host, self.port, self.topics, self.timeout)
        except (OSError, RuntimeError) as error:
            raise self._error(f"the topics were not created: {error}") from error

    def _attempt(self) -> bool:
        """False if somebody has taken the port meanwhile, as a client's end of a connection perhaps. Raises BrokerError."""
        at = self.log_file.stat().st_size if self.log_file.exists() else 0
        try:
            self._launch()
        except BrokerError:
            with self.log_file.open("rb") as log:
                log.seek(at)
                taken = self._again and b"cannot be opened: the port is in use" in log.read()
            if not taken:
                raise
            self._end_group()
            return False
        return True

    @property
    def _again(self) -> bool:
        """Whether clients of the test shall find it where it was, though its port was the system's choice."""
        return bool(self._port) and self.config["listeners"].partition(",")[0].endswith(":0")

    def _launch(self) -> None:
        config = dict(self.config)
        if self._again:
            first, comma, others = config["listeners"].partition(",")
            config["listeners"] = f"{first[:-1]}{self._port}{comma}{others}"
        command = [self._python, "-m", "odradek.cli.main", "start"]
        for name, value in config.items():
            command += ["--set", f"{name}={value}"]
        with (
            tempfile.TemporaryDirectory(prefix="odradek-ready-") as place,
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready,
        ):
            ready.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            ready.bind(f"{place}/notify")
            environment = os.environ | self._environment | {"NOTIFY_SOCKET": f"{place}/notify"}
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
        """Until READY=1 from the very process that was started, its end, or the timeout."""
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
        """Reads address and identity, and checks that the process started is the one that listens."""
        running = read_pid_file(str(self.data_dir))
        if running is None or running.pid != self.pid:
            running = self._answering()  # the file may be older than the broker, which found no room for its own
        if running is None or running.pid != self.pid or not running.is_alive():
            raise self._error(f"odradek.pid in {self.data_dir} names {running} instead of process {self.pid}")
        first = running.listeners[0]
        if not listens_on(self.pid, first.port):
            raise self._error(f"port {first.port} is not held by process {self.pid}")
        self._port = first.port
        self._bound_host = first.host
        self._host = first.host or "127.0.0.1"

    def _answering(self) -> RunningBroker | None:
        """The broker of the directory, as its status socket says; None if nobody answers."""
        try:
            report = read_status(str(self.data_dir))
        except (OSError, ValueError):
            return None
        ticks = start_ticks(report["pid"])
        listeners = tuple(Listener(**one) for one in report["listeners"])
        return None if ticks is None else RunningBroker(report["pid"], ticks, listeners)

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
        """Until the supervisor has ended and then all its children, among them one that it had just forked."""
        return self._wait_for_end([self.pid]) and self._wait_for_end(group_of(self.pid))

    def _reap(self) -> int | None:
        if self._process is None:
            return None
        code = self._process.wait()
        self._hold_port()
        return code

    def _hold_port(self) -> None:
        """Bound and not listening: the system gives the port to nobody, and whoever asks for it by number may listen on it."""
        if not self._again or self._held is not None:
            return
        found = socket.getaddrinfo(
            self._bound_host or None, self._port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        held = socket.socket(found[0][0], socket.SOCK_STREAM)
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            held.bind(found[0][4])
        except OSError:  # somebody was faster, as the next start will say
            held.close()
        else:
            self._held = held

    def _let_port_go(self) -> None:
        if self._held is not None:
            self._held.close()
            self._held = None

    def _end_group(self) -> int | None:
        """Kills what is left of the session that the broker was started in; the supervisor's exit code."""
        if self._process is not None and self._process.returncode is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        return self._reap()
