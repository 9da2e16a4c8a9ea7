"""ListOffsets on the wire: log start, log end and timestamps, across segments and within compressed batches."""

from types import SimpleNamespace

import pytest

import odradek._ext.partition.slot_facts as slot_facts
from odradek._ext.partition import slots
from odradek._ext.storage.segment_list import SegmentCache
from odradek.api.records import list_offsets
from odradek.protocol.errors import ErrorCode
from tests.api.transactional_log import EPOCH, TransactionalLog
from tests.shm.one_broker import OneBroker
from tests.wire import batch

pytestmark = pytest.mark.xdist_group("api-other")

LATEST, EARLIEST, LARGEST = -1, -2, -3
START = 1_700_000_000_000
KEPT = {"retention_ms": -1}
"""Else the records of that time go as soon as retention looks, half a minute after the broker's start."""


@pytest.mark.parametrize("version", range(1, 12))
def test_every_version_returns_log_start_and_log_end(wire, name, version):
    wire.create(name, **KEPT)
    for timestamp in (LATEST, EARLIEST):
        told = wire.offset_at(name, timestamp, version=version)
        assert (told.error_code, told.offset, told.timestamp) == (0, 0, -1)
    wire.produce(name, batch(b"a", b"b", timestamp=START))
    found = [wire.offset_at(name, timestamp, version=version) for timestamp in (LATEST, EARLIEST, START, START + 1)]
    assert [(one.error_code, one.offset, one.timestamp) for one in found] == [
        (0, 2, -1),
        (0, 0, -1),
        (0, 0, START),
        (0, -1, -1),
    ]


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_times_are_found_in_every_segment_and_within_batches(wire, name, codec):
    from odradek.storage.batch import Record, build_batch

    wire.create(name, segment_bytes=2500, **KEPT)
    for number in range(20):
        records = [Record(b"k", bytes([index]) * 100, START + 100 * (number * 5 + index)) for index in range(5)]
        assert wire.produce(name, build_batch(records, codec=codec)).error_code == 0
    for offset in (0, 1, 4, 5, 37, 62, 99):
        exact = START + 100 * offset
        for asked in (exact, exact - 50):
            told = wire.offset_at(name, asked)
            assert (told.error_code, told.offset, told.timestamp) == (0, offset, exact)
    assert wire.offset_at(name, 0).offset == 0
    assert wire.offset_at(name, START + 9901).offset == -1
    largest = wire.offset_at(name, LARGEST)
    assert (largest.offset, largest.timestamp) == (99, START + 9900)


@pytest.mark.parametrize("codec", [0, 4])
def test_the_largest_timestamp_may_lie_in_the_middle(wire, name, codec):
    wire.create(name, segment_bytes=1000, **KEPT)
    for number, shift in enumerate([1, 9, 3, 4, 5]):
        assert wire.produce(name, batch(b"v" * 600, timestamp=START + shift, codec=codec)).base_offset == number
    told = wire.offset_at(name, LARGEST)
    assert (told.offset, told.timestamp) == (1, START + 9)
    assert wire.offset_at(name, START + 4).offset == 1


def test_times_are_found_in_a_log_of_more_segments_than_a_worker_holds_open(wire, name):
    wire.create(name, segment_bytes=1000, **KEPT)
    segments = 150
    for number in range(segments):
        assert wire.produce(name, batch(b"v" * 600, timestamp=START + 100 * number)).base_offset == number
    found = [wire.offset_at(name, START + 100 * number) for number in range(segments)]
    assert [(one.error_code, one.offset, one.timestamp) for one in found] == [
        (0, number, START + 100 * number) for number in range(segments)
    ]
    largest = wire.offset_at(name, LARGEST)
    assert (largest.offset, largest.timestamp) == (segments - 1, START + 100 * (segments - 1))
    everything = wire.offset_at(name, LATEST, version=0, max_num_offsets=1000)
    assert everything.old_style_offsets == list(range(segments, -1, -1))


def test_an_empty_log_has_no_times(wire, name):
    wire.create(name)
    assert [wire.offset_at(name, timestamp).offset for timestamp in (0, START, LARGEST)] == [-1, -1, -1]


