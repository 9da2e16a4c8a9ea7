"""Where a lane begins without a position: nothing is copied a second time, and one refusal stops one partition."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from odradek.clients.cluster import Cluster
from odradek.clients.groups import CommittedOffset, commit_offsets, fetch_offsets
from odradek.mirror import lane, leaders
from odradek.mirror.commits import Commits, Position, PositionRefusedError
from odradek.mirror.leaders import Limits
from odradek.mirror.routes import EARLIEST, LaneOptions, Route
from odradek.mirror.starting import newest
from odradek.protocol.errors import ErrorCode
from odradek.testing import Broker
from odradek.topic_partition import TopicPartition
from tests.mirror.commands import mirror
from tests.mirror.lanes import GROUP, Watcher, records_of, routes_of, running, wait_until_moved
from tests.mirror.test_lane import Pair, check_equal, producer, write

EXACTLY_ONCE, AT_LEAST_ONCE = LaneOptions(fetch_wait_ms=100), LaneOptions(fetch_wait_ms=100, exactly_once=False)


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with Broker() as source, Broker() as target:
        yield Pair(source, target)


def copy_until(pair: Pair, route: Route, options: LaneOptions, position: int) -> None:
    """Run a lane until it has copied up to this position."""
    with running(pair.source, pair.target, [route], options) as (_, watcher):
        watcher.wait(lambda: watcher.at.get(route.target, (0, 0, 0))[0] >= position, "the records are copied")
    assert not watcher.stops
    assert not watcher.failures


def test_the_positions_follow_when_exactly_once_is_switched_again_and_again(pair: Pair) -> None:
    topic = pair.topic()
    (route,) = routes_of(pair.source, [topic])
    for index, options in enumerate((EXACTLY_ONCE, AT_LEAST_ONCE, EXACTLY_ONCE, AT_LEAST_ONCE)):
        write(producer(pair.source), topic, 1, range(100 * index, 100 * index + 100))
        copy_until(pair, route, options, 100 * index + 100)
    assert check_equal(pair, [route]) == 400
    with Cluster(pair.target) as cluster:
        assert fetch_offsets(cluster, f"{GROUP}.positions")[route.target].offset == 400


def test_a_later_position_of_another_topic_is_not_taken() -> None:
    place, own = ("t", 0), Position(5, '{"topic_id":"aa"}')
    assert newest({place: own}, {place: Position(9, '{"topic_id":"aa"}')})[place].offset == 9
    assert newest({place: own}, {place: Position(3, '{"topic_id":"aa"}')})[place].offset == 5
    assert newest({place: own}, {place: Position(9, '{"topic_id":"bb"}')})[place].offset == 5
    assert newest({}, {place: own}) == {place: own}


def test_a_copy_with_records_and_no_position_stops_unless_it_may_be_appended(pair: Pair) -> None:
    filled, empty = pair.topic(), pair.topic()
    for topic in (filled, empty):
        write(producer(pair.source), topic, 1, range(100))
    write(producer(pair.target), f"a.{filled}", 1, range(3))
    routes = routes_of(pair.source, [filled, empty])
    with running(pair.source, pair.target, routes) as (_, watcher):
        watcher.wait(lambda: routes[0].target in watcher.stops, "the partition stops")
        wait_until_moved(watcher, pair.source, pair.target, routes[1:])
    assert "has 3 offsets but no position" in watcher.stops[routes[0].target]
    assert "delete the copy to begin again" in watcher.stops[routes[0].target]
    assert list(watcher.stops) == [routes[0].target]
    assert len(records_of(pair.target, routes[0].target)) == 3
    with running(pair.source, pair.target, routes, LaneOptions(append=True)) as (_, watcher):
        wait_until_moved(watcher, pair.source, pair.target, routes)
    assert len(records_of(pair.target, routes[0].target)) == 103
    assert check_equal(pair, routes[1:]) == 100


def test_latest_begins_at_a_copy_with_records(pair: Pair) -> None:
    topic = pair.topic()
    (route,) = routes_of(pair.source, [topic])
    write(producer(pair.source), topic, 1, range(100))
    write(producer(pair.target), f"a.{topic}", 1, range(3))
    with running(pair.source, pair.target, [route], LaneOptions(start="latest", fetch_wait_ms=100)) as (_, watcher):
        wait_until_moved(watcher, pair.source, pair.target, [route])
        write(producer(pair.source), topic, 1, range(100, 110))
        wait_until_moved(watcher, pair.source, pair.target, [route])
    assert len(records_of(pair.target, route.target)) == 13


@pytest.mark.parametrize("options", [EXACTLY_ONCE, AT_LEAST_ONCE])
def test_records_that_were_written_before_a_crash_do_not_stop_the_next_start(
    pair: Pair, options: LaneOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first position is committed before any record, so that it is there when the first records' commit fails."""
    topic = pair.topic()
    (route,) = routes_of(pair.source, [topic])
    write(producer(pair.source), topic, 1, range(100))
    take, commit, taken = lane.Lane._take, lane.Lane._commit, []

    def note(self: lane.Lane, session: lane._Session, event: lane.Fetched) -> None:
        take(self, session, event)
        taken.append(event)

    def crash(self: lane.Lane, session: lane._Session) -> None:
        if taken:
            session.writer._receive_all()
            raise RuntimeError("killed")
        commit(self, session)

    with monkeypatch.context() as patch:
        patch.setattr(lane.Lane, "_take", note)
        patch.setattr(lane.Lane, "_commit", crash)
        with (
            pytest.raises(RuntimeError, match="killed"),
            running(pair.source, pair.target, [route], options, ends=True),
        ):
            pass
    with running(pair.source, pair.target, [route], options) as (_, watcher):
        watcher.wait(
            lambda: watcher.batches and watcher.batches[-1].next_source_offset == 100, "the records are copied"
        )
    assert not watcher.stops
    assert len(records_of(pair.target, route.target)) == (100 if options.exactly_once else 200)


