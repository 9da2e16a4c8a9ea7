"""Offsets that clients commit in transactions: checks, end markers, deletion, expiry; against a model of Kafka's rule."""

from __future__ import annotations

import dataclasses
import gc
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import odradek
from odradek.coordination.environment import NO_PRODUCER, EndMarker, LogBatch
from odradek.groups.classic_member import JoinRequest
from odradek.groups.commits import Commit
from odradek.groups.consumer_member import HeartbeatRequest
from odradek.groups.coordinator import GroupCoordinator
from odradek.groups.offsets import CommittedOffset, committed_of
from odradek.groups.settings import ConsumerSettings, GroupSettings
from odradek.groups.transactions import OpenTransactions
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas.group_records import OFFSET_COMMIT, read_record
from odradek.topic_partition import TopicPartition
from tests.groups.by_hand import HandTimers, OffsetsHandLog, Once
from tests.groups.test_consumer_group import FewTopics
from tests.groups.test_migration import subscription

if TYPE_CHECKING:
    from sys import _TraceFunction as TraceFunction  # exists only for type checkers

T, U = 7, 8
"""Producer ids."""
NONE = ErrorCode.NONE
FIRST, SECOND = ("orders", 0), ("orders", 1)
Confirm = Callable[[Callable[[ErrorCode], None]], None]


class Bench:
    """A group coordinator. Its transaction coordinator confirms every transaction."""

    def __init__(self, held: bool = False, log: OffsetsHandLog | None = None, timers: HandTimers | None = None) -> None:
        self.timers, self.topics = timers or HandTimers(), FewTopics()
        self.log = log or OffsetsHandLog(held)
        self.groups = GroupCoordinator(
            self.timers, GroupSettings(initial_rebalance_delay_ms=0), 1, self.topics, ConsumerSettings(), lambda _: None
        )
        self.load()

    def load(self) -> None:
        self.groups.shards.begin(0, self.log)
        for _ in self.groups.shards.replay_batches(0, self.log.batches):
            pass
        self.groups.loaded(0)

    def reloaded(self) -> Bench:
        """A coordinator that has loaded the acknowledged part of the log."""
        log = OffsetsHandLog()
        log.batches, log.end = list(self.log.batches), self.log.end
        return Bench(log=log, timers=self.timers)

    def commit(self, offsets: dict[TopicPartition, int], group: str = "g", **who: object) -> Once:
        once = Once()
        self.groups.commit(self._commit(offsets, group, **who), once)
        return once

    def within(
        self,
        producer_id: int,
        offsets: dict[TopicPartition, int],
        group: str = "g",
        confirm: Confirm | None = None,
        **who: object,
    ) -> Once:
        once = Once()
        commit = self._commit(offsets, group, **who)
        self.groups.commit_in_transaction(commit, producer_id, 3, confirm or (lambda then: then(NONE)), once)
        return once

    def _commit(self, offsets: dict[TopicPartition, int], group: str, **who: object) -> Commit:
        stamp = self.timers.wall_ms()
        stored = {place: CommittedOffset(offset, commit_timestamp_ms=stamp) for place, offset in offsets.items()}
        return dataclasses.replace(Commit(group, "", -1, None, stored), **who)

    def end(self, producer_id: int, commits: bool, epoch: int = 3, version: int = 0) -> Once:
        once = Once()
        self.groups.end_transaction(0, EndMarker(producer_id, epoch, 1, commits, version), once)
        return once

    def offsets(self, group: str = "g") -> dict[TopicPartition, int]:
        error, fetched = self.groups.fetch(group)
        assert error is NONE
        return {(topic, partition): committed.offset for topic, partition, committed in fetched}

    def unstable(self, group: str = "g") -> set[TopicPartition]:
        return set(self.groups.unstable_places(group))

    def pending(self, group: str = "g") -> dict[tuple[TopicPartition, int], tuple[int, bool]]:
        """Offset, and whether it was overtaken, by place and producer id."""
        found = self.groups.shards.find(group)[1]
        return {
            (pending.place, pending.producer_id): (pending.committed.offset, pending.overtaken)
            for pending in (found.pending if found is not None else ())
        }


