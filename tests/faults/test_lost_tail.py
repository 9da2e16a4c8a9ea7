"""After a start that may have lost records clients see a new leader epoch, and readers that were further on begin at the
end of what is left (KIP-320)."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import offset_for_leader_epoch
from odradek.storage.batch import read_batches
from odradek.storage.checkpoints import read_leader_epochs
from odradek.testing import Broker
from tests import toolchains
from tests.faults.lossy_disk import LossyDisk, missing
from tests.waiting import until
from tests.wire import Wire, batch

LATEST = -1
CONFIG = {
    "num.network.threads": 1,
    "offsets.topic.num.partitions": 1,
    "group.initial.rebalance.delay.ms": 0,
    "auto.create.topics.enable": "false",
}
LONGEST_JOIN_S = 180
"""A consumer that ends may not have left its group before the kill: the next one waits until its session (45 s) has expired.
On a busy machine a consumer of Java starts ten times as slowly."""
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(CONFIG, {"t": 1}, directory=tmp_path) as one:
        yield one


def log_of(broker: Broker, topic: str = "t") -> Path:
    return broker.data_dir / f"{topic}-0"


def empty_by_hand(path: Path) -> None:
    """Remove its segments, as an operator who needs space might."""
    for file in path.iterdir():
        if re.match(r"\d{20}\.", file.name):
            file.unlink()


def write(broker: Broker, prefix: str, count: int, topic: str = "t") -> None:
    with Wire(broker.host, broker.port) as wire:
        for number in range(count):
            assert wire.produce(topic, batch(f"{prefix}-{number}".encode())).error_code == 0


def leader_epoch(broker: Broker, topic: str = "t") -> int:
    with Wire(broker.host, broker.port) as wire:
        return int(wire.metadata(topic).topics[0].partitions[0].leader_epoch)


def end_of_epoch(wire: Wire, epoch: int, current: int, version: int) -> tuple[int, int, int]:
    make = offset_for_leader_epoch.Request
    asked = make.OffsetForLeaderPartition(partition=0, leader_epoch=epoch, current_leader_epoch=current)
    request = make(replica_id=-1, topics=[make.OffsetForLeaderTopic(topic="t", partitions=[asked])])
    told = wire.ask(request, offset_for_leader_epoch.API_KEY, version).topics[0].partitions[0]
    return told.error_code, told.leader_epoch, told.end_offset


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_every_api_goes_by_the_new_epoch(broker: Broker, end: str) -> None:
    write(broker, "before", 10)
    broker.kill() if end == "kill" else broker.stop()
    empty_by_hand(log_of(broker))
    broker.start()
    with Wire(broker.host, broker.port) as wire:
        assert wire.metadata("t").topics[0].partitions[0].leader_epoch == 1
        for version in (2, 3, 4):
            assert end_of_epoch(wire, 0, 1, version) == (0, 0, 0), "nothing is left of the epoch before"
        write(broker, "after", 15)
        for version in (2, 3, 4):
            assert end_of_epoch(wire, 0, 1, version) == (0, 0, 0)
            assert end_of_epoch(wire, 1, 1, version) == (0, 1, 15)
            assert end_of_epoch(wire, 0, 0, version)[0] == ErrorCode.FENCED_LEADER_EPOCH
        for version in (0, 1):
            assert end_of_epoch(wire, 0, -1, version) == (0, 0 if version else -1, 0)
        assert wire.fetch("t", 10, leader_epoch=0).error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert wire.fetch("t", 10, leader_epoch=2).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        assert wire.fetch("t", 10, leader_epoch=1).error_code == 0
        assert wire.offset_at("t", LATEST, leader_epoch=0).error_code == ErrorCode.FENCED_LEADER_EPOCH
        told = wire.offset_at("t", LATEST, leader_epoch=1)
        assert (told.error_code, told.leader_epoch, told.offset) == (0, 1, 15)
    assert read_leader_epochs(log_of(broker) / "leader-epoch-checkpoint") == [(1, 0)]
    found = read_batches((log_of(broker) / f"{0:020d}.log").read_bytes())
    assert {one.partition_leader_epoch for one in found} == {1}


def test_an_ordered_stop_keeps_the_epoch_and_each_crash_begins_one(broker: Broker) -> None:
    write(broker, "a", 3)
    expected = [(0, 0)]
    for end, epoch in (("stop", 0), ("kill", 1), ("stop", 1), ("kill", 2), ("kill", 3), ("stop", 3)):
        broker.kill() if end == "kill" else broker.stop()
        broker.start()
        assert leader_epoch(broker) == epoch, end
        if epoch != 2:  # an epoch without a record leaves nothing behind
            write(broker, "b", 1)
            expected += [(epoch, 3 + len(expected))] if expected[-1][0] < epoch else []
    assert [one for one, _ in read_leader_epochs(log_of(broker) / "leader-epoch-checkpoint")] == [0, 1, 3]


def test_only_the_log_that_was_emptied_is_led_in_a_new_epoch_after_an_ordered_stop(tmp_path: Path) -> None:
    with Broker(CONFIG, {"t": 1, "other": 1}, directory=tmp_path) as broker:
        write(broker, "a", 3)
        write(broker, "a", 3, "other")
        broker.stop()
        empty_by_hand(log_of(broker))
        broker.start()
        assert (leader_epoch(broker), leader_epoch(broker, "other")) == (1, 0)
        assert "before its recovery point" in broker.log_file.read_text()
        broker.stop()
        broker.start()
        assert (leader_epoch(broker), leader_epoch(broker, "other")) == (1, 0)


def serves_again(broker: Broker) -> bool:
    status = broker.status()
    return bool(status["memory_faults"] == 1 and status["state"] == "serving")


def consume(consumer: Consumer, count: int) -> list[bytes]:
    found: list[bytes] = []

    def more() -> bool:
        message = consumer.poll(0.05)
        if message is not None and message.error() is None:
            found.append(message.value())
        return len(found) >= count

    until(more, lambda: f"{count} records, there are {found}")
    return found


@pytest.fixture
def consumer(broker: Broker) -> Iterator[Consumer]:
    settings = {"group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False, "log_level": 0}
    one = Consumer({"bootstrap.servers": broker.bootstrap_servers, **settings})
    one.subscribe(["t"])
    yield one
    one.close()


def test_a_consumer_of_librdkafka_that_lives_on_gets_every_record_behind_a_lost_tail(
    broker: Broker, consumer: Consumer
) -> None:
    write(broker, "before", 10)
    consume(consumer, 10)
    broker.kill()
    empty_by_hand(log_of(broker))
    broker.start()
    write(broker, "after", 15)
    assert consume(consumer, 15) == [b"after-%d" % number for number in range(15)]


def test_where_nothing_was_lost_such_a_consumer_goes_on_without_a_gap_or_a_repetition(
    broker: Broker, consumer: Consumer
) -> None:
    """The epoch is new also if all processes restart because a worker crashed."""
    write(broker, "first", 10)
    consume(consumer, 10)
    for number in range(2):
        write(broker, f"unread-{number}", 5)
        if number == 0:
            broker.kill()
            broker.start()
        else:
            (worker,) = [one["pid"] for one in broker.processes() if one["kind"] == "worker"]
            os.kill(worker, signal.SIGSEGV)
            until(lambda: serves_again(broker), "all processes start again")
        write(broker, f"after-{number}", 5)
        wanted = [b"%s-%d-%d" % (name, number, each) for name in (b"unread", b"after") for each in range(5)]
        assert consume(consumer, 10) == wanted
        assert leader_epoch(broker) == number + 1


@pytest.mark.java
@pytest.mark.timeout(5 * LONGEST_JOIN_S)
def test_a_group_of_the_java_consumer_begins_at_the_gap(broker: Broker) -> None:
    def read(count: int) -> list[str]:
        options = [
            "--bootstrap-server",
            broker.bootstrap_servers,
            "--topic",
            "t",
            "--group",
            "g",
            "--timeout-ms",
            str(LONGEST_JOIN_S * 1000),
        ]
        options += ["--max-messages", str(count), "--command-property", "auto.offset.reset=earliest"]
        command = toolchains.java_command(CONSOLE_CONSUMER, *options)
        done = subprocess.run(command, capture_output=True, text=True, timeout=2 * LONGEST_JOIN_S, check=False)
        return done.stdout.splitlines()

    write(broker, "before", 10)
    assert len(read(10)) == 10
    broker.kill()
    empty_by_hand(log_of(broker))
    broker.start()
    write(broker, "after", 15)
    assert read(15) == [f"after-{number}" for number in range(15)]


@pytest.mark.skipif(bool(missing()), reason=missing())
def test_what_a_loss_of_power_took_is_not_skipped(tmp_path: Path) -> None:
    """The new epoch survives the next loss."""
    (tmp_path / "broker").mkdir()
    with (
        LossyDisk(tmp_path) as disk,
        Broker(CONFIG | {"log.dirs": disk.path / "data"}, {"t": 1}, directory=tmp_path / "broker") as broker,
    ):
        for number in range(3):
            assert leader_epoch(broker) == number
            write(broker, f"round-{number}", 5)
            disk.cut_power()
            broker.kill_group()
            disk.restore_power()
            broker.start()
        with Wire(broker.host, broker.port) as wire:
            assert wire.offset_at("t", LATEST).offset == 0
            write(broker, "last", 2)
            assert wire.offset_at("t", LATEST).leader_epoch == 3
        assert read_leader_epochs(log_of(broker) / "leader-epoch-checkpoint") == [(3, 0)]
        broker.stop()
