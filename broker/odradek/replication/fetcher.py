"""A replica fetcher: a thread that fetches some of the partitions of one leader and appends their records.

Each fetcher has its own thread of the replicator. The native part (`ReplicaConnection`) sends, receives and appends without the
GIL; this module connects, and decides about partitions whose fetch cannot simply go on, by the state machine in `follow.py`.
Other threads only call `add`, `remove`, `look`, `stop`, `join` and the properties.

A partition that fails is delayed or stopped alone. If the connection is lost, the fetcher connects again after
20 ms, and after longer times up to `replica.fetch.backoff.ms` if that fails. Before the session of its login ends, the fetcher
connects again: the last response arrives first, and the in-sync replicas do not change.
"""

import heapq
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import odradek._ext.partition.slot_upkeep as slot_upkeep
from odradek._ext.partition.flusher import SharedFlusher
from odradek._ext.partition.slot_access import AppendResult
from odradek._ext.partition.slots import SlotBusy, SlotChanged
from odradek._ext.replication.followed_slots import Followed, note_fetch_error, position_of
from odradek._ext.replication.replica_connection import FetchOutcome, ReplicaConnection
from odradek._ext.shm.locks import enter_lane
from odradek._ext.shm.shared_memory import SharedMemory
from odradek.backoff import RecentFailures, SetupTimeout
from odradek.protocol.errors import ErrorCode, peer_error_text
from odradek.replication import follow
from odradek.replication.follow import FIRST_BACKOFF_MS, Action, Event, Follow, Position
from odradek.replication.leader_connection import (
    Address,
    LeaderConnection,
    LeaderError,
    LeaderRefused,
    LeaderTimeout,
)
from odradek.security.opening import RETRY_MS
from odradek.security.sasl.client import NoTokenError
from odradek.shm import epochs, truncation
from odradek.storage.checkpoints import CorruptCheckpointError

if TYPE_CHECKING:
    from odradek.security.peers import PeerSecurity

log = logging.getLogger("odradek.replication")

NOTHING = Position(0, 0, 0, -1)
REPORT_AGAIN_MS = 30_000
"""The time in ms after which the same message about a partition is logged again."""
USUAL_MS = 5000
"""The time in ms for which a failure that is usual after a change of the leader is not reported."""
REPORTS, REPORTS_MS = 20, 10_000
"""A fetcher logs at most so many messages about partitions in so many ms."""
EVENT_ERROR, EVENT_DIVERGING, EVENT_APPEND = 2, 3, 4
NEW_SESSION = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)
"""Errors after which a new fetch session is begun at once."""
LOST = {
    FetchOutcome.FETCH_TIMED_OUT: "no response, or fewer than 16 KiB more of it, within replica.socket.timeout.ms",
    FetchOutcome.FETCH_MALFORMED: "it sent a malformed response",
    FetchOutcome.FETCH_NO_MEMORY: "no memory for its response",
}


@dataclass(frozen=True)
class FetcherSettings:
    """The settings of all fetchers; the names are those of the keys `replica.*`. Times in ms, sizes in bytes."""

    broker_id: int
    max_wait_ms: int
    min_bytes: int
    response_max_bytes: int
    max_bytes: int
    backoff_ms: int
    socket_timeout_ms: int
    receive_buffer_bytes: int
    setup_timeout_ms: int = 10_000
    setup_timeout_max_ms: int = 30_000


@dataclass
class _Partition:
    """A partition of this fetcher. :ivar until_ms: when its delay ends; 0: it is not delayed."""

    slot: int
    followed: Followed
    place: int
    machine: Follow
    until_ms: int = 0
    reported: tuple[str, int] = ("", 0)
    trouble: tuple[str, int, int] = ("", 0, 0)  # a reason for waiting, when it began, when it was last seen
    failed: bool = False

    @property
    def name(self) -> str:
        return f"{self.followed.topic}-{self.followed.partition}"


def monotonic_ms() -> int:
    """The monotonic time in ms."""
    return time.monotonic_ns() // 1_000_000