def test_a_source_that_refuses_the_first_offset_of_one_partition_stops_only_that(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = pair.topic(partitions=2)
    routes = routes_of(pair.source, [topic])
    write(producer(pair.source), topic, 2, range(100))

    def list_offsets(
        cluster: Cluster, partitions: object, start: object
    ) -> dict[TopicPartition, leaders.topics.ListedOffset]:
        found = original(cluster, partitions, start)  # type: ignore[arg-type]
        if (topic, 1) in found:
            found[topic, 1] = found[topic, 1]._replace(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return found

    original = leaders.topics.list_offsets
    monkeypatch.setattr(leaders.topics, "list_offsets", list_offsets)
    with running(pair.source, pair.target, routes) as (_, watcher):
        watcher.wait(lambda: routes[1].target in watcher.stops, "the partition stops")
        wait_until_moved(watcher, pair.source, pair.target, routes[:1])
    assert f"gives no earliest offset of {topic}-1: " in watcher.stops[routes[1].target]
    assert "TOPIC_AUTHORIZATION_FAILED" in watcher.stops[routes[1].target]
    assert not watcher.failures
    assert check_equal(pair, routes[:1]) == 50


def test_a_leader_that_is_not_ready_is_asked_again(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = pair.topic()
    (route,) = routes_of(pair.source, [topic])
    write(producer(pair.source), topic, 1, range(100))
    limits, refusals = lane.limits, [Limits({}, {route.source: ErrorCode.NOT_LEADER_OR_FOLLOWER})]
    monkeypatch.setattr(lane, "limits", lambda *rest: refusals.pop() if refusals else limits(*rest))
    with running(pair.source, pair.target, [route]) as (_, watcher):
        wait_until_moved(watcher, pair.source, pair.target, [route])
    assert not watcher.stops
    assert len(watcher.failures) == 1
    assert f"gives no {EARLIEST} offset of {topic}-0" in watcher.failures[0]


def refuse_positions(monkeypatch: pytest.MonkeyPatch, place: TopicPartition) -> None:
    """The target takes no position of a partition; it says the committed ones."""
    commit = Commits.commit

    def refuse(self: Commits, positions: dict[TopicPartition, Position], meanwhile: object) -> None:
        if place in positions:
            raise PositionRefusedError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, place)
        commit(self, positions, meanwhile)  # type: ignore[arg-type]

    monkeypatch.setattr(Commits, "commit", refuse)


def test_a_refused_position_is_named_as_such(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    topics = pair.topic(), pair.topic()
    routes = routes_of(pair.source, topics)
    for topic in topics:
        write(producer(pair.source), topic, 1, range(100))
    refuse_positions(monkeypatch, routes[0].target)
    with running(pair.source, pair.target, routes) as (_, watcher):
        watcher.wait(lambda: watcher.stops, "the partition stops")
        wait_until_moved(watcher, pair.source, pair.target, routes[1:])
    (reason,) = watcher.stops.values()
    assert reason.startswith(f"the target refuses the position of a.{topics[0]}-0: ")
    assert "at the source's offset" not in reason


@pytest.mark.parametrize("change", ["number of lanes", "exactly once", "truncation"])
def test_a_refused_position_that_a_start_would_commit_again_stops_only_its_partition(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    topics = pair.topic(), pair.topic()
    routes = routes_of(pair.source, topics)
    for topic in topics:
        write(producer(pair.source), topic, 1, range(100))
    name = "odradek-mirror.a->b.{}.0"
    first = AT_LEAST_ONCE if change == "exactly once" else EXACTLY_ONCE
    with running(pair.source, pair.target, routes, first, transactional_id=name.format(8)) as (_, watcher):
        watcher.wait(lambda: {route.target for route, *_ in watcher.batches} == {it.target for it in routes}, "copies")
    if change == "truncation":
        with Cluster(pair.target) as cluster:
            stopped = json.dumps({"truncated": 50})
            commit_offsets(cluster, GROUP, {routes[0].target: CommittedOffset(100, -1, stopped)})
    write(producer(pair.source), topics[1], 1, range(100, 200))
    refuse_positions(monkeypatch, routes[0].target)
    options = replace(EXACTLY_ONCE, continue_truncated=True)
    number = 8 if change == "exactly once" else 4
    with running(pair.source, pair.target, routes, options, transactional_id=name.format(number)) as (_, watcher):
        wait_until_moved(watcher, pair.source, pair.target, routes[1:])
        watcher.wait(lambda: watcher.stops, "the partition stops")
    assert list(watcher.stops) == [routes[0].target]
    assert not [reason for reason in watcher.failures if "the target refuses the position" in reason]


def test_a_refused_position_of_a_partition_that_stops_behind_it_does_not_hold_the_others(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = pair.topic(target={"max.message.bytes": "2000"}), pair.topic()
    routes = routes_of(pair.source, [bad, good])
    made = producer(pair.source, **{"compression.type": "none"})
    with running(pair.source, pair.target, routes) as (_, watcher):  # the positions are committed
        wait_until_moved(watcher, pair.source, pair.target, routes[1:])
    for size in (100, 100, 5000):  # the last one is refused, behind the committed position
        made.produce(bad, b"x" * size)
        made.flush()
    refuse_positions(monkeypatch, routes[0].target)
    with running(pair.source, pair.target, routes) as (_, watcher):
        watcher.wait(lambda: watcher.stops, "the partition stops")
        write(producer(pair.source), good, 1, range(100))
        wait_until_moved(watcher, pair.source, pair.target, routes[1:])
    assert list(watcher.stops) == [routes[0].target]
    assert records_of(pair.target, routes[0].target) == []


@pytest.mark.parametrize("dirty", [False, True])
def test_a_partition_to_try_again_wakes_the_lane_only_when_it_may_be_taken(dirty: bool) -> None:
    """While a transaction is open, it waits for the commit, without a loop."""
    watcher: Any = Watcher()
    tried: Any = lane.Lane(0, "id.1.0", GROUP, SimpleNamespace, SimpleNamespace, LaneOptions(), watcher)
    place, now = ("t", 0), time.monotonic()
    tried._halts[place] = lane._Halt(0, "", now - 1)
    silent = SimpleNamespace(due_s=lambda: None)
    session = SimpleNamespace(refresh_at=now + 3600, opened_at=now + 3600, dirty={place} if dirty else set())
    session.reader = session.writer = silent
    assert (tried._timeout_s(session) > 0) is dirty


def test_the_check_names_copies_with_records_and_no_position(pair: Pair, tmp_path) -> None:
    topic = pair.topic()
    (route,) = routes_of(pair.source, [topic])
    write(producer(pair.source), topic, 1, range(10))
    file = tmp_path / "mirror.properties"
    file.write_text(
        f"clusters = a, b\na.bootstrap.servers = {pair.source}\nb.bootstrap.servers = {pair.target}\n"
        f"a->b.enabled = true\ntopics = {topic}\n"
    )
    assert mirror("check", str(file)).returncode == 0
    write(producer(pair.target), f"a.{topic}", 1, range(3))
    done = mirror("check", str(file))
    assert done.returncode == 1
    assert f"a->b: topic '{topic}': the copy a.{topic}-0 has 3 offsets but no position" in done.stderr
    key = "odradek.mirror.copies.with.records=append"
    assert mirror("check", str(file), "--set", key).returncode == 0
    assert mirror("check", str(file), "--set", "odradek.mirror.start=latest").returncode == 0
    with running(pair.source, pair.target, [route], LaneOptions(append=True, exactly_once=False)) as (_, watcher):
        watcher.wait(lambda: watcher.batches, "the records are copied")
    assert mirror("check", str(file)).returncode == 0
