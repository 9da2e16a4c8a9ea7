"""When a segment ends: by size, by the batches' time, by a full index, by an offset too far."""

import pytest
from broker._ext.rolling import reason

RULES = {"segment_bytes": 1000, "segment_ms": 100, "jitter_ms": 10, "index_bytes": 240}
ACTIVE = {
    "base_offset": 50,
    "size": 500,
    "index_entries": 3,
    "timeindex_entries": 3,
    "first_timestamp": 10_000,
    "created_ms": 7_000,
}


def asked(append_bytes=100, last_offset=60, max_timestamp=10_000, now_ms=7_000, rules=None, **active):
    return reason(RULES | (rules or {}), ACTIVE | active, append_bytes, last_offset, max_timestamp, now_ms)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "no"),
        ({"append_bytes": 500}, "no"),
        ({"append_bytes": 501}, "size"),
        ({"append_bytes": 5000, "size": 0}, "size"),
        ({"max_timestamp": 10_090}, "no"),
        ({"max_timestamp": 10_091}, "time"),
        ({"max_timestamp": 10_091, "size": 0}, "no"),
        ({"max_timestamp": 99_999, "first_timestamp": -1}, "no"),
        ({"now_ms": 7_091, "first_timestamp": -1}, "time"),
        ({"index_entries": 29}, "no"),
        ({"index_entries": 30}, "index_full"),
        ({"timeindex_entries": 18}, "no"),
        ({"timeindex_entries": 19}, "index_full"),
        ({"last_offset": 50 + 2**31 - 1}, "no"),
        ({"last_offset": 50 + 2**31}, "offset_overflow"),
        ({"last_offset": 49}, "offset_overflow"),
        ({"append_bytes": 100, "rules": {"segment_bytes": 14}}, "size"),
        ({"max_timestamp": 2**62, "rules": {"segment_ms": 2**63 - 1}}, "no"),
    ],
)
def test_reasons(changes, expected):
    assert asked(**changes) == expected
