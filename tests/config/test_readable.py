"""Readable forms of configuration values."""

import pytest

from odradek.config.key import INT, LONG, ConfigKey
from odradek.config.readable import with_reading
from odradek.config.table import BROKER_KEYS, TOPIC_KEYS


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("retention.ms", "604800000", "604800000 (7 d)"),
        ("retention.ms", "5400000", "5400000 (1 h 30 min)"),
        ("retention.ms", "90061001", "90061001 (about 1 d 1 h)"),
        ("retention.ms", "1500", "1500 (1.5 s)"),
        ("retention.ms", "999", "999"),
        ("retention.ms", "0", "0"),
        ("retention.ms", "-1", "-1 (no limit)"),
        ("retention.ms", str(2**63 - 1), f"{2**63 - 1} (no limit)"),
        ("retention.ms", str(2**63 - 2), str(2**63 - 2)),
        ("log.retention.hours", "168", "168 (7 d)"),
        ("log.retention.hours", "5", "5"),
        ("offsets.retention.minutes", "90", "90 (1 h 30 min)"),
        ("leader.imbalance.check.interval.seconds", "59", "59"),
        ("retention.bytes", "-1", "-1 (no limit)"),
        ("local.retention.ms", "-2", "-2 (as retention.ms)"),
        ("segment.bytes", "1073741824", "1073741824 (1 GiB)"),
        ("segment.bytes", str(2**31 - 1), f"{2**31 - 1} (about 2 GiB)"),
        ("segment.bytes", "1572864", "1572864 (1.5 MiB)"),
        ("segment.bytes", "10000000", "10000000 (10 MB)"),
        ("segment.bytes", "1000", "1000"),
        ("max.message.bytes", "1048588", "1048588 (about 1 MiB)"),
        ("max.connections", str(2**31 - 1), f"{2**31 - 1} (no limit)"),
        ("socket.send.buffer.bytes", "-1", "-1 (system default)"),
        ("log.cleaner.io.max.bytes.per.second", "1.048576E7", "1.048576E7 (10 MiB/s)"),
        ("log.cleaner.io.max.bytes.per.second", "1.7976931348623157E308", "1.7976931348623157E308 (no limit)"),
        ("log.cleaner.dedupe.buffer.size", "134217728", "134217728 (128 MiB)"),
        ("consumer.session.timeout.ms", "45000", "45000 (45 s)"),
        ("listener.name.internal.connections.max.idle.ms", "600000", "600000 (10 min)"),
        ("num.partitions", "12", "12"),
        ("min.cleanable.dirty.ratio", "0.5", "0.5"),
        ("cleanup.policy", "compact", "compact"),
        ("no.such.key.ms", "60000", "60000"),
        ("retention.ms", "7d", "7d"),
        ("log.retention.ms", None, None),
        ("compression.type", "", ""),
    ],
)
def test_a_number_has_its_readable_form_in_parentheses_if_that_adds_information(name, value, shown):
    assert with_reading(name, value) == shown


def test_every_key_of_a_time_or_size_has_a_unit():
    """Every key whose name ends like a time or a size must have a readable form."""

    def shows(key: ConfigKey) -> bool:
        return any(with_reading(key.name, str(number)) != str(number) for number in (7_200_000, 1 << 20))

    numbers = [key for key in (*TOPIC_KEYS.values(), *BROKER_KEYS.values()) if key.type in (INT, LONG)]
    assert [
        key.name for key in numbers if key.name.endswith(("ms", "bytes", "seconds", "hours")) and not shows(key)
    ] == []
