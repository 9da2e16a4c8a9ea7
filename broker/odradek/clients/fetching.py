"""Reads partitions from their leaders, from given offsets on, without a group.

Used in one thread of a client's process. Each leader has one Fetch request in flight. When a leader moves or is
unreachable, the fetcher looks up the leaders again after a pause, as long as the caller keeps polling.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from odradek.clients import topics
from odradek.clients.cluster import Cluster
from odradek.clients.errors import RefusedError, UnreachableError, code_of
from odradek.clients.fetch_deadline import FetchDeadline
from odradek.clients.partition_leaders import STALE_LEADER, MissingTopic, PartitionLeaders
from odradek.clients.wire import Connection, Readable, which_readable
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import fetch
from odradek.topic_partition import TopicPartition

OLDEST, NEWEST = 4, 12
"""Versions of Fetch: 4 is the first with batches of format v2, 12 the last that names topics."""
WAIT_MS = 500
MAX_BYTES, PARTITION_MAX_BYTES = 16 << 20, 1 << 20


class OffsetOutOfRangeError(RefusedError):
    """The leader of a partition has no records at the position. :param start: its log start offset; -1 if it is unknown."""

    def __init__(self, place: TopicPartition, position: int, start: int) -> None:
        self.position, self.start = position, start
        text = f"{place[0]}-{place[1]} has no offset {position}"
        if position < start:
            text += f": its records before offset {start} were deleted"
        super().__init__(ErrorCode.OFFSET_OUT_OF_RANGE, text)


class FetchedRecords(NamedTuple):
    """Records of a partition. :param aborted: (producer id, first offset) of the aborted transactions in `records`."""

    place: TopicPartition
    records: memoryview
    aborted: list[tuple[int, int]]


class _PendingFetch(NamedTuple):
    """A Fetch request without a response."""

    node_id: int
    deadline: FetchDeadline


class Fetcher:
    """Fetches records from the leaders of partitions.

    :param positions: the next offset of each partition; the caller moves them with `advance`.
    :param committed_only: read up to the last stable offset only.
    :param warn: receives one line when a broker becomes unreachable.
    """

    def __init__(
        self,
        cluster: Cluster,
        positions: Mapping[TopicPartition, int],
        committed_only: bool,
        warn: Callable[[str], None],
    ) -> None:
        self._cluster = cluster
        self._positions = dict(positions)
        self._committed_only = committed_only
        self._leaders = PartitionLeaders(cluster, warn)
        self._leaders.look_at = 0.0
        self._missing = MissingTopic()
        self._pending: dict[Connection, _PendingFetch] = {}

    def advance(self, place: TopicPartition, position: int) -> None:
        """Continue at `position`."""
        self._positions[place] = position

    def add(self, positions: Mapping[TopicPartition, int]) -> None:
        """Also read these partitions, from these offsets on."""
        self._positions.update(positions)
        self._leaders.look_at = 0.0

    def drop(self, place: TopicPartition) -> None:
        """Stop reading a partition."""
        self._positions.pop(place, None)
        self._leaders.drop(place)

    def close(self) -> None:
        """Give up the requests in flight: close their connections, which other requests cannot use."""
        for pending in self._pending.values():
            self._cluster.forget(pending.node_id)
        self._pending.clear()

    def poll(self, timeout_s: float, wake: Sequence[Readable] = ()) -> Iterator[FetchedRecords]:
        """Yield records that arrive within `timeout_s`; return at once when a `wake` descriptor is readable.

        Raises ClientError.
        """
        if self._leaders.due:
            self._look_up_leaders()
        self.request()
        due = [pending.deadline.at for pending in self._pending.values()]
        due += [] if self._leaders.look_at is None else [self._leaders.look_at]
        if due:
            timeout_s = max(0.0, min(timeout_s, min(due) - time.monotonic()))
        buffered = [connection for connection in self._pending if connection.buffered]
        ready = which_readable([*wake, *self._pending], 0 if buffered else timeout_s)
        ready += [connection for connection in buffered if connection not in ready]
        if any(descriptor in ready for descriptor in wake):
            return
        for connection in [connection for connection in self._pending if connection in ready]:
            yield from self._receive(connection)
        self._drop_timed_out()

    def request(self) -> None:
        """Send a Fetch request to each leader that has none in flight. `poll` does so too; a caller that calls this after
        `advance`, and before it uses the records, lets the leaders read meanwhile."""
        for node_id in [node for node, places in self._leaders.led.items() if places]:
            if all(pending.node_id != node_id for pending in self._pending.values()):
                self._send_fetch(node_id)

    def _drop_timed_out(self) -> None:
        """Treat a leader that does not answer in time as unreachable: other brokers may lead its partitions by now."""
        for connection, pending in list(self._pending.items()):
            if pending.deadline.missed():
                del self._pending[connection]
                self._leaders.lose(
                    pending.node_id, UnreachableError(f"{connection.address} did not answer a Fetch request in time")
                )

    def _look_up_leaders(self) -> None:
        """Find the leaders of all partitions."""
        try:
            topics_by_name = self._cluster.metadata(sorted({name for name, _ in self._positions})).topics
        except UnreachableError as error:
            self._leaders.unreachable(error)
            return
        self._leaders.look_at = None
        self._leaders.led = {}
        self._check_missing(sorted({name for name, _ in self._positions} - set(topics_by_name)))
        for place in self._positions:
            name, number = place
            partitions = topics_by_name[name].partitions if name in topics_by_name else ()
            leader = next((partition.leader for partition in partitions if partition.number == number), -1)
            if leader >= 0:
                self._leaders.led.setdefault(leader, []).append(place)
            else:
                self._leaders.schedule()

    def _check_missing(self, missing: list[str]) -> None:
        """Raise RefusedError if topics have been missing from Metadata for MISSING_S."""
        if self._missing.deleted(bool(missing)):
            raise RefusedError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic '{missing[0]}' was deleted while it was being read"
            )

    def _send_fetch(self, node_id: int) -> None:
        topics: dict[str, list[Any]] = {}
        make = fetch.Request
        for name, number in self._leaders.led[node_id]:
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
        except UnreachableError as error:
            self._leaders.lose(node_id, error)
        else:
            deadline = FetchDeadline(connection, WAIT_MS / 1000, self._cluster.timeout_s)
            self._pending[connection] = _PendingFetch(node_id, deadline)

    def _receive(self, connection: Connection) -> Iterator[FetchedRecords]:
        node_id = self._pending[connection].node_id
        try:
            if not connection.advance():
                return
            response = connection.receive()
        except UnreachableError as error:
            del self._pending[connection]
            self._leaders.lose(node_id, error)
            return
        del self._pending[connection]
        self._leaders.answered()
        if response.error_code:
            raise RefusedError(response.error_code, what=f"Fetch at {connection.address}")
        for topic in response.responses:
            for part in topic.partitions:
                place = topic.topic, part.partition_index
                if place not in self._positions:
                    continue
                if part.error_code:
                    self._handle_error(node_id, place, part)
                elif part.records:
                    aborted = [
                        (transaction.producer_id, transaction.first_offset)
                        for transaction in part.aborted_transactions or ()
                    ]
                    before = self._positions[place]
                    yield FetchedRecords(place, part.records, aborted)
                    if self._positions.get(place) != before:
                        self._leaders.move_to_end(node_id, place)

    def _log_start_offset(self, place: TopicPartition) -> int:
        """The log start offset of a partition; -1 if it is unknown. A Fetch response with an error does not contain it."""
        name, number = place
        with self._cluster.another() as cluster:  # a Fetch may be in flight to the leader
            partitions = [
                part for topic in cluster.topics([name]) for part in topic.partitions if part.number == number
            ]
            start = topics.list_offsets(cluster, partitions, topics.EARLIEST).get(place)
        return -1 if start is None else start.offset

    def _handle_error(self, node_id: int, place: TopicPartition, part: Any) -> None:
        """Pause a partition whose leader is stale until the leaders are looked up. Raises Refused for other errors."""
        code = code_of(part.error_code)
        if code in STALE_LEADER:
            self._leaders.pause(node_id, place)
            return
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            raise OffsetOutOfRangeError(place, self._positions[place], self._log_start_offset(place))
        raise RefusedError(code, what=f"{place[0]}-{place[1]}")
