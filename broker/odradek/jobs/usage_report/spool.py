"""Reads the brokers' usage spools into a Spark frame: the values of each series at the end of each hour, and damaged parts.

The driver lists the files (`find`) and distributes them; each Spark task reads files of one boot, in order. Values in
the spool are cumulative within (boot, page, principal, client, topic, api, since), so only the last row of a series in an hour
is needed: a task keeps one line per series, by the bytes of its key, and parses only the lines that are left at the end of the
hour. So the memory of a task depends on the number of series, not on the length of the period. `tables` computes differences.

An interval belongs to the hour in which it ends, but not to an hour before that of its file (if the clock was set back, the
file continues). The last file before the period is read for the initial values of the series; its rows have `hour` null.
"""

import io
import json
import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.json as pa_json
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from odradek.jobs.usage_report import counts
from odradek.jobs.usage_report.errors import ReportError
from odradek.jobs.usage_report.intervals import Damage, Interval, read_intervals
from odradek.jobs.usage_report.page.text import counted
from odradek.jobs.usage_report.times import HOUR_MS, milliseconds

_FILE = re.compile(r"usage-(\d{8})T(\d{2})-([0-9A-Za-z_]+)\.jsonl(\.gz)?")

_INT, _TEXT = pa.int64(), pa.string()
#: The columns of each kind in addition to `_PLACE`: (name in the JSON, name of the column, type).
_KINDS: dict[str, list[tuple[str, str, pa.DataType]]] = {
    "usage": [
        ("page", "page", _INT), ("principal", "principal", _TEXT), ("client", "client", _TEXT), ("topic", "topic", _TEXT),
        ("api", "api", _TEXT), ("since", "since", _INT), *((count.spool, count.column, _INT) for count in counts.TABLE),
    ],
    "topic": [
        ("topic", "topic", _TEXT), ("id", "id", _TEXT), ("partitions", "partitions", _INT), ("replicas", "replicas", _INT),
        ("bytes", "stored_bytes", _INT), ("largest", "largest_partition_bytes", _INT), ("end", "end_offsets", _INT),
        ("start", "start_offsets", _INT), ("led", "led", _INT), ("led_end", "led_end_offsets", _INT),
        ("led_start", "led_start_offsets", _INT), ("retention_ms", "retention_ms", _INT),
        ("retention_bytes", "retention_bytes", _INT),
    ],
    "stored": [("topic", "topic", _TEXT), ("path", "path", _TEXT), ("bytes", "stored_bytes", _INT)],
    "log_dir": [("path", "path", _TEXT), ("free", "free_bytes", _INT), ("total", "total_bytes", _INT)],
    "group": [
        ("group", "name", _TEXT), ("topic", "topic", _TEXT), ("lag", "lag", _INT), ("lag_s", "lag_seconds", pa.float64()),
    ],
    "reader": [
        ("principal", "principal", _TEXT), ("client", "client", _TEXT), ("topic", "topic", _TEXT), ("lag", "lag", _INT),
        ("lag_s", "lag_seconds", pa.float64()), ("back", "back_ms", _INT),
    ],
    "worker": [
        ("worker", "page", _INT), ("connections", "connections", _INT), ("busy_us", "busy_us", _INT),
        ("in", "bytes_in", _INT), ("out", "bytes_out", _INT),
    ],
}  # fmt: skip
#: The columns of every kind. `seq` is that of the last interval of the hour: it orders the rows of one series.
_PLACE = [("kind", _TEXT), ("boot", _TEXT), ("broker", _INT), ("seq", _INT), ("hour", _INT)]
_OWN = [
    # of kind "span": consecutive intervals of one hour; of "worker": of the whole hour; of all: `end_ms`, the end of `seq`
    ("first_seq", _INT), ("from_ms", _INT), ("end_ms", _INT), ("intervals", _INT), ("elapsed_ms", _INT),
    ("longest_ms", _INT), ("jump_ms", _INT),
    # of kind "damage", where `seq` is the last complete interval before it, and `end_ms` the end of that interval
    ("reason", _TEXT), ("source", _TEXT), ("damaged_file", _TEXT),
    # of kind "group" and "reader": over the intervals of the hour, beginning with the first one that has the row
    ("lag_max", _INT), ("lag_sum", _INT), ("lag_count", _INT), ("lag_seconds_max", pa.float64()),
]  # fmt: skip

FACTS = pa.schema([*_PLACE, *dict([(name, kind) for rows in _KINDS.values() for _, name, kind in rows] + _OWN).items()])

