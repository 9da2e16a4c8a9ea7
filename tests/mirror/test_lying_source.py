"""A source whose answers are lies: each is a ClientError or stops a partition; no thread ends with another error."""

from __future__ import annotations

import copy
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import SimpleNamespace
from typing import Any, cast

import pytest

from odradek.clients import cluster, fetching, groups
from odradek.clients.cluster import Cluster, view_from
from odradek.clients.errors import ClientError, UnknownHostError, UnreachableError, only
from odradek.clients.fetching import FetchedRecords
from odradek.clients.wire import Connection
from odradek.mirror import committed, lane, source
from odradek.mirror.committed import batches_of
from odradek.mirror.epochs import Epochs
from odradek.mirror.following import _topic_id_in
from odradek.mirror.leaders import Limits
from odradek.mirror.positions import cut_noted, noted
from odradek.mirror.routes import LaneOptions, Route
from odradek.mirror.source import SourceReader
from odradek.mirror.topic_settings import Setting, largest_message
from odradek.protocol import encode_frame
from odradek.protocol.schemas import api_versions, fetch, list_offsets, metadata
from odradek.protocol.schemas.header import ResponseHeader, decode_request_header
from odradek.storage.batch import CONTROL, Record, RecordBatch, build_batch
from odradek.storage.old_messages import OldMessage
from odradek.testing import Broker
from odradek.topic_partition import TopicPartition
from tests.hostile_records import SETS, flipped
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

    def lie(client: Cluster, places: list[TopicPartition], start: str) -> Limits:
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

        def close(self) -> None:
            closed.append(self)

    closed: list[Forever] = []
    assert fetching.Fetcher is committed.Fetcher
    monkeypatch.setattr(committed, "Fetcher", Forever)
    with pytest.raises(ClientError, match=r"returned no records from offset 1 on for 0\.05 s"):
        list(committed.read(cast(Cluster, SimpleNamespace(timeout_s=0.05)), PLACE, 0, 100))
    assert len(closed) == 1


# -- bytes that are no responses -----------------------------------------------------------------------------------------


@contextmanager
def lying_broker(*answers: Callable[[int], bytes]) -> Iterator[Connection]:
    """A connection to a program that answers ApiVersions, and then each request with bytes, from its correlation id."""

    def serve() -> None:
        with suppress(OSError), server.accept()[0] as connected, connected.makefile("rb") as stream:
            for answer in (_versions, *answers):
                header, _ = decode_request_header(stream.read(*struct.unpack(">i", stream.read(4))))
                connected.sendall(answer(header.correlation_id))
            stream.read()

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        connection = Connection("127.0.0.1", server.getsockname()[1], 30)
        try:
            yield connection
        finally:
            connection.close()
            thread.join()


def _versions(correlation_id: int) -> bytes:
    apis = (api_versions, fetch, list_offsets, metadata)
    keys = [
        api_versions.Response.ApiVersion(
            api_key=api.API_KEY, min_version=api.SCHEMA.min_version, max_version=api.SCHEMA.max_version
        )
        for api in apis
    ]
    response = api_versions.Response(api_keys=keys)
    return encode_frame(ResponseHeader(correlation_id=correlation_id), 0, response, 4)


def _metadata(correlation_id: int) -> bytes:
    return encode_frame(
        ResponseHeader(correlation_id=correlation_id), 1, metadata.Response(), metadata.SCHEMA.max_version
    )


@pytest.mark.parametrize("size", [-1, -(1 << 31), 0, 3, (256 << 20) + 1, (1 << 31) - 1])
def test_a_response_with_an_impossible_size_closes_the_connection(size: int) -> None:
    with lying_broker(lambda _: struct.pack(">i", size)) as connection:
        with pytest.raises(UnreachableError, match="is not a Kafka broker"):
            connection.ask(metadata.SCHEMA, metadata.Request())
        assert connection.closed


def test_a_response_to_another_request_closes_the_connection() -> None:
    with lying_broker(lambda number: _metadata(number + 1)) as connection:
        with pytest.raises(UnreachableError, match="sent the response to request 3 instead of 2"):
            connection.ask(metadata.SCHEMA, metadata.Request())
        assert connection.closed


