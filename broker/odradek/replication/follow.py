"""Decides what a follower does with the log of one partition: fetch, truncate it, begin it again, ask the leader, or wait.

Pure: no I/O, no clock, no slot. A thread of the replicator has one `Follow` per partition. It passes events to it, carries
out the action that it returns, and passes the outcome as the next event. The rules are those of Kafka's replica fetchers with
divergence detection in Fetch (KIP-101, KIP-279, KIP-320, KIP-595): a follower fetches with the epoch of its last batch; if the
leader's log does not contain that epoch up to the follower's log end, the leader returns the epoch and the offset at which the
logs diverge.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from odradek._ext.partition.slot_access import AppendResult
from odradek.backoff import RecentFailures
from odradek.protocol.errors import ErrorCode, peer_error_text

UNDEFINED = -1
FIRST_BACKOFF_MS = 20

EpochEnd = Callable[[int], tuple[int, int]]
"""The largest epoch of the follower's log that is not above the given epoch, and its end offset; (-1, -1) if the epoch is
newer than the whole log, or the log has no epochs. For an epoch below the first one: this epoch and the first one's start
offset."""


class Position(NamedTuple):
    """The state of a follower's log. ``last_epoch``: the leader epoch of its last batch; -1 if it has none."""

    log_start: int
    log_end: int
    high_watermark: int
    last_epoch: int


# -- events -------------------------------------------------------------------------------------------------------------


class Begin(NamedTuple):
    """The partition has a new leader epoch, or the fetcher has just started."""


class Diverging(NamedTuple):
    """The leader's log contains its epoch ``epoch`` up to ``end_offset``; the follower's log differs from there."""

    epoch: int
    end_offset: int


class Refused(NamedTuple):
    """The leader returned an error for the partition. ``code``: Kafka's error code."""

    code: int


class AppendFailed(NamedTuple):
    """Records of the leader were not appended. ``result``: an AppendResult; ``value``: the base offset of the first batch for
    APPEND_BEFORE_LOG, an errno for APPEND_IO_ERROR."""

    result: int
    value: int = UNDEFINED


class LatestOffset(NamedTuple):
    """The leader's log end offset."""

    offset: int


class EarliestOffset(NamedTuple):
    """The leader's log start offset."""

    offset: int


class Unanswered(NamedTuple):
    """The leader did not answer a question about its offsets."""


class LogChanged(NamedTuple):
    """The log was changed as requested."""


class LogNotChanged(NamedTuple):
    """The log could not be changed as requested; it may be changed partly. ``reason``: for a log message."""

    reason: str


class RoleChanged(NamedTuple):
    """The slot has another role, leader epoch or partition."""


class Due(NamedTuple):
    """The delay has passed."""


Event = (
    Begin | Diverging | Refused | AppendFailed | LatestOffset | EarliestOffset | Unanswered | LogChanged | LogNotChanged
    | RoleChanged | Due
)  # fmt: skip


# -- actions ------------------------------------------------------------------------------------------------------------


class Fetch(NamedTuple):
    """Fetch from the log end. ``from_offset``: fetch an empty log from there, if that is above its end."""

    from_offset: int = UNDEFINED


class Truncate(NamedTuple):
    """Cut the log to end at ``offset``, then pass LogChanged. ``below``: this removes records below the high watermark."""

    offset: int
    below: bool


class StartAt(NamedTuple):
    """Drop the whole log and begin it at ``offset``, then pass LogChanged. ``below``: as of `Truncate`; ``fetch_from``: the
    offset of the next fetch, if it is not ``offset``."""

    offset: int
    below: bool
    fetch_from: int = UNDEFINED


class Settle(NamedTuple):
    """Write the checkpoints of the truncated log, then pass LogChanged."""


class AskLatest(NamedTuple):
    """Ask the leader for its log end offset."""


class AskEarliest(NamedTuple):
    """Ask the leader for its log start offset."""


class Wait(NamedTuple):
    """Do not fetch until ``until_ms``, then pass Due. ``reason``: for a log message; empty: the wait needs none. ``usual``: the
    reason is usual for a short time after a change of the leader, so that only its repetition needs a message."""

    until_ms: int
    reason: str = ""
    usual: bool = False


class Stop(NamedTuple):
    """Do not fetch until the partition has a new leader epoch. ``code``: the error for which it is not fetched."""

    code: int
    reason: str


Action = Fetch | Truncate | StartAt | Settle | AskLatest | AskEarliest | Wait | Stop
LogAction = Fetch | Truncate | StartAt | Settle | AskLatest | AskEarliest


