"""The threads of a worker's lanes: started when they are owned and have partitions, never two for one lane."""

import threading

import pytest

from odradek.mirror.assignment import lane_of
from odradek.mirror.lane_set import LaneSet
from odradek.mirror.routes import Route
from tests.mirror.fake_lanes import FakeFencedError, FakeLanes
from tests.waiting import until

LANES = 4
ROUTES = [Route(("t", partition), ("a.t", partition)) for partition in range(10)]


class Told:
    """What a lane set told its owner."""

    def __init__(self):
        self.fenced, self.ended = threading.Event(), threading.Event()


@pytest.fixture
def told():
    return Told()


@pytest.fixture
def lanes():
    made = FakeLanes()
    yield made
    made.end()


def lane_set(lanes, told):
    return LaneSet("a->b", LANES, lanes.make, FakeFencedError, told.fenced.set, told.ended.set)


def running(lanes, *indexes):
    until(lambda: set(lanes.live()) == set(indexes), lambda: f"lanes {indexes} run, not {sorted(lanes.live())}")
    return lanes.live()


def test_lanes_start_when_they_are_owned_and_the_partitions_are_known(lanes, told):
    owner = lane_set(lanes, told)
    owner.own(frozenset({0, 2}), 0)
    assert lanes.made == []
    owner.route(ROUTES)
    live = running(lanes, 0, 2)
    for index, lane in live.items():
        assert lane.routes == [route for route in ROUTES if lane_of(route.target, LANES) == index]
    assert sorted(owner.places()) == sorted(route.target for index in (0, 2) for route in live[index].routes)


def test_new_partitions_reach_the_running_lanes(lanes, told):
    owner = lane_set(lanes, told)
    owner.route(ROUTES[:4])
    owner.own(frozenset(range(LANES)), 0)
    live = running(lanes, *range(LANES))
    owner.route(ROUTES)
    assert sorted(route.target for lane in live.values() for route in lane.routes) == [route.target for route in ROUTES]
    assert len(lanes.made) == LANES


def test_a_new_assignment_stops_only_what_left_and_keeps_the_rest(lanes, told):
    owner = lane_set(lanes, told)
    owner.route(ROUTES)
    owner.own(frozenset({0, 1}), 0)
    first = running(lanes, 0, 1)
    owner.own(frozenset({1, 3}), 5)
    second = running(lanes, 1, 3)
    assert second[1] is first[1] and first[0].ended.is_set()


def test_a_lane_that_comes_back_waits_for_the_end_of_its_former_thread(told):
    lanes = FakeLanes(slow=True)
    owner = lane_set(lanes, told)
    owner.route(ROUTES)
    owner.own(frozenset({0}), 0)
    until(lambda: lanes.made and lanes.made[0].started.is_set(), "the lane runs")
    owner.own(frozenset(), 0)
    owner.own(frozenset({0}), 0)
    assert len(lanes.made) == 2
    assert not lanes.made[1].started.wait(0.1)
    lanes.made[0].release.set()
    assert lanes.made[1].started.wait(30)
    assert lanes.made[0].ended.is_set()
    lanes.end()


def test_a_fenced_lane_asks_for_the_assignment_and_starts_again_with_it(lanes, told):
    owner = lane_set(lanes, told)
    owner.route(ROUTES)
    owner.own(frozenset({0, 1}), 0)
    running(lanes, 0, 1)[0].fail(FakeFencedError())
    assert told.fenced.wait(30)
    running(lanes, 1)
    owner.route(ROUTES)  # new partitions alone do not start it: another worker may have it
    assert len(lanes.made) == 2
    owner.own(frozenset({0, 1}), 0)
    running(lanes, 0, 1)


def test_a_lane_that_ends_with_an_error_is_started_again(lanes, told, caplog):
    owner = lane_set(lanes, told)
    owner.route(ROUTES)
    owner.own(frozenset({0}), 0)
    running(lanes, 0)[0].fail(ValueError("a bug"))
    assert told.ended.wait(30)
    assert "lane 0 ended because of an internal error" in caplog.text and "a bug" in caplog.text
    owner.revive()
    running(lanes, 0)


def test_commits_of_all_lanes_are_counted_also_after_their_end(lanes, told):
    owner = lane_set(lanes, told)
    owner.route(ROUTES)
    owner.own(frozenset({0, 1, 2}), 0)
    live = running(lanes, 0, 1, 2)
    for lane in live.values():
        lane.commits += 10
    assert owner.commits == 30
    owner.own(frozenset({0, 1}), 30)
    assert owner.commits == 30
    live[0].fail(FakeFencedError())
    assert told.fenced.wait(30)
    assert owner.commits == 30
    owner.own(frozenset({0, 1}), 0)
    running(lanes, 0, 1)[0].commits += 5
    assert owner.commits == 35


def test_the_end_of_a_lane_that_left_is_nobodys_concern(lanes, told):
    owner = lane_set(lanes, told)
    owner.route(ROUTES)
    owner.own(frozenset({0}), 0)
    lane = running(lanes, 0)[0]
    lane.error = FakeFencedError()
    owner.own(frozenset(), 30)
    assert lane.ended.is_set() and not told.fenced.is_set()
