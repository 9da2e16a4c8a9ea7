"""Answers the question that precedes the first append of a transaction to a partition: does the partition belong to the
transaction (KIP-890)?

Workers ask before they append a batch, and groups before they append offsets to `__consumer_offsets`. For Produce version
12 and later, and for TxnOffsetCommit version 5, the partition is added to the transaction. For earlier versions, this class
only verifies that the client has added it. If another broker coordinates the transactional id, this broker asks that one.
Used only in the coordinator's event loop.

If the answer is positive, the mark of the producer is set in the slot. If this broker is the coordinator, no marker can be
written between the check and the mark, because the same loop writes markers. While another broker is asked, a marker may be
written; then the answer is not valid any more. If another process holds the lock of the slot, the question is asked again,
because the transaction may have ended in the meantime.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from odradek.coordination.environment import EndMarker, Timers
from odradek.protocol.errors import ErrorCode
from odradek.topic_partition import TopicPartition
from odradek.transactions.coordinator import TransactionCoordinator
from odradek.transactions.environment import NO_OWNER, Mark, Marks

if TYPE_CHECKING:
    from odradek.processes.coordinator.transactions.other_brokers import RemoteTransactions

Leadership = tuple[int, int]
NONE = ErrorCode.NONE
NO_ROOM = ErrorCode.NOT_ENOUGH_REPLICAS
ADDED_BY_BROKERS = 2
BUSY_RETRY_MS = 1
"""The time in ms after which a question is asked again because another process held the lock of a slot. Appends take
microseconds."""
Codes = Mapping[TopicPartition, ErrorCode]


class Question(NamedTuple):
    """Do these partitions belong to this transaction?

    :param verify_only: do not add them. :param owner: see `Mark`.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    verify_only: bool
    places: tuple[TopicPartition, ...]
    owner: int = NO_OWNER


class RemoteCoordinator(NamedTuple):
    """The coordinator of a transactional id. :param epoch: the leader epoch of its partition of `__transaction_state`."""

    broker_id: int
    epoch: int


class _Remote:
    """A question that is sent to another broker.

    :ivar ended: places to which a marker that ends the transaction was written after the question was sent.
    :ivar leaderships: what identified the leadership of each place when the question was sent, see `Marks.leadership`. If it
        has changed, another leader may have written a marker.
    :ivar coordinator_epoch: the leader epoch of the coordinator that was asked.
    """

    def __init__(self, question: Question, then: Callable[[Codes], None], until_ms: int) -> None:
        self.question = question
        self.then = then
        self.until_ms = until_ms
        self.ended: set[TopicPartition] = set()
        self.leaderships: dict[TopicPartition, Leadership | None] = {}
        self.coordinator_epoch = -1


