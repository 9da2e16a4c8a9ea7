"""The cleaner: does the periodic work on logs, outside the data path.

What it does: flushes logs by `log.flush.*`, writes recovery points and log start offsets, applies retention, removes the
directories of deleted topics, expires idle producers, compacts logs (in separate threads), frees arena runs, watches the free
disk space, and takes the partitions of failed log directories offline. At the ordered stop, after all other processes have
ended, it writes the clean-shutdown state.

What it must not do: serve clients, or hold a slot's lock for long.

How it ends: on SIGTERM.

What its death causes: the periodic work is delayed, nothing else. Its successor starts all passes from the beginning.
"""

import heapq
import logging
import os
import select
import signal
import time

import odradek._ext.partition.slot_upkeep as slot_upkeep
from odradek._ext.partition.append_files import sweep_append_files
from odradek._ext.shm.layout import ProcessState
from odradek._ext.shm.metering import count
from odradek.cleaner import shutdown, upkeep
from odradek.cleaner.compaction import Compaction, CompactionSettings
from odradek.cleaner.deleted_logs import DeletedLogs
from odradek.cleaner.deletion_policy import PolicyThread, load_policy
from odradek.cleaner.disk_space import LOOK_EVERY_MS, DiskSpace
from odradek.cleaner.retention import Retention
from odradek.processes import logs
from odradek.processes.context import ProcessContext
from odradek.processes.metering import BusyTime
from odradek.processes.waiting_beats import WaitingBeats
from odradek.shm.removed_files import RemovedFiles

log = logging.getLogger("odradek.cleaner")

NICE = 10
DISK_SPACE = "disk space"
LONGEST_WAIT_MS = 1000
OTHERS_EVERY_MS = 20
SUPERVISOR_SLOW_MS = 10_000


def main(context: ProcessContext) -> int:
    """Run until SIGTERM. Returns the exit code."""
    os.nice(NICE)
    stopping = False

    def stop(*_: object) -> None:
        nonlocal stopping
        stopping = True

    wakeup_read, wakeup_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wakeup_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, stop)
    shm = context.shm
    policy = load_policy(context.config)
    retention = Retention(shm, context.log_dirs, None if policy is None else PolicyThread(policy))
    deleted = DeletedLogs(shm, context.log_dirs)
    disks = DiskSpace(
        context.config, shm, context.log_dirs, lambda: upkeep.make_room(context.config, deleted, retention)
    )
    removed_files = RemovedFiles(sweep_append_files)
    passes = [
        *upkeep.passes(context.config, shm, context.log_dirs, retention, deleted),
        upkeep.Pass(DISK_SPACE, LOOK_EVERY_MS, LOOK_EVERY_MS, disks.look),
    ]
    number_of = {item.name: number for number, item in enumerate(passes)}
    schedule = [(shm_now() + item.first_ms, number) for number, item in enumerate(passes)]
    heapq.heapify(schedule)
    poll = select.poll()
    poll.register(wakeup_read, select.POLLIN)
    poll.register(shm.event_fd(), select.POLLIN)
    parent = os.getppid()
    failures = compacted = 0
    removed = (0, 0)
    busy = BusyTime()
    beats = WaitingBeats(shm.beat)
    beats.start()
    slot_upkeep.recover_dead()  # in case all processes died together, so that none was left to recover their slots
    shm.set_state(ProcessState.SERVING)
    shm.wake(0)
    compaction = Compaction(context.config, shm, context.log_dirs)
    compaction.start()
    while not stopping:
        shm.beat()
        passed = compaction.passes
        count("compactions", passed - compacted)
        compacted = passed
        if context.running.changed and (changed := take_over_settings(context, compaction)) is not compaction:
            compaction, compacted = changed, 0
        shm.confirm_version(shm.metadata_version)
        anything_removed = removed_files.look()
        wait = min(LONGEST_WAIT_MS, max(0, schedule[0][0] - shm_now()))
        if any(fd == shm.event_fd() for fd, _ in poll.poll(wait)):
            shm.drain_event()
        if shm.take_full_look():
            slot_upkeep.recover_dead()
        urgent = [number_of[DISK_SPACE]] if disks.urgent() else []
        if (removed_files.look() or anything_removed) and disks.short:  # a topic may have been deleted to make room
            urgent.append(number_of[upkeep.REMOVAL_OF_DELETED_LOGS])
        while not stopping and (urgent or schedule[0][0] <= shm_now()):
            number = urgent.pop() if urgent else schedule[0][1]
            name, interval_ms, _, action = passes[number]
            try:
                action()
            except Exception:  # one of the three borders: a cleaner's pass
                failures += 1
                log.exception(
                    "the cleaner's pass '%s' failed (failure %d); retrying in %d ms", name, failures, interval_ms
                )
            logs.report_failures()
            count("cleaner_passes")
            count("segments_removed", retention.removed_segments - removed[0])
            count("bytes_removed", retention.removed_bytes - removed[1])
            removed = retention.removed_segments, retention.removed_bytes
            busy.tick()
            shm.beat()
            # Each pass is in the schedule once, whether it was due or urgent.
            schedule = [entry for entry in schedule if entry[1] != number]
            schedule.append((shm_now() + interval_ms, number))
            heapq.heapify(schedule)
    compaction.stop()
    beats.stop()
    wait_for_others(context, parent)
    if os.getppid() != parent or not others_ended(context):
        log.warning("the supervisor or another process did not stop in order: the next start recovers the logs")
        return 1
    shm.set_state(ProcessState.STOPPING)  # the loop has ended; the supervisor must not take this for a hang
    shutdown.close_all(context.config, shm, context.log_dirs)
    return 0


def take_over_settings(context: ProcessContext, compaction: Compaction) -> Compaction:
    """Apply the settings that changed at run time. If settings of compaction changed, compaction is restarted."""
    before = compaction.settings
    context.running.take_over(context.config)
    if CompactionSettings.of(context.config) == before:
        return compaction
    compaction.stop()
    compaction = Compaction(context.config, context.shm, context.log_dirs)
    compaction.start()
    log.info("restarted compaction with changed settings: %s", compaction.settings)
    return compaction


def wait_for_others(context: ProcessContext, parent: int) -> None:
    """Wait until the workers and the coordinator have ended, if the broker stops.

    A signal to the whole process group (Ctrl-C, a service manager) reaches the cleaner at once instead of last. If the
    supervisor does not begin to stop within `SUPERVISOR_SLOW_MS`, the signal was meant for the cleaner alone.
    """
    shm = context.shm
    poll = select.poll()
    poll.register(shm.event_fd(), select.POLLIN)
    last = shm_now() + SUPERVISOR_SLOW_MS
    while (shm.stopping or shm_now() < last) and os.getppid() == parent and not others_ended(context):
        shm.beat()
        if poll.poll(OTHERS_EVERY_MS):
            shm.drain_event()


def shm_now() -> int:
    """The monotonic time in ms."""
    return time.monotonic_ns() // 1_000_000


def others_ended(context: ProcessContext) -> bool:
    """Whether all processes but the supervisor and this one have ended, so that nothing can append to a log."""
    shm = context.shm
    return all(
        info.index in (0, context.index) or info.state in (ProcessState.ABSENT, ProcessState.DEAD)
        for info in shm.processes()
    )
