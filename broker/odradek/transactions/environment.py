"""The interfaces of the transaction coordinator to its process: markers, producer ids, marks of partitions, topics, settings.

The coordinator process passes real implementations, tests pass simulated ones. The clock and the log are those of
`odradek.coordination.environment`. Used in one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from odradek.coordination.environment import GroupLog
from odradek.protocol.errors import ErrorCode
from odradek.quotas.new_names import TRANSACTIONAL_IDS, CurrentLimits
from odradek.topic_partition import TopicPartition

TransactionLog = GroupLog
"""One partition of `__transaction_state` that this broker leads.

After an append that fails with an error of `NOT_WRITTEN`, the log does not contain its records. After any other error the
log may contain them, so the coordinator loads the partition again.
"""

NOT_WRITTEN = frozenset(
    (
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    )
)


NO_OWNER = 0
"""The owner of a mark that no client asked for; see `Mark`."""


class Marker(NamedTuple):
    """The end marker of a transaction for one partition.

    :param producer_epoch: the epoch of the marker; with transaction.version 2 it is one above the epoch of the data.
    :param coordinator_epoch: the leader epoch of the partition of `__transaction_state` of this transactional id.
    :param transaction_version: 0, 1 or 2: the version of the protocol in which the transaction was ended.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commits: bool
    transaction_version: int
    topic: str
    partition: int


class MarkerSender(Protocol):
    """Writes end markers: to partitions that this broker leads directly, to others with WriteTxnMarkers."""

    def send(self, batch: list[Marker], then: Callable[[Sequence[ErrorCode]], None]) -> None:
        """Write the markers of one transaction.

        The implementation looks up the leader of each partition in each call. It may collect the batches of one turn of the
        loop and write the markers of one partition, or of one broker, together.

        :param then: called exactly once, possibly before `send` returns, with one error for each marker, in order. NONE: all
            in-sync replicas have the marker, or it is not needed. UNKNOWN_TOPIC_OR_PARTITION: the metadata does not have
            the partition; the coordinator then asks `Topics.exists`. A leader that cannot be reached: NOT_LEADER_OR_FOLLOWER or
            REQUEST_TIMED_OUT.
        """


class ProducerIds(Protocol):
    """Producer ids that no producer has yet."""

    def next(self) -> int | None:
        """Return a new producer id. None: the stock is empty, and more ids have been requested. The client then receives
        COORDINATOR_LOAD_IN_PROGRESS, as in Kafka, and retries."""


