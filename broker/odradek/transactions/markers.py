"""Completes the transactions whose outcome is decided: sends their markers, then appends the last record.

If a partition refuses a marker, it is sent again after a time that doubles with each attempt; each attempt looks up the
leader again. If the last record cannot be appended, the append is repeated in the same way. Runs in the loop of the
coordinator process.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence

from odradek.backoff import Backoff
from odradek.coordination.environment import Timer, Timers
from odradek.protocol.errors import ErrorCode
from odradek.topic_partition import TopicPartition
from odradek.transactions.environment import Counts, Environment, Marker, Settings
from odradek.transactions.records import value_of
from odradek.transactions.shards import NONE, ErrorCallback, Shard, Transaction
from odradek.transactions.states import COMPLETE_COMMIT, COMPLETE_OF, PREPARE_COMMIT
from odradek.transactions.transaction import complete

log = logging.getLogger("odradek.transactions")

NOT_NEEDED = frozenset((NONE, ErrorCode.UNSUPPORTED_VERSION, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT))
"""Results of a marker after which it is not sent again. A partition that does not support producers has no transaction."""
DEPOSED = frozenset((ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED))
"""The partition has a newer epoch of the producer or of its coordinator: another coordinator has probably completed the
transaction. This coordinator retries every `Settings.fenced_backoff_ms`, in case none has."""
EXPECTED = frozenset(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    )
)
"""Errors that are expected while leaders change. They are not logged as errors."""
REPORTED_ATTEMPT = 8
"""The attempt whose failure is logged as a warning: more than two seconds after the first one, with the default backoff."""
DELETED_AFTER_LOOKS = 8
"""The number of attempts in succession at which a partition did not exist, after which it counts as deleted."""


class Completion:
    """A transaction whose outcome is durable.

    :ivar then: the callback of EndTxn; None after it was called.
    :ivar sent: the places of the markers that were sent and not answered yet.
    """

    __slots__ = ("attempt", "began_ms", "missing", "sent", "shard", "then", "transaction")

    def __init__(self, shard: Shard, transaction: Transaction, then: ErrorCallback | None, now_ms: int) -> None:
        self.shard = shard
        self.transaction = transaction
        self.then = then
        self.attempt = 0
        self.began_ms = now_ms
        self.sent: tuple[TopicPartition, ...] = ()
        self.missing: dict[TopicPartition, int] = {}  # partitions that did not exist at so many looks in succession

    def answer(self) -> None:
        """Call the callback of EndTxn, unless it was called before. The outcome is durable."""
        then, self.then = self.then, None
        if then is not None:
            then(NONE)


class Completions:
    """The transactions whose outcome is decided and that are not complete."""

    def __init__(self, timers: Timers, settings: Settings, environment: Environment, counts: Counts) -> None:
        self._timers = timers
        self._settings = settings
        self._sender = environment.markers
        self._topics = environment.topics
        self._counts = counts
        self._diverge: Callable[[Shard], None] = lambda shard: None
        self._under_way: set[Completion] = set()
        self._waiting: deque[tuple[int, Completion]] = deque()
        self._timer: Timer | None = None

    def attach(self, diverge: Callable[[Shard], None]) -> None:
        """Set the callback to the owner of the shards. :param diverge: see `Shards.diverge`."""
        self._diverge = diverge

    def begin(self, shard: Shard, transaction: Transaction, then: ErrorCallback | None) -> None:
        """Send the markers of a transaction whose record of PREPARE_* is durable.

        :param then: called after the completion, or after `Settings.end_wait_ms`, whichever is first.
        """
        facts = transaction.facts
        transaction.pending = COMPLETE_OF[facts.state]
        transaction.places_left = facts.places
        completion = Completion(shard, transaction, then, self._timers.now_ms())
        self._under_way.add(completion)
        if facts.places:
            self._send(completion)
        else:
            self._append(completion)
        if completion.then is not None:
            self._answer_later(completion)

    def oldest_ms(self) -> int:
        """The time since the outcome became durable, of the oldest transaction that is not complete; 0 if there is none."""
        began = [completion.began_ms for completion in self._under_way if not completion.shard.closed]
        return self._timers.now_ms() - min(began) if began else 0

    def markers_to_retry(self) -> int:
        """The number of markers that must be sent again: their leader refused them, did not respond or is not known."""
        return sum(
            len(completion.transaction.places_left or ()) for completion in self._under_way if completion.attempt
        )

    def appends_to_retry(self) -> int:
        """The number of transactions whose last record must be appended again."""
        return sum(completion.transaction.places_left == () for completion in self._under_way if completion.attempt)

    # -- markers -----------------------------------------------------------------------------------------------------------

    def _send(self, completion: Completion) -> None:
        transaction, epoch = completion.transaction, completion.shard.coordinator_epoch
        if self._given_up(completion):
            return
        places, facts = transaction.places, transaction.facts
        completion.sent = places
        commits = facts.state is PREPARE_COMMIT
        batch = [
            Marker(
                transaction.transactional_id,
                facts.producer_id,
                facts.epoch,
                epoch,
                commits,
                facts.client_version,
                topic,
                partition,
            )
            for topic, partition in places
        ]
        self._counts.markers += len(batch)

        def written(codes: Sequence[ErrorCode]) -> None:
            self._written(completion, codes)

        self._sender.send(batch, written)

    def _written(self, completion: Completion, codes: Sequence[ErrorCode]) -> None:
        if self._given_up(completion):
            return
        left = []
        failure = NONE
        for place, code in zip(completion.sent, codes, strict=True):
            if code in NOT_NEEDED:
                continue
            if code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                completion.missing.pop(place, None)
            elif self._is_deleted(completion, place):
                log.info(
                    "the transaction of %r no longer includes %s-%d, because the partition was deleted",
                    completion.transaction.transactional_id, *place,
                )  # fmt: skip
                continue
            if code is ErrorCode.INVALID_PRODUCER_EPOCH and not self._settings.may_be_deposed:
                log.error(
                    "%s-%d has a newer producer epoch than the transaction of %r (producer id %d, epoch %d): nothing of it is"
                    " open there, and it is completed without a marker in this partition",
                    *place, completion.transaction.transactional_id, completion.transaction.facts.producer_id,
                    completion.transaction.facts.epoch,
                )  # fmt: skip
                continue
            left.append(place)
            if failure not in DEPOSED:
                failure = code
        completion.transaction.places_left = tuple(left)
        if left:
            self._counts.marker_failures += len(left)
            self._retry_markers(completion, left[0], failure)
        else:
            completion.attempt = 0
            self._append(completion)

    def _is_deleted(self, completion: Completion, place: TopicPartition) -> bool:
        """Whether a partition does not exist any more. In a cluster its metadata may be on their way to a broker that has just
        started, and a marker that is dropped too soon leaves the transaction open in this partition for ever. So it counts as
        deleted only if it did not exist at `DELETED_AFTER_LOOKS` attempts in succession, whatever happened before."""
        if self._topics.exists(*place):
            completion.missing.pop(place, None)
            return False
        looks = completion.missing[place] = completion.missing.get(place, 0) + 1
        return not self._settings.may_be_deposed or looks >= DELETED_AFTER_LOOKS

    def _retry_markers(self, completion: Completion, place: TopicPartition, failure: ErrorCode) -> None:
        wait_ms = self._backoff_ms(completion)
        if failure in DEPOSED:
            wait_ms = self._settings.fenced_backoff_ms
            level = logging.WARNING
        elif failure not in EXPECTED:
            level = logging.ERROR
        else:
            level = logging.WARNING if completion.attempt == REPORTED_ATTEMPT else logging.DEBUG
        log.log(
            level,
            "cannot write the markers of the transaction of %r to %d partition(s): %s-%d: %s; retrying in %d ms",
            completion.transaction.transactional_id, len(completion.transaction.places), *place, failure.name, wait_ms,
        )  # fmt: skip
        self._timers.call_at(self._timers.now_ms() + wait_ms, lambda: self._send(completion))

    # -- the last record ---------------------------------------------------------------------------------------------------

    def _append(self, completion: Completion) -> None:
        if self._given_up(completion):
            return
        transaction, shard = completion.transaction, completion.shard
        facts = complete(transaction.facts, self._timers.wall_ms())
        record = transaction.key, value_of(facts, self._settings.transaction_version)

        def appended(error: ErrorCode) -> None:
            if self._given_up(completion):
                return
            if error is NONE:
                self._under_way.discard(completion)
                transaction.facts = facts
                transaction.places_left = None
                self._count(completion)
                transaction.settle()
                completion.answer()
            elif error is ErrorCode.NOT_COORDINATOR:
                completion.answer()
                self._diverge(shard)
            else:  # the log may contain the record; a second copy has no effect
                wait_ms = self._backoff_ms(completion)
                log.log(
                    logging.WARNING if completion.attempt == REPORTED_ATTEMPT else logging.DEBUG,
                    "cannot append the completion of the transaction of %r: %s; retrying in %d ms",
                    transaction.transactional_id, error.name, wait_ms,
                )  # fmt: skip
                self._timers.call_at(self._timers.now_ms() + wait_ms, lambda: self._append(completion))

        shard.log.append([record], appended)

    def _count(self, completion: Completion) -> None:
        counts = self._counts
        if completion.transaction.facts.state is COMPLETE_COMMIT:
            counts.committed += 1
        else:
            counts.aborted += 1
        counts.completion_ms += self._timers.now_ms() - completion.began_ms

    def _backoff_ms(self, completion: Completion) -> int:
        completion.attempt += 1
        settings = self._settings
        return int(Backoff(settings.marker_backoff_ms, settings.marker_backoff_max_ms).after(completion.attempt))

    def _given_up(self, completion: Completion) -> bool:
        """Whether the shard is loaded again, or led by another broker: the coordinator that loads it completes the
        transaction."""
        if not completion.shard.closed:
            return False
        self._under_way.discard(completion)
        completion.answer()
        return True

    # -- waiting responses ---------------------------------------------------------------------------------------------------

    def _answer_later(self, completion: Completion) -> None:
        """Call the callback of EndTxn after `end_wait_ms`, unless the transaction completes earlier."""
        wait_ms = self._settings.end_wait_ms
        if wait_ms <= 0:
            completion.answer()
            return
        self._waiting.append((self._timers.now_ms() + wait_ms, completion))
        if self._timer is None:
            self._timer = self._timers.call_at(self._waiting[0][0], self._answer_due)

    def _answer_due(self) -> None:
        self._timer = None
        now_ms = self._timers.now_ms()
        waiting = self._waiting
        while waiting and (waiting[0][0] <= now_ms or waiting[0][1].then is None):
            waiting.popleft()[1].answer()
        if waiting:
            self._timer = self._timers.call_at(waiting[0][0], self._answer_due)
