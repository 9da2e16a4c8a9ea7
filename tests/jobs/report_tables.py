"""Generated tables of the report, as `odradek.jobs.usage_report.tables` writes them, without a spool.

Three weeks and more of one broker with two disks, weekly and daily rhythm, a topic that nobody reads, a reader that falls
behind, a busy worker, a gap of five hours and one damaged file. Deterministic: the same arguments make the same tables.
"""

import math
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

HOUR, DAY = 3600, 86400
GB = 10**9
END = int(datetime(2026, 11, 20, tzinfo=UTC).timestamp())
GAP = (END - 3 * DAY + 2 * HOUR, END - 3 * DAY + 7 * HOUR)
TIME = pa.timestamp("us", tz="UTC")

#: A client id that a page must not take for its own text.
HOSTILE = "</script><img src=http://127.0.0.1:9/x>"
CLIENTS = (
    # principal, client, topic, share of the produced bytes, share of the fetched bytes
    ("User:shop", "checkout-7", "orders.placed", 0.30, 0.0),
    ("User:shop", "checkout-8", "orders.placed", 0.22, 0.0),
    ("User:shop", "stock", "stock.levels", 0.08, 0.02),
    ("User:web", "clickstream", "web.clicks", 0.25, 0.0),
    ("User:etl", "spark-lake", "orders.placed", 0.0, 0.55),
    ("User:etl", "spark-lake", "web.clicks", 0.0, 0.25),
    ("User:bi", "dashboards", "orders.placed", 0.0, 0.18),
    ("User:audit", "audit-writer", "audit.trail", 0.15, 0.0),
    ('User:<b>"&', HOSTILE, "web.clicks", 0.0, 0.01),
)
TOPICS = {
    # partitions, bytes at the beginning, GB a day, retention in days, skew of the largest partition
    "orders.placed": (12, 120 * GB, 5.2, 60, 1.1),
    "web.clicks": (24, 160 * GB, 2.5, -1, 1.0),
    "audit.trail": (3, 30 * GB, 1.5, -1, 2.4),
    "stock.levels": (6, 8 * GB, 0.8, 7, 1.3),
    "__consumer_offsets": (50, GB // 10, 0.0, -1, 4.0),
}
BYTES_A_RECORD = 400


def rhythm(hour: int) -> float:
    """Return the factor of an hour: 1 on average, weekends at six tenths, nights at a quarter."""
    weekend = datetime.fromtimestamp(hour, UTC).weekday() >= 5
    of_day = 1 + 0.75 * math.sin((hour % DAY / HOUR - 9) / 24 * 2 * math.pi)
    return of_day * (0.6 if weekend else 1.16)


def make_tables(
    directory: Path, days: int = 28, end: int = END, *, gap: tuple[int, int] | None = GAP, seed: int = 1,
    more_topics: int = 12, prometheus: bool = False,
) -> Path:  # fmt: skip
    """Write the tables of `days` days before `end` into `directory` and return it.

    :param gap: seconds from and to between which nothing is known
    :param prometheus: leave out what Prometheus does not know: the broker of a log directory, the retention of a topic
    """
    random = np.random.default_rng(seed)
    hours = [h for h in range(end - days * DAY, end, HOUR) if gap is None or not gap[0] <= h < gap[1]]
    traffic, topics, dirs, lag, workers, coverage = [], [], [], [], [], []
    topic_sizes = dict(TOPICS)
    for number in range(more_topics):
        topic_sizes[f"team{number % 4}.feed-{number}"] = (4, (3 + number) * GB // 4, 0.01 * number, 14, 1.0)
    stored = {name: float(start) for name, (_, start, _, _, _) in topic_sizes.items()}
    ends = {name: int(start / BYTES_A_RECORD) for name, start in stored.items()}
    starts = dict.fromkeys(stored, 0)
    disk_used = {"/data/a": 700.0 * GB, "/data/b": 420.0 * GB}
    lagging = 2000.0
    for hour in hours:
        noise = float(np.exp(random.normal(0, 0.12)))
        total_in = 10 * GB / 24 * rhythm(hour) * noise
        for number, (principal, client, topic, share_in, share_out) in enumerate(CLIENTS):
            into, out = int(total_in * share_in), int(total_in * 2.1 * share_out)
            if client == "checkout-8" and hour < end - 5 * DAY:
                into //= 3
            for api, bytes_in, bytes_out in (("Produce", into, 0), ("Fetch", 0, out)):
                if bytes_in or bytes_out:
                    errors = 2 if number == 3 else 0  # those of the row without a topic, once more
                    traffic.append((hour, principal, client, topic, api, bytes_in, bytes_out,
                                    bytes_in // BYTES_A_RECORD, bytes_out // BYTES_A_RECORD, 900, errors, 0, 0))  # fmt: skip
            busy = rhythm(hour) > 1.9 and client == "spark-lake"
            api = "Fetch" if share_out else "Produce"
            traffic.append((hour, principal, client, None, api, 90_000 + number, 120_000 + number, 0, 0,
                            int(4000 * rhythm(hour)), int(random.integers(0, 9)) if number == 3 else 0,
                            90_000 if busy else 0, 3_600_000 * (1 + number % 3)))  # fmt: skip
        for name, (partitions, _, rate, retention, skew) in topic_sizes.items():
            grown = rate * GB / 24 * rhythm(hour) * noise
            if retention > 0 and stored[name] + grown > rate * GB * retention:
                starts[name] += int(grown / BYTES_A_RECORD)
                grown_stored = 0.0
            else:
                grown_stored = grown
            stored[name] += grown_stored
            ends[name] += int(grown / BYTES_A_RECORD)
            disk_used["/data/a"] += 0.6 * grown_stored
            disk_used["/data/b"] += 0.4 * grown_stored
            topics.append((hour, name, partitions, int(stored[name]), int(stored[name] / partitions * skew), ends[name],
                           starts[name], None if prometheus else retention * 86_400_000 if retention > 0 else -1,
                           None if prometheus else -1))  # fmt: skip
        for path, total in (("/data/a", 1000 * GB), ("/data/b", 1000 * GB)):
            dirs.append(
                (
                    hour,
                    None if prometheus else 1,
                    path,
                    int(total - disk_used[path] - random.integers(0, GB // 2)),
                    total,
                )
            )
        lagging += 260 * rhythm(hour) * (1 if hour > end - 6 * DAY else 0)
        lag.append((hour, "group", "billing", "orders.placed", int(lagging), lagging * 0.93, lagging / 90))
        behind = int(500 * rhythm(hour) * noise)
        lag.append((hour, "group", "search-index", "web.clicks", behind, behind * 0.5, behind / 400))
        lag.append((hour, "reader", "User:etl/spark-lake", "web.clicks", behind * 9, behind * 4.0, behind / 60))
        for worker, share in enumerate((0.5, 0.2, 0.17, 0.13)):
            workers.append((hour, worker, int(30 + 25 * share * rhythm(hour)), min(1.0, 0.45 * share * rhythm(hour) * noise),
                            int(total_in * share), int(total_in * 1.9 * share)))  # fmt: skip
        coverage.append((hour, "spool", 60, 3_600_000))
    gaps = []
    if gap is not None:
        gaps.append((gap[0], gap[1], "the broker did not run, or did not write its usage spool", "between boots", ""))
        at = gap[1] + HOUR
        gaps.append((at, at + 60, "1 interval missing; the file ends in the middle of an interval",
                     "usage-20261117T08-0badcafe.jsonl.gz, byte 4711", "usage-20261117T08-0badcafe.jsonl.gz"))  # fmt: skip
    counts = [
        "bytes_in",
        "bytes_out",
        "records_in",
        "records_out",
        "requests",
        "errors",
        "throttle_ms",
        "connection_ms",
    ]
    integer, text, real = pa.int64(), pa.string(), pa.float64()
    _write(directory, "traffic_hourly", traffic, [("hour", TIME), *((n, text) for n in ("principal", "client", "topic", "api")),
                                                  *((n, integer) for n in counts)])  # fmt: skip
    _write(directory, "topics_hourly", topics, [("hour", TIME), ("topic", text), *((n, integer) for n in (
        "partitions", "stored_bytes", "largest_partition_bytes", "end_offsets", "start_offsets", "retention_ms",
        "retention_bytes"))])  # fmt: skip
    _write(directory, "log_dirs_hourly", dirs, [("hour", TIME), ("broker", integer), ("path", text),
                                                ("free_bytes_min", integer), ("total_bytes", integer)])  # fmt: skip
    _write(directory, "lag_hourly", lag, [("hour", TIME), ("kind", text), ("name", text), ("topic", text),
                                          ("lag_max", integer), ("lag_avg", real), ("lag_seconds_max", real)])  # fmt: skip
    _write(directory, "workers_hourly", workers, [("hour", TIME), ("worker", integer), ("connections_max", integer),
        ("busy_share", real), ("bytes_in", integer), ("bytes_out", integer)])  # fmt: skip
    _write(directory, "coverage_hourly", coverage, [("hour", TIME), ("source", text), ("intervals", integer),
                                                    ("covered_ms", integer)])  # fmt: skip
    _write(
        directory,
        "gaps",
        gaps,
        [("from", TIME), ("to", TIME), ("reason", text), ("source", text), ("damaged_files", text)],
    )
    return directory


def _write(directory: Path, name: str, rows: list[tuple], columns: list[tuple[str, pa.DataType]]) -> None:
    by_day: dict[str, list[tuple]] = {}
    for row in rows:
        by_day.setdefault(datetime.fromtimestamp(row[0], UTC).strftime("%Y-%m-%d"), []).append(row)
    for day, some in by_day.items():
        values = {}
        for index, (column, kind) in enumerate(columns):
            cells = [row[index] for row in some]
            if kind == TIME:
                cells = [datetime.fromtimestamp(cell, UTC) for cell in cells]
            values[column] = pa.array(cells, kind)
        target = directory / name / f"day={day}"
        target.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(values), target / "part-0.parquet")
