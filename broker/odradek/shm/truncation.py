"""The truncation of a follower's log: the log itself, then the checkpoints that speak of what was cut off.

The native verb cuts the log under the slot's lock, and finishes that after a death. It does not write the checkpoints
of the log directory, in which the recovery point of the log may lie behind its new end: until they are written the slot
takes no append (`_ext/partition/follower_append.pyx`), because a start would take what is appended up to that point for
durable. A start that finds the log to end before its recovery point does not believe the point. As Kafka, which writes
the checkpoint after each truncation.
"""

from collections.abc import Sequence
from pathlib import Path

import odradek._ext.partition.slots as slots
from odradek._ext.shm.shared_memory import SharedMemory
from odradek.shm.checkpoints import lower_cleaner_offset, write_checkpoints


def truncate(shm: SharedMemory, log_dirs: Sequence[Path], slot: int, offset: int, *, leader_epoch: int = -1) -> int:
    """Cut a follower's log to end at `offset`, or where the batch that holds it begins; the log end offset.

    May be repeated, also where a process died in it: nothing is cut then, and the checkpoints are written.

    :raises SlotChanged: the slot is not a follower's of this leader epoch, or does not reach that far.
    :raises OSError: a checkpoint could not be written: the slot takes no append until the recovery point is.
    :raises CorruptCheckpointError: a checkpoint does not follow its format.
    """
    slots.truncate(slot, offset, leader_epoch=leader_epoch)
    state = slots.describe(slot)
    log_dir, end = state["log_dir"], int(state["log_end_offset"])
    lower_cleaner_offset(log_dirs[log_dir], (state["topic"], state["partition"]), end)
    if write_checkpoints(shm, log_dirs, only=log_dir):
        raise OSError(f"cannot write the recovery point of a log in {log_dirs[log_dir]} after its truncation")
    return end
