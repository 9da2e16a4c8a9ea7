"""The order of the cleaner's passes."""

from odradek.cleaner.upkeep import Pass
from odradek.processes.cleaner import LONGEST_WAIT_MS, Schedule


class Clock:
    now = 0

    def __call__(self):
        return self.now


def schedule(clock, *rows):
    return Schedule([Pass(name, every_ms, first_ms, lambda: None) for name, every_ms, first_ms in rows], clock)


def run_due(passes):
    names = []
    while (item := passes.take_due()) is not None:
        names.append(item.name)
        passes.done(item)
    return names


def test_a_pass_is_due_first_after_its_delay_and_then_after_each_interval():
    clock = Clock()
    passes = schedule(clock, ("often", 10, 0), ("seldom", 100, 30))
    runs = []
    for clock.now in range(0, 131, 10):
        runs += [(clock.now, name) for name in run_due(passes)]
    assert [now for now, name in runs if name == "often"] == list(range(0, 131, 10))
    assert [now for now, name in runs if name == "seldom"] == [30, 130]


def test_the_pass_that_is_due_for_the_longest_time_runs_first():
    clock = Clock()
    passes = schedule(clock, ("second", 100, 20), ("first", 100, 10))
    clock.now = 50
    assert run_due(passes) == ["first", "second"]


def test_a_pass_that_is_made_due_runs_before_all_others_once():
    clock = Clock()
    passes = schedule(clock, ("overdue", 100, 10), ("urgent", 100, 80))
    clock.now = 50
    passes.make_due("urgent")
    assert run_due(passes) == ["urgent", "overdue"]
    clock.now = 149
    assert run_due(passes) == []
    clock.now = 150
    assert run_due(passes) == ["overdue", "urgent"]


def test_the_wait_ends_when_the_next_pass_is_due():
    clock = Clock()
    passes = schedule(clock, ("near", 5000, 40), ("far", 5000, 4000))
    assert passes.wait_ms() == 40
    clock.now = 60
    assert passes.wait_ms() == 0
    assert run_due(passes) == ["near"]
    assert passes.wait_ms() == LONGEST_WAIT_MS
