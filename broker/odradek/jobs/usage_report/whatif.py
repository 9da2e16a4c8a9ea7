"""The future size of a topic under another retention or another growth: a deterministic model of stock and flow.

Runs in the driver of the report's job; pure functions.

The model of a topic: bytes arrive at a steady rate and are deleted at the age of `retention.ms`, or earlier if
`retention.bytes` is reached. The rate is that of its last days, in stored bytes: records appended times the mean stored
size of a record. If a topic exceeds its retention today (segments that are not closed yet), it is assumed to exceed it
always by as much.

The forecast of a disk uses two results: how much less a topic will grow because it will reach its retention (`filling`),
and the difference that a `--what-if` makes (`change`).
"""

from __future__ import annotations

import fnmatch
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from odradek.jobs.usage_report.errors import ReportError

DAY_MS = 86_400_000
_EXPECTED = "expected KEY=VALUE,... of retention.ms, retention.bytes, growth, topic"
_DURATION = re.compile(r"(\d{1,16})\s*(ms|s|m|h|d|w)?")
_DURATION_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": DAY_MS, "w": 7 * DAY_MS}
_SIZE = re.compile(r"(\d{1,18}(?:\.\d{1,6})?)\s*(B|[kKMGT]B?|[KMGT]iB)?")
_SIZE_BYTES = {"B": 1, **{p: 1000**n for n, p in enumerate("kMGT", 1)}, "K": 1000}
_LONGEST_MS = 36_500 * DAY_MS


@dataclass(frozen=True)
class Topic:
    """The current state of a topic: `stored` bytes, `rate` in bytes per day, retention in days and bytes (inf: none)."""

    name: str
    stored: float
    rate: float
    retention_days: float
    retention_bytes: float

    @property
    def age_days(self) -> float:
        """The days in which the stored bytes arrived at the current rate; inf if nothing arrives."""
        return self.stored / self.rate if self.rate > 0 else math.inf


@dataclass(frozen=True)
class WhatIf:
    """One `--what-if`: None means no change; `text` is the text of the option."""

    text: str
    topic: str = "*"
    retention_days: float | None = None
    retention_bytes: float | None = None
    growth: float = 1.0

    def matches(self, topic: str) -> bool:
        return fnmatch.fnmatchcase(topic, self.topic)


def parse(text: str) -> WhatIf:
    """Read ``retention.ms=7d,topic=orders.*,growth=1.3``.

    Times are milliseconds or have a unit (ms, s, m, h, d, w), sizes are bytes or have one (GB, GiB, ...); -1 is no limit.
    `topic` is a shell pattern (``*``, ``?``, ``[...]``); without it all topics change. `retention.bytes` is per partition.
    Raises ReportError with the error and what is expected.
    """
    values: dict[str, str] = {}
    for part in text.split(","):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not value:
            raise ReportError(f"--what-if {text}: {part.strip() or 'nothing'!r}: {_EXPECTED}")
        if key not in ("retention.ms", "retention.bytes", "growth", "topic"):
            raise ReportError(f"--what-if {text}: unknown key {key!r}: {_EXPECTED}")
        if key in values:
            raise ReportError(f"--what-if {text}: {key} is given twice; give --what-if twice for two scenarios")
        values[key] = value
    if set(values) <= {"topic"}:
        raise ReportError(f"--what-if {text}: changes nothing: give retention.ms, retention.bytes or growth")
    days = size = None
    growth = 1.0
    if "retention.ms" in values:
        days = _duration_days(text, values["retention.ms"])
    if "retention.bytes" in values:
        size = _size_bytes(text, values["retention.bytes"])
    if "growth" in values:
        growth = _factor(text, values["growth"])
    return WhatIf(text, values.get("topic", "*"), days, size, growth)


def _factor(text: str, value: str) -> float:
    try:
        growth = float(value)
    except ValueError:
        growth = -1.0
    if not 0 <= growth <= 1000:
        raise ReportError(f"--what-if {text}: growth={value}: expected a factor from 0 to 1000, such as 1.3")
    return growth


