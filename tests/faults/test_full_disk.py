"""A real broker on a small disk that fills up: producers wait, everything else continues, no acknowledged record is lost."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaProducer

from odradek.cli.framework.output import size
from odradek.storage.file_names import RESERVE
from odradek.testing import Broker
from tests.cli.command import Command
from tests.faults.small_disk import SmallDisk
from tests.waiting import until
from tests.wire import Wire, batch

pytestmark = [pytest.mark.timeout(400), pytest.mark.xdist_group("full-disk")]

MIB = 1 << 20
NOT_ENOUGH_REPLICAS = 19
PATIENCE_S = 90
CONFIG = {
    "num.network.threads": 2,
    "log.segment.bytes": MIB,
    "odradek.log.dir.reserve.bytes": 256 * 1024,
    "odradek.log.dir.hard.free.percent": 4,
    "odradek.log.dir.soft.free.percent": 20,
}


def disk_of(broker: Broker, number: int = 0) -> str:
    return str(broker.status()["log_dirs"][number]["disk"])


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with SmallDisk(tmp_path / "disk", 64 * MIB) as made:
        yield made


@pytest.fixture
def broker(disk: SmallDisk, tmp_path: Path) -> Iterator[Broker]:
    config = CONFIG | {"log.dirs": f"{disk.path}/data"}
    with Broker(config, {"t": 2, "ballast": 1}, directory=tmp_path / "broker") as made:
        yield made


class Acknowledged:
    """The delivery reports of a librdkafka producer, by value."""

    def __init__(self, broker: Broker, **settings: Any) -> None:
        self.records: dict[bytes, tuple[int, int]] = {}
        self.failed: list[str] = []
        self.sent = 0
        self.producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "message.timeout.ms": 120_000,
                "retry.backoff.ms": 50,
                "retry.backoff.max.ms": 200,
                "linger.ms": 1,
                **settings,
            }
        )

    def send(self, topic: str, count: int, value: bytes = b"x" * 1000) -> None:
        for _ in range(count):
            key = b"%08d" % self.sent
            self.producer.produce(topic, value, key, partition=self.sent % 2, on_delivery=self._told)
            self.sent += 1
            self.producer.poll(0)

    def _told(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.records[message.key()] = (message.partition(), message.offset())
        else:
            self.failed.append(str(error))


def fill_with_records(broker: Broker, topic: str) -> int:
    """Append to a topic until the broker refuses; the last offset that was acknowledged."""
    last = -1
    with Wire.to(broker) as connection:
        while True:
            part = connection.produce(topic, batch(b"b" * 200_000))
            if part.error_code:
                assert part.error_code == NOT_ENOUGH_REPLICAS
                assert "disk" in part.error_message
                return last
            last = part.base_offset


def read_all(broker: Broker, topic: str, expected: int) -> dict[bytes, tuple[int, int]]:
    """Every record of a topic by key, as a consumer that begins at the start sees it; each key once."""
    consumer = Consumer(
        {"bootstrap.servers": broker.bootstrap_servers, "group.id": "not-used", "enable.partition.eof": True}
    )
    found: dict[bytes, tuple[int, int]] = {}
    try:
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in (0, 1)])
        ends = 0
        while ends < 2:
            message = consumer.poll(PATIENCE_S)
            assert message is not None, f"{len(found)} of {expected} records came"
            if message.error():
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                ends += 1
                continue
            assert message.key() not in found, "a record is there twice"
            found[message.key()] = (message.partition(), message.offset())
    finally:
        consumer.close()
    return found


def test_the_commands_name_the_full_disk(broker: Broker) -> None:
    fill_with_records(broker, "ballast")
    until(lambda: disk_of(broker) == "full", "the disk is full")
    odradek = Command(broker.bootstrap_servers)
    odradek.refused(
        "produce", "t", "--timeout", "1", stdin="a\n", words=["t-", "for 1 s", "disk", "is full", "1 more not"]
    )
    words = ["not acknowledged", "without -X"]
    odradek.refused("produce", "t", "--timeout", "1", "-X", "linger.ms=1", stdin="a\n", words=words)
    directory = broker.status()["log_dirs"][0]
    assert 0 < directory["free_bytes"] < directory["full_until_bytes"] and directory["full_below_bytes"] > 0
    limit = size(directory["full_until_bytes"])
    assert f"(full: producers are refused until {limit} are free; " in odradek("status", "--data-dir", broker.data_dir)
    doctor = odradek.run("doctor", "--data-dir", broker.data_dir, "--json")
    (finding,) = [row for row in json.loads(doctor.stdout)["findings"] if row["subject"].startswith("log directory")]
    assert doctor.returncode == 1 and finding["severity"] == "error"
    assert (
        finding["what"].startswith("the disk is full: ")
        and finding["reason"] == f"producers are refused until {limit} are free"
    )


@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
def test_librdkafka_waits_at_a_full_disk_and_goes_on_when_a_topic_is_deleted(
    broker: Broker, disk: SmallDisk, idempotent: bool
) -> None:
    client = Acknowledged(broker, **{"enable.idempotence": idempotent, "acks": "all"})
    client.send("t", 500)
    assert client.producer.flush(PATIENCE_S) == 0
    fill_with_records(broker, "ballast")
    until(lambda: disk_of(broker) == "full", "the disk is full")
    client.send("t", 500)
    assert client.producer.flush(1.0) > 0  # they are tried again and again
    assert len(client.records) == 500 and client.failed == []
    with Wire.to(broker) as connection:  # consumers are not disturbed
        assert connection.fetch("t", 0).records
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.delete_topics(["ballast"])["ballast"].result(PATIENCE_S)
    assert client.producer.flush(PATIENCE_S) == 0
    assert client.failed == [] and len(client.records) == 1000
    until(lambda: disk_of(broker) == "roomy", "the disk has room")
    assert read_all(broker, "t", 1000).keys() == client.records.keys()
    for word in ("is full", "has enough space again"):
        until(lambda word=word: word in broker.log_file.read_text(), f"the log says {word!r}")
    assert "Traceback" not in broker.log_file.read_text()
    broker.kill()
    broker.start()
    assert read_all(broker, "t", 1000).items() >= client.records.items()


def test_kafka_python_waits_as_well(broker: Broker, disk: SmallDisk) -> None:
    taken = disk.fill(leave=MIB)
    until(lambda: disk_of(broker) == "full", "the disk is full")
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers, retries=1000, retry_backoff_ms=50, acks="all")
    try:
        future = producer.send("t", b"value", partition=0)
        with pytest.raises(Exception, match=r"(?i)timeout|timed out"):
            future.get(1.0)
        taken.unlink()
        assert future.get(PATIENCE_S).offset == 0
    finally:
        producer.close()


def test_a_write_that_finds_no_room_is_refused_names_its_file_and_leaves_nothing(
    broker: Broker, disk: SmallDisk
) -> None:
    """Another process fills the disk between two checks of the cleaner."""
    (cleaner,) = [one["pid"] for one in broker.processes() if one["kind"] == "cleaner"]
    with Wire.to(broker) as connection:
        assert connection.produce("t", batch(b"kept")).error_code == 0
        os.kill(cleaner, signal.SIGSTOP)
        taken = disk.fill()
        part = connection.produce("t", batch(b"v" * 500_000))
        os.kill(cleaner, signal.SIGCONT)
        assert part.error_code == NOT_ENOUGH_REPLICAS
        until(lambda: disk_of(broker) == "full", "full")
        assert connection.produce("t", batch(b"v"), 1).error_code == NOT_ENOUGH_REPLICAS
        assert connection.fetch("t", 0).high_watermark == 1
        until(lambda: "No space left on device" in broker.log_file.read_text() or None, "the log names the file")
        taken.unlink()
        part = until(
            lambda: (lambda one: one if one.error_code == 0 else None)(connection.produce("t", batch(b"after"))),
            "an append succeeds",
        )
        assert part.base_offset == 1
    (size,) = [path.stat().st_size for path in (disk.path / "data" / "t-0").glob("*.log")]
    assert size < 1000  # nothing is left of the batch that was refused
    broker.stop()
    assert (disk.path / "data" / ".kafka_cleanshutdown").exists()


def test_topics_are_made_and_deleted_on_a_disk_that_is_full(broker: Broker, disk: SmallDisk) -> None:
    taken = disk.fill(leave=MIB)
    until(lambda: disk_of(broker) == "full", "the disk is full")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic("late", 2, 1)])["late"].result(PATIENCE_S)
    admin.delete_topics(["ballast"])["ballast"].result(PATIENCE_S)
    taken.unlink()
    with Wire.to(broker) as connection:
        until(lambda: connection.produce("late", batch(b"v")).error_code == 0, "the new topic takes records")


def test_a_partition_made_without_room_is_opened_when_there_is_some(broker: Broker, disk: SmallDisk) -> None:
    taken = disk.fill()
    until(lambda: disk_of(broker) == "full", "the disk is full")
    also_taken = disk.fill_up()  # what the reserve gave back
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    try:
        admin.create_topics([NewTopic("late", 1, 1)], request_timeout=5)["late"].result(PATIENCE_S)
    except Exception as error:
        print(f"refused: {error}")
    taken.unlink()
    also_taken.unlink()
    until(lambda: disk_of(broker) == "roomy", "the disk has room")
    if "late" not in admin.list_topics(timeout=PATIENCE_S).topics:
        try:
            admin.create_topics([NewTopic("late", 1, 1)])["late"].result(PATIENCE_S)
        except KafkaException as error:  # the first request, given up by its client, was not by the broker
            assert error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    with Wire.to(broker) as connection:
        until(lambda: connection.produce("late", batch(b"v")).error_code == 0, "it takes records")


def fill_to_the_last_byte(broker: Broker, disk: SmallDisk) -> None:
    """Also fill the blocks that the reserve frees."""
    disk.fill()
    until(lambda: disk_of(broker) == "full", "the disk is full")
    until(lambda: not (disk.path / "data" / RESERVE).exists(), "the reserve is given back")
    disk.fill_up()
    assert disk.free() == 0


def coordinator_of(broker: Broker) -> dict[str, Any]:
    (found,) = [one for one in broker.processes() if one["kind"] == "coordinator"]
    return found


def test_a_coordinator_that_dies_starts_again_on_a_disk_without_a_free_byte(broker: Broker, disk: SmallDisk) -> None:
    with Wire.to(broker) as connection:
        assert connection.produce("t", batch(b"kept")).error_code == 0
    fill_to_the_last_byte(broker, disk)
    for _ in range(3):
        before = coordinator_of(broker)["pid"]
        os.kill(before, signal.SIGKILL)
        until(
            lambda before=before: (
                coordinator_of(broker)["pid"] not in (None, before) and coordinator_of(broker)["state"] == "serving"
            ),
            "another coordinator serves",
        )
        disk.fill_up()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.delete_topics(["ballast"])["ballast"].result(PATIENCE_S)
    for name in ("somebody-elses", "somebody-elses-too"):
        (disk.path / name).unlink()
    with Wire.to(broker) as connection:
        until(lambda: connection.produce("t", batch(b"after")).error_code == 0, "records are taken")


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_broker_starts_on_a_disk_without_a_free_byte(broker: Broker, disk: SmallDisk, end: str) -> None:
    with Wire.to(broker) as connection:
        assert connection.produce("t", batch(b"kept")).error_code == 0
    fill_to_the_last_byte(broker, disk)
    broker.stop() if end == "stop" else broker.kill()
    disk.fill_up()
    broker.start()
    assert broker.status()["state"] == "serving"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.delete_topics(["ballast"])["ballast"].result(PATIENCE_S)
    for name in ("somebody-elses", "somebody-elses-too"):
        (disk.path / name).unlink()
    with Wire.to(broker) as connection:
        part = until(
            lambda: (lambda one: one if one.error_code == 0 else None)(connection.produce("t", batch(b"after"))),
            "records are taken",
        )
        assert part.base_offset == 1
    assert "Traceback" not in broker.log_file.read_text()


def test_the_soft_limit_warns_and_refuses_nobody(broker: Broker, disk: SmallDisk) -> None:
    disk.fill(leave=8 * MIB)
    until(lambda: disk_of(broker) == "low", "low")
    with Wire.to(broker) as connection:
        assert connection.produce("t", batch(b"v")).error_code == 0
    until(lambda: "is low on space" in broker.log_file.read_text(), "the log says so")
    (shown,) = broker.status()["log_dirs"]
    assert shown["free_bytes"] < shown["total_bytes"] * 0.2 and json.dumps(shown)
