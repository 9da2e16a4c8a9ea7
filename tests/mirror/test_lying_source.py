"""A source whose answers are lies: each is a ClientError or stops a partition; no thread ends with another error."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from odradek.clients import cluster, fetching, groups
from odradek.clients.cluster import Cluster, view_from
from odradek.clients.errors import ClientError, only
from odradek.clients.fetching import FetchedRecords
from odradek.mirror import committed, lane
from odradek.mirror.committed import batches_of
from odradek.mirror.following import _topic_id_in
from odradek.mirror.leaders import Limits
from odradek.mirror.positions import cut_noted, noted
from odradek.mirror.routes import LaneOptions, Place
from odradek.storage.batch import Record, build_batch
from odradek.storage.old_messages import OldMessage
from odradek.testing import Broker
from tests.mirror.lanes import Watcher, records_of, routes_of, running, wait_until_moved
from tests.mirror.test_lane import Pair, producer, write

PLACE = ("t", 0)


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with Broker() as source, Broker() as target:
        yield Pair(source, target)


@pytest.mark.parametrize("results", [[], [1, 2]])
def test_one_result_is_required(results: Sequence[int]) -> None:
    with pytest.raises(ClientError, match=f"topic 't': the broker returned {len(results)} results instead of 1"):
        only(results, "topic 't'")


@pytest.mark.parametrize("found", [0, 2])
def test_a_broker_that_names_no_coordinator_or_several_is_refused(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, found: int
) -> None:
    ask = cluster.Cluster.ask

    def lie(self: Cluster, api: Any, request: Any, **options: Any) -> Any:
        answer = ask(self, api, request, **options)
        if api.name == "FindCoordinator":
            answer.coordinators = answer.coordinators * found
        return answer

    monkeypatch.setattr(cluster.Cluster, "ask", lie)
    with (
        Cluster(pair.source) as client,
        pytest.raises(ClientError, match=f"of 'g': the broker returned {found} results"),
    ):
        groups.fetch_offsets(client, "g")


def test_a_broker_that_returns_no_group_is_refused(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    ask = cluster.Cluster.ask_coordinator

    def lie(self: Cluster, name: str, api: Any, request: Any, errors: Any, **options: Any) -> Any:
        empty = SimpleNamespace(groups=[])
        errors(empty)
        return empty

    monkeypatch.setattr(cluster.Cluster, "ask_coordinator", lie)
    with Cluster(pair.source) as client:
        for call in (groups.describe, groups.fetch_offsets):
            with pytest.raises(ClientError, match="group 'g': the broker returned 0 results instead of 1"):
                call(client, "g")
    assert ask is not lie


def test_topics_without_a_name_are_ignored() -> None:
    topic = SimpleNamespace(name=None, error_code=0, topic_id=bytes(16), is_internal=False, partitions=[])
    named = SimpleNamespace(name="t", error_code=0, topic_id=bytes(16), is_internal=False, partitions=[])
    response = SimpleNamespace(cluster_id=None, controller_id=0, brokers=[], topics=[topic, named])
    assert list(view_from(response).topics) == ["t"]


@pytest.mark.parametrize(
    "metadata", ["[" * 100_000, "{" * 10, "7", "null", '{"truncated":true}', '{"truncated":-1}', "\x00"]
)
def test_metadata_of_positions_may_be_anything(metadata: str) -> None:
    assert _topic_id_in(metadata) is None
    assert isinstance(noted(metadata), dict) and cut_noted(metadata, 10) is None


def test_a_negative_start_stops_the_partition(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = pair.topic(2)
    routes = routes_of(pair.source, [topic])
    write(producer(pair.source), topic, 2, range(20))
    limits = lane.limits

    def lie(client: Cluster, places: list[Place], start: str) -> Limits:
        found = limits(client, places, start)
        return Limits(
            {place: -7 if place == routes[0].source else offset for place, offset in found.offsets.items()}, {}
        )

    monkeypatch.setattr(lane, "limits", lie)
    watcher = Watcher()
    with running(pair.source, pair.target, routes, LaneOptions(fetch_wait_ms=50), watcher):
        wait_until_moved(watcher, pair.source, pair.target, routes[1:])
        watcher.wait(lambda: routes[0].target in watcher.stops, "the partition stops")
    assert watcher.stops[routes[0].target] == f"the source gives no earliest offset of {topic}-0: it states -7"
    assert records_of(pair.target, routes[0].target) == []


def test_a_compressed_message_without_messages_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    outer = OldMessage(5, 1, 0, 5, None, b"x").encoded()
    monkeypatch.setattr(OldMessage, "opened", lambda *_: [])
    with pytest.raises(ClientError, match="a compressed message at offset 5 without messages"):
        list(batches_of(FetchedRecords(PLACE, memoryview(outer), []), 0))


def test_a_leader_that_sends_the_same_batch_for_ever_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = build_batch([Record(None, b"v", 1, (), 0)], base_offset=0, codec=0, producer_id=-1, attributes=0)

    class Forever:
        def __init__(self, *_: Any) -> None:
            self.polls = 0

        def poll(self, _: float) -> Iterator[FetchedRecords]:
            self.polls += 1
            assert self.polls < 100_000, "it is never given up"
            yield FetchedRecords(PLACE, memoryview(batch), [])

        def advance(self, *_: Any) -> None:
            pass

    assert fetching.Fetcher is committed.Fetcher
    monkeypatch.setattr(committed, "Fetcher", Forever)
    with pytest.raises(ClientError, match=r"returned no records from offset 1 on for 0\.05 s"):
        list(committed.read(cast(Cluster, SimpleNamespace(timeout_s=0.05)), PLACE, 0, 100))
