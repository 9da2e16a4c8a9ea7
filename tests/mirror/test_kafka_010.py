"""`odradek mirror run` from Kafka 0.10.2 to Odradek: messages of format v1 become batches, and keep what they have."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Producer

from odradek.clients.cluster import Cluster
from odradek.testing import Broker
from tests.mirror.commands import mirror, worker
from tests.mirror.kafka_010 import kafka_010
from tests.mirror.lanes import records_of
from tests.mirror.test_lane import BEGAN_MS
from tests.waiting import until

CODECS = ("none", "gzip", "snappy", "lz4")
RECORDS, PARTITIONS = 2000, 2


def produce(servers: str, topic: str, codec: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": servers, "compression.type": codec, "linger.ms": 5, "log_level": 0})
    for number in numbers:
        key = None if number % 5 == 0 else b"key %d" % number
        value = None if number % 7 == 0 else b"value %d " % number * (number % 20)
        producer.produce(topic, value, key, number % PARTITIONS, timestamp=BEGAN_MS + number)
    assert producer.flush(60) == 0


def test_a_topic_of_each_codec_arrives_while_it_is_written(tmp_path: Path) -> None:
    topics = [f"old-{codec}" for codec in CODECS]
    file = tmp_path / "mirror.properties"
    with kafka_010(tmp_path / "kafka") as source, Broker() as target, Cluster(target.bootstrap_servers) as cluster:
        file.write_text(
            f"clusters = a, b\na.bootstrap.servers = {source}\nb.bootstrap.servers = {target.bootstrap_servers}\n"
            "a->b.enabled = true\ntopics = old-.*\nrefresh.topics.interval.seconds = 1\n"
            "odradek.mirror.lanes = 2\nodradek.mirror.metrics.listener =\n"
        )
        for topic, codec in zip(topics, CODECS, strict=True):
            produce(source, topic, codec, range(RECORDS))
        done = mirror("check", str(file))
        assert done.returncode == 0, done.stderr
        places = [(topic, number) for topic in topics for number in range(PARTITIONS)]

        def arrived(count: int) -> bool:
            found = set(cluster.metadata().topics)
            return {f"a.{topic}" for topic in topics} <= found and all(
                len(records_of(target.bootstrap_servers, (f"a.{topic}", number))) == count // PARTITIONS
                for topic, number in places
            )

        with worker(str(file), tmp_path / "log") as process:
            until(lambda: arrived(RECORDS), lambda: f"all records have arrived; {process.log}")
            for topic, codec in zip(topics, CODECS, strict=True):
                produce(source, topic, codec, range(RECORDS, RECORDS + 100))
            until(lambda: arrived(RECORDS + 100), lambda: f"the new records have arrived; {process.log}")
            assert process.stop() == 0
        assert " ERROR " not in process.log, process.log
        for topic, number in places:
            original = records_of(source, (topic, number))
            assert len(original) == (RECORDS + 100) // PARTITIONS
            assert [
                seen._replace(codec=0) for seen in records_of(target.bootstrap_servers, (f"a.{topic}", number))
            ] == [seen._replace(codec=0) for seen in original]