class PartitionVerification:
    """See the module.

    :param coordinator: returns the coordinator of this broker's ids. :param coordinator_of: returns the broker that
        coordinates a transactional id; None: it is not known. :param others: sends questions to other brokers; None for a
        single broker.
    :param backoff_ms: returns the time between two questions to another broker while the producer's previous transaction is not
        complete. :param patience_ms: returns how long a question waits in total for that, or for the lock of a slot.
    """

    def __init__(
        self,
        timers: Timers,
        coordinator: Callable[[], TransactionCoordinator],
        marks: Marks,
        coordinator_of: Callable[[str], RemoteCoordinator | None],
        others: RemoteTransactions | None,
        backoff_ms: Callable[[], int],
        patience_ms: Callable[[], int],
    ) -> None:
        self._timers = timers
        self._coordinator = coordinator
        self._marks = marks
        self._coordinator_of = coordinator_of
        self._others = others
        self._backoff_ms = backoff_ms
        self._patience_ms = patience_ms
        self._open: dict[tuple[str, int, int], list[_Remote]] = {}

    def ask(self, question: Question, then: Callable[[Codes], None]) -> None:
        """Answer a question. `then` is called once, with an error code for each place. NONE: the place belongs to the
        transaction, and the mark is set."""
        coordinator = self._coordinator()
        if self._others is None or coordinator.error_of(question.transactional_id) is not ErrorCode.NOT_COORDINATOR:
            self._ask_here(question, then, self._timers.now_ms() + self._patience_ms())
            return
        self._ask_there(_Remote(question, then, self._timers.now_ms() + self._patience_ms()))

    def _ask_here(self, question: Question, then: Callable[[Codes], None], until_ms: int) -> None:
        coordinator = self._coordinator()
        transactional_id, producer_id, epoch, verify_only, places, owner = question

        def marked(codes: Mapping[TopicPartition, ErrorCode | None]) -> None:
            if None in codes.values() and self._timers.now_ms() < until_ms:
                again = self._timers.now_ms() + BUSY_RETRY_MS
                self._timers.call_at(again, lambda: self._ask_here(question, then, until_ms))
            else:
                then({place: NO_ROOM if code is None else code for place, code in codes.items()})

        if verify_only:
            coordinator.verify(transactional_id, producer_id, epoch, places, marked, owner)
            return

        def added(code: ErrorCode, allowed: Sequence[ErrorCode | None]) -> None:
            if code is not NONE:
                then(dict.fromkeys(places, code))
            else:
                marked(dict(zip(places, allowed, strict=True)))

        left_ms = max(0, until_ms - self._timers.now_ms())
        coordinator.add_partitions(
            transactional_id, producer_id, epoch, places, ADDED_BY_BROKERS, added, left_ms, owner
        )

    # -- other brokers --------------------------------------------------------------------------------------------

    def _ask_there(self, remote: _Remote) -> None:
        question = remote.question
        asked = self._coordinator_of(question.transactional_id)
        if asked is None or self._others is None:
            remote.then(dict.fromkeys(question.places, ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        from odradek.processes.coordinator.transactions.other_brokers import Asked  # a single broker does not need it

        remote.coordinator_epoch = asked.epoch
        remote.leaderships = {place: self._marks.leadership(*place) for place in question.places}
        for place in question.places:
            self._open.setdefault((*place, question.producer_id), []).append(remote)
        transactional_id, producer_id, epoch, verify_only, places, _ = question
        self._others.put(
            asked.broker_id,
            Asked(
                transactional_id, producer_id, epoch, verify_only, places, lambda codes: self._answered(remote, codes)
            ),
        )

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
        marked = {place: self._marked(remote, place, code) for place, code in codes.items()}
        if None in marked.values() and self._timers.now_ms() < remote.until_ms:
            self._timers.call_at(self._timers.now_ms() + BUSY_RETRY_MS, lambda: self._ask_there(remote))
            return
        remote.then({place: NO_ROOM if code is None else code for place, code in marked.items()})

    def _marked(self, remote: _Remote, place: TopicPartition, code: ErrorCode) -> ErrorCode | None:
        if code is not NONE:
            return code
        if place in remote.ended:
            return ErrorCode.INVALID_TXN_STATE
        if self._marks.leadership(*place) != remote.leaderships[place]:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        question = remote.question
        version = 0 if question.verify_only else ADDED_BY_BROKERS
        mark = Mark(
            question.transactional_id,
            question.producer_id,
            question.producer_epoch,
            remote.coordinator_epoch,
            version,
            question.owner,
        )
        return self._marks.allow([place], mark)[0]

    def note_marker(self, topic: str, partition: int, marker: EndMarker) -> None:
        """Called before a marker is written: answers about the transaction that it ends are not valid any more. With
        transaction.version 2, a marker has the epoch of the producer's next transaction."""
        if not self._open:
            return
        for remote in self._open.get((topic, partition, marker.producer_id), ()):
            epoch = remote.question.producer_epoch
            if marker.producer_epoch > epoch or (marker.producer_epoch == epoch and marker.transaction_version < 2):
                remote.ended.add((topic, partition))
