"""Sends record batches to the leaders of one topic's partitions, in order, and retries each until it is acknowledged.

Used in one thread of a client's process. With acks=all the producer is idempotent if the cluster allows it: several
requests are in flight to each leader, and retries neither duplicate nor reorder records. Otherwise one request at a time is
in flight, so that retries do not reorder records; a retry after a lost connection may duplicate them.
"""

import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from odradek.clients.cluster import Cluster
from odradek.clients.errors import ClientError, RefusedError, UnreachableError, code_of
from odradek.clients.wire import Connection
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import init_producer_id, produce
from odradek.storage.batch import read_batch

OLDEST, NEWEST = 3, 12
"""Versions of Produce: 3 is the first with batches of format v2, 12 the last that names topics."""
MOST_REQUESTS = 5
"""Requests in flight to a leader: a leader remembers this many batches of an idempotent producer."""
REQUEST_BYTES = 4 << 20
PAUSE_S = 0.1
SHOWN_BYTES = 40
"""Bytes of the key and of the value in the error for a refused record."""
LAST_SEQUENCE = NO_TRANSACTION_MS = (1 << 31) - 1
RETRIABLE = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    }
)
"""Errors after which a batch is sent again."""


@dataclass(eq=False, slots=True)
class Batch:
    """An encoded record batch. :param sequence: of its first record; -1 without a producer id."""

    data: bytes
    records: int
    sequence: int


