"""Aborts the orphaned transactions in the logs of this broker, once after each start of the coordinator process.

A transaction is orphaned if it is open in a partition, but no transactional id has an open transaction that contains this
partition. This happens if a loss of power removed the newest records of `__transaction_state`, or a marker; or if a
directory was adopted without `__transaction_state`. No coordinator would end the transaction, and consumers with isolation
level read_committed would wait for its end for ever. A broker in a cluster does not abort such transactions, because
another broker may coordinate their transactional ids. Used in the coordinator's event loop, in steps.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import NamedTuple

import odradek._ext.partition.slots as slots
from odradek.api.transaction_call import Markers
from odradek.coordination.environment import EndMarker
from odradek.protocol.errors import ErrorCode
from odradek.transactions.coordinator import TransactionCoordinator
from odradek.transactions.environment import Owner, Place

log = logging.getLogger("odradek.transactions")

SLOTS_IN_A_STEP = 100
FINAL = frozenset(
    (
        ErrorCode.NONE,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
)
"""Results after which a marker is not written again: the transaction has ended, the partition has a newer epoch of the producer
or of its coordinator, or the partition no longer exists."""
RETRY_S = 1.0


class Orphan(NamedTuple):
    """An open transaction of a partition, which is orphaned if `orphans` returns it."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    first_offset: int


def open_transactions() -> Iterator[list[Orphan]]:
    """The open transactions of all partitions that this broker leads, in steps."""
    found: list[Orphan] = []
    for number, (topic, partition, slot) in enumerate(slots.in_use()):
        if number % SLOTS_IN_A_STEP == SLOTS_IN_A_STEP - 1:
            yield found
            found = []
        if slots.leadership(slot) is None:
            continue
        for transaction in slots.transactions_of(slot):
            found.append(
                Orphan(
                    topic,
                    partition,
                    transaction["producer_id"],
                    transaction["epoch"],
                    max(transaction["coordinator_epoch"], 0),
                    transaction["first_offset"],
                )
            )
    yield found


def orphans(transactions: list[Orphan], owners: dict[int, Owner]) -> list[Orphan]:
    """The orphaned transactions among these.

    :param owners: by producer id, the transactional ids whose transaction is ongoing or still lacks markers.
    """

    def places_of(producer_id: int) -> tuple[Place, ...]:
        owner = owners.get(producer_id)
        return () if owner is None else owner.places

    return [one for one in transactions if (one.topic, one.partition) not in places_of(one.producer_id)]


class OrphanedTransactions:
    """See the module.

    :param call_later: (seconds, function): calls a function later. :param slices: calls a function in later turns of the loop
        until it returns False.
    """

    def __init__(
        self,
        coordinator: TransactionCoordinator,
        markers: Markers,
        slices: Callable[[Callable[[], bool]], None],
        call_later: Callable[[float, Callable[[], None]], object],
    ) -> None:
        self._coordinator = coordinator
        self._markers = markers
        self._slices = slices
        self._call_later = call_later
        self._steps = open_transactions()
        self._found: list[Orphan] = []

    def begin(self) -> None:
        """Look at all partitions, then abort the orphaned transactions. All transactional ids must be loaded."""
        self._slices(self._step)

    def _step(self) -> bool:
        piece = next(self._steps, None)
        if piece is not None:
            self._found += piece
            return True
        if self._found:
            # The transactional ids are read after the logs: the coordinator adds a partition to a transaction before its first
            # record is appended, so a transaction that begins now is not taken for an orphaned one.
            for orphan in orphans(self._found, self._coordinator.open_transactions()):
                log.warning(
                    "%s-%d: aborting the transaction of producer id %d that is open since offset %d: it belongs to no open "
                    "transaction of a transactional id",
                    orphan.topic, orphan.partition, orphan.producer_id, orphan.first_offset,
                )  # fmt: skip
                self._end(orphan)
        return False

    def _end(self, orphan: Orphan) -> None:
        marker = EndMarker(orphan.producer_id, orphan.producer_epoch, orphan.coordinator_epoch, False, 0)

        def written(code: ErrorCode) -> None:
            if code not in FINAL:
                log.info(
                    "%s-%d: cannot write the abort marker of the transaction of producer id %d: %s; retrying in %g s",
                    orphan.topic, orphan.partition, orphan.producer_id, code.name, RETRY_S,
                )  # fmt: skip
                self._call_later(RETRY_S, lambda: self._end(orphan))

        self._markers.put(orphan.topic, orphan.partition, marker, written)
