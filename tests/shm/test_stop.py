"""The ordered stop, checkpoints, failing files, and the state after the next start."""

import os
import resource
import shutil
import signal
from pathlib import Path

import pytest

import odradek._ext.partition.slot_facts as slot_facts
from odradek._ext.partition import append_files, flushing, slot_life, slot_loading, slot_upkeep, slots
from odradek._ext.shm.slot import SlotState
from odradek._ext.storage.segments import load_log
from odradek._ext.testing import slot_probe
from odradek.cleaner import shutdown, upkeep
from odradek.config.broker_config import BrokerConfig
from odradek.shm import checkpoints
from odradek.storage import file_names
from odradek.storage.checkpoints import read_offset_checkpoint
from odradek.storage.producer_snapshot import ProducerState
from tests.shm.one_broker import OneBroker, batch
from tests.storage.log_files import write_snapshot


def stop(broker: OneBroker) -> None:
    shutdown.close_all(BrokerConfig({}), broker.shm, [broker.path])


def mark(broker: OneBroker) -> Path:
    return broker.path / file_names.CLEAN_SHUTDOWN


def test_a_clean_start_reads_no_more_than_the_tail(broker: OneBroker, tmp_path: Path) -> None:
    """What follows the newest index entries, and the last batches of the producers before them: 16 entries are 64 KiB."""
    slot = broker.create(segment_bytes=100_000)
    for number in range(1500):
        producer = {"producer_id": 5, "producer_epoch": 0, "base_sequence": number}
        slot_probe.append(slot, [batch(timestamp=1000 + number, **producer), batch(timestamp=900)])
    before = slot_facts.describe(slot)
    stop(broker)
    assert mark(broker).exists()
    state = slot_facts.describe(slot)
    assert state.flushed_offset == state.log_end_offset == 3000
    assert state.timeindexed_timestamp == state.max_timestamp == 2499
    assert state.timeindex_entries >= before.timeindex_entries
    assert (broker.table.path(slot) / f"{3000:020d}.snapshot").exists()
    loaded = broker.reload(slot, tmp_path / "copy", clean=True)
    assert (loaded.events, loaded.log_end_offset) == ([], 3000)
    assert loaded.scanned_bytes < 80_000
    assert [(one.producer_id, one.batches[-1].last_sequence) for one in loaded.producers] == [(5, 1499)]
    assert loaded.last_timeindex_timestamp == 2499


def test_batches_without_producer_behind_the_last_snapshot_need_a_new_one(broker: OneBroker) -> None:
    slot = broker.create()
    slot_probe.append(slot, [batch(producer_id=5, producer_epoch=0, base_sequence=0)])
    slot_probe.roll(slot)
    slot_probe.append(slot, [batch(timestamp=2000)] * 3)
    stop(broker)
    assert (broker.table.path(slot) / f"{4:020d}.snapshot").exists()


def test_a_log_whose_producers_all_expired_ends_with_an_empty_snapshot(broker: OneBroker, tmp_path: Path) -> None:
    slot = broker.create()
    slot_probe.append(slot, [batch(producer_id=5, producer_epoch=0, base_sequence=0)])
    slot_probe.roll(slot)
    slot_upkeep.expire(slot, 10**15)
    stop(broker)
    assert broker.reload(slot, tmp_path / "copy", clean=True).producers == []


def test_partitions_never_used_cost_nothing_at_the_stop(tmp_path: Path) -> None:
    with OneBroker(tmp_path, max_slots=2048) as broker:
        made = [broker.create("idle", number) for number in range(1000)]
        before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("idle-*/*")}
        assert flushing.to_close() == []
        stop(broker)
        assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("idle-*/*")} == before
        assert len(made) == len(read_offset_checkpoint(tmp_path / file_names.RECOVERY_POINT_CHECKPOINT))
        assert mark(broker).exists()


def test_a_failed_log_leaves_no_clean_shutdown_marker_and_keeps_its_checkpoints(broker: OneBroker) -> None:
    sound, failed = broker.create("sound"), broker.create("failed")
    for slot in (sound, failed):
        slot_probe.append(slot, [batch(4)])
        flushing.flush(slot)
    checkpoints.write_checkpoints(broker.shm, [broker.path])
    slot_life.set_offline(failed)
    slot_probe.append(sound, [batch(2)])
    stop(broker)
    assert not mark(broker).exists()
    points = read_offset_checkpoint(broker.path / file_names.RECOVERY_POINT_CHECKPOINT)
    assert points == {("sound", 0): 6, ("failed", 0): 4}


def test_expired_producers_are_not_restored(broker: OneBroker) -> None:
    slot = broker.create()
    path = broker.table.path(slot)
    states = [ProducerState(i, 0, last_timestamp=1000 * i) for i in (1, 2, 3)]
    write_snapshot(path / f"{0:020d}.snapshot", states)
    slot_loading.fill(slot, load_log(path, 0, 0, True), True, 2000)
    assert set(slot_probe.producers(slot)) == {2, 3}


