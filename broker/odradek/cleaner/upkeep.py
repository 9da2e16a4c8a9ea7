"""The cleaner's periodic passes: flush, checkpoints, retention, directories of deleted partitions and of unassigned logs, idle
producers, the arena."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import odradek._ext.partition.flushing as flushing
import odradek._ext.partition.owner_counts as owner_counts
import odradek._ext.partition.slot_upkeep as slot_upkeep
import odradek._ext.partition.snapshot_publishing as snapshot_publishing
from odradek._ext.shm.shared_memory import SharedMemory
from odradek.cleaner.deleted_logs import DeletedLogs
from odradek.cleaner.gap_limits import GapLimits
from odradek.cleaner.leader_epochs import LeaderEpochs
from odradek.cleaner.retention import Retention
from odradek.cleaner.unassigned_logs import UnassignedLogs
from odradek.config.broker_config import BrokerConfig
from odradek.shm.checkpoints import write_checkpoints
from odradek.shm.partition_names import partition_name

log = logging.getLogger("odradek.cleaner")


Action = Callable[[], Mapping[str, str] | None]
"""Runs a pass. Returns at which partitions or files it failed, and why: {name: reason}; None and {}: it failed at nothing. What
it raises is a failure of the whole pass."""


class Pass(NamedTuple):
    """A periodic task: `action` runs first `first_ms` after the start, then every `every_ms`.

    `metrics/background_tasks.py` has a row for each `name`.
    """

    name: str
    every_ms: int
    first_ms: int
    action: Action


REMOVAL_OF_DELETED_LOGS = "removal of deleted logs"
ARENA_EVERY_MS = 60_000
NEARLY_FULL = 0.75
SILENT_MS = 900_000
BEAT_EVERY_SLOTS = 1024
TRIM_EVERY_MS = 1_000
REMOVE_EVERY_MS = 5_000
REMOVE_FILES_EVERY_MS = 1_000
FOLLOW_POLICY_EVERY_MS = 1_000
FLUSH_EVERY_MS = 1_000
GAP_LIMITS_EVERY_MS = 60_000
UNASSIGNED_EVERY_MS = 60_000


def passes(
    config: BrokerConfig, shm: SharedMemory, log_dirs: Sequence[Path], retention: Retention, deleted: DeletedLogs
) -> list[Pass]:
    """All passes of the cleaner, except for the watch over the disks."""
    # With Kafka's default, flush.ms is never checked. Here a flush.ms that is set is kept, to the second, from the start on.
    flush_every = min(config.integer("log.flush.scheduler.interval.ms"), FLUSH_EVERY_MS)

    def delayed(name: str, every_ms: int, action: Action) -> Pass:
        delay_ms = config.integer("log.initial.task.delay.ms")
        return Pass(
            name, every_ms, delay_ms if config.is_set("log.initial.task.delay.ms") else min(delay_ms, every_ms), action
        )

    def soon(name: str, every_ms: int, action: Action) -> Pass:
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
            lambda: deleted.remove(config.integer("log.segment.delete.delay.ms")),
        ),
        soon("search for unassigned logs", UNASSIGNED_EVERY_MS, UnassignedLogs(shm, log_dirs, config.node_id).look),
        delayed("retention", config.integer("log.retention.check.interval.ms"), retention.run),
        soon("deletion policy", FOLLOW_POLICY_EVERY_MS, retention.follow_policy),
        soon("removal of deleted segments", REMOVE_FILES_EVERY_MS, retention.remove_files),
        soon("leader epochs", TRIM_EVERY_MS, LeaderEpochs(shm, log_dirs).run),
        soon(
            "idle producers",
            config.integer("producer.id.expiration.check.interval.ms"),
            lambda: expire_producers(shm, config.integer("producer.id.expiration.ms")),
        ),
        soon(
            "producer arena",
            ARENA_EVERY_MS,
            lambda: keep_arena(shm, config.integer("producer.id.expiration.ms")),
        ),
    ]


def flush_due(shm: SharedMemory) -> dict[str, str]:
    """Sync the logs whose flush.ms has passed. Returns the failures."""
    return flush_each(shm, flushing.flush_due())


def flush_each(shm: SharedMemory, due: Sequence[int], *, whole: bool = False) -> dict[str, str]:
    """Sync these logs; the failure of one does not affect the others. Returns the failures."""
    failures = {}
    for slot, error in flushing.flush_many(due, whole=whole, beat=shm.beat):
        name = partition_name(slot)
        log.error("cannot sync the log of %s: %s", name, error)
        failures[name] = f"cannot sync the log: {error}"
    return failures


def checkpoint(shm: SharedMemory, log_dirs: Sequence[Path]) -> dict[str, str]:
    """Sync segments that were rolled since the last flush, so that a recovery reads little, then write the checkpoints. Returns
    the failures."""
    failures = publish_snapshots(shm) | flush_each(shm, flushing.rolled_since_flush(), whole=True)
    for number in write_checkpoints(shm, log_dirs):
        failures[str(log_dirs[number])] = "cannot write the checkpoints of this log directory"
    return failures


def make_room(config: BrokerConfig, deleted: DeletedLogs, retention: Retention) -> None:
    """Delete now what would be deleted later, in the log directories that are low on space or full. The passes that do the same
    at their time return the failures."""
    deleted.remove(config.integer("log.segment.delete.delay.ms"))
    retention.run()


def publish_snapshots(shm: SharedMemory) -> dict[str, str]:
    """Sync the new producer snapshots and rename them to their final names. Returns the failures."""
    failures = {}
    for slot, error in snapshot_publishing.publish(shm.beat).items():
        name = partition_name(slot)
        log.error("cannot sync and rename the producer snapshot of %s: %s; retrying in the next pass", name, error)
        failures[name] = f"cannot sync and rename the producer snapshot: {error}"
    return failures


def expire_producers(shm: SharedMemory, after_ms: int) -> None:
    """Expire the idempotent producers that sent nothing for `after_ms`."""
    forgotten = _forget(shm, after_ms)
    if forgotten:
        log.info("expired %d producers that were idle for more than %d s", forgotten, after_ms // 1000)


def _forget(shm: SharedMemory, after_ms: int, *, early: bool = False) -> int:
    before_ms = time.monotonic_ns() // 1_000_000 - after_ms
    forgotten = 0
    for slot in range(shm.slots_used):
        forgotten += slot_upkeep.expire(slot, before_ms, early)
        if slot % BEAT_EVERY_SLOTS == 0:
            shm.beat()
    return forgotten


def keep_arena(shm: SharedMemory, expiration_ms: int) -> None:
    """Free memory of the arena that no partition uses, count the producers of each client again after a death, and expire idle
    producers early if the memory for producers is nearly full."""
    freed_kib = slot_upkeep.reclaim_arena()
    if freed_kib:
        log.info("freed %d KiB of producer state of deleted partitions or dead processes", freed_kib)
    owner_counts.count_again()
    relieve_arena(shm, expiration_ms)


def relieve_arena(shm: SharedMemory, expiration_ms: int) -> None:
    """While more than three quarters of the memory for producers are used: expire the producers that are idle for half of
    `expiration_ms`, then a quarter, and so on, but none that sent anything in the last 15 minutes."""
    state = shm.producer_state
    if state["used_bytes"] <= NEARLY_FULL * state["max_bytes"]:
        return
    after_ms, forgotten = expiration_ms, 0
    while after_ms > SILENT_MS and shm.producer_state["used_bytes"] > NEARLY_FULL * state["max_bytes"]:
        after_ms = max(after_ms // 2, SILENT_MS)
        forgotten += _forget(shm, after_ms, early=True)
    log.warning(
        "the memory for producer state was %d %% full: expired %d producers that were idle for more than %d s, earlier than "
        "producer.id.expiration.ms; it is now %d %% full. Raise odradek.producer.state.max.bytes",
        100 * state["used_bytes"] // state["max_bytes"],
        forgotten,
        after_ms // 1000,
        100 * shm.producer_state["used_bytes"] // state["max_bytes"],
    )
