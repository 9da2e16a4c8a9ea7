"""Writes batches to the target as bytes of Produce requests, and commits them with the positions of the source.

Used in the thread of one lane. A writer lives for one session: after its first error it is not used again, so that no batch
is sent twice and no broker has to find duplicates. Requests are pipelined; each request has one batch of a partition, as the
protocol demands. A `SendWindow` limits how many batches wait for their responses; if there are more, responses are received
before more batches are sent, because a broker that cannot send its responses reads no requests either.
"""

import math
import struct
import sys
import time
from collections import deque
from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

from odradek._ext.records.moved_batches import stamp
from odradek.clients.cluster import Cluster
from odradek.clients.errors import ClientError, RefusedError, UnreachableError, code_of, describe_code
from odradek.clients.wire import Buffer, Connection
from odradek.mirror.commits import FENCED, Commits, Position
from odradek.mirror.leaders import LookedUp, look_up
from odradek.mirror.routes import LaneOptions, Moved, Route
from odradek.mirror.send_window import MOST_REQUEST_BYTES, SendWindow
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import produce
from odradek.topic_partition import TopicPartition

OLDEST, NEWEST = 3, 8
"""Versions of Produce: 3 is the first with batches of format v2, 8 the last that is not flexible."""
LATE_PART = 4
"""An acknowledgement is late after this part of the time that a transaction may be open."""
LAST_SEQUENCE = (1 << 31) - 1
REFUSALS = {
    ErrorCode.MESSAGE_TOO_LARGE: True,
    ErrorCode.RECORD_LIST_TOO_LARGE: True,
    ErrorCode.INVALID_RECORD: True,
    ErrorCode.CORRUPT_MESSAGE: True,
    ErrorCode.INVALID_TIMESTAMP: True,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: False,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: False,
    ErrorCode.INVALID_TOPIC_EXCEPTION: False,
    ErrorCode.INVALID_REQUIRED_ACKS: False,
    ErrorCode.POLICY_VIOLATION: True,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: True,
}
"""Errors that stop a partition, each with whether it may pass, for example because somebody changes the copy. All other errors
end the session, and the lane retries."""
ABSENT = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
"""Errors that stop a partition if they last: a topic that a broker does not know yet, or not any more; no leader, too few
replicas, a full disk."""
OF_CONTENT = frozenset({ErrorCode.INVALID_RECORD, ErrorCode.UNKNOWN_SERVER_ERROR})
"""Errors for records that a broker cannot decompress, such as lz4 frames with linked blocks. Kafka returns the second one."""
_PARTITION = struct.Struct(">ii")
_COUNT = struct.Struct(">i")
_ACKS = struct.Struct(">hii")
_NAME = struct.Struct(">h")


class PartitionRefusedError(ClientError):
    """The target refuses a batch, or the whole partition. :param first_offset: of the batch, in the source.

    :param may_pass: whether it makes sense to try again later. :param soon: it will probably pass within seconds.
    :param of_batch: False: `reason` is the whole sentence, and no batch is concerned.
    :param of_content: whether the target may take the records if they are compressed again.
    """

    def __init__(
        self,
        route: Route,
        first_offset: int,
        reason: str,
        may_pass: bool,
        soon: bool,
        of_batch: bool = True,
        of_content: bool = False,
    ) -> None:
        self.route, self.first_offset, self.may_pass, self.soon = route, first_offset, may_pass, soon
        self.of_batch, self.of_content = of_batch, of_content
        if of_batch:
            place = route.target
            reason = f"the target refuses {place[0]}-{place[1]} at the source's offset {first_offset}: {reason}"
        self.reason = reason
        super().__init__(reason)


class BatchLostError(UnreachableError):
    """The connection ended before the oldest request on it was answered. :param batch: the first one of that request."""

    def __init__(self, batch: "_Batch", reason: str) -> None:
        self.route, self.first_offset, self.size = batch.route, batch.first_offset, batch.size
        super().__init__(reason)


