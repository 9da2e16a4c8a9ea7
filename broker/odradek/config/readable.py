"""Readable forms of configuration values: durations and sizes, in addition to the raw number. Constants and pure functions.

Only texts for people contain them; output for programs contains the raw value. The unit of a key follows from its type and
name, which are Kafka's.
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
"""Longer durations have no readable form."""


class _Unit(NamedTuple):
    """The unit of a number: ``factor`` ms, or bytes if ``factor`` is 0. ``suffix`` is appended to the readable form."""

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
"""Units by the suffix of a key's name. The first match applies."""
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
        "system default": {
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
"""Numbers with a special meaning, the text for it, and the keys to which it applies."""


def with_reading(name: str, value: str | None) -> str | None:
    """The value of a topic, broker or group key with its readable form in parentheses: "604800000 (7 d)".

    Returns the value only if it has no readable form, or if the key is not in the tables.
    """
    key = TOPIC_KEYS.get(name) or broker_key(name) or GROUP_KEYS.get(name)
    if key is None or not value:
        return value
    text = reading(key, value)
    return f"{value} ({text})" if text else value


def reading(key: ConfigKey, value: str) -> str:
    """The readable form of a value: a duration, a size, or a text such as "no limit"; "" if the number needs none.

    A rounded form begins with "about".
    """
    number = _number(key, value)
    if number is None:
        return ""
    special = next((text for text, names in _SPECIAL.get(number, {}).items() if key.name in names), "")
    if special:
        return special
    if number == _largest(key):
        return "no limit"
    unit = next((unit for end, unit in _UNITS if key.name.endswith(end)), None)
    if unit is None or number <= 0:
        return ""
    text = _span(number * unit.factor) if unit.factor else _size(number)
    is_redundant = text in ("", f"{number} {_NAMES.get(unit.factor)}")
    return "" if is_redundant else text + unit.suffix


def _number(key: ConfigKey, value: str) -> int | None:
    """The value as an integer; None if it is not a whole number."""
    if key.type not in (INT, SHORT, LONG, DOUBLE):
        return None
    try:
        number = float(value) if key.type == DOUBLE else int(value)
    except ValueError:
        return None
    return int(number) if math.isfinite(number) and not number % 1 else None


def _largest(key: ConfigKey) -> int | None:
    """The number that means "no limit": the largest of its type; for INT only if it is the default, else it is an amount."""
    if key.type == INT:
        return MAX_INT if key.default == MAX_INT else None
    return {LONG: MAX_LONG, DOUBLE: int(MAX_DOUBLE)}.get(key.type)


def _span(ms: int) -> str:
    """Format a duration: "7 d", "1 h 30 min", "1.5 s"; "" below one second and above 1000 years."""
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
    """Format a size: "1 GiB", "1.5 MiB", "10 GB", "about 976.6 KiB"; "" below 1 KiB."""
    binary = next(((name, size) for name, size in _BINARY if number >= size), None)
    if binary is None:
        return ""
    decimal = next((name, size) for name, size in _DECIMAL if number >= size)
    for name, size in (binary, decimal):
        if number * 10 % size == 0:
            return f"{number / size:g} {name}"
    rounded = f"{number / binary[1]:.1f}".removesuffix(".0")
    return f"about {rounded} {binary[0]}"
