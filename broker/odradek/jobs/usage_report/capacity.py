"""The disks: their usage, when they will be full, and the effect of each `--what-if`.

Runs in the driver of the report's job, on the small frames of `aggregates`; `forecast` and `whatif` contain the mathematics.

A disk is full when the broker refuses producers: at its hard limit, 256 MiB free or one percent if that is less
(`odradek.log.dir.hard.free.*` by default). Log directories of one broker with the same numbers are on one file system and
count as one disk. A day counts, with its highest usage, if half of its hours have data. The spool of a broker with several log
directories contains which topics are in which directory; without that, the effect of a what-if is divided among the disks in
proportion to their usage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from odradek.jobs.usage_report import whatif
from odradek.jobs.usage_report.aggregates import DAY
from odradek.jobs.usage_report.forecast import Forecast, Fullness, TooShort, fit

HORIZON_DAYS = 365
HARD_MARK_BYTES = 268_435_456
HARD_MARK_SHARE = 0.01
_LEAST_HOURS = 12
#: A jump of less than this fraction of a disk is not a step.
_STEP_SHARE = 0.005


@dataclass(frozen=True)
class Scenario:
    """A `--what-if` on one disk."""

    what_if: whatif.WhatIf
    forecast: Forecast
    full: Fullness


@dataclass(frozen=True)
class Disk:
    """A disk; `days` and `used` are its daily series (days since 1970, bytes). `refusal` is the reason if there is no forecast.

    `limit` is the usage in bytes at which the broker refuses producers.
    """

    name: str
    broker: str
    total: int
    free: int
    limit: float
    days: tuple[int, ...]
    used: tuple[float, ...]
    forecast: Forecast | None
    full: Fullness | None
    refusal: str
    scenarios: tuple[Scenario, ...]
    knows_topics: bool = True  # whether the topics on the disk are known

    @property
    def label(self) -> str:
        """The name for people, with the broker if it is known."""
        return f"{self.name} of broker {self.broker}" if self.broker else self.name

    @property
    def used_share(self) -> float:
        return 1 - self.free / self.total if self.total else 0.0


def topics_of(states: pd.DataFrame) -> tuple[list[whatif.Topic], dict[str, int]]:
    """Return the topics for `whatif`, and their numbers of logs (replicas), from `aggregates.Figures.states`."""
    topics, replicas = [], {}
    for row in states.itertuples(index=False):
        # unknown offsets: a rate of 0, with which the forecast of the disk stays as its history is
        held = 0.0 if pd.isna(row.records_a_day) else max(0.0, row.end_offsets - row.start_offsets)
        rate = row.records_a_day * row.stored_bytes / held if held else 0.0
        count = max(1, int(row.replicas))
        replicas[str(row.topic)] = count
        topics.append(
            whatif.Topic(
                str(row.topic),
                float(row.stored_bytes),
                max(0.0, float(rate)),
                row.retention_ms / whatif.DAY_MS if row.retention_ms >= 0 else np.inf,
                float(row.retention_bytes) * count if row.retention_bytes >= 0 else np.inf,
            )
        )
    return topics, replicas


def disks(
    log_dirs: pd.DataFrame, states: pd.DataFrame, what_ifs: Sequence[whatif.WhatIf], placed: pd.DataFrame
) -> list[Disk]:
    """Return the disks, ordered by the time until they are full. :param placed: `Figures.placed`"""
    series = _file_systems(log_dirs)
    topics, replicas = topics_of(states)
    shares = _shares(series, topics, placed)
    known = len(series) == 1 or not placed.empty
    result = [
        replace(_disk(broker, name, rows, topics, replicas, shares[broker, name], what_ifs), knows_topics=known)
        for (broker, name), rows in series.items()
    ]
    return sorted(result, key=_urgency)


def _shares(
    series: dict[tuple[str, str], pd.DataFrame], topics: Sequence[whatif.Topic], placed: pd.DataFrame
) -> dict[tuple[str, str], dict[str, float]]:
    """Return per disk the share of each topic that it holds; for a topic without `placed`, the disk's share of all
    used bytes.
    """
    used = {key: float(rows["total"].iloc[-1] - rows["free"].iloc[-1]) for key, rows in series.items()}
    all_used = sum(used.values()) or 1.0
    disk_of = {(key[0], path): key for key, rows in series.items() for path in rows.attrs["paths"]}
    by_topic: dict[str, dict[tuple[str, str], float]] = {}
    for row in placed.itertuples(index=False):
        disk = disk_of.get((row.broker, row.path))
        if disk is not None and row.bytes > 0:
            of_topic = by_topic.setdefault(row.topic, {})
            of_topic[disk] = of_topic.get(disk, 0.0) + float(row.bytes)
    result: dict[tuple[str, str], dict[str, float]] = {key: {} for key in series}
    for topic in topics:
        of_topic = by_topic.get(topic.name) or used
        total = sum(of_topic.values()) if topic.name in by_topic else all_used
        for disk, size in of_topic.items():
            result[disk][topic.name] = size / total
    return result


def _urgency(disk: Disk) -> tuple[float, float, str, str]:
    median = np.inf if disk.full is None or disk.full.median is None else disk.full.median
    return float(median), -disk.used_share, disk.broker, disk.name


def _file_systems(log_dirs: pd.DataFrame) -> dict[tuple[str, str], pd.DataFrame]:
    """Return {(broker, name): hourly rows} of each disk; directories with the same numbers are joined."""
    systems: dict[tuple[str, str], pd.DataFrame] = {}
    for (broker, path), rows in log_dirs.groupby(["broker", "path"], sort=True):
        rows = rows.sort_values("hour", ignore_index=True)
        rows.attrs["paths"] = (str(path),)
        twin = next((key for key, other in systems.items() if key[0] == broker and _same(rows, other)), None)
        if twin is None:
            systems[str(broker), str(path)] = rows
        else:
            both = systems.pop(twin)
            both.attrs["paths"] += (str(path),)
            systems[twin[0], f"{twin[1]}, {path}"] = both
    return systems


def _same(left: pd.DataFrame, right: pd.DataFrame) -> bool:
    both = left.merge(right, on="hour")
    if both.empty or not (both["total_x"] == both["total_y"]).all():
        return False
    apart = (both["free_x"] - both["free_y"]).abs().mean()
    # compared with what is used: the free space of two large disks with little data is nearly equal too
    return bool(apart <= 0.001 * (both["total_x"] - both["free_x"]).mean())


def daily(rows: pd.DataFrame) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Return the days (since 1970) with data for at least half of their hours, and the highest usage of each."""
    used = (rows["total"] - rows["free"]).astype(float)
    grouped = used.groupby(rows["hour"] // DAY).agg(["max", "count"])
    grouped = grouped[grouped["count"] >= _LEAST_HOURS]
    return tuple(int(day) for day in grouped.index), tuple(float(value) for value in grouped["max"])


def _disk(
    broker: str, name: str, rows: pd.DataFrame, topics: Sequence[whatif.Topic], replicas: dict[str, int],
    shares: dict[str, float], what_ifs: Sequence[whatif.WhatIf],
) -> Disk:  # fmt: skip
    total, free = int(rows["total"].iloc[-1]), int(rows["free"].iloc[-1])
    limit = total - min(HARD_MARK_BYTES, HARD_MARK_SHARE * total)
    days, used = daily(rows)
    made, full, refusal, scenarios = None, None, "", []
    try:
        slowing = whatif.filling(topics, shares, HORIZON_DAYS)
        made = fit(days, used, HORIZON_DAYS, resolution=_STEP_SHARE * total).shifted(slowing)
    except TooShort as error:
        refusal = f"a forecast {error}"
    if made is not None:
        full = made.until(limit)
        for what_if in what_ifs:
            matched = sum(topic.stored * shares.get(topic.name, 0.0) for topic in topics if what_if.matches(topic.name))
            change = whatif.change(topics, replicas, shares, what_if, HORIZON_DAYS)
            other = made.shifted(change, floor=max(0.0, total - free - matched))
            scenarios.append(Scenario(what_if, other, other.until(limit)))
    return Disk(name, broker, total, free, limit, days, used, made, full, refusal, tuple(scenarios))