# -- states -------------------------------------------------------------------------------------------------------------


class Truncating(NamedTuple):
    """The log must be changed before the next fetch. ``action``: what is under way."""

    action: LogAction


class Fetching(NamedTuple):
    """The partition is fetched from its log end."""


class Delayed(NamedTuple):
    """After an error. ``action``: what follows at ``until_ms``."""

    until_ms: int
    action: LogAction


class Failed(NamedTuple):
    """The partition is not fetched until it has a new leader epoch. ``code``: Kafka's error code."""

    code: int


State = Truncating | Fetching | Delayed | Failed

USUAL = frozenset(
    {
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.LEADER_NOT_AVAILABLE,
    }
)
"""Errors of a leader to which the controller has not sent the change yet that this broker has received."""
STOPPING: dict[int, str] = {
    ErrorCode.FENCED_LEADER_EPOCH: "the leader has a newer leader epoch, which the controller has not sent yet",
    ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE: "the leader has the records only in tiered storage, which is not supported",
}
"""Errors of the leader after which only a new leader epoch helps. After all others the follower fetches again."""

APPEND_FAILURES = {
    AppendResult.APPEND_BUSY: "",
    AppendResult.APPEND_IO_ERROR: "the records could not be written",
    AppendResult.APPEND_OUT_OF_RANGE: "the leader sent records from before the log end",
    AppendResult.APPEND_CORRUPT: "the leader sent a damaged batch",
}
"""Failures of an append after which the follower fetches the same records again after the backoff, and why."""
ROLE_RESULTS = frozenset({AppendResult.APPEND_STALE, AppendResult.APPEND_NOT_LEADER, AppendResult.APPEND_FENCED_EPOCH})


