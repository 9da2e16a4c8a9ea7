"""The native OffsetCommit compared with schema, handler and batch builder in Python: equal decisions, records and responses."""

import asyncio
import random
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odradek._ext.api.offset_commits import in_steps, join, partition_for, read
from odradek._ext.records.batch_builder import BatchBuilder
from odradek._ext.shm.topics import TopicDirectory
from odradek.api.groups import offset_commit as api
from odradek.api.groups.group_call import GroupCall
from odradek.api.permits import unrestricted
from odradek.api.pipeline import frame_response
from odradek.api.table import BY_KEY
from odradek.groups.offsets import CommittedOffset, Offsets, offset_record
from odradek.groups.settings import GroupSettings
from odradek.net.forward_frames import ForwardContext
from odradek.protocol import ProtocolError, decode, encode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import offset_commit
from odradek.protocol.schemas.header import RequestHeader, decode_request_header, request_header_version
from odradek.storage import compression
from odradek.storage.batch import Record, build_batch, read_batch
from tests.groups.handling import handled
from tests.groups.test_migration import GroupsUnderTest
from tests.protocol.lies import CORRELATION_END, with_lies
from tests.protocol.messages import RANGES
from tests.shm.one_broker import OneBroker

ASKER = ForwardContext(7, 0, "[::1]:4711", "caf\u00e9")
NOW_MS = 1_700_000_000_000
LONGEST_NOTE = 12
NATIVE = range(1, 11)
IDS = {"orders": b"o" * 16, "returns": b"r" * 16}
Request = offset_commit.Request
Topic, Partition = Request.OffsetCommitRequestTopic, Request.OffsetCommitRequestPartition


@pytest.fixture(scope="module")
def topics(tmp_path_factory):
    """Two topics, of three partitions and of one."""
    with OneBroker(tmp_path_factory.mktemp("data")) as made:
        for partition in range(3):
            made.create("orders", partition, topic_id=IDS["orders"])
        made.create("returns", topic_id=IDS["returns"])
        directory = TopicDirectory()
        directory.refresh()
        yield directory


class Recorder:
    """Groups that record requests. :param outcome: the result of every commit."""

    shards = SimpleNamespace(settings=GroupSettings(offset_metadata_max_bytes=LONGEST_NOTE))

    def __init__(self, outcome):
        self.outcome = outcome
        self.commits = []

    def wall_ms(self):
        return NOW_MS

    def commit(self, commit, then, client):
        self.commits.append(commit)
        then(self.outcome)


def view_of(topics, outcome=ErrorCode.NONE):
    return SimpleNamespace(
        groups=Recorder(outcome), topics=topics, tree=None, limits={8: 1000}, permits_of=unrestricted
    )


def frame_of(request, version, client="\u00e9"):
    header = RequestHeader(request_api_key=8, request_api_version=version, correlation_id=-7, client_id=client)
    return encode(header, request_header_version(8, version)) + encode(request, version)


def reference(frame, view):
    """Commit and response by the schema and the handler."""
    header, body = decode_request_header(frame)
    version = header.request_api_version
    message, _ = decode(Request, version, frame, body)
    call = GroupCall(version, "c", "h", "p", view, lambda: None)
    response = asyncio.run(handled(api.handle, message, call))
    return view.groups.commits[0], frame_response(BY_KEY[8], version, header.correlation_id, response)


def natively(frame, view):
    answers = []
    assert api.at_once(SimpleNamespace(payload=frame, answer=answers.append, context=ASKER), view)
    return view.groups.commits[0], *answers


def check_same(frame, topics, outcome):
    by_hand, answer = natively(frame, view_of(topics, outcome))
    expected, expected_answer = reference(frame, view_of(topics, outcome))
    assert answer == expected_answer
    for name in ("group_id", "member_id", "generation_id", "instance_id", "knows_epochs"):
        assert getattr(by_hand, name) == getattr(expected, name)
    native = by_hand
    placed = native.items()
    assert dict(placed) == expected.offsets
    assert len(native) == len(placed)
    records = [offset_record(by_hand.group_id, *place, committed) for place, committed in placed]
    assert list(native) == records
    stored, expected_stored = Offsets(), Offsets()
    stored.put_all(native)
    for (topic, partition), committed in expected.offsets.items():
        expected_stored.put(topic, partition, committed)
    assert list(stored) == list(expected_stored)
    builder = BatchBuilder()
    assert join([(native, None)], builder, 1, 1, NOW_MS) == 1
    assert native.size + 61 >= builder.size - 10 * len(native)
    batch = builder.finish()
    assert batch == build_batch([Record(key, value, NOW_MS) for key, value in records])
    for long in (native, expected):
        builder = BatchBuilder()
        for _ in in_steps(long, builder, NOW_MS, 1 << 30, 1):
            pass
        assert builder.finish() == batch


