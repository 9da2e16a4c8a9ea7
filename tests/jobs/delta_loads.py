"""Loads into Delta tables without Spark: a writer that takes Spark's place, and what readers of the tables find.

``python -m tests.jobs.delta_loads DIRECTORY STEP`` lets loads die before each STEP-th line of the modules of the load, repeats
them, and compares. It is a separate program, because delta-rs does not work in a child of a process that has used it. Each load
runs in a child of this program, which does not use it.
"""

from __future__ import annotations

import os
import shutil
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas  # noqa: F401 - Arrow imports it when it is used, which costs each child half a second
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from odradek.jobs.load import commit_log, delta_output, delta_table, job, merge, publishing
from odradek.jobs.load.commit_log import Head, VersionDirectory
from odradek.jobs.load.offsets import ClusterState, Plan, Range
from odradek.jobs.load.output import DELTA
from odradek.jobs.load.summary import summary_of
from tests.jobs import test_load_commits as commits
from tests.jobs.test_load_commits import CLUSTER, DONE, KILLED, die_at, state, wanted

HEAD = Head("main", CLUSTER, "2026-11-01T00:00:00Z", table=DELTA)
MODULES = (job, commit_log, publishing, merge, delta_output, delta_table)
DAY_MS = 1_793_491_200_000  # 2026-11-01
SCHEMA = pa.schema(
    [
        ("partition", pa.int32()), ("offset", pa.int64()), ("timestamp", pa.timestamp("us", "UTC")),
        ("timestamp_type", pa.string()), ("key", pa.binary()), ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)  # fmt: skip


def write(ranges: Sequence[Range], staging: Path, more: Sequence[tuple[str, pa.Array]] = ()) -> list[Any]:
    """Write a file for each range. :param more: columns of one value, which all records have."""
    rows = []
    for part in ranges:
        offsets = list(range(part.start, part.until))
        table = pa.table(
            {
                "partition": [part.partition] * len(offsets), "offset": offsets,
                "timestamp": [(DAY_MS + offset) * 1000 for offset in offsets], "timestamp_type": ["CreateTime"] * len(offsets),
                "key": [None] * len(offsets), "value": [b"%d" % offset for offset in offsets],
                "headers": [None] * len(offsets),
            },
            schema=SCHEMA,
        )  # fmt: skip
        for name, value in more:
            table = table.append_column(name, pa.concat_arrays([value] * len(offsets)))
        name = f"{part.topic}-{part.partition}.parquet"
        pq.write_table(table, staging / name)
        rows.append(
            SimpleNamespace(
                topic=part.topic, partition=part.partition, date="2026-11-01", file=name,
                bytes=(staging / name).stat().st_size, undecoded=0, records=len(offsets), first_offset=part.start,
                last_offset=part.until - 1, first_timestamp_ms=DAY_MS + part.start, last_timestamp_ms=DAY_MS + part.until - 1,
                checksum=sum(offsets),
            )
        )  # fmt: skip
    return rows


@contextmanager
def writer(_: Plan) -> Iterator[Any]:
    yield write


def run(
    out: Path,
    now: ClusterState,
    merge_at: int = 0,
    most: int = 9,
    head: Head = HEAD,
    writer: Any = writer,
    **options: Any,
) -> job.Outcome:
    """Load what is new."""
    version = job.open_version(out, head.version, head)
    said = options.get("said", [])
    return job.run(version, lambda: now, most, writer, said.append, merge_at)


def visible(out: Path, version: int | None = None) -> Counter[str]:
    """What a reader of the table finds, in a version of the table."""
    path = out / "version=main"
    if not DeltaTable.is_deltatable(path.as_uri()):
        return Counter()
    table = DeltaTable(path.as_uri(), version=version).to_pyarrow_table(columns=["partition", "offset"])
    return Counter(f"{row['partition']} {row['offset']}" for row in table.to_pylist())


def orphans(version: VersionDirectory) -> set[str]:
    """The files that no commit names."""
    named = {file.path for commit in version.all_commits() for file in commit.files}
    return {str(path.relative_to(version.path)) for path in version.path.glob("topic=*/*/*")} - named


def in_child(work: Callable[[], Any]) -> None:
    """Do the work in a child. Raises AssertionError if it fails."""
    child = os.fork()
    if not child:
        status = 1
        try:
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


ENDS, MORE = {0: 5, 1: 9}, {0: 9, 1: 14}


def _check(out: Path, line: int, before: Counter[str], ends: dict[int, int], merge_at: int) -> None:
    found = visible(out)
    assert not found - wanted(ends), f"line {line}: a record is there twice, or is none"
    assert not before - found, f"line {line}: a record is not there any more"
    run(out, state(ends), merge_at)
    assert visible(out) == wanted(ends), f"line {line}"
    version = VersionDirectory(out, "main")
    assert not list(version.staging.iterdir()) and not version.prepared(), f"line {line}"
    assert not orphans(version), f"line {line}"
    assert summary_of(version).records == sum(ends.values())


def deaths(directory: Path, step: int) -> None:
    """Let first loads die, and second ones that also merge."""
    commits.TRACED = {str(module.__file__) for module in MODULES}
    base = directory / "base"
    base.mkdir()
    in_child(partial(run, base, state(ENDS)))
    for name, ends, merge_at, before in (("first", ENDS, 0, Counter()), ("second", MORE, 3, wanted(ENDS))):
        line = killed = 0
        while True:
            out = directory / f"{name}-{line}"
            shutil.copytree(base, out) if before else out.mkdir()
            ended = die_at(line, partial(run, out, state(ends), merge_at))
            assert ended in (KILLED, DONE), f"{name}, line {line}"
            in_child(partial(_check, out, line, before, ends, merge_at))
            shutil.rmtree(out)
            if ended == DONE:
                break
            killed += 1
            line += step
        print(f"{name}: {line} lines, {killed} deaths")


if __name__ == "__main__":
    deaths(Path(sys.argv[1]), int(sys.argv[2]))
