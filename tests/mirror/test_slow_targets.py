"""Targets that are slow: a lane copies what it fetched in as many transactions as it needs, and each one is progress."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, cast

import pytest

from odradek.clients.cluster import Cluster
from odradek.clients.groups import fetch_offsets
from odradek.clients.wire import Connection
from odradek.mirror import lane, source
from odradek.mirror.routes import LaneOptions
from odradek.mirror.source import SourceReader
from odradek.protocol.schemas import produce
from odradek.testing import Broker
from tests.frame_relay import FORWARD, Fate, Frame, FrameRelay
from tests.mirror.lanes import GROUP, records_of, routes_of, running, wait_until_moved
from tests.mirror.test_lane import Pair, check_equal, producer
from tests.ports import reserved
from tests.waiting import until

TIMEOUT_MS = 1000
QUICK_TO_ABORT = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 50}


def slow(seconds: float) -> Callable[[Frame], Fate]:
    """The target serves one Produce request of a connection after the other, each in this time."""
    return lambda frame: Fate(delay_s=seconds) if frame.api_key == produce.API_KEY else FORWARD


@contextmanager
def slow_target(seconds: float) -> Iterator[tuple[Pair, FrameRelay]]:
    with ExitStack() as stack:
        first = stack.enter_context(Broker())
        port = stack.enter_context(reserved())
        relay = stack.enter_context(FrameRelay(port))
        config = {
            "listeners": f"PLAINTEXT://127.0.0.1:{port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{relay.port}",
        }
        target = stack.enter_context(Broker(config | QUICK_TO_ABORT))
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
        write_single(pair.source, topic, 200)  # 2 s
        options = LaneOptions(exactly_once=exactly_once, transaction_timeout_ms=TIMEOUT_MS)
        with running(pair.source, pair.target, routes, options) as (mover, watcher):
            group = lane.positions_group(GROUP, exactly_once)

            def done() -> bool:
                with Cluster(pair.target) as cluster:
                    found = fetch_offsets(cluster, group)
                return routes[0].target in found and found[routes[0].target].offset >= 200

            until(done, lambda: f"all is copied; {watcher.failures}")
        assert watcher.failures == []
        assert mover.commits >= 5
        assert check_equal(pair, routes) == 200


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
        reader._pending[connection] = source._PendingFetch(node_id=1, deadline=0.0, turns={}, rest_until=0.0)
        theirs.send(b"x")
        reader._drop_timed_out()
        assert reader.connections == [connection]


class Readable:
    """A connection without bytes of its own."""

    buffered = False

    def __init__(self, connected: socket.socket) -> None:
        self.fileno = connected.fileno
