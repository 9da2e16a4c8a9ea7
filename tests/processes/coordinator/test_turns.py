"""Tasks for one key run one after another, tasks for different keys at the same time."""

import asyncio

from odradek.processes.coordinator.turns import Turns


async def work(turns, key, name, done, go_on):
    async with turns.of(key):
        done.append(f"{name} begins")
        await go_on.wait()
        done.append(f"{name} ends")


def test_tasks_of_one_key_take_turns_in_order_and_those_of_others_do_not_wait():
    async def main():
        turns, done, go_on = Turns(), [], asyncio.Event()
        tasks = [asyncio.create_task(work(turns, key, key + str(n), done, go_on)) for n in (1, 2) for key in "ab"]
        while len(done) < 2:
            await asyncio.sleep(0)
        assert done == ["a1 begins", "b1 begins"]
        go_on.set()
        await asyncio.gather(*tasks)
        for key in "ab":
            mine = [entry for entry in done if entry.startswith(key)]
            assert mine == [f"{key}1 begins", f"{key}1 ends", f"{key}2 begins", f"{key}2 ends"]
        assert len(turns) == 0

    asyncio.run(main())


def test_after_a_cancelled_task_the_next_one_gets_the_lock():
    async def main():
        turns, done, go_on = Turns(), [], asyncio.Event()
        first, second, third = (asyncio.create_task(work(turns, "a", name, done, go_on)) for name in "123")
        while not done:
            await asyncio.sleep(0)
        second.cancel()
        first.cancel()
        await asyncio.wait([first, second])
        go_on.set()
        await third
        assert done == ["1 begins", "3 begins", "3 ends"]
        assert len(turns) == 0

    asyncio.run(main())