def test_an_offset_is_committed_by_the_end_of_its_transaction():
    bench = Bench()
    assert bench.commit({FIRST: 1}).answer is NONE
    assert bench.within(T, {FIRST: 5, SECOND: 6}).answer is NONE
    assert (bench.offsets(), bench.unstable()) == ({FIRST: 1}, {FIRST, SECOND})
    assert bench.end(T, commits=True).answer is NONE
    assert (bench.offsets(), bench.unstable()) == ({FIRST: 5, SECOND: 6}, set())
    assert bench.reloaded().offsets() == bench.offsets()


def test_an_aborted_offset_is_dropped():
    bench = Bench()
    bench.commit({FIRST: 1})
    bench.within(T, {FIRST: 5, SECOND: 6})
    assert bench.end(T, commits=False).answer is NONE
    assert (bench.offsets(), bench.unstable()) == ({FIRST: 1}, set())


def test_transactions_of_several_producers_end_independently():
    bench = Bench()
    bench.within(T, {FIRST: 5})
    bench.within(U, {FIRST: 6, SECOND: 7})
    bench.within(T, {SECOND: 8}, group="other")
    bench.end(U, commits=True)
    assert (bench.offsets(), bench.unstable()) == ({FIRST: 6, SECOND: 7}, {FIRST})
    bench.end(T, commits=True)
    assert (bench.offsets(), bench.unstable()) == ({FIRST: 6, SECOND: 7}, set())
    assert bench.offsets("other") == {SECOND: 8}


def test_a_later_commit_outside_of_the_transaction_counts_but_the_partition_is_unstable_until_the_end():
    bench = Bench()
    bench.within(T, {FIRST: 5})
    bench.commit({FIRST: 3})
    assert (bench.offsets(), bench.unstable()) == ({FIRST: 3}, {FIRST})
    assert bench.reloaded().unstable() == {FIRST}
    bench.end(T, commits=True)
    assert (bench.offsets(), bench.unstable()) == ({FIRST: 3}, set())
    bench.within(T, {FIRST: 5})
    bench.commit({FIRST: 3})
    bench.within(T, {FIRST: 8})
    bench.end(T, commits=True)
    assert bench.offsets() == {FIRST: 8}


