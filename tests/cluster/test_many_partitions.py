"""A leader and a follower with so many partitions that the leader looks at them in several turns of its loop."""

import time
from contextlib import closing
from pathlib import Path

from kafka.admin import KafkaAdminClient, NewTopic

from odradek.clients.wire import Connection
from odradek.protocol.schemas import produce
from odradek.storage.batch import Record, build_batch
from tests.cluster import our_brokers, shown
from tests.waiting import until
from tests.zookeeper import chroot

LEADER, FOLLOWER = 1, 2
TOPIC = "many"
PARTITIONS = 300  # more than one turn looks at
FETCH_WAITS_MS = 20_000
ANSWERED_WITHIN_S = 10.0
NEWEST = 9  # with names of topics


def test_a_request_with_acks_all_is_answered_when_the_follower_has_the_records(tmp_path: Path) -> None:
    """Not only when the follower's fetch ends, as if nobody had been woken by the positions that its fetch reported."""
    config = {
        "zookeeper.connect": chroot(),
        "replica.fetch.wait.max.ms": FETCH_WAITS_MS,
        "replica.fetch.backoff.ms": 100,
        "replica.lag.time.max.ms": 60_000,
    }
    with our_brokers.started(tmp_path, (LEADER, FOLLOWER), config) as brokers:
        addresses = [broker.bootstrap_servers for broker in brokers.values()]
        until(
            lambda: all(shown.brokers(address)[1] == {LEADER, FOLLOWER} for address in addresses),
            "both brokers are live, and know it",
        )
        with closing(KafkaAdminClient(bootstrap_servers=addresses)) as admin:
            assignment = {number: [LEADER, FOLLOWER] for number in range(PARTITIONS)}
            admin.create_topics([NewTopic(TOPIC, replica_assignments=assignment)])
        until(
            lambda: all(
                shown.leaders(address, TOPIC) == dict.fromkeys(range(PARTITIONS), LEADER) for address in addresses
            ),
            "both brokers know the leader of all partitions",
        )
        host, _, port = addresses[0].rpartition(":")
        with closing(Connection(host, int(port), 60)) as connection:
            until(lambda: codes(connection) == {0}, "the follower fetches all partitions")
            began = time.monotonic()
            for _ in range(20):
                assert codes(connection) == {0}
            assert time.monotonic() - began < ANSWERED_WITHIN_S, "answers waited for the end of the follower's fetch"
            with closing(KafkaAdminClient(bootstrap_servers=addresses)) as admin:
                admin.create_topics([NewTopic("new", replica_assignments={0: [LEADER, FOLLOWER]})])
            until(
                lambda: all(shown.leaders(address, "new") == {0: LEADER} for address in addresses),
                "both brokers know the leader of the new topic",
            )
            began = time.monotonic()
            assert codes(connection, "new", 1) == {0}
            assert time.monotonic() - began < ANSWERED_WITHIN_S, (
                "the follower ended its fetch before it fetched the new topic"
            )


def codes(connection: Connection, topic: str = TOPIC, partitions: int = PARTITIONS) -> set[int]:
    """Write one record to each partition with one request; the error codes."""
    batch = build_batch([Record(value=b"v")])
    make = produce.Request.PartitionProduceData
    rows = [make(index=number, records=batch) for number in range(partitions)]
    data = produce.Request.TopicProduceData(name=topic, partition_data=rows)
    request = produce.Request(acks=-1, timeout_ms=60_000, topic_data=[data])
    response = connection.ask(produce.SCHEMA, request, newest=NEWEST)
    return {row.error_code for row in response.responses[0].partition_responses}
