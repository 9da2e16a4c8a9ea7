"""Parses the times, durations and sizes that users type. Pure functions; the ValueError shows the correct form."""

import re
from datetime import datetime

from odradek.clients.errors import ClientError

UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
UNITS_BYTES = {"b": 1, "k": 1 << 10, "kb": 1000, "kib": 1 << 10, "m": 1 << 20, "mb": 10**6, "mib": 1 << 20}
UNITS_BYTES |= {"g": 1 << 30, "gb": 10**9, "gib": 1 << 30, "t": 1 << 40, "tb": 10**12, "tib": 1 << 40}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)")


def duration_ms(text: str) -> int:
    """A duration in ms, from "90s", "1h30m", "7d", or a number of ms. Raises ValueError."""
    word = text.strip().lower()
    if word.lstrip("-").isdigit():
        return int(word)
    parts = _PART.findall(word)
    if not parts or _PART.sub("", word).strip() or any(unit not in UNITS_MS for _, unit in parts):
        raise ValueError(f"'{text}' is not a duration: write e.g. 7d, 1h30m, 90s, 500ms, or a number of ms")
    return round(sum(float(number) * UNITS_MS[unit] for number, unit in parts))


def size_bytes(text: str) -> int:
    """A size in bytes, from "512MiB", "10GB", "1g" (powers of 1024), or a number of bytes. Raises ValueError."""
    word = text.strip().lower()
    if word.lstrip("-").isdigit():
        return int(word)
    match = _PART.fullmatch(word)
    if match is None or match[2] not in UNITS_BYTES:
        raise ValueError(f"'{text}' is not a size: write e.g. 512MiB, 10GB or a number of bytes")
    return round(float(match[1]) * UNITS_BYTES[match[2]])


def time_ms(text: str, now_ms: int) -> int:
    """ms since 1970, from an ISO 8601 time (default: this machine's time zone), ms since 1970, or "-1h" (an hour ago).

    Raises ValueError.
    """
    word = text.strip()
    if word.isdigit():
        return int(word)
    try:
        if word.startswith("-"):
            return now_ms - duration_ms(word[1:])
        return round(datetime.fromisoformat(word).timestamp() * 1000)
    except ValueError:
        raise ValueError(
            f"'{text}' is not a time: write e.g. 2026-01-31T12:00, 2026-01-31T12:00:00Z, -1h (an hour ago), or ms since 1970"
        ) from None


def config_value(key: str, text: str) -> str:
    """A configuration value as brokers read it: durations become ms for .ms keys, and sizes become bytes for .bytes keys.

    Raises ClientError.
    """
    try:
        if key.endswith(".ms"):
            return str(duration_ms(text))
        if key.endswith(".bytes"):
            return str(size_bytes(text))
    except ValueError as error:
        raise ClientError(f"{key}: {error}") from None
    return text
