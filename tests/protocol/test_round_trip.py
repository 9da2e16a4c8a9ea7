"""Every message survives encoding and decoding in every version; values that a version lacks are dropped or refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from odradek.protocol import ProtocolError, decode, encode, encode_frame
from odradek.protocol.schemas import fetch, header, metadata, produce
from tests.protocol.messages import cases, message_classes, values

FEW = settings(max_examples=8, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("cls", message_classes(), ids=lambda cls: cls.__name__)
def test_every_version_of_a_message_survives_encoding_and_decoding(cls: Any) -> None:
    for case in cases(cls):

        @FEW
        @given(values(case), st.just(case.version))
        def comes_back(message: Any, version: int) -> None:
            data = encode(message, version)
            assert decode(cls, version, b"***" + data + b"rest", 3) == (message, 3 + len(data))

        comes_back()


@pytest.mark.parametrize("cls", message_classes(), ids=lambda cls: cls.__name__)
def test_the_defaults_of_a_message_are_encodable_in_every_version_that_allows_them(cls: Any) -> None:
    for case in cases(cls):
        try:
            data = encode(cls(), case.version)
        except ProtocolError as error:
            assert error.reason == "null is not allowed"
            assert error.field is not None
        else:
            assert decode(cls, case.version, data) == (cls(), len(data))


def test_unknown_tagged_fields_are_skipped() -> None:
    request = metadata.Request(topics=None)
    data = encode(request, 12)
    assert data[-1] == 0
    with_unknown = data[:-1] + b"\x02" + b"\x63\x03abc" + b"\xff\x01\x00"
    assert decode(metadata.Request, 12, with_unknown) == (request, len(with_unknown))


def test_tagged_fields_are_written_in_the_order_of_their_tags_and_only_when_set() -> None:
    partition = fetch.Response.PartitionData
    plain = encode(fetch.Response(responses=[fetch.Response.FetchableTopicResponse(partitions=[partition()])]), 12)
    current = partition(
        snapshot_id=fetch.Response.SnapshotId(end_offset=7, epoch=2),
        diverging_epoch=fetch.Response.EpochEndOffset(epoch=1, end_offset=5),
    )
    tagged = encode(fetch.Response(responses=[fetch.Response.FetchableTopicResponse(partitions=[current])]), 12)
    section = bytes.fromhex("02000d00000001000000000000000500020d00000000000000070000000200")
    assert tagged == plain[:-3] + section + plain[-2:]


def test_a_value_for_an_ignorable_field_is_dropped_from_versions_that_lack_it() -> None:
    response = metadata.Response(throttle_time_ms=5, cluster_id="here")
    assert encode(response, 0) == encode(metadata.Response(), 0)


def test_a_value_for_any_other_field_is_refused_in_versions_that_lack_it() -> None:
    with pytest.raises(ProtocolError, match=r"ProduceRequest v2, transactional_id.*'t'"):
        encode(produce.Request(transactional_id="t"), 2)


def test_records_are_views_of_the_buffer_and_are_taken_from_any_bytes_like_object() -> None:
    partition = produce.Request.PartitionProduceData
    topic = produce.Request.TopicProduceData
    for records in (b"records", bytearray(b"records"), memoryview(b"-records-")[1:-1]):
        data = encode(produce.Request(topic_data=[topic(name="t", partition_data=[partition(records=records)])]), 3)
        buffer = bytearray(data)
        message, _ = decode(produce.Request, 3, buffer)
        decoded = message.topic_data[0].partition_data[0].records
        assert decoded == b"records"
        buffer[-1] = ord("S")
        assert bytes(decoded) == b"recordS"


def test_a_buffer_of_wider_items_is_read_as_bytes() -> None:
    partition = produce.Request.PartitionProduceData(records=b"12345678")
    request = produce.Request(topic_data=[produce.Request.TopicProduceData(name="abcdef", partition_data=[partition])])
    data = encode(request, 3)
    data += bytes(-len(data) % 8)
    assert decode(produce.Request, 3, memoryview(data).cast("q"))[0] == request


def test_a_frame_is_its_size_a_header_and_a_message() -> None:
    request = metadata.Request(topics=None)
    for version in range(14):
        head = header.RequestHeader(request_api_key=3, request_api_version=version, correlation_id=9, client_id="me")
        head_version = header.request_header_version(3, version)
        if version == 0:
            request.topics = []
        frame = encode_frame(head, head_version, request, version)
        body = encode(head, head_version) + encode(request, version)
        assert frame == len(body).to_bytes(4, "big") + body
        request.topics = None


@given(st.integers(0, 3), st.integers(0, 200_000))
@settings(max_examples=20, database=None)
def test_messages_larger_than_the_kept_buffer_leave_no_trace_in_the_next(version: int, size: int) -> None:
    small = encode(header.ResponseHeader(correlation_id=1), 1)
    partition = produce.Request.PartitionProduceData(records=bytes(size))
    request = produce.Request(topic_data=[produce.Request.TopicProduceData(name="t", partition_data=[partition])])
    assert decode(produce.Request, version, encode(request, version))[0] == request
    assert encode(header.ResponseHeader(correlation_id=1), 1) == small


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("correlation_id", 2**31, "out of range"),
        ("correlation_id", -(2**31) - 1, "out of range"),
        ("correlation_id", 2**70, "out of range"),
        ("correlation_id", "1", "not an int"),
        ("correlation_id", 1.0, "not an int"),
        ("request_api_key", None, "not an int"),
        ("request_api_version", 2**15, "out of range"),
        ("client_id", b"bytes", "not a str"),
        ("client_id", "\ud800", "UTF-8"),
        ("client_id", "x" * 2**15, "more than 32767 bytes"),
    ],
)
def test_values_of_the_wrong_type_or_size_are_refused_by_the_name_of_their_field(
    field: str, value: Any, reason: str
) -> None:
    with pytest.raises(ProtocolError, match=reason) as caught:
        encode(header.RequestHeader(**{field: value}), 1)
    assert (caught.value.message, caught.value.version, caught.value.field) == ("RequestHeader", 1, field)
    assert caught.value.value == value


def test_wrong_values_deep_in_a_message_are_refused_with_their_path() -> None:
    topic, partition = fetch.Request.FetchTopic, fetch.Request.FetchPartition
    good, bad = topic(topic="a", partitions=[]), topic(topic="b", partitions=[partition(), partition(fetch_offset="x")])
    with pytest.raises(ProtocolError) as caught:
        encode(fetch.Request(topics=[good, bad]), 4)
    assert caught.value.field == "topics[1].partitions[1].fetch_offset"
    for invalid, reason in ((fetch.Request(topics=good), "list"), (fetch.Request(topics=["a"]), "class")):
        with pytest.raises(ProtocolError, match=reason):
            encode(invalid, 4)
    with pytest.raises(ProtocolError, match="16 bytes"):
        encode(fetch.Request(topics=[topic(topic_id=b"short")]), 13)
    with pytest.raises(ProtocolError, match="not a bool"):
        encode(metadata.Request(allow_auto_topic_creation=1), 4)
    with pytest.raises(ProtocolError, match="bytes-like"):
        records = produce.Request.PartitionProduceData(records="text")
        encode(produce.Request(topic_data=[produce.Request.TopicProduceData(partition_data=[records])]), 3)


@pytest.mark.parametrize("version", [-1, 19, 32767])
def test_versions_that_no_schema_has_are_refused(version: int) -> None:
    for act in (lambda: encode(fetch.Request(), version), lambda: decode(fetch.Request, version, bytes(100))):
        with pytest.raises(ProtocolError, match="supported are 0 to 18"):
            act()