class _Queue:
    """The unacknowledged batches of a partition, in order.

    `sent` batches are in flight; `held`: a batch failed, and all are sent again after the batches in flight are answered;
    `since`: monotonic time of the last progress; `refusal`: why there has been none since then, for the user; "" if unknown.
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.batches: deque[Batch] = deque()
        self.sent = 0
        self.held = False
        self.next_sequence = 0
        self.since = 0.0
        self.refusal = ""


class _Request(NamedTuple):
    """A Produce request without a response."""

    batches: list[tuple[_Queue, Batch]]


class Sender:
    """Sends batches to the partitions of a topic. Raises ClientError.

    :param partitions: number of partitions of the topic. :param acks: -1, 1 or 0.
    :param timeout_s: the longest time without an acknowledgement from a partition that has batches.
    :param seal: encodes (BatchBuilder, producer id, epoch, sequence) as a batch.
    :param warn: receives one line when a broker becomes unreachable.
    :param oldest: the oldest version of Produce that the caller can use.
    """

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        partitions: int,
        acks: int,
        timeout_s: float,
        seal: Callable[[Any, int, int, int], bytes],
        warn: Callable[[str], None],
        oldest: int = OLDEST,
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._acks = acks
        self._timeout_s = timeout_s
        self._seal = seal
        self._warn = warn
        self._oldest = oldest
        self._warned = False
        self._queues = [_Queue(number) for number in range(partitions)]
        self._leaders: dict[int, int] = {}
        self._look_at: float | None = 0.0
        self._in_flight: dict[Connection, deque[_Request]] = {}
        self._nodes: dict[Connection, int] = {}
        self._producer = _producer_id(cluster) if acks == -1 else (-1, -1)
        self._most_requests = MOST_REQUESTS if self._producer[0] >= 0 else 1
        self.acknowledged = 0
        self.waiting_bytes = 0
        self.waiting_records = 0

    @property
    def connections(self) -> list[Connection]:
        """Connections with requests in flight."""
        return [connection for connection, requests in self._in_flight.items() if requests]

    def put(self, partition: int, builder: Any) -> None:
        """Queue the next batch of a partition. :param builder: a BatchBuilder."""
        queue = self._queues[partition]
        producer_id, epoch = self._producer
        sequence = queue.next_sequence if producer_id >= 0 else -1
        data = self._seal(builder, producer_id, epoch, sequence)
        queue.next_sequence = (queue.next_sequence + builder.count) & LAST_SEQUENCE
        if not queue.batches:
            queue.since = time.monotonic()
        queue.batches.append(Batch(data, builder.count, sequence))
        self.waiting_bytes += len(data)
        self.waiting_records += builder.count

    def send(self) -> float | None:
        """Send what can be sent now; return the seconds after which to call it again at the latest. Raises ClientError."""
        now = time.monotonic()
        waiting = [queue for queue in self._queues if queue.batches]
        self._check_progress(waiting, now)
        if self._look_at is not None and now >= self._look_at and waiting:
            self._look_up_leaders()
        for node_id, queues in self._ready(waiting):
            self._send_to(node_id, queues)
        if not waiting:
            return None
        due = [queue.since + self._timeout_s for queue in waiting]
        due += [] if self._look_at is None else [self._look_at]
        return max(0.0, min(due) - now)

    def _check_progress(self, waiting: list[_Queue], now: float) -> None:
        for queue in waiting:
            if now - queue.since > self._timeout_s:
                raise ClientError(
                    f"{self._topic}-{queue.number} acknowledged no batch for {self._timeout_s:g} s;"
                    f" {queue.refusal or 'use a larger --timeout'}"
                )

    def _ready(self, waiting: list[_Queue]) -> Iterator[tuple[int, list[_Queue]]]:
        """Yield each leader with the partitions that have a batch to send."""
        ready: dict[int, list[_Queue]] = {}
        for queue in waiting:
            if queue.sent < len(queue.batches) and not queue.held and queue.number in self._leaders:
                ready.setdefault(self._leaders[queue.number], []).append(queue)
        yield from ready.items()

    def _send_to(self, node_id: int, queues: list[_Queue]) -> None:
        try:
            connection = self._cluster.broker(node_id)
            version = connection.version_of(produce.SCHEMA, self._oldest, NEWEST)
            requests = self._in_flight.setdefault(connection, deque())
            self._nodes[connection] = node_id
            while len(requests) < self._most_requests and (request := self._next_request(queues)).batches:
                requests.append(request)
                connection.send(produce.SCHEMA, self._message(request), version=version, answered=self._acks != 0)
                if self._acks == 0:
                    for queue, batch in requests.pop().batches:
                        self._remove_acknowledged(queue, batch)
        except UnreachableError as error:
            self._lose(node_id, error)

    def _next_request(self, queues: list[_Queue]) -> _Request:
        """A request with one batch of each partition, up to REQUEST_BYTES."""
        chosen: list[tuple[_Queue, Batch]] = []
        size = 0
        for queue in queues:
            if queue.sent == len(queue.batches):
                continue
            batch = queue.batches[queue.sent]
            if chosen and size + len(batch.data) > REQUEST_BYTES:
                break
            size += len(batch.data)
            queue.sent += 1
            chosen.append((queue, batch))
        return _Request(chosen)

    def _message(self, request: _Request) -> Any:
        make = produce.Request
        partitions = [
            make.PartitionProduceData(index=queue.number, records=batch.data) for queue, batch in request.batches
        ]
        return make(
            acks=self._acks,
            timeout_ms=max(1, int(self._timeout_s * 1000)),
            topic_data=[make.TopicProduceData(name=self._topic, partition_data=partitions)],
        )

    def receive(self, connection: Connection) -> None:
        """Read a response from a readable connection. Raises ClientError."""
        try:
            response = connection.receive()
        except UnreachableError as error:
            self._lose(self._nodes[connection], error)
            return
        self._warned = False
        request = self._in_flight[connection].popleft()
        results = {part.index: part for topic in response.responses for part in topic.partition_responses}
        for queue, batch in request.batches:
            self._handle_result(queue, batch, results.get(queue.number))

    def _handle_result(self, queue: _Queue, batch: Batch, result: Any) -> None:
        """Handle the result of a batch; None if the response does not contain the partition. Raises RefusedError."""
        code = ErrorCode.NETWORK_EXCEPTION if result is None else code_of(result.error_code)
        first = bool(queue.batches) and batch is queue.batches[0]
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self._remove_acknowledged(queue, batch)
        elif code in RETRIABLE or (code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and not first):
            # The leader refuses the following batches in flight for their sequence. All are sent again when all are answered.
            queue.held = True
            queue.sent -= 1
            if result is not None and code in RETRIABLE:
                queue.refusal = f"the leader's last error is {code.name}: {result.error_message or code.message}"
            self._schedule_look_up()
        else:
            place = f"{self._topic}-{queue.number}"
            for record_error in result.record_errors or ():
                reason = record_error.batch_index_error_message or result.error_message
                raise RefusedError(
                    code, reason, f"{place} refused the record {_excerpt(batch, record_error.batch_index)}"
                )
            plural = "" if batch.records == 1 else "s"
            raise RefusedError(code, result.error_message, f"{place} refused {batch.records:,} record{plural}")

    def _remove_acknowledged(self, queue: _Queue, batch: Batch) -> None:
        """Remove an acknowledged batch.

        With acks=all acknowledgements are in order, because a leader accepts sequences in order.
        """
        queue.batches.remove(batch)
        queue.sent -= 1
        queue.since = time.monotonic()
        queue.refusal = ""
        self.acknowledged += batch.records
        self.waiting_bytes -= len(batch.data)
        self.waiting_records -= batch.records

    def _lose(self, node_id: int, error: UnreachableError) -> None:
        """The leader is unreachable: look up the leaders again and resend its unacknowledged batches to them."""
        for connection in [connection for connection, node in self._nodes.items() if node == node_id]:
            for request in self._in_flight.pop(connection, ()):
                for queue, batch in request.batches:
                    if batch in queue.batches:
                        queue.held = True
                        queue.sent -= 1
                        queue.refusal = f"the last error is: {error}"
            del self._nodes[connection]
        self._cluster.forget(node_id)
        self._leaders = {number: node for number, node in self._leaders.items() if node != node_id}
        self._schedule_look_up()
        if not self._warned:
            self._warn(f"{error}; retrying")
        self._warned = True

    def _schedule_look_up(self) -> None:
        if self._look_at is None:
            self._look_at = time.monotonic() + PAUSE_S

    def _look_up_leaders(self) -> None:
        """Look up the leaders, and release held partitions without batches in flight."""
        self._look_at = None
        try:
            topics = self._cluster.metadata([self._topic]).topics
        except UnreachableError as error:
            self._schedule_look_up()
            if not self._warned:
                self._warn(f"{error}; retrying")
            self._warned = True
            return
        partitions = topics[self._topic].partitions if self._topic in topics else ()
        self._leaders = {partition.number: partition.leader for partition in partitions if partition.leader >= 0}
        for queue in self._queues:
            if queue.held and not queue.sent:
                queue.held = False
            if queue.batches and queue.number not in self._leaders:
                queue.refusal = queue.refusal or "the partition has no leader; `odradek doctor` looks for the cause"
            if queue.batches and (queue.held or queue.number not in self._leaders):
                self._schedule_look_up()


def _excerpt(batch: Batch, index: int) -> str:
    """The beginning of a record's key and value."""
    records = read_batch(batch.data)[0].records()
    if not 0 <= index < len(records):
        return f"at index {index}"
    return f"with key {_quoted(records[index].key)} and value {_quoted(records[index].value)}"


def _quoted(data: bytes | None) -> str:
    if data is None:
        return "null"
    text = data[:SHOWN_BYTES].decode(errors="backslashreplace")
    return f"'{text}{'...' if len(data) > SHOWN_BYTES else ''}'"


def _producer_id(cluster: Cluster) -> tuple[int, int]:
    """Producer id and epoch for an idempotent producer; (-1, -1) if the cluster assigns none."""
    if cluster.any_broker().serves(init_producer_id.API_KEY) is None:
        return -1, -1
    request = init_producer_id.Request(transactional_id=None, transaction_timeout_ms=NO_TRANSACTION_MS)
    response = cluster.ask_any(init_producer_id.SCHEMA, request, lambda response: [response.error_code])
    return (-1, -1) if response.error_code else (response.producer_id, response.producer_epoch)
