"""librdkafka's own tests of transactions (`toolchains.LIBRDKAFKA_TESTS`), unchanged, against this broker.

They create their topics with three replicas if a test asks for it: 0098 and 0103 need a cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from odradek.testing import Broker
from tests.clients.librdkafka_tests import run, three_brokers

pytestmark = [pytest.mark.xdist_group("librdkafka"), pytest.mark.timeout(3300), pytest.mark.java, pytest.mark.node]

SETTINGS: dict[str, str | int] = {"num.network.threads": 2, "num.partitions": 4}


@contextmanager
def one_broker(directory: Path) -> Iterator[str]:
    with Broker(SETTINGS, directory=directory) as broker:
        yield broker.bootstrap_servers


@pytest.mark.parametrize("name", ["0061_consumer_lag", "0129_fetch_aborted_msgs", "0137_barrier_batch_consume"])
def test_of_one_broker(name: str, tmp_path: Path) -> None:
    with one_broker(tmp_path / "broker") as servers:
        run(name, servers, tmp_path)


@pytest.mark.parametrize("name", ["0098_consumer_txn", "0103_transactions"])
def test_of_a_cluster(name: str, tmp_path: Path) -> None:
    with ExitStack() as stack:
        brokers = three_brokers(stack, tmp_path / "brokers", SETTINGS)
        run(name, ",".join(broker.bootstrap_servers for broker in brokers), tmp_path)
