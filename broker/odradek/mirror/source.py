"""Reads the partitions of a lane from the source: one Fetch in flight for each leader, read_committed.

Used in the thread of one lane. The data is not trusted: `odradek._ext.records.moved_batches` checks it. When a leader moves or
is unreachable, the leaders are looked up after a pause, as long as the lane keeps calling. Before a partition is read from a
leader, and again after that leader was lost or its epoch has changed, the leader's log is compared with what was copied
(`epochs`).
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from odradek._ext.records.moved_batches import Walk, walk
from odradek.clients.cluster import Cluster
from odradek.clients.errors import ClientError, ResponseTooLargeError, UnreachableError, code_of, describe_code
from odradek.clients.fetch_deadline import FetchDeadline
from odradek.clients.partition_leaders import STALE_LEADER, MissingTopic, PartitionLeaders
from odradek.clients.wire import MAX_RESPONSE_BYTES, Connection
from odradek.mirror.epochs import Asked, Compared, Diverged, Epochs
from odradek.mirror.leaders import Limits, look_up
from odradek.mirror.positions import made_again, truncated
from odradek.mirror.routes import EARLIEST, LATEST, UNKNOWN_TOPIC_ID, LaneOptions, Route
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import fetch
from odradek.topic_partition import TopicPartition

WITH_IDS = 13
"""The first version of Fetch that names topics by their id, so that a topic that was created again is noticed."""
WITH_LIMIT = 3
"""The first version of Fetch that limits a response, and returns one batch that is larger (Kafka 0.10.1)."""
LEAST_SHARE_BYTES = 64 << 10
HEAD_BYTES = 1 << 20
"""What a response may have beside the batches."""
MOVED_TOPIC = frozenset({ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID})
READ_COMMITTED = 1


class Fetched(NamedTuple):
    """What arrived of a partition. :param data: the records, writable until the `Answered` of their response was handled."""

    route: Route
    data: memoryview
    walk: Walk


class Answered(NamedTuple):
    """The end of a Fetch response: its memory is used again for the next one. :param node_id: of the leader."""

    node_id: int


class Stopped(NamedTuple):
    """The source cannot continue with a partition. :param may_pass: whether it makes sense to try again later.

    :param truncated: the first copied offset that the source does not have any more; None: this is not the reason.
    """

    route: Route
    reason: str
    may_pass: bool
    truncated: int | None = None


class Rewound(NamedTuple):
    """A partition is read again from a smaller position, because the source's log was truncated. :param reason: a sentence."""

    route: Route
    position: int
    reason: str


Event = Fetched | Answered | Stopped | Rewound


@dataclass(eq=False, slots=True)
class _Followed:
    """A partition that is read. :param behind: whether records wait behind `position`.

    :param epochs: of the records before `position`. :param turn: changes when responses to former requests must be discarded.
    :param leader_epoch: of the leader in the metadata. :param compared: whether this leader's log has what was copied.
    """

    route: Route
    position: int
    fetch_bytes: int
    epochs: Epochs
    turn: int
    leader_epoch: int = -1
    compared: bool = False
    behind: bool = True
    missing: MissingTopic = field(default_factory=MissingTopic)


class _PendingFetch(NamedTuple):
    """:param turns: of the partitions when the request was sent. :param rest_until: the leader waits so long for records."""

    node_id: int
    deadline: FetchDeadline
    turns: dict[TopicPartition, int]
    rest_until: float


