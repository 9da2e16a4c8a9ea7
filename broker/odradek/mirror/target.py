"""Writes batches to the target at the wire, and the positions of the source with them.

Used in the thread of one lane. A writer lives for one session: after its first error it is not used again, so that nothing is
sent twice and nothing has to be deduplicated. With exactly once, a new session increments the epoch of the transactional id,
which aborts what the former session left. Requests are pipelined: the batches of one partition, one in each request, as the
protocol has it; nothing waits for the answers before `commit`.

Data and control requests have a `Cluster` each, so that no control request waits behind batches.
"""

import struct
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from odradek._ext.records.moved_batches import stamp
from odradek.clients.backoff import Backoff
from odradek.clients.cluster import GROUP, TRANSACTION, Cluster
from odradek.clients.errors import ClientError, RefusedError, UnreachableError, code_of, describe_code
from odradek.clients.wire import Buffer, Connection
from odradek.mirror.leaders import LookedUp, look_up
from odradek.mirror.routes import LaneOptions, Place, Route
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schema import ApiSchema
from odradek.protocol.schemas import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    end_txn,
    init_producer_id,
    offset_commit,
    offset_fetch,
    produce,
    txn_offset_commit,
)

OLDEST, NEWEST = 3, 8
"""Versions of Produce: 3 is the first with batches of format v2, 8 the last that is not flexible."""
REQUEST_BYTES = 4 << 20
LAST_SEQUENCE = NO_TRANSACTION_MS = (1 << 31) - 1
BY_CLIENTS = 3
"""The last version of AddPartitionsToTxn that clients send."""
WITHOUT_NEW_EPOCH = 4
"""The last versions of EndTxn and TxnOffsetCommit with which the client adds partitions, and keeps its epoch."""
WITH_NAMES = 9
"""The last version of OffsetFetch and OffsetCommit that names topics."""
OF_GROUPS, STABLE = 8, 7
"""The first versions of OffsetFetch for several groups, and that wait for open transactions. Before 2.5 the commits of an open
transaction are not visible; InitProducerId has ended it."""
WITH_PRODUCER = 3
"""The first version of InitProducerId that takes the present epoch, and so does not fence a newer owner."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.002, 0.1
FENCED = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    }
)
"""Another owner of the transactional id began, or the coordinator aborted the transaction."""
AGAIN = frozenset(
    {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.UNSTABLE_OFFSET_COMMIT}
)
"""The coordinator is not ready yet."""
OTHER_COORDINATOR = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})
REFUSALS = {
    ErrorCode.MESSAGE_TOO_LARGE: False,
    ErrorCode.RECORD_LIST_TOO_LARGE: False,
    ErrorCode.INVALID_RECORD: False,
    ErrorCode.CORRUPT_MESSAGE: True,
    ErrorCode.INVALID_TIMESTAMP: False,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: False,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: False,
    ErrorCode.INVALID_TOPIC_EXCEPTION: False,
    ErrorCode.INVALID_REQUIRED_ACKS: False,
    ErrorCode.POLICY_VIOLATION: True,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: True,
}
"""Errors of a partition that stop it; whether they may pass. All others end the session, and the lane tries again."""
ABSENT = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.KAFKA_STORAGE_ERROR})
"""Errors that stop a partition if they last: a topic that a broker does not know yet, or not any more; a full disk."""
_PARTITION = struct.Struct(">ii")
_COUNT = struct.Struct(">i")
_ACKS = struct.Struct(">hii")
_NAME = struct.Struct(">h")


class LaneFencedError(ClientError):
    """Another process has the lane's transactional id, or the target aborted the transaction for its age."""


class PartitionRefusedError(ClientError):
    """The target refuses a batch, or the whole partition. :param first_offset: of the batch, in the source.

    :param may_pass: whether it makes sense to try again later. :param soon: it will probably pass within seconds.
    """

    def __init__(self, route: Route, first_offset: int, reason: str, may_pass: bool, soon: bool) -> None:
        self.route, self.first_offset, self.may_pass, self.soon = route, first_offset, may_pass, soon
        self.reason = (
            f"the target refuses {route.target[0]}-{route.target[1]} at the source's offset {first_offset}: {reason}"
        )
        super().__init__(self.reason)


