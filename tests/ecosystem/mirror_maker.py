"""MirrorMaker 2 between two clusters, as one process in its own mode. Runs in the tests' process."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from tests.ecosystem.jars import java_command
from tests.waiting import until

PATIENCE_S = 120.0
MAIN = "org.apache.kafka.connect.mirror.MirrorMaker"
WORKER: dict[str, str | int] = {
    "exactly.once.source.support": "enabled",
    "plugin.discovery": "service_load",
    "scheduled.rebalance.max.delay.ms": 0,
    "session.timeout.ms": 6000,
    "heartbeat.interval.ms": 500,
}
"""Settings of the workers of Kafka Connect in MirrorMaker, which have effect only with the alias of the target before them."""
SETTINGS: dict[str, str | int] = {
    "topics": "orders,states",
    "dedicated.mode.enable.internal.rest": "true",
    "listeners": "http://127.0.0.1:0",
    "sync.group.offsets.enabled": "true",
    "sync.topic.acls.enabled": "true",
    "offset.lag.max": 0,
    "tasks.max": 2,
    "replication.factor": 1,
    "checkpoints.topic.replication.factor": 1,
    "heartbeats.topic.replication.factor": 1,
    "offset-syncs.topic.replication.factor": 1,
    "config.storage.replication.factor": 1,
    "offset.storage.replication.factor": 1,
    "offset.storage.partitions": 2,
    "status.storage.replication.factor": 1,
    "refresh.topics.interval.seconds": 1,
    "refresh.groups.interval.seconds": 1,
    "sync.topic.configs.interval.seconds": 1,
    "sync.topic.acls.interval.seconds": 1,
    "sync.group.offsets.interval.seconds": 1,
    "emit.checkpoints.interval.seconds": 1,
    "emit.heartbeats.interval.seconds": 1,
}
"""docs/operate/ecosystem.md has the same with comments."""


class MirrorMaker:
    """A process that copies in both directions between two clusters.

    :param directory: gets its settings and its log. :param clusters: the addresses of two clusters, by alias.
    """

    def __init__(self, directory: Path, clusters: Mapping[str, str]) -> None:
        first, second = clusters
        settings = {
            "clusters": f"{first},{second}",
            **{f"{alias}.bootstrap.servers": servers for alias, servers in clusters.items()},
            f"{first}->{second}.enabled": "true",
            f"{second}->{first}.enabled": "true",
            **SETTINGS,
            **{f"{alias}.{key}": value for alias in clusters for key, value in WORKER.items()},
        }
        directory.mkdir()
        properties = directory / "mm2.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        self._command = java_command("connect", MAIN, str(properties))
        self._log = directory / "mm2.log"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> MirrorMaker:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()

    def start(self) -> None:
        """Start the process; whoever reads its copies waits for it."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def kill(self) -> None:
        """End the process by SIGKILL, unless it has ended."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """End the process in order, by SIGTERM."""
        assert self._process is not None
        self._process.terminate()
        self._process.wait(PATIENCE_S)

    def log(self) -> str:
        """The end of what the process printed."""
        return self._log.read_text()[-3000:]


def mirrored(servers: str, source: str, group: str) -> dict[str, str]:
    """What MirrorMaker's own client finds in a cluster about a source, and the translated offsets of a group, as text."""
    command = java_command("connect", "Mirrored", servers, source, group)
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr[-3000:]
    return dict(line.split("=", 1) for line in done.stdout.splitlines())


def until_mirrored(servers: str, source: str, group: str, offsets: str) -> dict[str, str]:
    """Wait until a group's translated offsets are `offsets`; what `mirrored` returns then."""
    found: dict[str, str] = {}

    def translated() -> bool:
        found.update(mirrored(servers, source, group))
        return found["offsets"] == offsets

    until(translated, lambda: f"the offsets of {group} are {offsets}: {found}", PATIENCE_S)
    return found
