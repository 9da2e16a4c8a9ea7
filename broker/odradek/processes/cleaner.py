"""The cleaner: what must be done to logs from time to time, beside the data path.

Does: flush by `log.flush.*`, write recovery points and log start offsets, retention, remove deleted topics' directories, forget
idle producers, compact logs (in threads of its own), give back arena runs, watch the disks' room, take the partitions of failed
log directories offline; at the ordered stop, once the others have ended, it writes the clean state. Must not: serve
clients, or hold a slot's lock for long. It ends on SIGTERM. Its death delays upkeep, nothing else; its successor begins anew.
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
    """Run until SIGTERM; the exit code."""
    os.nice(NICE)
    asked = False

    def stop(*_: object) -> None:
        nonlocal asked
        asked = True

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
    number_of = {one.name: number for number, one in enumerate(passes)}
    schedule = [(shm_now() + one.first_ms, number) for number, one in enumerate(passes)]
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
    slot_upkeep.recover_dead()  # of processes that all died together, so that nobody was left to do it
    shm.set_state(ProcessState.SERVING)
    shm.wake(0)
    compaction = Compaction(context.config, shm, context.log_dirs)
    compaction.start()
    while not asked:
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
        hurried = [number_of[DISK_SPACE]] if disks.asked() else []
        if (removed_files.look() or anything_removed) and disks.short:  # a topic may have been deleted to make room
            hurried.append(number_of[upkeep.REMOVAL_OF_DELETED_LOGS])
        while not asked and (hurried or schedule[0][0] <= shm_now()):
            number = hurried.pop() if hurried else schedule[0][1]
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
            # Once each, whether its time had come or it could not wait.
            schedule = [entry for entry in schedule if entry[1] != number]
            schedule.append((shm_now() + interval_ms, number))
            heapq.heapify(schedule)
    compaction.stop()
    beats.stop()
    wait_for_others(context, parent)
    if os.getppid() != parent or not others_ended(context):
        log.warning("the supervisor or another process did not stop in order: the next start recovers the logs")
        return 1
    shm.set_state(ProcessState.STOPPING)  # no loop turns any more, and the supervisor shall not take that for a hang
    shutdown.close_all(context.config, shm, context.log_dirs)
    return 0


def take_over_settings(context: ProcessContext, compaction: Compaction) -> Compaction:
    """Act by the settings that changed; passes of compaction under way begin anew if they are concerned."""
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
    """A signal to the whole group (Ctrl-C, a service manager) comes here at once instead of last: while the broker stops, let
    the others end first. A supervisor that does not stop was not meant."""
    shm = context.shm
    poll = select.poll()
    poll.register(shm.event_fd(), select.POLLIN)
    last = shm_now() + SUPERVISOR_SLOW_MS
    while (shm.stopping or shm_now() < last) and os.getppid() == parent and not others_ended(context):
        shm.beat()
        if poll.poll(OTHERS_EVERY_MS):
            shm.drain_event()


def shm_now() -> int:
    """Monotonic time in ms."""
    return time.monotonic_ns() // 1_000_000


def others_ended(context: ProcessContext) -> bool:
    """Whether no worker and no coordinator can append any more."""
    shm = context.shm
    return all(
        info.index in (0, context.index) or info.state in (ProcessState.ABSENT, ProcessState.DEAD)
        for info in shm.processes()
    )
