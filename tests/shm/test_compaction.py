"""Compaction of a log, compared with a model of Kafka's rules: which records, batches, markers and headers stay."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import odradek._ext.partition.slot_facts as slot_facts
from odradek._ext.compaction.compaction_log import CompactionAborted, CorruptSegmentError
from odradek._ext.compaction.compactor import MapTooSmallError
from odradek._ext.partition import slots
from odradek._ext.testing import slot_probe
from odradek.storage.batch import ABORT, COMMIT, DELETE_HORIZON
from odradek.storage.indexes import read_txn_index
from tests.shm.compaction_harness import CompactedLog, compactor, record
from tests.shm.compaction_model import parse
from tests.shm.one_broker import OneBroker
from tests.storage.log_files import read_offset_index, read_time_index

CODECS = range(5)


def check_files(log: CompactedLog, scratch: Path) -> None:
    """Indexes agree with the logs, no leftovers, and a start after a crash finds the same log and producers."""
    for path in sorted(log.path.glob("*.log")):
        base, data = int(path.stem), path.read_bytes()
        positions, at = {}, 0
        for batch in parse(data):
            positions[batch.last_offset] = at
            at += int.from_bytes(data[at + 8 : at + 12], "big") + 12
        index = read_offset_index(path.with_suffix(".index").read_bytes(), base)
        assert index == sorted(index)
        assert all(positions[offset] == position for offset, position in index)
        times = read_time_index(path.with_suffix(".timeindex").read_bytes(), base)
        assert times == sorted(times)
    assert not list(log.path.glob("*.cleaned")) + list(log.path.glob("*.swap"))
    before = slot_probe.producers(log.slot)
    loaded = log.broker.reload(log.slot, scratch / "copy", index_interval_bytes=1)
    assert loaded.log_end_offset == slot_facts.describe(log.slot).log_end_offset
    assert {
        one.producer_id: (one.producer_epoch, [one.batches[-1][1:4:2]] if one.batches else [])
        for one in loaded.producers
    } == {number: (epoch, [batches[0][1:4:2]] if batches else []) for number, (epoch, batches) in before.items()}


def test_the_newest_record_of_each_key_stays_with_its_offset(broker: OneBroker, tmp_path: Path) -> None:
    log = CompactedLog(broker, index_interval_bytes=1)
    log.append([record("a", "1"), record("b", "1"), record("a", "2")])
    log.roll()
    log.append([record("b", "2", 1005)])
    log.roll()
    log.append([record("a", "3")])
    result = log.clean()
    assert [(one.base_offset, [(r.offset, r.key, r.value) for r in one.records]) for one in log.content()] == [
        (0, [(2, b"a", b"2")]),
        (3, [(3, b"b", b"2")]),
        (4, [(4, b"a", b"3")]),
    ]
    assert (result.records_read, result.records_kept, result.end_offset) == (4, 2, 4)
    assert log.bases() == [0, 4]
    check_files(log, tmp_path)


def test_a_pass_that_changes_nothing_writes_nothing(broker: OneBroker) -> None:
    log = CompactedLog(broker)
    log.append([record("a", "1")])
    log.roll()
    inode = next(log.path.glob("*0.log")).stat().st_ino
    result = log.clean()
    assert (result.bytes_written, result.records_kept) == (0, 1)
    assert (log.path / f"{0:020d}.log").stat().st_ino == inode


@pytest.mark.parametrize("codec", CODECS)
def test_tombstones_get_a_horizon_and_go_when_it_has_passed(broker: OneBroker, tmp_path: Path, codec: int) -> None:
    log = CompactedLog(broker, retention_ms=1000)
    log.append([record("a", "1", 900), record("b", "1", 1010), record("a", None, 1020)], codec=codec)
    log.roll()
    log.clean(now_ms=5000)
    (batch,) = log.batches()
    assert batch.attributes & DELETE_HORIZON
    assert batch.base_timestamp == 6000
    assert [(r.key, r.value, r.timestamp) for r in batch.records()] == [(b"b", b"1", 1010), (b"a", None, 1020)]
    log.append([record("c", "1")])
    log.roll()
    log.clean(now_ms=5999)
    assert [r.key for batch in log.batches() for r in batch.records()] == [b"b", b"a", b"c"]
    log.append([record("d", "1")])
    log.roll()
    log.clean(now_ms=6000)
    assert [r.key for batch in log.batches() for r in batch.records()] == [b"b", b"c", b"d"]
    assert log.batches()[0].max_timestamp == 1010
    check_files(log, tmp_path)


def test_a_producer_goes_on_with_its_sequence_when_its_records_are_gone(broker: OneBroker, tmp_path: Path) -> None:
    log = CompactedLog(broker)
    log.append([record("a", "1"), record("b", "1")], producer=7)
    log.append([record("a", "2"), record("b", "2")])
    log.roll()
    log.clean()
    first = log.batches()[0]
    assert (first.record_count, first.base_sequence, first.last_offset) == (0, 0, 1)
    check_files(log, tmp_path)
    loaded = broker.reload(log.slot, tmp_path / "again")
    assert [one.batches[-1].last_sequence for one in loaded.producers] == [1]
    log.append([record("c", "1")], producer=7)


def test_aborted_records_go_at_once_and_their_marker_later(broker: OneBroker, tmp_path: Path) -> None:
    log = CompactedLog(broker, retention_ms=1000)
    log.append([record("a", "1")])
    log.append([record("a", "aborted")], producer=7, transactional=True)
    log.append([record("b", "2")], producer=7, transactional=True)
    log.end(7, ABORT)
    log.append([record("x", "x")], producer=7, epoch=1)
    log.roll()
    log.append([record("a", "2")])
    expected = log.expected(5000)
    log.clean(now_ms=5000)
    assert log.content() == expected
    assert [r.value for batch in log.batches() if not batch.is_control for r in batch.records()] == [b"1", b"x", b"2"]
    entries = read_txn_index((log.path / f"{0:020d}.txnindex").read_bytes())
    assert [(one.producer_id, one.first_offset, one.last_offset) for one in entries] == [(7, 1, 3)]
    for now_ms, markers in ((5100, 1), (6099, 1), (6100, 0)):
        log.roll()
        log.clean(now_ms=now_ms)
        assert sum(batch.is_control for batch in log.batches()) == markers
        log.append([record(f"n{now_ms}", "1")])
    assert not (log.path / f"{0:020d}.txnindex").exists()
    check_files(log, tmp_path)


def test_nothing_of_an_open_transaction_is_compacted(broker: OneBroker) -> None:
    log = CompactedLog(broker)
    log.append([record("a", "1")])
    log.roll()
    log.append([record("a", "2")], producer=7, transactional=True)
    log.roll()
    log.append([record("a", "3")])
    log.roll()
    assert log.border() == 1
    before = log.content()
    log.clean()
    assert log.content() == before


def test_a_full_map_ends_the_pass_and_the_next_goes_on(broker: OneBroker, tmp_path: Path) -> None:
    log = CompactedLog(broker)
    for number in range(400):
        log.append([record(f"k{number % 100}", f"{number}")])
        if number % 40 == 39:
            log.roll()
    small = compactor(map_bytes=24 * 60)
    ends = []
    while log.first_dirty < log.border():
        result = log.clean(using=small)
        assert result.keys <= 54
        ends.append((result.end_offset, result.map_full))
    assert len(ends) > 3
    assert ends[0] == (54, True)
    assert not ends[-1][1]
    newest = {r.key: r.value for batch in log.batches() for r in batch.records()}
    assert newest == {f"k{number % 100}".encode(): f"{number}".encode() for number in range(400)}
    assert sum(batch.record_count for batch in log.batches()) < 400
    check_files(log, tmp_path)


def test_a_map_too_small_for_one_batch_is_told(broker: OneBroker) -> None:
    log = CompactedLog(broker)
    log.append([record(f"{number}", "v") for number in range(50)])
    log.roll()
    before = log.content()
    with pytest.raises(MapTooSmallError, match="21 keys"):
        log.clean(using=compactor(map_bytes=24 * 24))
    assert log.content() == before
    with pytest.raises(ValueError, match=r"log\.cleaner\.dedupe\.buffer\.size"):
        compactor(map_bytes=24)


def test_a_batch_larger_than_the_buffer_is_compacted(broker: OneBroker, tmp_path: Path) -> None:
    log = CompactedLog(broker)
    log.append([record(f"{number % 3}", "v" * 5000) for number in range(10)])
    log.append([record("0", "w")])
    log.roll()
    expected = log.expected(5000)
    log.clean()
    assert log.content() == expected
    check_files(log, tmp_path)


@pytest.mark.parametrize("at", [3, 8, 16, 40, 70, 200])
def test_a_flipped_bit_leaves_the_log_alone_and_is_named(broker: OneBroker, at: int) -> None:
    log = CompactedLog(broker)
    log.append([record("a", "1" * 100)])
    log.append([record("a", "2" * 100)])
    log.roll()
    path = log.path / f"{0:020d}.log"
    size = path.stat().st_size
    damaged = bytearray(path.read_bytes())
    damaged[size // 2 + at % (size // 2)] ^= 0x40
    path.write_bytes(damaged)
    with pytest.raises(CorruptSegmentError, match=rf"{0:020d}\.log: no valid batch at position {size // 2}"):
        log.clean()
    assert path.read_bytes() == damaged
    assert not list(log.path.glob("*.cleaned"))


def test_small_segments_become_one_within_segment_bytes(broker: OneBroker, tmp_path: Path) -> None:
    log = CompactedLog(broker, segment_bytes=4000, index_interval_bytes=1)
    for number in range(12):
        log.append([record(f"k{number}", "v" * 800)])
        log.roll()
    log.clean()
    sizes = [path.stat().st_size for path in sorted(log.path.glob("*.log"))]
    assert len(sizes) == 4
    assert max(sizes) <= 4000
    check_files(log, tmp_path)


def test_truncation_while_a_pass_runs_ends_it(broker: OneBroker) -> None:
    log = CompactedLog(broker)
    for number in range(4):
        log.append([record("a", f"{number}")])
        log.roll()

    class Truncating:
        def __call__(self, count: int, look: Callable[[], None]) -> None:
            if not slot_facts.describe(log.slot).leader_epoch:
                broker.obey(log.slot, 1)
                slots.truncate(log.slot, 2)

    with pytest.raises(CompactionAborted, match=r"truncated|removed|cut"):
        log.clean(using=compactor(pace=Truncating()))
    assert [r.value for batch in log.batches() for r in batch.records()] == [b"0", b"1"]
    assert not list(log.path.glob("*.cleaned")) + list(log.path.glob("*.swap"))


# -- the model --------------------------------------------------------------------------------------------------------

STEP = st.one_of(
    st.tuples(
        st.just("append"),
        st.lists(st.tuples(st.integers(0, 5), st.booleans(), st.integers(0, 50)), min_size=1, max_size=6),
        st.sampled_from([0, 0, 0, 1, 2, 3, 4]),
        st.sampled_from([-1, -1, 1, 2, 3]),
        st.booleans(),
    ),
    st.tuples(st.just("end"), st.sampled_from([1, 2, 3]), st.sampled_from([ABORT, COMMIT])),
    st.tuples(st.just("roll")),
    st.tuples(st.just("roll")),
    st.tuples(st.just("clean"), st.sampled_from([0, 100, 500, 2000]), st.sampled_from([24 * 8, 24 * 12, 1 << 16])),
)


@given(steps=st.lists(STEP, min_size=4, max_size=40), small=st.booleans())
@settings(max_examples=120, suppress_health_check=list(HealthCheck))
def test_every_pass_leaves_what_the_model_leaves(steps: list[tuple], small: bool) -> None:
    with tempfile.TemporaryDirectory() as directory, OneBroker(Path(directory)) as broker:
        path = Path(directory)
        log = CompactedLog(broker, retention_ms=1000, index_interval_bytes=1, segment_bytes=600 if small else 1 << 20)
        now, in_transaction, written = 5000, set(), {}
        for number, step in enumerate([*steps, ("roll",), ("clean", 0, 1 << 16)]):
            if step[0] == "append":
                _, pairs, codec, producer, transactional = step
                transactional = producer >= 0 and (transactional or producer in in_transaction)
                if transactional:
                    in_transaction.add(producer)
                content = [
                    record(f"k{key}", None if gone else f"{number}.{place}", 1000 + number + later)
                    for place, (key, gone, later) in enumerate(pairs)
                ]
                log.append(content, codec=codec, producer=producer, transactional=transactional)
                written |= {r.offset: r for r in log.original[-1].records()}
            elif step[0] == "end" and step[1] in in_transaction:
                in_transaction.discard(step[1])
                log.end(step[1], step[2])
            elif step[0] == "roll":
                log.roll()
            elif step[0] == "clean" and log.border() > log.first_dirty:
                now += step[1]
                expected = log.expected(now)
                try:
                    result = log.clean(now, compactor(map_bytes=step[2], buffer_bytes=random.choice([4096, 1 << 16])))
                except MapTooSmallError:
                    continue
                if not result.map_full:
                    assert log.content() == expected
        found = {r.offset: r for batch in log.batches() if not batch.is_control for r in batch.records()}
        assert all(written[offset] == found[offset] for offset in found), "a record was changed or moved"
        scratch = path / "scratch"
        scratch.mkdir()
        check_files(log, scratch)
