"""A sweep closes descriptors of removed files: append files, fetched segments, compaction."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from odradek._ext.partition import slots
from odradek._ext.partition.append_files import open_append_files, sweep_append_files
from odradek._ext.partition.removed_files import removed_files
from odradek._ext.testing import slot_probe
from odradek.protocol.schemas import fetch
from odradek.shm.removed_files import RemovedFiles
from tests.api.worker_harness import HandWorker
from tests.faults.unlinked_files import unlinked_files_of
from tests.shm.compaction_harness import CompactedLog, compaction, record
from tests.shm.one_broker import OneBroker, batch, retain_at_once
from tests.waiting import until
from tests.wire import fetch_request


def unlinked(below: Path) -> list[str]:
    return [path for path, _ in unlinked_files_of("self") if path.startswith(str(below))]


def aged(broker: OneBroker, slot: int) -> None:
    broker.table.configure(slot, {"retention_bytes": 0})
    retain_at_once(broker)


def deleted(broker: OneBroker, slot: int) -> None:
    path = broker.table.path(slot)
    broker.table.delete(slot)
    (renamed,) = path.parent.glob("*-delete")
    shutil.rmtree(renamed)


def truncated(broker: OneBroker, slot: int) -> None:
    broker.obey(slot, 1)
    slots.truncate(slot, 0)


@pytest.mark.parametrize("remove", [aged, deleted, truncated])
def test_append_files_of_a_removed_segment_are_closed_by_the_next_look(
    broker: OneBroker, remove: Callable[[OneBroker, int], None]
) -> None:
    swept: list[int] = []
    mine = RemovedFiles(lambda: swept.append(sweep_append_files()))
    slot, other = broker.create(index_interval_bytes=1), broker.create("other")
    for _ in range(3):
        slot_probe.append(slot, [batch(2)])
    slot_probe.append(other, [batch(2)])
    mine.look()
    swept.clear()
    assert not mine.look() and swept == [], "nothing was removed"
    remove(broker, slot)
    assert mine.look()
    assert unlinked(broker.path) == []
    assert open_append_files() > 0, "those of the other log stay open"
    assert not mine.look() and len(swept) == 1, "once is enough"


def test_what_is_removed_while_a_sweep_runs_is_seen_by_the_next_look(broker: OneBroker) -> None:
    slots_left = [broker.create("a"), broker.create("b")]
    mine = RemovedFiles(lambda: deleted(broker, slots_left.pop()) if slots_left else None)
    deleted(broker, broker.create("c"))
    assert [mine.look() for _ in range(4)] == [True, True, True, False]


def test_the_counter_moves_for_every_kind_of_removal(broker: OneBroker) -> None:
    for remove in (aged, deleted, truncated):
        slot = broker.create(remove.__name__)
        slot_probe.append(slot, [batch(2)])
        before = removed_files()
        remove(broker, slot)
        assert removed_files() > before
    log = CompactedLog(broker, topic="compacted")
    for number in range(3):
        log.append([record("a", str(number))])
        log.roll()
    before = removed_files()
    log.clean()
    assert removed_files() > before


def test_a_reused_slot_leaves_no_segment_open(tmp_path: Path) -> None:
    worker = HandWorker(tmp_path)
    try:
        made = [worker.create(f"t{number}") for number in range(64)]  # all there are
        slot_probe.append(made[5], [batch(2)])
        wire = worker.connect()

        def fetched(topic: str) -> bytes:
            wire.send(fetch_request([(topic, 0, 0)]), fetch.API_KEY, 12)
            worker.turn()
            return bytes(wire.receive().responses[0].partitions[0].records)

        assert fetched("t5")
        deleted(worker.broker, made[5])
        for changed in (made[5], made[0]):  # a slot is given again after a newer version was confirmed
            worker.broker.table.announce([changed])
        worker.topics.refresh()
        worker.broker.shm.confirm_version(worker.topics.version)
        slot = worker.create("successor")
        assert slot == made[5]
        slot_probe.append(slot, [batch(2)])
        assert fetched("successor")  # before any sweep
        sweep_append_files()
        worker.handler.fetch_handler.sweep()
        assert unlinked(tmp_path) == []
    finally:
        worker.close()


def test_a_throttled_compaction_of_a_deleted_log_ends(broker: OneBroker, caplog: pytest.LogCaptureFixture) -> None:
    """At a byte a second the pass would wait for hours with the segment open."""
    caplog.set_level("INFO")
    log = CompactedLog(broker)
    for number in range(4):
        log.append([record("a", f"{number}")])
        log.roll()
    cleaning = compaction(broker, **{"log.cleaner.io.max.bytes.per.second": 1})
    cleaning.start()
    try:
        until(lambda: cleaning._throttle._free_at > 0, "no pass waits with a segment open")
        deleted(broker, log.slot)
        until(lambda: "ended early" in caplog.text, lambda: caplog.text)
        sweep_append_files()
        until(lambda: unlinked(broker.path) == [], lambda: f"{unlinked(broker.path)}")
    finally:
        cleaning.stop()


def test_a_throttled_compaction_of_a_removed_segment_ends(broker: OneBroker, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    log = CompactedLog(broker, delete_=1)
    for number in range(4):
        log.append([record("a", f"{number}")])
        log.roll()
    cleaning = compaction(broker, **{"log.cleaner.io.max.bytes.per.second": 1})
    cleaning.start()
    try:
        until(lambda: cleaning._throttle._free_at > 0, "no pass waits with a segment open")
        aged(broker, log.slot)
        until(lambda: "a segment was removed" in caplog.text, lambda: caplog.text)
        sweep_append_files()
        until(lambda: unlinked(broker.path) == [], lambda: f"{unlinked(broker.path)}")
    finally:
        cleaning.stop()
