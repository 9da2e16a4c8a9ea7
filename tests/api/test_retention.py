"""Retention as an operator configures it, on a real broker with a real client: old timestamps, sizes, idle active segments."""

import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.protocol.schemas import incremental_alter_configs
from odradek.storage.batch import Record, build_batch
from odradek.testing import Broker
from tests.waiting import PATIENCE_S, until
from tests.wire import Wire, offsets

pytestmark = pytest.mark.xdist_group("api-retention")

HOUR_MS = 3_600_000
TOPIC, BROKER = 2, 4
OFFSET_OUT_OF_RANGE = 1
CONFIG = {"log.retention.check.interval.ms": 50, "log.segment.delete.delay.ms": 0, "log.retention.ms": -1}


@pytest.fixture(scope="module")
def retaining(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(CONFIG, directory=tmp_path_factory.mktemp("retaining")) as broker:
        yield broker


def create(broker: Broker, topic: str, **settings: object) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    config = {name.replace("_", "."): str(value) for name, value in settings.items()}
    admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result(PATIENCE_S)


def produce(broker: Broker, topic: str, *timestamps: int, value: bytes = b"v") -> None:
    """A record per timestamp, each in a batch of its own."""
    failures: list[KafkaError] = []
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0})
    for timestamp in timestamps:
        producer.produce(
            topic, value, timestamp=timestamp, on_delivery=lambda error, _: failures.append(error) if error else None
        )
        assert producer.flush(PATIENCE_S) == 0
    assert not failures


def bounds(broker: Broker, topic: str) -> tuple[int, int]:
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "unused"})
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=PATIENCE_S)
        return low, high
    finally:
        consumer.close()


def bases(broker: Broker, topic: str) -> list[int]:
    return sorted(int(path.stem) for path in (broker.data_dir / f"{topic}-0").glob("*.log"))


def files(broker: Broker, topic: str) -> set[int]:
    """Base offsets of whatever has one: logs, indexes, snapshots, renamed files."""
    names = (path.name for path in (broker.data_dir / f"{topic}-0").iterdir())
    return {int(name[:20]) for name in names if name[:20].isdigit()}


def test_segments_of_old_records_go_and_young_ones_stay(retaining):
    now = int(time.time() * 1000)
    create(retaining, "times", retention_ms=HOUR_MS, segment_ms=1000)
    ages = (5, 4, 3, 2, 0.5, 0.1, 0)
    produce(retaining, "times", *(int(now - age * HOUR_MS) for age in ages))
    until(lambda: bounds(retaining, "times") == (4, 7), "the four old records stay")
    until(lambda: files(retaining, "times") == {4, 5, 6}, "their files stay")
    produce(retaining, "times", now)
    assert bounds(retaining, "times") == (4, 8)


def test_an_active_segment_of_old_records_goes_and_the_log_goes_on(retaining):
    now = int(time.time() * 1000)
    create(retaining, "active", retention_ms=HOUR_MS)
    produce(retaining, "active", now - 3 * HOUR_MS, now - 2 * HOUR_MS)
    until(lambda: bounds(retaining, "active") == (2, 2), "the old records stay")
    until(lambda: files(retaining, "active") == {2}, "their files stay")
    produce(retaining, "active", now)
    consumer = Consumer({"bootstrap.servers": retaining.bootstrap_servers, "group.id": "unused",
                         "enable.auto.commit": False, "auto.offset.reset": "earliest"})  # fmt: skip
    consumer.assign([TopicPartition("active", 0, 0)])  # below the log start: it is sent on to the beginning
    message = consumer.poll(PATIENCE_S)
    assert message is not None and message.error() is None and message.offset() == 2
    consumer.close()


def test_an_idle_active_segment_of_young_records_is_not_rolled(retaining):
    """As in Kafka: segment.ms is looked at when something is appended."""
    now = int(time.time() * 1000)
    create(retaining, "idle", retention_ms=HOUR_MS, segment_ms=1)
    create(retaining, "seen", retention_ms=0)
    produce(retaining, "idle", now)
    produce(retaining, "seen", now - HOUR_MS)
    until(lambda: bounds(retaining, "seen") == (1, 1), "no pass of retention")
    assert bases(retaining, "idle") == [0]
    produce(retaining, "idle", now + 2)
    assert bases(retaining, "idle") == [0, 1]


