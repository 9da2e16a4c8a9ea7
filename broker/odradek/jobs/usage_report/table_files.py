"""Writes the files of the tables: one Spark job writes all tables of a run, and each day is replaced by a rename.

The driver plans (`write`), Spark's Python workers write (`_write_batches`): the rows of all tables are one frame, with the
columns of all tables and the name of each row's table, distributed and sorted by table and day, so that each day of a table
is one file of one task. A separate job for each table would cost much more. The workers write into a staging directory
under the output directory, which all machines of a cluster must share; the driver moves the files that finished tasks report.
The next run removes the staging directory of a killed run (`remove_staging`).
"""

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from odradek.jobs.usage_report.counts import COUNTS
from odradek.jobs.usage_report.gaps import Gap
from odradek.jobs.usage_report.times import day_name

_STAGING = ".staging-"
_INT, _TEXT, _REAL, _TIME = pa.int64(), pa.string(), pa.float64(), pa.timestamp("us", tz="UTC")


def _fields(names: str, kind: pa.DataType) -> list[pa.Field]:
    return [pa.field(name, kind) for name in names.split()]


_HOUR = pa.field("hour", _TIME)
#: The columns of each table in order, beginning with the columns that identify a row.
SCHEMAS: dict[str, pa.Schema] = {
    "traffic_hourly": pa.schema([
        _HOUR, *_fields("principal client topic api", _TEXT),
        *_fields(" ".join(COUNTS), _INT),
    ]),
    "topics_hourly": pa.schema([
        _HOUR, *_fields("topic", _TEXT),
        *_fields("partitions replicas stored_bytes largest_partition_bytes end_offsets start_offsets", _INT),
        *_fields("retention_ms retention_bytes", _INT),
    ]),
    "topic_dirs_hourly": pa.schema(
        [_HOUR, *_fields("topic", _TEXT), *_fields("broker", _INT), *_fields("path", _TEXT), *_fields("stored_bytes", _INT)]
    ),
    "log_dirs_hourly": pa.schema(
        [_HOUR, *_fields("broker", _INT), *_fields("path", _TEXT), *_fields("free_bytes_min total_bytes", _INT)]
    ),
    "lag_hourly": pa.schema(
        [_HOUR, *_fields("kind name topic", _TEXT), *_fields("lag_max", _INT), *_fields("lag_avg lag_seconds_max", _REAL),
         *_fields("back_ms", _INT)]
    ),
    "workers_hourly": pa.schema([
        _HOUR, *_fields("broker worker connections_max", _INT), *_fields("busy_share", _REAL),
        *_fields("bytes_in bytes_out", _INT),
    ]),
    "coverage_hourly": pa.schema(
        [_HOUR, *_fields("broker", _INT), *_fields("source", _TEXT), *_fields("intervals covered_ms carried_ms", _INT)]
    ),
    "gaps": pa.schema([*(pa.field(name, _TIME) for name in ("from", "to")), *_fields("reason source damaged_files", _TEXT)]),
}  # fmt: skip
#: The order of rows for all tables: it contains the columns that identify a row, in the order of each table.
_ORDER = ("table", "day", "hour", "kind", "principal", "client", "name", "topic", "api", "broker", "path", "worker")
_WRITTEN = "table string, day string, file string"


def remove_staging(directory: Path) -> None:
    """Remove what runs that were killed left; older versions wrote with Spark's own committer."""
    for pattern in (f"{_STAGING}*", "*/.spark-staging-*"):
        for left in directory.glob(pattern):
            shutil.rmtree(left)


def write(
    directory: Path, tables: Mapping[str, DataFrame], gaps: Iterable[Gap], coverage: Iterable[Mapping[str, Any]],
    days: Sequence[str],
) -> None:  # fmt: skip
    """Replace these days as a whole; if a table has no row of a day, its partition of that day is removed.

    :param tables: by name, with the columns of `SCHEMAS`; `hour` is in milliseconds
    :param coverage: rows with `hour_ms` instead of `hour`
    """
    staging = Path(tempfile.mkdtemp(prefix=_STAGING, dir=directory))
    staging.chmod(0o777 & ~_umask())  # the tasks of a cluster may run as another user
    try:
        written = {(row["table"], row["day"]): row["file"] for row in _write_frames(staging, tables, days)}
        for name, table in _small_tables(gaps, coverage).items():
            for day, rows in _by_day(table).items():
                if day in days:
                    written[name, day] = _new_file(staging)
                    pq.write_table(rows, written[name, day])
        for name in (*tables, "gaps", "coverage_hourly"):
            (directory / name).mkdir(exist_ok=True)  # the directory of a table without rows exists too
            for day in days:
                _replace(directory / name / f"day={day}", written.get((name, day)), staging)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def _new_file(staging: Path) -> str:
    """Return the path of a file in a new directory, which becomes the directory of the day."""
    name = uuid.uuid4().hex
    (staging / name).mkdir()
    return str(staging / name / f"part-{name}.parquet")


