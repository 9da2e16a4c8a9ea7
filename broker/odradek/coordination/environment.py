"""Interfaces of the coordinators of groups and of transactions: a clock with timers, and the log that makes changes durable.

The coordinator process passes real implementations, tests pass simulated ones. Used in one thread.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

from odradek.protocol.errors import ErrorCode

Record = tuple[bytes, bytes | None]
"""Key and value of a record of an internal topic; a value of None is a tombstone."""

NO_PRODUCER = -1


class LogBatch(NamedTuple):
    """A batch of an internal topic during a load: records of one transaction, records outside of transactions, or the end
    marker of a transaction.

    :param producer_id: the producer of the transaction; NO_PRODUCER for records outside of transactions.
    :param offsets: the offsets of the records, if they belong to a transaction.
    :param commits: for an end marker, whether it commits the transaction; None for records.
    """

    records: list[Record]
    producer_id: int = NO_PRODUCER
    offsets: Sequence[int] = ()
    commits: bool | None = None


class EndMarker(NamedTuple):
    """The end marker of a transaction, to be appended.

    :param commits: whether it commits the transaction.
    :param transaction_version: the level of the feature `transaction.version` in which the transaction was ended: 0, 1 or 2.
    :param first_offset: of the transaction. If another one is open, or none, the partition refuses the marker with
        INVALID_TXN_STATE. -1: the marker ends the transaction that is open.
    """

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commits: bool
    transaction_version: int
    first_offset: int = -1


AppendCallback = Callable[[ErrorCode], None]
LateCallback = Callable[[], None] | None
OffsetCallback = Callable[[ErrorCode, int], None]
"""Receives the error and the offset in the log."""


class Timer(Protocol):
    """A scheduled call."""

    def cancel(self) -> None:
        """Cancel the call; no effect after the call."""


class Timers(Protocol):
    """The clock."""

    def now_ms(self) -> int:
        """Monotonic time in ms, for timeouts."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970, for stored timestamps."""

    def call_at(self, when_ms: int, action: Callable[[], None]) -> Timer:
        """Call `action` once `now_ms` has reached `when_ms`, never within this call."""


class Records(Protocol):
    """Records to be appended. Their number is known; the records themselves are made during the iteration."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Record]: ...


class GroupLog(Protocol):
    """One partition of an internal topic that this broker leads."""

    def append(self, records: Records, then: AppendCallback, late: LateCallback = None) -> None:
        """Append the records atomically, as one batch or together with others.

        `then` is called once, in the order of appends: NONE when all in-sync replicas have the records, otherwise the error for
        the client (COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, INVALID_COMMIT_OFFSET_SIZE ...); the log then never has any of
        the records. Without records, it waits until all earlier appends are acknowledged, which may be at once.

        :param late: called at most once, before `then`, if the replicas take longer than `offsets.commit.timeout.ms`: the
            client then gets the timeout error, whatever the outcome of the append.
        """


class OffsetsLog(GroupLog, Protocol):
    """A log that also contains records of transactions, and their end markers. All verbs write in the order of their calls."""

    def append_transactional(
        self,
        records: Records,
        producer_id: int,
        producer_epoch: int,
        then: OffsetCallback,
        late: LateCallback = None,
    ) -> None:
        """Append records of a producer's transaction, like `append`.

        `then` also receives the offset of the first record. An offset together with an error means that the log contains the
        records, but too few replicas are in sync to acknowledge them. -1: the log does not contain them.
        """

    def append_marker(self, marker: EndMarker, then: OffsetCallback) -> None:
        """Append the end marker of a transaction.

        `then` is called like that of `append_transactional`. After INVALID_PRODUCER_EPOCH and TRANSACTION_COORDINATOR_FENCED, a
        repetition of the marker would fail, too. NONE with the offset -1: the marker is not written, because an earlier marker
        has ended the transaction.
        """


class Waiter:
    """The callback of a request that waits for an append; called once, with the outcome or with a timeout."""

    def __init__(self, then: AppendCallback) -> None:
        self._then: AppendCallback | None = then

    def __call__(self, error: ErrorCode) -> None:
        then, self._then = self._then, None
        if then is not None:
            then(error)

    def late(self) -> None:
        """Answer with Kafka's error for a timeout of the append."""
        self(ErrorCode.COORDINATOR_NOT_AVAILABLE)


class Deadline:
    """A timeout that is moved often and fires seldom. No timer is created when it is moved to a later time."""

    def __init__(self, timers: Timers, action: Callable[[], None]) -> None:
        self._timers = timers
        self._action = action
        self._timer: Timer | None = None
        self._set_for_ms = 0
        self.when_ms: int | None = None

    def set(self, when_ms: int) -> None:
        """Fire at `when_ms`; replaces the former time."""
        self.when_ms = when_ms
        if self._timer is not None:
            if self._set_for_ms <= when_ms:
                return
            self._timer.cancel()
        self._set_for_ms = when_ms
        self._timer = self._timers.call_at(when_ms, self._fired)

    def suspend(self) -> None:
        """Do not fire until `set` is called again. The timer is kept, because `set` is usually called soon."""
        self.when_ms = None

    def clear(self) -> None:
        """Do not fire; cancel the timer."""
        self.when_ms = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _fired(self) -> None:
        self._timer = None
        if self.when_ms is None:
            return
        if self._timers.now_ms() < self.when_ms:
            self._set_for_ms = self.when_ms
            self._timer = self._timers.call_at(self.when_ms, self._fired)
            return
        self.when_ms = None
        self._action()