# In a usage row, the bytes before the first count identify the series; no JSON string can contain these bytes.
_KEY_END = f',"{counts.TABLE[0].spool}":'.encode()
_TOPIC_KEY_END = b',"partitions":'
_STORED_KEY_END = b',"bytes":'
_LAG_KEYS = {"group": ("name", "topic"), "reader": ("principal", "client", "topic")}
_KIND_AT = len(b'{"kind":"')
_USAGE, _TOPIC, _STORED = b"uts"


class SpoolFile(NamedTuple):
    """A file of the spool, of one boot; it begins in the hour at `hour_ms`. `place`: its directory, or URL of its listener."""

    path: Path
    hour_ms: int
    boot: str
    size: int
    place: str = ""


def file_of(path: Path, size: int, place: str) -> SpoolFile | None:
    """Return the file of this path; None if its name is not that of a file of a spool."""
    match = _FILE.fullmatch(path.name)
    if match is None:
        return None
    day, hour, boot, _ = match.groups()
    try:
        hour_ms = milliseconds(datetime.strptime(f"{day}{hour}+0000", "%Y%m%d%H%z"))
    except ValueError:  # not a date
        return None
    return SpoolFile(path, hour_ms, boot, size, place)


def sorted_files(files: Iterable[SpoolFile]) -> list[SpoolFile]:
    """Return the files by boot and hour."""
    return sorted(files, key=lambda file: (file.boot, file.hour_ms, file.path.name))


def find(directory: Path) -> list[SpoolFile]:
    """Return the files of the spool by boot and hour; if a file exists plain and compressed, only the plain one.

    :raises ReportError: `directory` cannot be listed
    """
    try:
        names = sorted(path.name for path in directory.iterdir())
    except OSError as error:
        raise ReportError(
            f"--spool {directory}: cannot read the directory: {error.strerror}; expected the directory of the usage spool"
        ) from None
    present = set(names)
    files = []
    for name in names:
        file = file_of(directory / name, 0, str(directory))
        if file is None or (name.endswith(".gz") and name.removesuffix(".gz") in present):
            continue
        try:
            files.append(file._replace(size=file.path.stat().st_size))
        except FileNotFoundError:  # deleted since it was listed
            continue
    return sorted_files(files)


def needed(files: list[SpoolFile], from_ms: int, to_ms: int) -> list[SpoolFile]:
    """Return the files that may contain intervals of the period, and for each boot the last file before them.

    A file begins with an interval that has all series, so the last file before the period has their initial values.
    """
    result = []
    for before, file in zip([None, *files], files, strict=False):
        if from_ms <= file.hour_ms < to_ms:
            if before is not None and before.boot == file.boot and before.hour_ms < from_ms:
                result.append(before)
            result.append(file)
    return result


