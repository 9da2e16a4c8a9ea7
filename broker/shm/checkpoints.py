"""The offset checkpoints of the log directories, written from the slots. By the cleaner, and at the ordered stop."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import broker._ext.slots as slots
from broker._ext.shared import SharedMemory
from broker.storage import file_names
from broker.storage.checkpoints import read_offset_checkpoint, write_offset_checkpoint

Offsets = dict[tuple[str, int], int]


def write_checkpoints(shm: SharedMemory, log_dirs: Sequence[Path]) -> None:
    """Recovery points (what is on the device), log start offsets above 0 and high watermarks, a file each a directory.

    :raises OSError: a file could not be written.
    :raises CorruptCheckpointError: the former file, needed for logs that are not loaded, does not follow its format.
    """
    recovery: list[Offsets] = [{} for _ in log_dirs]
    start: list[Offsets] = [{} for _ in log_dirs]
    watermark: list[Offsets] = [{} for _ in log_dirs]
    for slot, offsets in slots.checkpoint_offsets():
        topic, partition, log_dir, flushed, log_start, high = offsets
        recovery[log_dir][topic, partition] = flushed
        watermark[log_dir][topic, partition] = high
        if log_start > 0:
            start[log_dir][topic, partition] = log_start
        slots.set_recovery_point(slot, flushed)
    waiting: list[set[tuple[str, int]]] = [set() for _ in log_dirs]
    for topic, partition, log_dir in slots.not_online():
        waiting[log_dir].add((topic, partition))
    for number, path in enumerate(log_dirs):
        if shm.log_dir_offline(number):
            continue
        if waiting[number]:  # logs that are not loaded, or failed, keep what was written of them before
            for offsets, name in (
                (recovery[number], file_names.RECOVERY_POINT_CHECKPOINT),
                (start[number], file_names.LOG_START_OFFSET_CHECKPOINT),
                (watermark[number], file_names.REPLICATION_CHECKPOINT),
            ):
                before = read_offset_checkpoint(path / name)
                offsets.update({key: before[key] for key in waiting[number] & before.keys()})
        write_offset_checkpoint(path / file_names.RECOVERY_POINT_CHECKPOINT, recovery[number])
        write_offset_checkpoint(path / file_names.LOG_START_OFFSET_CHECKPOINT, start[number])
        write_offset_checkpoint(path / file_names.REPLICATION_CHECKPOINT, watermark[number])


def read_checkpoints(log_dir: Path) -> tuple[Mapping[tuple[str, int], int], Mapping[tuple[str, int], int]]:
    """(recovery points, log start offsets) of a directory; empty where there is no file.

    :raises CorruptCheckpointError: a file does not follow its format.
    """
    return (
        read_offset_checkpoint(log_dir / file_names.RECOVERY_POINT_CHECKPOINT),
        read_offset_checkpoint(log_dir / file_names.LOG_START_OFFSET_CHECKPOINT),
    )
