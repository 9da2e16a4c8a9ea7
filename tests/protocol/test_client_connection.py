"""The client's side of a connection, without I/O: every split of the received bytes, hostile bytes, versions, requests."""

import struct
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from odradek.protocol import ProtocolError, client_connection, decode, encode, encode_frame
from odradek.protocol.client_connection import (
    ClientConnection,
    CorrelationError,
    FrameSizeError,
    UnservedError,
    VersionsRefused,
    converse,
    negotiation,
    renewal_s,
)
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schema import ApiSchema, Ask
from odradek.protocol.schemas import api_versions, create_topics, fetch, list_offsets, metadata, produce
from odradek.protocol.schemas.header import ResponseHeader, decode_request_header, response_header_version

MOST_BYTES = 10_000
VERSIONS = {api_versions.API_KEY: (0, 4), metadata.API_KEY: (4, 9)}


def connection(most_bytes: int = MOST_BYTES) -> ClientConnection:
    return ClientConnection("client", most_bytes)


def response_frame(api: ApiSchema, version: int, number: int, message: Any) -> bytes:
    return encode_frame(
        ResponseHeader(correlation_id=number), response_header_version(api.key, version), message, version
    )


def ask_metadata(made: ClientConnection, version: int = 12) -> None:
    made.request(metadata.SCHEMA, metadata.Request(), version)


def metadata_frame(number: int, cluster_id: str = "c", version: int = 12) -> bytes:
    return response_frame(metadata.SCHEMA, version, number, metadata.Response(cluster_id=cluster_id))


def versions_response(ranges: dict[int, tuple[int, int]] = VERSIONS, error_code: int = 0) -> Any:
    row = api_versions.Response.ApiVersion
    rows = [row(api_key=key, min_version=low, max_version=high) for key, (low, high) in ranges.items()]
    return api_versions.Response(error_code=error_code, api_keys=rows)


def received(made: ClientConnection) -> list[str]:
    """The names of the clusters in the responses that are complete."""
    found = []
    while made.pending and (response := made.response()) is not None:
        found.append(response.cluster_id)
    return found


def receive_into_room(made: ClientConnection, data: bytes) -> int:
    """As a blocking socket does. Returns how much fits."""
    room = made.frames.room
    size = min(len(data), len(room))
    room[:size] = data[:size]
    made.frames.filled(size)
    return size


NAMES = ["first", "", "third" * 20]
STREAM = b"".join(metadata_frame(number, name) for number, name in enumerate(NAMES, 1))


def parts(cuts: Iterable[int]) -> list[bytes]:
    return [STREAM[first:last] for first, last in pairwise([0, *sorted(cuts), len(STREAM)])]


@pytest.mark.parametrize("shares_memory", [False, True])
@given(cuts=st.sets(st.integers(1, len(STREAM) - 1)))
@example(cuts=set())
@example(cuts=set(range(1, len(STREAM))))
def test_responses_do_not_depend_on_how_the_bytes_are_split(shares_memory: bool, cuts: set[int]) -> None:
    fed, filled = connection(), connection()
    for made in (fed, filled):
        made.frames.shares_memory = shares_memory
        for _ in NAMES:
            ask_metadata(made)
    found_fed, found_filled = [], []
    for part in parts(cuts):
        fed.frames.feed(part)
        found_fed += received(fed)
        while part:
            part = part[receive_into_room(filled, part) :]
            found_filled += received(filled)
    assert found_fed == found_filled == NAMES
    for made in (fed, filled):
        assert not made.pending and not made.frames.begun


def test_each_cut_of_two_responses_gives_the_first_one_as_soon_as_it_is_complete() -> None:
    first, second = metadata_frame(1, "a"), metadata_frame(2, "b")
    for cut in range(len(first + second) + 1):
        made = connection()
        ask_metadata(made)
        ask_metadata(made)
        made.frames.feed((first + second)[:cut])
        expected = ["a"] * (cut >= len(first)) + ["b"] * (cut >= len(first + second))
        assert received(made) == expected
        assert made.frames.begun == (cut not in (0, len(first), len(first + second)))


