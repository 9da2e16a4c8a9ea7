"""A worker around lanes: it finds topics while it runs, shares partitions with other workers, and stops in order."""

import itertools
import threading
import urllib.error
import urllib.request
from contextlib import contextmanager

import pytest

from odradek.clients import configs, topics
from odradek.clients.cluster import Cluster
from odradek.clients.configs import Resource
from odradek.metrics.exposition import pieces
from odradek.mirror.lane_set import LaneSet
from odradek.mirror.routes import Moved, Route
from odradek.mirror.status import read_workers
from odradek.mirror.worker import Worker, WorkerError, check_start
from tests.mirror.clusters import pair
from tests.mirror.fake_lanes import FakeFencedError, FakeLanes
from tests.ports import reserved
from tests.waiting import until

NUMBERS = itertools.count()
QUICK = {"group.initial.rebalance.delay.ms": 0}


@pytest.fixture(scope="module")
def brokers():
    with pair(QUICK, QUICK) as both:
        yield both


@pytest.fixture
def name():
    return f"t{next(NUMBERS)}"


class Running:
    """A worker in a thread, with fake lanes."""

    def __init__(self, settings):
        self.lanes = FakeLanes()
        self.observers = []
        self.worker = Worker(settings, [flow.edge for flow in settings.flows], self._make, FakeFencedError)
        self.error = None
        self._thread = threading.Thread(target=self._main)

    def _make(self, flow, lane, observer):
        self.observers.append(observer)
        return self.lanes.make(lane)

    def _main(self):
        try:
            self.worker.run()
        except WorkerError as error:
            self.error = error

    def start(self):
        self._thread.start()
        return self

    def wait(self):
        self._thread.join(60)
        assert not self._thread.is_alive()

    def stop(self):
        self.worker.stop()
        self.wait()

    def places(self):
        """The partitions of the source in the lanes that run."""
        return sorted(route.source for lane in self.lanes.live().values() for route in lane.routes)

    @property
    def flow(self):
        return self.worker.flows[0]


@contextmanager
def running(settings):
    worker = Running(settings).start()
    try:
        yield worker
    finally:
        worker.stop()
        worker.lanes.end()


def lines(name, **keys):
    return f"topics = {name}.*\nrefresh.topics.interval.seconds = 1\n" + "".join(
        f"odradek.mirror.{key} = {value}\n" for key, value in keys.items()
    )


@contextmanager
def clusters(settings):
    with settings.flows[0].source.connect() as source, settings.flows[0].target.connect() as target:
        yield source, target


def test_topics_partitions_and_settings_that_come_while_it_runs_are_mirrored(brokers, tmp_path, name):
    settings = brokers.settings(tmp_path, lines(name) + "sync.topic.configs.interval.seconds = 1\n")
    with clusters(settings) as (source, target):
        topics.create(source, name, 2)
        with running(settings) as worker:
            until(lambda: worker.places() == [(name, 0), (name, 1)], worker.places)
            topics.grow(source, name, 3)
            topics.create(source, f"{name}-later", 1)
            until(lambda: worker.places() == [(name, 0), (name, 1), (name, 2), (f"{name}-later", 0)], worker.places)
            configs.alter(source, Resource("topic", name), {"retention.ms": "123456"})
            copy = Resource("topic", f"a.{name}")
            until(lambda: configs.describe(target, copy)["retention.ms"].value == "123456", "the setting follows")
            assert topics.delete(source, [f"{name}-later"]) == {f"{name}-later": None}
            until(lambda: len(worker.places()) == 3, worker.places)


def test_two_workers_share_the_partitions_and_the_rest_of_a_stopped_one_moves(brokers, tmp_path, name):
    settings = brokers.settings(tmp_path, lines(name))
    everything = [(name, partition) for partition in range(8)]
    with clusters(settings) as (source, _):
        topics.create(source, name, 8)
    with running(settings) as first:
        with running(settings) as second:
            until(
                lambda: first.places() and second.places() and sorted(first.places() + second.places()) == everything,
                first.places,
            )
            assert len(first.places()) == len(second.places()) == 4
        until(lambda: first.places() == everything, first.places)
        assert not second.lanes.live()
    with Cluster(brokers.b.bootstrap_servers) as cluster:
        assert read_workers(cluster, settings.flows[0].group_id)[0] == "Empty"


def test_a_fenced_lane_comes_back_if_the_group_still_assigns_it(brokers, tmp_path, name):
    settings = brokers.settings(tmp_path, lines(name, lanes=2))
    with clusters(settings) as (source, _):
        topics.create(source, name, 2)
    with running(settings) as worker:
        until(lambda: len(worker.lanes.live()) == 2, "two lanes run")
        worker.lanes.live()[0].fail(FakeFencedError())
        until(lambda: len(worker.lanes.made) == 3 and len(worker.lanes.live()) == 2, "lane 0 runs again")