def test_a_commit_under_way_makes_the_partition_unstable():
    bench = Bench(held=True)
    told = bench.within(T, {FIRST: 5})
    assert told.waits
    assert bench.unstable() == {FIRST}
    bench.log.acknowledge(error=ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert told.answer is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert bench.unstable() == set()
    told = bench.commit({FIRST: 5})
    assert bench.unstable() == set()


def test_offsets_that_are_in_the_log_follow_the_end_marker_although_the_client_received_an_error():
    bench = Bench(held=True)
    told = bench.within(T, {FIRST: 5})
    bench.log.acknowledge(error=ErrorCode.COORDINATOR_NOT_AVAILABLE, in_log=True)
    assert told.answer is ErrorCode.COORDINATOR_NOT_AVAILABLE
    ended = bench.end(T, commits=True)
    bench.log.acknowledge(error=ErrorCode.COORDINATOR_NOT_AVAILABLE, in_log=True)
    assert ended.answer is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert bench.offsets() == bench.reloaded().offsets() == {FIRST: 5}


def test_a_marker_that_the_partition_refuses_changes_nothing():
    bench = Bench(held=True)
    bench.within(T, {FIRST: 5})
    bench.log.acknowledge()
    ended = bench.end(T, commits=True)
    bench.log.acknowledge(error=ErrorCode.TRANSACTION_COORDINATOR_FENCED)
    assert ended.answer is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert (bench.offsets(), bench.unstable()) == ({}, {FIRST})


def test_markers_and_commits_wait_for_the_load():
    bench = Bench()
    bench.groups.shards.begin(0, bench.log)
    assert bench.end(T, commits=True).answer is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert bench.within(T, {FIRST: 5}).answer is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    bench.groups.shards.resign(0)
    assert bench.end(T, commits=True).answer is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert bench.within(T, {FIRST: 5}).answer is ErrorCode.NOT_COORDINATOR
    assert bench.log.batches == []


@pytest.mark.parametrize("verb", ["group", "offset", "topic"])
def test_a_deleted_offset_does_not_return_with_the_end_of_a_transaction(verb):
    bench = Bench()
    bench.commit({SECOND: 1})
    for producer_id in (T, U):
        bench.within(producer_id, {FIRST: 5, SECOND: 6})
    delete(bench, verb)
    assert (bench.offsets(), bench.unstable()) == ({}, set())
    for at in (bench, bench.reloaded()):
        assert at.unstable() == set()
        at.end(T, commits=True)
        at.end(U, commits=True)
        assert at.offsets() == {}


def test_a_group_with_a_commit_on_its_way_is_not_deleted():
    bench = Bench(held=True)
    bench.within(T, {FIRST: 5})
    assert delete(bench, "group").answer is ErrorCode.NON_EMPTY_GROUP


@pytest.mark.parametrize("verb", ["offset", "topic"])
def test_an_offset_that_is_on_its_way_is_deleted_too(verb):
    bench = Bench(held=True)
    bench.within(T, {FIRST: 5})
    delete(bench, verb)
    bench.log.acknowledge()
    assert bench.unstable() == set()
    bench.end(T, commits=True)
    bench.log.acknowledge()
    assert bench.offsets() == bench.reloaded().offsets() == {}


def delete(bench: Bench, verb: str, group: str = "g") -> Once:
    told = Once()
    if verb == "group":
        bench.groups.delete(group, told)
    elif verb == "offset":
        bench.groups.delete_offsets(group, [FIRST, SECOND], lambda *outcome: told(outcome))
    else:
        bench.groups.topics_deleted(["orders"])
    return told


def test_a_commit_to_a_topic_that_is_being_deleted_is_refused():
    bench = Bench(held=True)
    bench.commit({FIRST: 1})
    bench.groups.topics_deleted(["orders"])
    assert bench.within(T, {FIRST: 5}).answer is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_neither_offsets_nor_groups_expire_while_a_transaction_is_open():
    bench = Bench()
    bench.commit({FIRST: 1, SECOND: 2})
    bench.within(T, {FIRST: 5})
    bench.within(U, {FIRST: 5}, group="only pending")
    bench.timers.advance(bench.groups.shards.settings.offsets_retention_ms)
    assert bench.groups.expire() == 1
    assert bench.offsets() == {FIRST: 1}
    assert {group.group_id for group in bench.groups.shards.groups()} == {"g", "only pending"}
    bench.end(T, commits=True)
    bench.end(U, commits=False)
    bench.timers.advance(bench.groups.shards.settings.offsets_retention_ms)
    assert bench.groups.expire() == 1
    assert list(bench.groups.shards.groups()) == []


# -- which commits are accepted -----------------------------------------------------------------------------------------


def test_an_unknown_group_accepts_only_commits_without_generation():
    bench = Bench()
    assert bench.within(T, {FIRST: 5}, generation_id=0).answer is ErrorCode.ILLEGAL_GENERATION
    assert bench.within(T, {FIRST: 5}, member_id="m", generation_id=3).answer is ErrorCode.ILLEGAL_GENERATION
    assert list(bench.groups.shards.groups()) == []
    assert bench.within(T, {}).answer is NONE
    assert list(bench.groups.shards.groups()) == []
    assert bench.within(T, {FIRST: 5}).answer is NONE
    assert [group.state_name for group in bench.groups.shards.groups()] == ["Empty"]


def test_a_classic_group_checks_the_member_if_one_is_named():
    bench = Bench()
    joined = Once()
    join = JoinRequest(
        "", 10_000, 30_000, "consumer", [("range", subscription())], "c", "/h", instance_id="i", id_required=False
    )
    bench.groups.members.join("g", join, joined)
    member_id, generation = joined.answer.member_id, joined.answer.generation_id

    def commit(**who: object) -> object:
        return bench.within(T, {FIRST: 5}, **who).answer

    # The generation is not complete: that does not matter in transactions.
    assert bench.groups.shards.find("g")[1].state_name == "CompletingRebalance"
    assert commit() is NONE
    assert commit(member_id=member_id, generation_id=generation) is NONE
    assert commit(member_id=member_id, generation_id=generation, instance_id="i") is NONE
    assert commit(member_id="x", generation_id=generation) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(member_id="x", generation_id=generation, instance_id="i") is ErrorCode.FENCED_INSTANCE_ID
    assert commit(member_id=member_id, generation_id=generation, instance_id="j") is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(member_id=member_id, generation_id=generation + 1) is ErrorCode.ILLEGAL_GENERATION
    assert commit(member_id=member_id) is ErrorCode.ILLEGAL_GENERATION
    assert commit(generation_id=generation) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(instance_id="i") is ErrorCode.FENCED_INSTANCE_ID


def test_a_consumer_group_checks_the_member_if_one_is_named():
    bench = Bench()
    beat = Once()
    request = HeartbeatRequest("m", 0, topics=("orders",), rebalance_timeout_ms=30_000, owned=frozenset())
    bench.groups.members.beat("g", request, beat)
    epoch = beat.answer.member_epoch
    assert epoch == 1

    def commit(**who: object) -> object:
        return bench.within(T, {FIRST: 5}, **who).answer

    assert commit() is NONE
    assert commit(member_id="m", generation_id=epoch) is NONE
    assert commit(member_id="x", generation_id=epoch) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(member_id="m", generation_id=epoch + 1) is ErrorCode.ILLEGAL_GENERATION
    assert commit(member_id="m", generation_id=0) is ErrorCode.ILLEGAL_GENERATION
    assert commit(member_id="m") is ErrorCode.ILLEGAL_GENERATION
    assert commit(generation_id=epoch) is ErrorCode.UNKNOWN_MEMBER_ID


# -- the confirmation of the transaction --------------------------------------------------------------------------------


class Question:
    """A question to the transaction coordinator that waits for its answer."""

    def __call__(self, then: Callable[[ErrorCode], None]) -> None:
        self.answer = then


def test_the_error_of_the_transaction_coordinator_is_returned_and_nothing_is_written():
    bench = Bench()
    told = bench.within(T, {FIRST: 5}, confirm=lambda then: then(ErrorCode.INVALID_PRODUCER_EPOCH))
    assert told.answer is ErrorCode.INVALID_PRODUCER_EPOCH
    assert bench.log.batches == []


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_commit_that_is_confirmed_after_the_end_of_its_transaction_is_refused(version):
    """If it were accepted, its offsets would be pending for ever."""
    bench, question = Bench(), Question()
    told = bench.within(T, {FIRST: 5}, confirm=question)
    bench.end(T, commits=False, epoch=3 if version < 2 else 4, version=version)
    question.answer(NONE)
    assert told.answer is ErrorCode.INVALID_TXN_STATE
    assert (bench.offsets(), bench.unstable()) == ({}, set())


def test_the_marker_of_the_transaction_before_does_not_affect_a_commit_of_version_2():
    bench, question = Bench(), Question()
    told = bench.within(T, {FIRST: 5}, confirm=question)
    bench.end(T, commits=True, epoch=3, version=2)
    bench.end(U, commits=True, epoch=9, version=2)
    question.answer(NONE)
    assert told.answer is NONE
    assert bench.unstable() == {FIRST}


def test_a_commit_that_is_confirmed_after_another_load_is_tried_again():
    bench, question, second = Bench(), Question(), Question()
    told, lost = bench.within(T, {FIRST: 5}, confirm=question), bench.within(T, {FIRST: 5}, confirm=second)
    bench.load()
    question.answer(NONE)
    assert told.answer is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    bench.groups.shards.resign(0)
    second.answer(NONE)
    assert lost.answer is ErrorCode.NOT_COORDINATOR


# -- many open transactions ---------------------------------------------------------------------------------------------


PACKAGE = str(Path(odradek.__file__).parent)


def lines_of(action: Callable[[], object]) -> int:
    """The number of lines of the package that a call executes, without those of a garbage collection that falls into it."""
    count = 0

    def trace(frame: FrameType, event: str, arg: object) -> TraceFunction | None:
        nonlocal count
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        count += event == "line"
        return trace

    before = sys.gettrace()
    gc.disable()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
        gc.enable()
    return count


def work_of_verbs(open_transactions: int) -> dict[str, int]:
    """The work of each verb on a place for which many transactions have pending offsets."""
    bench = Bench()
    for producer_id in range(100, 100 + open_transactions):
        bench.within(producer_id, {FIRST: producer_id})
    oldest, middle, newest = 100, 100 + open_transactions // 2, 99 + open_transactions
    return {
        "the offset of another transaction": lines_of(lambda: bench.within(T, {FIRST: 1})),
        "a second offset of the oldest transaction": lines_of(lambda: bench.within(oldest, {FIRST: 2})),
        "a commit outside of transactions": lines_of(lambda: bench.commit({FIRST: 3})),
        "an abort": lines_of(lambda: bench.end(newest, commits=False)),
        "the commit of the newest offset": lines_of(lambda: bench.end(oldest, commits=True)),
        "the commit of an overtaken offset": lines_of(lambda: bench.end(middle, commits=True)),
        "a tombstone": lines_of(lambda: bench.groups.shards.by_partition[0].groups["g"].forget(*FIRST)),
    }


def test_the_work_of_a_commit_does_not_grow_with_the_number_of_open_transactions():
    assert work_of_verbs(200) == work_of_verbs(20)


def test_a_load_is_done_in_short_steps():
    bench = Bench()
    for number in range(250):
        bench.within(100 + number, {FIRST: number})
        bench.commit({FIRST: number})
    bench.end(100, commits=True)
    records = [record for batch in bench.log.batches for record in batch.records]
    batches = [*bench.log.batches, LogBatch(records), LogBatch(records, T, range(1000, 1000 + len(records)))]
    bench.groups.shards.begin(0, bench.log)
    applied = []
    replay, end = bench.groups.shards.replay, OpenTransactions.end
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench.groups.shards, "replay", lambda *args: applied.append(len(args[1])) or replay(*args))
        patch.setattr(OpenTransactions, "end", lambda *args: applied.append(1) or end(*args))
        of_steps = [len(applied) for _ in bench.groups.shards.replay_batches(0, batches)]
    assert of_steps == list(range(1, len(applied) + 1))
    assert sum(applied) == 3 * len(records) + 1
    assert max(applied) <= 100