def _duration_days(text: str, value: str) -> float:
    if value == "-1":
        return math.inf
    match = _DURATION.fullmatch(value)
    ms = int(match[1]) * _DURATION_MS[match[2] or "ms"] if match else 0
    if not 0 < ms <= _LONGEST_MS:
        raise ReportError(
            f"--what-if {text}: retention.ms={value}: expected milliseconds, or a number with ms, s, m, h, d or w "
            "up to 100 years, or -1 for no limit"
        )
    return ms / DAY_MS


def _size_bytes(text: str, value: str) -> float:
    if value == "-1":
        return math.inf
    match = _SIZE.fullmatch(value)
    if match is None:
        raise ReportError(
            f"--what-if {text}: retention.bytes={value}: expected bytes per partition, or a number with kB, MB, GB, TB, "
            "KiB, MiB, GiB or TiB, or -1 for no limit"
        )
    unit = match[2] or "B"
    factor: int = 1024 ** "KMGT".index(unit[0]) * 1024 if unit.endswith("iB") else _SIZE_BYTES[unit[0]]
    return float(match[1]) * factor


def stored_at(
    topic: Topic, days: NDArray[np.float64], growth: float, retention_days: float, retention_bytes: float
) -> NDArray[np.float64]:
    """Return the topic's bytes `days` from now if arrivals are multiplied by `growth` and these limits apply from now on.

    Exact for a steady rate: the bytes that arrive from now on and are younger than the retention, plus today's bytes that will
    still be younger, both limited by `retention_bytes`.
    """
    over_days = max(0.0, topic.age_days - topic.retention_days) if math.isfinite(topic.retention_days) else 0.0
    over_bytes = max(0.0, topic.stored - topic.retention_bytes) if math.isfinite(topic.retention_bytes) else 0.0
    if topic.rate <= 0:
        if math.isfinite(retention_days) and retention_days < topic.retention_days:
            # nothing arrives and the age of the bytes is unknown: they are deleted after the shorter retention at the latest
            left = np.where(days >= retention_days, 0.0, topic.stored)
        else:
            left = np.full(len(days), topic.stored)
        return np.minimum(left, retention_bytes + over_bytes)
    limit = retention_days + over_days
    fresh = growth * topic.rate * np.minimum(days, limit)
    old = topic.rate * np.maximum(0.0, np.minimum(topic.age_days, limit - days))
    return np.minimum(fresh + old, retention_bytes + over_bytes)


def change(
    topics: Iterable[Topic], partitions: Mapping[str, int], shares: Mapping[str, float], what_if: WhatIf, horizon: int
) -> NDArray[np.float64]:
    """Return by how many bytes a disk differs under `what_if`, for 1 to `horizon` days from now.

    :param shares: the share of each topic (0 to 1) on the disk; a missing topic has no bytes on it
    """
    days = np.arange(1, horizon + 1, dtype=np.float64)
    total = np.zeros(horizon)
    for topic in topics:
        share = shares.get(topic.name, 0.0)
        if not share or not what_if.matches(topic.name):
            continue
        retention_days = topic.retention_days if what_if.retention_days is None else what_if.retention_days
        retention_bytes = topic.retention_bytes
        if what_if.retention_bytes is not None:
            retention_bytes = what_if.retention_bytes * max(1, partitions.get(topic.name, 1))
        base = stored_at(topic, days, 1.0, topic.retention_days, topic.retention_bytes)
        total += share * (stored_at(topic, days, what_if.growth, retention_days, retention_bytes) - base)
    return total


def filling(topics: Iterable[Topic], shares: Mapping[str, float], horizon: int) -> NDArray[np.float64]:
    """Return the difference to growth at today's rate that results from topics that reach their retention; never above 0.

    Only topics that are clearly below their limits count: the trend of a topic at its limit already shows no growth.

    :param shares: as in `change`
    """
    days = np.arange(1, horizon + 1, dtype=np.float64)
    total = np.zeros(horizon)
    for topic in topics:
        if topic.rate <= 0 or not topic.age_days < 0.9 * topic.retention_days:
            continue
        if not topic.stored < 0.9 * topic.retention_bytes:
            continue
        share = shares.get(topic.name, 0.0)
        if not share:
            continue
        unlimited = topic.stored + topic.rate * days
        total += share * (stored_at(topic, days, 1.0, topic.retention_days, topic.retention_bytes) - unlimited)
    return np.minimum(total, 0.0)