class Mark(NamedTuple):
    """Lets a producer, with this epoch and in requests with this transactional id, open a transaction in a partition.

    :param coordinator_epoch: the leader epoch of the coordinator whose log has the partition.
    :param transaction_version: that of the client. :param owner: a number for the client's address; the mark takes room from
        this client's share of the producers.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    coordinator_epoch: int
    transaction_version: int
    owner: int = NO_OWNER


class Marks(Protocol):
    """The marks in partitions: they say which producers may open a transaction. The partition's leader checks them before the
    first append of a transaction."""

    def leadership(self, topic: str, partition: int) -> tuple[int, int] | None:
        """What identifies the present leadership of a partition that this broker leads; None if it does not lead it."""

    def allow(self, places: Sequence[TopicPartition], mark: Mark) -> Sequence[ErrorCode | None]:
        """Set the mark in those of the partitions that this broker leads.

        :returns: for each partition, NONE: the mark is set, or another broker leads the partition. INVALID_PRODUCER_EPOCH: the
            partition has a newer epoch of the producer. NOT_COORDINATOR: the partition has a marker of a newer coordinator.
            NOT_ENOUGH_REPLICAS: there is no room for the mark now. After the last two the client may retry. None: another
            process uses the partition at this moment; the caller may try again soon.
        """


class Topics(Protocol):
    """The existing topics."""

    def exists(self, topic: str, partition: int) -> bool:
        """Return whether the partition exists; True if that is not known. Called only after UNKNOWN_TOPIC_OR_PARTITION: if the
        partition does not exist, its marker is not sent again."""


class Environment(NamedTuple):
    """The implementations that the process provides.

    :param diverged: called with a partition of `__transaction_state` after an append to it whose outcome is not known, or that
        failed because the leader has changed. From then on, requests for its ids receive COORDINATOR_LOAD_IN_PROGRESS. The
        process must close the partition's log, and then call `begin` again, or `resign` if this broker no longer leads the
        partition. `diverged` is not called again for the partition before that.
    """

    markers: MarkerSender
    producer_ids: ProducerIds
    marks: Marks
    topics: Topics
    diverged: Callable[[int], None]


@dataclass(slots=True)
class Settings:
    """The configuration of the coordinator. The process may change any attribute at any time; times in ms.

    :param names: how many transactional ids clients may create, and the longest new one.
    :param transaction_version: the finalized level of the feature `transaction.version`: 0, 1 or 2.
    :param end_wait_ms: how long the response to EndTxn may wait, after the outcome is durable, for the markers and the
        completion. If it follows them, the client's next transaction does not have to wait.
    :param marker_backoff_ms: the time before the first retry of a marker; it doubles up to `marker_backoff_max_ms`.
    :param fenced_backoff_ms: the time before the retry of markers that a partition refused because it has a newer coordinator
        epoch or a newer producer epoch.
    :param tombstones_at_once: the largest number of tombstones in one append, with at most `tombstone_bytes`.
    :param max_batch_bytes: the size of the largest batch for a record that a client can still repeat, or give up. Records of a
        decision and of a completion are written whatever their size: without them the transaction would stay open for ever.
    :param may_be_deposed: whether another broker may coordinate a partition before this one learns of it: in a cluster. Then
        answers from memory that a producer cannot repeat wait for an append, see `Shards.confirm`.
    """

    names: CurrentLimits = TRANSACTIONAL_IDS
    max_timeout_ms: int = 900_000
    id_expiration_ms: int = 604_800_000
    two_phase_commit: bool = False
    transaction_version: int = 2
    end_wait_ms: int = 20
    marker_backoff_ms: int = 20
    marker_backoff_max_ms: int = 1000
    fenced_backoff_ms: int = 30_000
    tombstones_at_once: int = 1000
    tombstone_bytes: int = 1 << 17
    max_batch_bytes: int = 1 << 20
    may_be_deposed: bool = False


@dataclass(slots=True)
class Counts:
    """The numbers of events since the start of the coordinator.

    :ivar committed, aborted: completed transactions, by outcome. :ivar completion_ms: the sum of the times from the durable
        outcome to the completion, of all completed transactions.
    :ivar timed_out: aborts after the timeout. :ivar fenced: aborts because a new producer uses the transactional id.
    :ivar markers: markers that were sent; repetitions count. :ivar marker_failures: markers that had to be sent again.
    :ivar expired: transactional ids that were removed.
    """

    committed: int = 0
    aborted: int = 0
    completion_ms: int = 0
    timed_out: int = 0
    fenced: int = 0
    markers: int = 0
    marker_failures: int = 0
    expired: int = 0


class Description(NamedTuple):
    """A transactional id, for DescribeTransactions. :param state: Kafka's name. :param start_ms: wall clock; -1: none."""

    state: str
    timeout_ms: int
    start_ms: int
    producer_id: int
    producer_epoch: int
    places: tuple[TopicPartition, ...]


class Listed(NamedTuple):
    """A transactional id, for ListTransactions."""

    transactional_id: str
    producer_id: int
    state: str


class ListFilter(NamedTuple):
    """The filters of ListTransactions. Empty collections, -1 and None do not filter.

    :param states: names of states. :param longer_than_ms: transactions that began more than this time ago.
    :param matches: returns whether a transactional id matches the pattern of the request.
    """

    states: Sequence[str] = ()
    producer_ids: Sequence[int] = ()
    longer_than_ms: int = -1
    matches: Callable[[str], object] | None = None


EVERYTHING = ListFilter()


class Owner(NamedTuple):
    """The transactional id to which a producer id belongs now.

    :param places: the partitions of its transaction that is ongoing, or whose markers are not all written.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: str
    places: tuple[TopicPartition, ...]
