"""What groups are handed from outside: a clock with timers, the log that makes changes durable, the topics, ids.

The coordinator process gives real ones; tests give ones that they step by hand. Used in one thread.
"""

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

from odradek.protocol.errors import ErrorCode

Record = tuple[bytes, bytes | None]
"""Key and value of a record of `__consumer_offsets`; a value of None is a tombstone."""

NO_PRODUCER = -1


class LogBatch(NamedTuple):
    """Records of `__consumer_offsets` as they are read at a load: those of a transaction, or of none; or a transaction's end.

    :param producer_id: of the transaction; NO_PRODUCER for records outside of transactions.
    :param offsets: of the records, if they are a transaction's.
    :param commits: None for records; whether an end marker commits the transaction.
    """

    records: list[Record]
    producer_id: int = NO_PRODUCER
    offsets: Sequence[int] = ()
    commits: bool | None = None


AppendCallback = Callable[[ErrorCode], None]
LateCallback = Callable[[], None] | None


class Timer(Protocol):
    """A call that is due later."""

    def cancel(self) -> None:
        """Not to be called any more; nothing if it was."""


class Timers(Protocol):
    """The clock."""

    def now_ms(self) -> int:
        """Monotonic, for time-outs."""

    def wall_ms(self) -> int:
        """Since 1970, for what is stored."""

    def call_at(self, when_ms: int, action: Callable[[], None]) -> Timer:
        """Call `action` once `now_ms` has reached `when_ms`, never within this call."""


class Records(Protocol):
    """Records to be appended: their number is known, and they are made when they are needed."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Record]: ...


class GroupLog(Protocol):
    """One partition of `__consumer_offsets` that this broker leads."""

    def append(self, records: Records, then: AppendCallback, late: LateCallback = None) -> None:
        """Append the records as one batch or joined with others, all or none; `then` is called once, in order of the
        appends: NONE when all in-sync replicas have them, else the error for the client (COORDINATOR_NOT_AVAILABLE,
        NOT_COORDINATOR, INVALID_COMMIT_OFFSET_SIZE ...), and then none of them is or will be there.

        Without records it waits for all that was appended before; at once, where that is acknowledged.

        :param late: called at most once, before `then`, if the replicas take longer than `offsets.commit.timeout.ms`: the
            client is to be told so, whatever comes of the records.
        """


class Waiter:
    """Who waits for an append: told once, of its outcome, or before that it takes too long."""

    def __init__(self, then: AppendCallback) -> None:
        self._then: AppendCallback | None = then

    def __call__(self, error: ErrorCode) -> None:
        then, self._then = self._then, None
        if then is not None:
            then(error)

    def late(self) -> None:
        """The append takes too long; as Kafka says it."""
        self(ErrorCode.COORDINATOR_NOT_AVAILABLE)


class Topics(Protocol):
    """The topics there are."""

    @property
    def version(self) -> int:
        """Another one after every change of them."""

    def names(self) -> Iterable[str]:
        """All of them."""

    def in_store(self) -> frozenset[str] | None:
        """Names of all that the metadata store knows, also of those that are not served here; None: that is not known now."""

    def find(self, name: str) -> tuple[bytes, int] | None:
        """Id and number of partitions."""

    def name_of(self, topic_id: bytes) -> str | None:
        """The name of a topic by its id."""


def new_member_id(client_id: str | None) -> str:
    """As Kafka makes them: the client's name, so that people recognise it, and a uuid."""
    return f"{client_id or ''}-{uuid.uuid4()}"


class Deadline:
    """A time-out that is often moved and seldom reached: moving it costs no timer."""

    def __init__(self, timers: Timers, action: Callable[[], None]) -> None:
        self._timers = timers
        self._action = action
        self._timer: Timer | None = None
        self._set_for_ms = 0
        self.when_ms: int | None = None

    def set(self, when_ms: int) -> None:
        """Fire at `when_ms` instead of whatever was set."""
        self.when_ms = when_ms
        if self._timer is not None:
            if self._set_for_ms <= when_ms:
                return
            self._timer.cancel()
        self._set_for_ms = when_ms
        self._timer = self._timers.call_at(when_ms, self._fired)

    def suspend(self) -> None:
        """Do not fire until it is set again, which is soon: the timer stays for that."""
        self.when_ms = None

    def clear(self) -> None:
        """Do not fire, and hold nothing."""
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
