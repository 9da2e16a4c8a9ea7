"""Tasks that must not end by an unexpected exception begin again; every task of a process is such a task or has a reason."""

import ast
import asyncio
import logging
from pathlib import Path

import pytest

import odradek.processes
from odradek.processes.supervised_tasks import LONGEST_RETRY_S, RETRY_S, supervised

WITH_A_REASON = {
    "coordinator/coordinator.py": 2,  # the process awaits both and ends with their exceptions
    "coordinator/internal_topics/coordinated_topic.py": 1,  # `_load_ended` logs a failure and loads again
    "coordinator/producer_id_stock.py": 1,  # gives every exception to the requests that wait
    "coordinator/transactions/service.py": 1,  # gives every exception to the marker that waits
    "coordinator/cluster/service.py": 1,  # `_leave` tells the supervisor in any case, which then stops the broker
    "supervised_tasks.py": 1,
}
"""The files with tasks that are not supervised, with their number, and why a failure of these is not lost."""


def tasks_in(path):
    tree = ast.parse(path.read_text())
    return sum(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute | ast.Name)
        and (node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id)
        in ("create_task", "ensure_future")
        for node in ast.walk(tree)
    )


def test_every_task_is_supervised_or_has_a_reason():
    package = Path(odradek.processes.__file__).parent
    found = {str(path.relative_to(package)): tasks_in(path) for path in package.rglob("*.py")}
    assert {path: number for path, number in found.items() if number} == WITH_A_REASON


class Work:
    """Fails as often as it is told. ``begun``: how often it began."""

    def __init__(self, failures):
        self.failures = failures
        self.begun = 0

    async def __call__(self):
        self.begun += 1
        if self.begun <= self.failures:
            raise RuntimeError("can't start new thread")


def run(work):
    """Run a task to its end; returns the seconds that it waited."""
    waits = []

    async def sleep(seconds):
        waits.append(seconds)

    async def main():
        await supervised(asyncio.get_running_loop(), "the work", work, sleep)

    asyncio.run(main())
    return waits


def test_work_that_fails_begins_again_with_growing_pauses(caplog):
    work = Work(9)
    with caplog.at_level(logging.ERROR):
        waits = run(work)
    assert work.begun == 10
    assert waits[:3] == [RETRY_S, 2 * RETRY_S, 4 * RETRY_S]
    assert waits[-1] == LONGEST_RETRY_S
    assert len(caplog.records) == 9
    assert "the work ended by an unexpected error; it begins again in 1 s" in caplog.text


def test_work_that_returns_is_not_repeated():
    work = Work(0)
    assert run(work) == []
    assert work.begun == 1


def test_a_cancelled_task_ends():
    async def main():
        task = supervised(asyncio.get_running_loop(), "the work", asyncio.Event().wait)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