@dataclass
class Fetcher:
    """See the module.

    :param leader_id: the broker to fetch from. :param number: of this fetcher among those of the leader, from 0.
    :param lane: the lock lane of its thread.
    :param address: returns the present address of the leader; None if it is not known. Called in the thread.
    :param security: None: the inter-broker listener is PLAINTEXT.
    :param flusher: syncs logs with flush.messages, whose log end may be fetched from only when it is on the device. Its owner
        calls `flushed` when this process was woken.
    """

    leader_id: int
    number: int
    lane: int
    settings: FetcherSettings
    shm: SharedMemory
    log_dirs: Sequence[Path]
    address: Callable[[], Address | None]
    security: "PeerSecurity | None" = None
    flusher: SharedFlusher | None = None
    _commands: "queue.SimpleQueue[Callable[[], None]]" = field(default_factory=queue.SimpleQueue)

    def __post_init__(self) -> None:
        settings = self.settings
        self._client_id = f"broker-{settings.broker_id}-fetcher-{self.number}"
        self._native = ReplicaConnection(
            self._client_id,
            settings.broker_id,
            max_wait_ms=settings.max_wait_ms,
            min_bytes=settings.min_bytes,
            max_bytes=settings.response_max_bytes,
            partition_max_bytes=settings.max_bytes,
            timeout_ms=settings.socket_timeout_ms,
            flusher=self.flusher,
        )
        self._by_slot: dict[int, _Partition] = {}
        self._by_place: dict[int, _Partition] = {}
        self._changing = threading.Lock()  # held while this fetcher truncates a log
        self._removals: dict[int, int] = {}  # slot: how often the thread still has to remove it
        self._delayed: list[tuple[int, int]] = []  # heap of (until, slot)
        self._connection: LeaderConnection | None = None
        self._connected_to: Address | None = None
        self._last_address: Address | None = None
        self._connect_at_ms = 0
        self._reconnects = RecentFailures(FIRST_BACKOFF_MS, settings.backoff_ms)
        self._setup = SetupTimeout(settings.setup_timeout_ms, settings.setup_timeout_max_ms)
        self._renew_at_ms: int | None = None  # when the session of the login ends soon
        self._unreachable = ""  # why, as it was logged
        self._refused_at = -1  # the number of the response with which the leader last refused the whole request
        self._failed = 0
        self._reports_since = 0
        self._reports = 0
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=f"fetcher-{self.leader_id}-{self.number}", daemon=True)

    # -- for other threads --------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread. Raises RuntimeError if the system has no thread left."""
        self._thread.start()

    def add(self, slot: int, followed: Followed) -> None:
        """Fetch a partition, or fetch it in its new leader epoch."""
        self._command(partial(self._add, slot, followed))

    def remove(self, slot: int) -> None:
        """Fetch a partition no more. After the return this fetcher truncates its log no more, so that another one may fetch it.
        A response that is under way may still be appended if it continues the log."""
        with self._changing:
            self._removals[slot] = self._removals.get(slot, 0) + 1
        self._command(partial(self._removed, slot))

    def flushed(self) -> None:
        """A log was synced, perhaps one for which a partition waits."""
        if self._native.waits_for_device:
            self._native.wake()

    def look(self) -> None:
        """Look at the address of the leader again."""
        self._command(self._check_address)

    def stop(self) -> None:
        """End the thread; `ended` shows when it has ended."""
        self._stopping = True
        self._native.wake()

    @property
    def ended(self) -> bool:
        return not self._thread.is_alive()

    def join(self, timeout_s: float) -> None:
        """Wait until the thread has ended."""
        self._thread.join(timeout_s)

    @property
    def records_bytes(self) -> int:
        """Bytes of records that were appended since the start."""
        return int(self._native.records_bytes)

    @property
    def max_lag(self) -> int:
        """The largest lag of a partition behind the leader's high watermark, in records."""
        return int(self._native.max_lag)

    @property
    def failed(self) -> int:
        """The number of partitions that are not fetched until they have a new leader epoch."""
        return self._failed

    def _command(self, command: Callable[[], None]) -> None:
        self._commands.put(command)
        self._native.wake()

    # -- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        enter_lane(self.lane)
        try:
            while not self._stopping:
                self._step()
        except Exception:
            log.exception("the replica fetcher %d of broker %d ended by an error", self.number, self.leader_id)
        finally:
            self._disconnect()

    def _step(self) -> None:
        """Do what is due, then fetch until something is to be decided."""
        while not self._commands.empty():
            self._commands.get()()
        now = monotonic_ms()
        self._end_delays(now)
        until = self._delayed[0][0] if self._delayed else now + REPORT_AGAIN_MS
        if self._renew_at_ms is not None:
            until = self._renew(now, until)
        if not self._native.active and not self._native.under_way:
            self._native.rest(until)
        elif now < self._connect_at_ms:
            self._native.rest(min(until, self._connect_at_ms))
        elif self._connection is None:
            self._connect()  # the next step knows until when its session lasts
        else:
            self._handle(self._native.run(until))

    def _renew(self, now: int, until: int) -> int:
        """If the session of the login ends soon, receive what is under way and close the connection: the next step connects
        again. Returns until when to fetch."""
        assert self._renew_at_ms is not None
        if now < self._renew_at_ms:
            return min(until, self._renew_at_ms)
        if self._native.under_way:
            self._native.finish()
        else:
            self._disconnect()
        return until

    def _handle(self, outcome: int) -> None:
        """Handle the end of a native run. Events may precede any end; they do not wait: a partition may be removed next."""
        for place, kind, first, second in self._native.take_events():
            self._advance(self._by_place[place], _event_of(kind, first, second))
        match outcome:
            case FetchOutcome.FETCH_LOST:
                self._lost(self._why_lost())
            case FetchOutcome.FETCH_REFUSED:
                self._on_refusal(self._native.error)
            case _ if outcome in LOST:
                self._lost(LOST[FetchOutcome(outcome)])

    def _why_lost(self) -> str:
        tls = None if self._connection is None else self._connection.tls
        if tls is not None and tls.lost_by is not None and self._connected_to is not None and self.security is not None:
            reason = self.security.reason_of(tls.lost_by, self._connected_to[0])
            return reason or tls.lost_by.strerror or "it closed the connection"
        return os.strerror(self._native.error) if self._native.error else "it closed the connection"

    def _on_refusal(self, code: int) -> None:
        """Begin a new session at once, but after the backoff if the leader refuses the new session, too."""
        again = self._native.responses == self._refused_at + 1
        self._refused_at = self._native.responses
        if code not in NEW_SESSION:
            self._lost(f"it refused the fetch with {peer_error_text(code)}", RETRY_MS)
        elif again:
            self._connect_at_ms = monotonic_ms() + self.settings.backoff_ms

    # -- partitions ---------------------------------------------------------------------------------------------------

    def _add(self, slot: int, followed: Followed) -> None:
        self._remove(slot)
        place = self._native.add(
            slot, followed.incarnation, followed.leader_epoch, followed.topic, followed.topic_id, followed.partition
        )
        machine = Follow(self.settings.backoff_ms, partial(_epoch_end, slot))
        entry = self._by_slot[slot] = self._by_place[place] = _Partition(slot, followed, place, machine)
        self._advance(entry, follow.Begin())

    def _removed(self, slot: int) -> None:
        self._remove(slot)
        with self._changing:
            self._removals[slot] -= 1
            if not self._removals[slot]:
                del self._removals[slot]

    def _remove(self, slot: int) -> None:
        entry = self._by_slot.pop(slot, None)
        if entry is not None:
            del self._by_place[entry.place]
            self._failed -= entry.failed
            self._native.drop(entry.place)

    def _end_delays(self, now: int) -> None:
        while self._delayed and self._delayed[0][0] <= now:
            until, slot = heapq.heappop(self._delayed)
            entry = self._by_slot.get(slot)
            if entry is not None and entry.until_ms == until:
                entry.until_ms = 0
                self._advance(entry, follow.Due())

    def _advance(self, entry: _Partition, event: Event) -> None:
        """Pass an event to the machine of a partition, and carry out what follows. An error stops this partition alone."""
        following: Event | None = event
        try:
            while following is not None:
                position = self._position(entry)
                if position is None:
                    following, position = follow.RoleChanged(), NOTHING
                following = self._carry_out(entry, entry.machine.handle(following, position, monotonic_ms()), position)
        except Exception:
            log.exception("cannot replicate %s any more until it has a new leader epoch", entry.name)
            entry.machine.state = follow.Failed(ErrorCode.UNKNOWN_SERVER_ERROR)
            self._stop_partition(entry, ErrorCode.UNKNOWN_SERVER_ERROR)

    def _position(self, entry: _Partition) -> Position | None:
        """The state of the log; None if the slot has another role, epoch or partition, or its log is not open."""
        found = position_of(entry.slot, entry.followed.incarnation, entry.followed.leader_epoch)
        if found is not None:
            return Position(*found)
        try:
            slot_upkeep.settle(entry.slot)  # a process may have died in a change of the slot
        except SlotBusy as error:
            self._report(entry, str(error))
        return None

    def _carry_out(self, entry: _Partition, action: Action, position: Position) -> Event | None:
        """Returns the outcome, or None if the machine gets the next event later."""
        followed = entry.followed
        match action:
            case follow.Fetch(from_offset):
                if not self._native.activate(entry.place, from_offset):
                    return follow.RoleChanged()
                if entry.failed:
                    entry.failed = False
                    self._failed -= 1
                    note_fetch_error(entry.slot, followed.incarnation, followed.leader_epoch, 0)
                return None
            case follow.Truncate(offset, below):
                self._log_truncation(entry, offset, position, below)
                return self._change(entry, truncation.truncate, offset)
            case follow.StartAt(offset, below, _):
                self._log_truncation(entry, offset, position, below)
                return self._change(entry, truncation.start_at, offset)
            case follow.Settle():
                return self._change(entry, None, 0)
            case follow.AskLatest() | follow.AskEarliest():
                return self._ask(entry, latest=isinstance(action, follow.AskLatest))
            case follow.Wait(until, reason, usual):
                entry.until_ms = until
                heapq.heappush(self._delayed, (until, entry.slot))
                if not usual or self._lasts(entry, reason):
                    self._report(entry, reason)
            case follow.Stop(code, reason):
                self._report(entry, reason, logging.INFO if code == ErrorCode.FENCED_LEADER_EPOCH else logging.ERROR)
                self._stop_partition(entry, code)
        return None

    def _stop_partition(self, entry: _Partition, code: int) -> None:
        self._failed += not entry.failed
        entry.failed = True
        self._native.deactivate(entry.place)
        note_fetch_error(entry.slot, entry.followed.incarnation, entry.followed.leader_epoch, code)

    def _change(self, entry: _Partition, verb: Callable[..., int] | None, offset: int) -> Event:
        """Truncate the log or begin it again; without a verb, write the checkpoints of a truncated log."""
        with self._changing:
            if entry.slot in self._removals:
                return follow.RoleChanged()
            return self._change_log(entry, verb, offset)

    def _change_log(self, entry: _Partition, verb: Callable[..., int] | None, offset: int) -> Event:
        followed = entry.followed
        try:
            if verb is None:
                truncation.settle(self.shm, self.log_dirs, entry.slot)
            else:
                verb(
                    self.shm, self.log_dirs, entry.slot, offset,
                    leader_epoch=followed.leader_epoch, incarnation=followed.incarnation,
                )  # fmt: skip
        except SlotChanged as error:
            if error.result in follow.ROLE_RESULTS or error.result == AppendResult.APPEND_OFFLINE:
                return follow.RoleChanged()
            return follow.LogNotChanged(f"its log cannot be truncated: {error}")
        except (OSError, CorruptCheckpointError, SlotBusy) as error:
            return follow.LogNotChanged(f"its log cannot be truncated: {error}")
        return follow.LogChanged()

    def _ask(self, entry: _Partition, *, latest: bool) -> Event:
        """Ask the leader for an offset, on a separate connection, because a fetch may be under way on the first."""
        followed = entry.followed
        address = self._leader_address()
        if address is None:
            return follow.Unanswered()
        try:
            connection = self._open(address)
            try:
                code, offset = connection.offset_of(
                    followed.topic, followed.partition, followed.leader_epoch, self.settings.broker_id, latest=latest
                )
            finally:
                connection.close()
        except LeaderError as error:
            self._report(entry, f"broker {self.leader_id} did not return its offsets: {error}")
            return follow.Unanswered()
        if code:
            return follow.Refused(code)
        return follow.LatestOffset(offset) if latest else follow.EarliestOffset(offset)

    def _log_truncation(self, entry: _Partition, offset: int, position: Position, below: bool) -> None:
        log.log(
            logging.WARNING if below else logging.INFO,
            "truncating %s from offset %d to %d, as the log of its leader, broker %d, in leader epoch %d requires%s",
            entry.name, position.log_end, offset, self.leader_id, entry.followed.leader_epoch,
            f": this removes records below the high watermark {position.high_watermark}" if below else "",
        )  # fmt: skip

    def _lasts(self, entry: _Partition, reason: str) -> bool:
        """Whether a partition has waited for this reason for `USUAL_MS`."""
        now = monotonic_ms()
        known, since, last = entry.trouble
        if known != reason or now - last > USUAL_MS + self.settings.backoff_ms:
            since = now
        entry.trouble = reason, since, now
        return now - since >= USUAL_MS

    def _report(self, entry: _Partition, reason: str, level: int = logging.WARNING) -> None:
        """Log why a partition is not fetched, unless this was logged within `REPORT_AGAIN_MS`."""
        now = monotonic_ms()
        if not reason or (entry.reported[0] == reason and now - entry.reported[1] < REPORT_AGAIN_MS):
            return
        entry.reported = reason, now
        if now - self._reports_since >= REPORTS_MS:
            if self._reports > REPORTS:
                log.warning(
                    "%d more messages about partitions of broker %d were not logged",
                    self._reports - REPORTS,
                    self.leader_id,
                )
            self._reports_since, self._reports = now, 0
        self._reports += 1
        if self._reports <= REPORTS:
            ended = isinstance(entry.machine.state, follow.Failed)
            then = "waiting for a new leader epoch" if ended else f"retrying in {self.settings.backoff_ms} ms"
            log.log(level, "cannot fetch %s from broker %d: %s; %s", entry.name, self.leader_id, reason, then)

    # -- the connection -----------------------------------------------------------------------------------------------

    def _leader_address(self) -> Address | None:
        """The address of the leader; the last one if it is not known any more. A broker that is not registered may still lead
        until the controller has elected another one.
        """
        self._last_address = self.address() or self._last_address
        return self._last_address

    def _open(self, address: Address) -> LeaderConnection:
        """Raises LeaderError."""
        settings = self.settings
        try:
            connection = LeaderConnection(
                address, self._client_id, settings.socket_timeout_ms / 1000, settings.receive_buffer_bytes,
                setup_s=self._setup.seconds, security=self.security,
            )  # fmt: skip
        except LeaderTimeout:
            self._setup.timed_out()
            raise
        except LeaderRefused as error:
            if isinstance(error.__cause__, TimeoutError):
                self._setup.timed_out()
            if self.security is not None and not isinstance(error.__cause__, NoTokenError):  # which is reported already
                self.security.failed(f"broker {self.leader_id}", address, str(error))
            raise
        self._setup.succeeded()
        if self.security is not None:
            self.security.succeeded(address)
        return connection

    def _connect(self) -> None:
        """Connect to the leader; sets the time of the next attempt if this fails."""
        address = self._leader_address()
        if address is None:
            self._lost("its address is not known")
            return
        try:
            connection = self._open(address)
        except LeaderRefused as error:
            self._lost(str(error), RETRY_MS, logged=True)
            return
        except LeaderError as error:
            again = (
                self.security is not None and self._unreachable != ""
            )  # a handshake costs both brokers more than a connection
            self._lost(f"{address[0]}:{address[1]}: {error}", RETRY_MS if again else 0)
            return
        try:
            self._native.connected(connection.fileno(), connection.fetch_version, connection.tls)
        except ValueError as error:
            connection.close()
            self._lost(str(error))
            return
        self._connection, self._connected_to = connection, address
        if connection.renew_at is not None:  # however short the session is, something is fetched in it
            self._renew_at_ms = max(int(connection.renew_at * 1000), monotonic_ms() + RETRY_MS)
        if self._unreachable:
            log.info("replica fetcher %d is connected to broker %d at %s:%d", self.number, self.leader_id, *address)
            self._unreachable = ""

    def _lost(self, reason: str, least_ms: int = 0, *, logged: bool = False) -> None:
        """Connect again, at first soon, later after the backoff. Logs a reason once, until the connection succeeds.

        :param least_ms: the least time until the next attempt. :param logged: the reason is in the log already.
        """
        self._disconnect()
        now = monotonic_ms()
        self._connect_at_ms = now + max(least_ms, self._reconnects.next(now))
        if logged:
            self._unreachable = reason
        if reason != self._unreachable:
            self._unreachable = reason
            log.warning(
                "replica fetcher %d has no connection to broker %d: %s; retrying every %d ms",
                self.number, self.leader_id, reason, self.settings.backoff_ms,
            )  # fmt: skip

    def _disconnect(self) -> None:
        self._native.disconnected()
        if self._connection is not None:
            self._connection.close()
        self._connection = self._connected_to = None
        self._renew_at_ms = None

    def _check_address(self) -> None:
        address = self._leader_address()
        if self._connection is not None and address != self._connected_to:
            self._disconnect()
        if address is not None and self._connection is None:
            self._connect_at_ms = 0


def _epoch_end(slot: int, epoch: int) -> tuple[int, int]:
    """See `follow.EpochEnd`."""
    try:
        return epochs.end_offset_for(slot, epoch)
    except SlotBusy as error:
        raise OSError(str(error)) from error


def _event_of(kind: int, first: int, second: int) -> Event:
    """The event of the machine for an event of the native part."""
    if kind == EVENT_ERROR:
        return follow.Refused(first)
    if kind == EVENT_DIVERGING:
        return follow.Diverging(first, second)
    if kind == EVENT_APPEND:
        return follow.AppendFailed(first, second)
    return follow.RoleChanged()
