"""Targets and sources that are slow: a lane copies as much in a transaction, and fetches as much at once, as time allows."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, cast

import pytest

from odradek.clients import topics
from odradek.clients.cluster import Cluster
from odradek.clients.fetch_deadline import FetchDeadline
from odradek.clients.groups import fetch_offsets
from odradek.clients.wire import Connection
from odradek.mirror import lane, source
from odradek.mirror.routes import LaneOptions
from odradek.mirror.source import SourceReader
from odradek.protocol.schemas import produce
from odradek.testing import Broker
from tests.frame_relay import FORWARD, Fate, Frame, FrameRelay
from tests.mirror.clusters import relayed
from tests.mirror.lanes import GROUP, records_of, routes_of, running, wait_until_moved
from tests.mirror.test_lane import Pair, check_equal, producer
from tests.ports import reserved
from tests.threaded_server import ThreadedServer
from tests.waiting import until

TIMEOUT_MS = 3000
QUICK_TO_ABORT = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 50}


def slow(seconds: float) -> Callable[[Frame], Fate]:
    """The target serves one Produce request of a connection after the other, each in this time."""
    return lambda frame: Fate(delay_s=seconds) if frame.api_key == produce.API_KEY else FORWARD


@contextmanager
def slow_target(seconds: float) -> Iterator[tuple[Pair, FrameRelay]]:
    with ExitStack() as stack:
        first = stack.enter_context(Broker())
        target, relay = stack.enter_context(relayed(QUICK_TO_ABORT))
        pair = Pair(first, target)
        relay.rule = slow(seconds)
        yield pair, relay


def write_single(servers: str, topic: str, count: int) -> None:
    """Batches of one record."""
    made = producer(servers, **{"linger.ms": 0, "batch.num.messages": 1})
    for number in range(count):
        made.produce(topic, b"%d" % number)
    made.flush()


@pytest.mark.parametrize("exactly_once", [True, False])
def test_a_response_that_does_not_fit_into_a_transaction_is_copied_in_several(exactly_once: bool) -> None:
    with slow_target(0.01) as (pair, _):
        topic = pair.topic()
        routes = routes_of(pair.source, [topic])
        write_single(pair.source, topic, 400)  # 4 s
        options = LaneOptions(exactly_once=exactly_once, transaction_timeout_ms=TIMEOUT_MS)
        with running(pair.source, pair.target, routes, options) as (mover, watcher):
            group = lane.positions_group(GROUP, exactly_once)

            def done() -> bool:
                with Cluster(pair.target) as cluster:
                    found = fetch_offsets(cluster, group)
                return routes[0].target in found and found[routes[0].target].offset >= 400

            until(done, lambda: f"all is copied; {watcher.failures}")
        assert watcher.failures == []
        assert mover.commits >= 5
        assert check_equal(pair, routes) == 400


def test_a_lane_that_stops_does_not_wait_until_a_slow_target_has_all_that_was_fetched() -> None:
    with slow_target(0.05) as (pair, relay):
        topic = pair.topic()
        routes = routes_of(pair.source, [topic])
        write_single(pair.source, topic, 2000)  # 100 s
        with running(pair.source, pair.target, routes) as (mover, watcher):
            watcher.wait(lambda: mover.commits >= 3, "the first transactions are committed")
            began = time.monotonic()
        assert time.monotonic() - began < 50
        relay.heal()
        copied = [seen.value for seen in records_of(pair.target, routes[0].target)]
        assert copied == [b"%d" % number for number in range(len(copied))]
        assert 0 < len(copied) < 2000
        with running(pair.source, pair.target, routes) as (_, watcher):
            wait_until_moved(watcher, pair.source, pair.target, routes)
        assert check_equal(pair, routes) == 2000


def test_a_leader_of_the_source_that_answered_is_not_lost_because_the_lane_was_busy_with_the_target() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        connection = cast(Connection, Readable(ours))
        reader = SourceReader(cast(Cluster, None), LaneOptions(), *[cast(Any, None)] * 4)
        deadline = FetchDeadline(connection, 0.0, 0.0)
        reader._pending[connection] = source._PendingFetch(node_id=1, deadline=deadline, turns={}, rest_until=0.0)
        theirs.send(b"x")
        reader._drop_timed_out()
        assert reader.connections == [connection]


class Readable:
    """A connection that holds no bytes."""

    buffered = False
    held_bytes = begun_bytes = arrived_bytes = 0

    def __init__(self, connected: socket.socket) -> None:
        self.fileno = connected.fileno


class NarrowLine:
    """Forwards connections to a port; the bytes of all responses together pass at a constant rate."""

    def __init__(self, server_port: int, bytes_s: float) -> None:
        self._server_port, self._bytes_s = server_port, bytes_s
        self._lock = threading.Lock()
        self._free_at = time.monotonic()
        self._server = ThreadedServer(self._serve)
        self.port = self._server.port

    def __enter__(self) -> NarrowLine:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()

    def _serve(self, client: socket.socket, _: int) -> None:
        there, back = partial(self._forward, narrow=False), partial(self._forward, narrow=True)
        self._server.relay(client, self._server_port, there, back)

    def _forward(self, source: socket.socket, target: socket.socket, *, narrow: bool) -> None:
        while data := source.recv(4096):
            if narrow:
                with self._lock:
                    self._free_at = max(self._free_at, time.monotonic()) + len(data) / self._bytes_s
                    wait_s = self._free_at - time.monotonic()
                time.sleep(max(0.0, wait_s))
            target.sendall(data)


def test_batches_of_the_source_that_need_longer_than_the_timeout_are_copied() -> None:
    with ExitStack() as stack:
        port = stack.enter_context(reserved())
        line = stack.enter_context(NarrowLine(port, 200_000))
        config = {
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{line.port}",
        }
        first, second = stack.enter_context(Broker(config)), stack.enter_context(Broker())
        pair = Pair(first, second)
        with Cluster(pair.source) as cluster:
            topics.create(cluster, "wide", 1)
        with Cluster(pair.target) as cluster:
            topics.create(cluster, "a.wide", 1)
        made = producer(pair.source, **{"compression.type": "none", "linger.ms": 0, "batch.num.messages": 1})
        for _ in range(3):
            made.produce("wide", b"x" * 500_000)  # 2.5 s
        made.flush()
        routes = routes_of(pair.source, ["wide"])
        options = LaneOptions(fetch_wait_ms=100, request_timeout_s=1.5)
        clusters = (lambda: Cluster(pair.source, timeout_s=1.5)), (lambda: Cluster(pair.target))
        with running(pair.source, pair.target, routes, options, clusters=clusters) as (_, watcher):
            watcher.wait(lambda: sum(batch.records for batch in watcher.batches) >= 3, "everything is copied")
        assert len(records_of(pair.target, routes[0].target)) == 3
