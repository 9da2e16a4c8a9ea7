"""Replication between two Odradek brokers whose inter-broker listener uses TLS or SASL."""

from pathlib import Path

import pytest

from odradek.testing.broker_process import Broker
from tests.cluster import shown
from tests.cluster.secure import add_user, servers, settings, started, write_stores
from tests.cluster.test_odradek_cluster import RECORDS, consume, produce
from tests.waiting import until
from tests.zookeeper import chroot

pytestmark = pytest.mark.timeout(300)


def create(brokers: dict[int, Broker], topic: str, assignment: dict[int, list[int]]) -> None:
    from contextlib import closing

    from kafka.admin import KafkaAdminClient, NewTopic

    with closing(KafkaAdminClient(bootstrap_servers=servers(brokers))) as admin:
        admin.create_topics(
            [NewTopic(topic, replica_assignments=assignment, topic_configs={"min.insync.replicas": "2"})]
        )
    expected = {number: (replicas[0], set(replicas)) for number, replicas in assignment.items()}
    for broker in brokers.values():
        until(
            lambda broker=broker: shown.partitions(broker.bootstrap_servers, topic) == expected,
            lambda broker=broker: f"{shown.partitions(broker.bootstrap_servers, topic)}: {broker.log_tail()}",
        )


CASES = {
    "ssl": ("SSL", ""),
    "sasl-plain": ("SASL_PLAINTEXT", "PLAIN"),
    "sasl-ssl-scram": ("SASL_SSL", "SCRAM-SHA-512"),
}


@pytest.mark.parametrize("case", CASES)
def test_brokers_replicate_in_both_directions(case: str, tmp_path: Path) -> None:
    protocol, mechanism = CASES[case]
    connect = chroot()
    stores = write_stores(tmp_path / "stores")
    if mechanism.startswith("SCRAM"):
        add_user(connect, mechanism=mechanism)
    with started(tmp_path, connect, lambda _: settings(protocol, stores, mechanism)) as brokers:
        create(brokers, "t", {0: [1, 2], 1: [2, 1]})
        for partition in (0, 1):
            produce(servers(brokers), "t", partition)
            assert consume(servers(brokers), "t", partition, RECORDS) == list(range(RECORDS))