# -- against a model ----------------------------------------------------------------------------------------------------


@dataclass
class Stored:
    offset: int
    record_offset: int


class Model:
    """Kafka's rule: the committed offset with the offset of its record, and pending offsets by producer id."""

    def __init__(self, batches: list[LogBatch]) -> None:
        self.committed: dict[tuple[str, TopicPartition], Stored] = {}
        self.pending: dict[int, dict[tuple[str, TopicPartition], Stored]] = {}
        record_offset = 0
        for batch in batches:
            if batch.commits is not None:
                self.end(batch.producer_id, batch.commits)
                record_offset += 1
            for key, value in batch.records:
                kind, read_key, read_value = read_record(key, value)
                if kind is OFFSET_COMMIT:
                    at = read_key.group, (read_key.topic, read_key.partition)
                    self.record(at, read_value, record_offset, batch.producer_id)
                record_offset += 1

    def record(self, at: tuple[str, TopicPartition], value: object, record_offset: int, producer_id: int) -> None:
        if value is None:
            self.committed.pop(at, None)
            for pending in self.pending.values():
                pending.pop(at, None)
            return
        stored = Stored(committed_of(value).offset, record_offset)
        if producer_id == NO_PRODUCER:
            self.committed[at] = stored
        else:
            self.pending.setdefault(producer_id, {})[at] = stored

    def end(self, producer_id: int, commits: bool) -> None:
        for at, stored in self.pending.pop(producer_id, {}).items():
            former = self.committed.get(at)
            if commits and (former is None or stored.record_offset > former.record_offset):
                self.committed[at] = stored

    def offsets(self, group: str) -> dict[TopicPartition, int]:
        return {place: stored.offset for (of, place), stored in self.committed.items() if of == group}

    def pending_of(self, group: str) -> dict[tuple[TopicPartition, int], tuple[int, bool]]:
        """Like `Bench.pending`."""
        found = {}
        for producer_id, pending in self.pending.items():
            for at, stored in pending.items():
                former = self.committed.get(at)
                overtaken = former is not None and former.record_offset > stored.record_offset
                if at[0] == group:
                    found[at[1], producer_id] = stored.offset, overtaken
        return found