def test_bytes_that_are_fed_before_the_former_ones_are_taken_follow_them() -> None:
    made = connection()
    for _ in NAMES:
        ask_metadata(made)
    for at in range(len(STREAM)):
        made.frames.feed(STREAM[at : at + 1])
    assert made.frames.begun
    assert received(made) == NAMES


def test_frames_that_share_memory_are_not_allocated_again_and_others_are_kept() -> None:
    first, second = metadata_frame(1, "a"), metadata_frame(2, "b")
    for shares_memory in (False, True):
        made = connection()
        made.frames.shares_memory = shares_memory
        made.frames.feed(first + second)
        frame = made.frames.take()
        assert frame is not None and bytes(frame) == first[4:]
        later = made.frames.take()
        assert later is not None and bytes(later) == second[4:]
        assert bytes(frame) == (second[4:] if shares_memory else first[4:])
    made.frames.release(0)
    made.frames.feed(first)
    last = made.frames.take()
    assert last is not None and bytes(last) == first[4:] and bytes(later) == second[4:]


# -- sizes -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [-(1 << 31), -1, 0, 3, MOST_BYTES + 1, (1 << 31) - 1])
def test_a_frame_of_an_impossible_size_is_refused_before_there_is_memory_for_it(size: int) -> None:
    made = connection()
    ask_metadata(made)
    made.frames.feed(struct.pack(">i", size) + bytes(100))
    with pytest.raises(FrameSizeError, match=f"response: its size is {size} bytes") as caught:
        made.response()
    assert (caught.value.size, caught.value.head) == (size, struct.pack(">i", size))
    assert made.frames.begun_bytes == 0


def test_a_limit_that_is_raised_holds_for_the_next_frame() -> None:
    made = connection(most_bytes=4)
    data = metadata_frame(1)
    ask_metadata(made)
    made.frames.most_bytes = len(data) - 4
    made.frames.feed(data)
    assert received(made) == ["c"]


@pytest.mark.parametrize("fed", [False, True])
def test_a_frame_is_held_until_there_is_room_for_it(fed: bool) -> None:
    made, data = connection(), metadata_frame(1)
    ask_metadata(made)
    frames, size = made.frames, len(data) - 4
    if fed:
        frames.feed(data)
    else:
        assert receive_into_room(made, data) == 4
    for _ in range(2):
        assert not frames.complete(size - 1)
        assert (frames.held_bytes, frames.begun_bytes, frames.arrived_bytes, len(frames.room)) == (size, 0, 0, 0)
    assert frames.complete(size) == fed
    assert (frames.held_bytes, frames.begun_bytes, frames.arrived_bytes) == (0, size, size if fed else 0)
    if not fed:
        assert receive_into_room(made, data[4:]) == size
    assert received(made) == ["c"]


# -- hostile bytes ---------------------------------------------------------------------------------------------------------


def test_a_response_to_another_request_is_refused() -> None:
    for number in (0, 2, -1):
        made = connection()
        ask_metadata(made)
        made.frames.feed(metadata_frame(number))
        with pytest.raises(
            CorrelationError, match=f"response to Metadata: it has the correlation id {number} instead of 1"
        ) as caught:
            made.response()
        assert (caught.value.received, caught.value.expected) == (number, 1)


def test_a_late_response_is_not_taken_for_the_response_to_the_next_request() -> None:
    made = connection()
    ask_metadata(made)
    made.frames.feed(metadata_frame(1) * 2)
    assert received(made) == ["c"]
    ask_metadata(made)
    with pytest.raises(CorrelationError):
        made.response()


def test_a_response_without_a_request_is_refused() -> None:
    made = connection()
    made.request(produce.SCHEMA, produce.Request(acks=0), 3, answered=False)
    assert not made.pending
    made.frames.feed(metadata_frame(1))
    with pytest.raises(ProtocolError, match="a response arrived without a request"):
        made.response()


TAGS = [b"\x01\x00\x7f", b"\x01\x00\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x0f", b"\x02\x00\x00", b"\xff" * 6, b""]


@pytest.mark.parametrize("tags", TAGS)
def test_malformed_tagged_fields_of_a_header_are_refused(tags: bytes) -> None:
    made = connection()
    ask_metadata(made)
    made.frames.feed(struct.pack(">ii", 4 + len(tags), 1) + tags)
    with pytest.raises(ProtocolError):
        made.response()


