"""The states in which a pass of the cleaner makes no progress: each pass returns where it fails and why, each time."""

import errno
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek._ext.testing import slot_probe
from odradek.cleaner import gap_limits, retention, upkeep
from odradek.cleaner.deleted_logs import DeletedLogs
from odradek.cleaner.gap_limits import GapLimits
from odradek.cleaner.leader_epochs import LeaderEpochs
from odradek.cleaner.retention import FUTURE_MS, Retention
from odradek.storage.file_names import LEADER_EPOCH_CHECKPOINT
from tests.shm.one_broker import OneBroker, batch

SIZE = len(batch(2))
DELETED = "gone-0." + "0" * 32 + "-delete"
NOW_MS = 1_700_000_000_000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OneBroker]:
    data = tmp_path / "data"
    data.mkdir()
    with OneBroker(data) as made:
        yield made


def segments(
    broker: OneBroker, topic: str = "t", times: tuple[int, ...] = (1000, 2000, 3000, 4000), **settings: int
) -> int:
    slot = broker.create(topic, segment_bytes=SIZE, **settings)
    for timestamp in times:
        slot_probe.append(slot, [batch(2, timestamp=timestamp)])
    return slot


def refused(*_: object, **__: object) -> Any:
    raise PermissionError(errno.EACCES, "Permission denied")


def twice(run: Callable[[], dict[str, str]]) -> dict[str, str]:
    """What a pass returns, which must be the same the next time: a failure does not end by being reported."""
    found = run()
    assert run() == found
    return found


def test_retention_names_a_log_whose_start_offset_cannot_be_written(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    segments(broker, retention_bytes=SIZE)
    segments(broker, "u")
    made = Retention(broker.shm, [broker.path])
    with monkeypatch.context() as patched:
        patched.setattr(retention, "write_log_starts", refused)
        reason = "cannot write the log start offsets: [Errno 13] Permission denied"
        assert twice(made.run) == {"t-0": reason, str(broker.path): reason}
    assert made.run() == {}


def test_retention_names_a_log_without_its_active_segment(broker: OneBroker) -> None:
    slot = segments(broker, retention_bytes=SIZE)
    segments(broker, "u")
    path = broker.table.path(slot) / f"{6:020d}.log"
    path.unlink()
    found = twice(Retention(broker.shm, [broker.path]).run)
    assert found == {
        "t-0": f"retention cannot read the log: its directory does not contain the active segment, {path.name}"
    }


def test_retention_names_a_log_with_times_in_the_future_once_in_the_log(
    broker: OneBroker, caplog: pytest.LogCaptureFixture
) -> None:
    late = NOW_MS + FUTURE_MS + 1000
    segments(broker, times=(1000, late, 3000, 4000), retention_ms=1)
    segments(broker, "both", times=(late, 1000), retention_ms=1, retention_bytes=1 << 40)
    segments(broker, "soon", times=(late - 2000, 1000), retention_ms=1)
    segments(broker, "compacted", times=(late, 1000), retention_ms=1, delete_=0)
    made = Retention(broker.shm, [broker.path])
    with caplog.at_level(logging.WARNING):
        found = twice(lambda: made.run(NOW_MS))
    assert list(found) == ["t-0"]
    assert "keeps the segments from offset 2 on, because they contain a record of 2023-11-15T22:13:21Z" in found["t-0"]
    assert caplog.text.count("in the future") == 1
    assert made.run(late + 2) == {}


def test_files_that_cannot_be_deleted_are_named_and_tried_again(broker: OneBroker) -> None:
    slot = segments(broker, retention_bytes=SIZE, file_delete_delay_ms=0)
    stuck = broker.table.path(slot) / f"{0:020d}.log.deleted"
    stuck.mkdir()  # even root cannot unlink it
    made = Retention(broker.shm, [broker.path])
    found = twice(made.remove_files)
    assert list(found) == ["t-0"] and "cannot delete the files of removed segments" in found["t-0"]
    stuck.rmdir()
    assert made.remove_files() == {}


def test_a_directory_that_could_not_be_listed_is_listed_in_the_next_pass(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    segments(broker)
    made = Retention(broker.shm, [broker.path])
    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", refused)
        assert list(twice(made.remove_files)) == ["t-0"]
    assert made.remove_files() == {}
    assert list(made._listed) == [0]


def test_a_directory_that_cannot_be_removed_or_read_is_named(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    (broker.path / DELETED).mkdir()
    made = DeletedLogs(broker.shm, [broker.path])
    with monkeypatch.context() as patched:
        patched.setattr(Path, "rmdir", refused)
        found = twice(lambda: made.remove(0))
        assert list(found) == [str(broker.path / DELETED)] and "Permission denied" in found[str(broker.path / DELETED)]
    with monkeypatch.context() as patched:
        patched.setattr(Path, "iterdir", refused)
        assert list(made.remove(0)) == [str(broker.path)]
    assert made.remove(0) == {}
    assert not (broker.path / DELETED).exists()


def test_a_foreign_directory_does_not_stop_the_removal_of_deleted_logs(broker: OneBroker) -> None:
    (broker.path / "please-delete").mkdir()
    (broker.path / DELETED).mkdir()
    assert DeletedLogs(broker.shm, [broker.path]).remove(0) == {}
    assert sorted(path.name for path in broker.path.iterdir()) == ["please-delete"]


def test_a_log_that_cannot_be_synced_is_named_by_each_task(broker: OneBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    slot = segments(broker)
    failed = [(slot, OSError(errno.EIO, "Input/output error"))]
    monkeypatch.setattr(upkeep.flushing, "flush_many", lambda *_, **__: failed)
    monkeypatch.setattr(gap_limits.slot_upkeep, "of_unknown_gap_limit", list)
    for run in (lambda: upkeep.flush_due(broker.shm), lambda: upkeep.checkpoint(broker.shm, [broker.path])):
        assert twice(run) == {"t-0": "cannot sync the log: [Errno 5] Input/output error"}
    assert list(twice(GapLimits(broker.shm, [broker.path]).run)) == ["t-0"]


def test_a_checkpoint_and_a_snapshot_that_cannot_be_written_are_named(
    broker: OneBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    slot = segments(broker)
    monkeypatch.setattr(upkeep, "write_checkpoints", lambda *_: {0})
    monkeypatch.setattr(upkeep.snapshot_publishing, "publish", lambda _: {slot: OSError(errno.EIO, "I/O")})
    assert twice(lambda: upkeep.checkpoint(broker.shm, [broker.path])) == {
        "t-0": "cannot sync and rename the producer snapshot: [Errno 5] I/O",
        str(broker.path): "cannot write the checkpoints of this log directory",
    }


def test_a_damaged_epoch_file_is_named_until_its_log_is_looked_at_again(broker: OneBroker) -> None:
    slot = broker.create("t")
    for epoch in (0, 2):
        if epoch:
            broker.lead(slot, epoch)
        slot_probe.append(slot, [batch(2)])
    path = broker.table.path(slot) / LEADER_EPOCH_CHECKPOINT
    good = path.read_bytes()
    path.write_text("no\n")
    made = LeaderEpochs(broker.shm, [broker.path])
    assert list(twice(made.run)) == ["t-0"]
    path.write_bytes(good)
    slot_probe.roll(slot)
    assert made.run() == {}
