"""A lane: moves some partitions of a flow from the source to the target, in transactions that contain the positions.

One thread runs it (`Lane.run`); `route` and `stop` may be called from others. A lock protects what these two write, and a
socket pair wakes the lane. The lane works in sessions: a session fences former owners of the lane, reads the committed
positions and moves records until an error. After any error the lane forgets what it fetched, and the next session
continues at the committed positions.
"""

import logging
import socket
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from odradek._ext.records.moved_batches import MOVE, FetchedBatch
from odradek.backoff import Backoff
from odradek.clients.cluster import Cluster
from odradek.clients.errors import ClientError, describe_code
from odradek.clients.partition_leaders import STALE_LEADER
from odradek.clients.wire import Readable, which_readable
from odradek.mirror.commits import NO_PRODUCER, Commits, LaneFencedError, Position, PositionRefusedError
from odradek.mirror.epochs import Asked, Compared, Epochs, compare
from odradek.mirror.leaders import Limits, limits
from odradek.mirror.positions import LONGEST_REASON, changed_source, cut_noted, noted, notes, stop_noted, truncated
from odradek.mirror.reencode import InvalidBatchError, reencode
from odradek.mirror.routes import EARLIEST, LaneOptions, Observer, Route
from odradek.mirror.source import Answered, Fetched, Rewound, SourceReader, Stopped
from odradek.mirror.starting import newest, obstacles, positions_group, positions_in
from odradek.mirror.target import ABSENT, BatchLostError, Outgoing, PartitionRefusedError, TargetWriter
from odradek.protocol.errors import ErrorCode
from odradek.topic_partition import TopicPartition

__all__ = ["Lane", "LaneFencedError"]

RETRIES_S = Backoff(first=0.1, longest=10.0)
SEND_PART = 4
"""A lane sends for at most transaction_timeout_ms / SEND_PART; then it waits for acknowledgements, and commits."""
ABSENT_S = 10.0
"""A partition of the target that is unknown or cannot be written for this time is stopped, so that the others continue."""
LOST_IN_A_ROW = 4
"""A batch stops its partition when the target has closed the connection so often instead of acknowledging it."""
RECOMPRESS_S = 600.0
"""For this time after the target refused a compressed batch, those of its partition are compressed again."""
REFRESH_S = 3600.0
"""Positions are committed again after this time, so that the target does not expire those of partitions without traffic."""
LOG = logging.getLogger("odradek.mirror")


class _Halt(NamedTuple):
    """A partition that is not moved from an offset on. :param retry_at: monotonic; None: never."""

    first_offset: int
    reason: str
    retry_at: float | None


@dataclass
class _Session:
    """The state of a session.

    :param control: of `commits`. :param cluster_id: of the source; None before Kafka 0.10.1. :param positions: by target
        partition, as far as records were passed to the writer. :param dirty: those that differ from what is committed.
    :param records: whether records were passed since the last commit. :param opened_at: monotonic time of the first change
        since then. :param foreign: those whose committed position is one of another topic or cluster.
    :param cuts: the offsets at which the source of stopped partitions was truncated.
    :param stopped: the partitions that have reached the offset at which they stop.
    """

    reader: SourceReader
    writer: TargetWriter
    commits: Commits
    control: Cluster
    cluster_id: str | None
    routes: dict[TopicPartition, Route] = field(default_factory=dict)
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    epochs: dict[TopicPartition, Epochs] = field(default_factory=dict)
    dirty: set[TopicPartition] = field(default_factory=set)
    foreign: set[TopicPartition] = field(default_factory=set)
    cuts: dict[TopicPartition, int] = field(default_factory=dict)
    stopped: dict[TopicPartition, Route] = field(default_factory=dict)
    records: bool = False
    opened_at: float = 0.0
    refresh_at: float = 0.0


