"""Values of settings as people read them: spans of time and sizes beside the raw number. Constants and pure functions.

For texts alone: what programs read has the raw value. The unit of a key follows from its type and name, which are Kafka's.
"""

import math
from typing import NamedTuple

from odradek.config.dynamic import GROUP_KEYS
from odradek.config.key import DOUBLE, INT, LONG, MAX_DOUBLE, MAX_INT, MAX_LONG, SHORT, ConfigKey
from odradek.config.table import TOPIC_KEYS, broker_key

_MS, _SECONDS, _MINUTES, _HOURS = 1, 1000, 60_000, 3_600_000
_TIMES = (("d", 86_400_000), ("h", _HOURS), ("min", _MINUTES), ("s", _SECONDS), ("ms", _MS))
_NAMES = {length: name for name, length in _TIMES}
_BINARY = (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
_DECIMAL = (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 1000))
_LONGEST_MS = 1000 * 365 * 86_400_000
"""Longer spans are not turned into days."""


class _Unit(NamedTuple):
    """What a number counts: ms times ``factor``, or (0) bytes, with ``suffix`` behind them."""

    factor: int
    suffix: str = ""


_BYTES = _Unit(0)
_UNITS = (
    ("bytes.per.second", _Unit(0, "/s")),
    ("throttled.rate", _Unit(0, "/s")),
    (".bytes", _BYTES),
    (".buffer.size", _BYTES),
    (".receive.size", _BYTES),
    (".ms", _Unit(_MS)),
    (".millis", _Unit(_MS)),
    (".seconds", _Unit(_SECONDS)),
    (".secs", _Unit(_SECONDS)),
    (".minutes", _Unit(_MINUTES)),
    (".hours", _Unit(_HOURS)),
)
"""Units by the end of a key's name; the first that fits counts."""
_SPECIAL = {
    -1: {
        "no limit": {
            "retention.ms",
            "retention.bytes",
            "log.retention.ms",
            "log.retention.minutes",
            "log.retention.hours",
            "log.retention.bytes",
            "queued.max.request.bytes",
        },
        "the system's": {
            "socket.send.buffer.bytes",
            "socket.receive.buffer.bytes",
            "replica.socket.receive.buffer.bytes",
        },
    },
    -2: {
        "as retention.ms": {"local.retention.ms", "log.local.retention.ms"},
        "as retention.bytes": {"local.retention.bytes", "log.local.retention.bytes"},
    },
}
"""Numbers that are no amount, with their meaning and the keys that give it to them."""


def with_reading(name: str, value: str | None) -> str | None:
    """The value of a topic's, broker's or group's key and, in parentheses, how people read it: "604800000 (7 d)".

    The value alone if its reading says nothing more, if it is no number, or if no row of the tables has that name.
    """
    key = TOPIC_KEYS.get(name) or broker_key(name) or GROUP_KEYS.get(name)
    if key is None or not value:
        return value
    words = reading(key, value)
    return f"{value} ({words})" if words else value


def reading(key: ConfigKey, value: str) -> str:
    """The span or size that a value means, "no limit" where that is what it means; "" if the number says it all.

    What is rounded begins with "about".
    """
    number = _number(key, value)
    if number is None:
        return ""
    special = next((words for words, names in _SPECIAL.get(number, {}).items() if key.name in names), "")
    if special:
        return special
    if number == _largest(key):
        return "no limit"
    unit = next((unit for end, unit in _UNITS if key.name.endswith(end)), None)
    if unit is None or number <= 0:
        return ""
    words = _span(number * unit.factor) if unit.factor else _size(number)
    says_no_more = words in ("", f"{number} {_NAMES.get(unit.factor)}")
    return "" if says_no_more else words + unit.suffix


def _number(key: ConfigKey, value: str) -> int | None:
    """None for what is no whole number."""
    if key.type not in (INT, SHORT, LONG, DOUBLE):
        return None
    try:
        number = float(value) if key.type == DOUBLE else int(value)
    except ValueError:
        return None
    return int(number) if math.isfinite(number) and not number % 1 else None


def _largest(key: ConfigKey) -> int | None:
    """The number that means no limit: the type's largest, of ints only where it is the default (else it is an amount)."""
    if key.type == INT:
        return MAX_INT if key.default == MAX_INT else None
    return {LONG: MAX_LONG, DOUBLE: int(MAX_DOUBLE)}.get(key.type)


def _span(ms: int) -> str:
    """ "7 d", "1 h 30 min", "1.5 s"; "" for less than a second, and for more than a thousand years."""
    if not 1000 <= ms <= _LONGEST_MS:
        return ""
    if ms < _MINUTES:
        return f"{ms / 1000:g} s"
    parts, rest = [], ms
    for name, length in _TIMES:
        count, rest = divmod(rest, length)
        if count:
            parts.append(f"{count} {name}")
    return " ".join(parts) if len(parts) <= 2 else "about " + " ".join(parts[:2])


def _size(number: int) -> str:
    """ "1 GiB", "1.5 MiB", "10 GB", "about 976.6 KiB"; "" for less than a KiB."""
    binary = next(((name, size) for name, size in _BINARY if number >= size), None)
    if binary is None:
        return ""
    decimal = next((name, size) for name, size in _DECIMAL if number >= size)
    for name, size in (binary, decimal):
        if number * 10 % size == 0:
            return f"{number / size:g} {name}"
    rounded = f"{number / binary[1]:.1f}".removesuffix(".0")
    return f"about {rounded} {binary[0]}"
