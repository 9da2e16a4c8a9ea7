"""The offset checkpoints of the log directories, written from the slots. By the cleaner, and at the ordered stop.

The log start offsets are written by the coordinator, too: each writer holds a lock on the directory from before it looks at the
slots until the file is replaced, so that no older state comes to lie over a newer one.
"""

import fcntl
import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import broker._ext.slot_upkeep as slot_upkeep
from broker._ext.log_dirs import note_error
from broker._ext.shared import SharedMemory
from broker.storage import file_names
from broker.storage.atomic_file import NO_ROOM, fsync_directory
from broker.storage.checkpoints import CheckpointLines, read_offset_checkpoint

log = logging.getLogger("odradek.storage")


def write_checkpoints(shm: SharedMemory, log_dirs: Sequence[Path]) -> set[int]:
    """Recovery points (what is on the device), log start offsets above 0 and high watermarks, a file each a directory.

    The directories whose files could not be written: their old files stay; unless only room was missing, such a directory
    is offline afterwards, as in Kafka.

    :raises CorruptCheckpointError: the former file, needed for logs that are not loaded, does not follow its format.
    """
    waiting: list[set[tuple[str, int]]] = [set() for _ in log_dirs]  # logs that are not loaded, or failed
    recovery = [CheckpointLines() for _ in log_dirs]
    watermark = [CheckpointLines() for _ in log_dirs]
    for slot, (topic, partition, log_dir, flushed, _, high) in slot_upkeep.checkpoint_offsets():
        if flushed < 0:
            waiting[log_dir].add((topic, partition))
            continue
        recovery[log_dir].add_offset(topic, partition, flushed)
        watermark[log_dir].add_offset(topic, partition, high)
        slot_upkeep.set_recovery_point(slot, flushed)
    failed = set()
    for number, path in enumerate(log_dirs):
        if shm.log_dir_offline(number):
            continue
        try:
            for lines, name in (
                (recovery[number], file_names.RECOVERY_POINT_CHECKPOINT),
                (watermark[number], file_names.REPLICATION_CHECKPOINT),
            ):
                _keep(path / name, waiting[number], lines)
                lines.write(path / name)
            write_log_starts(shm, log_dirs, number)
        except OSError as error:
            failed.add(number)
            log.error("checkpoints could not be written: %s", error)
            if error.errno in NO_ROOM:
                note_error(number, error.errno)
            else:
                shm.set_log_dir_offline(number)
    return failed


def write_log_starts(shm: SharedMemory, log_dirs: Sequence[Path], only: int | None = None) -> None:
    """Make the log start offsets above 0 of all logs durable, as the slots have them now; of offline directories none.

    :param only: of the log directory of this number.
    :raises OSError: a file could not be written.
    :raises CorruptCheckpointError: the former file, needed for logs that are not loaded, does not follow its format.
    """
    for number, path in enumerate(log_dirs):
        if shm.log_dir_offline(number) or only not in (None, number):
            continue
        with _alone(path):
            target = path / file_names.LOG_START_OFFSET_CHECKPOINT
            waiting: set[tuple[str, int]] = set()
            lines = CheckpointLines()
            for _, (topic, partition, log_dir, _, log_start, _) in slot_upkeep.checkpoint_offsets():
                if log_dir == number and log_start < 0:
                    waiting.add((topic, partition))
                elif log_dir == number and log_start > 0:
                    lines.add_offset(topic, partition, log_start)
            _keep(target, waiting, lines)
            if not lines.is_in(target):
                lines.write(target)
            else:
                fsync_directory(path)  # who wrote it may have died before it lasted


def _keep(path: Path, waiting: set[tuple[str, int]], lines: CheckpointLines) -> None:
    """Take over what the file says of logs that cannot say it themselves now. Raises OSError, CorruptCheckpointError."""
    if waiting:
        before = read_offset_checkpoint(path)
        for topic, partition in sorted(waiting & before.keys()):
            lines.add_offset(topic, partition, before[topic, partition])


@contextmanager
def _alone(log_dir: Path) -> Iterator[None]:
    """No other process writes log start offsets of this directory meanwhile; the death of the holder gives the lock back."""
    descriptor = os.open(log_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def read_checkpoints(log_dir: Path) -> tuple[Mapping[tuple[str, int], int], Mapping[tuple[str, int], int]]:
    """(recovery points, log start offsets) of a directory; empty where there is no file.

    :raises CorruptCheckpointError: a file does not follow its format.
    """
    return (
        read_offset_checkpoint(log_dir / file_names.RECOVERY_POINT_CHECKPOINT),
        read_offset_checkpoint(log_dir / file_names.LOG_START_OFFSET_CHECKPOINT),
    )