class Position(NamedTuple):
    """A committed position. :param offset: the next one of the source. :param metadata: of the commit."""

    offset: int
    metadata: str


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


class Written(NamedTuple):
    """A batch that the target acknowledged. :param target_offset: of its first record."""

    route: Route
    source_offset: int
    target_offset: int
    next_offset: int
    records: int
    size_bytes: int
    max_timestamp: int


class Producer(NamedTuple):
    """The identity of a producer; (-1, -1): none."""

    producer_id: int
    epoch: int


NO_PRODUCER = Producer(-1, -1)


class _Request(NamedTuple):
    """A request to a coordinator. :param newest: the last version that may be used; None: the last that both know."""

    api: ApiSchema
    message: Any
    newest: int | None


class _Batch(NamedTuple):
    """A batch in flight, without its bytes."""

    route: Route
    records: int
    first_offset: int
    next_offset: int
    max_timestamp: int
    size: int


class TargetWriter:
    """One session of a lane at the target. Raises ClientError, LaneFencedError, PartitionRefusedError.

    :param data: and `control`: connections to the target's brokers. :param transactional_id: and `group_id`: of the lane and of
        its flow. :param former: the identity from the lane's former session, NO_PRODUCER for its first one.
    """

    def __init__(
        self,
        data: Cluster,
        control: Cluster,
        transactional_id: str,
        group_id: str,
        options: LaneOptions,
        former: Producer,
    ) -> None:
        self._data = data
        self._control = control
        self._transactional_id = transactional_id
        self._group_id = group_id
        self._options = options
        self._coordinators: dict[int, int] = {}
        self._found = LookedUp({}, {})
        self._leaders: dict[Place, int] = {}
        self._sequences: dict[Place, int] = {}
        self._in_transaction: set[Place] = set()
        self._offsets_added = False
        self._queues: dict[Place, deque[Outgoing]] = {}
        self._in_flight: dict[Connection, deque[list[_Batch]]] = {}
        self._since: dict[Connection, float] = {}
        self._written: list[Written] = []
        self.unacknowledged = 0
        self.bytes_sent = 0
        self.producer = self._begin(former)

    def _begin(self, former: Producer) -> Producer:
        """Fence former owners, and end their transaction; or only get an id for idempotent writes."""
        api, transactional = init_producer_id, self._options.exactly_once
        connection = self._control.any_broker()
        if not transactional and connection.serves(api.API_KEY) is None:
            return NO_PRODUCER
        newest = 4 if connection.version_of(api.SCHEMA) >= WITH_PRODUCER else None
        if transactional:
            self._abort(former)
        if newest is None or not transactional:
            former = NO_PRODUCER
        request = api.Request(
            transactional_id=self._transactional_id if transactional else None,
            transaction_timeout_ms=self._options.transaction_timeout_ms if transactional else NO_TRANSACTION_MS,
            producer_id=former.producer_id,
            producer_epoch=former.epoch,
        )
        if transactional:
            response = self._ask(
                TRANSACTION, [_Request(api.SCHEMA, request, newest)], lambda answer: [answer.error_code]
            )[0]
        else:
            response = connection.ask(api.SCHEMA, request, newest=newest)
        self._check(response.error_code, "InitProducerId")
        return Producer(response.producer_id, response.producer_epoch)

    def _abort(self, former: Producer) -> None:
        """Abort what the lane's former session left; it fails if another owner has begun meanwhile."""
        if former == NO_PRODUCER:
            return
        request = end_txn.Request(
            transactional_id=self._transactional_id,
            producer_id=former.producer_id,
            producer_epoch=former.epoch,
            committed=False,
        )
        requests = [_Request(end_txn.SCHEMA, request, WITHOUT_NEW_EPOCH)]
        (answer,) = self._ask(TRANSACTION, requests, lambda answer: [answer.error_code])
        if answer.error_code != ErrorCode.INVALID_TXN_STATE:  # no transaction is open
            self._check(answer.error_code, "EndTxn")

    # -- positions ------------------------------------------------------------------------------------------------

    def positions(self, places: Iterable[Place]) -> dict[Place, Position]:
        """The committed positions of target partitions; those without one are left out."""
        wanted: dict[str, list[int]] = {}
        for name, number in places:
            wanted.setdefault(name, []).append(number)
        if not wanted:
            return {}
        connection = self._coordinator(GROUP)
        version = connection.version_of(offset_fetch.SCHEMA, oldest=1, newest=WITH_NAMES)
        make = offset_fetch.Request
        if version >= OF_GROUPS:
            topics = [
                make.OffsetFetchRequestTopics(name=name, partition_indexes=found) for name, found in wanted.items()
            ]
            groups = [make.OffsetFetchRequestGroup(group_id=self._group_id, topics=topics)]
            request = make(groups=groups, require_stable=True)
        else:
            old = [make.OffsetFetchRequestTopic(name=name, partition_indexes=found) for name, found in wanted.items()]
            request = make(group_id=self._group_id, topics=old, require_stable=version >= STABLE)
        answer = self._ask(GROUP, [_Request(offset_fetch.SCHEMA, request, version)], _codes_of_positions)[0]
        for code in _codes_of_positions(answer):
            self._check(code, f"OffsetFetch of the group '{self._group_id}'")
        group = answer.groups[0] if answer.groups else answer
        return {
            (topic.name, part.partition_index): Position(part.committed_offset, part.metadata or "")
            for topic in group.topics
            for part in topic.partitions
            if part.committed_offset >= 0
        }

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
        producer_id, epoch = self.producer
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

    def flush(self) -> None:
        """Send all queued batches; the memory of their data is free afterwards."""
        if not self._queues:
            return
        self._find_leaders()
        if self._options.exactly_once:
            self._join_transaction()
        by_leader: dict[int, list[deque[Outgoing]]] = {}
        for place in sorted(self._queues):
            by_leader.setdefault(self._leaders[place], []).append(self._queues[place])
        for node_id, queues in by_leader.items():
            self._send_to(node_id, queues)
        self._queues.clear()

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
                raise RefusedError(ErrorCode.LEADER_NOT_AVAILABLE, what=f"{place[0]}-{place[1]} of the target")
            self._leaders[place] = leader

    def _join_transaction(self) -> None:
        """Add the partitions, and the group's offsets, to the transaction, in one round trip."""
        places = [place for place in self._queues if place not in self._in_transaction]
        requests = [self._add_partitions(places)] if places else []
        if not self._offsets_added:
            requests.append(self._add_offsets())
        if not requests:
            return
        answers = self._ask(TRANSACTION, requests, _codes_of_additions)
        if places:
            for topic in answers[0].results_by_topic_v3_and_below:
                for result in topic.results_by_partition:
                    code = code_of(result.partition_error_code)
                    if code and code is not ErrorCode.OPERATION_NOT_ATTEMPTED:
                        self._refuse(self._queues[topic.name, result.partition_index][0], code, None)
        for answer in answers:
            for number in _codes_of_additions(answer):
                self._check(number, "joining the transaction")
        self._in_transaction.update(places)
        self._offsets_added = True

    def _add_partitions(self, places: Iterable[Place]) -> _Request:
        make = add_partitions_to_txn.Request
        topics: dict[str, list[int]] = {}
        for name, number in places:
            topics.setdefault(name, []).append(number)
        request = make(
            v3_and_below_transactional_id=self._transactional_id,
            v3_and_below_producer_id=self.producer.producer_id,
            v3_and_below_producer_epoch=self.producer.epoch,
            v3_and_below_topics=[
                make.AddPartitionsToTxnTopic(name=name, partitions=numbers) for name, numbers in topics.items()
            ],
        )
        return _Request(add_partitions_to_txn.SCHEMA, request, BY_CLIENTS)

    def _add_offsets(self) -> _Request:
        request = add_offsets_to_txn.Request(
            transactional_id=self._transactional_id,
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.epoch,
            group_id=self._group_id,
        )
        return _Request(add_offsets_to_txn.SCHEMA, request, None)

    def _send_to(self, node_id: int, queues: list[deque[Outgoing]]) -> None:
        connection = self._data.broker(node_id)
        connection.streams = True
        version = connection.version_of(produce.SCHEMA, OLDEST, NEWEST)
        requests = self._in_flight.setdefault(connection, deque())
        if not requests:
            self._since[connection] = time.monotonic()
        if self.producer.producer_id < 0:
            self._send_one_by_one(connection, version, queues)
            return
        bodies = []
        while chosen := _next_request(queues):
            bodies.append(self._body(chosen))
            self._note(requests, chosen)
        connection.send_parts(produce.SCHEMA, version, bodies)

    def _send_one_by_one(self, connection: Connection, version: int, queues: list[deque[Outgoing]]) -> None:
        """Without a producer id, a batch behind a refused one would be appended: one request at a time is in flight."""
        while chosen := _next_request(queues):
            self._note(self._in_flight[connection], chosen)
            connection.send_parts(produce.SCHEMA, version, [self._body(chosen)])
            self.receive(connection)

    def _note(self, requests: deque[list[_Batch]], chosen: list[Outgoing]) -> None:
        sent = []
        for route, data, records, first_offset, next_offset, max_timestamp in chosen:
            size = len(data)
            sent.append(_Batch(route, records, first_offset, next_offset, max_timestamp, size))
            self.bytes_sent += size
            self.unacknowledged += 1
        requests.append(sent)

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
        """Receive the answers that have arrived on a readable connection."""
        self.receive(connection)
        while connection.buffered and self._in_flight[connection]:
            self.receive(connection)

    def receive(self, connection: Connection) -> None:
        """Receive the answer to the oldest request on a connection; waits for it."""
        response = connection.receive()
        self._since[connection] = time.monotonic()
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
                self.unacknowledged -= 1
                self._written.append(
                    Written(
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
            raise LaneFencedError(f"the transactional id '{self._transactional_id}' has another owner: {reason}")
        if code in REFUSALS or code in ABSENT:
            raise PartitionRefusedError(
                batch.route, batch.first_offset, reason, REFUSALS.get(code, True), code in ABSENT
            )
        name, number = batch.route.target
        raise RefusedError(code, reason, f"{name}-{number} of the target")

    # -- commit ---------------------------------------------------------------------------------------------------

    def commit(self, positions: Mapping[Place, Position]) -> list[Written]:
        """Wait for all acknowledgements and commit them with these positions; return what was written, in order.

        :param positions: by target partition. If this raises, the outcome is unknown; the next session reads the positions.
        """
        if self._options.exactly_once:
            self._commit_transaction(positions)
        else:
            self._receive_all()
            self._commit_offsets(positions)
        written, self._written = self._written, []
        self.bytes_sent = 0
        return written

    def _receive_all(self) -> None:
        for connection, requests in self._in_flight.items():
            while requests:
                self.receive(connection)

    def _commit_transaction(self, positions: Mapping[Place, Position]) -> None:
        if not self._offsets_added:
            self._join_transaction()  # positions without records
        make = txn_offset_commit.Request
        request = make(
            transactional_id=self._transactional_id,
            group_id=self._group_id,
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.epoch,
            topics=_by_topic(positions, make.TxnOffsetCommitRequestTopic, make.TxnOffsetCommitRequestPartition),
        )
        api, newest = txn_offset_commit.SCHEMA, WITHOUT_NEW_EPOCH
        (answer,) = self._ask(GROUP, [_Request(api, request, newest)], _codes_of_commits, self._receive_all)
        self._check_commits(answer)
        ended = end_txn.Request(
            transactional_id=self._transactional_id,
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.epoch,
            committed=True,
        )
        (end,) = self._ask(
            TRANSACTION, [_Request(end_txn.SCHEMA, ended, WITHOUT_NEW_EPOCH)], lambda answer: [answer.error_code]
        )
        self._check(end.error_code, "EndTxn")
        self._in_transaction.clear()
        self._offsets_added = False

    def _commit_offsets(self, positions: Mapping[Place, Position]) -> None:
        make = offset_commit.Request
        request = make(
            group_id=self._group_id,
            topics=_by_topic(positions, make.OffsetCommitRequestTopic, make.OffsetCommitRequestPartition),
        )
        (answer,) = self._ask(GROUP, [_Request(offset_commit.SCHEMA, request, WITH_NAMES)], _codes_of_commits)
        self._check_commits(answer)

    def _check_commits(self, answer: Any) -> None:
        for topic in answer.topics:
            for part in topic.partitions:
                self._check(
                    part.error_code,
                    f"the position of {topic.name}-{part.partition_index} in the group '{self._group_id}'",
                )

    # -- coordinators ---------------------------------------------------------------------------------------------

    def _ask(
        self,
        kind: int,
        requests: Sequence[_Request],
        codes: Callable[[Any], Iterable[int]],
        meanwhile: Callable[[], None] | None = None,
    ) -> list[Any]:
        """Send requests (schema, request, newest version) to a coordinator, pipelined, and return the answers.

        Errors that pass soon are tried again until the timeout. :param meanwhile: called before the answers are awaited.
        """
        backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S, self._options.request_timeout_s)
        while True:
            connection = self._coordinator(kind)
            for api, request, newest in requests:
                connection.send(api, request, version=connection.version_of(api, newest=newest))
            if meanwhile is not None:
                meanwhile()
            answers = [connection.receive() for _ in requests]
            found = {code for answer in answers for code in codes(answer)}
            if not found & (AGAIN | OTHER_COORDINATOR) or not backoff.wait():
                return answers
            if found & OTHER_COORDINATOR:
                del self._coordinators[kind]

    def _coordinator(self, kind: int) -> Connection:
        if kind not in self._coordinators:
            name = self._transactional_id if kind == TRANSACTION else self._group_id
            self._coordinators[kind] = self._control.coordinator_of(name, kind)
        return self._control.broker(self._coordinators[kind])

    def _check(self, code: int, what: str) -> None:
        """Raise the error for a request of a coordinator that has an error code."""
        if code in FENCED:
            raise LaneFencedError(
                f"the transactional id '{self._transactional_id}' has another owner: {describe_code(code)}"
            )
        if code:
            raise RefusedError(code, what=f"{what} at the target")


def _next_request(queues: list[deque[Outgoing]]) -> list[Outgoing]:
    """One batch of each partition, up to REQUEST_BYTES; at least one, if there is any."""
    chosen: list[Outgoing] = []
    size = 0
    for queue in queues:
        if not queue:
            continue
        size += len(queue[0].data)
        if chosen and size > REQUEST_BYTES:
            break
        chosen.append(queue.popleft())
    return chosen


def _by_topic(positions: Mapping[Place, Position], make_topic: Any, make_partition: Any) -> list[Any]:
    topics: dict[str, list[Any]] = {}
    for (name, number), position in positions.items():
        topics.setdefault(name, []).append(
            make_partition(
                partition_index=number, committed_offset=position.offset, committed_metadata=position.metadata
            )
        )
    return [make_topic(name=name, partitions=partitions) for name, partitions in topics.items()]


def _codes_of_positions(answer: Any) -> list[int]:
    groups = answer.groups or [answer]
    codes = [group.error_code for group in groups]
    return codes + [part.error_code for group in groups for topic in group.topics for part in topic.partitions]


def _codes_of_additions(answer: Any) -> list[int]:
    topics = getattr(answer, "results_by_topic_v3_and_below", ())
    codes = [result.partition_error_code for topic in topics for result in topic.results_by_partition]
    return [*codes, answer.error_code]


def _codes_of_commits(answer: Any) -> list[int]:
    return [part.error_code for topic in answer.topics for part in topic.partitions]