class Lane:
    """:param index: number of the lane in its flow. :param transactional_id: and `group_id`: see docs/decisions/0041-mirror.md.

    :param source: and `target`: make a new `Cluster`, which the lane closes. :param observer: called from the lane's thread.
    """

    def __init__(
        self,
        index: int,
        transactional_id: str,
        group_id: str,
        source: Callable[[], Cluster],
        target: Callable[[], Cluster],
        options: LaneOptions,
        observer: Observer,
    ) -> None:
        self.index = index
        self._transactional_id = transactional_id
        self._group_id = positions_group(group_id, options.exactly_once)
        self._other_group_id = positions_group(group_id, not options.exactly_once)
        self._source = source
        self._target = target
        self._options = options
        self._observer = observer
        self._lock = threading.Lock()
        self._wanted: dict[TopicPartition, Route] = {}
        self._changed = False
        self._stopping = False
        self._wake, self._waker = socket.socketpair()
        self._wake.setblocking(False)
        self._waker.setblocking(False)
        self._former = NO_PRODUCER
        self._halts: dict[TopicPartition, _Halt] = {}
        self._reported: dict[TopicPartition, str] = {}  # the reasons of stopped partitions that the observer knows
        self._noted: dict[TopicPartition, str] = {}  # those that are committed with positions
        self._unnoted: set[TopicPartition] = (
            set()
        )  # the target refuses their positions with the reason, or at all: see `_mark`
        self._caught_up: dict[
            TopicPartition, Route
        ] = {}  # those of `_reported` and `_noted` that have nothing more to move
        self._recompressed: dict[TopicPartition, float] = {}  # until when batches are compressed again
        self._absent_since: dict[TopicPartition, float] = {}
        self._suspects: dict[
            TopicPartition, tuple[int, int]
        ] = {}  # the first offset of a lost batch, and how often it was lost
        self._failures = 0
        self._commit_s = 0.0  # how long the last commit took, with the wait for the acknowledgements
        self.commits = 0

    # -- other threads --------------------------------------------------------------------------------------------

    def route(self, routes: Collection[Route]) -> None:
        """Replace the partitions of the lane; takes effect between two transactions."""
        with self._lock:
            self._wanted = {route.target: route for route in routes}
            self._changed = True
        self._notify()

    def stop(self) -> None:
        """Let `run` commit what was written, and return."""
        with self._lock:
            self._stopping = True
        self._notify()

    def _notify(self) -> None:
        try:
            self._waker.send(b"x")
        except (BlockingIOError, OSError):  # it is awake, or has ended
            return

    # -- the thread of the lane -------------------------------------------------------------------------------------

    def run(self) -> None:
        """Move records until `stop`. Raises LaneFencedError when another process took the lane."""
        try:
            while not self._stopping:
                try:
                    self._run_session()
                except LaneFencedError:
                    raise
                except PartitionRefusedError as error:
                    self._refused(error)
                except BatchLostError as error:
                    self._batch_lost(error)
                except ClientError as error:
                    self._failed(str(error))
        finally:
            self._wake.close()
            self._waker.close()

    def _run_session(self) -> None:
        self._caught_up.clear()
        with self._source() as source, self._target() as data, self._target() as control:
            commits = Commits(control, self._transactional_id, self._group_id, self._options, self._former)
            self._former = commits.producer
            writer = TargetWriter(data, commits, self._transactional_id, self._options, alone=bool(self._suspects))
            reader = SourceReader(source, self._options, self._limits, self._compare, self._progress, self._warn)
            session = _Session(
                reader, writer, commits, control, source.view().cluster_id, refresh_at=time.monotonic() + REFRESH_S
            )
            with self._lock:
                self._changed = True
            while not (self._stopping and not session.dirty):
                if not session.dirty:
                    self._take_routes(session)
                if not session.dirty:
                    self._report(session)
                self._step(session)

    def _failed(self, reason: str) -> None:
        """Report an error, and wait before the next session."""
        self._failures += 1
        retry_s = RETRIES_S.after(self._failures)
        self._observer.failed(self.index, reason, retry_s)
        deadline = time.monotonic() + retry_s
        while not self._stopping and (left := deadline - time.monotonic()) > 0:
            self._drain_wake(which_readable([self._wake], left))

    def _warn(self, reason: str) -> None:
        self._observer.failed(self.index, reason, 0.0)

    def _refused(self, error: PartitionRefusedError) -> None:
        """The target refuses a batch: the partition is moved up to it, and stops there."""
        place, now = error.route.target, time.monotonic()
        if error.of_content and self._recompressed.pop(place, 0.0) < now:
            self._recompressed[place] = now + RECOMPRESS_S
            minutes = f"{RECOMPRESS_S / 60:g}"
            self._warn(f"{error.reason}; the partition's batches are compressed again for the next {minutes} minutes")
            return
        if error.soon and now - self._absent_since.setdefault(place, now) < ABSENT_S:
            self._failed(error.reason)
            return
        if not error.of_batch:
            self._unnoted.add(place)
        self._halt(place, error.first_offset, error.reason, error.may_pass)

    def _batch_lost(self, error: BatchLostError) -> None:
        """Try again; but a batch with which the target closes the connection again and again stops its partition."""
        place = error.route.target
        offset, count = self._suspects.get(place, (-1, 0))
        count = count + 1 if offset == error.first_offset else 1
        if count < LOST_IN_A_ROW:
            self._suspects[place] = error.first_offset, count
            self._failed(str(error))
            return
        reason = (
            f"the target closed the connection {count} times in a row when it got the batch of {error.size} bytes at the "
            f"source's offset {error.first_offset} for {place[0]}-{place[1]} ({error}); if the batch is larger than "
            "socket.request.max.bytes of the target's brokers, raise it"
        )
        self._halt(place, error.first_offset, reason, may_pass=True)

    def _halt(self, place: TopicPartition, first_offset: int, reason: str, may_pass: bool) -> None:
        retry_at = time.monotonic() + self._options.retry_stopped_s if may_pass else None
        self._halts[place] = _Halt(first_offset, reason, retry_at)
        self._suspects.pop(place, None)

    def _stop_at(self, session: _Session, route: Route) -> None:
        """The partition has reached the offset at which it stops; it is reported when all before it is committed."""
        place = route.target
        session.reader.drop(route)
        session.stopped[place] = route
        if place in session.positions and place not in session.foreign:
            self._mark_note(session, place, self._halts[place].reason)

    def _mark_note(self, session: _Session, place: TopicPartition, reason: str) -> None:
        """Commit the position of a partition again if another reason is noted with it. :param reason: "": it is moved."""
        if self._noted.get(place, "") != reason[:LONGEST_REASON] and place not in self._unnoted:
            self._mark(session, place)

    def _report(self, session: _Session) -> None:
        """Report the partitions that have stopped, and those that are moved again. All that was moved is committed."""
        for place, route in session.stopped.items():
            reason = self._halts[place].reason
            if self._reported.get(place) != reason:
                self._reported[place] = reason
                self._observer.stopped(route, reason)
        caught_up, self._caught_up = self._caught_up, {}
        for place, route in caught_up.items():
            if place in session.routes and place not in self._halts:
                self._resumed(route)
                self._mark_note(session, place, "")

    def _resumed(self, route: Route) -> None:
        if route.target not in self._halts and self._reported.pop(route.target, None) is not None:
            self._observer.resumed(route)

    def _progress(self, route: Route, position: int, high_watermark: int, log_start: int) -> None:
        place = route.target
        if position >= high_watermark and (place in self._reported or place in self._noted):
            self._caught_up[place] = route
        self._observer.progress(route, position, high_watermark, log_start)

    # -- routes and positions ---------------------------------------------------------------------------------------

    def _take_routes(self, session: _Session) -> None:
        """Take over the wanted partitions, and those whose time to try again has come. No transaction is open."""
        now = time.monotonic()
        again = [place for place, halt in self._halts.items() if halt.retry_at is not None and halt.retry_at <= now]
        with self._lock:
            if not self._changed and not again:
                return
            wanted, self._changed = self._wanted, False
        for place in again:
            del self._halts[place]
        for place, route in list(session.routes.items()):
            if wanted.get(place) != route or place in again:
                session.reader.drop(route)
                del session.routes[place], session.positions[place], session.epochs[place]
                session.foreign.discard(place)
                session.cuts.pop(place, None)
        session.stopped = {
            place: route for place, route in session.stopped.items() if place in wanted and place not in again
        }
        self._halts = {place: halt for place, halt in self._halts.items() if place in wanted}
        self._unnoted &= wanted.keys()
        self._reported = {place: reason for place, reason in self._reported.items() if place in wanted}
        self._noted = {place: reason for place, reason in self._noted.items() if place in wanted}
        self._absent_since = {place: since for place, since in self._absent_since.items() if place in wanted}
        self._recompressed = {place: until for place, until in self._recompressed.items() if place in wanted}
        self._suspects = {place: suspect for place, suspect in self._suspects.items() if place in wanted}
        added = [route for place, route in wanted.items() if place not in session.routes]
        if added:
            self._add(session, added)

    def _add(self, session: _Session, routes: list[Route]) -> None:
        own = self._committed(session, [route.target for route in routes])
        other = positions_in(session.control, self._other_group_id, [route.target for route in routes])
        committed = newest(own, other)
        starts = self._starts(
            [route for route in routes if route.target not in committed and route.target not in self._halts]
        )
        for route in routes:
            place = route.target
            position = committed.get(place)
            if position is None and place not in starts:
                self._stop_at(session, route)
                continue
            session.epochs[place] = Epochs.noted(noted("" if position is None else position.metadata))
            if position is None:
                session.positions[place] = starts[place]
                self._mark(session, place)
            else:
                session.positions[place] = position.offset
                self._noted.pop(place, None)
                if stop := stop_noted(position.metadata):
                    self._noted[place] = stop
                reason = self._changed_topic(session, route, position)
                if reason is not None:
                    self._halt(place, position.offset, reason, may_pass=False)
                    session.foreign.add(place)
                elif position != own.get(place) or self._other_writer(position) is not None:
                    self._mark(session, place)
                if reason is None:
                    self._apply_cut(session, route, position)
            session.routes[place] = route
            halt = self._halts.get(place)
            if halt is not None and session.positions[place] >= halt.first_offset:
                self._stop_at(session, route)
            else:
                session.reader.follow(route, session.positions[place], session.epochs[place])
        if session.dirty:
            # Before any record: another start must not choose another first offset, and knows whose the records are.
            self._commit(session)

    def _apply_cut(self, session: _Session, route: Route, position: Position) -> None:
        """Stop a partition that stopped because of a truncation of the source, or continue there if the options say so."""
        place, cut = route.target, cut_noted(position.metadata, position.offset)
        if cut is None:
            return
        continued = self._options.continue_truncated
        reason = truncated(route.source, place, position.offset, cut, cut, continued)
        if continued:
            session.epochs[place].cut(cut)
            self._rewind(session, place, cut, reason)
        else:
            session.cuts[place] = cut
            self._halt(place, position.offset, reason, may_pass=False)

    def _rewind(self, session: _Session, place: TopicPartition, position: int, reason: str) -> None:
        self._warn(f"{reason}; continuing at offset {position}")
        session.cuts.pop(place, None)
        self._advance(session, place, position)

    def _starts(self, routes: list[Route]) -> dict[TopicPartition, int]:
        """The first offsets to copy for partitions without a position, by target; those that have none are halted."""
        if not routes:
            return {}
        found = self._limits([route.source for route in routes], self._options.start)
        reasons: dict[TopicPartition, str] = {}
        if self._options.start == EARLIEST and not self._options.append:
            with self._target() as target:
                reasons = obstacles(target, [route.target for route in routes])
        starts = {}
        for route in routes:
            refused = found.refused.get(route.source)
            reason = reasons.get(route.target)
            if refused is not None:
                reason = f"{self._no_start(route)}: {describe_code(refused)}"
                if refused in STALE_LEADER:
                    raise PartitionRefusedError(route, 0, reason, True, soon=True, of_batch=False)
            elif found.offsets.get(route.source, 0) < 0:
                reason = f"{self._no_start(route)}: it states {found.offsets[route.source]}"
            elif route.source not in found.offsets:
                reason = (
                    f"{self._no_start(route)}: the partition has no leader, does not exist, or may not be described"
                )
            if reason is None:
                starts[route.target] = found.offsets[route.source]
            else:
                self._halt(route.target, 0, reason, may_pass=True)
        return starts

    def _committed(self, session: _Session, places: Collection[TopicPartition]) -> dict[TopicPartition, Position]:
        """The committed positions. Former owners that had another number of lanes are fenced before they are read."""
        committed, denied = session.commits.positions(places)
        others = {self._other_writer(position) for position in committed.values()} - {None}
        for other in others:
            session.commits.fence(str(other))
        if others:
            committed, denied = session.commits.positions(places)
        for place in denied - self._halts.keys():
            reason = describe_code(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            self._halt(place, 0, f"the target does not give the position of {place[0]}-{place[1]}: {reason}", True)
        return committed

    def _other_writer(self, position: Position) -> str | None:
        """The transactional id that committed a position, if it is another one of this flow.

        The number of lanes was changed then. A worker that was only paused still has the id, and would write again.
        """
        flow = self._transactional_id.rsplit(".", 2)[0]
        writer = noted(position.metadata).get("by")
        if not self._options.exactly_once or not isinstance(writer, str) or writer == self._transactional_id:
            return None
        return writer if writer.rsplit(".", 2)[0] == flow else None

    def _no_start(self, route: Route) -> str:
        return f"the source gives no {self._options.start} offset of {route.source[0]}-{route.source[1]}"

    def _limits(self, places: Collection[TopicPartition], start: str) -> Limits:
        """As `leaders.limits`, over separate connections, because those of the reader have requests in flight."""
        with self._source() as source:
            return limits(source, places, start)

    def _compare(self, asked: list[Asked]) -> Compared:
        """As `epochs.compare`, over separate connections."""
        with self._source() as source:
            return compare(source, asked)

    def _changed_topic(self, session: _Session, route: Route, position: Position) -> str | None:
        """Why the position is not one of the route's topic; None if it is, or if that cannot be known."""
        return changed_source(route.source, route.target, position.metadata, route.source_topic_id, session.cluster_id)

    def _position(self, session: _Session, place: TopicPartition) -> Position:
        """What to commit: the first offset that the writer has not sent, and what is noted with it."""
        unsent, topic_id = session.writer.unsent(place), session.routes[place].source_topic_id
        position = session.positions[place] if unsent is None else unsent
        known = session.epochs[place].before(position)
        writer = self._transactional_id if self._options.exactly_once else None
        cut, stop = session.cuts.get(place), self._stop_to_note(session, place)
        return Position(position, notes(known, session.cluster_id, topic_id, writer, cut, stop))

    def _stop_to_note(self, session: _Session, place: TopicPartition) -> str:
        return self._halts[place].reason if place in session.stopped and place not in self._unnoted else ""

    # -- moving -----------------------------------------------------------------------------------------------------

    def _step(self, session: _Session) -> None:
        """Wait for something, handle it, and commit if it is time."""
        reader, writer = session.reader, session.writer
        full = writer.bytes_sent >= self._options.commit_bytes
        connections = [*writer.connections, *([] if full else reader.connections)]
        buffered = [connection for connection in connections if connection.buffered]
        waited: list[Readable] = [self._wake, *connections]
        found = which_readable(waited, 0 if buffered else self._timeout_s(session))
        self._drain_wake(found)
        ready = [connection for connection in connections if connection in found or connection in buffered]
        for connection in [connection for connection in writer.connections if connection in ready]:
            writer.receive_all(connection)
        writer.check_time()
        if not full:
            for event in reader.poll(ready):
                if isinstance(event, Stopped):
                    self._source_stopped(session, event)
                elif isinstance(event, Rewound):
                    self._rewind(session, event.route.target, event.position, event.reason)
                elif isinstance(event, Answered):
                    if not self._flush(session):
                        return
                else:
                    self._take(session, event)
        if session.dirty and self._time_to_commit(session):
            self._commit(session)
        elif not session.dirty and time.monotonic() >= session.refresh_at:
            self._refresh(session)

    def _flush(self, session: _Session) -> bool:
        """Send the batches of all partitions of an answer, in several transactions if the target is slow.

        False: the lane is to stop, and nothing behind what was committed may be written in this session.
        """
        while not session.writer.flush(self._send_until(session)):
            self._commit(session)
            if self._stopping:
                session.dirty.clear()
                return False
        if session.dirty and time.monotonic() >= self._send_until(session):
            self._commit(session)  # the answers of other leaders may take long to arrive
        return True

    def _send_until(self, session: _Session) -> float:
        """When to commit although more is to be sent: not before the transaction has lasted as long as a commit takes."""
        interval_s = max(self._options.commit_interval_ms / 1000, self._commit_s)
        return session.opened_at + min(interval_s, self._options.transaction_timeout_ms / 1000 / SEND_PART)

    def _timeout_s(self, session: _Session) -> float:
        """The longest time to wait for the next event."""
        now = time.monotonic()
        due = [session.refresh_at - now]
        if session.dirty:
            due.append(session.opened_at + self._options.commit_interval_ms / 1000 - now)
        else:  # `_take_routes` is called then
            due += [halt.retry_at - now for halt in self._halts.values() if halt.retry_at is not None]
        due += [left for left in (session.reader.due_s(), session.writer.due_s()) if left is not None]
        return max(0.0, min(due))

    def _drain_wake(self, found: Collection[object]) -> None:
        if self._wake in found:
            self._wake.recv(4096)

    def _source_stopped(self, session: _Session, event: Stopped) -> None:
        place = event.route.target
        self._halt(place, session.positions[place], event.reason, event.may_pass)
        if event.truncated is not None:
            session.cuts[place] = event.truncated
            self._mark(session, place)
        self._stop_at(session, event.route)

    def _take(self, session: _Session, event: Fetched) -> None:
        """Pass the batches of a response to the writer, up to the offset at which the partition stops."""
        route, data, walk = event
        place = route.target
        halt = self._halts.get(place)
        recompress = self._recompressed.get(place, 0.0) > time.monotonic()
        for batch in walk.batches:
            if halt is not None and batch.last_offset >= halt.first_offset:
                self._stop_at(session, route)
                break
            try:
                outgoing = _outgoing(route, data, batch, recompress)
            except InvalidBatchError as error:
                self._halt(
                    place, batch.first_offset, f"{route.source[0]}-{route.source[1]} of the source: {error}", True
                )
                self._stop_at(session, route)
                break
            if outgoing is not None:
                session.writer.put(outgoing)
                session.records = True
            self._advance(session, place, batch.last_offset + 1)
        else:
            self._advance(session, place, walk.position)

    def _advance(self, session: _Session, place: TopicPartition, position: int) -> None:
        if position != session.positions[place]:
            session.positions[place] = position
            self._mark(session, place)

    def _mark(self, session: _Session, place: TopicPartition) -> None:
        """Commit the position of a partition, unless the target refuses it: nothing of this partition is moved then."""
        halt = self._halts.get(place)
        if place in self._unnoted and halt is not None and halt.first_offset == 0:
            return
        if not session.dirty:
            session.opened_at = time.monotonic()
        session.dirty.add(place)

    def _time_to_commit(self, session: _Session) -> bool:
        """Whether all that was fetched is acknowledged and nothing waits, or the transaction is old or large enough."""
        if self._stopping or self._changed or session.writer.bytes_sent >= self._options.commit_bytes:
            return True
        if session.records and not session.writer.unacknowledged and not session.reader.behind:
            return True
        return time.monotonic() - session.opened_at >= self._options.commit_interval_ms / 1000

    def _refresh(self, session: _Session) -> None:
        session.refresh_at = time.monotonic() + REFRESH_S
        for place in session.routes.keys() - session.foreign:  # the metadata of these must stay
            self._mark(session, place)

    def _commit(self, session: _Session) -> None:
        positions = {place: self._position(session, place) for place in session.dirty}
        began = time.monotonic()
        try:
            written = session.writer.commit(positions)
        except PositionRefusedError as error:
            if error.place in session.stopped:  # the reason is known already; the observer gets it
                if error.place in self._unnoted:  # the position is refused also without the reason
                    self._halts[error.place] = self._halts[error.place]._replace(first_offset=0)
                self._unnoted.add(error.place)
                raise
            # Nothing of the partition can be written, wherever its position is: it stops before its first offset.
            raise PartitionRefusedError(
                session.routes[error.place], 0, str(error), True, error.code in ABSENT, of_batch=False
            ) from error
        self.commits += 1
        self._commit_s = time.monotonic() - began
        self._unnoted -= positions.keys()
        for place, position in positions.items():
            self._noted.pop(place, None)
            if stop := stop_noted(position.metadata):
                self._noted[place] = stop
        session.dirty = {place for place in session.dirty if session.writer.unsent(place) is not None}
        session.records = bool(session.dirty)
        session.opened_at = time.monotonic()
        self._failures = 0
        if self._suspects:
            self._suspects = {it: at for it, at in self._suspects.items() if session.positions.get(it, 0) <= at[0]}
            session.writer.alone = bool(self._suspects)
        for batch in written:
            self._absent_since.pop(batch.route.target, None)
            if batch.route.target in self._reported:
                self._resumed(batch.route)
            self._observer.moved(batch)


def _outgoing(route: Route, data: memoryview, batch: FetchedBatch, recompress: bool) -> Outgoing | None:
    """A fetched batch as the target takes it; None if none of its records is wanted. Raises InvalidBatchError.

    :param recompress: encode a compressed batch again, although it could be copied.
    """
    next_offset = batch.last_offset + 1
    if batch.kind == MOVE and not (recompress and batch.codec):
        piece = data[batch.start : batch.start + batch.size]
        return Outgoing(route, piece, batch.records, batch.first_offset, next_offset, batch.max_timestamp)
    again = reencode(data, batch, route.convert_append_time)
    if again is None:
        return None
    return Outgoing(route, memoryview(again.data), again.records, again.first_offset, next_offset, again.max_timestamp)
