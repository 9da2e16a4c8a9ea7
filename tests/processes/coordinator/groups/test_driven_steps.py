"""The loop executes the steps of group requests: their waits end with a value, an error, or because the client disconnects."""

import asyncio

import pytest

from odradek.api.groups.group_call import result_of
from odradek.api.pipeline import executed
from odradek.processes.coordinator.groups.service import driven
from odradek.stepwise import MUST_GO_ON, Later, Steps


def test_steps_continue_with_the_value_that_they_wait_for():
    later = Later()

    def steps() -> Steps:
        yield
        yield later
        return later.value

    async def run():
        task = asyncio.create_task(driven(steps()))
        for _ in range(3):
            await asyncio.sleep(0)
        assert not task.done()
        later.set(5)
        assert await task == 5

    asyncio.run(run())


def test_an_error_of_a_later_step_reaches_the_request_and_not_the_code_that_sets_the_value():
    later = Later()

    def steps() -> Steps:
        yield later
        raise ValueError(later.value)

    async def run():
        task = asyncio.create_task(driven(steps()))
        await asyncio.sleep(0)
        later.set("wrong")
        with pytest.raises(ValueError, match="wrong"):
            await task

    asyncio.run(run())


def test_steps_of_a_client_that_disconnects_are_closed_and_a_later_value_is_ignored():
    later, ended = Later(), []

    def steps() -> Steps:
        try:
            yield later
        finally:
            ended.append(later.done)

    async def run():
        task = asyncio.create_task(driven(steps()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended == [False]
        later.set(1)
        await asyncio.sleep(0)

    asyncio.run(run())


def test_an_error_of_awaited_work_is_raised_in_the_steps():
    async def fails() -> int:
        await asyncio.sleep(0)
        raise OSError("no store")

    def steps() -> Steps:
        try:
            return (yield from result_of(fails()))
        except OSError as error:
            return str(error)

    async def run():
        assert await driven(steps()) == "no store"

    asyncio.run(run())


def test_awaited_work_is_cancelled_when_the_client_disconnects():
    ended = []

    async def work() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    async def run():
        task = asyncio.create_task(driven(result_of(work())))
        for _ in range(3):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.sleep(0)
        assert ended == ["cancelled"]

    asyncio.run(run())


def test_an_error_at_the_end_of_a_handler_whose_client_disconnects_reaches_the_request():
    later, kept = Later(), []

    def handler() -> Steps:
        try:
            yield later
        finally:
            raise ValueError("cannot note that the member is gone")

    async def run():
        kept.append(handler())  # it does not end only because nobody refers to it any more
        task = asyncio.create_task(driven(executed(kept[0])))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(ValueError, match="the member is gone"):
            await task

    asyncio.run(run())


def test_a_change_that_must_not_stay_half_done_is_completed_when_the_client_disconnects():
    done = []

    def steps() -> Steps:
        done.append(1)
        yield MUST_GO_ON
        done.append(2)
        yield
        done.append(3)

    async def run():
        task = asyncio.create_task(driven(steps()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert done == [1, 2]

    asyncio.run(run())


def test_an_error_of_work_that_was_cancelled_is_logged(caplog):
    async def work() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise OSError("no store")

    async def run():
        task = asyncio.create_task(driven(result_of(work())))
        for _ in range(3):
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        for _ in range(3):
            await asyncio.sleep(0)

    asyncio.run(run())
    assert "a request whose client has disconnected failed" in caplog.text and "no store" in caplog.text


def test_only_the_first_value_counts():
    later, continued = Later(), []
    later.then(lambda: continued.append(later.value))
    later.set(1)
    later.set(2)
    assert (later.value, continued) == (1, [1])
