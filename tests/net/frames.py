"""Encodes and decodes single frames between workers and coordinator, with the native code under test."""

from typing import NamedTuple, cast

from odradek._ext.net import forward_frames
from odradek.net.forward_frames import ForwardContext, ForwardReply, Kind, Status, decode_context, encode_context


class ForwardRequest(NamedTuple):
    """A request as the coordinator gets it.

    ``deadline`` is in the time of the event loops, which on one machine is the same in every process (CLOCK_MONOTONIC):
    afterwards nobody waits for the answer.
    """

    kind: Kind
    context: ForwardContext
    deadline: float
    payload: bytes


def encode_request(correlation: int, kind: Kind, context: ForwardContext, deadline: float, payload: bytes) -> bytes:
    """A request's frame, length included."""
    return cast(bytes, forward_frames.encode_request(correlation, kind, encode_context(context), deadline, payload))


def decode_request(frame: bytes) -> tuple[int, ForwardRequest]:
    """Correlation and request of a frame without its length. Raises MalformedFrame."""
    correlation, kind, context, deadline, payload = forward_frames.decode_request(frame)
    return correlation, ForwardRequest(Kind(kind), decode_context(context), deadline, payload)


def encode_reply(correlation: int, reply: ForwardReply) -> bytes:
    """A response's frame, length included."""
    return cast(bytes, forward_frames.encode_reply(correlation, *reply))


def decode_reply(frame: bytes) -> tuple[int, ForwardReply]:
    """Correlation and response of a frame without its length. Raises MalformedFrame."""
    correlation, status, metadata_version, payload = forward_frames.decode_reply(frame)
    return correlation, ForwardReply(Status(status), metadata_version, payload)