@dataclass
class Follow:
    """The state machine of one partition.

    :param backoff_ms: `replica.fetch.backoff.ms`; after errors that are usual for a short time, the waits only grow to it.
    :param epoch_end: see `EpochEnd`; may raise OSError.
    """

    backoff_ms: int
    epoch_end: EpochEnd
    state: State = field(default_factory=lambda: Delayed(0, Fetch()))
    _begun: bool = False
    _usual: RecentFailures = field(init=False)

    def __post_init__(self) -> None:
        self._usual = RecentFailures(FIRST_BACKOFF_MS, self.backoff_ms)

    def handle(self, event: Event, log: Position, now_ms: int) -> Action:
        """Take an event, change the state, and return what to do next.

        :param log: the present state of the log. :param now_ms: monotonic.
        :raises LookupError: the event cannot occur in this state.
        """
        if isinstance(event, Begin):
            return self._begin(log)
        if isinstance(self.state, Failed):
            return Stop(self.state.code, "")
        step = TRANSITIONS.get((type(self.state), type(event)))
        if step is None:
            raise LookupError(f"{event} cannot occur in state {self.state}")
        return step(self, event, log, now_ms)

    # -- the steps --------------------------------------------------------------------------------------------------

    def _begin(self, log: Position) -> Action:
        """Without an epoch, the leader cannot find where the logs diverge: only committed records are kept (KIP-101)."""
        self._begun = True
        if log.last_epoch == UNDEFINED and log.log_end > log.high_watermark:
            return self._change(Truncate(max(log.high_watermark, log.log_start), below=False))
        return self._fetch()

    def _fetch(self, from_offset: int = UNDEFINED) -> Action:
        self.state = Fetching()
        return Fetch(from_offset)

    def _change(self, action: LogAction) -> Action:
        self.state = Truncating(action)
        return action

    def _wait(self, now_ms: int, action: LogAction, reason: str = "", usual: bool = False) -> Action:
        delay_ms = self._usual.next(now_ms) if usual else self.backoff_ms
        self.state = Delayed(now_ms + delay_ms, action)
        return Wait(self.state.until_ms, reason, usual)

    def _stop(self, code: int, reason: str) -> Action:
        self.state = Failed(code)
        return Stop(code, reason)

    def _cut(self, offset: int, log: Position) -> Action:
        """Truncate to an offset, or begin the log again if it lies before the log."""
        below = offset < log.high_watermark
        if offset < log.log_start:
            return self._change(StartAt(offset, below))
        return self._change(Truncate(offset, below))

    def _diverging(self, event: Diverging, log: Position, now_ms: int) -> Action:
        """Cut to where the logs may agree. If this is not certain yet, the next fetch returns the next divergence (KIP-279)."""
        if event.epoch < 0 or event.end_offset < 0:
            return self._wait(now_ms, Fetch(), f"the leader returned an invalid divergence: {event}")
        try:
            epoch, end = self.epoch_end(event.epoch)
        except OSError as error:
            return self._wait(now_ms, Fetch(), f"the leader epochs of the log cannot be read: {error}")
        if epoch == UNDEFINED or epoch == event.epoch:
            offset = event.end_offset if epoch == UNDEFINED else min(end, event.end_offset)
        else:
            offset = end  # the log does not have the leader's epoch: ask for the next older one with the next fetch
        if offset >= log.log_end:
            return self._wait(now_ms, Fetch(), f"the leader returned {event}, but the log ends before this offset")
        return self._cut(offset, log)

    def _refused(self, event: Refused, log: Position, now_ms: int) -> Action:
        if event.code in STOPPING:
            return self._stop(event.code, STOPPING[event.code])
        if event.code == ErrorCode.OFFSET_OUT_OF_RANGE and isinstance(self.state, Fetching):
            return self._change(AskLatest())
        return self._wait(now_ms, Fetch(), f"the leader returned {peer_error_text(event.code)}", event.code in USUAL)

    def _append_failed(self, event: AppendFailed, log: Position, now_ms: int) -> Action:
        if event.result == AppendResult.APPEND_BEFORE_LOG:
            # The leader's log begins within its first batch: it returns this batch only for an offset from its log start on.
            return self._change(StartAt(event.value, below=False, fetch_from=log.log_end))
        if event.result == AppendResult.APPEND_UNSETTLED:
            return self._change(Settle())
        if event.result == AppendResult.APPEND_OFFLINE:
            return self._stop(ErrorCode.KAFKA_STORAGE_ERROR, "its log directory or its log failed")
        if event.result in ROLE_RESULTS:
            return self._wait(now_ms, Fetch())
        reason = APPEND_FAILURES[AppendResult(event.result)]
        if event.result == AppendResult.APPEND_IO_ERROR:
            reason = f"{reason}: {os.strerror(event.value)}"
        return self._wait(now_ms, Fetch(), reason)

    def _latest(self, event: LatestOffset, log: Position, now_ms: int) -> Action:
        """The leader's log ends before the follower's after an unclean election; otherwise its start lies above."""
        if event.offset < 0:
            return self._wait(now_ms, Fetch(), "the leader did not return its log end offset")
        if event.offset < log.log_end:
            return self._cut(event.offset, log)
        return self._change(AskEarliest())

    def _earliest(self, event: EarliestOffset, log: Position, now_ms: int) -> Action:
        if event.offset > log.log_end:
            return self._change(StartAt(event.offset, below=False))
        return self._wait(now_ms, Fetch())  # the leader's log has changed since

    def _log_changed(self, event: LogChanged, log: Position, now_ms: int) -> Action:
        action = self.state.action if isinstance(self.state, Truncating) else None
        return self._fetch(action.fetch_from if isinstance(action, StartAt) else UNDEFINED)

    def _log_not_changed(self, event: LogNotChanged, log: Position, now_ms: int) -> Action:
        action = self.state.action if isinstance(self.state, Truncating) else Fetch()
        return self._wait(now_ms, action, event.reason)

    def _again(self, event: Unanswered | RoleChanged, log: Position, now_ms: int) -> Action:
        return self._wait(now_ms, Fetch())

    def _due(self, event: Due, log: Position, now_ms: int) -> Action:
        assert isinstance(self.state, Delayed)
        if not self._begun:  # the slot was being changed when the partition was added
            return self._begin(log)
        action = self.state.action
        return self._fetch() if isinstance(action, Fetch) else self._change(action)


TRANSITIONS: dict[tuple[type, type], Callable[..., Action]] = {
    (Fetching, Diverging): Follow._diverging,
    (Fetching, Refused): Follow._refused,
    (Fetching, AppendFailed): Follow._append_failed,
    (Fetching, RoleChanged): Follow._again,
    (Truncating, LatestOffset): Follow._latest,
    (Truncating, EarliestOffset): Follow._earliest,
    (Truncating, Refused): Follow._refused,
    (Truncating, Unanswered): Follow._again,
    (Truncating, LogChanged): Follow._log_changed,
    (Truncating, LogNotChanged): Follow._log_not_changed,
    (Truncating, RoleChanged): Follow._again,
    (Delayed, RoleChanged): Follow._again,
    (Delayed, Due): Follow._due,
}
"""(state, event) -> step. `Begin` is possible in every state; in state Failed, every other event changes nothing."""
