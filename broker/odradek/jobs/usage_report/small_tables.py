"""Reads tables with a few rows per hour in the driver, because a Spark job would take longer.

Only reads Parquet files. Columns that files of an older version lack are null. Times are seconds since 1970, UTC.
"""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from odradek.jobs.usage_report.table_files import SCHEMAS

DAY = 86400
HOUR = 3600


def days(directory: Path, name: str, first: int, last: int) -> list[Path]:
    """Return the directories of a table's days from `first` to before `last`, in order; directories without a file
    are left out.
    """
    names = {date.fromordinal(_EPOCH + day).isoformat() for day in range(first // DAY, -(-last // DAY))}
    paths = sorted((directory / name).glob("day=*"))
    return [path for path in paths if path.name.removeprefix("day=") in names and any(path.glob("*.parquet"))]


def has_older(directory: Path, first: int) -> bool:
    """Whether a table has a day before that of `first`."""
    return any(days(directory, name, 0, first // DAY * DAY) for name in SCHEMAS if name != "gaps")


def brokers_before(directory: Path, first: int) -> set[int] | None:
    """Return the ids of the brokers with rows before `first`; None: all, because rows do not name their broker.

    It is empty exactly if `has_older` is false.
    """
    if not has_older(directory, first):
        return set()
    brokers: set[int | None] = set()
    for day in days(directory, "log_dirs_hourly", 0, first // DAY * DAY):
        for file in day.glob("*.parquet"):
            brokers.update(pc.unique(pq.ParquetFile(file).read(["broker"]).column("broker")).to_pylist())
    known = {broker for broker in brokers if broker is not None}
    return known if known and len(known) == len(brokers) else None


def day_number(path: Path) -> int:
    """Return the days since 1970 of a directory of `days`."""
    return date.fromisoformat(path.name.removeprefix("day=")).toordinal() - _EPOCH


def hours(path: Path, first: int, last: int) -> set[int]:
    """Return the hours from `first` to before `last` with a row in the day's directory."""
    result: set[int] = set()
    for file in path.glob("*.parquet"):
        column = pq.ParquetFile(file).read(["hour"]).column("hour")
        result.update(
            value for value in pc.unique(_seconds(column)).to_pylist() if first // HOUR * HOUR <= value < last
        )
    return result


def read(directory: Path, name: str, first: int, last: int) -> pd.DataFrame:
    """Return the rows of a table with an hour from `first` to before `last`; of the table `gaps` those that overlap
    this time.
    """
    schema = SCHEMAS[name]
    tables = []
    # a gap is stored with the day of its beginning and ends at midnight at the latest
    for day in days(directory, name, first, last):
        for file in sorted(day.glob("*.parquet")):
            content = pq.ParquetFile(file).read()
            columns = [
                content.column(field.name)
                if field.name in content.column_names
                else pa.nulls(content.num_rows, field.type)
                for field in schema
            ]
            tables.append(
                pa.table([_plain(column, field) for column, field in zip(columns, schema, strict=True)], schema.names)
            )
    if not tables:
        empty = [
            pa.field(field.name, pa.int64() if pa.types.is_timestamp(field.type) else field.type) for field in schema
        ]
        tables.append(pa.schema(empty).empty_table())
    rows = pa.concat_tables(tables).to_pandas()
    if name == "gaps":  # a gap of length 0 has a time too
        return rows[(rows["from"] < last) & ((rows["to"] > first) | (rows["from"] >= first))].reset_index(drop=True)
    return rows[(rows["hour"] >= first // HOUR * HOUR) & (rows["hour"] < last)].reset_index(drop=True)


_EPOCH = date(1970, 1, 1).toordinal()


def _plain(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    return _seconds(column) if pa.types.is_timestamp(field.type) else column.cast(field.type)


def _seconds(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.divide(column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64()), 1_000_000)