def shares(files: list[SpoolFile], tasks: int, at_least: int = 4 << 20) -> list[list[SpoolFile]]:
    """Return the files in about `tasks` shares: each of one boot, and of at least `at_least` bytes except the last
    of a boot.
    """
    limit = max(at_least, sum(file.size for file in files) // max(1, tasks))
    result: list[list[SpoolFile]] = []
    size = 0
    for file in files:
        if not result or result[-1][0].boot != file.boot or size >= limit:
            result.append([])
            size = 0
        result[-1].append(file)
        size += file.size
    return result


def facts(spark: SparkSession, files: list[SpoolFile], from_ms: int, to_ms: int, tasks: int) -> DataFrame:
    """Return `FACTS` of these files, for a period of whole hours. The caller should persist it: each table reads all of it."""
    shared = shares(files, tasks)
    schema = from_arrow_schema(FACTS)
    if not shared:
        return spark.createDataFrame([], schema)
    numbers = spark.range(0, len(shared), 1, len(shared))
    return numbers.mapInArrow(partial(_read_shares, shared, from_ms, to_ms), schema)


def _read_shares(
    shared: list[list[SpoolFile]], from_ms: int, to_ms: int, numbers: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """In a Python worker: read the shares with these numbers."""
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            yield from read_share(shared[number], from_ms, to_ms)


def read_share(files: list[SpoolFile], from_ms: int, to_ms: int) -> Iterator[pa.RecordBatch]:
    """Yield `FACTS` of these files of one boot."""
    hour: _Hour | None = None
    begun = False
    for file in files:
        last_seq, last_end_ms = -1, file.hour_ms
        for part in read_intervals(file.path):
            if isinstance(part, Damage):
                yield _damage(file, last_seq, last_end_ms, part)
                continue
            if part.boot != file.boot:
                yield _damage(file, last_seq, last_end_ms, Damage(f"has an interval of boot {part.boot}", 0))
                continue
            last_seq, last_end_ms = part.seq, part.end_ms
            ended_ms = max(part.end_ms // HOUR_MS * HOUR_MS, file.hour_ms)
            if ended_ms >= to_ms:
                continue
            at_ms = ended_ms if ended_ms >= from_ms else None
            if hour is None or hour.at_ms != at_ms or part.seq <= hour.seq:
                if hour is not None:
                    yield from hour.batches()
                hour = _Hour(at_ms, file)
            hour.add(part, file)
            if not begun and part.seq > 1:
                # without earlier files, these are the initial values of the series, and differences begin with them
                yield from hour.usage_so_far()
            begun = True
    if hour is not None:
        yield from hour.batches()


class _Hour:
    """The intervals of one hour (or of the time before the period) that one task reads, in order."""

    def __init__(self, at_ms: int | None, file: SpoolFile) -> None:
        self.at_ms = at_ms
        self._file = file
        self.seq = -1
        self._boot, self._broker = file.boot, 0
        self._spans: list[dict[str, Any]] = []
        self._last: dict[str, dict[bytes, bytes]] = {"usage": {}, "topic": {}, "stored": {}}
        self._log_dirs: dict[str, dict[str, Any]] = {}
        self._workers: dict[int, dict[str, Any]] = {}
        self._lags: dict[tuple[str, ...], _Lag] = {}
        self._members: set[int] = set()  # ids of the live brokers of the cluster
        self._count = 0
        self._elapsed_ms = 0
        self._bad = 0

    def add(self, interval: Interval, file: SpoolFile) -> None:
        """Add an interval; only the last row of each series is kept."""
        self._file = file
        self._broker = interval.broker
        span = self._spans[-1] if self._spans else None
        if (
            span is not None
            and not interval.jump_ms
            and (interval.seq, interval.from_ms) == (span["seq"] + 1, span["end_ms"])
        ):
            span["seq"], span["end_ms"] = interval.seq, interval.end_ms
            span["intervals"] += 1
            span["elapsed_ms"] += interval.elapsed_ms
            span["longest_ms"] = max(span["longest_ms"], interval.elapsed_ms)
        else:
            self._spans.append({
                "first_seq": interval.seq, "seq": interval.seq, "from_ms": interval.from_ms, "end_ms": interval.end_ms,
                "intervals": 1, "elapsed_ms": interval.elapsed_ms, "longest_ms": interval.elapsed_ms,
                "jump_ms": interval.jump_ms, "source": file.path.name,
            })  # fmt: skip
        self.seq = interval.seq
        self._elapsed_ms += interval.elapsed_ms
        self._count += 1
        usage, topics, stored = self._last["usage"], self._last["topic"], self._last["stored"]
        for line in interval.rows:
            first = line[_KIND_AT] if len(line) > _KIND_AT else 0
            if first == _USAGE:
                usage[line[: line.find(_KEY_END)]] = line
            elif first == _TOPIC:
                topics[line[: line.find(_TOPIC_KEY_END)]] = line
            elif first == _STORED:
                stored[line[: line.find(_STORED_KEY_END)]] = line
            else:
                try:
                    self._add_small(json.loads(line))
                except (ValueError, KeyError, TypeError, AttributeError):
                    self._bad += 1

    def _add_small(self, row: dict[str, Any]) -> None:
        """Add a row of a kind with few rows."""
        kind = row.get("kind")
        if kind == "log_dir":
            kept = self._log_dirs.setdefault(row["path"], row)
            kept["free"] = min(kept["free"], row["free"])
            kept["total"] = row["total"]
        elif kind == "worker":
            before = self._workers.get(row["worker"])
            if before is not None:
                row["connections"] = max(row["connections"], before["connections"])
            self._workers[row["worker"]] = row
        elif kind == "cluster":
            self._members.update(int(broker) for broker in row["brokers"])
        elif kind in ("group", "reader"):
            key = tuple(row[ours if ours != "name" else "group"] for ours in _LAG_KEYS[kind])
            lag = self._lags.get((kind, *key))
            if lag is None:
                lag = self._lags[(kind, *key)] = _Lag(self._count)
            lag.becomes(self._count, row["lag"], row["lag_s"])
            lag.back_ms = row.get("back")  # groups and spools of older brokers do not have it

    def usage_so_far(self) -> Iterator[pa.RecordBatch]:
        """Yield the current values of the series."""
        if self._last["usage"]:
            yield self._batch("usage", _parse("usage", [*self._last["usage"].values()])[0])

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the hour."""
        yield self._batch(None, _rows([{"kind": "span", **span} for span in self._spans]))
        if self._members:
            yield self._batch("member", _rows([{"page": broker} for broker in sorted(self._members)]))
        small: dict[str, dict[Any, dict[str, Any]]] = {"log_dir": self._log_dirs, "worker": self._workers}
        lines = {kind: [*last.values()] for kind, last in self._last.items()}
        lines |= {kind: [json.dumps(row).encode() for row in rows.values()] for kind, rows in small.items()}
        for kind, rows in lines.items():
            if rows:
                table, bad = _parse(kind, rows)
                self._bad += bad
                yield self._batch(kind, table)
        lags = [
            {
                "kind": key[0],
                "lag": lag.value,
                "lag_seconds": lag.seconds,
                "back_ms": lag.back_ms,
                **lag.sums(self._count),
            }
            | dict(zip(_LAG_KEYS[key[0]], key[1:], strict=True))
            for key, lag in self._lags.items()
        ]
        if lags:
            yield self._batch(None, _rows(lags))
        if self._bad:
            reason = f"has {counted(self._bad, 'row')} with a valid checksum that cannot be parsed"
            source, end_ms = self._spans[-1]["source"], self._spans[-1]["end_ms"]
            damage = {"reason": reason, "source": source, "damaged_file": source, "end_ms": end_ms}
            yield self._batch("damage", _rows([damage]))

    def _batch(self, kind: str | None, table: pa.Table) -> pa.RecordBatch:
        constants = {"kind": kind, "boot": self._boot, "broker": self._broker, "seq": self.seq, "hour": self.at_ms}
        constants["end_ms"] = self._spans[-1]["end_ms"]
        if kind == "worker":
            constants |= {
                "first_seq": self._spans[0]["first_seq"],
                "intervals": self._count,
                "elapsed_ms": self._elapsed_ms,
            }
        return _facts(table, constants)


class _Lag:
    """The lag of one group or reader within an hour: rows are written only on changes, so a value is valid until the
    next row.
    """

    def __init__(self, at: int) -> None:
        self._first = self._since = at
        self.value = 0
        self.seconds: float | None = None
        self.back_ms: int | None = None
        self._sum = self._max = 0
        self._seconds_max: float | None = None

    def becomes(self, at: int, value: int, seconds: float | None) -> None:
        """:param at: the number of the interval within the hour, from 1"""
        self._sum += self.value * (at - self._since)
        self.value, self.seconds, self._since = value, seconds, at
        self._max = max(self._max, value)
        if seconds is not None:
            self._seconds_max = max(self._seconds_max or 0.0, float(seconds))

    def sums(self, count: int) -> dict[str, Any]:
        """:param count: intervals of the hour"""
        return {
            "lag_max": self._max,
            "lag_sum": self._sum + self.value * (count + 1 - self._since),
            "lag_count": count + 1 - self._first,
            "lag_seconds_max": self._seconds_max,
        }


def _parse(kind: str, lines: list[bytes]) -> tuple[pa.Table, int]:
    """Return the rows of one kind under the names of the columns, and the number of lines that cannot be parsed."""
    fields = _KINDS[kind]
    schema = pa.schema([(name, value) for name, _, value in fields])
    content = b"\n".join(lines)
    try:
        table = pa_json.read_json(
            io.BytesIO(content),
            read_options=pa_json.ReadOptions(use_threads=False, block_size=max(1 << 20, len(content) + 1)),
            parse_options=pa_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )
    except pa.ArrowInvalid:
        if len(lines) == 1:
            return schema.empty_table().rename_columns([ours for _, ours, _ in fields]), 1
        halves = [_parse(kind, half) for half in (lines[: len(lines) // 2], lines[len(lines) // 2 :])]
        return pa.concat_tables([table for table, _ in halves]), sum(bad for _, bad in halves)
    return table.select(schema.names).rename_columns([ours for _, ours, _ in fields]), 0


def _rows(rows: list[dict[str, Any]]) -> pa.Table:
    """Return a table with the columns of `FACTS` that any of the rows has."""
    names = {name for row in rows for name in row}
    return pa.Table.from_pylist(rows, pa.schema([field for field in FACTS if field.name in names]))


def _facts(table: pa.Table, constants: dict[str, Any]) -> pa.RecordBatch:
    """Return `FACTS` with the columns of `table`, else with constants, else null."""
    present = set(table.column_names)
    columns = []
    for field in FACTS:
        if field.name in present:
            column = table.column(field.name)
            columns.append(column.cast(field.type).combine_chunks())
        elif constants.get(field.name) is not None:
            columns.append(pa.repeat(pa.scalar(constants[field.name], field.type), table.num_rows))
        else:
            columns.append(pa.nulls(table.num_rows, field.type))
    return pa.record_batch(columns, schema=FACTS)


def _damage(file: SpoolFile, last_seq: int, last_end_ms: int, damage: Damage) -> pa.RecordBatch:
    row = {
        "reason": damage.reason,
        "source": f"{file.path.name}, {damage.unit} {damage.position}",
        "damaged_file": file.path.name,
        "end_ms": last_end_ms,
    }
    return _facts(_rows([row]), {"kind": "damage", "boot": file.boot, "seq": last_seq})
