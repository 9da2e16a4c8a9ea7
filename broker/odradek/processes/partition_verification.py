"""Answers the question that comes before the first append of a transaction to a partition: does the partition belong to it
(KIP-890)?

Workers ask for the partitions that this broker leads, and groups for the partitions of `__consumer_offsets`. Producers of
Produce version 12 and later, and of TxnOffsetCommit version 5, let the broker add the partition; for earlier versions it is
only verified. If another broker coordinates the transactional id, that broker is asked. Used only in the coordinator's event
loop.

After a positive answer the mark is set in the slot. Nothing can come between: this loop writes the markers that end
transactions, too. Only while another broker is asked a marker may be written; then the answer is out of date.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from odradek.coordination.environment import EndMarker, Timers
from odradek.processes.other_brokers import Asked, RemoteTransactions
from odradek.protocol.errors import ErrorCode
from odradek.transactions.coordinator import TransactionCoordinator
from odradek.transactions.environment import Marks, Place

NONE = ErrorCode.NONE
ADDED_BY_BROKERS = 2
Codes = Mapping[Place, ErrorCode]


class Question(NamedTuple):
    """Whether partitions belong to a transaction. :param verify_only: do not add them."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    verify_only: bool
    places: tuple[Place, ...]


class _Remote:
    """A question that another broker is asked. :ivar ended: places with a marker that was written since."""

    def __init__(self, question: Question, then: Callable[[Codes], None], until_ms: int) -> None:
        self.question = question
        self.then = then
        self.until_ms = until_ms
        self.ended: set[Place] = set()


class PartitionVerification:
    """See the module.

    :param coordinator: returns the coordinator of this broker's ids. :param leader_of: returns the broker that coordinates a
        transactional id; None: it is not known. :param others: None for a broker alone.
    :param backoff_ms, patience_ms: the time between two attempts while the transaction before is not completed, and their
        total.
    """

    def __init__(
        self,
        timers: Timers,
        coordinator: Callable[[], TransactionCoordinator],
        marks: Marks,
        leader_of: Callable[[str], int | None],
        others: RemoteTransactions | None,
        backoff_ms: Callable[[], int],
        patience_ms: Callable[[], int],
    ) -> None:
        self._timers = timers
        self._coordinator = coordinator
        self._marks = marks
        self._leader_of = leader_of
        self._others = others
        self._backoff_ms = backoff_ms
        self._patience_ms = patience_ms
        self._open: dict[tuple[str, int, int], list[_Remote]] = {}

    def ask(self, question: Question, then: Callable[[Codes], None]) -> None:
        """Answer a question. `then` is called once, with a code for each place; NONE: it belongs to the transaction, and the
        mark is set."""
        coordinator = self._coordinator()
        if self._others is None or coordinator.error_of(question.transactional_id) is not ErrorCode.NOT_COORDINATOR:
            self._ask_here(coordinator, question, then)
            return
        self._ask_there(_Remote(question, then, self._timers.now_ms() + self._patience_ms()))

    def _ask_here(self, coordinator: TransactionCoordinator, question: Question, then: Callable[[Codes], None]) -> None:
        transactional_id, producer_id, epoch, verify_only, places = question
        if verify_only:
            coordinator.verify(transactional_id, producer_id, epoch, places, then)
            return

        def added(code: ErrorCode, allowed: object) -> None:
            if code is not NONE:
                then(dict.fromkeys(places, code))
            else:
                then(dict(zip(places, allowed, strict=True)))  # type: ignore[call-overload]

        coordinator.add_partitions(
            transactional_id, producer_id, epoch, places, ADDED_BY_BROKERS, added, self._patience_ms()
        )

    # -- other brokers --------------------------------------------------------------------------------------------

    def _ask_there(self, remote: _Remote) -> None:
        question = remote.question
        leader_id = self._leader_of(question.transactional_id)
        if leader_id is None or self._others is None:
            remote.then(dict.fromkeys(question.places, ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        for place in question.places:
            self._open.setdefault((*place, question.producer_id), []).append(remote)
        self._others.put(leader_id, Asked(*question, lambda codes: self._answered(remote, codes)))

    def _answered(self, remote: _Remote, codes: Codes) -> None:
        question = remote.question
        for place in question.places:
            key = (*place, question.producer_id)
            self._open[key].remove(remote)
            if not self._open[key]:
                del self._open[key]
        concurrent = ErrorCode.CONCURRENT_TRANSACTIONS in codes.values()
        if concurrent and self._timers.now_ms() < remote.until_ms and not question.verify_only:
            self._timers.call_at(self._timers.now_ms() + self._backoff_ms(), lambda: self._ask_there(remote))
            return
        remote.then({place: self._marked(remote, place, code) for place, code in codes.items()})

    def _marked(self, remote: _Remote, place: Place, code: ErrorCode) -> ErrorCode:
        if code is not NONE:
            return code
        if place in remote.ended:
            return ErrorCode.INVALID_TXN_STATE
        question = remote.question
        version = 0 if question.verify_only else ADDED_BY_BROKERS
        return self._marks.allow(
            *place, question.transactional_id, question.producer_id, question.producer_epoch, version
        )

    def note_marker(self, topic: str, partition: int, marker: EndMarker) -> None:
        """A marker is written: an answer about a transaction that it ends is out of date. With transaction.version 2 a marker
        has the epoch of the next transaction."""
        for remote in self._open.get((topic, partition, marker.producer_id), ()):
            epoch = remote.question.producer_epoch
            if marker.producer_epoch > epoch or (marker.producer_epoch == epoch and marker.transaction_version < 2):
                remote.ended.add((topic, partition))