def test_unknown_tagged_fields_of_a_header_are_skipped() -> None:
    made = connection()
    ask_metadata(made)
    body = encode(metadata.Response(cluster_id="c"), 12)
    head = struct.pack(">i", 1) + b"\x02\x05\x03abc\x07\x00"
    made.frames.feed(struct.pack(">i", len(head + body)) + head + body)
    assert received(made) == ["c"]


@given(st.sampled_from([fetch, list_offsets, metadata, api_versions]), st.data(), st.binary(max_size=80))
def test_any_bytes_are_a_response_or_a_malformed_one(api: Any, data: st.DataObject, body: bytes) -> None:
    made = connection()
    message = api.Request()
    version = data.draw(st.integers(api.SCHEMA.min_version, api.SCHEMA.max_version))
    try:
        made.request(api.SCHEMA, message, version)
    except ProtocolError:
        return  # an empty request is not possible in this version
    made.frames.feed(struct.pack(">ii", 4 + len(body), 1) + body)
    try:
        assert isinstance(made.response(), api.Response)
    except ProtocolError:
        assert not made.pending


# -- requests --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(metadata.SCHEMA.min_version, metadata.SCHEMA.max_version + 1))
def test_a_request_has_the_header_of_its_version_and_the_next_correlation_id(version: int) -> None:
    made = connection()
    for number in (1, 2):
        frame = made.request(metadata.SCHEMA, metadata.Request(topics=[], allow_auto_topic_creation=True), version)
        assert struct.unpack_from(">i", frame)[0] == len(frame) - 4
        header, body = decode_request_header(frame, 4)
        assert (header.request_api_key, header.request_api_version) == (metadata.API_KEY, version)
        assert (header.correlation_id, header.client_id) == (number, "client")
        assert decode(metadata.Request, version, frame, body)[1] == len(frame)


def test_a_head_before_an_encoded_body_is_that_of_the_whole_request() -> None:
    whole, in_parts = connection(), connection()
    request = produce.Request(acks=-1, timeout_ms=5)
    body = encode(request, 8)
    for _ in range(2):
        assert in_parts.head(produce.SCHEMA, 8, len(body)) + body == whole.request(produce.SCHEMA, request, 8)
    assert in_parts.pending == whole.pending


def test_correlation_ids_begin_again_after_the_largest_one() -> None:
    made = connection()
    made._correlation_id = 0x7FFFFFFE
    ids = [
        decode_request_header(made.request(metadata.SCHEMA, metadata.Request(), 12), 4)[0].correlation_id for _ in "abc"
    ]
    assert ids == [0x7FFFFFFF, 0, 1]


def test_a_request_that_cannot_be_encoded_waits_for_no_response() -> None:
    made = connection()
    with pytest.raises(ProtocolError):
        made.request(create_topics.SCHEMA, create_topics.Request(timeout_ms=1 << 40), 7)
    assert not made.pending


def test_a_request_that_only_validates_changes_nothing() -> None:
    made = connection()
    made.request(create_topics.SCHEMA, create_topics.Request(validate_only=True), 7)
    made.request(create_topics.SCHEMA, create_topics.Request(), 7)
    assert [request.changes for request in made.pending] == [False, True]


# -- versions --------------------------------------------------------------------------------------------------------------

LIMITS = st.integers(-1, metadata.SCHEMA.max_version + 2)


@given(st.none() | st.tuples(LIMITS, LIMITS), LIMITS, st.none() | LIMITS)
@example((0, metadata.SCHEMA.max_version + 2), 0, metadata.SCHEMA.max_version + 1)
def test_the_version_is_the_newest_that_both_sides_know(
    served: tuple[int, int] | None, oldest: int, newest: int | None
) -> None:
    made = connection()
    made.ranges = {} if served is None else {metadata.API_KEY: served}
    known = range(metadata.SCHEMA.min_version, metadata.SCHEMA.max_version + 1)
    low, high = served or (0, -1)
    possible = [
        version for version in known
        if low <= version <= high and version >= oldest and (newest is None or version <= newest)
    ]  # fmt: skip
    if possible:
        assert made.version_of(metadata.SCHEMA, oldest, newest) == max(possible)
        return
    with pytest.raises(UnservedError, match="it serves no version of Metadata that this broker knows"):
        made.version_of(metadata.SCHEMA, oldest, newest)


