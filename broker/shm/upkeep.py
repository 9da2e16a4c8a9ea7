"""The cleaner's passes over the shared table: flush, checkpoints, retention, deleted directories, idle producers, the arena."""

import logging
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import broker._ext.flushing as flushing
import broker._ext.slot_upkeep as slot_upkeep
from broker._ext.removed_files import announce_removed_files
from broker._ext.shared import DiskState, SharedMemory
from broker.config.broker_config import BrokerConfig
from broker.shm.checkpoints import write_checkpoints
from broker.shm.gap_limits import GapLimits
from broker.shm.leader_epochs import LeaderEpochs
from broker.shm.retention import Retention
from broker.storage.file_names import parse_directory_name

log = logging.getLogger("odradek.cleaner")


class Pass(NamedTuple):
    """Something to be done every `every_ms`, and `first_ms` after the start for the first time."""

    name: str
    every_ms: int
    first_ms: int
    action: Callable[[], None]


REMOVAL_OF_DELETED_LOGS = "removal of deleted logs"
ARENA_EVERY_MS = 60_000
TRIM_EVERY_MS = 1_000
REMOVE_EVERY_MS = 5_000
RETRY_S = REMOVE_EVERY_MS // 1000
REMOVE_FILES_EVERY_MS = 1_000
FOLLOW_POLICY_EVERY_MS = 1_000
FLUSH_EVERY_MS = 1_000
GAP_LIMITS_EVERY_MS = 60_000


def passes(config: BrokerConfig, shm: SharedMemory, log_dirs: Sequence[Path], retention: Retention) -> list[Pass]:
    """All of them, but for the watch over the disks."""
    # Kafka's default never looks at flush.ms at all; here a flush.ms that is set is kept, to the second, from the start on.
    flush_every = min(config.integer("log.flush.scheduler.interval.ms"), FLUSH_EVERY_MS)

    def delayed(name: str, every_ms: int, action: Callable[[], None]) -> Pass:
        delay_ms = config.integer("log.initial.task.delay.ms")
        return Pass(
            name, every_ms, delay_ms if config.is_set("log.initial.task.delay.ms") else min(delay_ms, every_ms), action
        )

    def soon(name: str, every_ms: int, action: Callable[[], None]) -> Pass:
        return Pass(name, every_ms, every_ms, action)

    return [
        Pass("gap limits", GAP_LIMITS_EVERY_MS, 0, GapLimits(shm, log_dirs).run),
        soon("flush", flush_every, lambda: flush_due(shm)),
        delayed(
            "checkpoints",
            config.integer("log.flush.offset.checkpoint.interval.ms"),
            lambda: checkpoint(shm, log_dirs),
        ),
        delayed(
            REMOVAL_OF_DELETED_LOGS,
            REMOVE_EVERY_MS,
            lambda: remove_deleted(shm, log_dirs, config.integer("log.segment.delete.delay.ms")),
        ),
        delayed("retention", config.integer("log.retention.check.interval.ms"), retention.run),
        soon("deletion policy", FOLLOW_POLICY_EVERY_MS, retention.follow_policy),
        soon("removal of deleted segments", REMOVE_FILES_EVERY_MS, retention.remove_files),
        soon("leader epochs", TRIM_EVERY_MS, LeaderEpochs(shm, log_dirs).run),
        soon(
            "idle producers",
            config.integer("producer.id.expiration.check.interval.ms"),
            lambda: expire_producers(shm, config.integer("producer.id.expiration.ms")),
        ),
        soon("producer arena", ARENA_EVERY_MS, reclaim),
    ]


def flush_due(shm: SharedMemory) -> None:
    """Sync the logs whose flush.ms has passed."""
    flush_each(shm, flushing.flush_due())


def flush_each(shm: SharedMemory, due: Sequence[int], *, whole: bool = False) -> None:
    """Sync these logs; one that fails keeps none of the others waiting."""
    for slot, error in flushing.flush_many(due, whole=whole, beat=shm.beat):
        log.error("the log of slot %d could not be synced: %s", slot, error)


def checkpoint(shm: SharedMemory, log_dirs: Sequence[Path]) -> None:
    """Sync what was rolled since, so that recovery after a crash reads little, then write the checkpoints."""
    flush_each(shm, flushing.rolled_since_flush(), whole=True)
    write_checkpoints(shm, log_dirs)


def remove_deleted(shm: SharedMemory, log_dirs: Sequence[Path], delay_ms: int) -> None:
    """Remove the directories of deleted partitions once `delay_ms` have passed, so that reads under way can finish; at once
    where the log directory is low on room or full.

    A directory that cannot be removed is tried again by the next pass, with a line in the log.
    """
    removed = False
    for number, log_dir in enumerate(log_dirs):
        wait_ms = delay_ms if shm.disk(number)[0] == DiskState.DISK_ROOMY else 0
        for path in sorted(log_dir.glob("*-delete")):
            if parse_directory_name(path.name).fate != "delete":
                continue
            try:
                age_ms = (time.time() - path.stat().st_ctime) * 1000
                if age_ms >= wait_ms:
                    removed = True  # perhaps in part
                    shutil.rmtree(path)
                    log.info("removed the deleted partition's directory %s", path)
            except OSError as error:
                log.error("cannot remove a deleted partition's directory: %s; trying again in %d s", error, RETRY_S)
    if removed:
        announce_removed_files()


def make_room(config: BrokerConfig, shm: SharedMemory, log_dirs: Sequence[Path], retention: Retention) -> None:
    """Delete now what would be deleted later in the log directories that are low on room or full."""
    remove_deleted(shm, log_dirs, config.integer("log.segment.delete.delay.ms"))
    retention.run()


def expire_producers(shm: SharedMemory, after_ms: int) -> None:
    """Forget idempotent producers that have been silent for `after_ms`."""
    before_ms = int(time.time() * 1000) - after_ms
    forgotten = sum(max(0, slot_upkeep.expire(slot, before_ms)) for slot in range(shm.slots_used))
    if forgotten:
        log.info("forgot %d producers silent for over %d s", forgotten, after_ms // 1000)


def reclaim() -> None:
    """Give back arena runs that no slot names any more."""
    given = slot_upkeep.reclaim_arena()
    if given:
        log.info("gave %d units of producer state back that a process left when it died", given)
