"""Reads and writes the offset checkpoints of the log directories: four files in Kafka's format, each with one line per log.

The cleaner writes `recovery-point-offset-checkpoint`, `replication-offset-checkpoint` and `log-start-offset-checkpoint` from
the slots, also at the ordered stop; the coordinator writes log start offsets, too. Compaction writes
`cleaner-offset-checkpoint`. Each writer holds a lock on the log directory from before it reads the slots until the file is
replaced, so that an older state never replaces a newer one [R 4.10]. A deletion holds this lock, too, while it removes the
lines of the deleted partitions, after their slots are deleted and before another topic can have their names.
"""

import fcntl
import logging
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import odradek._ext.partition.slot_upkeep as slot_upkeep
import odradek._ext.shm.brokers as brokers
from odradek._ext.shm.shared_memory import SharedMemory
from odradek._ext.storage.log_dirs import note_error
from odradek.storage import file_names
from odradek.storage.atomic_file import NO_ROOM, fsync_directory
from odradek.storage.checkpoints import (
    CheckpointLines,
    CorruptCheckpointError,
    read_offset_checkpoint,
    write_offset_checkpoint,
)
from odradek.topic_partition import TopicPartition

log = logging.getLogger("odradek.storage")

ALL_FILES = (
    file_names.RECOVERY_POINT_CHECKPOINT,
    file_names.LOG_START_OFFSET_CHECKPOINT,
    file_names.REPLICATION_CHECKPOINT,
    file_names.CLEANER_CHECKPOINT,
)


# -- reading -------------------------------------------------------------------------------------------------------------


class Checkpoints(NamedTuple):
    """The offsets in the files of a log directory. `cleaner_offsets` is None if it is unknown which logs were compacted.
    `high_watermarks` are read only in a cluster."""

    recovery_points: Mapping[TopicPartition, int]
    log_start_offsets: Mapping[TopicPartition, int]
    cleaner_offsets: Mapping[TopicPartition, int] | None
    high_watermarks: Mapping[TopicPartition, int] = MappingProxyType({})


def read_checkpoints(log_dir: Path) -> Checkpoints:
    """Read the checkpoints of a directory; a missing file counts as empty.

    :raises CorruptCheckpointError: a file does not follow its format.
    """
    return Checkpoints(
        read_offset_checkpoint(log_dir / file_names.RECOVERY_POINT_CHECKPOINT),
        read_offset_checkpoint(log_dir / file_names.LOG_START_OFFSET_CHECKPOINT),
        read_offset_checkpoint(log_dir / file_names.CLEANER_CHECKPOINT),
        read_offset_checkpoint(log_dir / file_names.REPLICATION_CHECKPOINT) if brokers.clustered() else {},
    )


def checkpoints_to_load_by(log_dir: Path) -> Checkpoints:
    """Read the checkpoints of a directory to open its logs. If a file is corrupt or cannot be read, the result is empty: the
    logs are recovered from their start, and gaps in them are accepted."""
    try:
        return read_checkpoints(log_dir)
    except (CorruptCheckpointError, OSError) as error:
        log.error("cannot read the checkpoints of %s: %s; its logs are recovered from their start", log_dir, error)
        return Checkpoints({}, {}, None)


# -- writing -------------------------------------------------------------------------------------------------------------


def write_checkpoints(shm: SharedMemory, log_dirs: Sequence[Path], only: int | None = None) -> set[int]:
    """Write recovery points, log start offsets above 0 and high watermarks: one file of each kind per log directory.

    Returns the directories whose files could not be written; their old files stay. Such a directory goes offline, as in Kafka,
    unless only disk space was missing.

    :param only: write only the log directory of this number.
    :raises CorruptCheckpointError: the former file, needed for logs that are not loaded, does not follow its format.
    """
    failed = set()
    for number, path in enumerate(log_dirs):
        if shm.log_dir_offline(number) or only not in (None, number):
            continue
        try:
            with alone(path):
                _write_all(number, path)
        except OSError as error:
            failed.add(number)
            log.error("cannot write the checkpoints of %s: %s; the previous files stay", path, error)
            if error.errno in NO_ROOM:
                note_error(number, error.errno)
            else:
                shm.set_log_dir_offline(number)
    return failed


def _write_all(number: int, path: Path) -> None:
    waiting: set[TopicPartition] = set()  # logs that are not loaded, or failed
    recovery, watermark, starts = CheckpointLines(), CheckpointLines(), CheckpointLines()
    points: list[tuple[int, int, int]] = []
    for slot, (topic, partition, log_dir, flushed, log_start, high) in slot_upkeep.checkpoint_offsets():
        if log_dir != number:
            continue
        if flushed < 0:
            waiting.add((topic, partition))
            continue
        point, incarnation = slot_upkeep.announce_recovery_point(slot, flushed)
        recovery.add_offset(topic, partition, point)
        watermark.add_offset(topic, partition, high)
        if log_start > 0:
            starts.add_offset(topic, partition, log_start)
        points.append((slot, point, incarnation))
    for lines, name in (
        (recovery, file_names.RECOVERY_POINT_CHECKPOINT),
        (watermark, file_names.REPLICATION_CHECKPOINT),
    ):
        _keep(path / name, waiting, lines)
        lines.write(path / name)
    for slot, point, incarnation in points:
        slot_upkeep.set_recovery_point(slot, point, incarnation)
    _put_log_starts(path, waiting, starts)


