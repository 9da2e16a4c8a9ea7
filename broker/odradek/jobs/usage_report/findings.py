"""Findings: the most important facts of the report, one sentence each, with a level and the section of the page.

Runs in the driver of the report's job; pure functions of the figures. The findings are at the top of the page, in the JSON
summary for alerts, and in the output of the command.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from odradek.jobs.usage_report.aggregates import DAY, HOUR, Figures
from odradek.jobs.usage_report.capacity import HORIZON_DAYS, Disk
from odradek.jobs.usage_report.page import text

BAD, WARN, NOTE, GOOD = "bad", "warn", "note", "good"
_ORDER = (BAD, WARN, NOTE, GOOD)
#: A lag below this many records is not a finding.
_LEAST_LAG = 1000
#: A lag that grew and never fell in this many known hours up to the end of the period is a finding.
_STALL_HOURS = 6


@dataclass(frozen=True)
class Finding:
    """One finding: `key` is stable, for alerts; `subject` is a disk, group or topic; `section` is an id of the page."""

    level: str
    key: str
    subject: str
    sentence: str
    section: str


@dataclass(frozen=True)
class Gaps:
    """Missing data of the period: hours without any data, seconds within gaps, and damaged files that were skipped in part."""

    hours: int
    seconds: int
    damaged_files: tuple[str, ...]


def gaps_of(figures: Figures) -> Gaps:
    """Count the missing data; gaps that overlap count once."""
    seconds, reached = 0, figures.first
    for row in figures.gaps.sort_values(["from", "to"]).itertuples(index=False):
        start, end = max(int(row[0]), reached), min(int(row[1]), figures.last)
        if end > start:
            seconds += end - start
            reached = end
    files = {name for names in figures.gaps["damaged_files"].dropna() for name in names.split()}
    return Gaps(figures.missing_hours, seconds, tuple(sorted(files)))


def findings(figures: Figures, disks: list[Disk], gaps: Gaps) -> list[Finding]:
    """Return all findings, the most severe first."""
    result = [
        *_disks(disks),
        *_missing(figures, gaps),
        *_lag(figures.lag),
        *_errors(figures),
        *_traffic(figures),
        *_growth(figures.states),
        *_unread(figures),
        *_skew(figures),
    ]
    return sorted(result, key=lambda finding: _ORDER.index(finding.level))


def span_of_days(low: float | None, high: float | None) -> str:
    """An interval of days, rounded outwards."""
    if low is None:
        return f"more than {HORIZON_DAYS} days"
    begin = int(low)
    if high is None:
        return f"{begin} to more than {HORIZON_DAYS} days"
    end = -int(-high // 1)
    return f"{begin} to {end} days" if end > begin else text.counted(begin, "day")


def in_days(value: float) -> str:
    """A number of days with its noun."""
    shown = text.days(value, HORIZON_DAYS)
    return f"{shown} {'day' if shown == '1' else 'days'}"


def _disks(disks: list[Disk]) -> list[Finding]:
    result = []
    calm = []
    for disk in disks:
        where = disk.label
        if disk.total - disk.free >= disk.limit:
            used, total = text.bytes_(disk.total - disk.free), text.bytes_(disk.total)
            sentence = f"{where} is full: {used} of {total} are used, and the broker refuses producers."
            result.append(Finding(BAD, "disk_full", where, sentence, "capacity"))
            continue
        if disk.full is None or disk.forecast is None:
            level = WARN if disk.used_share > 0.85 else NOTE
            sentence = f"{where} is {text.percent(disk.used_share, 0)} full; {disk.refusal}."
            result.append(Finding(level, "disk_no_forecast", where, sentence, "capacity"))
            continue
        full = disk.full
        if full.low_80 is None:
            calm.append(where)
            continue
        soon = full.median if full.median is not None else full.low_80
        level = BAD if soon < 14 else WARN if soon < 60 or full.low_80 < 30 else NOTE
        span = span_of_days(full.low_80, full.high_80)
        if full.median is None:
            sentence = f"{where} may be full in {span} (80 % interval), but probably not within {HORIZON_DAYS} days."
        else:
            day = text.date(disk.forecast.last_day + full.median)
            sentence = (
                f"{where} will be full in {in_days(full.median)}, about {day} "
                f"(80 % interval: {span}); it is {text.percent(disk.used_share, 0)} full and grows by "
                f"{text.bytes_(disk.forecast.growth_a_day)} a day."
            )
        result.append(Finding(level, "disk_fills", where, sentence, "capacity"))
    if calm:
        which = "No log directory" if len(calm) == len(disks) else f"{', '.join(calm)}: not expected to"
        verb = "is expected to be full" if len(calm) == len(disks) else "be full"
        sentence = f"{which} {verb} within {HORIZON_DAYS} days."
        result.append(Finding(GOOD, "disk_calm", ", ".join(calm), sentence, "capacity"))
    return result


def _missing(figures: Figures, gaps: Gaps) -> list[Finding]:
    result = []
    if gaps.hours == len(figures.hours):
        return [Finding(BAD, "no_data", "", "There are no data of this period.", "gaps")]
    if gaps.hours or gaps.seconds:
        whole = f" ({text.counted(gaps.hours, 'whole hour')})" if gaps.hours else ""
        sentence = (
            f"Data of {text.duration(max(gaps.seconds, gaps.hours * HOUR))} of the period are missing{whole}; "
            "charts show whole missing hours in grey."
        )
        result.append(Finding(WARN, "gaps", "", sentence, "gaps"))
    if gaps.damaged_files:
        many = len(gaps.damaged_files)
        verb = "file of the spool is" if many == 1 else "files of the spool are"
        names = ", ".join(gaps.damaged_files[:3]) + (f" and {text.count(many - 3)} more" if many > 3 else "")
        sentence = (
            f"{text.count(many)} {verb} damaged: {names}. The report skipped only the parts that it could not read."
        )
        result.append(Finding(WARN, "damaged_files", "", sentence, "gaps"))
    return result


def _lag(lag: pd.DataFrame) -> list[Finding]:
    """Groups and readers whose lag doubled, and groups and readers whose lag grew and never fell.

    The members of a group are observed as readers too: a reader whose lag is not higher than that of a group with a finding on
    the same topic gets no finding. Nor does one that catches up, or a reader whose position moved back lately: it reads records
    again.
    """
    result = []
    groups: dict[str, float] = {}
    for row in lag.sort_values("kind", kind="stable").itertuples(index=False):  # groups before readers
        first, late = row.lag_first, row.lag_last
        stalled = row.stall_hours >= _STALL_HOURS and row.stall_end - row.stall_begin >= _LEAST_LAG
        grows = not pd.isna(first) and not pd.isna(late) and late >= max(_LEAST_LAG, 2 * first)
        if row.back_late or not (stalled or (grows and not row.catches_up)):
            continue
        behind = max(float(row.lag_max), 0.0)
        if row.kind == "group":
            groups[row.topic] = max(behind, groups.get(row.topic, 0.0))
        elif behind <= 1.1 * groups.get(row.topic, 0.0):
            continue
        seconds = row.lag_seconds_max
        level = WARN if stalled or pd.isna(seconds) or seconds >= 300 else NOTE
        result.append(
            (behind, Finding(level, "lag_grows", f"{row.name} {row.topic}", _lag_sentence(row, stalled), "lag"))
        )
    return [finding for _, finding in sorted(result, key=lambda entry: -entry[0])][:3]


def _lag_sentence(row: Any, stalled: bool) -> str:
    who = f"{'Group' if row.kind == 'group' else 'Reader'} {row.name}"
    seconds = row.lag_seconds_max
    behind = "" if pd.isna(seconds) else f"; the oldest unread record was up to {text.duration(seconds)} old"
    if stalled:
        hours = text.counted(row.stall_hours, "known hour")
        return (
            f"{who} does not catch up on {row.topic}: in the last {hours} its mean lag of an hour never fell and grew from "
            f"{text.count(row.stall_begin)} to {text.counted(row.stall_end, 'record')}{behind}."
        )
    return (
        f"{who} falls behind on {row.topic}: its mean lag grew from {text.count(row.lag_first)} in the first quarter of the "
        f"period to {text.counted(row.lag_last, 'record')} in the last quarter{behind}."
    )


def _errors(figures: Figures) -> list[Finding]:
    result = []
    inside = inside_period(figures)
    requests, errors = int(inside["requests"].sum()), int(inside["errors"].sum())
    if requests and errors / requests > 0.01:
        share = text.percent(errors / requests, 2)
        sentence = f"{text.counted(errors, 'error')} in {text.counted(requests, 'request')} ({share})."
        result.append(Finding(WARN, "errors", "", sentence, "errors"))
    throttled = figures.clients[figures.clients["throttle_ms"] > 0].sort_values("throttle_ms", ascending=False)
    if len(throttled):
        first = throttled.iloc[0]
        sentence = (
            f"{text.counted(figures.counts['throttled_clients'], 'client was', 'clients were')} throttled. "
            f"{first['client']} ({first['principal']}) has the longest total throttle time: "
            f"{text.duration(first['throttle_ms'] / 1000)}."
        )
        result.append(Finding(NOTE, "throttled", str(first["client"]), sentence, "errors"))
    return result


def inside_period(figures: Figures) -> pd.DataFrame:
    """Return the hourly traffic of the period, without the week before it."""
    hourly = figures.hourly
    return hourly[(hourly["hour"] >= figures.first // HOUR * HOUR) & (hourly["hour"] < figures.last)]


def busiest(figures: Figures) -> pd.DataFrame:
    """Return the hours of the period with `moved`, their bytes in and out, the busiest first.

    Hours that also contain the counts of a gap before them are left out, because their bytes belong to a longer time.
    """
    inside = inside_period(figures)
    inside = inside.assign(moved=inside["bytes_in"] + inside["bytes_out"])
    return inside[~inside["hour"].isin(figures.carried)].sort_values(["moved", "hour"], ascending=[False, True])


def week_sums(figures: Figures) -> tuple[int, int, bool]:
    """Return the bytes in and out of the compared hours now and a week before, and whether enough hours can be compared."""
    moved = figures.hourly.set_index("hour")[["bytes_in", "bytes_out"]].sum(axis=1)
    now = moved[moved.index.isin(figures.compared)].sum()
    before = moved[moved.index.isin([hour - 7 * DAY for hour in figures.compared])].sum()
    known = figures.compared_wanted > 0 and len(figures.compared) >= figures.compared_wanted / 2
    return int(now), int(before), known


def _traffic(figures: Figures) -> list[Finding]:
    inside = inside_period(figures)
    if inside.empty:
        return []
    into, out = text.bytes_(inside["bytes_in"].sum()), text.bytes_(inside["bytes_out"].sum())
    sentence = f"The broker received {into} and sent {out}"
    peaks = busiest(figures)
    if len(peaks):
        peak = peaks.iloc[0]
        rate = text.rate(peak["moved"] / HOUR)
        sentence += f"; the busiest hour was {text.moment(peak['hour'])} UTC with {rate} in and out together"
    sentence += "."
    now, before, known = week_sums(figures)
    if known and before:
        sentence += f" In and out compared with the week before: {text.change(now, before)}."
    return [Finding(NOTE, "traffic", "", sentence, "traffic")]


def _growth(states: pd.DataFrame) -> list[Finding]:
    known = states[states["before"].notna()]
    if known.empty:
        return []
    grown = (known["stored_bytes"] - known["before"]).astype(float)
    first = grown.idxmax()
    all_grown = float(grown[grown > 0].sum())
    if all_grown <= 0:
        return []
    share = text.percent(grown[first] / all_grown)
    sentence = (
        f"Topic {known.loc[first, 'topic']} grew most in a week: by {text.bytes_(grown[first])}, {share} of all growth; "
        f"its size is {text.bytes_(known.loc[first, 'stored_bytes'])}."
    )
    return [Finding(NOTE, "growth", str(known.loc[first, "topic"]), sentence, "storage")]


def _unread(figures: Figures) -> list[Finding]:
    many = figures.counts["unread_topics"]
    if not many:
        return []
    largest = str(figures.unread["topic"].iloc[0])
    which = text.counted(many, "topic that contains records was", "topics that contain records were")
    sentence = (
        f"{which} not read; {'its size is' if many == 1 else 'their total size is'} "
        f"{text.bytes_(figures.counts['unread_bytes'])}, the largest is {largest}."
    )
    return [Finding(NOTE, "unread", largest, sentence, "unread")]


def _skew(figures: Figures) -> list[Finding]:
    result = []
    shares = worker_shares(figures.workers)
    if len(shares) > 1:
        first, worker = shares.iloc[0], shares["worker"].iloc[0]
        if first["share"] * len(shares) > 1.6 and first["bytes"] > 0:
            sentence = (
                f"Worker {worker} handled {text.percent(first['share'])} of the traffic; "
                f"an even share would be {text.percent(1 / len(shares))}."
            )
            result.append(Finding(NOTE, "worker_skew", str(worker), sentence, "skew"))
    skewed = partition_skew(figures.states)
    heavy = skewed[
        (skewed["skew"] >= 2) & (skewed["largest_partition_bytes"] >= 0.02 * figures.states["stored_bytes"].sum())
    ]
    if len(heavy):
        first = heavy.iloc[0]
        sentence = (
            f"The largest partition of topic {first['topic']} is {first['skew']:.1f} times as large as the mean of its "
            f"{int(first['partitions'])} partitions."
        )
        result.append(Finding(NOTE, "partition_skew", str(first["topic"]), sentence, "skew"))
    return result


def worker_shares(workers: pd.DataFrame) -> pd.DataFrame:
    """Return per worker: bytes in and out, share of all, mean and highest busy share, most connections; the busiest first."""
    if workers.empty:
        return pd.DataFrame(columns=["worker", "bytes", "share", "busy_mean", "busy_max", "connections"])
    moved = workers.assign(bytes=workers["bytes_in"].fillna(0) + workers["bytes_out"].fillna(0))
    rows = moved.groupby("worker").agg(
        bytes=("bytes", "sum"),
        busy_mean=("busy_share", "mean"),
        busy_max=("busy_share", "max"),
        connections=("connections_max", "max"),
    )
    rows["share"] = rows["bytes"] / max(1, rows["bytes"].sum())
    return rows.reset_index().sort_values(["bytes", "worker"], ascending=[False, True], ignore_index=True)


def partition_skew(states: pd.DataFrame) -> pd.DataFrame:
    """Return topics of several partitions with `skew` (largest partition / mean) and `excess` bytes, the worst first."""
    rows = states[(states["partitions"] > 1) & (states["stored_bytes"] > 0)].copy()
    mean = rows["stored_bytes"] / rows["replicas"]
    rows["skew"] = rows["largest_partition_bytes"] / mean
    rows["excess"] = rows["largest_partition_bytes"] - mean
    return rows.sort_values(["excess", "topic"], ascending=[False, True], ignore_index=True)
