"""The metrics of background tasks, and of logs that were set aside. Pure functions."""

from collections.abc import Iterator, Mapping, Sequence

from odradek.metrics.exposition import Family, Labels
from odradek.metrics.names import METRICS
from odradek.shm.published_tasks import TaskState
from odradek.storage.stray_logs import StrayLog

_PREFIX = "odradek_task_"


def families(tasks: Sequence[TaskState]) -> Iterator[Family]:
    """The families of the tasks of all processes."""
    labels = [Labels(task=state.task) for state in tasks]
    for name, values in (
        ("last_run_timestamp_seconds", [state.ran_ms / 1000 for state in tasks]),
        ("last_success_timestamp_seconds", [state.succeeded_ms / 1000 for state in tasks]),
        ("interval_seconds", [state.interval_ms / 1000 for state in tasks]),
        ("failed_runs", [state.failed_runs for state in tasks]),
        ("failing_objects", [state.failing for state in tasks]),
    ):
        samples = [("", label, value) for label, value in zip(labels, values, strict=True)]
        yield Family(METRICS[_PREFIX + name], samples)


def stray_families(strays: Mapping[str, Sequence[StrayLog]]) -> Iterator[Family]:
    """:param strays: the logs that were set aside, by log directory."""
    for name, values in (
        ("odradek_stray_logs", {path: len(logs) for path, logs in strays.items()}),
        ("odradek_stray_log_bytes", {path: sum(log.size_bytes for log in logs) for path, logs in strays.items()}),
    ):
        yield Family(METRICS[name], [("", Labels(log_dir=path), value) for path, value in values.items()])