def test_two_responses_to_one_request_close_the_connection() -> None:
    with lying_broker(lambda number: 2 * _metadata(number), lambda number: b"") as connection:
        assert connection.ask(metadata.SCHEMA, metadata.Request()).brokers == []
        with pytest.raises(UnreachableError, match="sent the response to request 2 instead of 3"):
            connection.ask(metadata.SCHEMA, metadata.Request())
        assert connection.closed


TAGS = [b"\x01\x00\x7f", b"\x01\x00\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x0f", b"\x02\x00\x00", b"\xff" * 6, b""]


@pytest.mark.parametrize("tags", TAGS)
def test_a_response_header_whose_tagged_fields_are_too_long_closes_the_connection(tags: bytes) -> None:
    def answer(number: int) -> bytes:
        return struct.pack(">ii", 4 + len(tags), number) + tags

    with lying_broker(answer) as connection:
        with pytest.raises(UnreachableError, match="sent a malformed Metadata response"):
            connection.ask(metadata.SCHEMA, metadata.Request())
        assert connection.closed


@pytest.mark.parametrize("host", ["a" * 64, "a..b", ".a", "\xe9" * 64])
def test_any_text_can_be_advertised_as_the_name_of_a_host(host: str) -> None:
    with pytest.raises(UnknownHostError, match="cannot connect to"):
        Connection(host, 9092, 30)


@pytest.mark.parametrize("text", ["\xb2", "9" * 5000, "-1", "", "1e3", "\u0661"], ids=lambda text: ascii(text[:9]))
def test_a_size_limit_may_be_any_text(text: str) -> None:
    assert largest_message({"max.message.bytes": Setting(text, True, False, False)}) is None
    assert largest_message({"max.message.bytes": Setting("1048588", True, False, False)}) == 1048588


# -- records ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SETS)
def test_damaged_batches_of_internal_topics_are_an_error_of_a_client(name: str) -> None:
    for data in flipped(SETS[name]):
        with suppress(ClientError):
            for batch, _ in batches_of(FetchedRecords(PLACE, memoryview(data), [(7, 0)]), 0):
                if batch is not None:
                    batch.records()


@pytest.mark.parametrize("codec", range(1, 8))
def test_a_control_batch_that_cannot_be_decompressed_is_an_error_of_a_client(codec: int) -> None:
    batch = bytes(RecordBatch(0, 0, CONTROL | 0x10 | codec, 0, 0, 0, 7, 0, -1, 1, b"\x01garbage"))
    with pytest.raises(ClientError, match=r"the control batch at offset 0 cannot be read|damaged batch at offset 0"):
        list(batches_of(FetchedRecords(PLACE, memoryview(batch), [(7, 0)]), 0))


def test_a_batch_of_an_internal_topic_with_too_many_records_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(committed, "MOST_RECORDS", 2)
    for count in (2, 3):
        data = build_batch([Record(None, b"v")] * count)
        ((batch, _),) = batches_of(FetchedRecords(PLACE, memoryview(data), []), 0)
        assert batch is not None
        if count == 2:
            assert len(batch.records()) == 2
        else:
            with pytest.raises(ClientError, match="the batch has 3 records; at most 2 are read"):
                batch.records()


@pytest.mark.parametrize(("deltas", "wrong"), [([0, 5], 15), ([1, 1], 11), ([1, 0], 10), ([-1, 0], 9)])
def test_records_outside_of_their_batch_or_not_in_order_are_an_error(deltas: list[int], wrong: int) -> None:
    data = build_batch([Record(None, b"v")] * 2, base_offset=10, offset_deltas=deltas, last_offset_delta=1)
    ((batch, _),) = batches_of(FetchedRecords(PLACE, memoryview(data), []), 0)
    assert batch is not None
    with pytest.raises(ClientError, match=f"the batch of the offsets 10 to 11 has a record at offset {wrong} after"):
        batch.records()


def lie_in_fetch(monkeypatch: pytest.MonkeyPatch, lie: Callable[[Any], None]) -> None:
    """Change the Fetch responses that a lane receives."""
    receive = source.Connection.receive

    def lied(self: Connection, *args: Any, **options: Any) -> Any:
        response = receive(self, *args, **options)
        if self.streams and isinstance(response, fetch.Response):
            lie(response)
        return response

    monkeypatch.setattr(source.Connection, "receive", lied)


