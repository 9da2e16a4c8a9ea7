"""Holds the transactional ids of the partitions of `__transaction_state` that this broker leads; loads and writes them.

Each id belongs to one partition; the leader of that partition coordinates it. The state in memory changes only when an
append is acknowledged, so it always equals a replay of the acknowledged log. After an append whose outcome is not known,
the partition is loaded again. Runs in the loop of the coordinator process, and therefore needs no lock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator

from odradek._ext.api.offset_commits import partition_for
from odradek._ext.records.transaction_values import apply_records
from odradek.coordination.environment import LogBatch, Record, Timer, Timers
from odradek.protocol import ProtocolError
from odradek.protocol.errors import ErrorCode
from odradek.quotas.new_names import NewNames
from odradek.topic_partition import TopicPartition
from odradek.transactions.environment import NOT_WRITTEN, Environment, Settings, TransactionLog
from odradek.transactions.records import (
    busy_ids,
    facts_of,
    key_of,
    pack,
    producer_of,
    state_of,
    times_of,
    value_of,
    why_unreadable,
)
from odradek.transactions.states import COMPLETE_OF, DEAD, EMPTY, IDLE, ONGOING, State
from odradek.transactions.transaction import NO_EPOCH, Facts, fresh

log = logging.getLogger("odradek.transactions")

NONE = ErrorCode.NONE
RECORDS_A_STEP = 1000
"""The largest number of records that one step of a load applies."""
UNDECIDED = frozenset((EMPTY, ONGOING))
RESERVED_BYTES = 128
"""What a batch has besides key and value, and what the records of the decision and of the completion add to the value, so that
also a Kafka broker can write them, for which `message.max.bytes` is a limit."""
ErrorCallback = Callable[[ErrorCode], None]

ERROR_OF_APPEND = {
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_COMMIT_OFFSET_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
"""The error that clients receive if an append fails with this error. Other errors are passed on unchanged."""
NOBODY = key_of("")
"""The key of an id that no client may use."""


class Transaction:
    """A transactional id that has a transaction, or was used recently.

    :ivar key: the key of its records.
    :ivar pending: the state to which an append or a completion in progress leads; meanwhile, all verbs except `verify`
        result in CONCURRENT_TRANSACTIONS. None: nothing is in progress.
    :ivar places_left: the partitions whose markers are not written, while the state is PREPARE_*; otherwise None.
    :ivar parked: verbs that wait until nothing is pending.
    :ivar used: whether a verb looked the id up since the last `Shard.put_idle_away`.
    """

    __slots__ = ("facts", "key", "parked", "pending", "places_left", "transactional_id", "used")

    def __init__(self, transactional_id: str, facts: Facts) -> None:
        self.transactional_id = transactional_id
        self.key = key_of(transactional_id)
        self.facts = facts
        self.pending: State | None = None
        self.places_left: tuple[TopicPartition, ...] | None = None
        self.parked: list[Parked] | None = None
        self.used = True

    @property
    def places(self) -> tuple[TopicPartition, ...]:
        """The partitions of the transaction, without those whose markers are written."""
        return self.facts.places if self.places_left is None else self.places_left

    def settle(self) -> None:
        """Clear `pending`, and execute the parked verbs again."""
        self.pending = None
        self.release()

    def release(self) -> None:
        """Execute the parked verbs again."""
        parked, self.parked = self.parked, None
        for verb in parked or ():
            verb.run()


class Parked:
    """A verb that is executed once: when nothing is pending for its id, or at a given time, whichever is first."""

    __slots__ = ("_action", "_timer")

    def __init__(self, timers: Timers, until_ms: int, action: Callable[[], None]) -> None:
        self._action: Callable[[], None] | None = action
        self._timer: Timer = timers.call_at(until_ms, self.run)

    def run(self) -> None:
        """Execute the verb, if it has not been executed."""
        action, self._action = self._action, None
        if action is not None:
            self._timer.cancel()
            action()


class Shard:
    """The ids of one partition of `__transaction_state`.

    :ivar coordinator_epoch: the partition's leader epoch.
    :ivar loading: the log is being read, or must be read again; requests get COORDINATOR_LOAD_IN_PROGRESS.
    :ivar closed: the partition is loaded again or was resigned; the results of appends and markers in progress are ignored.
    :ivar idle: ids without a transaction, encoded by `records.pack`; while `loading`, the values of all ids.
    :ivar active: the other ids. An id is either in `idle` or in `active`.
    :ivar expiring: ids whose tombstones are being written.
    """

    __slots__ = ("active", "closed", "coordinator_epoch", "expiring", "idle", "loading", "log", "partition")

    def __init__(self, partition: int, transaction_log: TransactionLog, coordinator_epoch: int) -> None:
        self.partition = partition
        self.log = transaction_log
        self.coordinator_epoch = coordinator_epoch
        self.loading = True
        self.closed = False
        self.idle: dict[str, bytes] = {}
        self.active: dict[str, Transaction] = {}
        self.expiring: frozenset[str] = frozenset()

    def find(self, transactional_id: str) -> Transaction | None:
        """Return an id and make it active; None if it does not exist."""
        transaction = self.active.get(transactional_id)
        if transaction is None:
            value = self.idle.get(transactional_id)
            if value is None:
                return None
            transaction = Transaction(transactional_id, facts_of(value))
            del self.idle[transactional_id]
            self.active[transactional_id] = transaction
            if transactional_id in self.expiring:
                transaction.pending = DEAD
        transaction.used = True
        return transaction

    def facts(self, transactional_id: str) -> Facts | None:
        """The facts of an id, for descriptions; None if it does not exist."""
        transaction = self.active.get(transactional_id)
        if transaction is not None:
            return transaction.facts._replace(places=transaction.places)
        value = self.idle.get(transactional_id)
        return None if value is None else facts_of(value)

    def rows(self) -> Iterator[tuple[str, int, State, int]]:
        """All ids: transactional id, producer id, state, start of the transaction. The ids may change during the iteration:
        it yields those that existed when it began."""
        idle = list(self.idle.items())  # an id that becomes active during the iteration must not be missed
        for transaction in list(self.active.values()):
            facts = transaction.facts
            yield transaction.transactional_id, facts.producer_id, facts.state, facts.start_ms
        for name, value in idle:
            yield name, producer_of(value)[0], state_of(value), times_of(value)[1]

    def put_idle_away(self, most: int) -> int:
        """Pack ids that have no transaction and were not used since the last call, at most `most`; return their number."""
        packed = 0
        for transaction in list(self.active.values()):
            if transaction.used or transaction.pending is not None or transaction.facts.state not in IDLE:
                transaction.used = False
            elif packed < most:
                del self.active[transaction.transactional_id]
                self.idle[transaction.transactional_id] = pack(transaction.facts)
                packed += 1
        return packed


class Append:
    """The append of the next facts of an id."""

    __slots__ = ("_facts", "_shard", "_shards", "_then", "_transaction")

    def __init__(
        self, shards: Shards, shard: Shard, transaction: Transaction, facts: Facts, then: ErrorCallback
    ) -> None:
        self._shards = shards
        self._shard = shard
        self._transaction = transaction
        self._facts = facts
        self._then: ErrorCallback | None = then

    def appended(self, error: ErrorCode) -> None:
        """Set the facts if they are durable. If they are certainly not in the log, drop them; otherwise load the partition
        again."""
        shard, transaction = self._shard, self._transaction
        then, self._then = self._then, None
        if shard.closed:
            self._answer(then, ErrorCode.NOT_COORDINATOR if error is NONE else error)
            return
        if error is not NONE:
            if error in NOT_WRITTEN:
                if transaction.facts.epoch == NO_EPOCH:
                    shard.active.pop(transaction.transactional_id, None)
                transaction.settle()
            else:
                self._shards.diverge(shard)
            self._answer(then, error)
            return
        transaction.facts = self._facts
        if self._facts.state in COMPLETE_OF:
            self._shards.decided(shard, transaction, then)
            return
        transaction.settle()
        self._answer(then, NONE)

    def late(self) -> None:
        """Answer with Kafka's error for a timeout of the append. The state in memory still follows the outcome of the
        append."""
        then, self._then = self._then, None
        self._answer(then, ErrorCode.COORDINATOR_NOT_AVAILABLE)

    @staticmethod
    def _answer(then: ErrorCallback | None, error: ErrorCode) -> None:
        if then is not None:
            then(ERROR_OF_APPEND.get(error, error))


class Confirmation:
    """An append that changes nothing; see `Shards.confirm`."""

    __slots__ = ("_then",)

    def __init__(self, then: ErrorCallback) -> None:
        self._then: ErrorCallback | None = then

    def appended(self, error: ErrorCode) -> None:
        """Answer, unless it was late."""
        then, self._then = self._then, None
        if then is not None:
            then(ERROR_OF_APPEND.get(error, error))

    def late(self) -> None:
        """The followers take long, or fetch from another leader."""
        self.appended(ErrorCode.REQUEST_TIMED_OUT)


class Shards:
    """The shards of all partitions that this broker leads. It owns the transactional ids, and writes their state to the log.

    :param partitions: number of partitions of `__transaction_state`.
    :param decided: called when a record of PREPARE_* is durable: sends the markers and completes the transaction. Its third
        argument is the callback of the request; None if it was called already.
    :ivar by_partition: the shards by partition of `__transaction_state`; only `Shards` changes it.
    """

    def __init__(
        self,
        timers: Timers,
        settings: Settings,
        partitions: int,
        environment: Environment,
        decided: Callable[[Shard, Transaction, ErrorCallback | None], None],
    ) -> None:
        self._timers = timers
        self._settings = settings
        self._partitions = partitions
        self._diverged = environment.diverged
        self.decided = decided
        self.by_partition: dict[int, Shard] = {}
        self.names = NewNames(settings.names, self._count, self._exists, timers.wall_ms)

    # -- leadership ------------------------------------------------------------------------------------------------------

    def begin(self, partition: int, transaction_log: TransactionLog, coordinator_epoch: int) -> None:
        """Begin to load a partition that this broker leads now; or begin to load it again."""
        before = self.by_partition.get(partition)
        self.by_partition[partition] = Shard(partition, transaction_log, coordinator_epoch)
        if before is not None:
            self._close(before)

    def replay_batches(self, partition: int, batches: Iterable[LogBatch]) -> Iterator[None]:
        """Apply batches of the log, in order; yield after each short step."""
        for batch in batches:
            for first in range(0, len(batch.records), RECORDS_A_STEP):
                self.replay(partition, batch.records[first : first + RECORDS_A_STEP])
                yield

    def replay(self, partition: int, records: Iterable[Record]) -> int:
        """Apply records of the log, in order; return the number of skipped unknown records."""
        skipped = apply_records(self.by_partition[partition].idle, list(records))
        for record in skipped:
            log.warning(
                "__transaction_state-%d: skipped a record that cannot be read: %s", partition, why_unreadable(record)
            )
        return len(skipped)

    def loaded(self, partition: int) -> Iterator[None]:
        """Serve a partition whose records are all applied, and send the markers of transactions whose outcome is decided; yield
        after each short step."""
        shard = self.by_partition[partition]
        decided = []
        for transactional_id in busy_ids(shard.idle):
            if shard.closed:
                return
            value = shard.idle.pop(transactional_id)
            try:
                transaction = Transaction(transactional_id, facts_of(value))
            except ProtocolError as error:
                log.error(
                    "__transaction_state-%d: skipped the record of the transactional id %r, because it cannot be read: %s; its "
                    "transaction stays open in its partitions; `odradek transaction hanging` finds it",
                    partition, transactional_id, error,
                )  # fmt: skip
            else:
                shard.active[transactional_id] = transaction
                if transaction.facts.state in COMPLETE_OF:
                    transaction.pending = COMPLETE_OF[transaction.facts.state]  # from now on; see `decided`
                    decided.append(transaction)
            yield
        shard.loading = False
        for transaction in decided:
            if shard.closed:
                return
            self.decided(shard, transaction, None)
            yield

    def lead_on(self, partition: int, coordinator_epoch: int) -> None:
        """The partition has a new leader epoch, in which this broker leads on. Nothing is loaded again, because nobody else
        wrote to the log. Another broker may have led in between without this broker's knowledge, and may have repeated decided
        markers, so that partitions refuse those of an older epoch."""
        shard = self.by_partition.get(partition)
        if shard is not None:
            shard.coordinator_epoch = max(shard.coordinator_epoch, coordinator_epoch)

    def resign(self, partition: int, coordinator_epoch: int | None = None) -> None:
        """Drop a partition that another broker leads. :param coordinator_epoch: nothing is dropped if this broker has begun to
        lead the partition with a later epoch."""
        shard = self.by_partition.get(partition)
        if shard is None or (coordinator_epoch is not None and coordinator_epoch < shard.coordinator_epoch):
            return
        del self.by_partition[partition]
        self._close(shard)

    def diverge(self, shard: Shard) -> None:
        """Stop to serve a shard whose state may differ from its log, until it is loaded again."""
        if not shard.closed:
            shard.loading = True
            self._close(shard)
            self._diverged(shard.partition)

    @staticmethod
    def _close(shard: Shard) -> None:
        shard.closed = True
        for transaction in list(shard.active.values()):
            transaction.release()

    # -- look-ups -------------------------------------------------------------------------------------------------------

    def shard_of(self, transactional_id: str) -> tuple[ErrorCode, Shard | None]:
        """The shard that serves an id, or the error if none does."""
        shard = self.by_partition.get(partition_for(transactional_id, self._partitions))
        if shard is None:
            return ErrorCode.NOT_COORDINATOR, None
        if shard.loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, None
        return NONE, shard

    def loaded_shards(self) -> Iterator[Shard]:
        """The shards that are served."""
        for shard in list(self.by_partition.values()):
            if not shard.loading:
                yield shard

    @property
    def loading(self) -> bool:
        """Whether any partition is loading."""
        return any(shard.loading for shard in self.by_partition.values())

    # -- writing ---------------------------------------------------------------------------------------------------------

    def creation_error(self, transactional_id: str, owner: str, client: str) -> ErrorCode:
        """The error for a client that would create an id; NONE if it may. :param owner: see `NewNames.full`."""
        if self.names.too_long(transactional_id, client):
            return ErrorCode.INVALID_REQUEST
        return ErrorCode.POLICY_VIOLATION if self.names.full(transactional_id, owner, client) else ErrorCode.NONE

    def _count(self) -> int:
        return sum(len(shard.idle) + len(shard.active) for shard in self.by_partition.values())

    def _exists(self, transactional_id: str) -> bool:
        shard = self.shard_of(transactional_id)[1]
        return shard is not None and (transactional_id in shard.active or transactional_id in shard.idle)

    def create(
        self, shard: Shard, transactional_id: str, producer_id: int, timeout_ms: int, owner: str = ""
    ) -> Transaction:
        """Make a new id. Until its first record is acknowledged, it exists only in memory. :param owner: see `NewNames`."""
        self.names.created(transactional_id, owner)
        facts = fresh(producer_id, timeout_ms, self._timers.wall_ms())
        transaction = shard.active[transactional_id] = Transaction(transactional_id, facts)
        return transaction

    def write(self, shard: Shard, transaction: Transaction, facts: Facts, then: ErrorCallback) -> None:
        """Append the next facts of an id. :param then: called once, with the error for the client."""
        transaction.pending = facts.state
        append = Append(self, shard, transaction, facts, then)
        record = transaction.key, value_of(facts, self._settings.transaction_version)
        if facts.state in UNDECIDED and sum(map(len, record)) > self._settings.max_batch_bytes - RESERVED_BYTES:
            append.appended(ErrorCode.MESSAGE_TOO_LARGE)
        else:
            shard.log.append([record], append.appended, append.late)

    def confirm(self, shard: Shard, then: ErrorCallback) -> None:
        """Call `then` with NONE once it is certain that no other broker coordinated the partition before this call; otherwise
        with a retriable error for the client.

        A broker that was deposed and has not learned of it would answer from memory that is out of date: it may still know the
        commit of a former transaction, and then acknowledge the commit of the present one, which only its successor knows.
        Followers acknowledge an append only to their present leader. So a tombstone for an id that nobody can have is appended.
        """
        if not self._settings.may_be_deposed:
            then(NONE)
            return
        confirmation = Confirmation(then)
        shard.log.append([(NOBODY, None)], confirmation.appended, confirmation.late)

    def park(self, transaction: Transaction, until_ms: int, action: Callable[[], None]) -> None:
        """Execute `action` once nothing is pending for this id, at the latest at `until_ms`."""
        if transaction.parked is None:
            transaction.parked = []
        transaction.parked.append(Parked(self._timers, until_ms, action))
