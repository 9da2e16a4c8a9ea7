"""Where a lane begins without a position: nothing is copied a second time, and one refusal stops one partition."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from odradek.clients.cluster import Cluster
from odradek.clients.groups import fetch_offsets
from odradek.mirror import lane, leaders
from odradek.mirror.commits import Commits, Position, PositionRefusedError
from odradek.mirror.leaders import Limits
from odradek.mirror.routes import EARLIEST, LaneOptions, Place, Route
from odradek.mirror.starting import newest
from odradek.protocol.errors import ErrorCode
from odradek.testing import Broker
from tests.mirror.commands import mirror
from tests.mirror.lanes import GROUP, records_of, routes_of, running, wait_until_moved
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
        patch.setattr(lane.Lane, "stop", lambda self: None)
        with pytest.raises(RuntimeError, match="killed"), running(pair.source, pair.target, [route], options):
            pass
    with running(pair.source, pair.target, [route], options) as (_, watcher):
        watcher.wait(lambda: watcher.batches and watcher.batches[-1][3] == 100, "the records are copied")
    assert not watcher.stops
    assert len(records_of(pair.target, route.target)) == (100 if options.exactly_once else 200)


def test_a_source_that_refuses_the_first_offset_of_one_partition_stops_only_that(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = pair.topic(partitions=2)
    routes = routes_of(pair.source, [topic])
    write(producer(pair.source), topic, 2, range(100))

    def list_offsets(cluster: Cluster, partitions: object, start: object) -> dict[Place, leaders.topics.ListedOffset]:
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


def test_a_refused_position_is_named_as_such(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    topics = pair.topic(), pair.topic()
    routes = routes_of(pair.source, topics)
    for topic in topics:
        write(producer(pair.source), topic, 1, range(100))
    commit = Commits.commit

    def refuse(self: Commits, positions: dict[Place, Position], meanwhile: object) -> None:
        if routes[0].target in positions:
            raise PositionRefusedError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, routes[0].target)
        commit(self, positions, meanwhile)  # type: ignore[arg-type]

    monkeypatch.setattr(Commits, "commit", refuse)
    with running(pair.source, pair.target, routes) as (_, watcher):
        watcher.wait(lambda: watcher.stops, "the partition stops")
        wait_until_moved(watcher, pair.source, pair.target, routes[1:])
    (reason,) = watcher.stops.values()
    assert reason.startswith(f"the target refuses the position of a.{topics[0]}-0: ")
    assert "at the source's offset" not in reason


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