def write_log_starts(shm: SharedMemory, log_dirs: Sequence[Path], only: int | None = None) -> None:
    """Write the present log start offsets above 0 of all logs, durably; offline directories are skipped.

    :param only: write only the log directory of this number.
    :raises OSError: a file could not be written.
    :raises CorruptCheckpointError: the former file, needed for logs that are not loaded, does not follow its format.
    """
    for number, path in enumerate(log_dirs):
        if shm.log_dir_offline(number) or only not in (None, number):
            continue
        with alone(path):
            waiting: set[TopicPartition] = set()
            lines = CheckpointLines()
            for _, (topic, partition, log_dir, _, log_start, _) in slot_upkeep.checkpoint_offsets():
                if log_dir == number and log_start < 0:
                    waiting.add((topic, partition))
                elif log_dir == number and log_start > 0:
                    lines.add_offset(topic, partition, log_start)
            _put_log_starts(path, waiting, lines)


def _put_log_starts(path: Path, waiting: set[TopicPartition], lines: CheckpointLines) -> None:
    target = path / file_names.LOG_START_OFFSET_CHECKPOINT
    _keep(target, waiting, lines)
    if not lines.is_in(target):
        lines.write(target)
    else:
        fsync_directory(path)  # the process that wrote it may have died before it synced


def _keep(path: Path, waiting: set[TopicPartition], lines: CheckpointLines) -> None:
    """Copy the lines of logs whose slots have no valid offsets now from the existing file. Raises OSError,
    CorruptCheckpointError."""
    if waiting:
        before = read_offset_checkpoint(path)
        for topic, partition in sorted(waiting & before.keys()):
            lines.add_offset(topic, partition, before[topic, partition])


def forget_partitions(shm: SharedMemory, log_dirs: Sequence[Path], deleted: Collection[TopicPartition]) -> None:
    """Remove the lines of deleted partitions from all files: a later topic of that name has another log.

    A file that does not follow its format is not changed, because no start uses it. Offline directories are skipped. A
    directory that cannot be written goes offline, unless only disk space was missing.

    :raises OSError: there was no disk space to write a file.
    """
    topics = [f"\n{topic} ".encode() for topic in {topic for topic, _ in deleted}]
    no_room = None
    for number, path in enumerate(log_dirs):
        if shm.log_dir_offline(number):
            continue
        try:
            with alone(path):
                for name in ALL_FILES:
                    _forget(path / name, deleted, topics)
        except OSError as error:
            if error.errno in NO_ROOM:
                note_error(number, error.errno)
                no_room = error
            else:
                log.error(
                    "cannot remove the lines of deleted partitions from the checkpoints; the log directory goes offline: %s",
                    error,
                )
                shm.set_log_dir_offline(number)
    if no_room is not None:
        raise no_room


def _forget(path: Path, deleted: Collection[TopicPartition], topics: Sequence[bytes]) -> None:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return
    if not any(topic in content for topic in topics):  # true for most files in most deletions
        return
    try:
        before = read_offset_checkpoint(path)
    except CorruptCheckpointError as error:
        log.error("cannot remove the lines of deleted partitions from a checkpoint: %s; the file is not changed", error)
        return
    lines = CheckpointLines()
    for (topic, partition), offset in before.items():
        if (topic, partition) not in deleted:
            lines.add_offset(topic, partition, offset)
    if not lines.is_in(path):
        lines.write(path)


def lower_cleaner_offset(log_dir: Path, partition: TopicPartition, limit: int) -> None:
    """Lower a log's line in the cleaner checkpoint to `limit`, after the log was truncated there or lost its end.

    Nobody uses a line of a file that does not follow its format, so there is nothing to lower: the cleaner compacts from the
    start of the logs, and replaces the file. Raises OSError if the file could not be read or written.
    """
    path = log_dir / file_names.CLEANER_CHECKPOINT
    with alone(log_dir):
        try:
            before = read_offset_checkpoint(path)
        except CorruptCheckpointError as error:
            log.error(
                "%s-%d: cannot read the cleaner checkpoint: %s; the logs of %s are compacted from their start",
                *partition, error, log_dir,
            )  # fmt: skip
            return
        if before.get(partition, limit) > limit:
            write_offset_checkpoint(path, before | {partition: limit})


@contextmanager
def alone(log_dir: Path) -> Iterator[None]:
    """Hold the lock for writing checkpoints of this directory. The kernel releases it if the holder dies."""
    descriptor = os.open(log_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
