"""End offsets of leader epochs in the log of a partition that this broker leads (KIP-101, KIP-279).

The slot contains the newest epochs; `leader-epoch-checkpoint` contains all of them. Called by threads that may read a file.
"""

import odradek._ext.partition.leader_epochs as leader_epochs
from odradek._ext.partition import slot_upkeep
from odradek.storage.checkpoints import epochs_from

UNDEFINED = -1


def end_offset_for(slot: int, epoch: int) -> tuple[int, int]:
    """Return the largest epoch that is not above `epoch`, and its end offset in the leader's log; (-1, -1) if it is unknown.

    For an epoch older than all known ones: this epoch, and the start offset of the first known one. Epochs
    without a record are unknown if all their records were deleted.

    :raises OSError: the file cannot be read.
    :raises SlotBusy: another thread holds the slot's lock for long.
    """
    found: tuple[int, int] | None = leader_epochs.find_end_offset(slot, epoch)
    while found is None:
        read = leader_epochs.epochs_with_ends(slot)
        if read is None:
            slot_upkeep.settle(slot)  # completes the change if its author died
            found = leader_epochs.find_end_offset(slot, epoch)
            continue
        epochs, log_start, log_end, changes = read
        found = end_offset_of(epochs_from(epochs, log_start), epoch, log_end)
        if changes != leader_epochs.epoch_changes(slot):
            found = leader_epochs.find_end_offset(slot, epoch)
    return found


def end_offset_of(epochs: list[tuple[int, int]], requested: int, log_end: int) -> tuple[int, int]:
    """As `end_offset_for`, from all epochs of a log. :param epochs: (epoch, start offset), ascending."""
    if not epochs or requested == UNDEFINED or requested > epochs[-1][0]:
        return UNDEFINED, UNDEFINED
    end = next((start for epoch, start in epochs if epoch > requested), log_end)
    return max((epoch for epoch, _ in epochs if epoch <= requested), default=requested), min(end, log_end)