def check_same_answer(frame, topics):
    """Like `check_same`, for requests that name a partition twice: the last one counts."""
    by_hand, answer = natively(frame, view_of(topics))
    expected, expected_answer = reference(frame, view_of(topics))
    assert answer == expected_answer
    assert dict(by_hand.items()) == expected.offsets


def number(kind):
    return st.integers(*RANGES[kind])


TEXT = st.text(max_size=LONGEST_NOTE + 3)
PARTITIONS = st.builds(
    Partition,
    partition_index=st.integers(-1, 4) | number("int32"),
    committed_offset=number("int64"),
    committed_leader_epoch=number("int32"),
    commit_timestamp=st.just(-1) | number("int64"),
    committed_metadata=st.none() | TEXT,
)
TOPICS = st.builds(
    Topic,
    name=st.sampled_from([*IDS, "gone"]) | TEXT,
    topic_id=st.sampled_from([*IDS.values(), bytes(16)]) | st.binary(min_size=16, max_size=16),
    partitions=st.lists(PARTITIONS, max_size=4, unique_by=lambda partition: partition.partition_index),
)
REQUESTS = st.builds(
    Request,
    group_id=TEXT,
    generation_id_or_member_epoch=number("int32"),
    member_id=TEXT,
    group_instance_id=st.none() | TEXT,
    retention_time_ms=st.sampled_from([-1, 0, 60_000, (1 << 63) - 1]),
    topics=st.lists(TOPICS, max_size=4, unique_by=(lambda topic: topic.name, lambda topic: bytes(topic.topic_id))),
)


@pytest.mark.parametrize("version", NATIVE)
@settings(max_examples=40)
@given(
    request=REQUESTS, outcome=st.sampled_from([ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]), client=st.none() | TEXT
)
def test_every_version_is_checked_stored_and_answered_like_the_schema(topics, version, request, outcome, client):
    if version < 7:
        request.group_instance_id = None
    for partition in (partition for topic in request.topics for partition in topic.partitions if version != 1):
        partition.commit_timestamp = -1
    check_same(frame_of(request, version, client), topics, outcome)


def full_request():
    part = Partition(partition_index=2, committed_offset=5, committed_leader_epoch=3, committed_metadata="n\u00f6te")
    return Request(
        group_id="g\u00fc",
        generation_id_or_member_epoch=4,
        member_id="m",
        topics=[Topic(name="orders", topic_id=IDS["orders"], partitions=[part])],
    )


def test_a_late_native_commit_gets_an_error_and_is_valid_after_its_append(topics):
    coordinator = GroupsUnderTest()
    coordinator.log.held = True
    request = full_request()
    request.generation_id_or_member_epoch, request.member_id = -1, ""
    commit, answers = read(frame_of(request, 9), topics, LONGEST_NOTE, NOW_MS), []
    coordinator.groups.commit(commit, lambda outcome: answers.append(commit.response(outcome)))
    coordinator.log.dawdle()
    assert answers == [commit.response(ErrorCode.COORDINATOR_NOT_AVAILABLE)]
    assert coordinator.groups.fetch("g\u00fc")[1].get("orders", 2) is None
    coordinator.log.acknowledge()
    assert len(answers) == 1
    assert coordinator.groups.fetch("g\u00fc")[1].get("orders", 2).offset == 5


@pytest.mark.parametrize("version", NATIVE)
def test_a_request_that_ends_early_is_left_to_the_schema(topics, version):
    frame = frame_of(full_request(), version)
    assert read(frame, topics, LONGEST_NOTE, NOW_MS) is not None
    for end in range(len(frame)):
        assert read(frame[:end], topics, LONGEST_NOTE, NOW_MS) is None