def test_a_request_before_the_versions_are_known_has_the_newest_version() -> None:
    made = connection()
    assert made.ranges is None
    assert made.version_of(metadata.SCHEMA) == metadata.SCHEMA.max_version
    assert made.version_of(metadata.SCHEMA, newest=5) == 5


def negotiated(made: ClientConnection, *answers: Any, version: int = 4) -> tuple[Any, list[int]]:
    """The result of the negotiation, and the versions of ApiVersions that were requested.

    :param answers: a version and a response for each request.
    """
    asked, waiting = [], iter(answers)

    def ask(wanted: Ask) -> Any:
        header, _ = decode_request_header(made.ask(wanted), 4)
        asked.append(header.request_api_version)
        response_version, message = next(waiting)
        made.frames.feed(response_frame(api_versions.SCHEMA, response_version, header.correlation_id, message))
        return made.response()

    return converse(negotiation(version), ask), asked


def test_the_served_versions_are_known_after_the_negotiation() -> None:
    made = connection()
    response, asked = negotiated(made, (4, versions_response()))
    assert asked == [4] and made.ranges == VERSIONS and len(response.api_keys) == 2
    assert made.version_of(metadata.SCHEMA) == 9


@pytest.mark.parametrize(
    ("named", "then"),
    [({18: (0, 2)}, 2), ({}, 0), ({18: (0, 30)}, 4), ({18: (-9, -5)}, 0), ({3: (1, 2)}, 0)],
    ids=["the newest that it names", "none is named", "a newer one", "a negative one", "another API"],
)
def test_a_broker_that_does_not_know_the_version_is_asked_in_one_that_it_names(
    named: dict[int, tuple[int, int]], then: int
) -> None:
    made = connection()
    unknown = versions_response(named, ErrorCode.UNSUPPORTED_VERSION)
    _, asked = negotiated(made, (0, unknown), (then, versions_response()))
    assert asked == [4, then] and made.ranges == VERSIONS


def test_no_newer_version_is_requested_than_the_client_wants() -> None:
    unknown = versions_response({18: (0, 30)}, ErrorCode.UNSUPPORTED_VERSION)
    assert negotiated(connection(), (0, unknown), (3, versions_response()), version=3)[1] == [3, 3]


@pytest.mark.parametrize("code", [ErrorCode.UNSUPPORTED_VERSION, ErrorCode.CLUSTER_AUTHORIZATION_FAILED])
def test_refused_versions_end_the_negotiation(code: ErrorCode) -> None:
    made, refused = connection(), versions_response({}, code)
    with pytest.raises(VersionsRefused) as caught:
        negotiated(made, (0 if code == ErrorCode.UNSUPPORTED_VERSION else 4, refused), (0, refused))
    assert caught.value.code == code and made.ranges is None


# -- sessions --------------------------------------------------------------------------------------------------------------


def test_a_connection_is_replaced_before_its_session_ends() -> None:
    assert renewal_s(100.0, 0) is None
    assert client_connection.RENEWED_AFTER == 0.8
    assert renewal_s(100.0, 60_000) == 148.0


@pytest.mark.parametrize("fed", [False, True])
def test_a_large_response_gets_its_memory_as_it_arrives(fed: bool) -> None:
    """The size alone, which costs a broken broker nothing, makes nobody allocate."""
    size = 5 << 20
    content = bytes(range(256)) * (size >> 8)
    data = struct.pack(">i", size) + content
    made = connection(64 << 20)
    frames, at = made.frames, 0
    while at < len(data):
        assert frames.take() is None
        if fed:
            frames.feed(data[at : at + 100_003])
            at += 100_003
        else:
            at += receive_into_room(made, data[at : at + 100_003])
        assert frames.complete() == (at >= len(data))
        if at >= 4:
            assert frames.begun_bytes == size
            assert frames.arrived_bytes == min(at, len(data)) - 4
            assert len(frames.room) <= max(1 << 20, at)
    assert frames.take() == content
