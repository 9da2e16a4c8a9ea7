"""Reads partitions from their leaders, from given offsets on, without a group.

Used in one thread of a client's process. At each leader one Fetch request waits for records. A leader that moved or cannot be
reached is looked up again after a pause, for as long as the caller goes on.
"""

import select
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from odradek.clients import topics
from odradek.clients.cluster import Cluster
from odradek.clients.errors import Refused, Unreachable, code_of
from odradek.clients.wire import Connection, Readable
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import fetch

OLDEST, NEWEST = 4, 12
"""Versions of Fetch: 4 is the first with batches of format v2, 12 the last that names topics."""
WAIT_MS = 500
MAX_BYTES, PARTITION_MAX_BYTES = 16 << 20, 1 << 20
PAUSE_S = 0.1
MISSING_S = 5.0
"""How long a topic may be missing from Metadata before it counts as deleted: a broker may not know it yet when it starts."""
LOOK_AGAIN = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
    }
)
"""Answers after which the partition's leader is looked up, and asked again."""

Place = tuple[str, int]


class Fetched(NamedTuple):
    """What came of a partition. :param aborted: (producer id, first offset) of the aborted transactions among `records`."""

    place: Place
    records: memoryview
    aborted: list[tuple[int, int]]


class _Asked(NamedTuple):
    """A Fetch request without a response. :param deadline: monotonic time, after which the leader counts as unreachable."""

    node_id: int
    deadline: float