def test_unknown_partitions_and_timestamps_of_later_versions_get_errors(wire, name):
    wire.create(name)
    epoch = wire.metadata(name).topics[0].partitions[0].leader_epoch
    assert wire.offset_at("no-such", LATEST).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert wire.offset_at(name, LATEST, 1).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert wire.offset_at(name, LATEST, leader_epoch=epoch + 1).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert wire.offset_at(name, LARGEST, version=6).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert wire.offset_at(name, -4, version=7).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert wire.offset_at(name, -7).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert wire.offset_at(name, -4).offset == 0
    assert wire.offset_at(name, LATEST, isolation_level=1).offset == 0


def test_the_end_for_readers_of_committed_records_is_not_above_the_high_watermark(monkeypatch):
    state = SimpleNamespace(high_watermark=10, last_stable_offset=12, log_end_offset=12, leader_epoch=3)
    monkeypatch.setattr(list_offsets, "leader_state", lambda *_, **__: (ErrorCode.NONE, 0, state))
    partition = SimpleNamespace(timestamp=LATEST, partition_index=0, current_leader_epoch=-1)
    request, call, answer = (
        SimpleNamespace(replica_id=-1, isolation_level=1),
        SimpleNamespace(version=7, view=SimpleNamespace(brokers=None)),
        SimpleNamespace(),
    )
    list_offsets._fill(answer, request, "t", partition, call)
    assert (answer.offset, answer.leader_epoch) == (10, 3)


# -- readers of committed records ---------------------------------------------------------------------------------------------


@pytest.fixture
def ask_slot(tmp_path, monkeypatch):
    """A partition with an aborted transaction at 1 to 3, and an open one from offset 4 on. Times are 1000 + the offset."""
    with OneBroker(tmp_path) as broker:
        slot = broker.create(segment_bytes=300, index_interval_bytes=1)
        broker.obey(slot, EPOCH)
        log = TransactionalLog()
        log.take(
            [("plain", 1), ("data", 1, 2), ("abort", 1), ("data", 2, 1), ("plain", 2), ("data", 1, 1), ("commit", 1)]
        )
        slots.follow(slot, log.data, log.end - 1)
        monkeypatch.setattr(
            list_offsets, "leader_state", lambda *_, **__: (ErrorCode.NONE, slot, slot_facts.describe(slot))
        )
        view = SimpleNamespace(brokers=None, log_dirs=[str(tmp_path)], segments=SegmentCache())

        def ask(timestamp, isolation, version=7):
            partition = SimpleNamespace(timestamp=timestamp, partition_index=0, current_leader_epoch=-1)
            request = SimpleNamespace(replica_id=-1, isolation_level=isolation)
            answer = SimpleNamespace(offset=-1, timestamp=-1, error_code=0)
            list_offsets._fill(answer, request, "t", partition, SimpleNamespace(version=version, view=view))
            assert answer.error_code == 0
            return answer.offset

        ask.log, ask.slot = log, slot
        yield ask


@pytest.mark.parametrize("version", range(2, 8))
def test_the_end_for_readers_of_committed_records_is_the_last_stable_offset(ask_slot, version):
    assert ask_slot(LATEST, 1, version) == 4
    assert ask_slot(LATEST, 0, version) == ask_slot.log.end - 1
    assert ask_slot(LATEST, 1, 1) == ask_slot.log.end - 1, "version 1 has no isolation level"


def test_times_at_or_behind_the_last_stable_offset_have_no_offset(ask_slot):
    times = {offset: 1000 + offset for offset, _, _ in ask_slot.log.values}
    for offset, timestamp in times.items():
        visible = offset < ask_slot.log.end - 1
        assert ask_slot(timestamp, 0) == (offset if visible else -1)
        assert ask_slot(timestamp, 1) == (offset if offset < 4 else -1)
    assert ask_slot(EARLIEST, 1) == 0


def test_the_largest_timestamp_counts_only_if_it_is_stable(ask_slot):
    """As in Kafka: the record with the largest timestamp of the whole log, or none."""
    assert ask_slot(LARGEST, 1) == -1
    slots.follow(ask_slot.slot, ask_slot.log.take([("abort", 2)]), ask_slot.log.end)
    assert ask_slot(LATEST, 1) == ask_slot.log.end
    assert ask_slot(LARGEST, 1) == ask_slot(LARGEST, 0) == ask_slot.log.end - 1
