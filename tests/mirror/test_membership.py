"""Workers share the lanes of a flow through a group of the target; those of a killed one are taken over within 10 s."""

import itertools
import threading
import time
from contextlib import ExitStack, contextmanager

import pytest

from odradek.clients.cluster import Cluster
from odradek.mirror.membership import Membership, MembershipError
from odradek.mirror.status import read_workers
from odradek.testing import Broker
from tests.waiting import until

LANES = 8
SESSION_MS = 6000
GROUPS = (f"odradek-mirror.a->{number}" for number in itertools.count())
QUICK = {"group.initial.rebalance.delay.ms": 0}


@pytest.fixture(scope="module")
def broker():
    with Broker(QUICK) as running:
        yield running


@pytest.fixture
def group():
    return next(GROUPS)


class Worker:
    """A member in a thread, and every assignment that it received."""

    def __init__(self, broker, group, name="w", lanes=LANES, session_ms=SESSION_MS, stops_first=False):
        self.assignments = []
        self.error = None
        self.member = Membership(
            group,
            lanes,
            name,
            lambda: Cluster(broker.bootstrap_servers, 10),
            session_ms,
            self.assignments.append,
            stops_first,
        )
        self._thread = threading.Thread(target=self._main, name=name)

    def _main(self):
        try:
            self.member.run()
        except MembershipError as error:
            self.error = error

    @property
    def lanes(self):
        return self.member.owned

    def start(self):
        self._thread.start()
        return self

    def stop(self):
        self.member.stop()
        self.wait()

    def wait(self):
        self._thread.join(60)
        assert not self._thread.is_alive()


@contextmanager
def workers(broker, group, *names, **options):
    with ExitStack() as stack:
        made = []
        for name in names:
            worker = Worker(broker, group, name, **options).start()
            stack.callback(worker.stop)
            made.append(worker)
        yield made


def shared(members):
    """Wait until the lanes are spread over these workers."""
    until(
        lambda: (
            sorted(lane for worker in members for lane in worker.lanes) == list(range(LANES))
            and all(worker.lanes for worker in members)
        ),
        lambda: f"the lanes are shared, not {[sorted(worker.lanes) for worker in members]}",
    )


def test_a_single_worker_has_all_lanes_and_leaves_none_behind(broker, group):
    with workers(broker, group, "w1") as (only,):
        shared([only])
        assert only.member.leads
    assert only.assignments[-1] == frozenset()
    with Cluster(broker.bootstrap_servers) as cluster:
        state, _, members = read_workers(cluster, group)
    assert (state, members) == ("Empty", [])


def test_lanes_are_spread_evenly_and_those_that_stay_do_not_move(broker, group):
    with workers(broker, group, "w1") as (first,):
        shared([first])
        with workers(broker, group, "w2", "w3") as others:
            shared([first, *others])
            assert sorted(len(worker.lanes) for worker in (first, *others)) == [2, 3, 3]
            kept = first.lanes
            with Cluster(broker.bootstrap_servers) as cluster:
                state, protocol, rows = read_workers(cluster, group)
            assert (state, protocol) == ("Stable", "lanes-8")
            assert {row.name: frozenset(row.lanes) for row in rows} == {
                worker.member._worker: worker.lanes for worker in (first, *others)
            }
        shared([first])
        assert kept <= first.lanes


def test_the_lanes_of_a_killed_worker_are_taken_over_within_ten_seconds(broker, group):
    with workers(broker, group, "w1") as (survivor,):
        shared([survivor])
        killed = Worker(broker, group, "killed")
        killed.member._join()  # it is a member and never sends a heartbeat
        shared([survivor, killed])
        until(lambda: len(survivor.lanes) == LANES, "the survivor has all lanes")
        killed.member._disconnect()


def test_a_worker_that_stops_is_replaced_at_once(broker, group):
    with workers(broker, group, "w1", "w2", session_ms=120_000) as (first, second):  # longer than `until` waits
        shared([first, second])
        second.stop()
        shared([first])


def test_another_number_of_lanes_is_refused_with_the_key(broker, group):
    with workers(broker, group, "w1") as (first,):
        shared([first])
        other = Worker(broker, group, "w2", lanes=4).start()
        other.wait()
        assert "odradek.mirror.lanes=4" in str(other.error)
        shared([first])


def test_a_session_timeout_that_the_target_refuses_is_named(broker, group):
    other = Worker(broker, group, session_ms=1000).start()
    other.wait()
    assert "odradek.mirror.session.timeout.ms=1000: it must be between" in str(other.error)


def test_a_fenced_worker_gets_the_assignment_again(broker, group):
    with workers(broker, group, "w1") as (only,):
        shared([only])
        before = len(only.assignments)
        only.member.rejoin()
        until(lambda: len(only.assignments) > before, "it joins again")
        assert only.assignments[-1] == frozenset(range(LANES))


def test_without_transactions_lanes_stop_before_a_worker_joins_again(broker, group):
    with workers(broker, group, "w1", stops_first=True) as (only,):
        shared([only])
        only.member.rejoin()
        until(lambda: len(only.assignments) >= 3, "it joins again")
        assert only.assignments[:3] == [frozenset(range(LANES)), frozenset(), frozenset(range(LANES))]


def test_a_broker_that_restarts_does_not_end_the_membership(tmp_path):
    with Broker(QUICK, directory=tmp_path) as broker, workers(broker, "odradek-mirror.r", "w1") as (only,):
        shared([only])
        broker.stop()
        stopped = time.monotonic()
        broker.start()
        until(lambda: only.member._contact > stopped, "it is a member again")
        with Cluster(broker.bootstrap_servers) as cluster:
            until(
                lambda: [row.lanes for row in read_workers(cluster, "odradek-mirror.r")[2]] == [list(range(LANES))],
                "it has all lanes",
            )
