"""What the background tasks of processes last did: published by one process, read by the others."""

import errno

import pytest

from odradek.shm.published_tasks import (
    EVERY_S,
    MOST_NAMED,
    NAME_CHARACTERS,
    REASON_CHARACTERS,
    Area,
    Failing,
    PublishedTasks,
    TaskReport,
    TaskState,
)

SMILE = "\U0001f600"


class Clock:
    """Both clocks of a report."""

    ms = 1000
    steady = 100.0

    def pass_(self, seconds: float) -> None:
        self.ms += int(seconds * 1000)
        self.steady += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def published() -> PublishedTasks:
    return PublishedTasks()


def report(published: PublishedTasks, clock: Clock, area: Area = Area.CLEANER) -> TaskReport:
    return TaskReport(published, area, lambda: clock.ms, lambda: clock.steady)


def test_a_task_that_never_ran_has_the_time_of_its_start(published: PublishedTasks, clock: Clock) -> None:
    made = report(published, clock)
    made.expect("retention", 300)
    made.publish()
    assert published.read() == [TaskState("retention", 300, 1000, 1000)]


def test_failed_runs_are_counted_until_one_succeeds(published: PublishedTasks, clock: Clock) -> None:
    made = report(published, clock)
    made.expect("retention", 300)
    made.ran("retention")
    clock.pass_(5)
    made.ran("retention", {"t-0": "no"})
    assert published.read() == [TaskState("retention", 300, 6000, 1000, 1, 1, (Failing("t-0", "no", 6000),))]
    clock.pass_(EVERY_S)
    made.ran("retention", {"a-0": "never", "t-0": "not yet"})
    (state,) = published.read()
    assert state.named == (Failing("t-0", "not yet", 6000), Failing("a-0", "never", 16_000))
    assert (state.ran_ms, state.succeeded_ms, state.failed_runs, state.failing) == (16_000, 1000, 2, 2)
    assert published.failing_at("a-0") == [("retention", Failing("a-0", "never", 16_000))]
    assert published.failing_at("b-0") == []
    clock.pass_(1)
    made.ran("retention")
    assert published.read() == [TaskState("retention", 300, 17_000, 17_000)], (
        "the end of a failure is published at once"
    )


def test_times_of_successes_are_published_from_time_to_time(published: PublishedTasks, clock: Clock) -> None:
    made = report(published, clock)
    made.ran("flush")
    for _ in range(int(EVERY_S) - 1):
        clock.pass_(1)
        made.ran("flush")
    assert published.read() == [TaskState("flush", 0, 1000, 1000)]
    clock.pass_(1)
    made.ran("flush")
    assert published.read() == [TaskState("flush", 0, 11_000, 11_000)]


def test_a_run_that_is_reported_again_counts_once(published: PublishedTasks, clock: Clock) -> None:
    made = report(published, clock)
    for _ in range(3):
        clock.pass_(EVERY_S)
        made.ran("compaction", {"t-0": "damaged"}, 900)
    (state,) = published.read()
    assert (state.ran_ms, state.failed_runs) == (900, 1)


def test_a_process_continues_with_what_its_predecessor_published(published: PublishedTasks, clock: Clock) -> None:
    before = report(published, clock)
    for task in ("retention", "compaction"):
        before.expect(task, 300)
    before.ran("retention", {"t-0": "no"})
    clock.pass_(60)
    successor = report(published, clock)
    successor.expect("retention", 500)
    successor.ran("retention", {"t-0": "no"})
    (state,) = published.read()
    assert state == TaskState("retention", 500, 61_000, 1000, 2, 1, (Failing("t-0", "no", 1000),))


def test_processes_do_not_replace_each_others_tasks(published: PublishedTasks, clock: Clock) -> None:
    for area, task in zip(Area, ("retention", "sweep", "spool"), strict=True):
        report(published, clock, area).ran(task)
    assert [state.task for state in published.read()] == ["retention", "sweep", "spool"]


def test_a_task_that_is_turned_off_is_not_published(published: PublishedTasks, clock: Clock) -> None:
    made = report(published, clock)
    made.ran("compaction", {"t-0": "no"})
    made.drop("compaction")
    made.ran("flush")
    clock.pass_(EVERY_S)
    made.ran("flush")
    assert [state.task for state in published.read()] == ["flush"]


def test_what_is_published_is_limited(published: PublishedTasks, clock: Clock) -> None:
    """Names and reasons that together exceed the memfd would stop the report."""
    made = report(published, clock)
    for number in range(16):
        made.ran(f"task {number}", {f"{n} {SMILE * 4000}": SMILE * 1000 for n in range(1000)})
    for state in published.read():
        assert state.failing == 1000
        assert len(state.named) == MOST_NAMED
        assert {len(found.reason) for found in state.named} == {REASON_CHARACTERS}
        assert {len(found.what) for found in state.named} == {NAME_CHARACTERS}


def test_a_report_that_cannot_be_published_is_logged_and_published_later(
    published: PublishedTasks, clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = report(published, clock)

    def no_memory(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(published, "publish", no_memory)
        made.ran("flush", {"t-0": "no"})
    assert "cannot publish the state of the background tasks" in caplog.text
    assert published.read() == []
    clock.pass_(EVERY_S)
    made.ran("flush", {"t-0": "no"})
    assert published.read()[0].failed_runs == 2
