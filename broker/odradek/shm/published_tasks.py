"""What the background tasks of the broker's processes last did, shared by the processes in a memfd.

A background task is work that a process repeats by itself, such as retention; `metrics/background_tasks.py` has all of them.
The cleaner, the coordinator and the reporter each publish their own tasks: when a task last ran and last failed at nothing, how
many of its runs have failed since then, and at which partitions or files. The supervisor reads them for the status document,
the reporter for the metrics, the workers for `odradek partition explain`. Each area of the memfd has one writer at a time; a
process that starts continues with what its predecessor published.
"""

import json
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from odradek import clock
from odradek.shm.owned_descriptors import close_with
from odradek.shm.published_pages import PublishedPages

log = logging.getLogger("odradek.supervisor")

COPY_BYTES = 1 << 22
MOST_NAMED = 20
"""At most so many partitions or files at which a task fails are published with their names; all are counted."""
NAME_CHARACTERS, REASON_CHARACTERS = 500, 300
"""What is longer is cut off."""
EVERY_S = 10.0
"""The times of successful runs are published at most so often. A failure, and its end, are published at once."""


class Area(IntEnum):
    """A part of the memfd with its own writer."""

    CLEANER = 0
    COORDINATOR = 1
    REPORTER = 2


class Failing(NamedTuple):
    """A partition or file at which the last run of a task failed.

    :param what: the partition (`topic-0`) or the path; "": the whole task. :param since_ms: Unix time of its first failure.
    """

    what: str
    reason: str
    since_ms: int


class TaskState(NamedTuple):
    """What a task last did.

    :param interval_ms: the time between two runs; 0: the task runs all the time.
    :param ran_ms: Unix time of the end of the last run; before the first one: the time at which the broker started the task.
    :param succeeded_ms: like `ran_ms`, of the last run that failed at nothing.
    :param failed_runs: the runs that have failed since then.
    :param failing: the number of partitions or files at which the last run failed. :param named: the first ones of them.
    """

    task: str
    interval_ms: int
    ran_ms: int
    succeeded_ms: int
    failed_runs: int = 0
    failing: int = 0
    named: tuple[Failing, ...] = ()


class PublishedTasks:
    """See the module. The supervisor creates it before the first fork."""

    def __init__(self) -> None:
        self._fd = os.memfd_create("odradek-tasks", os.MFD_CLOEXEC)
        close_with(self, self._fd)
        self._areas = [PublishedPages(self._fd, start=area * 2 * COPY_BYTES, copy_bytes=COPY_BYTES) for area in Area]

    @property
    def descriptors(self) -> tuple[int, ...]:
        """The descriptors that a child must keep open."""
        return (self._fd,)

    def publish(self, area: Area, states: Iterable[TaskState]) -> None:
        """Replace what a process has published. Raises OSError."""
        self._areas[area].publish(json.dumps(list(states), separators=(",", ":")).encode())

    def of_area(self, area: Area) -> list[TaskState]:
        """What a process has published."""
        published = self._areas[area].read()
        return [] if published is None else [_state(*fields) for fields in json.loads(published[1])]

    def read(self) -> list[TaskState]:
        """The tasks of all processes."""
        return [state for area in Area for state in self.of_area(area)]

    def failing_at(self, what: str) -> list[tuple[str, Failing]]:
        """The tasks whose last run failed at this partition, with the reason; only partitions that are published by name."""
        return [(state.task, found) for state in self.read() for found in state.named if found.what == what]


def _state(*fields: Any) -> TaskState:
    state = TaskState(*fields)
    return state._replace(named=tuple(Failing(*found) for found in state.named))


class TaskReport:
    """Publishes the tasks of one process; used in one thread.

    :param wall: the Unix time in ms. :param steady: monotonic seconds.
    """

    def __init__(
        self,
        published: PublishedTasks,
        area: Area,
        wall: Callable[[], int] = clock.now_ms,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._published = published
        self._area = area
        self._wall = wall
        self._steady = steady
        self._before = {state.task: state for state in published.of_area(area)}
        self._states: dict[str, TaskState] = {}
        self._publish_from = 0.0

    def expect(self, task: str, interval_ms: int) -> None:
        """Publish the task from now on, also if it never runs. :param interval_ms: see `TaskState`."""
        now_ms = self._wall()
        known = self._states.get(task) or self._before.get(task) or TaskState(task, interval_ms, now_ms, now_ms)
        self._states[task] = known._replace(interval_ms=interval_ms)

    def drop(self, task: str) -> None:
        """Publish the task no longer: a setting has turned it off."""
        self._states.pop(task, None)
        self._before.pop(task, None)

    def ran(self, task: str, failures: Mapping[str, str] | None = None, ran_ms: int | None = None) -> None:
        """A run of a task has ended; a task that is not expected has the interval 0 from now on.

        :param failures: the reasons by the partition or file at which it failed; "" for the whole task.
        :param ran_ms: when it ended, if not now; the same time as before: no other run has ended.
        """
        if task not in self._states:
            self.expect(task, 0)
        before = self._states[task]
        now_ms = self._wall()
        if ran_ms is None:
            ran_ms = now_ms
        if not failures:
            self._states[task] = TaskState(task, before.interval_ms, ran_ms, ran_ms)
        else:
            since = {found.what: found.since_ms for found in before.named}
            cut = {what[:NAME_CHARACTERS]: reason for what, reason in failures.items()}
            self._states[task] = before._replace(
                ran_ms=ran_ms,
                failed_runs=before.failed_runs + (ran_ms != before.ran_ms or not before.failed_runs),
                failing=len(failures),
                named=tuple(
                    Failing(what, reason[:REASON_CHARACTERS], since.get(what, now_ms))
                    for what, reason in sorted(cut.items(), key=lambda item: (item[0] not in since, item[0]))[
                        :MOST_NAMED
                    ]
                ),
            )
        changed = self._states[task].named != before.named or self._states[task].failing != before.failing
        if changed or self._steady() >= self._publish_from:
            self.publish()

    def publish(self) -> None:
        """Publish now. A failure is logged; the next run publishes again."""
        self._publish_from = self._steady() + EVERY_S
        try:
            self._published.publish(self._area, self._states.values())
        except OSError as error:
            log.warning(
                "cannot publish the state of the background tasks, so metrics and `odradek doctor` show an older one: %s; "
                "retrying in %g s",
                error, EVERY_S,
            )  # fmt: skip
