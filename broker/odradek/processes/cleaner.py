"""The cleaner: does the periodic work on logs, outside the data path.

What it does: flushes logs by `log.flush.*`, writes recovery points and log start offsets, applies retention, removes the
directories of deleted topics, expires idle producers, compacts logs (in separate threads), frees arena runs, watches the free
disk space, and takes the partitions of failed log directories offline. At the ordered stop, after all other processes have
ended, it writes the clean-shutdown state.

What it must not do: serve clients, or hold a slot's lock for long.

How it ends: on SIGTERM.

What its death causes: the periodic work is delayed, nothing else. Its successor starts all passes from the beginning.
"""

import logging
import os
import select
import signal
import time
from collections.abc import Callable, Sequence
from operator import itemgetter

import odradek._ext.partition.slot_upkeep as slot_upkeep
from odradek._ext.partition.append_files import sweep_append_files
from odradek._ext.shm.layout import ProcessState
from odradek._ext.shm.metering import count
from odradek._ext.shm.process import release_start_pages
from odradek.cleaner import shutdown, upkeep
from odradek.cleaner.compaction import Compaction, CompactionSettings
from odradek.cleaner.deleted_logs import DeletedLogs
from odradek.cleaner.deletion_policy import PolicyThread, load_policy
from odradek.cleaner.disk_space import LOOK_EVERY_MS, DiskSpace
from odradek.cleaner.retention import Retention
from odradek.cleaner.upkeep import Pass
from odradek.cleaner.waiting_beats import WaitingBeats
from odradek.processes import logs, own_tasks
from odradek.processes.context import ProcessContext
from odradek.processes.metering import BusyTime
from odradek.shm.published_tasks import Area
from odradek.shm.removed_files import RemovedFiles

log = logging.getLogger("odradek.cleaner")

NICE = 10
DISK_SPACE = "disk space"
COMPACTION = "compaction"
LONGEST_WAIT_MS = 1000
OTHERS_EVERY_MS = 20
SUPERVISOR_SLOW_MS = 10_000


def monotonic_ms() -> int:
    """The monotonic time in ms."""
    return time.monotonic_ns() // 1_000_000


class Schedule:
    """The cleaner's passes, each with the time at which it is due. :param clock: monotonic ms; tests replace it."""

    def __init__(self, passes: Sequence[Pass], clock: Callable[[], int] = monotonic_ms) -> None:
        self._clock = clock
        now = clock()
        self._due = {item.name: (now + item.first_ms, item) for item in passes}

    def wait_ms(self) -> int:
        """The time until the next pass is due; at most `LONGEST_WAIT_MS`."""
        return min(LONGEST_WAIT_MS, max(0, min(due for due, _ in self._due.values()) - self._clock()))

    def intervals(self) -> dict[str, int]:
        """The interval of each pass in ms, by its name."""
        return {name: item.every_ms for name, (_, item) in self._due.items()}

    def make_due(self, name: str) -> None:
        """Run a pass next, before all others."""
        self._due[name] = (0, self._due[name][1])

    def take_due(self) -> Pass | None:
        """The pass that is due for the longest time, or None. Call `done` after it."""
        due, item = min(self._due.values(), key=itemgetter(0))
        return item if due <= self._clock() else None

    def done(self, item: Pass) -> None:
        """A pass has run: it is due again after its interval."""
        self._due[item.name] = (self._clock() + item.every_ms, item)


