"""The transaction coordinator: serves requests for transactional ids, ends transactions that exceed their timeout, and removes
expired ids.

`Shards` (`shards.py`) owns the transactional ids and writes them to the log. `Completions` (`markers.py`) sends the markers
and appends the completions. `Expiry` (`expiry.py`) writes the tombstones. All run in the loop of the coordinator process,
so they need no lock. Results are Kafka's error codes for the newest version of each request; the caller translates them for
older versions.

A *verb* is a method that executes a request of a producer. Its callback is called exactly once, possibly before the verb
returns.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from sys import intern

from odradek.coordination.environment import LogBatch, Record, Timers
from odradek.protocol.errors import ErrorCode
from odradek.topic_partition import TopicPartition
from odradek.transactions import transaction as verbs
from odradek.transactions.environment import (
    EVERYTHING,
    NO_OWNER,
    Counts,
    Description,
    Environment,
    Listed,
    ListFilter,
    Mark,
    Owner,
    Settings,
    TransactionLog,
)
from odradek.transactions.expiry import Expiry
from odradek.transactions.markers import Completions
from odradek.transactions.records import facts_of, producer_of, state_of
from odradek.transactions.shards import NONE, Shard, Shards, Transaction
from odradek.transactions.states import IDLE, NAMES, State
from odradek.transactions.transaction import Answer, Write

log = logging.getLogger("odradek.transactions")

ProducerCallback = Callable[[ErrorCode, int, int], None]
"""Receives the error, the producer id and the producer epoch. With an error, id and epoch are -1."""
AddCallback = Callable[[ErrorCode, Sequence[ErrorCode | None]], None]
"""Receives the error of the request and, if it is NONE, the result of `Marks.allow` for each place, in order."""
VerifyCallback = Callable[[Mapping[TopicPartition, ErrorCode | None]], None]
"""Receives the error of each place, or None, as `Marks.allow` returns it."""

REPEATED = frozenset(
    (
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.INVALID_REQUEST,
    )
)
"""Errors that say nothing about a transaction, or after which the client repeats its request."""
MOST_PACKED = 10_000
"""The largest number of ids that are packed in one turn of the loop, so that other work is not delayed."""
NO_ID = verbs.NO_ID
NO_EPOCH = verbs.NO_EPOCH
INVALID_REQUEST = ErrorCode.INVALID_REQUEST


class Reply:
    """The callback of an append: passes the answer to the client, or the error of the append."""

    __slots__ = ("_answer", "_then")

    def __init__(self, answer: Answer, then: ProducerCallback) -> None:
        self._answer = answer
        self._then = then

    def __call__(self, error: ErrorCode) -> None:
        if error is NONE:
            self._then(*self._answer)
        else:
            self._then(error, NO_ID, NO_EPOCH)


class TransactionCoordinator:
    """The transactional ids of the partitions of `__transaction_state` that this broker leads.

    :param partitions: the number of partitions of `__transaction_state`.
    :ivar counts: the counts for the metrics. :ivar completions: the transactions whose outcome is decided.
    """

    def __init__(self, timers: Timers, settings: Settings, partitions: int, environment: Environment) -> None:
        self._timers = timers
        self._settings = settings
        self._marks = environment.marks
        self._new_id = environment.producer_ids.next
        self.counts = Counts()
        self.completions = Completions(timers, settings, environment, self.counts)
        self.shards = Shards(timers, settings, partitions, environment, self.completions.begin)
        self.completions.attach(self.shards.diverge)
        self._expiry = Expiry(timers, settings, self.shards, self.counts)

    # -- leadership ------------------------------------------------------------------------------------------------------

    def begin(self, partition: int, transaction_log: TransactionLog, coordinator_epoch: int) -> None:
        """Begin to load a partition that this broker leads now; or begin to load it again.

        Requests for its ids receive COORDINATOR_LOAD_IN_PROGRESS until `loaded` is called.

        :param coordinator_epoch: the partition's leader epoch.
        """
        self.shards.begin(partition, transaction_log, coordinator_epoch)

    def replay(self, partition: int, records: Iterable[Record]) -> int:
        """Apply records of the log, in order; return the number of skipped unknown records."""
        return self.shards.replay(partition, records)

    def replay_batches(self, partition: int, batches: Iterable[LogBatch]) -> Iterator[None]:
        """Apply batches of the log, in order; yield after each short step."""
        return self.shards.replay_batches(partition, batches)

    def loaded(self, partition: int) -> Iterator[None]:
        """Serve a partition whose records are all applied, and send the markers of transactions whose outcome is decided;
        yield after each short step."""
        return self.shards.loaded(partition)

    def lead_on(self, partition: int, coordinator_epoch: int) -> None:
        """The partition has a new leader epoch, and this broker leads it since `begin`: markers have this epoch from now on."""
        self.shards.lead_on(partition, coordinator_epoch)

    def resign(self, partition: int, coordinator_epoch: int | None = None) -> None:
        """Drop a partition that another broker leads. :param coordinator_epoch: nothing is dropped if this broker has begun to
        lead the partition with a later epoch."""
        self.shards.resign(partition, coordinator_epoch)

    @property
    def loading(self) -> bool:
        """Whether any partition is loading."""
        return self.shards.loading

    def error_of(self, transactional_id: str) -> ErrorCode:
        """NONE if this broker coordinates this id now; otherwise NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS."""
        return self.shards.shard_of(transactional_id)[0]

    # -- requests of producers ---------------------------------------------------------------------------------------------

    def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        producer_id: int,
        epoch: int,
        enable_2pc: bool,
        keep_prepared: bool,
        then: ProducerCallback,
        client: str = "a client",
        owner: str = "",
    ) -> None:
        """Give a producer its id and a new epoch, which fences the former producer of the transactional id, and abort the open
        transaction of that one.

        :param producer_id, epoch: the id and epoch that the producer had before (KIP-360), or -1.
        :param client: the client as shown in log lines. :param owner: see `NewNames`.
        """
        code = self._init_error(transactional_id, timeout_ms, producer_id, epoch, enable_2pc, keep_prepared)
        shard = None
        if code is NONE:
            code, shard = self.shards.shard_of(transactional_id)
        if shard is None:
            then(code, NO_ID, NO_EPOCH)
            return
        timeout_ms = verbs.NO_TIMEOUT_MS if enable_2pc else timeout_ms
        now_ms = self._timers.wall_ms()
        transaction = shard.find(transactional_id)
        if transaction is None:
            code = self.shards.creation_error(transactional_id, owner, client)
            if code is not NONE:
                then(code, NO_ID, NO_EPOCH)
                return
            new_id = self._new_id()
            if new_id is None:
                then(*verbs.NO_NEW_ID)
                return
            transaction = self.shards.create(shard, transactional_id, new_id, timeout_ms, owner)
        outcome = verbs.init(
            transaction.facts,
            transaction.pending,
            producer_id,
            epoch,
            timeout_ms,
            now_ms,
            self._settings.transaction_version,
            self._new_id,
        )
        if isinstance(outcome, Answer):
            self._answer(shard, outcome, then)
            return
        if outcome.answer.code is NONE:
            self.shards.write(shard, transaction, outcome.facts, Reply(outcome.answer, then))
            return
        self.counts.fenced += 1
        fenced = transaction.facts
        reply = Reply(outcome.answer, then)

        def aborting(error: ErrorCode) -> None:
            if error is NONE:
                log.info(
                    "aborting the transaction of %r (producer id %d, epoch %d), and fencing its producer, because %s sent"
                    " InitProducerId for this id",
                    transactional_id, fenced.producer_id, fenced.epoch, client,
                    extra={"client_address": client.partition(" ")[0]},  # a client's name begins with its address
                )  # fmt: skip
            reply(error)

        self.shards.write(shard, transaction, outcome.facts, aborting)

    def _init_error(
        self,
        transactional_id: str,
        timeout_ms: int,
        producer_id: int,
        epoch: int,
        enable_2pc: bool,
        keep_prepared: bool,
    ) -> ErrorCode:
        if not transactional_id or (producer_id == NO_ID) != (epoch == NO_EPOCH):
            return INVALID_REQUEST
        if enable_2pc and not self._settings.two_phase_commit:
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        if keep_prepared:
            return ErrorCode.UNSUPPORTED_VERSION
        if not enable_2pc and not 0 < timeout_ms <= self._settings.max_timeout_ms:
            return ErrorCode.INVALID_TRANSACTION_TIMEOUT
        return NONE

    def add_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        places: Sequence[TopicPartition],
        transaction_version: int,
        then: AddCallback,
        patience_ms: int = 0,
        owner: int = NO_OWNER,
    ) -> None:
        """Add partitions to the transaction, and set their marks. If no transaction is ongoing, one begins.

        :param transaction_version: that of the client: 2 if a broker adds the partitions for it (AddPartitionsToTxn 4 and 5),
            0 for AddPartitionsToTxn 0 to 3 and AddOffsetsToTxn.
        :param patience_ms: if the previous transaction is not complete, the verb waits at most this time for it and is executed
            again, before the result is CONCURRENT_TRANSACTIONS.
        :param owner: see `Mark`.
        """
        code, shard, transaction = self._find(transactional_id)
        if transaction is None or shard is None:
            self._refuse(shard, code, lambda error: then(error, ()))
            return
        outcome = verbs.add(
            transaction.facts,
            transaction.pending,
            producer_id,
            epoch,
            [(intern(topic), partition) for topic, partition in places],
            transaction_version,
            self._timers.wall_ms(),
        )

        def allow() -> Sequence[ErrorCode | None]:
            coordinator_epoch = shard.coordinator_epoch
            return self._marks.allow(
                places, Mark(transactional_id, producer_id, epoch, coordinator_epoch, transaction_version, owner)
            )

        if isinstance(outcome, Write):

            def appended(error: ErrorCode) -> None:
                then(error, allow() if error is NONE else ())

            self.shards.write(shard, transaction, outcome.facts, appended)
        elif outcome.code is NONE:
            then(NONE, allow())
        elif outcome is verbs.CONCURRENT and patience_ms > 0:
            until_ms = self._timers.now_ms() + patience_ms

            def again() -> None:
                left_ms = until_ms - self._timers.now_ms()
                self.add_partitions(
                    transactional_id, producer_id, epoch, places, transaction_version, then, left_ms, owner
                )

            self.shards.park(transaction, until_ms, again)
        else:
            self._refuse(shard, outcome.code, lambda error: then(error, ()))

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        places: Sequence[TopicPartition],
        then: VerifyCallback,
        owner: int = NO_OWNER,
    ) -> None:
        """Return for each partition whether it belongs to the ongoing transaction of this producer, and set the marks of those
        that do (KIP-890 part 1). :param owner: see `Mark`."""
        code, shard, transaction = self._find(transactional_id)
        if transaction is not None:
            code = verbs.verify(transaction.facts, transaction.pending, producer_id, epoch).code
        if transaction is None or shard is None or code is not NONE:
            self._refuse(shard, code, lambda error: then(dict.fromkeys(places, error)))
            return
        absent = verbs.missing(transaction.facts.places, places)
        present = [place for place in places if place not in absent] if absent else places
        mark = Mark(transactional_id, producer_id, epoch, shard.coordinator_epoch, 0, owner)
        codes: dict[TopicPartition, ErrorCode | None] = dict(
            zip(present, self._marks.allow(present, mark), strict=True)
        )
        if absent:
            refusal = ErrorCode.TRANSACTION_ABORTABLE
            self._refuse(shard, refusal, lambda error: then(codes | dict.fromkeys(absent, error)))
        else:
            then(codes)

    def end(
        self,
        transactional_id: str,
        producer_id: int,
        epoch: int,
        commits: bool,
        client_version: int,
        then: ProducerCallback,
    ) -> None:
        """Commit or abort the transaction.

        `then` is called after the completion, or `Settings.end_wait_ms` after the outcome is durable, whichever is first.

        :param client_version: the client's transaction version: 0 for EndTxn 0 to 4, 2 for EndTxn 5.
        :param then: with `client_version` 2, it receives the producer id and epoch for the next transaction; with 0, -1 and -1.
        """
        code, shard, transaction = self._find(transactional_id)
        if transaction is None or shard is None:
            self._refuse(shard, code, lambda error: then(error, NO_ID, NO_EPOCH))
            return
        outcome = verbs.end(
            transaction.facts,
            transaction.pending,
            producer_id,
            epoch,
            commits,
            client_version,
            self._timers.wall_ms(),
            self._new_id,
        )
        if isinstance(outcome, Answer):
            self._answer(shard, outcome, then)
        else:
            self.shards.write(shard, transaction, outcome.facts, Reply(outcome.answer, then))

    def _answer(self, shard: Shard, answer: Answer, then: ProducerCallback) -> None:
        """Give an answer from memory. A final answer is confirmed first, because this broker may have been deposed."""
        if answer.code in REPEATED:
            then(*answer)
        else:
            self.shards.confirm(shard, Reply(answer, then))

    def _refuse(self, shard: Shard | None, code: ErrorCode, then: Callable[[ErrorCode], None]) -> None:
        """Give an error from memory, like `_answer`."""
        if shard is None or code in REPEATED:
            then(code)
        else:
            self.shards.confirm(shard, lambda error: then(code if error is NONE else error))

    def _find(self, transactional_id: str) -> tuple[ErrorCode, Shard | None, Transaction | None]:
        """The transaction of an id and its shard; or, if the id is not served here or does not exist, the error for the
        client."""
        if not transactional_id:
            return INVALID_REQUEST, None, None
        code, shard = self.shards.shard_of(transactional_id)
        if shard is None:
            return code, None, None
        transaction = shard.find(transactional_id)
        return NONE if transaction is not None else ErrorCode.INVALID_PRODUCER_ID_MAPPING, shard, transaction

    # -- timers of the caller ------------------------------------------------------------------------------------------------

    def abort_timed_out(self) -> int:
        """Begin to abort the transactions that have exceeded their timeout; return their number.

        Called every `transaction.abort.timed.out.transaction.cleanup.interval.ms`. Also packs ids that are not in use, to free
        memory.
        """
        now_ms, count, packed = self._timers.wall_ms(), 0, 0
        for shard in self.shards.loaded_shards():
            for transaction in list(shard.active.values()):
                if shard.closed:
                    break
                if transaction.pending is None and verbs.timed_out(transaction.facts, now_ms):
                    count += self._abort(shard, transaction, now_ms)
            if not shard.closed:
                packed += shard.put_idle_away(MOST_PACKED - packed)
        self.counts.timed_out += count
        return count

    def _abort(self, shard: Shard, transaction: Transaction, now_ms: int) -> bool:
        """Begin to abort a transaction that has exceeded its timeout. Return False if it needs a new producer id and none is
        available now; the next check tries again."""
        facts = transaction.facts
        outcome = verbs.fence(facts, self._settings.transaction_version, now_ms, self._new_id)
        if isinstance(outcome, Answer):
            return False

        def aborted(error: ErrorCode) -> None:
            if error is NONE:
                log.info(
                    "aborted the transaction of %r (producer id %d, epoch %d), which exceeded its timeout of %d ms",
                    transaction.transactional_id, facts.producer_id, facts.epoch, facts.timeout_ms,
                )  # fmt: skip
            else:
                log.warning(
                    "cannot abort the transaction of %r, which exceeded its timeout of %d ms: %s; retrying at the next check",
                    transaction.transactional_id, facts.timeout_ms, error.name,
                )  # fmt: skip

        self.shards.write(shard, transaction, outcome.facts, aborted)
        return True

    @property
    def not_expired(self) -> dict[str, str]:
        """See `Expiry.failures`."""
        return self._expiry.failures

    def expire(self) -> int:
        """Begin to remove the ids that had no transaction for `transactional.id.expiration.ms`; return their number.

        Called every `transaction.remove.expired.transaction.cleanup.interval.ms`.
        """
        return self._expiry.run()

    # -- descriptions --------------------------------------------------------------------------------------------------------

    def describe(self, transactional_id: str) -> tuple[ErrorCode, Description | None]:
        """Describe one id. The error is TRANSACTIONAL_ID_NOT_FOUND if it does not exist, INVALID_REQUEST if it is empty."""
        if not transactional_id:
            return INVALID_REQUEST, None
        code, shard = self.shards.shard_of(transactional_id)
        if shard is None:
            return code, None
        facts = shard.facts(transactional_id)
        if facts is None:
            return ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, None
        return NONE, Description(
            NAMES[facts.state], facts.timeout_ms, facts.start_ms, facts.producer_id, facts.epoch, facts.places
        )

    def list(self, which: ListFilter = EVERYTHING) -> tuple[ErrorCode, Sequence[str], Iterator[Listed | None]]:
        """Return an error, the unknown states in the filter, and an iterator over all ids: it yields each id that passes all
        filters, and None for each other id. The error is COORDINATOR_LOAD_IN_PROGRESS while any partition is loading.

        The caller may do other work during the iteration. An id that changes meanwhile has its former or its new state.
        """
        if self.shards.loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [], iter(())
        unknown = [name for name in which.states if name not in NAMES]
        states = frozenset(state for state in State if not which.states or NAMES[state] in which.states)
        producer_ids = frozenset(which.producer_ids)
        newest_ms = self._timers.wall_ms() - which.longer_than_ms if which.longer_than_ms >= 0 else verbs.NO_TIME_LIMIT

        def listed() -> Iterator[Listed | None]:
            for shard in list(self.shards.by_partition.values()):
                for name, producer_id, state, start_ms in shard.rows():
                    passes = (
                        state in states
                        and start_ms < newest_ms
                        and (not producer_ids or producer_id in producer_ids)
                        and (which.matches is None or which.matches(name))
                    )
                    yield Listed(name, producer_id, NAMES[state]) if passes else None

        return NONE, unknown, listed()

    def open_transactions(self) -> dict[int, Owner]:
        """The transactions that are ongoing, or whose markers are not all written, by producer id.

        They do not include those of partitions of `__transaction_state` that are loading (see `loading`) or that other brokers
        lead. Apart from these, a transaction that is open in a partition but not included hangs: no coordinator will end it.
        """
        return {
            transaction.facts.producer_id: _owner(transaction)
            for shard in self.shards.loaded_shards()
            for transaction in shard.active.values()
            if transaction.facts.state not in IDLE
        }

    def owner_of(self, producer_id: int) -> Owner | None:
        """The transactional id that has a producer id now; None if none has it. Searches all ids."""
        for shard in self.shards.loaded_shards():
            for transaction in shard.active.values():
                if transaction.facts.producer_id == producer_id:
                    return _owner(transaction)
            for name, value in shard.idle.items():
                if producer_of(value)[0] == producer_id:
                    return _owner(Transaction(name, facts_of(value)))
        return None

    def known(self, producer_id: int, epoch: int) -> bool:
        """Whether a transactional id has this producer id with this epoch now."""
        owner = self.owner_of(producer_id)
        return owner is not None and owner.producer_epoch == epoch

    def ids_by_state(self) -> dict[str, int]:
        """The number of transactional ids by the name of their state. Looks at all ids."""
        states = Counter(
            transaction.facts.state for shard in self.shards.loaded_shards() for transaction in shard.active.values()
        )
        for shard in self.shards.loaded_shards():
            states.update(state_of(value) for value in shard.idle.values())
        return {NAMES[state]: count for state, count in states.items()}

    @property
    def completing(self) -> int:
        """The number of transactions whose outcome is decided and that are not complete."""
        return sum(
            transaction.places_left is not None
            for shard in self.shards.loaded_shards()
            for transaction in shard.active.values()
        )


def _owner(transaction: Transaction) -> Owner:
    facts = transaction.facts
    return Owner(transaction.transactional_id, facts.producer_id, facts.epoch, NAMES[facts.state], transaction.places)
