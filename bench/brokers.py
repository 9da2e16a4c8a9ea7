"""The two brokers under measurement, started as processes, measured from outside by what the kernel says of them."""

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

from broker.testing.process_tree import descendants, listens_on, pss_bytes

ROOT = Path(__file__).resolve().parent.parent
GENERATOR = ROOT / ".build" / "gen"
KAFKA = Path(os.environ.get("KAFKA_PEER", ROOT.parent / "shared" / "peers" / "kafka" / "kafka"))
NETWORK_THREADS = 2
TIMEOUT_S = 300


class BenchError(Exception):
    """A measurement that cannot be made, or whose result is not to be trusted; one line."""


def free_port() -> int:
    """A port that nobody listens on now, nor on the next one (Kafka's controller takes that)."""
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
    """Nanoseconds on a processor of all threads of these processes so far."""
    total = 0
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").iterdir():
            try:
                total += int((task / "schedstat").read_text().split()[0])
            except (FileNotFoundError, ProcessLookupError):
                continue
    return total


class Server:
    """A broker in a directory of its own. `start` and `stop` may follow each other on the same data."""

    name = ""

    def __init__(self, directory: Path, settings: dict[str, str] | None = None) -> None:
        self.directory = directory
        self.settings = settings or {}
        self.port = free_port()
        self.pid = 0

    def start(self) -> None:
        raise NotImplementedError

    def stop(self) -> float:
        """End the broker in order; seconds until the last of its processes is gone."""
        began = time.monotonic()
        pids = self.pids()
        fds = [os.pidfd_open(pid) for pid in pids]
        os.kill(self.pid, signal.SIGTERM)
        self._reap(fds)
        return time.monotonic() - began

    def kill(self) -> None:
        """End all its processes by SIGKILL."""
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
        return descendants(self.pid)

    def cpu_ns(self) -> int:
        return cpu_ns(self.pids())

    def pss(self) -> int:
        return pss_bytes(self.pids())

    def check(self) -> None:
        """The port must be held by the very process that was started."""
        if not any(listens_on(pid, self.port) for pid in self.pids()):
            raise BenchError(f"port {self.port} is not held by {self.name} (process {self.pid})")

    def wait(self, topics: str = "", partitions: int = 1) -> dict[str, Any]:
        """Seconds on the monotonic clock at which it listened, answered, and served all partitions."""
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
    """Odradek, as `odradek start` runs it."""

    name = "ours"

    def start(self) -> None:
        settings = {
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "log.dirs": str(self.directory / "data"),
            "num.network.threads": str(NETWORK_THREADS),
            "log.segment.delete.delay.ms": "1000",
            "max.incremental.fetch.session.cache.slots": "2000",
        } | self.settings
        arguments = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
        self.directory.mkdir(parents=True, exist_ok=True)
        with open(self.directory / "server.log", "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "broker.cli.main", "start", *arguments],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.pid = self._process.pid

    def _reap(self, fds: list[int]) -> None:
        self._process.wait(TIMEOUT_S)
        super()._reap(fds)


class Kafka(Server):
    """Apache Kafka, as its own start script runs it (1 GB heap, G1)."""

    name = "Kafka"

    def start(self) -> None:
        settings = {
            "num.network.threads": str(NETWORK_THREADS),
            "log.segment.delete.delay.ms": "1000",
            "max.incremental.fetch.session.cache.slots": "2000",
        } | self.settings
        words = [f"{key}={value}" for key, value in settings.items()]
        environment = os.environ | {"KAFKA_PEER_VERSION": "4.3.0"}
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
        """Without the script's own waiting, for measurements of the start: its command line, once it was formatted."""
        jars = Path(os.environ.get("KAFKA_PEER_HOME", Path.home() / ".cache" / "kafka-peer")) / "4.3.0"
        command = ["java", "-Xms1G", "-Xmx1G", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"]
        command += ["-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent"]
        command += [f"-Dlog4j2.configurationFile={KAFKA.parent / 'log4j2.properties'}", "-cp", f"{jars}/*"]
        command += ["kafka.Kafka", str(self.directory / "server.properties")]
        with open(self.directory / "server.log", "ab") as log:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.pid = process.pid
        self._background = process

    def _reap(self, fds: list[int]) -> None:
        background = getattr(self, "_background", None)
        if background is not None:
            background.wait(TIMEOUT_S)
            self._background = None
        super()._reap(fds)


def generate(load: str, server: Server | None, *arguments: str) -> dict[str, Any]:
    """Run the generator; what it printed. Raises BenchError with its complaint."""
    import json

    port = ["--port", str(server.port)] if server else []
    done = subprocess.run(
        [str(GENERATOR), load, *port, *arguments], capture_output=True, text=True, check=False, timeout=TIMEOUT_S * 2
    )
    if done.returncode:
        raise BenchError(f"{load} on {server.name if server else 'nobody'}: {done.stderr.strip()}")
    result: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return result


class Held:
    """A generator that opens its window and waits: for what is measured between its two ends."""

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
            raise BenchError(f"the generator said {line!r} instead of {word!r}")

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def finish(self) -> dict[str, Any]:
        import json

        assert self._process.stdout is not None
        result: dict[str, Any] = json.loads(self._process.stdout.read().strip().splitlines()[-1])
        self._process.wait()
        return result


def warm_memory(scratch: Path, size: int) -> None:
    """Write and remove a file of that size: this machine's first touch of free memory is slow, and nobody's fault."""
    block = bytes(1 << 20)
    with open(scratch, "wb") as file:
        for _ in range(max(1, size >> 20)):
            file.write(block)
    scratch.unlink()


def remove(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=False)