def _replace(target: Path, file: str | None, staging: Path) -> None:
    """Replace a day's directory by the directory of `file`, or remove it; the old directory is removed with `staging`."""
    if target.is_dir():
        target.rename(staging / uuid.uuid4().hex)
    if file is not None:
        Path(file).parent.rename(target)


def _write_frames(staging: Path, tables: Mapping[str, DataFrame], days: Sequence[str]) -> list[Any]:
    if not tables or not days:
        return []
    kinds = {field.name: field.type for name in tables for field in SCHEMAS[name]}
    spark_kinds = {_INT: "bigint", _TEXT: "string", _REAL: "double", _TIME: "bigint"}
    frames = []
    for name, frame in tables.items():
        known = set(SCHEMAS[name].names)
        columns = [
            (F.col(column) if column in known else F.lit(None)).cast(spark_kinds[kind]).alias(column)
            for column, kind in kinds.items()
        ]
        day = F.date_format(F.timestamp_millis("hour"), "yyyy-MM-dd").alias("day")
        frames.append(frame.select(F.lit(name).alias("table"), day, *columns).where(F.col("day").isin(*days)))
    rows = reduce(DataFrame.union, frames)
    order = [name for name in _ORDER if name in rows.columns]
    placed = rows.repartition("table", "day").sortWithinPartitions(*order)
    return placed.mapInArrow(partial(_write_batches, staging), _WRITTEN).collect()


def _write_batches(staging: Path, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a Python worker: write a file for each table and day of the sorted rows."""
    current: tuple[str, str] | None = None
    writer: pq.ParquetWriter | None = None
    file = ""
    done: list[dict[str, str]] = []
    try:
        for batch in batches:
            for (name, day), rows in _runs(batch):
                if (name, day) != current:
                    if writer is not None:
                        writer.close()
                    current, file = (name, day), _new_file(staging)
                    writer = pq.ParquetWriter(file, SCHEMAS[name])
                    done.append({"table": name, "day": day, "file": file})
                assert writer is not None
                writer.write_table(_as_stored(name, rows))
    finally:
        if writer is not None:
            writer.close()
    if done:
        yield pa.RecordBatch.from_pylist(done)


def _runs(batch: pa.RecordBatch) -> Iterator[tuple[tuple[str, str], pa.Table]]:
    """Yield the rows of each table and day, which are contiguous."""
    table = pa.Table.from_batches([batch])
    names, days = (batch.column(batch.schema.get_field_index(name)).dictionary_encode() for name in ("table", "day"))
    codes = names.indices.to_numpy().astype(np.int64) * len(days.dictionary) + days.indices.to_numpy()
    bounds = [0, *(np.flatnonzero(np.diff(codes)) + 1).tolist(), len(codes)]
    for start, end in pairwise(bounds):
        if end > start:
            name, day = names[start].as_py(), days[start].as_py()
            yield (name, day), table.slice(start, end - start)


def _as_stored(name: str, rows: pa.Table) -> pa.Table:
    columns = []
    for field in SCHEMAS[name]:
        column = rows.column(field.name)
        if field.type == _TIME:
            column = column.cast(pa.timestamp("ms", tz="UTC"))
        columns.append(column.cast(field.type))
    return pa.table(columns, schema=SCHEMAS[name])


def _small_tables(gaps: Iterable[Gap], coverage: Iterable[Mapping[str, Any]]) -> dict[str, pa.Table]:
    """Return the tables that the driver makes without Spark: a few rows per hour."""
    gap_rows = [dict(zip(SCHEMAS["gaps"].names, gap, strict=True)) for gap in sorted(gaps)]
    hour_rows = [{**row, "hour": row["hour_ms"]} for row in coverage]
    result = {}
    for name, rows in (("gaps", gap_rows), ("coverage_hourly", hour_rows)):
        numbers = pa.schema([(field.name, _INT if field.type == _TIME else field.type) for field in SCHEMAS[name]])
        result[name] = _as_stored(name, pa.Table.from_pylist(rows, numbers))
    return result


def _by_day(table: pa.Table) -> dict[str, pa.Table]:
    days: dict[str, list[int]] = {}
    for index, at in enumerate(table.column(0).cast(_INT).to_pylist()):
        days.setdefault(day_name(at // 1000), []).append(index)
    return {day: table.take(indices) for day, indices in days.items()}