def test_a_lane_with_an_internal_error_is_started_again(brokers, tmp_path, name):
    settings = brokers.settings(tmp_path, lines(name, lanes=2))
    with running(settings) as worker:
        until(lambda: len(worker.lanes.live()) == 2, "two lanes run")
        worker.lanes.live()[1].fail(ValueError("a bug"))
        until(lambda: len(worker.lanes.made) == 3 and len(worker.lanes.live()) == 2, "lane 1 runs again")


def test_metrics_and_readiness_are_served(brokers, tmp_path, name):
    with reserved(1) as port:
        settings = brokers.settings(tmp_path, lines(name) + f"odradek.mirror.metrics.listener = 127.0.0.1:{port}\n")
    with clusters(settings) as (source, _):
        topics.create(source, name, 1)

    def get(path):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    with running(settings) as worker:
        until(lambda: worker.flow.not_ready is None, lambda: str(worker.flow.not_ready))
        assert get("/readyz") == (200, "ready\n")
        assert get("/usage")[0] == 404
        assert get("/")[1] == "/metrics\n/healthz\n/readyz\n"
        route = Route((name, 0), (f"a.{name}", 0))
        worker.observers[0].moved(Moved(route, 0, 0, 5, 5, 99, 1))
        worker.observers[0].failed(3, "lost the connection", 1.0)
        worker.observers[0].stopped(route, "too large")
        text = get("/metrics")[1]
        assert f'odradek_mirror_records_total{{partition="0",source="a",target="b",topic="a.{name}"}} 5' in text
        assert 'odradek_mirror_failures_total{source="a",target="b"} 1' in text
        assert 'reason="too large"' in text
        assert 'odradek_mirror_lanes{source="a",target="b"} 8' in text


def test_a_port_in_use_is_a_sentence_with_the_key(brokers, tmp_path, name):
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        settings = brokers.settings(tmp_path, f"odradek.mirror.metrics.listener = 127.0.0.1:{port}\n")
        worker = Running(settings).start()
        worker.wait()
    assert f"odradek.mirror.metrics.listener=127.0.0.1:{port}: cannot listen: Address already in use" in str(
        worker.error
    )


def test_another_number_of_lanes_ends_the_worker_with_a_sentence(brokers, tmp_path, name):
    with running(brokers.settings(tmp_path, lines(name))) as first:
        until(lambda: first.flow.not_ready is None, "it runs")
        other = Running(brokers.settings(tmp_path, lines(name, lanes=3))).start()
        other.wait()
        other.lanes.end()
        assert "a->b: group odradek-mirror.a->b has workers with another number of lanes" in str(other.error)


def test_a_source_that_cannot_be_reached_does_not_stop_the_other_flows(brokers, tmp_path, name):
    more = "clusters = a, b, c\nc.bootstrap.servers = 127.0.0.1:1\nc->b.enabled = true\n"
    settings = brokers.settings(tmp_path, lines(name) + more)
    check_start(settings, [])
    with clusters(settings) as (source, _):
        topics.create(source, name, 1)
    with running(settings) as worker:
        until(lambda: worker.places() == [(name, 0)], worker.places)
        assert worker.worker.flows[1].not_ready == "c->b: the topics of the source and the target were not read yet"


def test_a_source_that_becomes_the_target_does_not_stop_the_other_flows(brokers, tmp_path, name, caplog):
    """As when the name of a source now leads to the target; at the start it would be refused."""
    more = f"clusters = a, b, c\nc.bootstrap.servers = {brokers.b.bootstrap_servers}\nc->b.enabled = true\n"
    settings = brokers.settings(tmp_path, lines(name) + more)
    with clusters(settings) as (source, _):
        topics.create(source, name, 1)
        with running(settings) as worker:
            until(lambda: "c->b: cannot read or change topics: c (" in caplog.text, "the refusal is logged")
            topics.create(source, f"{name}-later", 1)
            until(lambda: worker.places() == [(name, 0), (f"{name}-later", 0)], worker.places)
            assert b'refresh_failures_total{source="c",target="b"} ' in b"".join(
                pieces(worker.worker.metrics.families(), False)
            )
    assert worker.error is None


def test_a_start_ends_with_all_reasons_if_no_flow_can_run(brokers, tmp_path):
    settings = brokers.settings(tmp_path, "b.bootstrap.servers = 127.0.0.1:1\n")
    with pytest.raises(WorkerError, match=r"a->b: cluster b: cannot connect to 127\.0\.0\.1:1"):
        check_start(settings, [])
    settings = brokers.settings(tmp_path, f"b.bootstrap.servers = {brokers.a.bootstrap_servers}\n")
    with pytest.raises(WorkerError, match="are the same cluster"):
        check_start(settings, [])


def test_lane_sets_are_of_the_number_of_lanes():
    lanes = FakeLanes()
    owner = LaneSet("a->b", 1, lanes.make, FakeFencedError, lambda: None, lambda: None)
    owner.route([Route(("t", 5), ("a.t", 5))])
    owner.own(frozenset({0}), 0)
    until(lambda: len(lanes.live()) == 1, "the lane runs")
    assert owner.running == 1
    lanes.end()
