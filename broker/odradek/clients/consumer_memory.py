"""Limits the memory of a `ParallelConsumer` and divides it between its buffers and the client library.

The client library reads ahead: it fetches more while its queue is below two limits, one in records and one in bytes, and it
adds the responses of fetches in flight to the queue even above the limits. The allocator does not return all freed memory
to the system. `share_out` subtracts all of that from `memory_bytes`; the rest is for the buffers. The memory that a record
uses besides its bytes was measured as the growth of a process by 200,000 records of 10 bytes with distinct keys (CPython
3.11, librdkafka 2.16): 545 bytes in the buffers, 204 for each header there, 335 in the library.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

RECORD_BYTES = 640
"""Overhead of a record in the buffers, besides its key, value and headers."""
HEADER_BYTES = 224
"""Overhead of a header of a record in the buffers, besides its name and value."""
OFFSET_BYTES = 128
"""Memory of a processed record that cannot be committed yet because an earlier record of its partition is not processed."""
READ_AHEAD_BYTES = 512
"""Overhead of a record in the library, besides its key, value and headers."""
LEAST_BYTES = 16 << 20
QUEUE_PART = 8
"""1/8 of the memory each is reserved for: records in the library, their overhead, responses in flight, the allocator."""
RESPONSE_PART = 64
"""A response may take 1/64 of the memory, so that responses of several brokers, and decompressed ones, fit in their 1/8."""
LIBRARY_MESSAGE_BYTES = 1_000_000
"""Default of the library's `message.max.bytes`. It accepts no smaller `fetch.max.bytes`."""
RECEIVED_BESIDE_RECORDS = 512
"""The library requires `receive.message.max.bytes` to be larger than `fetch.max.bytes` by this much."""
LARGEST_RESPONSE = 50 << 20
MOST_READ_AHEAD, MOST_READ_AHEAD_KIB = 100_000, 1 << 20


class Share(NamedTuple):
    """:param buffers: bytes for the buffers of all partitions. :param settings: of the client library."""

    buffers: int
    settings: dict[str, int]


def share_out(memory_bytes: int, config: Mapping[str, Any]) -> Share:
    """Divide the memory. Settings in `config` are not changed.

    Raises ValueError if the memory is too small, or if such settings leave nothing for the buffers.
    """
    if memory_bytes < LEAST_BYTES:
        raise ValueError(f"memory_bytes={memory_bytes} is too small: use at least {LEAST_BYTES}")
    settings = {
        "queued.max.messages.kbytes": min(MOST_READ_AHEAD_KIB, memory_bytes // QUEUE_PART >> 10),
        "queued.min.messages": min(MOST_READ_AHEAD, memory_bytes // QUEUE_PART // READ_AHEAD_BYTES),
        "fetch.max.bytes": _response_bytes(memory_bytes, config),
    }
    settings = {name: _number(config, name, value) for name, value in settings.items()}
    read_ahead = (settings["queued.max.messages.kbytes"] << 10) + settings["queued.min.messages"] * READ_AHEAD_BYTES
    responses = max(settings["fetch.max.bytes"], memory_bytes // QUEUE_PART)
    buffers = memory_bytes - read_ahead - responses - memory_bytes // QUEUE_PART
    if buffers <= 0:
        listed = ", ".join(f"{name}={value}" for name, value in settings.items())
        raise ValueError(
            f"memory_bytes={memory_bytes} is too small: with {listed} the client library may use {read_ahead + responses} bytes"
            ", which leaves nothing for the buffers; use a larger memory_bytes or smaller values"
        )
    return Share(buffers, settings)


def _response_bytes(memory_bytes: int, config: Mapping[str, Any]) -> int:
    """The value of `fetch.max.bytes`, within the limits that the library enforces."""
    most = _number(config, "receive.message.max.bytes", LARGEST_RESPONSE * 2) - RECEIVED_BESIDE_RECORDS
    least = _number(config, "message.max.bytes", LIBRARY_MESSAGE_BYTES)
    return max(least, min(LARGEST_RESPONSE, memory_bytes // RESPONSE_PART, most))


def _number(config: Mapping[str, Any], name: str, default: int) -> int:
    value = config.get(name, default)
    try:
        return int(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name}={value!r} is not an integer") from None


def size_of(message: Any) -> int:
    """The approximate memory in bytes of a `confluent_kafka.Message` in the buffers."""
    size = RECORD_BYTES + len(message) + len(message.key() or b"")
    for name, value in message.headers() or ():
        size += HEADER_BYTES + len(name) + len(value or b"")
    return size