def test_a_log_does_not_outgrow_its_size_by_more_than_a_segment(retaining):
    create(retaining, "sizes", retention_bytes=10_000, segment_bytes=3000)
    now = int(time.time() * 1000)
    produce(retaining, "sizes", *range(now, now + 40), value=bytes(800))
    until(lambda: len(bases(retaining, "sizes")) <= 5, "the old segments stay")
    low, high = bounds(retaining, "sizes")
    assert high == 40 and low == bases(retaining, "sizes")[0]
    kept = sum(path.stat().st_size for path in (retaining.data_dir / "sizes-0").glob("*.log"))
    assert 10_000 <= kept < 10_000 + 3000


def test_removed_files_stay_for_their_delay(retaining):
    create(retaining, "delayed", retention_ms=0, file_delete_delay_ms=HOUR_MS)
    produce(retaining, "delayed", 1000)
    until(lambda: bounds(retaining, "delayed") == (1, 1), "the record stays")
    directory = retaining.data_dir / "delayed-0"
    until(lambda: bases(retaining, "delayed") == [1], "the segment stays")
    create(retaining, "at-once", retention_ms=0)
    produce(retaining, "at-once", 1000)
    until(lambda: files(retaining, "at-once") == {1}, "no pass over renamed files")
    assert sorted(path.suffixes[0] for path in directory.glob("*.deleted")) == [".index", ".log", ".timeindex"]
    retaining.stop()
    retaining.start()
    assert not list(directory.glob("*.deleted")), "a start removes them"
    assert bounds(retaining, "delayed") == (1, 1)


def alter(broker: Broker, kind: int, name: str, **settings: object) -> None:
    make = incremental_alter_configs.Request
    configs = [
        make.AlterableConfig(name=key.replace("_", "."), config_operation=0, value=str(value))
        for key, value in settings.items()
    ]
    resource = make.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    with Wire(broker.host, broker.port) as wire:
        (answer,) = wire.ask(make(resources=[resource]), incremental_alter_configs.API_KEY, 1).responses
    assert answer.error_code == 0, answer


def produce_at_once(broker: Broker, topic: str, *timestamps: int) -> None:
    """All records in one batch, so that no pass of retention sees some of them alone."""
    data = build_batch([Record(b"k", b"v", timestamp) for timestamp in timestamps])
    with Wire(broker.host, broker.port) as wire:
        assert wire.produce(topic, data).error_code == 0


def test_exact_retention_moves_the_log_start_to_the_record(retaining):
    now = int(time.time() * 1000)
    ages = (3, 2, 0.5, 2, 0)
    create(retaining, "exact", retention_ms=HOUR_MS, odradek_retention_exact="true")
    create(retaining, "by-segment", retention_ms=HOUR_MS)
    for topic in ("by-segment", "exact"):
        produce_at_once(retaining, topic, *(int(now - age * HOUR_MS) for age in ages))
    until(lambda: bounds(retaining, "exact") == (2, 5), lambda: f"{bounds(retaining, 'exact')}")
    assert bounds(retaining, "by-segment") == (0, 5)
    assert bases(retaining, "exact") == [0]
    with Wire(retaining.host, retaining.port) as wire:
        assert wire.fetch("exact", 1).error_code == OFFSET_OUT_OF_RANGE
        assert offsets(wire.fetch("exact", 2).records) == [0, 1, 2, 3, 4], "a batch is served whole"
    consumer = Consumer({"bootstrap.servers": retaining.bootstrap_servers, "group.id": "unused",
                         "enable.auto.commit": False, "auto.offset.reset": "earliest"})  # fmt: skip
    consumer.assign([TopicPartition("exact", 0, 0)])
    found = []
    while len(found) < 3:
        message = consumer.poll(PATIENCE_S)
        assert message is not None and message.error() is None
        found.append(message.offset())
    consumer.close()
    assert found == [2, 3, 4], "and clients skip what is before the log start"
    retaining.restart()
    assert bounds(retaining, "exact") == (2, 5), "a start finds it there"


def test_exact_retention_is_switched_on_for_a_topic_or_for_all(retaining):
    now = int(time.time() * 1000)
    names = ("switched-topic", "switched-default", "switched-off")
    for name in names:
        create(retaining, name, retention_ms=HOUR_MS, **({"odradek_retention_exact": "false"} if "off" in name else {}))
        produce_at_once(retaining, name, now - 2 * HOUR_MS, now)
    alter(retaining, TOPIC, "switched-topic", odradek_retention_exact="true")
    until(lambda: bounds(retaining, "switched-topic") == (1, 2), "the topic's setting has no effect")
    assert bounds(retaining, "switched-default") == (0, 2)
    alter(retaining, BROKER, "", odradek_retention_exact="true")
    until(lambda: bounds(retaining, "switched-default") == (1, 2), "the default has no effect")
    assert bounds(retaining, "switched-off") == (0, 2)
    alter(retaining, BROKER, "", odradek_retention_exact="false")
