"""Long tasks of a loop in slices: they take turns, the loop runs in between, and a task that fails is dropped alone."""

import asyncio

from odradek.processes import slices as module
from odradek.processes.slices import LoopSlices
from odradek.stepwise import Pace, Stepwise


def steps_of(name, count, order):
    left = iter(range(count))

    def step():
        order.append(name)
        return next(left) < count - 1

    return step


def test_steps_take_turns_and_the_loop_runs_in_between(monkeypatch):
    monkeypatch.setattr(module, "TURN_S", 0)  # one step a turn
    order, settled = [], []

    async def run():
        slices = LoopSlices(asyncio.get_running_loop(), lambda: settled.append(1))
        slices(steps_of("a", 3, order))
        slices(steps_of("b", 1, order))
        while len(order) < 4:
            order_before = len(order)
            await asyncio.sleep(0)
            assert len(order) - order_before <= 1

    asyncio.run(run())
    assert order == ["a", "b", "a", "a"]
    assert len(settled) == 4


def test_a_step_that_fails_is_dropped_alone(caplog):
    order = []

    def fails():
        raise ValueError("this one")

    async def run():
        slices = LoopSlices(asyncio.get_running_loop())
        slices(fails)
        slices(steps_of("a", 2, order))
        while len(order) < 2:
            await asyncio.sleep(0)

    asyncio.run(run())
    assert "ValueError: this one" in caplog.text


def test_a_generator_is_executed_to_its_end_and_its_result_kept():
    def work():
        yield
        yield
        return "done"

    job = Stepwise(work())
    assert [job.step(), job.step(), job.result] == [True, True, None]
    assert (job.step(), job.result) == (False, "done")
    assert Stepwise(work()).finish() == "done"


def test_a_generator_that_is_cancelled_is_closed():
    closed = []

    def work():
        try:
            while True:
                yield
        finally:
            closed.append(True)

    job = Stepwise(work(), lambda: cancelled)
    cancelled = False
    assert job.step()
    cancelled = True
    assert (job.step(), job.result, closed) == (False, None, [True])


def test_a_pace_says_when_it_is_enough():
    pace = Pace(10)
    assert [pace.over(4), pace.over(5), pace.over(), pace.over(), pace.over(20)] == [False, False, True, False, True]
