"""DeleteRecords on the wire, and Fetch, ListOffsets and Produce after the log start offset moved."""

import os
import signal
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import delete_records
from odradek.storage.checkpoints import read_offset_checkpoint
from odradek.testing import Broker
from tests.waiting import PATIENCE_S, until
from tests.wire import Wire, batch, fetch_request, offsets

pytestmark = pytest.mark.xdist_group("api-other")

LATEST, EARLIEST = -1, -2
START = 1_700_000_000_000


def delete(wire: Wire, *wishes: tuple[str, int, int], version: int = 2) -> list[tuple[str, int, int, int]]:
    """[(topic, partition, error code, low watermark)] of wishes (topic, partition, offset)."""
    make = delete_records.Request
    names = dict.fromkeys(name for name, _, _ in wishes)
    request = make(
        topics=[
            make.DeleteRecordsTopic(
                name=name,
                partitions=[
                    make.DeleteRecordsPartition(partition_index=partition, offset=offset)
                    for topic, partition, offset in wishes
                    if topic == name
                ],
            )
            for name in names
        ],
        timeout_ms=60_000,
    )
    told = wire.ask(request, delete_records.API_KEY, version)
    return [
        (topic.name, one.partition_index, one.error_code, one.low_watermark)
        for topic in told.topics
        for one in topic.partitions
    ]


@pytest.mark.parametrize("version", range(3))
def test_every_version_moves_the_log_start_of_each_partition_alone(wire, name, version):
    wire.create(name, 3)
    for partition in (0, 1):
        assert wire.produce(name, batch(*[b"v"] * 5), partition).error_code == 0
    told = delete(wire, (name, 0, 3), (name, 1, -1), (name, 2, 0), (name, 3, 0), ("no-such", 0, 0), version=version)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert sorted(told) == [
        ("no-such", 0, unknown, -1),
        (name, 0, 0, 3),
        (name, 1, 0, 5),
        (name, 2, 0, 0),
        (name, 3, unknown, -1),
    ]
    assert [wire.offset_at(name, EARLIEST, partition).offset for partition in range(3)] == [3, 5, 0]
    assert [wire.offset_at(name, LATEST, partition).offset for partition in range(3)] == [5, 5, 0]


def test_the_log_start_only_increases_up_to_the_log_end(wire, name):
    wire.create(name)
    wire.produce(name, batch(b"a", b"b", b"c"))
    assert delete(wire, (name, 0, 2)) == [(name, 0, 0, 2)]
    assert delete(wire, (name, 0, 1)) == [(name, 0, 0, 2)]
    for offset in (4, -2, 1 << 62):
        assert delete(wire, (name, 0, offset)) == [(name, 0, ErrorCode.OFFSET_OUT_OF_RANGE, -1)]
    assert delete(wire, (name, 0, 3)) == [(name, 0, 0, 3)]


def test_a_topic_that_is_only_compacted_refuses(wire, name):
    wire.create(name, cleanup_policy="compact")
    assert delete(wire, (name, 0, 0)) == [(name, 0, ErrorCode.POLICY_VIOLATION, -1)]
    both = name + "-both"
    wire.create(both, cleanup_policy="compact,delete")
    assert delete(wire, (both, 0, 0)) == [(both, 0, 0, 0)]


def test_fetch_produce_and_list_offsets_return_the_new_log_start(wire, name):
    wire.create(name, retention_ms=-1)
    for number in range(4):
        wire.produce(name, batch(b"v", timestamp=START + 10 - number))
    assert delete(wire, (name, 0, 2)) == [(name, 0, 0, 2)]
    below = wire.fetch(name, 1)
    assert (below.error_code, below.log_start_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    at = wire.fetch(name, 2)
    assert (at.error_code, at.log_start_offset, offsets(at.records)) == (0, 2, [2, 3])
    assert wire.produce(name, batch(b"v", timestamp=START)).log_start_offset == 2
    assert wire.offset_at(name, START).offset == 2, "a record of that time below the log start is not found"


def test_a_parked_fetch_at_a_deleted_offset_is_woken(wire, connect, name):
    wire.create(name)
    wire.produce(name, batch(*[b"v"] * 3))
    waiting = connect()
    waiting.until_led(name)
    waiting.send(fetch_request([(name, 0, 2)], wait_ms=3_600_000, min_bytes=1 << 20), 1, 12)
    assert delete(wire, (name, 0, -1)) == [(name, 0, 0, 3)]
    told = waiting.receive().responses[0].partitions[0]
    assert told.error_code == ErrorCode.OFFSET_OUT_OF_RANGE, "its own time-out is none that this test lives to see"


def test_through_the_admin_client_and_across_an_unclean_restart(tmp_path: Path) -> None:
    config = {"log.retention.check.interval.ms": 100, "log.segment.delete.delay.ms": 0}
    with Broker(config, directory=tmp_path) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        admin.create_topics([NewTopic("t", 1, config={"segment.bytes": "300", "retention.ms": "-1"})])["t"].result(
            PATIENCE_S
        )
        with Wire(broker.host, broker.port) as wire:
            for _ in range(10):
                assert wire.produce("t", batch(b"v" * 200)).error_code == 0
        place = TopicPartition("t", 0, 7)
        assert admin.delete_records([place])[place].result(PATIENCE_S).low_watermark == 7
        with pytest.raises(KafkaException) as refused:
            beyond = TopicPartition("t", 0, 11)
            admin.delete_records([beyond])[beyond].result(PATIENCE_S)
        assert refused.value.args[0].code() == KafkaError.OFFSET_OUT_OF_RANGE
        broker.kill_group()
        broker.start()
        consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "unused"})
        assert consumer.get_watermark_offsets(TopicPartition("t", 0), timeout=PATIENCE_S) == (7, 10)
        consumer.close()
        log = broker.data_dir / "t-0"
        until(lambda: sorted(int(path.stem) for path in log.glob("*.log")) == [7, 8, 9], "the deleted segments stay")
        until(lambda: not list(log.glob("*.deleted")), "their files stay")


def test_a_recreated_topic_does_not_begin_at_the_log_start_of_the_deleted_one(tmp_path: Path) -> None:
    with Broker(directory=tmp_path) as broker:
        with Wire(broker.host, broker.port) as wire:
            wire.create("t")
            wire.produce("t", batch(*[b"v"] * 5))
            assert delete(wire, ("t", 0, -1)) == [("t", 0, 0, 5)]
            wire.delete("t")
            assert read_offset_checkpoint(broker.data_dir / "log-start-offset-checkpoint") == {}
            wire.create("t")
            wire.produce("t", batch(b"new"))
        broker.kill_group()
        broker.start()
        with Wire(broker.host, broker.port) as wire:
            assert offsets(wire.fetch("t", 0).records) == [0]


def test_the_coordinator_dies_and_its_successor_deletes(tmp_path: Path) -> None:
    with Broker(directory=tmp_path) as broker, Wire(broker.host, broker.port) as wire:
        wire.create("t")
        wire.produce("t", batch(*[b"v"] * 5))
        (coordinator,) = [one for one in broker.processes() if one["kind"] == "coordinator"]
        assert delete(wire, ("t", 0, 1)) == [("t", 0, 0, 1)]
        os.kill(coordinator["pid"], signal.SIGKILL)

        def answer() -> list[tuple[str, int, int, int]]:
            try:
                with Wire(broker.host, broker.port) as again:
                    return delete(again, ("t", 0, 3))
            except (EOFError, ConnectionError):
                return []  # a request that was under way when it died costs its connection

        assert until(answer, "no answer of the successor") == [("t", 0, 0, 3)]
