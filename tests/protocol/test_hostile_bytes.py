"""Decoding any bytes returns a message or raises ProtocolError, with memory in proportion to the number of bytes."""

from __future__ import annotations

import gc
import random
import struct
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from odradek.protocol import ProtocolError, decode, encode
from odradek.protocol.schemas import header, metadata, offset_fetch, produce
from odradek.protocol.structure import Structure
from tests.protocol.messages import Case, all_cases, cases, message_classes, values

FEW = settings(max_examples=3, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
HUGE = [
    struct.pack(">i", 0x7FFFFFFF),
    struct.pack(">i", -2),
    b"\xff\xff\xff\xff\x0f",
    b"\xff" * 10,
    struct.pack(">h", -2),
]
BY_CLASS = pytest.mark.parametrize("cls", message_classes(), ids=lambda cls: cls.__name__)

#: Bytes of memory per byte of a message: an empty list has one byte in the protocol and 60 in memory.
MEMORY_FACTOR = 60


def attempt(case: Case, data: bytes) -> bool:
    """Decode the bytes; a decoded message must survive encoding and decoding. Returns whether it is a message."""
    try:
        message, end = decode(case.cls, case.version, data)
    except ProtocolError as error:
        assert error.message == case.cls.__name__
        assert error.version == case.version
        assert error.position is not None
        assert 0 <= error.position <= len(data)
        return False
    assert 0 <= end <= len(data)
    again = encode(message, case.version)
    assert encode(decode(case.cls, case.version, again)[0], case.version) == again
    return True


@BY_CLASS
def test_a_message_cut_short_anywhere_is_refused(cls: Any) -> None:
    for case in cases(cls):

        @FEW
        @given(values(case), st.just(case))
        def refused(message: Any, case: Case) -> None:
            data = encode(message, case.version)
            for size in range(len(data)):
                with pytest.raises(ProtocolError):
                    decode(case.cls, case.version, data[:size])

        refused()


@BY_CLASS
def test_a_message_with_changed_bytes_is_refused_or_decoded(cls: Any) -> None:
    for case in cases(cls):

        @FEW
        @given(values(case), st.just(case), st.randoms(use_true_random=False))
        def survives(message: Any, case: Case, rng: random.Random) -> None:
            data = encode(message, case.version)
            for _ in range(20):
                position = rng.randrange(len(data) + 1)
                lie = rng.choice(HUGE) if rng.random() < 0.5 else rng.randbytes(rng.randrange(1, 4))
                attempt(case, data[:position] + lie + data[position + len(lie) :])

        survives()


def test_random_bytes_are_refused_or_are_a_message() -> None:
    rng = random.Random(20)
    outcomes = [attempt(case, rng.randbytes(rng.randrange(80))) for case in all_cases() for _ in range(20)]
    assert 0 < sum(outcomes) < len(outcomes)


def full_of_the_smallest(structure: Structure, version: int, count: int) -> Iterator[Any]:
    """Yield objects of `structure` in which one array, at any depth, has `count` elements of minimum size."""
    for field in structure.fields:
        if version not in field.versions or field.structure is None:
            continue
        if field.is_array:
            yield structure.cls(**{field.attribute: [field.structure.cls()] * count})
        for inner in full_of_the_smallest(field.structure, version, count):
            yield structure.cls(**{field.attribute: [inner] if field.is_array else inner})


def measured_decode(case: Case, data: bytes) -> tuple[Any, int]:
    """The message and the peak memory while it is decoded, without the effect of garbage of earlier tests."""
    gc.disable()
    tracemalloc.start()
    try:
        message, _ = decode(case.cls, case.version, data)
        return message, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        gc.enable()


def test_memory_is_in_proportion_to_the_bytes_even_of_the_smallest_elements() -> None:
    measured = 0
    for case in all_cases():
        for message in full_of_the_smallest(case.cls._structure, case.version, 300):
            try:
                data = encode(message, case.version)
            except ProtocolError:  # a default that this version cannot hold
                continue
            decode(case.cls, case.version, data)
            decoded, peak = measured_decode(case, data)
            assert decoded is not None
            assert peak < 10_000 + MEMORY_FACTOR * len(data), f"{case}: {len(data)} bytes took {peak}"
            measured += 1
    assert measured > 1000


def test_a_count_is_refused_before_its_elements_are_made() -> None:
    for version, count in ((1, struct.pack(">i", 0x7FFFFFFF)), (9, b"\xff\xff\xff\xff\x0f")):
        data = count + bytes(1 << 20)
        decode(metadata.Request, version, encode(metadata.Request(topics=None), version))
        tracemalloc.start()
        with pytest.raises(
            ProtocolError, match=r"topics, at byte 0: the value is longer than the remaining bytes"
        ) as caught:
            decode(metadata.Request, version, data)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 100_000
        assert caught.value.value >= 0x7FFFFFFF


def test_the_elements_of_all_arrays_of_a_message_are_bounded() -> None:
    topic = offset_fetch.Request.OffsetFetchRequestTopic(name="t", partition_indexes=[0] * (1 << 20))
    allowed = encode(offset_fetch.Request(topics=[topic] * 3), 7)
    message, end = decode(offset_fetch.Request, 7, allowed)
    assert (len(message.topics), end) == (3, len(allowed))
    refused = encode(offset_fetch.Request(topics=[topic] * 4), 7)
    with pytest.raises(ProtocolError, match="more than 4194304 elements") as caught:
        decode(offset_fetch.Request, 7, refused)
    assert caught.value.field == "topics[3].partition_indexes"


@pytest.mark.parametrize(
    ("version", "data", "reason", "field", "position"),
    [
        (0, b"\xff\xff\xff\xff", "null is not allowed", "topics", 4),
        (1, b"\xff\xff\xff\xfe", "invalid length", "topics", 0),
        (0, b"\0\0\0\2\0\1a\xff\xff", "null is not allowed", "topics[1].name", 9),
        (0, b"\0\0\0\2\0\1a\xff\xfe", "invalid length", "topics[1].name", 7),
        (0, b"\0\0\0\2\0\1a\0\2\xc3\x28", "not UTF-8", "topics[1].name", 9),
        (0, b"\0\0\0\1\0\5a", "longer than the remaining bytes", "topics[0].name", 4),
        (9, b"\x80\x80\x80\x80\x10", "more bits", "topics", 0),
        (9, b"\x02\x81\x80\x02" + bytes(40_000), "invalid length", "topics[0].name", 1),
        (9, b"\x01\0\0\0\xff\xff\xff\xff\x0f", "longer than the remaining bytes", None, 9),
        (9, b"\x01\0\0\0\x01\x05\xff\xff\xff\xff\x0f", "longer than the remaining bytes", None, 11),
    ],
)
def test_an_error_has_the_field_and_the_position(
    version: int, data: bytes, reason: str, field: str | None, position: int
) -> None:
    with pytest.raises(ProtocolError, match=reason) as caught:
        decode(metadata.Request, version, data)
    assert (caught.value.field, caught.value.position) == (field, position)


def test_a_tagged_field_has_the_size_it_states() -> None:
    partition = produce.Response.PartitionProduceResponse
    topic = produce.Response.TopicProduceResponse
    leader = produce.Response.LeaderIdAndEpoch(leader_id=7, leader_epoch=3)
    response = produce.Response(responses=[topic(name="t", partition_responses=[partition(current_leader=leader)])])
    data = encode(response, 10)
    section = b"\x01\x00\x09" + struct.pack(">ii", 7, 3) + b"\x00"
    assert section in data
    for lie in (b"\x08", b"\x0a", b"\x00", b"\x7f", b"\xff\xff\xff\xff\x0f"):
        with pytest.raises(ProtocolError):
            decode(produce.Response, 10, data.replace(section, section[:2] + lie + section[3:]))


@pytest.mark.parametrize("offset", [-1, 5, 2**40])
def test_an_offset_outside_of_the_buffer_is_refused(offset: int) -> None:
    with pytest.raises(ValueError, match="outside of a buffer of 4 bytes"):
        decode(header.ResponseHeader, 0, bytes(4), offset)


def test_an_argument_that_is_not_a_buffer_is_a_type_error() -> None:
    for argument in ("text", None, 5):
        with pytest.raises(TypeError):
            decode(header.ResponseHeader, 0, argument)
