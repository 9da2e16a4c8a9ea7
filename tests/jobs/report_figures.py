"""Hand-made figures of the report, for tests of findings and texts without Spark and without tables."""

from typing import Any

import pandas as pd

from odradek.jobs.usage_report.aggregates import DAY, GAP_COLUMNS, HOUR, Figures
from odradek.jobs.usage_report.counts import COUNTS

FIRST = 1_763_596_800  # 2025-11-20
LAG_COLUMNS = (
    "kind", "name", "topic", "lag_max", "lag_seconds_max", "lag_first", "lag_last", "stall_hours", "stall_begin", "stall_end",
    "catches_up", "back", "back_late",
)  # fmt: skip
STATE_COLUMNS = (
    "topic", "hour", "partitions", "replicas", "stored_bytes", "largest_partition_bytes", "end_offsets", "start_offsets",
    "retention_ms", "retention_bytes", "before", "records_a_day",
)  # fmt: skip


def frame(columns: tuple[str, ...], rows: list[tuple[Any, ...]] | None = None) -> pd.DataFrame:
    return pd.DataFrame(rows or [], columns=list(columns))


def hours(bytes_in: list[int], first: int = FIRST) -> pd.DataFrame:
    """Return traffic by hour with only these bytes in."""
    rows = [(first + index * HOUR, moved, *(0 for _ in COUNTS[1:])) for index, moved in enumerate(bytes_in)]
    return frame(("hour", *COUNTS), rows)


def figures(**given: Any) -> Figures:
    """Return the figures of an empty day without gaps; the arguments replace its fields."""
    first = given.get("first", FIRST)
    last = given.get("last", first + DAY)
    clients = frame(("principal", "client", *COUNTS, "week", "week_before"))
    values: dict[str, Any] = {
        "first": first, "last": last, "history_first": first, "covered": frozenset(range(first, last, HOUR)),
        "compared": (), "compared_wanted": 24, "hourly": hours([0] * 24), "topics": frame(("topic", "bytes_in", "bytes_out")),
        "clients": clients, "apis": frame(("api", "requests", "errors")), "states": frame(STATE_COLUMNS),
        "stored_daily": frame(("date", "name", "stored", "topics")),
        "unread": frame(("topic", "stored_bytes", "records_a_day", "last_read")),
        "log_dirs": frame(("broker", "path", "hour", "free", "total")), "lag": frame(LAG_COLUMNS),
        "lag_hourly": frame(("hour", "kind", "name", "topic", "lag", "seconds")),
        "workers": frame(("hour", "worker", "connections_max", "busy_share", "bytes_in", "bytes_out")),
        "gaps": frame(GAP_COLUMNS),
        "counts": {"topics_with_traffic": 0, "clients": 0, "throttled_clients": 0, "unread_topics": 0, "unread_bytes": 0},
        "carried": {}, "placed": frame(("topic", "broker", "path", "bytes")),
    }  # fmt: skip
    return Figures(**(values | given))


def log_dir(path: str, used: list[float], total: float, first: int = FIRST, broker: str = "1") -> list[tuple[Any, ...]]:
    """Return rows of `Figures.log_dirs` with one value per day for all of its hours."""
    return [
        (broker, path, first + day * DAY + hour * HOUR, int(total - value), int(total))
        for day, value in enumerate(used)
        for hour in range(24)
    ]
