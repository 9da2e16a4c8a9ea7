"""Runs librdkafka's own tests, unchanged, and starts the clusters that some of them need."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from odradek.testing import Broker
from tests import toolchains
from tests.zookeeper import ZookeeperServer

IN_CLUSTER: dict[str, str | int] = {
    "zookeeper.session.timeout.ms": 6000,
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "offsets.topic.replication.factor": 3,
    "offsets.topic.num.partitions": 4,
    "transaction.state.log.num.partitions": 4,
}
TIMEOUT_FACTOR = 5
"""Of all timeouts of the tests, also of some that they always wait for."""


def three_brokers(stack: ExitStack, directory: Path, settings: Mapping[str, object]) -> list[Broker]:
    """Start a cluster that ends with `stack`."""
    zookeeper = stack.enter_context(ZookeeperServer())
    brokers = []
    for broker_id in (1, 2, 3):
        config = {**IN_CLUSTER, **settings, "broker.id": broker_id, "zookeeper.connect": zookeeper.hosts}
        brokers.append(stack.enter_context(Broker(config, directory=directory / str(broker_id))))
    return brokers


def run(
    name: str,
    servers: str,
    directory: Path,
    settings: Mapping[str, object] | None = None,
    environment: Mapping[str, str] | None = None,
) -> None:
    """Run one of librdkafka's tests; it must pass, and not be skipped.

    :param directory: for its files. :param settings: of the clients. :param environment: `SUBTESTS` is part of the names of
        those parts that are to run; without it, all run.
    """
    library = toolchains.librdkafka_tests()
    (directory / "java").symlink_to(library / "tests" / "java")
    config = directory / "test.conf"
    lines = {"bootstrap.servers": servers, "test.timeout.multiplier": TIMEOUT_FACTOR, **(settings or {})}
    config.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    variables = {
        "TESTS": name,
        "RDKAFKA_TEST_CONF": str(config),
        "TEST_KAFKA_VERSION": toolchains.KAFKA_VERSION,
        "KAFKA_PATH": str(library / "kafka"),
        "KAFKA_JARS": str(toolchains.kafka_jars()),
    }
    output = directory / "output"
    with output.open("wb") as file:
        done = subprocess.run(
            [str(library / "tests" / "test-runner"), "-p1"],
            cwd=directory, env=os.environ | variables | (environment or {}),
            stdout=file, stderr=file, timeout=3000, check=False,
        )  # fmt: skip
    said = output.read_text(errors="replace")
    assert done.returncode == 0, said[-6000:]
    assert re.search(rf"Test {name} PASSED", said), said[-6000:]
    assert "SKIPPING TEST" not in said, said[-6000:]
    wanted = (environment or {}).get("SUBTESTS")
    assert wanted is None or re.search(rf"\[ .*{re.escape(wanted)}.*: PASS", said), said[-6000:]
