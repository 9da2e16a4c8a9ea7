"""Aborts, after a start, the orphaned transactions of this broker: those that are open in a log and belong to no open
transaction of a transactional id.

Such a transaction is left if `__transaction_state` lost its end, for example after a loss of power, or if the directory was
adopted without it. No coordinator would ever end it, and consumers that read committed records would wait for ever. A broker in
a cluster does not do this: another broker may coordinate the transactional id. Used in the coordinator's event loop; a thread
reads the slots, whose locks may be taken for a while.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import NamedTuple

import odradek._ext.partition.slots as slots
from odradek.api.transactions.transaction_call import Markers
from odradek.backoff import Backoff
from odradek.coordination.environment import EndMarker
from odradek.protocol.errors import ErrorCode
from odradek.topic_partition import TopicPartition
from odradek.transactions.environment import Owner

log = logging.getLogger("odradek.transactions")

FINAL = frozenset(
    (
        ErrorCode.NONE,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
)
"""Results after which a marker is not sent again: the transaction is ended, or its producer has a newer epoch."""
RETRIES_S = Backoff(first=1.0, longest=60.0)


class Orphan(NamedTuple):
    """An open transaction of a partition, which is orphaned if `orphans` returns it."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    first_offset: int


class Scan(NamedTuple):
    """:ivar open: the open transactions. :ivar unread: the number of partitions that could not be read."""

    open: list[Orphan]
    unread: int


def scan() -> Scan:
    """Read the open transactions of all partitions that this broker leads. May wait for the locks of slots."""
    found: list[Orphan] = []
    unread = len(slots.not_online())
    for topic, partition, slot in slots.in_use():
        if slots.leadership(slot) is None:
            continue
        try:
            open_here = slots.transactions_of(slot)
        except (slots.SlotChanged, slots.SlotBusy):
            unread += 1
            continue
        found += [
            Orphan(
                topic,
                partition,
                transaction["producer_id"],
                transaction["epoch"],
                max(transaction["coordinator_epoch"], 0),
                transaction["first_offset"],
            )
            for transaction in open_here
        ]
    return Scan(found, unread)


def orphans(transactions: list[Orphan], owners: dict[int, Owner]) -> list[Orphan]:
    """The orphaned transactions among these.

    :param owners: by producer id, the transactional ids whose transaction is ongoing or still lacks markers.
    """

    def places_of(producer_id: int) -> tuple[TopicPartition, ...]:
        owner = owners.get(producer_id)
        return () if owner is None else owner.places

    return [one for one in transactions if (one.topic, one.partition) not in places_of(one.producer_id)]


class OrphanedTransactions:
    """See the module.

    :param owners: returns the argument of `orphans`; None while not all transactional ids are loaded.
    :param reader: its thread reads the slots. :param sleep: waits for a number of seconds.
    """

    def __init__(
        self,
        owners: Callable[[], dict[int, Owner] | None],
        markers: Markers,
        reader: Executor,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._owners = owners
        self._markers = markers
        self._reader = reader
        self._sleep = sleep

    async def end_all(self) -> None:
        """Abort the orphaned transactions of all partitions. Returns when every partition was read and has none.

        Each attempt reads the partitions again, and a marker names the first offset of its transaction: a transaction that the
        same producer begins meanwhile is not aborted.
        """
        attempts = 0
        while not await self._attempt():
            attempts += 1
            await self._sleep(RETRIES_S.after(attempts))

    async def _attempt(self) -> bool:
        """Whether nothing is left to do."""
        found, unread = await asyncio.get_running_loop().run_in_executor(self._reader, scan)
        # The transactional ids are read after the logs: the coordinator adds a partition to a transaction before its first
        # record is appended, so a transaction that begins now is not taken for an orphaned one.
        owners = self._owners()
        if owners is None:
            return False
        codes = [await code for code in [self._end(orphan) for orphan in orphans(found, owners)]]
        return unread == 0 and FINAL.issuperset(codes)

    def _end(self, orphan: Orphan) -> asyncio.Future[ErrorCode]:
        log.warning(
            "%s-%d: aborting the transaction of producer id %d that is open since offset %d: it belongs to no open "
            "transaction of a transactional id",
            orphan.topic, orphan.partition, orphan.producer_id, orphan.first_offset,
        )  # fmt: skip
        marker = EndMarker(
            orphan.producer_id, orphan.producer_epoch, orphan.coordinator_epoch, False, 0, orphan.first_offset
        )
        result: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()

        def written(code: ErrorCode) -> None:
            if code not in FINAL:
                log.info(
                    "%s-%d: cannot write the abort marker of the transaction of producer id %d: %s; it is tried again",
                    orphan.topic, orphan.partition, orphan.producer_id, code.name,
                )  # fmt: skip
            if not result.done():  # the process stops
                result.set_result(code)

        self._markers.put(orphan.topic, orphan.partition, marker, written)
        return result
