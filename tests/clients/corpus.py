"""The records that every client writes and every other client must read back: each shape a record can have.

Made in the test process, the same at every run.
"""

from __future__ import annotations

import itertools
import random

from tests.clients.contract import Record

PARTITIONS = 3
LARGE_VALUE_BYTES = 200_000

_KEYS = (None, b"", b"key", bytes(range(256)))
_VALUES = (None, b"", "valeur: \u00e9\u4e2d\U0001f4dc".encode(), bytes(range(255, -1, -1)))
_HEADERS: tuple[tuple[tuple[str, bytes | None], ...], ...] = (
    (),
    (("trace", b"1"),),
    (("again", b"first"), ("again", b"second"), ("again", b"first"), ("other", b"")),
    (("null", None), ("after", b"x")),
    (("cl\u00e9", b"\xff\xfe\x01"),),
)


def records(topic: str, codec: str, base_timestamp: int) -> list[Record]:
    """Return the records for `topic`, in the order of writing, their timestamps (ms) within a minute after
    `base_timestamp`.

    Timestamps do not grow with the offsets, so that a log's largest one lies in the middle of it.
    """
    shapes = list(itertools.product(_KEYS, _VALUES, (_HEADERS[0],)))
    shapes += [(b"key", b"value", headers) for headers in _HEADERS]
    shapes += [(None, _large_value(), _HEADERS[0])]
    shapes += [(str(number).encode(), b"record %d" % number * (number % 7), _HEADERS[0]) for number in range(20)]
    written = [
        Record(topic, index % PARTITIONS, key, value, headers, base_timestamp + index * 7919 % 60_000, codec=codec)
        for index, (key, value, headers) in enumerate(shapes * PARTITIONS)
        if value is None or len(value) < LARGE_VALUE_BYTES or index < len(shapes)
    ]
    # a partition's records one after another, those of one shape together: a program may need a call per shape
    return sorted(written, key=lambda record: record.partition)


def _large_value() -> bytes:
    # half noise, half repetition: every codec makes it smaller, none makes it small
    chance = random.Random(3)
    blocks = (chance.randbytes(1000) + bytes([number % 251]) * 1000 for number in itertools.count())
    return b"".join(itertools.islice(blocks, LARGE_VALUE_BYTES // 2000))
