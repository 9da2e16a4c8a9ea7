"""Lets DeleteRecords requests of a cluster wait until the followers have deleted the records, too.

A wait ends when the followers' fetches have moved the low watermarks, when this broker ceases to be the leader, or at its
deadline. Used only in the coordinator's event loop, which is woken by the slots that it waits for [R 6].
"""

import asyncio
import time

import odradek._ext.partition.slots as slots
from odradek.api.records.delete_records import Deleted

MARGIN_S = 1.0


class DelayedDeletions:
    """See the module."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Event, Deleted] = {}

    async def wait(self, deleted: Deleted, deadline: float) -> None:
        """Wait until the low watermarks of all partitions have reached the requested offsets, at most `deleted.timeout_s`.

        :param deadline: when the client's worker gives up, in monotonic time; the wait ends `MARGIN_S` before.
        """
        timeout_s = min(deleted.timeout_s, max(0.0, deadline - time.monotonic() - MARGIN_S))
        finished = asyncio.Event()
        self._waiting[finished] = deleted
        try:
            for slot in deleted.slots:
                self._look_at(finished, deleted, slot)
            if not finished.is_set():
                await asyncio.wait_for(finished.wait(), timeout_s)
        except TimeoutError:
            pass
        finally:
            del self._waiting[finished]

    def look(self, moved: frozenset[int]) -> None:
        """The slots in `moved` have changed."""
        for finished, deleted in list(self._waiting.items()):
            for slot in deleted.slots & moved:
                self._look_at(finished, deleted, slot)

    def look_at_all(self) -> None:
        """Other brokers may have died or the roles of partitions may have changed."""
        for finished, deleted in list(self._waiting.items()):
            for slot in list(deleted.slots):
                self._look_at(finished, deleted, slot)

    def _look_at(self, finished: asyncio.Event, deleted: Deleted, slot: int) -> None:
        if slot in deleted.slots:
            slots.await_committed(slot)  # before the look: a later move wakes this process again
            deleted.look(slot)
        if not deleted.slots:
            finished.set()
