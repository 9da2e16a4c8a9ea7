"""The two measured brokers, started as processes; CPU time and memory come from the kernel, not from the brokers."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from odradek.testing.process_tree import descendants, listens_on, pss_bytes

ROOT = Path(__file__).resolve().parent.parent
GENERATOR = ROOT / ".build" / "gen"
KAFKA = Path(os.environ.get("KAFKA_PEER", ROOT.parent / "shared" / "peers" / "kafka" / "kafka"))
NETWORK_THREADS = 2
TIMEOUT_S = 300
_CPU_CLOCK_OF_PROCESS = 2
_LOG_TAIL_BYTES = 2000


class BenchError(Exception):
    """A measurement failed, or its result cannot be trusted; the message is one line."""


def free_port() -> int:
    """Return a port that is free together with the next one, which Kafka's controller uses."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port = int(first.getsockname()[1])
            try:
                second.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port


def cpu_ns(pids: Iterable[int]) -> int:
    """Return the CPU time of these processes in nanoseconds, from the kernel's CPU clock of each (clock_getcpuclockid(3)).

    It is the sum of ``/proc/PID/task/*/schedstat``, and also counts threads that have ended, as a JVM's compiler threads do.
    Raises OSError if one of the processes does not exist any more.
    """
    return sum(time.clock_gettime_ns(~pid << 3 | _CPU_CLOCK_OF_PROCESS) for pid in pids)


