"""Whatever the bytes are, decoding ends in a message or in a ProtocolError, and in memory in proportion to the bytes."""

from __future__ import annotations

import random
import struct
import tracemalloc
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from broker.protocol import ProtocolError, decode, encode, header, metadata, produce
from tests.protocol.messages import Case, all_cases, cases, message_classes, values

FEW = settings(
    max_examples=3, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
)
HUGE = [
    struct.pack(">i", 0x7FFFFFFF),
    struct.pack(">i", -2),
    b"\xff\xff\xff\xff\x0f",
    b"\xff" * 10,
    struct.pack(">h", -2),
]
BY_CLASS = pytest.mark.parametrize("cls", message_classes(), ids=lambda cls: cls.__name__)

#: Memory for a message, of the buffer's size: a structure of two bytes on the wire costs an object of some 150.
MEMORY_FACTOR = 120


def attempt(case: Case, data: bytes) -> bool:
    """Decodes; what is a message must be one that can be encoded and read again."""
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
def test_a_message_with_bytes_changed_is_refused_or_is_another(cls: Any) -> None:
    for case in cases(cls):

        @FEW
        @given(values(case), st.just(case), st.randoms(use_true_random=False))
        def survives(message: Any, case: Case, chance: random.Random) -> None:
            data = encode(message, case.version)
            for _ in range(20):
                at = chance.randrange(len(data) + 1)
                lie = chance.choice(HUGE) if chance.random() < 0.5 else chance.randbytes(chance.randrange(1, 4))
                attempt(case, data[:at] + lie + data[at + len(lie) :])

        survives()


def test_random_bytes_are_refused_or_are_a_message() -> None:
    chance = random.Random(20)
    outcomes = [attempt(case, chance.randbytes(chance.randrange(80))) for case in all_cases() for _ in range(20)]
    assert 0 < sum(outcomes) < len(outcomes)


@pytest.mark.parametrize(
    "pattern", [b"\x00", b"\x01", b"\x02", b"\x7f", b"\xff", b"\x00\x00\x00\x01", b"\x00\x00\x0f\xff"]
)
def test_memory_is_bounded_by_the_size_of_the_buffer(pattern: bytes) -> None:
    data = pattern * (2048 // len(pattern))
    for case in all_cases():
        attempt(case, b"")
        tracemalloc.start()
        try:
            decode(case.cls, case.version, data)
        except ProtocolError:
            pass
        finally:
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
        assert peak < 20_000 + MEMORY_FACTOR * len(data), f"{case} took {peak} bytes"


def test_a_count_is_refused_before_its_elements_are_made() -> None:
    for version, count in ((1, struct.pack(">i", 0x7FFFFFFF)), (9, b"\xff\xff\xff\xff\x0f")):
        data = count + bytes(1 << 20)
        decode(metadata.Request, version, encode(metadata.Request(topics=None), version))
        tracemalloc.start()
        with pytest.raises(ProtocolError, match=r"topics, at byte 0: needs more bytes than there are") as caught:
            decode(metadata.Request, version, data)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 100_000
        assert caught.value.value >= 0x7FFFFFFF


@pytest.mark.parametrize(
    ("version", "data", "reason", "field", "position"),
    [
        (0, b"\xff\xff\xff\xff", "null where it may not be", "topics", 4),
        (1, b"\xff\xff\xff\xfe", "a length that cannot be", "topics", 0),
        (0, b"\0\0\0\2\0\1a\xff\xff", "null where it may not be", "topics[1].name", 9),
        (0, b"\0\0\0\2\0\1a\xff\xfe", "a length that cannot be", "topics[1].name", 7),
        (0, b"\0\0\0\2\0\1a\0\2\xc3\x28", "not UTF-8", "topics[1].name", 9),
        (0, b"\0\0\0\1\0\5a", "more bytes", "topics[0].name", 4),
        (9, b"\x80\x80\x80\x80\x10", "more bits", "topics", 0),
        (9, b"\x02\x81\x80\x02" + bytes(40_000), "a length that cannot be", "topics[0].name", 1),
        (9, b"\x01\0\0\0\xff\xff\xff\xff\x0f", "more bytes", None, 9),
        (9, b"\x01\0\0\0\x01\x05\xff\xff\xff\xff\x0f", "more bytes", None, 11),
    ],
)
def test_the_place_of_an_error_is_named(
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


def test_what_is_no_buffer_is_a_mistake_of_the_caller() -> None:
    for wrong in ("text", None, 5):
        with pytest.raises(TypeError):
            decode(header.ResponseHeader, 0, wrong)
