"""The stock of producer ids of the coordinator's loop."""

import asyncio

from odradek.processes.coordinator.producer_id_stock import FETCHED, ProducerIdStock


class Store:
    """Allocates ids in ascending order; the test decides when."""

    def __init__(self) -> None:
        self.next_id = 0
        self.calls = 0
        self.error: Exception | None = None

    async def fetch(self, number: int) -> list[int]:
        self.calls += 1
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        first, self.next_id = self.next_id, self.next_id + number
        return list(range(first, self.next_id))


def test_a_request_without_an_id_in_hand_waits_for_the_store():
    async def run() -> None:
        store = Store()
        stock = ProducerIdStock(asyncio.get_running_loop(), store.fetch)
        outcomes: asyncio.Queue[Exception | None] = asyncio.Queue()
        assert stock.next() is None
        stock.when_ready(outcomes.put_nowait)
        assert await outcomes.get() is None
        assert stock.next() == 0
        stock.when_ready(outcomes.put_nowait)
        assert outcomes.get_nowait() is None, "with an id in hand nobody waits"

    asyncio.run(run())


def test_no_id_is_given_twice_and_the_stock_is_refilled_before_it_is_empty():
    async def run() -> None:
        store = Store()
        stock = ProducerIdStock(asyncio.get_running_loop(), store.fetch)
        ready: asyncio.Queue[Exception | None] = asyncio.Queue()
        stock.when_ready(ready.put_nowait)
        await ready.get()
        seen = []
        while len(seen) < 5 * FETCHED:
            producer_id = stock.next()
            assert producer_id is not None, "the stock ran empty although the store answers"
            seen.append(producer_id)
            await asyncio.sleep(0)
        assert seen == list(range(5 * FETCHED))

    asyncio.run(run())


def test_an_error_of_the_store_reaches_those_who_wait_and_the_next_request_tries_again():
    async def run() -> None:
        store = Store()
        store.error = OSError("the disk is away")
        stock = ProducerIdStock(asyncio.get_running_loop(), store.fetch)
        outcomes: asyncio.Queue[Exception | None] = asyncio.Queue()
        stock.when_ready(outcomes.put_nowait)
        assert await outcomes.get() is store.error
        store.error = None
        stock.when_ready(outcomes.put_nowait)
        assert await outcomes.get() is None
        assert stock.next() == 0

    asyncio.run(run())