def _has_ended(pid: int) -> bool:
    """Whether the process does not exist, or is a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


class Server:
    """A broker with a separate directory. `start` and `stop` may be called repeatedly on the same data."""

    name = ""

    def __init__(self, directory: Path, settings: dict[str, str] | None = None) -> None:
        self.directory = directory
        self.settings = settings or {}
        self.port = free_port()
        self.ports: dict[str, int] = {}  # of further listeners, by their names
        self.pid = 0

    def start(self) -> None:
        raise NotImplementedError

    def stop(self) -> float:
        """Stop the broker in order; return the seconds until its last process has ended."""
        began = time.monotonic()
        pids = self.pids()
        fds = [os.pidfd_open(pid) for pid in pids]
        os.kill(self.pid, signal.SIGTERM)
        self._reap(fds)
        return time.monotonic() - began

    def kill(self) -> None:
        """Kill all its processes with SIGKILL."""
        pids = self.pids()
        fds = [os.pidfd_open(pid) for pid in pids]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        self._reap(fds)

    def _reap(self, fds: list[int]) -> None:
        import select

        for fd in fds:
            poll = select.poll()
            poll.register(fd, select.POLLIN)
            if not poll.poll(TIMEOUT_S * 1000):
                raise BenchError(f"{self.name} did not end in {TIMEOUT_S} s")
            os.close(fd)
        self.pid = 0

    def pids(self) -> list[int]:
        """Return all its processes, the started one first. Raises BenchError if that one has ended."""
        alive = descendants(self.pid) if self.pid else []
        if not alive or _has_ended(self.pid):
            raise BenchError(f"{self.name} has ended unexpectedly: {self.log_tail()}")
        return alive

    def end(self) -> None:
        """Clean up: kill the processes that still run, remove the directory."""
        if self.pid and not _has_ended(self.pid):
            self.kill()
        remove(self.directory)

    def cpu_ns(self) -> dict[int, int]:
        """Return the CPU time of each of its processes."""
        return {pid: cpu_ns([pid]) for pid in self.pids()}

    def cpu_ns_since(self, before: dict[int, int]) -> int:
        """Return the CPU time of all its processes since ``before``, a result of :meth:`cpu_ns`.

        Raises BenchError if a process ended or started in between, because the CPU time would be incomplete.
        """
        after = self.cpu_ns()
        if after.keys() != before.keys():
            raise BenchError(
                f"the processes of {self.name} changed during the measurement: {sorted(before)} before, {sorted(after)} after"
            )
        return sum(after.values()) - sum(before.values())

    def log_tail(self) -> str:
        """Return the end of its log."""
        log = self.directory / "server.log"
        return log.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace") if log.exists() else ""

    def pss(self) -> int:
        return pss_bytes(self.pids())

    def check(self) -> None:
        """Check that the started process listens on the port."""
        if not any(listens_on(pid, self.port) for pid in self.pids()):
            raise BenchError(
                f"{self.name} (process {self.pid}) does not listen on port {self.port}; another process may use it"
            )

    def wait(self, topics: str = "", partitions: int = 1) -> dict[str, Any]:
        """Return the times (monotonic seconds) at which it listened, answered a request, and served all partitions."""
        arguments = ["--timeout", str(TIMEOUT_S), "--partitions", str(partitions)]
        return generate("wait", self, *arguments, *(["--topic", topics] if topics else []))

    def create_topic(self, topic: str, partitions: int = 1, **configs: str) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic

        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{self.port}", "log_level": 0})
        admin.create_topics([NewTopic(topic, partitions, 1, config=configs)])[topic].result(120)

    def delete_topic(self, topic: str) -> None:
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{self.port}", "log_level": 0})
        admin.delete_topics([topic])[topic].result(60)


class Ours(Server):
    """Odradek, started with `odradek start`."""

    name = "ours"
    checkout = ROOT  # whose modules run, whichever ones the environment has installed

    def start(self) -> None:
        settings = {
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "metrics.listener": "127.0.0.1:0",
            "log.dirs": str(self.directory / "data"),
            "num.network.threads": str(NETWORK_THREADS),
            "log.segment.delete.delay.ms": "1000",
            "max.incremental.fetch.session.cache.slots": "2000",
            "odradek.transactional.ids.max": "1000000",  # Kafka has no such limits
            "odradek.transactional.ids.max.per.client": "1000000",
        } | self.settings
        arguments = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        self.directory.mkdir(parents=True, exist_ok=True)
        with open(self.directory / "server.log", "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "odradek.cli", "start", *arguments],
                cwd=self.checkout,
                env={name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
                | {"PYTHONPATH": str(self.checkout / "broker")},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.pid = self._process.pid

    def stop(self) -> float:
        seconds = super().stop()
        if self._process.returncode:
            raise BenchError(f"{self.name} stopped with exit code {self._process.returncode}: {self.log_tail()}")
        return seconds

    def _reap(self, fds: list[int]) -> None:
        self._process.wait(TIMEOUT_S)
        super()._reap(fds)


class Kafka(Server):
    """Apache Kafka, started with its start script (1 GB heap, G1)."""

    name = "Kafka"
    version = "4.3.0"
    _background: "subprocess.Popen[bytes] | None" = (
        None  # set by start_in_background, where the process is a child of this one
    )

    def start(self) -> None:
        settings = {
            "num.network.threads": str(NETWORK_THREADS),
            "log.segment.delete.delay.ms": "1000",
            "max.incremental.fetch.session.cache.slots": "2000",
        } | self.settings
        words = [f"{key}={value}" for key, value in settings.items()]
        environment = os.environ | {"KAFKA_PEER_VERSION": self.version}
        done = subprocess.run(
            [str(KAFKA), "start", str(self.port), str(self.directory), *words],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise BenchError(f"Kafka does not start: {done.stderr.strip().splitlines()[-1:]}")
        self.pid = int((self.directory / "pid").read_text())

    def start_in_background(self) -> None:
        """Start it without the waiting of the script, for measurements of the start; the directory must be formatted
        already."""
        jars = Path(os.environ.get("KAFKA_PEER_HOME", Path.home() / ".cache" / "kafka-peer")) / self.version
        command = ["java", "-Xms1G", "-Xmx1G", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"]
        command += ["-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"]
        command += [f"-Dlog4j2.configurationFile={KAFKA.parent / 'log4j2.properties'}", "-cp", f"{jars}/*"]
        command += ["kafka.Kafka", str(self.directory / "server.properties")]
        with open(self.directory / "server.log", "ab") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.pid = process.pid
        self._background = process

    def _reap(self, fds: list[int]) -> None:
        if self._background is not None:
            self._background.wait(TIMEOUT_S)
            self._background = None
        super()._reap(fds)


class Kafka39(Kafka):
    """The last version of Kafka that serves the message formats before record batches."""

    version = "3.9.1"


def generate(load: str, server: Server | None, *arguments: str) -> dict[str, Any]:
    """Run the generator and return its result. Raises BenchError with its error message."""
    import json

    port = ["--port", str(server.port)] if server else []
    done = subprocess.run(
        [str(GENERATOR), load, *port, *arguments], capture_output=True, text=True, check=False, timeout=TIMEOUT_S * 2
    )
    if done.returncode:
        raise BenchError(f"load {load} on {server.name if server else 'no broker'} failed: {done.stderr.strip()}")
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


class Held:
    """A generator that runs until it is stopped, for measurements during its window."""

    def __init__(self, load: str, server: Server, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [str(GENERATOR), load, "--port", str(server.port), "--sync", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.expect("ready")

    def expect(self, word: str) -> None:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if line.strip() != word:
            raise BenchError(f"the generator printed {line!r}; expected {word!r}")

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def finish(self) -> dict[str, Any]:
        import json

        assert self._process.stdout is not None
        output = self._process.stdout.read()
        if self._process.wait():
            raise BenchError("the generator found an error in the responses; its message is above")
        result: dict[str, Any] = json.loads(output.strip().splitlines()[-1])
        return result


def warm_memory(scratch: Path, size: int) -> None:
    """Write and remove a file of that size, because the first use of free memory is slow on some machines."""
    block = bytes(1 << 20)
    with open(scratch, "wb") as file:
        for _ in range(max(1, size >> 20)):
            file.write(block)
    scratch.unlink()


def remove(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=False)