GROUPS = ("g", "h")
GROUP = st.sampled_from(["g", "g", "g", "h"])
PLACES = st.sampled_from([[FIRST], [FIRST], [SECOND], [FIRST, SECOND]])
PRODUCERS = st.sampled_from([T, U])
WAITS = st.sampled_from([False, False, True])
"""Whether an append waits for a later acknowledgement."""


class TransactionalOffsets(RuleBasedStateMachine):
    """The running coordinator, a coordinator that loads the same log, and the model agree after each event."""

    @initialize()
    def begin(self) -> None:
        self.bench = Bench(held=True)
        self.offset = 0

    def offsets(self, places: list[TopicPartition]) -> dict[TopicPartition, int]:
        self.offset += 1
        return {place: 10 * self.offset + number for number, place in enumerate(places)}

    @rule(group=GROUP, places=PLACES, waits=WAITS)
    def commit(self, group: str, places: list[TopicPartition], waits: bool) -> None:
        self.bench.commit(self.offsets(places), group)
        self.settle(waits)

    @rule(producer_id=PRODUCERS, group=GROUP, places=PLACES, waits=WAITS)
    def commit_within(self, producer_id: int, group: str, places: list[TopicPartition], waits: bool) -> None:
        self.bench.within(producer_id, self.offsets(places), group)
        self.settle(waits)

    @rule(producer_id=PRODUCERS, commits=st.sampled_from([True, True, False]), waits=WAITS)
    def end(self, producer_id: int, commits: bool, waits: bool) -> None:
        self.bench.end(producer_id, commits)
        self.settle(waits)

    @rule(first=PRODUCERS, second=PRODUCERS, ends=PRODUCERS, group=GROUP, places=PLACES)
    def interleave(self, first: int, second: int, ends: int, group: str, places: list[TopicPartition]) -> None:
        self.commit_within(first, group, places, waits=True)
        self.commit_within(second, group, places, waits=True)
        self.end(ends, commits=True, waits=False)

    @rule(verb=st.sampled_from(["group", "offset", "topic", "time"]), group=GROUP, waits=WAITS)
    def delete(self, verb: str, group: str, waits: bool) -> None:
        if verb == "time":
            self.bench.timers.advance(self.bench.groups.shards.settings.offsets_retention_ms // 2 + 1)
            self.bench.groups.expire()
        else:
            delete(self.bench, verb, group)
        self.settle(waits)

    def settle(self, waits: bool) -> None:
        if not waits:
            self.bench.log.acknowledge()

    @precondition(lambda self: self.bench.log.waiting)
    @rule(count=st.integers(1, 3), fate=st.sampled_from(["ok", "ok", "ok", "refused", "in the log"]))
    def acknowledge(self, count: int, fate: str) -> None:
        batch, _ = self.bench.log.waiting[0]
        if fate == "in the log" and batch.producer_id != NO_PRODUCER:  # of plain appends only the outcome is known
            self.bench.log.acknowledge(1, ErrorCode.COORDINATOR_NOT_AVAILABLE, in_log=True)
        elif fate == "refused":
            self.bench.log.acknowledge(1, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        else:
            self.bench.log.acknowledge(count)
        if self.bench.groups.shards.loading:  # a group was ahead of its log: the coordinator loads the log again
            self.load_again()

    @rule()
    def load_again(self) -> None:
        self.bench.log.waiting.clear()
        self.bench = self.bench.reloaded()
        self.bench.log.held = True

    @invariant()
    def agree(self) -> None:
        if not hasattr(self, "bench"):
            return
        loaded, model = self.bench.reloaded(), Model(self.bench.log.batches)
        deleted = self.bench.groups.shards.by_partition[0].deleted_topics
        for group in GROUPS:
            served = {place: offset for place, offset in model.offsets(group).items() if place[0] not in deleted}
            assert self.bench.offsets(group) == served
            assert loaded.offsets(group) == model.offsets(group)
            pending = model.pending_of(group)
            assert self.bench.pending(group) == loaded.pending(group) == pending
            assert self.bench.unstable(group) >= loaded.unstable(group) == {place for place, _ in pending}


TransactionalOffsets.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestTransactionalOffsets = TransactionalOffsets.TestCase
