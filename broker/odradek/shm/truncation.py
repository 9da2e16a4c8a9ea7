"""Truncates a follower's log, or begins it again: first the log, then the checkpoints with offsets beyond its new end.

The replicator calls `truncate` and `start_at`. The native function changes the log under the slot's lock, and completes this
after a death. It does not write the checkpoints of the log directory, in which the recovery point of the log may be beyond its
new end. Until they are written, the slot accepts no append (APPEND_UNSETTLED) and does not become leader, because a start would
take records appended below that point for durable [R 4.10]. A start ignores the recovery point of a log that ends before it.
Kafka, too, writes the checkpoint after each truncation.
"""

from collections.abc import Sequence
from pathlib import Path

import odradek._ext.partition.slot_facts as slot_facts
import odradek._ext.partition.slots as slots
from odradek._ext.shm.shared_memory import SharedMemory
from odradek.shm.checkpoints import lower_cleaner_offset, write_checkpoints


def truncate(
    shm: SharedMemory,
    log_dirs: Sequence[Path],
    slot: int,
    offset: int,
    *,
    leader_epoch: int = -1,
    incarnation: int | None = None,
) -> int:
    """Truncate a follower's log to `offset`, or to the base offset of the batch that contains it, but not below the log start
    offset. Returns the log end offset.

    May be repeated, also after a process died in it: then nothing is truncated, and the checkpoints are written.

    :raises SlotChanged: the slot is not a follower in this leader epoch, or its log ends before `offset`.
    :raises OSError: a checkpoint could not be written; the slot accepts no append until the recovery point is written.
    :raises CorruptCheckpointError: a checkpoint does not follow its format.
    """
    slots.truncate(slot, offset, leader_epoch=leader_epoch, incarnation=incarnation)
    return settle(shm, log_dirs, slot)


def start_at(
    shm: SharedMemory,
    log_dirs: Sequence[Path],
    slot: int,
    offset: int,
    *,
    leader_epoch: int = -1,
    incarnation: int | None = None,
) -> int:
    """Drop the whole log of a follower and begin it at `offset`: if the leader's log begins above the follower's end, or if
    the first batch begins before an empty log (APPEND_BEFORE_LOG). Returns the log end offset, which is `offset`.

    May be repeated. :raises: as `truncate`.
    """
    slots.start_at(slot, offset, leader_epoch=leader_epoch, incarnation=incarnation)
    return settle(shm, log_dirs, slot)


def settle(shm: SharedMemory, log_dirs: Sequence[Path], slot: int) -> int:
    """Write the checkpoints of a log that was truncated, so that it accepts appends. Returns its log end offset.

    Call it for a slot that answers APPEND_UNSETTLED: a process died between a truncation and this.

    :raises: OSError, CorruptCheckpointError: as `truncate`.
    """
    state = slot_facts.describe(slot)
    log_dir, end = state.log_dir, int(state.log_end_offset)
    lower_cleaner_offset(log_dirs[log_dir], (state.topic, state.partition), end)
    if state.recovery_point > end and write_checkpoints(shm, log_dirs, only=log_dir):
        raise OSError(f"cannot write the recovery point of a log in {log_dirs[log_dir]} after its truncation")
    return end
