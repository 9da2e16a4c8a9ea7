"""How much memory a `ParallelConsumer` uses at most, and how its buffers and the client library share it.

The client library reads ahead: it fetches more while its queue holds less than two limits, one in records and one in bytes, and
the answers to fetches under way are added to the queue even then. The allocator does not return all freed memory to the system.
`share_out` subtracts all of that from `memory_bytes`; the rest is for the buffers. What a record uses besides its bytes was
measured as the growth of a process by 200,000 records of 10 bytes, each with a key of its own (CPython 3.11, librdkafka 2.16):
545 bytes in the buffers, 204 for each header there, 335 in the library.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

RECORD_BYTES = 640
"""Of a record in the buffers, besides its key, value and headers."""
HEADER_BYTES = 224
"""Of each header of a record in the buffers, besides its name and value."""
OFFSET_BYTES = 128
"""Of a record that is processed while an earlier one of its partition is not, until it is committed."""
READ_AHEAD_BYTES = 512
"""Of a record in the library, besides its key, value and headers."""
LEAST_BYTES = 16 << 20
QUEUE_PART = 8
"""One part of the memory each is for: bytes of records in the library, their overhead, answers under way, the allocator."""
ANSWER_PART = 64
"""One answer is at most this part, so that answers of several brokers, and ones that are decompressed, fit in theirs."""
LIBRARY_MESSAGE_BYTES = 1_000_000
"""Default of the library's `message.max.bytes`. It accepts no smaller `fetch.max.bytes`."""
RECEIVED_BESIDE_RECORDS = 512
"""By how much the library's `receive.message.max.bytes` must be larger than `fetch.max.bytes`."""
LARGEST_ANSWER = 50 << 20
MOST_READ_AHEAD, MOST_READ_AHEAD_KIB = 100_000, 1 << 20


class Share(NamedTuple):
    """:param buffers: bytes for the buffers of all partitions. :param settings: of the client library."""

    buffers: int
    settings: dict[str, int]


def share_out(memory_bytes: int, config: Mapping[str, Any]) -> Share:
    """Divide the memory. Settings that `config` has are kept as they are.

    Raises ValueError if the memory is too small, or if such settings leave nothing for the buffers.
    """
    if memory_bytes < LEAST_BYTES:
        raise ValueError(f"memory_bytes={memory_bytes}: at least {LEAST_BYTES} is needed")
    settings = {
        "queued.max.messages.kbytes": min(MOST_READ_AHEAD_KIB, memory_bytes // QUEUE_PART >> 10),
        "queued.min.messages": min(MOST_READ_AHEAD, memory_bytes // QUEUE_PART // READ_AHEAD_BYTES),
        "fetch.max.bytes": _answer_bytes(memory_bytes, config),
    }
    settings = {name: _number(config, name, value) for name, value in settings.items()}
    read_ahead = (settings["queued.max.messages.kbytes"] << 10) + settings["queued.min.messages"] * READ_AHEAD_BYTES
    answers = max(settings["fetch.max.bytes"], memory_bytes // QUEUE_PART)
    buffers = memory_bytes - read_ahead - answers - memory_bytes // QUEUE_PART
    if buffers <= 0:
        listed = ", ".join(f"{name}={value}" for name, value in settings.items())
        raise ValueError(
            f"memory_bytes={memory_bytes}: with {listed} the client library may use {read_ahead + answers} bytes, which"
            " leaves nothing for the buffers; use a larger memory_bytes or smaller values"
        )
    return Share(buffers, settings)


def _answer_bytes(memory_bytes: int, config: Mapping[str, Any]) -> int:
    """`fetch.max.bytes`, within the limits that the library checks it against."""
    most = _number(config, "receive.message.max.bytes", LARGEST_ANSWER * 2) - RECEIVED_BESIDE_RECORDS
    least = _number(config, "message.max.bytes", LIBRARY_MESSAGE_BYTES)
    return max(least, min(LARGEST_ANSWER, memory_bytes // ANSWER_PART, most))


def _number(config: Mapping[str, Any], name: str, default: int) -> int:
    value = config.get(name, default)
    try:
        return int(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name}={value!r}: a number is needed") from None


def size_of(message: Any) -> int:
    """About how many bytes a `confluent_kafka.Message` uses that waits in the buffers."""
    size = RECORD_BYTES + len(message) + len(message.key() or b"")
    for name, value in message.headers() or ():
        size += HEADER_BYTES + len(name) + len(value or b"")
    return size
