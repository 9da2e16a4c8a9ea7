"""One Spark session per module, in which the job runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.dataset
import pytest

from odradek.jobs.usage_report import job
from odradek.jobs.usage_report.options import Job, Source, check_out
from tests import toolchains
from tests.spark_sessions import local_session


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """A Spark session that the job uses."""
    toolchains.require_command("java", "default-jdk-headless")
    session = local_session({})
    yield session
    session.stop()


class Report:
    """An output directory, and runs of the job that write to it."""

    def __init__(self, out: Path) -> None:
        self.out = check_out(str(out))
        self.said: list[str] = []

    def run(self, source: Source, from_ms: int, to_ms: int) -> list[str]:
        """Run the job; return its messages."""
        self.said = []
        job.make_tables(Job(source, from_ms, to_ms, self.out), self.said.append)
        return self.said

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Return all rows of a table in the stored order, times in milliseconds."""
        found = pyarrow.dataset.dataset(self.out / "tables" / table, format="parquet", partitioning="hive").to_table()
        rows = found.to_pylist()
        for row in rows:
            for name in ("hour", "from", "to"):
                if name in row:
                    row[name] = round(row[name].timestamp() * 1000)
        return rows


@pytest.fixture
def report(tmp_path: Path, spark: Any) -> Report:
    return Report(tmp_path / "report")
