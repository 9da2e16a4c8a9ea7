"""The background tasks of this process, as the other processes see them (`shm.published_tasks`).

A process has one report, which its main function begins with `report_to`; all calls come from the thread of its loop. In a
process without a report (workers, the replicator, most tests), the functions do nothing.
"""

from collections.abc import Mapping

from odradek.shm.published_tasks import Area, PublishedTasks, TaskReport

OPENING = "opening of waiting logs"
"""The task that opens logs that could not be opened for lack of disk space."""

_reports: list[TaskReport] = []  # the report of this process, if it has one


def report_to(published: PublishedTasks, area: Area) -> None:
    """Publish the tasks of this process from now on."""
    _reports[:] = [TaskReport(published, area)]


def expect(task: str, interval_ms: int) -> None:
    """See `TaskReport.expect`."""
    for report in _reports:
        report.expect(task, interval_ms)


def drop(task: str) -> None:
    """See `TaskReport.drop`."""
    for report in _reports:
        report.drop(task)


def ran(task: str, failures: Mapping[str, str] | None = None, ran_ms: int | None = None) -> None:
    """See `TaskReport.ran`."""
    for report in _reports:
        report.ran(task, failures, ran_ms)


def ended(task: str, error: BaseException | None = None) -> None:
    """A run of a task has ended, as a whole with this error or without one."""
    ran(task, None if error is None else {"": repr(error)})
