"""Moves log start offsets forward for DeleteRecords: first in the slots, then durably, then the client gets the response.

Runs in the coordinator. The slots' locks protect the slots, a lock on each log directory protects the checkpoint file. If the
broker dies before the offsets are durable, no client has got a response, and the logs begin where they began before [R 4.7].
"""

import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import odradek._ext.partition.log_start as native
import odradek._ext.partition.slots as slots
from odradek._ext.partition.slot_access import AppendResult
from odradek._ext.shm.faults import FaultPoint
from odradek._ext.shm.shared_memory import SharedMemory
from odradek._ext.shm.slot import Role
from odradek.shm.checkpoints import write_log_starts
from odradek.storage.checkpoints import CorruptCheckpointError

log = logging.getLogger("odradek.cleaner.retention")

HIGH_WATERMARK = -1
LONGEST_WAIT_MS = 15_000


class Deletion(NamedTuple):
    """A request to delete the records below `offset` from the log in a slot; -1 means the high watermark."""

    slot: int
    incarnation: int
    offset: int


def delete_records(
    shm: SharedMemory, log_dirs: Sequence[Path], deletions: Sequence[Deletion], timeout_ms: int
) -> list[tuple[AppendResult, int]]:
    """Raise the log start offsets. Returns (result, log start offset) for each deletion; APPEND_OK means that the offset is
    durable, and APPEND_IO_ERROR that it could not be stored.

    :param timeout_ms: how long to wait for locks, for all deletions together.
    """
    until = time.monotonic() + min(max(timeout_ms, 0), LONGEST_WAIT_MS) / 1000
    outcomes = []
    for deletion in deletions:
        left_ms = max(0, int((until - time.monotonic()) * 1000))
        outcomes.append(
            native.advance(
                deletion.slot,
                deletion.offset,
                incarnation=deletion.incarnation,
                role=Role.ROLE_LEADER,
                timeout_ms=left_ms,
            )
        )
    changed = {
        slots.log_dir_of(deletion.slot)
        for deletion, (result, _) in zip(deletions, outcomes, strict=True)
        if result == AppendResult.APPEND_OK
    }
    durable = {number: _make_durable(shm, log_dirs, number) for number in changed}
    native.meet_fault(FaultPoint.REMOVE_LOG_START_DURABLE)
    return [
        (AppendResult.APPEND_IO_ERROR, -1)
        if result == AppendResult.APPEND_OK and not durable[slots.log_dir_of(deletion.slot)]
        else (result, log_start)
        for deletion, (result, log_start) in zip(deletions, outcomes, strict=True)
    ]


def _make_durable(shm: SharedMemory, log_dirs: Sequence[Path], number: int) -> bool:
    try:
        write_log_starts(shm, log_dirs, only=number)
    except (OSError, CorruptCheckpointError) as error:
        log.error("cannot write the log start offsets of %s: %s; DeleteRecords fails", log_dirs[number], error)
        return False
    return not shm.log_dir_offline(number)
