"""A lane whose connections use TLS on both sides: requests are joined, and answers are decrypted before they are awaited."""

from __future__ import annotations

from odradek.clients.cluster import Cluster
from odradek.clients.security import ClientSecurity
from odradek.mirror.routes import Route
from odradek.testing import Broker
from tests.mirror.lanes import running
from tests.mirror.test_lane import producer

PARTITIONS = 3
RECORDS = 600


def test_large_and_small_batches_arrive_over_tls() -> None:
    with Broker(tls=True, topics={"t": PARTITIONS}) as source, Broker(tls=True, topics={"a.t": PARTITIONS}) as target:
        assert source.certificates is not None
        assert target.certificates is not None
        made = producer(source.bootstrap_servers, **source.certificates.librdkafka_settings)
        for number in range(RECORDS):
            made.produce("t", b"%d " % number * (40_000 if number % 100 == 0 else 3), partition=number % PARTITIONS)
            if number % 7 == 0:
                made.flush()
        made.flush()
        sides = [
            (broker.bootstrap_servers, ClientSecurity.from_file(certificates.client_properties))
            for broker, certificates in ((source, source.certificates), (target, target.certificates))
        ]
        routes = [Route(("t", number), ("a.t", number)) for number in range(PARTITIONS)]
        clusters = [lambda side=side: Cluster(side[0], security=side[1]) for side in sides]
        with running("", "", routes, clusters=clusters) as (_, watcher):
            watcher.wait(lambda: sum(batch.records for batch in watcher.batches) == RECORDS, "all records are moved")
        assert not watcher.failures
        assert _values(target, "a.t") == _values(source, "t")
        assert sum(map(len, _values(source, "t"))) == RECORDS


def _values(broker: Broker, topic: str) -> list[list[bytes]]:
    """The values of each partition, read with a consumer."""
    from confluent_kafka import Consumer, TopicPartition

    assert broker.certificates is not None
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "reader",
            "enable.partition.eof": True,
            **broker.certificates.librdkafka_settings,
        }
    )
    found: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    ended = 0
    while ended < PARTITIONS:
        message = consumer.poll(30)
        assert message is not None
        if message.error():
            ended += 1
        else:
            found[message.partition()].append(message.value())
    consumer.close()
    return found
