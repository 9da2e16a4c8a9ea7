"""TxnOffsetCommit and OffsetFetch of stable offsets, natively and by the schema, over groups with simulated transactions."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek._ext.api.offset_commits import read_transactional
from odradek._ext.shm.topics import TopicDirectory
from odradek.api.groups import offset_fetch as fetch_api
from odradek.api.groups import txn_offset_commit as api
from odradek.api.groups.group_call import GroupCall, NoTransactions, always_confirmed
from odradek.api.permits import unrestricted
from odradek.api.pipeline import frame_response
from odradek.api.table import BY_KEY
from odradek.api.transactions.transaction_call import NewestConnections
from odradek.groups.offsets import offset_record
from odradek.groups.settings import GroupSettings
from odradek.net.forward_frames import ForwardContext
from odradek.protocol import ProtocolError, decode, encode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import offset_fetch, txn_offset_commit
from odradek.protocol.schemas.header import RequestHeader, decode_request_header, request_header_version
from tests.groups.handling import handled
from tests.groups.test_transactional_offsets import Bench
from tests.protocol.lies import CORRELATION_END, with_lies
from tests.protocol.messages import RANGES
from tests.shm.one_broker import OneBroker

KEY = 28
VERSIONS = range(6)
NOW_MS = 1_700_000_000_000
LONGEST = 12
NONE = ErrorCode.NONE
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
TOO_LARGE = ErrorCode.OFFSET_METADATA_TOO_LARGE
ASKER = ForwardContext(7, 0, "[::1]:4711", "c")
Request = txn_offset_commit.Request
Topic, Partition = Request.TxnOffsetCommitRequestTopic, Request.TxnOffsetCommitRequestPartition
IDS = {"orders": b"o" * 16, "returns": b"r" * 16}


@pytest.fixture(scope="module")
def topics(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TopicDirectory]:
    """Two topics, of three partitions and of one."""
    with OneBroker(tmp_path_factory.mktemp("data")) as made:
        for partition in range(3):
            made.create("orders", partition, topic_id=IDS["orders"])
        made.create("returns", topic_id=IDS["returns"])
        directory = TopicDirectory()
        directory.refresh()
        yield directory


class Transactions:
    """Answers every question with `error`, and records the questions."""

    def __init__(self, error: ErrorCode = NONE) -> None:
        self.error = error
        self.questions: list[tuple[Any, ...]] = []

    def add_or_verify(self, *question: Any) -> None:
        *facts, then = question
        self.questions.append(tuple(facts))
        then(self.error)


def frame_of(request: Request, version: int) -> bytes:
    header = RequestHeader(request_api_key=KEY, request_api_version=version, correlation_id=-7, client_id="c")
    return encode(header, request_header_version(KEY, version)) + encode(request, version)


def by_schema(frame: bytes, view: Any) -> bytes:
    header, body = decode_request_header(frame)
    version = header.request_api_version
    message, _ = decode(Request, version, frame, body)
    response = asyncio.run(handled(api.handle, message, GroupCall(version, "c", "h", "p", view, lambda: None)))
    return frame_response(BY_KEY[KEY], version, header.correlation_id, response)


def natively(frame: bytes, view: Any) -> bytes:
    answers: list[bytes] = []
    assert api.at_once(SimpleNamespace(payload=frame, answer=answers.append, context=ASKER), view)
    (answer,) = answers
    return answer


Way = Callable[[bytes, Any], bytes]
both_ways = pytest.mark.parametrize("way", [by_schema, natively])


class Asker:
    """Sends requests to groups through the native code or through the schema."""

    def __init__(self, topics: TopicDirectory, way: Way, error: ErrorCode = NONE) -> None:
        self.bench = Bench()
        self.transactions = Transactions(error)
        self.view = SimpleNamespace(
            permits_of=unrestricted,
            confirm=always_confirmed,
            newest_commits=NewestConnections(),
            groups=self.bench.groups,
            topics=topics,
            limits={KEY: 1000},
            transactions=self.transactions,
        )
        self._way = way

    def commit(self, version: int = 5, places: dict[tuple[str, int], str | None] | None = None, **fields: Any) -> Any:
        """The error codes by place. :param places: with metadata."""
        request = Request(transactional_id="t", group_id="g", producer_id=7, producer_epoch=3, topics=[])
        for name, value in fields.items():
            setattr(request, name, value)
        for (topic, partition), metadata in (places or {("orders", 0): "m"}).items():
            one = Partition(
                partition_index=partition, committed_offset=5, committed_leader_epoch=-1, committed_metadata=metadata
            )
            request.topics.append(Topic(name=topic, partitions=[one]))
        answer = self._way(frame_of(request, version), self.view)
        head = 5 if version >= 3 else 4
        response, end = decode(txn_offset_commit.Response, version, answer, head)
        assert end == len(answer)
        codes = {
            (topic.name, partition.partition_index): ErrorCode(partition.error_code)
            for topic in response.topics
            for partition in topic.partitions
        }
        return codes if places else codes["orders", 0]


@both_ways
@pytest.mark.parametrize("version", VERSIONS)
def test_offsets_are_pending_in_the_transaction_to_which_the_groups_partition_was_added(topics, way, version):
    asker = Asker(topics, way)
    assert asker.commit(version) is NONE
    assert asker.transactions.questions == [("t", 7, 3, 0, version < 5)]
    assert asker.bench.pending() == {(("orders", 0), 7): (5, False)}
    asker.bench.end(7, commits=True)
    assert asker.bench.offsets() == {("orders", 0): 5}


@both_ways
def test_partitions_are_checked_before_the_transaction_and_the_group_before_metadata(topics, way):
    asker = Asker(topics, way)
    places = {("orders", 0): "m", ("orders", 3): "m", ("gone", 0): "m", ("orders", 1): "x" * 5000, ("orders", 2): None}
    codes = dict.fromkeys(places, NONE) | {("orders", 3): UNKNOWN, ("gone", 0): UNKNOWN, ("orders", 1): TOO_LARGE}
    assert asker.commit(places=places) == codes
    assert set(asker.bench.pending()) == {(("orders", 0), 7), (("orders", 2), 7)}
    fenced = ErrorCode.ILLEGAL_GENERATION
    assert asker.commit(places=places, group_id="h", generation_id=0) == dict.fromkeys(places, fenced) | {
        ("orders", 3): UNKNOWN, ("gone", 0): UNKNOWN
    }  # fmt: skip
    asked = len(asker.transactions.questions)
    assert asker.commit(places={("orders", 3): "m", ("gone", 0): "m"}) == {("orders", 3): UNKNOWN, ("gone", 0): UNKNOWN}
    assert asker.commit(places={("orders", 0): "m"}, group_id="") == {("orders", 0): ErrorCode.INVALID_GROUP_ID}
    assert len(asker.transactions.questions) == asked
    assert asker.commit(places={("orders", 1): "x" * 5000}) == {("orders", 1): TOO_LARGE}
    assert len(asker.transactions.questions) == asked + 1


@both_ways
@pytest.mark.parametrize(
    ("of_coordinator", "of_client", "below"),
    [
        ("PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", None),
        ("INVALID_PRODUCER_ID_MAPPING", "INVALID_PRODUCER_ID_MAPPING", None),
        ("CONCURRENT_TRANSACTIONS", "CONCURRENT_TRANSACTIONS", None),
        ("INVALID_TXN_STATE", "INVALID_TXN_STATE", None),
        ("TRANSACTION_ABORTABLE", "TRANSACTION_ABORTABLE", (4, "INVALID_TXN_STATE")),
        ("NETWORK_EXCEPTION", "COORDINATOR_LOAD_IN_PROGRESS", (2, "COORDINATOR_NOT_AVAILABLE")),
        ("COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_LOAD_IN_PROGRESS", (2, "COORDINATOR_NOT_AVAILABLE")),
        ("NOT_ENOUGH_REPLICAS", "COORDINATOR_NOT_AVAILABLE", None),
        ("REQUEST_TIMED_OUT", "COORDINATOR_NOT_AVAILABLE", None),
        ("UNKNOWN_TOPIC_OR_PARTITION", "COORDINATOR_NOT_AVAILABLE", None),
        ("NOT_LEADER_OR_FOLLOWER", "NOT_COORDINATOR", None),
        ("KAFKA_STORAGE_ERROR", "NOT_COORDINATOR", None),
    ],
)
def test_errors_of_the_transaction_coordinator_are_those_that_the_version_knows(
    topics, way, of_coordinator, of_client, below
):
    asker = Asker(topics, way, ErrorCode[of_coordinator])
    for version in VERSIONS:
        expected = below[1] if below and version < below[0] else of_client
        assert asker.commit(version) is ErrorCode[expected]
    assert asker.bench.log.batches == []


@both_ways
def test_errors_of_the_group(topics, way):
    asker = Asker(topics, way)
    assert asker.commit(generation_id=3, member_id="m") is ErrorCode.ILLEGAL_GENERATION
    assert asker.commit(producer_id=-1) is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    asker.bench.groups.shards.begin(0, asker.bench.log)
    for version in VERSIONS:
        loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if version >= 2 else ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert asker.commit(version) is loading
    asker.bench.groups.shards.resign(0)
    assert asker.commit() is ErrorCode.NOT_COORDINATOR


def test_without_transaction_coordinator_clients_try_again():
    told: list[ErrorCode] = []
    NoTransactions().add_or_verify("t", 7, 3, 0, False, told.append)
    assert told == [ErrorCode.COORDINATOR_NOT_AVAILABLE]


# -- natively as by the schema ------------------------------------------------------------------------------------------


class Recorder:
    """Groups that record requests. :param outcome: the result of every commit."""

    def __init__(self, outcome: ErrorCode) -> None:
        self.shards = SimpleNamespace(
            settings=GroupSettings(offset_metadata_max_bytes=LONGEST), partition_of=lambda group_id: len(group_id)
        )
        self.outcome = outcome
        self.commits: list[tuple[Any, ...]] = []

    def wall_ms(self) -> int:
        return NOW_MS

    def commit_in_transaction(
        self, commit: Any, producer_id: int, producer_epoch: int, confirm: Any, then: Any, client: str = ""
    ) -> None:
        records = [offset_record(commit.group_id, *place, committed) for place, committed in commit.items()]
        assert list(commit) == records
        identity = commit.group_id, commit.member_id, commit.generation_id, commit.instance_id
        self.commits.append((*identity, producer_id, producer_epoch, dict(commit.items())))
        confirm(lambda error: then(error or self.outcome))


def outcome_of(way: Way, frame: bytes, topics: TopicDirectory, outcome: ErrorCode) -> tuple[Any, ...]:
    groups, transactions = Recorder(outcome), Transactions()
    view = SimpleNamespace(
        permits_of=unrestricted,
        groups=groups,
        topics=topics,
        limits={KEY: 1000},
        transactions=transactions,
        newest_commits=NewestConnections(),
    )
    return way(frame, view), groups.commits, transactions.questions


def number(kind: str) -> st.SearchStrategy[int]:
    return st.integers(*RANGES[kind])


TEXT = st.text(max_size=LONGEST + 3)
PARTITIONS = st.builds(
    Partition,
    partition_index=st.integers(-1, 4) | number("int32"),
    committed_offset=number("int64"),
    committed_leader_epoch=number("int32"),
    committed_metadata=st.none() | TEXT,
)
TOPICS = st.builds(
    Topic,
    name=st.sampled_from([*IDS, "gone"]) | TEXT,
    partitions=st.lists(PARTITIONS, max_size=4, unique_by=lambda partition: partition.partition_index),
)
REQUESTS = st.builds(
    Request,
    transactional_id=TEXT,
    group_id=TEXT,
    producer_id=number("int64"),
    producer_epoch=number("int16"),
    generation_id=number("int32"),
    member_id=TEXT,
    group_instance_id=st.none() | TEXT,
    topics=st.lists(TOPICS, max_size=4, unique_by=lambda topic: topic.name),
)


def for_version(request: Request, version: int) -> Request:
    """Without the fields that the version lacks."""
    if version < 3:
        request.generation_id, request.member_id, request.group_instance_id = -1, "", None
    return request


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=40)
@given(request=REQUESTS, outcome=st.sampled_from([NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.TRANSACTION_ABORTABLE]))
def test_every_version_is_read_and_answered_as_by_the_schema(topics, version, request, outcome):
    frame = frame_of(for_version(request, version), version)
    assert outcome_of(natively, frame, topics, outcome) == outcome_of(by_schema, frame, topics, outcome)


def full_request() -> Request:
    part = Partition(partition_index=2, committed_offset=5, committed_leader_epoch=3, committed_metadata="n\u00f6te")
    return Request(
        transactional_id="t\u00fc",
        group_id="g",
        producer_id=7,
        producer_epoch=3,
        generation_id=4,
        member_id="m",
        topics=[Topic(name="orders", partitions=[part])],
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_a_request_that_ends_early_is_left_to_the_schema(topics, version):
    frame = frame_of(for_version(full_request(), version), version)
    assert read_transactional(frame, topics, LONGEST, NOW_MS) is not None
    for end in range(len(frame)):
        assert read_transactional(frame[:end], topics, LONGEST, NOW_MS) is None


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=8)
@given(request=REQUESTS, seed=st.integers(0, 1 << 32))
def test_lies_in_every_place_are_left_to_the_schema_or_read_as_by_it(topics, version, request, seed):
    for bad in with_lies(random.Random(seed), frame_of(for_version(request, version), version), CORRELATION_END):
        if read_transactional(bad, topics, LONGEST, NOW_MS) is not None:
            by_hand, expected = (outcome_of(way, bad, topics, NONE) for way in (natively, by_schema))
            assert by_hand[0] == expected[0]
        else:
            with pytest.raises(ProtocolError):
                outcome_of(by_schema, bad, topics, NONE)


def test_other_apis_are_left_to_their_handlers(topics):
    frame = frame_of(full_request(), 3)
    assert read_transactional(b"\0\x08" + frame[2:], topics, LONGEST, NOW_MS) is None
    assert read_transactional(frame[:2] + b"\0\x06" + frame[4:], topics, LONGEST, NOW_MS) is None


# -- OffsetFetch --------------------------------------------------------------------------------------------------------


def fetched(asker: Asker, version: int, stable: bool, everything: bool = False) -> dict[int, tuple[int, int, str, int]]:
    """Offset, leader epoch, metadata and error by partition of "orders"."""
    request = offset_fetch.Request(require_stable=stable)
    partitions = [0, 1, 2]
    if version < 8:
        topic = offset_fetch.Request.OffsetFetchRequestTopic(name="orders", partition_indexes=partitions)
        request.group_id, request.topics = "g", None if everything else [topic]
    else:
        topic = offset_fetch.Request.OffsetFetchRequestTopics(
            name="orders", topic_id=IDS["orders"], partition_indexes=partitions
        )
        request.groups = [
            offset_fetch.Request.OffsetFetchRequestGroup(group_id="g", topics=None if everything else [topic])
        ]
    response = asyncio.run(
        handled(fetch_api.handle, request, GroupCall(version, "c", "h", "p", asker.view, lambda: None))
    )
    encode(response, version)
    where = response if version < 8 else response.groups[0]
    assert where.error_code == 0
    return {
        row.partition_index: (row.committed_offset, row.committed_leader_epoch, row.metadata, row.error_code)
        for topic in where.topics
        for row in topic.partitions
    }


@pytest.mark.parametrize("version", range(7, 11))
def test_a_client_that_requires_stable_offsets_receives_none_that_a_transaction_may_change(topics, version):
    asker = Asker(topics, natively)
    asker.bench.commit({("orders", 0): 1, ("orders", 2): 3})
    assert asker.commit() is NONE
    nothing, unstable = (-1, -1, "", 0), (-1, -1, "", int(ErrorCode.UNSTABLE_OFFSET_COMMIT))
    before, after = (1, -1, "", 0), (5, -1, "m", 0)
    assert fetched(asker, version, stable=False) == {0: before, 1: nothing, 2: (3, -1, "", 0)}
    assert fetched(asker, version, stable=True) == {0: unstable, 1: nothing, 2: (3, -1, "", 0)}
    assert fetched(asker, version, stable=True, everything=True) == {0: unstable, 2: (3, -1, "", 0)}
    asker.bench.end(7, commits=True)
    assert fetched(asker, version, stable=True) == {0: after, 1: nothing, 2: (3, -1, "", 0)}


@pytest.mark.parametrize("version", range(1, 7))
def test_older_clients_receive_the_last_committed_offset(topics, version):
    asker = Asker(topics, natively)
    asker.bench.commit({("orders", 0): 1})
    assert asker.commit() is NONE
    assert fetched(asker, version, stable=False)[0] == (1, -1, "", 0)
