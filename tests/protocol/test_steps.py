"""Messages that are decoded and encoded in steps are equal to those that are not, and fail with equal errors."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from odradek._ext.protocol.decoder import decode_in_steps
from odradek._ext.protocol.encoder import encode_in_steps
from odradek.protocol import ProtocolError, decode, encode
from odradek.protocol.schemas import consumer_group_heartbeat, metadata, offset_commit
from odradek.stepwise import Stepwise
from tests.protocol.messages import Case, cases, message_classes, values
from tests.protocol.test_hostile_bytes import HUGE

FEW = settings(max_examples=3, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
BY_CLASS = pytest.mark.parametrize("cls", message_classes(), ids=lambda cls: cls.__name__)


def outcome(work: Callable[[], Any]) -> Any:
    """What the call returns, or the text of its error."""
    try:
        return work()
    except ProtocolError as error:
        return str(error)


@BY_CLASS
def test_a_message_is_encoded_and_decoded_in_steps_as_at_once(cls: Any) -> None:
    for case in cases(cls):

        @FEW
        @given(values(case), st.just(case), st.randoms(use_true_random=False))
        def equal(message: Any, case: Case, rng: random.Random) -> None:
            data = encode(message, case.version)
            assert Stepwise(encode_in_steps(b"head", message, case.version, 1)).finish() == b"head" + data
            for _ in range(10):
                position = rng.randrange(len(data) + 1)
                lie = rng.choice(HUGE) if rng.random() < 0.5 else rng.randbytes(rng.randrange(1, 4))
                for some in (data, data[:position], data[:position] + lie + data[position + len(lie) :]):
                    steps = Stepwise(decode_in_steps(cls, case.version, b"**" + some, 2, 100, 1))
                    at_once = outcome(lambda some=some: decode(cls, case.version, b"**" + some, 2, 100)[0])
                    assert outcome(steps.finish) == at_once

        equal()


def test_a_step_handles_a_bounded_number_of_elements_wherever_they_are() -> None:
    make, count = offset_commit.Request, 100
    partitions = [make.OffsetCommitRequestPartition(committed_metadata="") for _ in range(count)]
    deep = make(topics=[make.OffsetCommitRequestTopic(name="t", partitions=partitions)])
    wide = make(topics=[make.OffsetCommitRequestTopic(name="t", partitions=[one]) for one in partitions])
    for message, elements in ((deep, 1 + count), (wide, 2 * count)):
        for steps in (
            encode_in_steps(b"", message, 8, 10),
            decode_in_steps(make, 8, encode(message, 8), 0, 2 * count, 10),
        ):
            assert len(list(steps)) == (elements - 1) // 10


def test_names_of_many_bytes_end_a_step_of_decoding() -> None:
    names = ["n" * 30_000] * 100
    data = encode(consumer_group_heartbeat.Request(subscribed_topic_names=names), 1)
    assert 2 <= len(list(decode_in_steps(consumer_group_heartbeat.Request, 1, data, 0, 1000))) <= 3


@pytest.mark.parametrize(
    "spoiled",
    [
        metadata.Request(topics=5),
        metadata.Request(topics=[None]),
        metadata.Request(topics=[metadata.Request.MetadataRequestTopic(name=b"t")]),
        metadata.Request(topics=[metadata.Request.MetadataRequestTopic(name="t")], allow_auto_topic_creation=3),
        metadata.Request(topics=[metadata.Request.MetadataRequestTopic(topic_id="no")]),
    ],
)
def test_what_cannot_be_encoded_is_refused_with_the_same_error(spoiled: Any) -> None:
    at_once = outcome(lambda: encode(spoiled, 12))
    assert isinstance(at_once, str)
    assert outcome(Stepwise(encode_in_steps(b"", spoiled, 12, 1)).finish) == at_once


def test_an_array_that_shrinks_between_two_steps_is_refused() -> None:
    names = [metadata.Request.MetadataRequestTopic(name="t") for _ in range(20)]
    steps = encode_in_steps(b"", metadata.Request(topics=names), 12, 5)
    next(steps)
    del names[:]
    with pytest.raises(ProtocolError, match="shrank"):
        Stepwise(steps).finish()


def test_steps_that_are_never_finished_free_what_they_have() -> None:
    data = encode(metadata.Request(topics=[metadata.Request.MetadataRequestTopic(name="t") for _ in range(20)]), 12)
    for _ in range(1000):
        steps = decode_in_steps(metadata.Request, 12, data, 0, 100, 5)
        next(steps)
        steps.close()
    with pytest.raises(ProtocolError, match="topics"):
        Stepwise(decode_in_steps(metadata.Request, 12, data[:-5], 0, 100, 5)).finish()
