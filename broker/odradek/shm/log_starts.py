"""Log start offsets moved forward because a client asked (DeleteRecords): first in the slots, then durable, then told.

Runs in the coordinator; the slots' locks protect the slots, a lock on each log directory the checkpoint file. What is not
durable when the broker dies was told to nobody: the log begins where it began before.
"""

import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import odradek._ext.partition.log_start as native
import odradek._ext.partition.slots as slots
from odradek._ext.shm.faults import FaultPoint
from odradek._ext.shm.layout import Role
from odradek._ext.shm.shared_memory import SharedMemory
from odradek.shm.checkpoints import write_log_starts
from odradek.storage.checkpoints import CorruptCheckpointError

log = logging.getLogger("odradek.cleaner.retention")

HIGH_WATERMARK = -1
LONGEST_WAIT_MS = 15_000
NOT_DURABLE = "not durable"


class Wish(NamedTuple):
    """Everything below `offset` (or the high watermark, -1) is to go from the log in a slot."""

    slot: int
    incarnation: int
    offset: int


def delete_records(
    shm: SharedMemory, log_dirs: Sequence[Path], wishes: Sequence[Wish], timeout_ms: int
) -> list[tuple[str, int]]:
    """(what became of it, log start offset), a wish each: "ok" only once it is durable, else why not ("busy", "stale",
    "not leader", "offline", "out of range", "not durable").

    :param timeout_ms: how long to wait for locks, all wishes together.
    """
    until = time.monotonic() + min(max(timeout_ms, 0), LONGEST_WAIT_MS) / 1000
    outcomes = []
    for wish in wishes:
        left_ms = max(0, int((until - time.monotonic()) * 1000))
        outcomes.append(
            native.advance(
                wish.slot, wish.offset, incarnation=wish.incarnation, role=Role.ROLE_LEADER, timeout_ms=left_ms
            )
        )
    touched = {slots.log_dir_of(wish.slot) for wish, (why, _) in zip(wishes, outcomes, strict=True) if why == "ok"}
    lasting = {number: _make_durable(shm, log_dirs, number) for number in touched}
    native.meet_fault(FaultPoint.REMOVE_LOG_START_DURABLE)
    return [
        (NOT_DURABLE, -1) if why == "ok" and not lasting[slots.log_dir_of(wish.slot)] else (why, log_start)
        for wish, (why, log_start) in zip(wishes, outcomes, strict=True)
    ]


def _make_durable(shm: SharedMemory, log_dirs: Sequence[Path], number: int) -> bool:
    try:
        write_log_starts(shm, log_dirs, only=number)
    except (OSError, CorruptCheckpointError) as error:
        log.error("cannot write the log start offsets of %s: %s; DeleteRecords fails", log_dirs[number], error)
        return False
    return not shm.log_dir_offline(number)
