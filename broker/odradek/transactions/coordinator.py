"""The transaction coordinator: serves requests for transactional ids, ends transactions that exceed their timeout, and removes
expired ids.

`Shards` (`shards.py`) owns the ids and writes them to the log, `Completions` (`markers.py`) has the markers written, `Expiry`
(`expiry.py`) writes tombstones. Runs in the coordinator process's loop, which is its only protection. Results are Kafka error
codes, those of the newest version of each request: the caller translates them for older versions.

Each verb has a callback, which is called exactly once, possibly before the verb returns.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from sys import intern

from odradek.coordination.environment import LogBatch, Record, Timers
from odradek.protocol.errors import ErrorCode
from odradek.transactions import transaction as verbs
from odradek.transactions.environment import (
    EVERYTHING,
    Counts,
    Description,
    Environment,
    Listed,
    ListFilter,
    Owner,
    Place,
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
"""Receives the error, the producer id and the producer epoch; -1 and -1 with an error."""
AddCallback = Callable[[ErrorCode, Sequence[ErrorCode]], None]
"""Receives the error of the request and, if it is NONE, the result of `Marks.allow` for each place, in order."""
VerifyCallback = Callable[[Mapping[Place, ErrorCode]], None]

MOST_PACKED = 10_000
"""How many ids are packed at once, so that other work of the loop need not wait for long."""
NO_ID = verbs.NO_ID
NO_EPOCH = verbs.NO_EPOCH
INVALID_REQUEST = ErrorCode.INVALID_REQUEST


class Reply:
    """The callback of an append: gives the client its answer, or the error of the append."""

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
    :ivar counts: what it has done, for metrics. :ivar completions: the transactions whose outcome is decided.
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
        """Begin to load a partition, which this broker now leads, or begin a repeated load.

        Its ids answer COORDINATOR_LOAD_IN_PROGRESS until `loaded`.

        :param coordinator_epoch: the partition's leader epoch.
        """
        self.shards.begin(partition, transaction_log, coordinator_epoch)

    def replay(self, partition: int, records: Iterable[Record]) -> int:
        """Apply records of the log, in order; return the number of skipped unknown records."""
        return self.shards.replay(partition, records)

    def replay_batches(self, partition: int, batches: Iterable[LogBatch]) -> None:
        """Apply batches of the log, in order."""
        self.shards.replay_batches(partition, batches)

    def loaded(self, partition: int) -> None:
        """Serve a partition whose records are all applied; send the markers of transactions whose end is decided."""
        self.shards.loaded(partition)

    def resign(self, partition: int, coordinator_epoch: int | None = None) -> None:
        """Drop a partition that another broker leads. :param coordinator_epoch: nothing is dropped if the partition was taken
        over with a later one."""
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
    ) -> None:
        """Give a producer its id and a new epoch, which fences its predecessor, and end the predecessor's transaction.

        :param producer_id, epoch: what the producer had before (KIP-360), or -1.
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
            new_id = self._new_id()
            if new_id is None:
                then(*verbs.NO_NEW_ID)
                return
            transaction = self.shards.create(shard, transactional_id, new_id, timeout_ms)
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
            then(*outcome)
            return
        if outcome.answer.code is not NONE:
            self.counts.fenced += 1
        self.shards.write(shard, transaction, outcome.facts, Reply(outcome.answer, then))

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
        places: Sequence[Place],
        transaction_version: int,
        then: AddCallback,
        patience_ms: int = 0,
    ) -> None:
        """Add partitions to the transaction, which begins if none is ongoing, and set their marks.

        :param transaction_version: of the client: 2 for the protocol in which brokers add partitions (AddPartitionsToTxn 4+),
            0 for AddPartitionsToTxn 0 to 3 and AddOffsetsToTxn.
        :param patience_ms: how long to wait if the result were CONCURRENT_TRANSACTIONS: the verb is executed again as soon as
            the obstacle has gone.
        """
        code, shard, transaction = self._find(transactional_id)
        if transaction is None or shard is None:
            then(code, ())
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

        def allow() -> Sequence[ErrorCode]:
            return self._allow(transactional_id, producer_id, epoch, places, transaction_version)

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
                self.add_partitions(transactional_id, producer_id, epoch, places, transaction_version, then, left_ms)

            self.shards.park(transaction, until_ms, again)
        else:
            then(outcome.code, ())

    def _allow(
        self, transactional_id: str, producer_id: int, epoch: int, places: Sequence[Place], version: int
    ) -> Sequence[ErrorCode]:
        allow = self._marks.allow
        return [allow(topic, partition, transactional_id, producer_id, epoch, version) for topic, partition in places]

    def verify(
        self, transactional_id: str, producer_id: int, epoch: int, places: Sequence[Place], then: VerifyCallback
    ) -> None:
        """Tell which partitions belong to the ongoing transaction of this producer, and set their marks (KIP-890 part 1)."""
        code, _, transaction = self._find(transactional_id)
        if transaction is not None:
            code = verbs.verify(transaction.facts, transaction.pending, producer_id, epoch).code
        if transaction is None or code is not NONE:
            then(dict.fromkeys(places, code))
            return
        absent = verbs.missing(transaction.facts.places, places)
        present = [place for place in places if place not in absent] if absent else places
        codes = dict.fromkeys(absent, ErrorCode.TRANSACTION_ABORTABLE)
        codes.update(zip(present, self._allow(transactional_id, producer_id, epoch, present, 0), strict=True))
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

        The response follows the completion, or `Settings.end_wait_ms` after the decision is durable, whichever is first.

        :param client_version: the client's transaction version: 0 for EndTxn 0 to 4, 2 for EndTxn 5.
        :param then: with `client_version` 2 it receives the id and the epoch for the next transaction; with 0, -1 and -1.
        """
        code, shard, transaction = self._find(transactional_id)
        if transaction is None or shard is None:
            then(code, NO_ID, NO_EPOCH)
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
            then(*outcome)
        else:
            self.shards.write(shard, transaction, outcome.facts, Reply(outcome.answer, then))

    def _find(self, transactional_id: str) -> tuple[ErrorCode, Shard | None, Transaction | None]:
        """An id that must exist, and its shard, or the error for the client."""
        if not transactional_id:
            return INVALID_REQUEST, None, None
        code, shard = self.shards.shard_of(transactional_id)
        if shard is None:
            return code, None, None
        transaction = shard.find(transactional_id)
        return NONE if transaction is not None else ErrorCode.INVALID_PRODUCER_ID_MAPPING, shard, transaction

    # -- timers of the caller ------------------------------------------------------------------------------------------------

    def abort_timed_out(self) -> int:
        """Abort the transactions that are older than their timeout; return their number.

        Called each `transaction.abort.timed.out.transaction.cleanup.interval.ms`. Also releases memory of ids that are not
        in use.
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
        """Abort a transaction that is older than its timeout; return False if there is no producer id for that now."""
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

    def expire(self) -> int:
        """Begin to remove the ids that had no transaction for `transactional.id.expiration.ms`; return their number.

        Called each `transaction.remove.expired.transaction.cleanup.interval.ms`.
        """
        return self._expiry.run()

    # -- descriptions --------------------------------------------------------------------------------------------------------

    def describe(self, transactional_id: str) -> tuple[ErrorCode, Description | None]:
        """One id; TRANSACTIONAL_ID_NOT_FOUND if it is not known, INVALID_REQUEST if it is empty."""
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

    def list(self, which: ListFilter = EVERYTHING) -> tuple[ErrorCode, Sequence[str], Sequence[Listed]]:
        """Ids that pass all filters, and the names of unknown states in the filter. COORDINATOR_LOAD_IN_PROGRESS while any
        partition is loading."""
        if self.shards.loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [], []
        unknown = [name for name in which.states if name not in NAMES]
        states = frozenset(state for state in State if not which.states or NAMES[state] in which.states)
        producer_ids = frozenset(which.producer_ids)
        newest_ms = self._timers.wall_ms() - which.longer_than_ms if which.longer_than_ms >= 0 else verbs.NO_TIME_LIMIT
        found = [
            Listed(name, producer_id, NAMES[state])
            for shard in self.shards.by_partition.values()
            for name, producer_id, state, start_ms in shard.rows(states)
            if start_ms < newest_ms
            and (not producer_ids or producer_id in producer_ids)
            and (which.matches is None or which.matches(name))
        ]
        return NONE, unknown, found

    def open_transactions(self) -> dict[int, Owner]:
        """The transactions that are ongoing, or whose markers are not all written, by producer id.

        A transaction that is open in a partition and is not here hangs: nobody will end it. Partitions of
        `__transaction_state` that are loading (see `loading`), or that other brokers lead, are missing.
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
