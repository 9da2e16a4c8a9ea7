"""Offsets that Kafka's transactional producers committed, in a load of `__consumer_offsets`."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from odradek.coordination.environment import LogBatch
from odradek.groups.offsets import CommittedOffset, offset_record
from odradek.protocol.errors import ErrorCode
from tests.groups.by_hand import Once
from tests.groups.test_migration import GroupsUnderTest

T, U = 7, 8
"""Producer ids."""


class Loader:
    """Builds the batches of a log and loads groups from them."""

    def __init__(self) -> None:
        self.batches: list[LogBatch] = []

    def add(self, batch: LogBatch) -> Loader:
        """Add a record that uses one offset."""
        self.batches.append(batch)
        return self

    def plain(self, partition: int, offset: int | None, group: str = "g", topic: str = "orders") -> Loader:
        """Add a commit outside of transactions, or a tombstone."""
        return self.add(LogBatch([record(group, topic, partition, offset)]))

    def within(
        self, producer_id: int, partition: int, offset: int | None, group: str = "g", topic: str = "orders"
    ) -> Loader:
        """Add a commit in a producer's transaction."""
        made = record(group, topic, partition, offset)
        return self.add(LogBatch([made], producer_id, [len(self.batches)]))

    def end(self, producer_id: int, commits: bool) -> Loader:
        """Add the end marker of a producer's transaction."""
        return self.add(LogBatch([], producer_id, commits=commits))

    def load(self) -> GroupsUnderTest:
        coordinator = GroupsUnderTest()
        coordinator.groups.shards.begin(0, coordinator.log)
        for _ in coordinator.groups.shards.replay_batches(0, self.batches):
            pass
        coordinator.groups.loaded(0)
        return coordinator


def record(group: str, topic: str, partition: int, offset: int | None) -> tuple[bytes, bytes | None]:
    return offset_record(
        group, topic, partition, None if offset is None else CommittedOffset(offset, commit_timestamp_ms=1)
    )


def offsets(coordinator: GroupsUnderTest, group: str = "g") -> dict[int, int]:
    """The committed offset that OffsetFetch returns, by partition."""
    error, fetched = coordinator.groups.fetch(group)
    assert error is ErrorCode.NONE
    return {partition: committed.offset for _, partition, committed in fetched}


def test_an_offset_is_valid_after_the_commit_of_its_transaction():
    log = Loader().plain(0, 1).within(T, 0, 5).within(T, 1, 6).end(T, commits=True)
    assert offsets(log.load()) == {0: 5, 1: 6}


def test_an_offset_of_an_aborted_transaction_is_discarded():
    log = Loader().plain(0, 1).within(T, 0, 5).within(T, 1, 6).end(T, commits=False)
    assert offsets(log.load()) == {0: 1}
    assert offsets(log.within(T, 0, 7).end(T, commits=True).load()) == {0: 7}


def test_an_offset_of_an_open_transaction_is_pending_and_logged(caplog):
    log = Loader().plain(0, 1).within(T, 0, 5).within(T, 1, 6).within(U, 2, 7, group="other")
    with caplog.at_level(logging.INFO):
        coordinator = log.load()
    assert offsets(coordinator) == {0: 1}
    assert offsets(coordinator, "other") == {}
    assert set(coordinator.groups.unstable_places("g")) == {("orders", 0), ("orders", 1)}
    assert set(coordinator.groups.unstable_places("other")) == {("orders", 2)}
    (line,) = (line.getMessage() for line in caplog.records if "transactions" in line.getMessage())
    assert "3 offset(s) of group(s) g, other wait for the end" in line and "(producer id 7, 8)" in line


def test_the_newest_record_counts_in_any_order_of_end_markers():
    both = Loader().within(T, 0, 5).within(U, 0, 6)
    assert offsets(both.end(U, commits=True).end(T, commits=True).load()) == {0: 6}
    both = Loader().within(T, 0, 5).within(U, 0, 6)
    assert offsets(both.end(T, commits=True).end(U, commits=True).load()) == {0: 6}
    both = Loader().within(T, 0, 5).within(U, 0, 6)
    assert offsets(both.end(U, commits=False).end(T, commits=True).load()) == {0: 5}


def test_a_commit_outside_of_the_transaction_overtakes_what_it_has_so_far():
    assert offsets(Loader().within(T, 0, 5).plain(0, 3).end(T, commits=True).load()) == {0: 3}
    assert offsets(Loader().within(T, 0, 5).plain(0, 3).within(T, 0, 8).end(T, commits=True).load()) == {0: 8}


def test_a_tombstone_overtakes_it_too():
    assert offsets(Loader().within(T, 0, 5).plain(0, None).end(T, commits=True).load()) == {}


def test_an_end_without_records_changes_nothing():
    assert offsets(Loader().plain(0, 1).end(T, commits=True).end(U, commits=False).load()) == {0: 1}


@pytest.mark.parametrize("verb", ["group", "offset", "topic"])
def test_a_deleted_offset_does_not_return_with_a_later_end_marker(verb):
    log = Loader().plain(1, 1).within(T, 0, 5)
    coordinator = log.load()
    if verb == "group":
        then = Once()
        coordinator.groups.delete("g", then)
        assert then.answer is ErrorCode.NONE
    elif verb == "offset":
        outcome: list[Any] = []
        coordinator.groups.delete_offsets("g", [("orders", 0), ("orders", 1)], lambda *answer: outcome.append(answer))
        assert outcome == [(ErrorCode.NONE, {("orders", 0): ErrorCode.NONE, ("orders", 1): ErrorCode.NONE})]
    else:
        coordinator.groups.topics_deleted(["orders"])
    for tombstone in coordinator.log.records:
        log.add(LogBatch([tombstone]))
    assert offsets(log.end(T, commits=True).load()) == {}


def test_neither_open_offsets_nor_their_groups_expire():
    log = Loader().plain(0, 1).within(T, 0, 5).within(T, 1, 6, group="other")
    coordinator = log.load()
    coordinator.timers.advance(coordinator.groups.shards.settings.offsets_retention_ms)
    assert coordinator.groups.expire() == 0
    assert {group.group_id for group in coordinator.groups.shards.groups()} == {"g", "other"}
