"""A stock of allocated producer ids in the coordinator's event loop, so that requests need not wait for the metadata store.

Used only in the event loop; the store thread allocates the ids. If the coordinator process dies, the ids of its stock are
never used.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable

log = logging.getLogger("odradek.transactions")

FEW = 50
"""If the stock has fewer ids, more are fetched."""
FETCHED = 100
"""How many ids are fetched at once."""

Waiting = Callable[[Exception | None], None]


class ProducerIdStock:
    """See the module.

    :param fetch: (number): allocates that many ids in the store thread. Raises StoreError, ProducerIdsExhausted.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, fetch: Callable[[int], Awaitable[list[int]]]) -> None:
        self._loop = loop
        self._fetch = fetch
        self._ids: deque[int] = deque()
        self._fetching: asyncio.Task[None] | None = None
        self._waiting: list[Waiting] = []

    def next(self) -> int | None:
        """Take an id that no producer has had; None if the stock is empty: call `when_ready`."""
        producer_id = self._ids.popleft() if self._ids else None
        if len(self._ids) < FEW:
            self._begin()
        return producer_id

    def when_ready(self, then: Waiting) -> None:
        """Call `then` once: with None as soon as the stock has an id, possibly at once; or with the error of the store."""
        if self._ids:
            then(None)
            return
        self._waiting.append(then)
        self._begin()

    def close(self) -> None:
        """Stop fetching."""
        if self._fetching is not None:
            self._fetching.cancel()

    def _begin(self) -> None:
        if self._fetching is None or self._fetching.done():
            self._fetching = self._loop.create_task(self._refill())

    async def _refill(self) -> None:
        error: Exception | None = None
        try:
            self._ids.extend(await self._fetch(FETCHED))
        except Exception as failure:  # passed on to the waiting requests
            log.warning("cannot allocate producer ids: %s; the next request tries again", failure)
            error = failure
        waiting, self._waiting = self._waiting, []
        for then in waiting:
            try:
                then(error)
            except Exception:
                log.exception("a request that waited for a producer id failed")
