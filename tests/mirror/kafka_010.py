"""A real broker of Kafka 0.10.2.2 with a ZooKeeper: a source whose logs have message format v1."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from odradek.clients.cluster import Cluster
from odradek.clients.errors import ClientError
from tests import toolchains
from tests.ports import reserved
from tests.waiting import until
from tests.zookeeper import ZookeeperServer

POM = Path(__file__).parent / "java" / "kafka010" / "pom.xml"
START_S = 120


def _jars() -> Path:
    toolchains.require_command("java", "default-jdk-headless")
    maven = toolchains.require_command("mvn", "maven")

    def copy_dependencies(directory: Path) -> None:
        toolchains.run_maven(
            [maven, "-q", "-B", "-f", str(POM), "dependency:copy-dependencies", f"-DoutputDirectory={directory}"]
        )

    return toolchains.make_product("kafka-0.10.2.2", [POM], copy_dependencies)


@contextmanager
def kafka_010(directory: Path) -> Iterator[str]:
    """A broker whose topics get two partitions when they are first used; its address."""
    jars = _jars()
    directory.mkdir()
    with ZookeeperServer() as zookeeper, reserved() as port:
        settings = directory / "server.properties"
        settings.write_text(
            f"broker.id=0\nlisteners=PLAINTEXT://127.0.0.1:{port}\nlog.dirs={directory}/data\n"
            f"zookeeper.connect={zookeeper.hosts}\nlog.retention.ms=-1\nnum.partitions=2\n"
            "offsets.topic.replication.factor=1\n"
        )
        with (directory / "log").open("wb") as log:
            process = subprocess.Popen(
                ["java", *toolchains.JVM_OPTIONS, "-cp", f"{jars}/*", "kafka.Kafka", str(settings)],
                stdout=log,
                stderr=log,
            )
        try:
            until(
                lambda: _serves(port) or process.poll() is not None,
                lambda: f"Kafka 0.10 serves; {(directory / 'log').read_text()[-2000:]}",
                START_S,
            )
            assert process.poll() is None, (directory / "log").read_text()[-2000:]
            yield f"127.0.0.1:{port}"
        finally:
            process.kill()
            process.wait()


def _serves(port: int) -> bool:
    try:
        with Cluster(f"127.0.0.1:{port}", 2) as cluster:
            return bool(cluster.metadata().brokers)
    except ClientError:
        return False