def test_a_source_that_returns_the_same_batch_for_ever_stops_the_partition(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = pair.topic(2)
    routes = routes_of(pair.source, [topic])
    write(producer(pair.source), topic, 2, range(20))
    batch = build_batch([Record(None, b"first", 1)], base_offset=0, partition_leader_epoch=0)

    def lie(response: Any) -> None:
        for part in (part for answer in response.responses for part in answer.partitions):
            if part.partition_index == 0 and part.records:
                part.records = memoryview(bytearray(batch))

    lie_in_fetch(monkeypatch, lie)
    watcher = Watcher()
    with running(pair.source, pair.target, routes, LaneOptions(fetch_wait_ms=50), watcher):
        watcher.wait(lambda: routes[0].target in watcher.stops, "the partition stops")
        wait_until_moved(watcher, pair.source, pair.target, routes[1:])
    assert watcher.stops[routes[0].target] == (
        f"the source returns only records of {topic}-0 before offset 1, from which it is read"
    )
    assert [record.value for record in records_of(pair.target, routes[0].target)] == [b"first"]
    assert records_of(pair.target, routes[1].target) == records_of(pair.source, routes[1].source)


def test_partitions_that_were_not_requested_are_ignored(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = pair.topic(3)
    routes = routes_of(pair.source, [topic])
    write(producer(pair.source), topic, 3, range(60))

    def lie(response: Any) -> None:
        for answer in list(response.responses):
            other = copy.copy(answer)
            other.topic, other.topic_id = "other", b"x" * 16
            response.responses.append(other)
            for index in (2, 99, -1):  # the lane does not read these
                part = copy.copy(answer.partitions[0])
                part.partition_index = index
                answer.partitions.append(part)

    lie_in_fetch(monkeypatch, lie)
    watcher = Watcher()
    with running(pair.source, pair.target, routes[:2], LaneOptions(fetch_wait_ms=50), watcher):
        wait_until_moved(watcher, pair.source, pair.target, routes[:2])
    for route in routes[:2]:
        assert records_of(pair.target, route.target) == records_of(pair.source, route.source)
    assert records_of(pair.target, routes[2].target) == [] and not watcher.stops


class EmptyLeader:
    """A leader that answers each Fetch at once. :ivar records: of the next answer."""

    address, buffered, streams, most_response_bytes = "a:1", False, False, 0
    held_bytes = begun_bytes = arrived_bytes = 0

    def __init__(self) -> None:
        self.requests = 0
        self.records: bytes | None = None

    def version_of(self, *_: Any, **__: Any) -> int:
        return 12

    def send(self, *_: Any, **__: Any) -> None:
        self.requests += 1

    def advance(self, _: int) -> bool:
        return True

    def receive(self) -> Any:
        data = None if self.records is None else memoryview(self.records)
        part = fetch.Response.PartitionData(partition_index=0, high_watermark=99, last_stable_offset=99, records=data)
        return fetch.Response(responses=[fetch.Response.FetchableTopicResponse(topic="t", partitions=[part])])

    def release(self, _: int) -> None:
        """There is no memory."""


def test_a_leader_that_does_not_wait_for_records_is_not_asked_at_once_again(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(source.time, "monotonic", lambda: now[0])
    leader = EmptyLeader()
    reader = SourceReader(
        cast(Cluster, SimpleNamespace(broker=lambda _: leader)),
        LaneOptions(fetch_wait_ms=500),
        cast(Any, None),
        cast(Any, None),
        lambda *_: None,
        lambda _: None,
    )
    reader.follow(Route(PLACE, ("a.t", 0)), 0, Epochs())
    reader._leaders.look_at, reader._leaders.led = None, {1: [PLACE]}

    def poll() -> int:
        list(reader.poll(reader.connections))
        return leader.requests

    assert [poll(), poll(), poll()] == [1, 1, 1]
    assert reader.due_s() == 0.5 and not reader.connections
    now[0] += 0.5
    assert poll() == 2
    now[0] += 0.5
    assert poll() == 3, "a leader that waited is asked at once"
    leader.records = build_batch([Record(None, b"v")], base_offset=0)
    assert poll() == 4, "a leader with records is asked at once"