class Cleaner:
    """The cleaner process; used in its main thread. Compaction, the deletion policy and the beats have their own threads."""

    def __init__(self, context: ProcessContext) -> None:
        config, shm, log_dirs = context.config, context.shm, context.log_dirs
        self._context = context
        self._shm = shm
        self._stopping = False
        wakeup_read, wakeup_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wakeup_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._stop)
        self._poll = select.poll()
        self._poll.register(wakeup_read, select.POLLIN)
        self._poll.register(shm.event_fd(), select.POLLIN)
        policy = load_policy(config)
        self._retention = Retention(shm, log_dirs, None if policy is None else PolicyThread(policy))
        deleted = DeletedLogs(shm, log_dirs)
        self._disks = DiskSpace(config, shm, log_dirs, lambda: upkeep.make_room(config, deleted, self._retention))
        self._removed_files = RemovedFiles(sweep_append_files)
        self._schedule = Schedule(
            [
                *upkeep.passes(config, shm, log_dirs, self._retention, deleted),
                Pass(DISK_SPACE, LOOK_EVERY_MS, LOOK_EVERY_MS, self._disks.look),
            ]
        )
        self._busy = BusyTime()
        own_tasks.report_to(context.tasks, Area.CLEANER)
        for name, every_ms in self._schedule.intervals().items():
            own_tasks.expect(name, every_ms)
        self._compactions = 0
        self._report_from = 0
        self._removed = (0, 0)
        self._compaction = Compaction(config, shm, log_dirs)

    def _stop(self, *_: object) -> None:
        self._stopping = True

    def run(self) -> None:
        """Run the passes when they are due, until SIGTERM."""
        beats = WaitingBeats(self._shm.beat)
        beats.start()
        slot_upkeep.recover_dead()  # if all processes died together, no process recovered their slots
        self._shm.set_state(ProcessState.SERVING)
        self._shm.wake(0)
        self._compaction.start()
        release_start_pages()
        while not self._stopping:
            self._shm.beat()
            self._report_compaction()
            self._take_over_settings()
            self._shm.confirm_version(self._shm.metadata_version)
            self._wait()
            while not self._stopping and (due := self._schedule.take_due()) is not None:
                self._run_pass(due)
        self._compaction.stop()
        beats.stop()

    def _wait(self) -> None:
        """Wait until a pass is due or an event arrives; handle the event."""
        anything_removed = self._removed_files.look()
        if any(fd == self._shm.event_fd() for fd, _ in self._poll.poll(self._schedule.wait_ms())):
            self._shm.drain_event()
        if self._shm.take_full_look():
            slot_upkeep.recover_dead()
        if self._disks.urgent():
            self._schedule.make_due(DISK_SPACE)
        if (self._removed_files.look() or anything_removed) and self._disks.short:
            # A topic may have been deleted to make room.
            self._schedule.make_due(upkeep.REMOVAL_OF_DELETED_LOGS)

    def _run_pass(self, item: Pass) -> None:
        try:
            own_tasks.ran(item.name, item.action())
        except Exception as error:  # one of the three borders: a cleaner's pass
            log.exception("the cleaner's pass '%s' failed; retrying in %d ms", item.name, item.every_ms)
            own_tasks.ended(item.name, error)
        logs.report_failures()
        count("cleaner_passes")
        segments, size = self._retention.removed_segments, self._retention.removed_bytes
        count("segments_removed", segments - self._removed[0])
        count("bytes_removed", size - self._removed[1])
        self._removed = segments, size
        self._busy.tick()
        self._shm.beat()
        self._schedule.done(item)

    def _report_compaction(self) -> None:
        passes = self._compaction.passes
        count("compactions", passes - self._compactions)
        self._compactions = passes
        if not self._compaction.runs:
            own_tasks.drop(COMPACTION)
        elif monotonic_ms() >= self._report_from:
            self._report_from = monotonic_ms() + LONGEST_WAIT_MS
            own_tasks.expect(COMPACTION, int(self._compaction.settings.backoff_s * 1000))
            own_tasks.ran(COMPACTION, self._compaction.failures(), self._compaction.worked_ms)

    def _take_over_settings(self) -> None:
        """Apply the settings that changed at run time. If settings of compaction changed, compaction is restarted."""
        context = self._context
        if not context.running.changed:
            return
        context.running.take_over(context.config)
        if CompactionSettings.of(context.config) == self._compaction.settings:
            return
        self._compaction.stop()
        self._report_compaction()
        self._compaction, self._compactions = Compaction(context.config, self._shm, context.log_dirs), 0
        self._compaction.start()
        log.info("restarted compaction with changed settings: %s", self._compaction.settings)


def main(context: ProcessContext) -> int:
    """Run until SIGTERM. Returns the exit code."""
    os.nice(NICE)
    parent = os.getppid()
    Cleaner(context).run()
    wait_for_others(context, parent)
    if os.getppid() != parent or not others_ended(context):
        log.warning("the supervisor or another process did not stop in order: the next start recovers the logs")
        return 1
    context.shm.set_state(ProcessState.STOPPING)  # the loop has ended; the supervisor must not take this for a hang
    shutdown.close_all(context.config, context.shm, context.log_dirs)
    return 0


def wait_for_others(context: ProcessContext, parent: int) -> None:
    """Wait until the workers and the coordinator have ended, if the broker stops.

    A signal to the whole process group (Ctrl-C, a service manager) reaches the cleaner at once instead of last. If the
    supervisor does not begin to stop within `SUPERVISOR_SLOW_MS`, the signal was meant for the cleaner alone.
    """
    shm = context.shm
    poll = select.poll()
    poll.register(shm.event_fd(), select.POLLIN)
    last = monotonic_ms() + SUPERVISOR_SLOW_MS
    while (shm.stopping or monotonic_ms() < last) and os.getppid() == parent and not others_ended(context):
        shm.beat()
        if poll.poll(OTHERS_EVERY_MS):
            shm.drain_event()


def others_ended(context: ProcessContext) -> bool:
    """Whether all processes but the supervisor and this one have ended, so that nothing can append to a log."""
    shm = context.shm
    return all(
        info.index in (0, context.index) or info.state in (ProcessState.ABSENT, ProcessState.DEAD)
        for info in shm.processes()
    )
