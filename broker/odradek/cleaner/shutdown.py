"""The ordered stop of the logs: sync unsynced data, write snapshots and checkpoints, then the clean-shutdown markers.

Runs in the cleaner when no process can append any more. If it dies in the middle, markers are missing and the next start
recovers the logs.
"""

import logging
from collections.abc import Sequence
from pathlib import Path

import odradek._ext.partition.flushing as flushing
import odradek._ext.partition.slots as slots
import odradek._ext.partition.snapshot_publishing as snapshot_publishing
from odradek._ext.shm.shared_memory import SharedMemory
from odradek.config.broker_config import BrokerConfig
from odradek.shm.checkpoints import write_checkpoints
from odradek.shm.partition_names import partition_name
from odradek.storage.log_directory import write_clean_shutdown

log = logging.getLogger("odradek.storage")


def close_all(config: BrokerConfig, shm: SharedMemory, log_dirs: Sequence[Path]) -> None:
    """Close all logs and mark every online log directory as cleanly shut down; a directory that fails gets no marker, so the
    next start recovers it."""
    # A log that failed or was not loaded is not known to be intact, so the next start must examine it.
    failed = {log_dir for _, _, log_dir in slots.not_online()}
    for slot, error in flushing.settle_many(flushing.to_close(), shm.beat).items():
        log.error(
            "cannot close the log of %s: %s; the next start recovers its log directory", partition_name(slot), error
        )
        failed.add(slots.log_dir_of(slot))
    for slot, error in snapshot_publishing.publish(shm.beat).items():
        log.error(
            "cannot sync and rename the producer snapshot of %s: %s; the next start recovers its log directory",
            partition_name(slot), error,
        )  # fmt: skip
        failed.add(slots.log_dir_of(slot))
    failed |= {slots.log_dir_of(slot) for slot in snapshot_publishing.pending()}
    failed |= write_checkpoints(shm, log_dirs)
    for number, path in enumerate(log_dirs):
        if number not in failed and not shm.log_dir_offline(number):
            try:
                write_clean_shutdown(path, 0)
            except OSError as error:
                log.error(
                    "cannot write the clean-shutdown marker of %s: %s; the next start recovers its logs", path, error
                )
