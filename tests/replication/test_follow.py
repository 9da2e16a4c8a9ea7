"""What a follower does with its log: each transition of the machine, and replicas of a model that must agree in the end."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek._ext.partition.slot_access import AppendResult
from odradek.protocol.errors import ErrorCode
from odradek.replication import follow
from odradek.replication.follow import (
    FIRST_BACKOFF_MS,
    AppendFailed,
    AskEarliest,
    AskLatest,
    Begin,
    Delayed,
    Diverging,
    Due,
    EarliestOffset,
    Failed,
    Fetch,
    Fetching,
    Follow,
    LatestOffset,
    LogChanged,
    LogNotChanged,
    Position,
    Refused,
    RoleChanged,
    Settle,
    StartAt,
    Stop,
    Truncate,
    Truncating,
    Unanswered,
    Wait,
)

BACKOFF_MS = 1000
NOW_MS = 5000
LOG = Position(log_start=10, log_end=100, high_watermark=80, last_epoch=4)
EPOCHS = [(1, 10), (3, 40), (4, 70)]  # of `LOG`: (epoch, start offset)


def epoch_end(epoch: int) -> tuple[int, int]:
    """`follow.EpochEnd` of `LOG`."""
    return end_of(EPOCHS, 100, epoch)


def end_of(epochs: list[tuple[int, int]], log_end: int, epoch: int) -> tuple[int, int]:
    """The rule of KIP-279, computed from a list of epochs."""
    if not epochs or epoch < 0 or epoch > epochs[-1][0]:
        return -1, -1
    end = next((start for other, start in epochs if other > epoch), log_end)
    return max((other for other, _ in epochs if other <= epoch), default=epoch), end


def fetching() -> Follow:
    machine = Follow(BACKOFF_MS, epoch_end)
    assert machine.handle(Begin(), LOG, NOW_MS) == Fetch()
    return machine


def asking() -> Follow:
    machine = fetching()
    assert machine.handle(Refused(ErrorCode.OFFSET_OUT_OF_RANGE), LOG, NOW_MS) == AskLatest()
    return machine


def waits(action: follow.Action) -> bool:
    return isinstance(action, Wait) and action.until_ms == NOW_MS + BACKOFF_MS


def test_a_log_with_epochs_is_fetched_at_once() -> None:
    assert isinstance(fetching().state, Fetching)


def test_a_log_without_epochs_keeps_only_committed_records() -> None:
    machine = Follow(BACKOFF_MS, lambda epoch: (-1, -1))
    without = LOG._replace(last_epoch=-1)
    assert machine.handle(Begin(), without, NOW_MS) == Truncate(80, below=False)
    assert machine.handle(LogChanged(), without._replace(log_end=80), NOW_MS) == Fetch()
    assert machine.handle(Begin(), without._replace(log_end=80), NOW_MS) == Fetch(), "nothing to truncate"


def test_a_partition_whose_slot_was_being_changed_begins_later() -> None:
    machine = Follow(BACKOFF_MS, lambda epoch: (-1, -1))
    without = LOG._replace(last_epoch=-1)
    assert waits(machine.handle(RoleChanged(), without, NOW_MS))
    assert machine.handle(Due(), without, NOW_MS) == Truncate(80, below=False)


@pytest.mark.parametrize(
    ("diverging", "action"),
    [
        (Diverging(4, 90), Truncate(90, below=False)),
        (Diverging(4, 75), Truncate(75, below=True)),
        (Diverging(3, 90), Truncate(70, below=True)),
        (Diverging(3, 50), Truncate(50, below=True)),
        (Diverging(2, 60), Truncate(40, below=True)),
        (Diverging(0, 9), StartAt(9, below=True)),
        (Diverging(5, 95), Truncate(95, below=False)),
    ],
)
def test_the_log_is_cut_where_it_diverges(diverging: Diverging, action: follow.Action) -> None:
    machine = fetching()
    assert machine.handle(diverging, LOG, NOW_MS) == action
    assert machine.state == Truncating(action)
    assert machine.handle(LogChanged(), LOG._replace(log_end=50), NOW_MS) == Fetch()


@pytest.mark.parametrize("diverging", [Diverging(4, 100), Diverging(5, 100), Diverging(4, -1), Diverging(-1, 5)])
def test_a_divergence_that_removes_nothing_is_not_repeated_at_once(diverging: Diverging) -> None:
    action = fetching().handle(diverging, LOG, NOW_MS)
    assert waits(action)
    assert isinstance(action, Wait)
    assert action.reason


def test_epochs_that_cannot_be_read_delay_the_partition() -> None:
    def fails(epoch: int) -> tuple[int, int]:
        raise OSError(5, "Input/output error")

    machine = Follow(BACKOFF_MS, fails)
    machine.handle(Begin(), LOG, NOW_MS)
    assert waits(machine.handle(Diverging(3, 50), LOG, NOW_MS))


def test_a_leader_that_ends_earlier_cuts_the_log() -> None:
    assert asking().handle(LatestOffset(60), LOG, NOW_MS) == Truncate(60, below=True)
    assert asking().handle(LatestOffset(5), LOG, NOW_MS) == StartAt(5, below=True)


def test_a_leader_that_begins_later_begins_the_log_again() -> None:
    machine = asking()
    assert machine.handle(LatestOffset(300), LOG, NOW_MS) == AskEarliest()
    assert machine.handle(EarliestOffset(200), LOG, NOW_MS) == StartAt(200, below=False)


def test_a_leader_whose_log_contains_the_offset_after_all_is_fetched_after_the_backoff() -> None:
    machine = asking()
    machine.handle(LatestOffset(100), LOG, NOW_MS)
    assert waits(machine.handle(EarliestOffset(20), LOG, NOW_MS))
    assert machine.handle(Due(), LOG, NOW_MS + BACKOFF_MS) == Fetch()


@pytest.mark.parametrize(
    ("event", "wait_ms"),
    [
        (Unanswered(), BACKOFF_MS),
        (Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER), FIRST_BACKOFF_MS),
        (LatestOffset(-1), BACKOFF_MS),
    ],
)
def test_a_question_without_an_answer_is_asked_again_by_the_next_fetch(event: follow.Event, wait_ms: int) -> None:
    machine = asking()
    action = machine.handle(event, LOG, NOW_MS)
    assert isinstance(action, Wait)
    assert action.until_ms == NOW_MS + wait_ms
    assert machine.handle(Due(), LOG, NOW_MS) == Fetch()


@pytest.mark.parametrize("code", [code for code in ErrorCode if code > 0])
def test_each_error_of_the_leader(code: ErrorCode) -> None:
    machine = fetching()
    action = machine.handle(Refused(code), LOG, NOW_MS)
    if code == ErrorCode.OFFSET_OUT_OF_RANGE:
        assert action == AskLatest()
    elif code in (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE):
        assert isinstance(action, Stop)
        assert machine.state == Failed(code)
    elif code in follow.USUAL:
        assert action == Wait(NOW_MS + FIRST_BACKOFF_MS, action.reason, usual=True)
    else:
        assert waits(action)


def test_waits_for_a_leader_that_is_not_informed_yet_grow_to_the_backoff() -> None:
    machine, now_ms, waited = fetching(), NOW_MS, []
    for _ in range(8):
        action = machine.handle(Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER), LOG, now_ms)
        assert isinstance(action, Wait)
        waited.append(action.until_ms - now_ms)
        now_ms = action.until_ms
        assert machine.handle(Due(), LOG, now_ms) == Fetch()
    assert waited == [20, 40, 80, 160, 320, 640, BACKOFF_MS, BACKOFF_MS]
    later = machine.handle(Refused(ErrorCode.NOT_LEADER_OR_FOLLOWER), LOG, now_ms + BACKOFF_MS + 1)
    assert later == Wait(now_ms + BACKOFF_MS + 1 + FIRST_BACKOFF_MS, later.reason, usual=True)


def test_an_unknown_error_code_delays_the_partition() -> None:
    assert waits(fetching().handle(Refused(30_000), LOG, NOW_MS))


@pytest.mark.parametrize(
    "event", [Due(), Refused(1), Diverging(1, 20), LogChanged(), Unanswered(), RoleChanged(), AppendFailed(-8)]
)
def test_a_failed_partition_begins_again_only_with_a_new_epoch(event: follow.Event) -> None:
    machine = fetching()
    machine.handle(Refused(ErrorCode.FENCED_LEADER_EPOCH), LOG, NOW_MS)
    assert isinstance(machine.handle(event, LOG, NOW_MS), Stop)
    assert machine.handle(Begin(), LOG, NOW_MS) == Fetch()


@pytest.mark.parametrize("result", [result for result in AppendResult if result != AppendResult.APPEND_OK])
def test_each_failure_of_an_append(result: AppendResult) -> None:
    machine = fetching()
    action = machine.handle(AppendFailed(result, 95), LOG, NOW_MS)
    if result == AppendResult.APPEND_BEFORE_LOG:
        assert action == StartAt(95, below=False, fetch_from=100)
        assert machine.handle(LogChanged(), LOG, NOW_MS) == Fetch(from_offset=100)
    elif result == AppendResult.APPEND_UNSETTLED:
        assert action == Settle()
    elif result == AppendResult.APPEND_OFFLINE:
        assert machine.state == Failed(ErrorCode.KAFKA_STORAGE_ERROR)
    else:
        assert waits(action)


def test_a_change_of_the_log_that_failed_is_repeated() -> None:
    machine = fetching()
    machine.handle(Diverging(3, 50), LOG, NOW_MS)
    assert machine.handle(LogNotChanged("full"), LOG, NOW_MS) == Wait(NOW_MS + BACKOFF_MS, "full")
    assert machine.state == Delayed(NOW_MS + BACKOFF_MS, Truncate(50, below=True))
    assert machine.handle(Due(), LOG, NOW_MS) == Truncate(50, below=True)


def test_an_event_that_cannot_occur_is_an_error() -> None:
    with pytest.raises(LookupError, match="LogChanged"):
        fetching().handle(LogChanged(), LOG, NOW_MS)


def test_the_table_names_only_states_and_events() -> None:
    states, events = get_args(follow.State), get_args(follow.Event)
    assert all(state in states and event in events for state, event in follow.TRANSITIONS)


# -- replicas that must agree -------------------------------------------------------------------------------------------


@dataclass
class Replica:
    """A log as the epochs of its records, from `start`. `batch`: its batches are this long, so it is cut at multiples."""

    start: int = 0
    records: list[int] = field(default_factory=list)
    high_watermark: int = 0
    noted: list[tuple[int, int]] = field(default_factory=list)
    batch: int = 1

    @property
    def end(self) -> int:
        return self.start + len(self.records)

    def epochs(self) -> list[tuple[int, int]]:
        """(epoch, start offset) of the records, and of the epochs that were begun as leader without a record."""
        of_records = [
            (epoch, self.start + at)
            for at, (before, epoch) in enumerate(pairwise([-1, *self.records]))
            if epoch != before
        ]
        return of_records + [(epoch, at) for epoch, at in self.noted if at == self.end]

    def position(self) -> Position:
        return Position(self.start, self.end, self.high_watermark, self.records[-1] if self.records else -1)

    def truncate(self, offset: int) -> None:
        offset = max(offset // self.batch * self.batch, self.start)
        del self.records[offset - self.start :]
        self.noted = [(epoch, at) for epoch, at in self.noted if at < offset]
        self.high_watermark = min(self.high_watermark, self.end)

    def delete_before(self, offset: int) -> None:
        if self.records and offset == self.end and not any(at == self.end for _, at in self.noted):
            self.noted.append((self.records[-1], self.end))  # the newest epoch stays known
        if offset > self.start:
            del self.records[: offset - self.start]
            self.start = offset

    def start_at(self, offset: int) -> None:
        self.records, self.start, self.noted, self.high_watermark = [], offset, [], offset

    def answer(self, offset: int, last_epoch: int) -> follow.Event | list[int]:
        """A leader's answer to a fetch: records, a divergence or an error, as Kafka's leader decides."""
        if offset < self.start:
            return Refused(ErrorCode.OFFSET_OUT_OF_RANGE)
        if last_epoch >= 0:
            epoch, end = end_of(self.epochs(), self.end, last_epoch)
            if epoch < 0:
                return Refused(ErrorCode.OFFSET_OUT_OF_RANGE)
            if epoch < last_epoch or end < offset:
                return Diverging(epoch, end)
        if offset > self.end:
            return Refused(ErrorCode.OFFSET_OUT_OF_RANGE)
        return self.records[offset - self.start : offset - self.start + 7]


def fetch_until_equal(leader: Replica, follower: Replica, rounds: int) -> int:
    """Let the follower follow for at most so many steps. Returns the number of delays."""
    machine = Follow(BACKOFF_MS, lambda epoch: end_of(follower.epochs(), follower.end, epoch))
    action = machine.handle(Begin(), follower.position(), 0)
    delays = 0
    for _ in range(rounds):
        event: follow.Event
        if isinstance(action, Fetch):
            answer = leader.answer(follower.end, follower.position().last_epoch)
            if isinstance(answer, list):
                follower.records += answer
                follower.high_watermark = min(leader.high_watermark, follower.end)
                follower.delete_before(min(leader.start, follower.high_watermark))
                if follower.end == leader.end:
                    break
                continue
            event = answer
        else:
            event, delayed = carry_out(action, leader, follower)
            delays += delayed
        action = machine.handle(event, follower.position(), 0)
    return delays


def carry_out(action: follow.Action, leader: Replica, follower: Replica) -> tuple[follow.Event, bool]:
    match action:
        case Truncate(offset, below):
            assert follower.start <= offset < follower.end
            assert below == (offset < follower.high_watermark)
            follower.truncate(offset)
            return LogChanged(), False
        case StartAt(offset):
            follower.start_at(offset)
            return LogChanged(), False
        case AskLatest():
            return LatestOffset(leader.end), False
        case AskEarliest():
            return EarliestOffset(leader.start), False
        case Wait():
            return Due(), True
    raise AssertionError(f"unexpected: {action}")


replicas = st.integers(0, 2)
steps = st.one_of(
    st.tuples(st.just("elect"), replicas, st.just(0)),
    st.tuples(st.just("append"), replicas, st.integers(1, 12)),
    st.tuples(st.just("follow"), replicas, st.integers(1, 12)),
    st.tuples(st.just("delete"), replicas, st.integers(1, 9)),
)


class Cluster:
    """Three replicas; any of them may be elected at any time, also without the committed records."""

    def __init__(self, batch: int) -> None:
        self.logs = [Replica(batch=batch) for _ in range(3)]
        self.leader, self.epoch = 0, 0

    def elect(self, replica: int, _: int) -> None:
        self.leader, self.epoch = replica, self.epoch + 1
        log = self.logs[replica]
        log.noted = [(epoch, at) for epoch, at in log.noted if at < log.end] + [(self.epoch, log.end)]

    def append(self, _: int, count: int) -> None:
        log = self.logs[self.leader]
        log.records += [self.epoch] * (count * log.batch)
        log.high_watermark = log.end

    def follow(self, replica: int, rounds: int) -> None:
        if replica != self.leader:
            fetch_until_equal(self.logs[self.leader], self.logs[replica], rounds)

    def delete(self, _: int, count: int) -> None:
        log = self.logs[self.leader]
        log.delete_before(min(log.start + count * log.batch, log.end))


@settings(max_examples=400, deadline=None)
@given(st.integers(1, 3), st.lists(steps, max_size=40))
def test_replicas_agree_after_any_history(batch: int, history: list[tuple[str, int, int]]) -> None:
    cluster = Cluster(batch)
    for name, replica, argument in history:
        step: Callable[[int, int], None] = getattr(cluster, name)
        step(replica, argument)
    leader = cluster.logs[cluster.leader]
    for log in cluster.logs:
        if log is leader:
            continue
        delays = fetch_until_equal(leader, log, 400)
        assert log.end == leader.end
        first = max(log.start, leader.start)
        assert log.records[first - log.start :] == leader.records[first - leader.start :]
        assert delays == 0, "the follower waited although the leader answered everything"