class Fetcher:
    """:param positions: the next offset of each partition; the caller moves them with `advance`.

    :param committed_only: up to the last stable offset only. :param warn: gets a line when a broker cannot be reached, once for
    as long as that lasts.
    """

    def __init__(
        self, cluster: Cluster, positions: Mapping[Place, int], committed_only: bool, warn: Callable[[str], None]
    ) -> None:
        self._cluster = cluster
        self._positions = dict(positions)
        self._committed_only = committed_only
        self._warn = warn
        self._warned = False
        self._leaders: dict[int, list[Place]] = {}
        self._asked: dict[Connection, _Asked] = {}
        self._look_at: float | None = 0.0
        self._missing_since: float | None = None

    def advance(self, place: Place, position: int) -> None:
        """Go on from there."""
        self._positions[place] = position

    def drop(self, place: Place) -> None:
        """Read no more of this partition."""
        self._positions.pop(place, None)
        for places in self._leaders.values():
            if place in places:
                places.remove(place)

    def poll(self, timeout_s: float, wake: Sequence[Readable] = ()) -> Iterator[Fetched]:
        """What has come by now, or comes within the time; nothing once one of `wake` is readable. Raises ClientError."""
        if self._look_at is not None and time.monotonic() >= self._look_at:
            self._look()
        for node_id in [node for node, places in self._leaders.items() if places]:
            if all(asked.node_id != node_id for asked in self._asked.values()):
                self._ask(node_id)
        due = [asked.deadline for asked in self._asked.values()]
        due += [] if self._look_at is None else [self._look_at]
        if due:
            timeout_s = max(0.0, min(timeout_s, min(due) - time.monotonic()))
        ready, _, _ = select.select([*wake, *self._asked], [], [], timeout_s)
        if any(descriptor in ready for descriptor in wake):
            return
        for connection in [connection for connection in self._asked if connection in ready]:
            yield from self._receive(connection)
        self._give_up_late_ones()

    def _give_up_late_ones(self) -> None:
        """A leader that does not answer in time is treated as one that cannot be reached: others may lead its partitions."""
        now = time.monotonic()
        for connection, asked in list(self._asked.items()):
            if now >= asked.deadline:
                del self._asked[connection]
                self._lose(asked.node_id, Unreachable(f"{connection.address} does not answer a Fetch request in time"))

    def _look(self) -> None:
        """Find the leaders of all partitions."""
        try:
            there = self._cluster.metadata(sorted({name for name, _ in self._positions})).topics
        except Unreachable as error:
            self._trouble(error)
            return
        self._look_at = None
        self._leaders = {}
        self._require(sorted({name for name, _ in self._positions} - set(there)))
        for place in self._positions:
            name, number = place
            partitions = there[name].partitions if name in there else ()
            leader = next((partition.leader for partition in partitions if partition.number == number), -1)
            if leader >= 0:
                self._leaders.setdefault(leader, []).append(place)
            else:
                self._look_soon()

    def _require(self, missing: list[str]) -> None:
        """Raises Refused if topics have been missing from Metadata for too long."""
        if not missing:
            self._missing_since = None
            return
        now = time.monotonic()
        if self._missing_since is None:
            self._missing_since = now
        if now - self._missing_since >= MISSING_S:
            raise Refused(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic '{missing[0]}' was deleted while it was being read"
            )

    def _look_soon(self) -> None:
        if self._look_at is None:
            self._look_at = time.monotonic() + PAUSE_S

    def _trouble(self, error: Unreachable) -> None:
        self._look_at = time.monotonic() + PAUSE_S
        if not self._warned:
            self._warn(f"{error}; trying again")
        self._warned = True

    def _ask(self, node_id: int) -> None:
        topics: dict[str, list[Any]] = {}
        make = fetch.Request
        for name, number in self._leaders[node_id]:
            topics.setdefault(name, []).append(
                make.FetchPartition(
                    partition=number,
                    fetch_offset=self._positions[name, number],
                    partition_max_bytes=PARTITION_MAX_BYTES,
                )
            )
        request = make(
            max_wait_ms=WAIT_MS,
            min_bytes=1,
            max_bytes=MAX_BYTES,
            isolation_level=int(self._committed_only),
            topics=[make.FetchTopic(topic=name, partitions=partitions) for name, partitions in topics.items()],
        )
        try:
            connection = self._cluster.broker(node_id)
            connection.send(fetch.SCHEMA, request, version=connection.version_of(fetch.SCHEMA, OLDEST, NEWEST))
        except Unreachable as error:
            self._lose(node_id, error)
        else:
            self._asked[connection] = _Asked(node_id, time.monotonic() + WAIT_MS / 1000 + self._cluster.timeout_s)

    def _lose(self, node_id: int, error: Unreachable) -> None:
        """The broker cannot be reached: look up which brokers lead its partitions, after a pause."""
        self._cluster.forget(node_id)
        self._leaders.pop(node_id, None)
        self._trouble(error)

    def _receive(self, connection: Connection) -> Iterator[Fetched]:
        node_id = self._asked.pop(connection).node_id
        try:
            answer = connection.receive()
        except Unreachable as error:
            self._lose(node_id, error)
            return
        self._warned = False
        if answer.error_code:
            raise Refused(answer.error_code, what=f"Fetch at {connection.address}")
        for topic in answer.responses:
            for part in topic.partitions:
                place = topic.topic, part.partition_index
                if place not in self._positions:
                    continue
                if part.error_code:
                    self._judge(node_id, place, part)
                elif part.records:
                    aborted = [(one.producer_id, one.first_offset) for one in part.aborted_transactions or ()]
                    before = self._positions[place]
                    yield Fetched(place, part.records, aborted)
                    if self._positions.get(place) != before:
                        self._ask_last(node_id, place)

    def _ask_last(self, node_id: int, place: Place) -> None:
        """A response is filled in the order of the request: partitions that sent no whole batch come first next time.

        Only the first one is sent a batch that is larger than the request allows.
        """
        places = self._leaders.get(node_id, [])
        if place in places:
            places.remove(place)
            places.append(place)

    def _log_start_offset(self, place: Place) -> int:
        """The first offset of a partition; -1 if that cannot be found out. A Fetch response with an error does not have it."""
        name, number = place
        partitions = [
            part for topic in self._cluster.topics([name]) for part in topic.partitions if part.number == number
        ]
        found = topics.list_offsets(self._cluster, partitions, topics.EARLIEST).get(place)
        return -1 if found is None else found.offset

    def _judge(self, node_id: int, place: Place, part: Any) -> None:
        """An error of a partition, which is not asked for until its leader was looked up. Raises Refused for other errors."""
        code = code_of(part.error_code)
        if code in LOOK_AGAIN:
            if place in self._leaders.get(node_id, ()):
                self._leaders[node_id].remove(place)
            self._look_soon()
            return
        name = f"{place[0]}-{place[1]}"
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            position, start = self._positions[place], self._log_start_offset(place)
            what = f"there is no offset {position} in {name}"
            if position < start:
                what += f": its records before offset {start} were deleted"
            raise Refused(code, what)
        raise Refused(code, what=name)