class SourceReader:
    """:param limits: as `odradek.mirror.leaders.limits`, over other connections. :param compare: as
    `odradek.mirror.epochs.compare`, over other connections. :param progress: called as `Observer.progress`.
    :param warn: gets a sentence when a broker becomes unreachable.
    """

    def __init__(
        self,
        cluster: Cluster,
        options: LaneOptions,
        limits: Callable[[list[TopicPartition], str], Limits],
        compare: Callable[[list[Asked]], Compared],
        progress: Callable[[Route, int, int, int], None],
        warn: Callable[[str], None],
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._limits = limits
        self._compare = compare
        self._progress = progress
        self._followed: dict[TopicPartition, _Followed] = {}
        self._names: dict[bytes, str] = {}
        self._leaders = PartitionLeaders(cluster, lambda line: warn(f"the source: {line}"))
        self._pending: dict[Connection, _PendingFetch] = {}
        self._rests: dict[int, float] = {}  # until when leaders are not asked, because they did not wait for records
        self._turns = 0
        self._largest_bytes = options.fetch_memory_bytes // 2
        self._alone: dict[
            int, int
        ] = {}  # leaders that get this many requests with one partition, to find a batch that is too large

    @property
    def connections(self) -> list[Connection]:
        """Connections with a Fetch in flight whose response may be received now."""
        return [it for it in self._pending if not it.held_bytes or it.held_bytes <= self._room(it)]

    @property
    def behind(self) -> bool:
        """Whether some partition has more records than were fetched."""
        return any(followed.behind for followed in self._followed.values())

    def follow(self, route: Route, position: int, epochs: Epochs) -> None:
        """Read a partition from `position` on. :param epochs: of the records that were copied; those that come are added."""
        followed = _Followed(route, position, self._options.partition_fetch_bytes, epochs, self._next_turn())
        self._followed[route.source] = followed
        if route.source_topic_id != UNKNOWN_TOPIC_ID:
            self._names[route.source_topic_id] = route.source[0]
        self._leaders.look_at = 0.0

    def drop(self, route: Route) -> None:
        """Stop reading a partition; what is in flight of it is ignored."""
        self._followed.pop(route.source, None)
        self._leaders.drop(route.source)

    def _next_turn(self) -> int:
        self._turns += 1
        return self._turns

    def due_s(self) -> float | None:
        """The seconds after which `poll` should be called at the latest; None: there is no time for it."""
        due = [pending.deadline.at for pending in self._pending.values()]
        due += [] if self._leaders.look_at is None else [self._leaders.look_at]
        due += self._rests.values()
        return max(0.0, min(due) - time.monotonic()) if due else None

    def poll(self, ready: list[Connection]) -> Iterator[Event]:
        """Receive from connections that are readable, then send what can be sent. Raises ClientError.

        The data of an answer must have been sent when the iteration goes on after its `Answered`.
        """
        for connection in [connection for connection in self._pending if connection in ready]:
            yield from self._receive(connection)
        self._drop_timed_out()
        if self._leaders.due:
            yield from self._look_up_leaders()
        now = time.monotonic()
        self._rests = {node_id: until for node_id, until in self._rests.items() if until > now}
        busy = {pending.node_id for pending in self._pending.values()} | self._rests.keys()
        for node_id in [node for node, places in self._leaders.led.items() if places and node not in busy]:
            self._send_fetch(node_id)

    # -- leaders --------------------------------------------------------------------------------------------------

    def _look_up_leaders(self) -> Iterator[Event]:
        self._leaders.look_at = None
        try:
            found = look_up(self._cluster, {name for name, _ in self._followed})
        except UnreachableError as error:
            self._leaders.unreachable(error)
            return
        self._leaders.led = {}
        new: dict[int, list[Asked]] = {}
        for place, followed in list(self._followed.items()):
            reason = self._reason_to_stop(followed, found.errors.get(place[0]))
            topic, wanted = found.topics.get(place[0]), followed.route.source_topic_id
            if topic is not None and topic.topic_id != wanted and UNKNOWN_TOPIC_ID not in (topic.topic_id, wanted):
                reason = made_again(place[0], wanted, topic.topic_id)
            if reason is not None:
                self.drop(followed.route)
                yield Stopped(followed.route, reason, topic is None)
                continue
            partition = found.partition(place)
            if partition is None or partition.leader < 0:
                followed.behind = False  # no transaction waits for it
                self._leaders.schedule()
                continue
            if partition.leader_epoch != followed.leader_epoch:
                self._distrust(followed)
                followed.leader_epoch = partition.leader_epoch
            if followed.compared or not followed.epochs.before(followed.position):
                self._leaders.led.setdefault(partition.leader, []).append(place)
            else:
                new.setdefault(partition.leader, []).append(Asked(partition, followed.position, followed.epochs))
        for leader, asked in new.items():
            yield from self._compare_logs(leader, asked)

    def _distrust(self, followed: _Followed) -> None:
        """The leader's log must be compared again. Responses to former requests, perhaps of a former leader, are discarded."""
        followed.compared = False
        followed.turn = self._next_turn()

    def _compare_logs(self, leader: int, asked: list[Asked]) -> Iterator[Event]:
        """Read the partitions of a leader from now on if its log has what was copied."""
        places = [(each.partition.topic, each.partition.number) for each in asked]
        try:
            compared = self._compare(asked)
        except UnreachableError as error:
            compared = Compared({}, set(places), {})
            self._leaders.unreachable(error)
        for place in places:
            followed = self._followed[place]
            if place in compared.again:
                followed.behind = False
                self._leaders.schedule()
                continue
            if place in compared.refused:
                reason = (
                    f"the source does not compare the leader epochs of {_named(followed.route)}: "
                    f"{describe_code(compared.refused[place])}"
                )
                self.drop(followed.route)
                yield Stopped(followed.route, reason, True)
                continue
            if place in compared.diverged:
                event = self._diverged(followed, compared.diverged[place])
                yield event
                if isinstance(event, Stopped):
                    continue
            followed.compared = True
            self._leaders.led.setdefault(leader, []).append(place)

    def _diverged(self, followed: _Followed, diverged: Diverged) -> Rewound | Stopped:
        """Stop a partition whose log was truncated, or read it again from there."""
        route = followed.route
        continued = self._options.continue_truncated
        reason = truncated(route.source, route.target, followed.position, diverged.offset, diverged.below, continued)
        if diverged.offset is None or not continued:
            self.drop(route)
            return Stopped(route, reason, diverged.offset is None, diverged.offset)
        self._distrust(followed)
        followed.position = diverged.offset
        followed.epochs.cut(diverged.offset)
        return Rewound(route, diverged.offset, reason)

    def _reason_to_stop(self, followed: _Followed, error: ErrorCode | None) -> str | None:
        """Why a topic with this error in the metadata cannot be read; None if it can, or may be readable soon."""
        name = followed.route.source[0]
        deleted = followed.missing.deleted(error in STALE_LEADER)
        if error is None:
            return None
        if error not in STALE_LEADER:
            return f"the source does not describe the topic '{name}': {describe_code(error)}"
        if error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and deleted:
            return f"the source has no topic '{name}'"
        return None

    def _lose(self, node_id: int, error: UnreachableError) -> None:
        for place in self._leaders.lose(node_id, error):
            self._distrust(self._followed[place])

    def _drop_timed_out(self) -> None:
        """Treat a leader that does not answer in time as unreachable: other brokers may lead its partitions by now."""
        for connection, pending in list(self._pending.items()):
            if connection.held_bytes:
                pending.deadline.extend()
            elif pending.deadline.missed():
                del self._pending[connection]
                self._lose(
                    pending.node_id, UnreachableError(f"{connection.address} did not answer a Fetch request in time")
                )

    # -- requests -------------------------------------------------------------------------------------------------

    def _share(self) -> int:
        """How many bytes of batches a leader should send at once: half of the lane's memory is shared by the leaders."""
        leaders = sum(bool(places) for places in self._leaders.led.values())
        return max(LEAST_SHARE_BYTES, min(self._options.fetch_max_bytes, self._largest_bytes // max(1, leaders)))

    def _room(self, connection: Connection) -> int:
        """How large a response may be that arrives now: one of all leaders may be above its share, with a large batch."""
        most = self._share() + HEAD_BYTES
        if any(other.begun_bytes > most for other in self._pending if other is not connection):
            return most
        return MAX_RESPONSE_BYTES

    def _chosen(self, node_id: int, version: int) -> list[TopicPartition]:
        """The partitions of the next request to a leader."""
        places = self._leaders.led[node_id]
        if node_id in self._alone:
            return places[:1]
        usual = self._options.partition_fetch_bytes
        grown = [place for place in places if version < WITH_LIMIT and self._followed[place].fetch_bytes > usual]
        return grown[:1] or list(places)

    def _fetch_request(self, places: list[TopicPartition], version: int) -> Any:
        make, share = fetch.Request, self._share()
        topics: dict[str, list[Any]] = {}
        for name, number in places:
            followed = self._followed[name, number]
            most = followed.fetch_bytes
            if version < WITH_LIMIT and len(places) > 1:
                most = min(most, max(LEAST_SHARE_BYTES, share // len(places)))
            topics.setdefault(name, []).append(
                make.FetchPartition(
                    partition=number,
                    current_leader_epoch=followed.leader_epoch,
                    fetch_offset=followed.position,
                    partition_max_bytes=most,
                )
            )
        ids = {place[0]: self._followed[place].route.source_topic_id for place in places}
        return make(
            max_wait_ms=self._options.fetch_wait_ms,
            min_bytes=1,
            max_bytes=share,
            isolation_level=READ_COMMITTED,
            topics=[
                make.FetchTopic(topic=name, topic_id=ids[name], partitions=partitions)
                for name, partitions in topics.items()
            ],
        )

    def _send_fetch(self, node_id: int) -> None:
        try:
            connection = self._cluster.broker(node_id)
            unnamed = any(
                self._followed[it].route.source_topic_id == UNKNOWN_TOPIC_ID for it in self._leaders.led[node_id]
            )
            version = connection.version_of(fetch.SCHEMA, newest=WITH_IDS - 1 if unnamed else WITH_IDS)
            places = self._chosen(node_id, version)
            connection.streams = True
            connection.most_response_bytes = min(MAX_RESPONSE_BYTES, self._largest_bytes + HEAD_BYTES)
            connection.send(fetch.SCHEMA, self._fetch_request(places, version), version=version)
        except UnreachableError as error:
            self._lose(node_id, error)
        else:
            wait_s = self._options.fetch_wait_ms / 1000
            deadline = FetchDeadline(connection, wait_s, self._options.request_timeout_s)
            turns = {place: self._followed[place].turn for place in places}
            self._pending[connection] = _PendingFetch(node_id, deadline, turns, time.monotonic() + wait_s)

    def _too_large(self, node_id: int, places: list[TopicPartition], error: ResponseTooLargeError) -> Iterator[Stopped]:
        """A batch does not fit into the memory: find its partition with requests for one at a time, and stop it."""
        self._cluster.forget(node_id)
        self._leaders.schedule()
        followed = self._followed.get(places[0])
        if len(places) > 1:
            self._alone[node_id] = len(places)
        elif followed is not None:
            self._alone.pop(node_id, None)
            self.drop(followed.route)
            yield Stopped(followed.route, f"{self._no_room(followed)} ({error})", False)

    def _no_room(self, followed: _Followed) -> str:
        return (
            f"{_named(followed.route)} of the source has at offset {followed.position} a batch above {self._largest_bytes} "
            "bytes, half of odradek.mirror.fetch.memory.bytes"
        )

    def _receive(self, connection: Connection) -> Iterator[Event]:
        node_id, _, turns, rest_until = self._pending[connection]
        try:
            if not connection.advance(self._room(connection)):
                return
            response = connection.receive()
        except ResponseTooLargeError as error:
            del self._pending[connection]
            yield from self._too_large(node_id, list(turns), error)
            return
        except UnreachableError as error:
            del self._pending[connection]
            self._lose(node_id, error)
            return
        del self._pending[connection]
        if response.error_code:
            self._lose(node_id, UnreachableError(f"{connection.address}: {describe_code(response.error_code)}"))
            return
        self._leaders.answered()
        if not any(part.records or part.error_code for topic in response.responses for part in topic.partitions):
            self._rests[node_id] = rest_until
        for topic in response.responses:
            name = topic.topic or self._names.get(bytes(topic.topic_id), "")
            for part in topic.partitions:
                followed = self._followed.get((name, part.partition_index))
                if followed is None or turns.get((name, part.partition_index)) != followed.turn:
                    continue
                if part.error_code:
                    yield from self._handle_error(node_id, followed, code_of(part.error_code))
                else:
                    yield from self._take(node_id, followed, part)
        if node_id in self._alone:
            self._leaders.move_to_end(node_id, next(iter(turns)))
            self._alone[node_id] -= 1
            if self._alone[node_id] <= 0:
                del self._alone[node_id]
        yield Answered(node_id)
        connection.release(self._share())

    def _take(self, node_id: int, followed: _Followed, part: Any) -> Iterator[Fetched | Stopped]:
        """Walk over the records of a partition, and advance its position behind them."""
        route = followed.route
        if part.records:
            aborted = [(entry.producer_id, entry.first_offset) for entry in part.aborted_transactions or ()]
            found = walk(part.records, followed.position, aborted, route.convert_append_time)
            if not _note_epochs(followed, found):
                reason = (
                    f"{_named(route)} of the source has leader epoch {found.leader_epoch} behind offset {followed.position}, "
                    f"and {followed.epochs.newest} before: its log was truncated; delete the copy to begin again"
                )
                self.drop(route)
                yield Stopped(route, reason, True)
                return
            if found.consumed and found.position == followed.position and found.problem is None:
                reason = (
                    f"the source returns only records of {_named(route)} before offset {followed.position}, from which it "
                    "is read"
                )
                self.drop(route)
                yield Stopped(route, reason, True)
                return
            if found.consumed:
                followed.fetch_bytes = self._options.partition_fetch_bytes
                self._leaders.move_to_end(node_id, route.source)
            elif found.problem is None:
                if followed.fetch_bytes >= self._largest_bytes:
                    self.drop(route)
                    yield Stopped(route, self._no_room(followed), False)
                    return
                followed.fetch_bytes = min(2 * followed.fetch_bytes, self._largest_bytes)
            followed.position = found.position
            yield Fetched(route, part.records, found)
            if found.problem is not None:
                self.drop(route)
                yield Stopped(route, f"{_named(route)} of the source is invalid: {found.problem}", True)
        end = part.last_stable_offset if part.last_stable_offset >= 0 else part.high_watermark
        followed.behind = followed.position < end
        self._progress(route, followed.position, part.high_watermark, part.log_start_offset)

    def _handle_error(self, node_id: int, followed: _Followed, code: ErrorCode) -> Iterator[Stopped]:
        """Pause a partition until its leader was looked up again, or stop it."""
        route = followed.route
        followed.behind = False
        if code in STALE_LEADER or code in MOVED_TOPIC or code is ErrorCode.UNKNOWN_SERVER_ERROR:
            self._leaders.pause(node_id, route.source)
            return
        reason = f"the source refuses to read {_named(route)} at offset {followed.position}: {describe_code(code)}"
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            reason = self._out_of_range(followed)
        self.drop(route)
        yield Stopped(route, reason, code is not ErrorCode.OFFSET_OUT_OF_RANGE)

    def _out_of_range(self, followed: _Followed) -> str:
        route = followed.route
        try:
            start = self._limits([route.source], EARLIEST).offsets.get(route.source, -1)
            end = self._limits([route.source], LATEST).offsets.get(route.source, -1)
        except ClientError as error:
            return f"the source has no offset {followed.position} of {_named(route)} ({error})"
        if followed.position < start:
            missing = start - followed.position
            return (
                f"the source deleted {missing} offsets of {_named(route)} before they were copied: the next one is "
                f"{followed.position}, its log begins at {start}"
            )
        return f"the source has no offset {followed.position} of {_named(route)}: its log has {start} to {end}"


def _named(route: Route) -> str:
    return f"{route.source[0]}-{route.source[1]}"


def _note_epochs(followed: _Followed, found: Walk) -> bool:
    """Note the leader epochs of what was found; False if they go back, which they never do in one log."""
    epochs, offset = followed.epochs, followed.position
    if found.leader_epoch == epochs.newest:
        return True
    for batch in found.batches:
        if not epochs.note(batch.leader_epoch, offset):
            return False
        offset = batch.last_offset + 1
    return epochs.note(found.leader_epoch, offset)
