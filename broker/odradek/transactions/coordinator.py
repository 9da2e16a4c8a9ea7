"""The transaction coordinator: serves requests for transactional ids, ends transactions that exceed their timeout, and removes
expired ids.

It has two members: `Shards` (`shards.py`) owns the ids and writes them to the log, `Completions` (`markers.py`) has the
markers written. Runs in the coordinator process's loop, which is its only protection. Results are Kafka error codes, those of the
newest version of each request: the caller translates them for older versions.

Each verb has a callback, which is called exactly once, possibly before the verb returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from odradek.coordination.environment import LogBatch, Record, Timers
from odradek.protocol.errors import ErrorCode
from odradek.transactions.environment import (
    Description,
    Environment,
    Listed,
    ListFilter,
    Owner,
    Place,
    Settings,
    TransactionLog,
)

ProducerCallback = Callable[[ErrorCode, int, int], None]
"""Receives the error, the producer id and the producer epoch; -1 and -1 with an error."""
AddCallback = Callable[[ErrorCode, Sequence[ErrorCode]], None]
"""Receives the error of the request and, if it is NONE, the result of `Marks.allow` for each place, in order."""
VerifyCallback = Callable[[Mapping[Place, ErrorCode]], None]


class TransactionCoordinator:
    """The transactional ids of the partitions of `__transaction_state` that this broker leads.

    :param partitions: the number of partitions of `__transaction_state`.
    """

    def __init__(self, timers: Timers, settings: Settings, partitions: int, environment: Environment) -> None:
        raise NotImplementedError

    # -- leadership ------------------------------------------------------------------------------------------------------

    def begin(self, partition: int, log: TransactionLog, coordinator_epoch: int) -> None:
        """Begin to load a partition, which this broker now leads, or begin a repeated load.

        Its ids answer COORDINATOR_LOAD_IN_PROGRESS until `loaded`.

        :param coordinator_epoch: the partition's leader epoch.
        """

    def replay(self, partition: int, records: Iterable[Record]) -> int:
        """Apply records of the log, in order; return the number of skipped unknown records."""
        raise NotImplementedError

    def replay_batches(self, partition: int, batches: Iterable[LogBatch]) -> None:
        """Apply batches of the log, in order."""

    def loaded(self, partition: int) -> None:
        """Serve a partition whose records are all applied; send the markers of transactions whose end is decided."""

    def resign(self, partition: int, coordinator_epoch: int | None = None) -> None:
        """Drop a partition that another broker leads. :param coordinator_epoch: nothing is dropped if the partition was taken
        over with a later one."""

    @property
    def loading(self) -> bool:
        """Whether any partition is loading."""
        raise NotImplementedError

    def error_of(self, transactional_id: str) -> ErrorCode:
        """NONE if this broker coordinates this id now; otherwise NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS."""
        raise NotImplementedError

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

    def verify(
        self, transactional_id: str, producer_id: int, epoch: int, places: Sequence[Place], then: VerifyCallback
    ) -> None:
        """Tell which partitions belong to the ongoing transaction of this producer, and set their marks (KIP-890 part 1)."""

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

        :param client_version: the client's transaction version: 0 for EndTxn 0 to 4, 2 for EndTxn 5.
        :param then: with `client_version` 2 it receives the id and the epoch for the next transaction; with 0, -1 and -1.
        """

    # -- timers of the caller ------------------------------------------------------------------------------------------------

    def abort_timed_out(self) -> int:
        """Abort the transactions that are older than their timeout; return their number. Called each
        `transaction.abort.timed.out.transaction.cleanup.interval.ms`."""
        raise NotImplementedError

    def expire(self) -> int:
        """Remove the ids that had no transaction for `transactional.id.expiration.ms`; return their number. Called each
        `transaction.remove.expired.transaction.cleanup.interval.ms`."""
        raise NotImplementedError

    # -- descriptions --------------------------------------------------------------------------------------------------------

    def describe(self, transactional_id: str) -> tuple[ErrorCode, Description | None]:
        """One id; TRANSACTIONAL_ID_NOT_FOUND if it is not known, INVALID_REQUEST if it is empty."""
        raise NotImplementedError

    def list(self, which: ListFilter = ListFilter()) -> tuple[ErrorCode, list[str], list[Listed]]:
        """Ids that pass all filters, and the names of unknown states in the filter. COORDINATOR_LOAD_IN_PROGRESS while any
        partition is loading."""
        raise NotImplementedError

    def owners(self) -> dict[int, Owner]:
        """All ids by producer id, including those of partitions that are loading as far as they are read."""
        raise NotImplementedError

    def owner_of(self, producer_id: int) -> Owner | None:
        """The id of a producer id; None if none has it. Searches all ids: use `owners` for several."""
        raise NotImplementedError