class Outgoing(NamedTuple):
    """A batch to write, with the source's offsets. :param data: format v2, from offset 0 on without gaps; becomes stamped.

    :param max_timestamp: ms.
    """

    route: Route
    data: memoryview
    records: int
    first_offset: int
    next_offset: int
    max_timestamp: int


class _Batch(NamedTuple):
    """A batch in flight, without its bytes. :param compressed: its records are."""

    route: Route
    records: int
    first_offset: int
    next_offset: int
    max_timestamp: int
    size: int
    compressed: bool


class TargetWriter:
    """One session of a lane at the target. Raises ClientError, LaneFencedError, PartitionRefusedError.

    :param data: connections to the target's brokers. :param commits: the coordinators' part of the session.
    :param alone: each batch waits for the acknowledgement of the former one, so that a `BatchLostError` names the right one.
    """

    def __init__(
        self, data: Cluster, commits: Commits, transactional_id: str, options: LaneOptions, alone: bool = False
    ) -> None:
        self._data = data
        self._commits = commits
        self._transactional_id = transactional_id
        self._options = options
        self.alone = alone
        self._acknowledged: set[TopicPartition] = set()
        self._found = LookedUp({}, {})
        self._leaders: dict[TopicPartition, int] = {}
        self._sequences: dict[TopicPartition, int] = {}
        self._queues: dict[TopicPartition, deque[Outgoing]] = {}
        self._in_flight: dict[Connection, deque[list[_Batch]]] = {}
        self._windows: dict[Connection, SendWindow] = {}
        self._since: dict[Connection, float] = {}
        self._late_s = options.transaction_timeout_ms / 1000 / LATE_PART
        self._late_at = 0.0
        self._written: list[Moved] = []
        self.unacknowledged = 0
        self.bytes_sent = 0

    # -- batches --------------------------------------------------------------------------------------------------

    @property
    def connections(self) -> list[Connection]:
        """Connections with batches in flight."""
        return [connection for connection, requests in self._in_flight.items() if requests]

    def due_s(self) -> float | None:
        """The seconds after which `check_time` should be called at the latest; None: nothing is in flight."""
        waiting = self.connections
        if not waiting:
            return None
        return max(0.0, min(self._since[it] for it in waiting) + self._options.request_timeout_s - time.monotonic())

    def check_time(self) -> None:
        """Raise UnreachableError if a broker did not answer in time."""
        for connection in self.connections:
            if time.monotonic() - self._since[connection] > self._options.request_timeout_s:
                raise UnreachableError(
                    f"{connection.address} did not acknowledge a batch within {self._options.request_timeout_s:g} s"
                )

    def put(self, batch: Outgoing) -> None:
        """Queue a batch for `flush`; it gets its header here."""
        place = batch.route.target
        sequence = self._sequences.get(place, 0)
        producer_id, epoch = self._commits.producer
        stamp(
            batch.data,
            0,
            len(batch.data),
            producer_id,
            epoch,
            sequence if producer_id >= 0 else -1,
            self._options.exactly_once,
        )
        self._sequences[place] = (sequence + batch.records) & LAST_SEQUENCE
        queue = self._queues.get(place)
        if queue is None:
            queue = self._queues[place] = deque()
        queue.append(batch)

    def unsent(self, place: TopicPartition) -> int | None:
        """The source's offset of the first batch of a partition that is queued; None if there is none."""
        queue = self._queues.get(place)
        return queue[0].first_offset if queue else None

    def flush(self, due_at: float = math.inf) -> bool:
        """Send queued batches until `due_at`, at least one; return whether all were sent.

        If not, call `commit`, then this again. The memory of their data is free when all were sent.

        :param due_at: monotonic: a target that is slow gets no more in this transaction.
        """
        if not self._queues:
            return True
        if not self.bytes_sent:
            self._late_at = time.monotonic() + self._late_s
        self._find_leaders()
        for place, code in self._commits.join(self._queues).items():
            self._refuse(self._queues[place][0], code, None)
        by_leader: dict[int, list[deque[Outgoing]]] = {}
        for place in sorted(self._queues):
            by_leader.setdefault(self._leaders[place], []).append(self._queues[place])
        for node_id, queues in by_leader.items():
            self._send_to(node_id, queues, due_at)
            if any(queues):
                break
        self._queues = {place: queue for place, queue in self._queues.items() if queue}
        return not self._queues

    def _find_leaders(self) -> None:
        unknown = [place for place in self._queues if place not in self._leaders]
        if not unknown:
            return
        self._found = look_up(self._data, {place[0] for place in (*self._leaders, *unknown)})
        for place in unknown:
            error = self._found.errors.get(place[0])
            if error is not None:
                self._refuse(self._queues[place][0], error, None)
            leader = self._found.leader(place)
            if leader < 0:
                self._refuse(self._queues[place][0], ErrorCode.LEADER_NOT_AVAILABLE, None)
            self._leaders[place] = leader

    def _send_to(self, node_id: int, queues: list[deque[Outgoing]], due_at: float) -> None:
        connection = self._data.broker(node_id)
        connection.streams = True
        version = connection.version_of(produce.SCHEMA, OLDEST, NEWEST)
        requests = self._in_flight.setdefault(connection, deque())
        window = self._windows.setdefault(connection, SendWindow())
        if not requests:
            self._since[connection] = time.monotonic()
        if self.alone or self._commits.producer.producer_id < 0:
            self._send_one_by_one(connection, version, queues, due_at)
            return
        if not self._options.exactly_once:
            self._send_first(connection, version, queues)
        while any(queues):
            while window.crowded:
                self.receive(connection)
                if time.monotonic() >= due_at:
                    return
            bodies = []
            while window.room and (chosen := _next_request(queues, window.request_bytes, window.room)):
                bodies.append(self._body(chosen))
                self._note(connection, chosen)
            self._send(connection, version, bodies)

    def _send_first(self, connection: Connection, version: int, queues: list[deque[Outgoing]]) -> None:
        """Without a transaction, wait for the first acknowledgement of each partition.

        A broker that has nothing of a producer takes any sequence, so a batch behind a refused first one would be appended.
        """
        new = [queue for queue in queues if queue and queue[0].route.target not in self._acknowledged]
        self._acknowledged.update(queue[0].route.target for queue in new)
        self._send_one_by_one(connection, version, [deque([queue.popleft()]) for queue in new], math.inf)

    def _send_one_by_one(
        self, connection: Connection, version: int, queues: list[deque[Outgoing]], due_at: float
    ) -> None:
        """Have one request at a time in flight, because a batch behind a refused one would be appended."""
        requests = self._in_flight[connection]
        while chosen := _next_request(queues, 0 if self.alone else MOST_REQUEST_BYTES):
            self._note(connection, chosen)
            self._send(connection, version, [self._body(chosen)])
            while requests:
                self.receive(connection)
            if time.monotonic() >= due_at:
                return

    def _send(self, connection: Connection, version: int, bodies: list[list[Buffer]]) -> None:
        try:
            connection.send_parts(produce.SCHEMA, version, bodies)
        except UnreachableError as error:
            raise self._lost(connection, error) from error

    def _lost(self, connection: Connection, error: UnreachableError) -> BatchLostError:
        return BatchLostError(self._in_flight[connection][0][0], str(error))

    def _note(self, connection: Connection, chosen: list[Outgoing]) -> None:
        sent, window = [], self._windows[connection]
        for route, data, records, first_offset, next_offset, max_timestamp in chosen:
            size = len(data)
            compressed = data[22] & 7 != 0  # the codec in the attributes
            sent.append(_Batch(route, records, first_offset, next_offset, max_timestamp, size, compressed))
            window.sent(size)
            self.bytes_sent += size
            self.unacknowledged += 1
        self._in_flight[connection].append(sent)

    def _body(self, chosen: list[Outgoing]) -> list[Buffer]:
        """A Produce request, versions 3 to 8; the batches of one topic follow each other in `chosen`."""
        transactional_id = self._transactional_id.encode() if self._options.exactly_once else None
        size = -1 if transactional_id is None else len(transactional_id)
        head = _NAME.pack(size) + (transactional_id or b"")
        timeout_ms = max(1, int(self._options.request_timeout_s * 1000))
        names = [batch.route.target[0] for batch in chosen]
        head += _ACKS.pack(-1, timeout_ms, 1 + sum(a != b for a, b in pairwise(names)))
        parts: list[Buffer] = []
        for index, batch in enumerate(chosen):
            if index == 0 or names[index] != names[index - 1]:
                name = names[index].encode()
                head += _NAME.pack(len(name)) + name + _COUNT.pack(names.count(names[index]))
            parts += (head + _PARTITION.pack(batch.route.target[1], len(batch.data)), batch.data)
            head = b""
        return parts

    def receive_all(self, connection: Connection) -> None:
        """Receive the responses that have arrived on a readable connection."""
        self.receive(connection)
        while connection.buffered and self._in_flight[connection]:
            self.receive(connection)

    def receive(self, connection: Connection) -> None:
        """Receive the response to the oldest request on a connection; waits for it."""
        try:
            response = connection.receive()
        except UnreachableError as error:
            raise self._lost(connection, error) from error
        self._since[connection] = now = time.monotonic()
        window = self._windows[connection]
        batches = {batch.route.target: batch for batch in self._in_flight[connection].popleft()}
        for topic in response.responses:
            for part in topic.partition_responses:
                batch = batches.pop((topic.name, part.index), None)
                if batch is None:
                    raise UnreachableError(
                        f"{connection.address} acknowledged {topic.name}-{part.index}, which was not sent"
                    )
                if part.error_code:
                    self._refuse(batch, code_of(part.error_code), part.error_message)
                window.acknowledged(batch.size, now >= self._late_at)
                self.unacknowledged -= 1
                self._written.append(
                    Moved(
                        batch.route,
                        batch.first_offset,
                        part.base_offset,
                        batch.next_offset,
                        batch.records,
                        batch.size,
                        batch.max_timestamp,
                    )
                )
        if batches:
            name, number = next(iter(batches))
            raise UnreachableError(f"{connection.address} did not acknowledge {name}-{number}, which was sent")

    def _refuse(self, batch: _Batch | Outgoing, code: ErrorCode, message: str | None) -> None:
        """Raise the error for a batch that was not written."""
        reason = f"{message} ({code.name})" if message else describe_code(code)
        if code in FENCED:
            raise self._commits.fenced(reason)
        if code in REFUSALS or code in ABSENT:
            raise PartitionRefusedError(
                batch.route,
                batch.first_offset,
                reason,
                REFUSALS.get(code, True),
                code in ABSENT,
                of_content=code in OF_CONTENT and isinstance(batch, _Batch) and batch.compressed,
            )
        name, number = batch.route.target
        raise RefusedError(code, reason, f"{name}-{number} of the target")

    # -- commit ---------------------------------------------------------------------------------------------------

    def commit(self, positions: Mapping[TopicPartition, Position]) -> list[Moved]:
        """Wait for all acknowledgements and commit them with these positions; return what was written, in order.

        :param positions: by target partition. If this raises, the outcome is unknown; the next session reads the positions.
        """
        self._commits.commit(positions, self._receive_all)
        written, self._written = self._written, []
        self.bytes_sent = 0
        return written

    def _receive_all(self) -> None:
        for connection, requests in self._in_flight.items():
            while requests:
                self.receive(connection)


def _next_request(queues: list[deque[Outgoing]], limit: int, most: int = sys.maxsize) -> list[Outgoing]:
    """One batch of each partition, up to `limit` bytes and `most` batches; at least one, if there is any."""
    chosen: list[Outgoing] = []
    size = 0
    for queue in queues:
        if not queue:
            continue
        size += len(queue[0].data)
        if chosen and (size > limit or len(chosen) == most):
            break
        chosen.append(queue.popleft())
    return chosen
