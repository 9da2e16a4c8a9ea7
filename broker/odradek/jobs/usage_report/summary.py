"""The summary of the report: JSON for alerts, lines of text for the terminal.

Runs in the driver of the report's job; writes no files.
`docs/operate/usage-report.md` lists the keys of the JSON, which are stable.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from odradek.jobs.usage_report import counts
from odradek.jobs.usage_report.aggregates import Figures
from odradek.jobs.usage_report.capacity import Disk
from odradek.jobs.usage_report.cost import Cost, Prices
from odradek.jobs.usage_report.findings import Finding, Gaps, inside_period, week_sums
from odradek.jobs.usage_report.forecast import Fullness
from odradek.jobs.usage_report.page.text import Table, table_lines

#: Maximum number of rows of a table on a terminal, if not five: what-ifs are rows of the table of disks.
_ROWS = {"disks": 24}
#: Increased when a key changes its meaning.
FORMAT = 1


@dataclass(frozen=True)
class Summary:
    """The result of `report.build`: `document` is the content of the JSON file, `text` is for a terminal, `files` were
    written."""

    document: dict[str, Any]
    text: tuple[str, ...]
    files: tuple[Path, ...]

    def lines(self) -> tuple[str, ...]:
        """Return the lines for the terminal: the summary of the report, and the paths of its files."""
        return (*self.text, "", *(f"report: {path}" for path in self.files))

    def json(self) -> str:
        return json.dumps(self.document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def document(
    figures: Figures, disks: Sequence[Disk], findings: Sequence[Finding], gaps: Gaps, costs: Sequence[Cost],
    prices: Prices | None, source: str, began: int | None,
) -> dict[str, Any]:  # fmt: skip
    """Return the content of the JSON file. Sizes are bytes, times ISO in UTC, shares 0 to 1; null means unknown."""
    inside = inside_period(figures)
    now, before, known = week_sums(figures)
    return {
        "format": FORMAT,
        "from": _iso(figures.first),
        "to": _iso(figures.last),
        "first_data": None if began is None else _iso(began),
        "source": source,
        "worst": findings[0].level if findings else "good",
        "findings": [
            {"level": finding.level, "key": finding.key, "subject": finding.subject, "sentence": finding.sentence}
            for finding in findings
        ],
        "traffic": {
            **{count.column: int(inside[count.column].sum()) for count in counts.TABLE if count.in_summary},
            "compared_hours": len(figures.compared),
            "compared_bytes": now if known else None,
            "compared_bytes_week_before": before if known else None,
        },
        "stored_bytes": int(figures.states["stored_bytes"].sum()) if len(figures.states) else None,
        "topics": len(figures.states),
        "clients": figures.counts["clients"],
        "unread_topics": figures.counts["unread_topics"],
        "unread_bytes": figures.counts["unread_bytes"],
        "missing": {"hours": gaps.hours, "seconds": gaps.seconds, "damaged_files": list(gaps.damaged_files)},
        "disks": [_disk(disk) for disk in disks],
        "lag": [
            {
                "kind": row.kind, "name": row.name, "topic": row.topic, "lag_max": int(row.lag_max),
                "lag_seconds_max": None if row.lag_seconds_max != row.lag_seconds_max else float(row.lag_seconds_max),
                "moved_back": None if row.back != row.back else _iso(int(row.back)),
            }
            for row in figures.lag.itertuples(index=False)
        ],
        "costs": None if not costs else {
            "currency": prices.currency if prices else None,
            "owners": [
                {
                    "owner": row.owner, "bytes_in": row.bytes_in, "bytes_out": row.bytes_out,
                    "stored_byte_hours": row.stored_byte_hours, "total": round(row.total, 6) if prices else None,
                }
                for row in costs
            ],
        },
    }  # fmt: skip


def _disk(disk: Disk) -> dict[str, Any]:
    return {
        "broker": disk.broker or None,
        "log_dir": disk.name,
        "total_bytes": disk.total,
        "free_bytes": disk.free,
        "growth_bytes_a_day": None if disk.forecast is None else round(disk.forecast.growth_a_day),
        "measured_days": len(disk.days),
        "no_forecast": disk.refusal or None,
        "days_until_full": _full(disk.full),
        "what_if": [
            {"what_if": scenario.what_if.text, "days_until_full": _full(scenario.full)} for scenario in disk.scenarios
        ],
    }


def _full(full: Fullness | None) -> dict[str, Any] | None:
    if full is None:
        return None
    return {
        "median": _short(full.median),
        "low_80": _short(full.low_80),
        "high_80": _short(full.high_80),
        "low_95": _short(full.low_95),
        "high_95": _short(full.high_95),
        "chance_within_a_year": round(full.chance, 4),
    }


def _short(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


def _iso(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def lines(title: str, findings: Sequence[Finding], tables: Sequence[Table]) -> tuple[str, ...]:
    """Return the report for a terminal: the findings, then the first rows of the most important tables."""
    signs = {"bad": "!!", "warn": " !", "note": "  ", "good": "ok"}
    out = [title, ""]
    out += [f"{signs[finding.level]} {finding.sentence}" for finding in findings]
    for table in tables:
        if table.rows:
            out += ["", f"{table.title}:", *(f"  {line}" for line in table_lines(table, _ROWS.get(table.name, 5)))]
    return tuple(out)