@pytest.mark.parametrize("version", NATIVE)
@settings(max_examples=100)
@given(data=st.data())
def test_hostile_bytes_are_parsed_like_the_schema_or_left_to_it(topics, version, data):
    frame = bytearray(frame_of(full_request(), version))
    for _ in range(data.draw(st.integers(1, 3))):
        frame[data.draw(st.integers(2, len(frame) - 1))] = data.draw(st.integers(0, 255))
    spoiled = bytes(frame)
    commit = read(spoiled, topics, LONGEST_NOTE, NOW_MS)
    if commit is not None:
        check_same(spoiled, topics, ErrorCode.NONE)
        return
    header_version = int.from_bytes(spoiled[2:4], "big", signed=True)
    if header_version in NATIVE:
        with pytest.raises(ProtocolError):
            header, body = decode_request_header(spoiled)
            decode(Request, header.request_api_version, spoiled, body)


@pytest.mark.parametrize("version", NATIVE)
@settings(max_examples=8)
@given(request=REQUESTS, seed=st.integers(0, 1 << 32))
def test_lies_in_every_place_are_left_to_the_schema_or_read_as_by_it(topics, version, request, seed):
    if version < 7:
        request.group_instance_id = None
    for partition in (partition for topic in request.topics for partition in topic.partitions if version != 1):
        partition.commit_timestamp = -1
    for bad in with_lies(random.Random(seed), frame_of(request, version), CORRELATION_END):
        if read(bad, topics, LONGEST_NOTE, NOW_MS) is not None:
            check_same_answer(bad, topics)
        else:
            with pytest.raises(ProtocolError):
                reference(bad, view_of(topics))


@pytest.mark.parametrize("version", NATIVE)
def test_unknown_tagged_fields_are_skipped(topics, version):
    if version < 8:
        return
    frame = frame_of(full_request(), version)
    assert frame.endswith(b"\0\0\0")  # of the partition, the topic, the request
    check_same(frame[:-3] + b"\1\7\2ab" * 3, topics, ErrorCode.NONE)


def test_version_0_and_other_apis_are_left_to_their_handlers(topics):
    frame = frame_of(full_request(), 0)
    assert read(frame, topics, LONGEST_NOTE, NOW_MS) is None
    frame = frame_of(full_request(), 9)
    assert read(b"\0\x09" + frame[2:], topics, LONGEST_NOTE, NOW_MS) is None
    assert read(frame[:2] + b"\0\x0b" + frame[4:], topics, LONGEST_NOTE, NOW_MS) is None


RECORDS = st.builds(
    Record,
    key=st.none() | st.binary(max_size=80),
    value=st.none() | st.binary(max_size=200),
    timestamp=st.integers(NOW_MS - 10**6, NOW_MS + 10**6),
)


@given(st.lists(RECORDS, min_size=1, max_size=200))
def test_batches_are_those_of_the_builder_in_python(content):
    builder = BatchBuilder()
    for record in content:
        builder.add(record.key, record.value, record.timestamp)
    size = builder.size
    batch = builder.finish()
    assert (batch, size, builder.count) == (build_batch(content), len(batch), len(content))


@pytest.mark.parametrize("codec", range(5))
def test_batches_are_compressed_as_by_the_builder_in_python(codec):
    content = [Record(b"key", bytes(300), NOW_MS) for _ in range(20)]
    builder = BatchBuilder()
    for record in content:
        builder.add(record.key, record.value, record.timestamp)
    batch, _ = read_batch(builder.finish(codec, compression.compress))
    assert batch.codec == codec
    assert [(record.key, record.value) for record in batch.records()] == [
        (record.key, record.value) for record in content
    ]


def java_hash(text):
    """Java's String.hashCode."""
    units = text.encode("utf-16-be", "surrogatepass")
    total = 0
    for at in range(0, len(units), 2):
        total = (31 * total + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return total - (1 << 32) if total >= 1 << 31 else total


@given(st.text(), st.integers(1, 10_000))
def test_the_partition_of_a_group_equals_javas(group_id, partitions):
    hashed = java_hash(group_id)
    assert partition_for(group_id, partitions) == (0 if hashed == -(1 << 31) else abs(hashed) % partitions)


def test_the_least_of_hashes_has_no_opposite():
    assert java_hash("polygenelubricants") == -(1 << 31)
    assert partition_for("polygenelubricants", 50) == 0


def test_committed_offsets_are_equal_by_value():
    committed = CommittedOffset(5, 1, "m", 7)
    assert committed == CommittedOffset(5, 1, "m", 7, -1)
    assert hash(committed) == hash(CommittedOffset(5, 1, "m", 7, -1))
    assert committed != CommittedOffset(5, 1, "m", 8)
    assert committed != (5, 1, "m", 7, -1)
    assert repr(committed) == "CommittedOffset(5, 1, 'm', 7, -1)"
