"""librdkafka's own tests of transactions (`toolchains.LIBRDKAFKA_TESTS`), unchanged, against this broker.

They create their topics with three replicas if a test asks for it: 0098 and 0103 need a cluster.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from odradek.testing import Broker
from tests import toolchains
from tests.zookeeper import ZookeeperServer

pytestmark = [pytest.mark.xdist_group("librdkafka"), pytest.mark.timeout(3300), pytest.mark.java, pytest.mark.node]

SETTINGS: dict[str, str | int] = {"num.network.threads": 2, "num.partitions": 4}
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


@contextmanager
def one_broker(directory: Path) -> Iterator[str]:
    with Broker(SETTINGS, directory=directory) as broker:
        yield broker.bootstrap_servers


@contextmanager
def three_brokers(directory: Path) -> Iterator[str]:
    with ExitStack() as stack:
        zookeeper = stack.enter_context(ZookeeperServer())
        brokers = []
        for broker_id in (1, 2, 3):
            settings = SETTINGS | IN_CLUSTER | {"broker.id": broker_id, "zookeeper.connect": zookeeper.hosts}
            brokers.append(stack.enter_context(Broker(settings, directory=directory / str(broker_id))))
        yield ",".join(broker.bootstrap_servers for broker in brokers)


def run(name: str, servers: str, directory: Path) -> None:
    """Run one of librdkafka's tests; it must pass, and not be skipped."""
    library = toolchains.librdkafka_tests()
    (directory / "java").symlink_to(library / "tests" / "java")
    config = directory / "test.conf"
    config.write_text(f"bootstrap.servers={servers}\ntest.timeout.multiplier={TIMEOUT_FACTOR}\n")
    environment = {
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
            cwd=directory, env=os.environ | environment, stdout=file, stderr=file, timeout=3000, check=False,
        )  # fmt: skip
    said = output.read_text(errors="replace")
    assert done.returncode == 0, said[-6000:]
    assert re.search(rf"Test {name} PASSED", said), said[-6000:]
    assert "SKIPPING TEST" not in said, said[-6000:]


@pytest.mark.parametrize("name", ["0061_consumer_lag", "0129_fetch_aborted_msgs", "0137_barrier_batch_consume"])
def test_of_one_broker(name: str, tmp_path: Path) -> None:
    with one_broker(tmp_path / "broker") as servers:
        run(name, servers, tmp_path)


@pytest.mark.parametrize("name", ["0098_consumer_txn", "0103_transactions"])
def test_of_a_cluster(name: str, tmp_path: Path) -> None:
    with three_brokers(tmp_path / "brokers") as servers:
        run(name, servers, tmp_path)