class TestFailures:
    def test_a_write_that_does_not_fit_leaves_nothing_and_may_be_retried(self, broker: OneBroker) -> None:
        slot = broker.create(index_interval_bytes=1)
        slot_probe.append(slot, [batch(timestamp=i + 1) for i in range(3)])
        size = slot_facts.describe(slot).size

        def in_little_room() -> None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, size + 100))
            with pytest.raises(slots.SlotChanged, match="i/o error"):
                slot_probe.append(slot, [batch(timestamp=10), batch(timestamp=11)])

        pid = broker.fork(0, in_little_room)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        state = slot_facts.describe(slot)
        assert state.state == SlotState.SLOT_ONLINE
        assert not broker.shm.log_dir_offline(0)
        files = {path.suffix: path.stat().st_size for path in broker.table.path(slot).glob(f"{0:020d}.*")}
        assert files == {
            ".log": size,
            ".index": state.index_entries * 8,
            ".timeindex": state.timeindex_entries * 12,
        }
        assert slot_probe.append(slot, [batch(timestamp=10)]) == [(0, 3, False)]

    def test_no_free_descriptor_only_evicts(self, broker: OneBroker) -> None:
        made = [broker.create("t", number) for number in range(40)]
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

        def with_few() -> None:
            open_now = len(list(Path("/proc/self/fd").iterdir()))
            resource.setrlimit(resource.RLIMIT_NOFILE, (open_now + 20, hard))
            for _ in range(3):
                for slot in made:
                    assert slot_probe.append(slot, [batch()])[0][0] == 0
            flushing.flush(made[0])

        pid = broker.fork(0, with_few)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert {slot_facts.describe(slot).log_end_offset for slot in made} == {3}
        assert not broker.shm.log_dir_offline(0)
        assert (soft, hard) == resource.getrlimit(resource.RLIMIT_NOFILE)

    def test_a_small_cache_keeps_few_descriptors(self, broker: OneBroker) -> None:
        append_files.limit_append_files(16)
        for number in range(60):
            slot_probe.append(broker.create("t", number), [batch()])
        assert append_files.open_append_files() <= 17

    def test_a_directory_removed_during_a_flush_does_not_take_the_log_directory_offline(
        self, broker: OneBroker
    ) -> None:
        slot = broker.create()
        slot_probe.append(slot, [batch()])
        broker.table.path(slot).rename(broker.path / "elsewhere")
        with pytest.raises(OSError, match="No such file"):
            flushing.flush(slot)
        assert not broker.shm.log_dir_offline(0)
        assert slot_facts.describe(slot).state == SlotState.SLOT_OFFLINE
        assert slot_facts.describe(slot).flushed_offset == 0

    def test_a_failed_directory_accepts_no_append(self, broker: OneBroker) -> None:
        slot = broker.create()
        broker.shm.set_log_dir_offline(0)
        with pytest.raises(slots.SlotChanged, match="offline"):
            slot_probe.append(slot, [batch()])

    def test_a_flush_pass_continues_after_a_log_that_failed(
        self, broker: OneBroker, caplog: pytest.LogCaptureFixture
    ) -> None:
        broken, sound = (broker.create(name, flush_ms=0) for name in ("broken", "sound"))
        for slot in (broken, sound):
            slot_probe.append(slot, [batch()])
        directory = broker.table.path(broken)
        shutil.rmtree(directory)
        directory.write_bytes(b"")  # no directory any more: it cannot be opened as one
        upkeep.flush_due(broker.shm)
        assert slot_facts.describe(sound).flushed_offset == 1
        assert slot_facts.describe(broken).flushed_offset == 0
        assert "cannot sync the log of " in caplog.text


def test_more_epochs_than_the_slot_keeps(broker: OneBroker, tmp_path: Path) -> None:
    slot = broker.create()
    expected = []
    for epoch in range(1, 30):
        broker.lead(slot, epoch)
        slot_probe.append(slot, [batch()])
        expected.append((epoch, epoch - 1))
    assert slot_facts.describe(slot).epochs == expected[-8:]
    assert broker.reload(slot, tmp_path / "copy").epochs == expected
    # A truncation takes more of them away than the slot has: the older ones come from the file.
    broker.obey(slot, 30)
    slots.truncate(slot, 12)
    assert slot_facts.describe(slot).epochs == expected[4:12]
    assert broker.reload(slot, tmp_path / "copy").epochs == expected[:12]


def test_an_epoch_without_a_batch_is_replaced_by_the_next(broker: OneBroker) -> None:
    slot = broker.create()
    slot_probe.append(slot, [batch()])
    for epoch in (1, 2, 3):
        broker.lead(slot, epoch)
    assert slot_facts.describe(slot).epochs == [(0, 0), (3, 1)]
    content = (broker.table.path(slot) / "leader-epoch-checkpoint").read_text()
    assert content == "0\n2\n0 0\n3 1\n"
    broker.obey(slot, 4)
    slots.truncate(slot, 1)
    assert slot_facts.describe(slot).epochs == [(0, 0)]
