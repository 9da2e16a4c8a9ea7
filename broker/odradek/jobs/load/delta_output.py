"""Versions whose files are a Delta table: a commit is a transaction of the table.

The order of a step is: write files in staging and flush them; write the commit's document as a prepared one, which names
them; move the files to their places, where no reader of the table sees them yet; append them to the table, which is the
commit; give the document its name. A prepared document counts if the table has its number and its random number. Runs in
the driver, which holds the lock of the version.
"""

import os
import secrets
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.clock import now_ms
from odradek.jobs.load import merge
from odradek.jobs.load.commit_log import MERGE, Commit, DataFile, VersionDirectory, sync_directory
from odradek.jobs.load.delta_table import LoadedTable
from odradek.jobs.load.errors import LoadError
from odradek.jobs.load.publishing import clear_staging, make_directories, refuse_links
from odradek.jobs.load.summary import Summary, summary_of
from odradek.jobs.usage_report.times import iso

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_AGAIN = "or load again into another version"


class DeltaOutput:
    """A Delta table in the directory of the version; see `output.Output`."""

    def recover(self, version: VersionDirectory) -> Commit | None:
        """Finish what a run that died had committed, and remove the rest. Returns the newest commit. Raises LoadError."""
        refuse_links(version)
        newest, prepared = version.newest(), version.prepared()
        table = LoadedTable(version.path)
        for commit in prepared:
            if table.has(commit):
                version.finish(commit)
                newest = commit
            else:
                discard(version, commit)
        check_numbers(version, table)
        table.check()
        clear_staging(version)
        return newest

    def commit(self, version: VersionDirectory, begun: Commit) -> Commit:
        """Append a commit and its files to the table. Returns the commit as it was written. Raises LoadError, LostRaceError."""
        commit = begun
        if commit.files:
            random = secrets.randbits(62)
            files = tuple(replace(file, path=_named(file.path, random)) for file in commit.files)
            commit = replace(begun, files=files, random=random)
        expected = newest_with_files(version)
        version.prepare(commit)
        try:
            if commit.files:
                place(version, commit)
                LoadedTable(version.path).append(commit, expected)
        except BaseException:
            if not LoadedTable(version.path).has(commit):  # else the next run finishes it
                discard(version, commit)
            raise
        version.finish(commit)
        return commit

    def merge(self, version: VersionDirectory, least: int, threads: int | None = None) -> Commit | None:
        """Replace small files of a directory by one, in a transaction that changes no data; see `output.Output`.

        Only files that `odradek load` wrote are merged. Those that are replaced stay for readers of earlier versions of the
        table, until a vacuum of the user removes them.
        """
        summary = summary_of(version)
        groups = merge.groups_of(_own_files(version, summary), least)
        if not groups:
            return None
        begun = iso(now_ms())
        newest = summary.commits[-1]
        number = newest.number + 1
        with version.staged(number) as staging:
            with ThreadPoolExecutor(threads) as pool:
                merged = list(
                    pool.map(lambda task: merge.merged_file(version, staging, number, *task), enumerate(groups))
                )
            for directory in sorted({(version.path / file.staging).parent for file in merged}):
                sync_directory(directory)
            removed = tuple(file.path for group in groups for file in group)
            commit = Commit(
                number, MERGE, newest.cluster_id, begun, iso(now_ms()), newest.positions,
                files=tuple(merged), removed=removed,
            )  # fmt: skip
            return self.commit(version, commit)

    def crowded(self, version: VersionDirectory, files: Iterable[DataFile], least: int) -> bool:
        """Whether a directory of these files has at least `least` small files in the table."""
        directories = {_directory(file.path) for file in files}
        active = LoadedTable(version.path).active_files()
        counts = Counter(_directory(file.path) for file in active if file.bytes < merge.SMALL_BYTES)
        return any(counts[directory] >= least for directory in directories)

    def current_files(self, version: VersionDirectory, written: Mapping[str, DataFile]) -> Mapping[str, DataFile]:
        """The files of the table's newest version; other writers may have replaced some of `written`."""
        return {
            file.path: written.get(file.path, DataFile("", file.path, file.bytes, file.records or 0))
            for file in LoadedTable(version.path).active_files()
        }

    def differences(self, version: VersionDirectory, summary: Summary) -> Iterator[str]:
        """A commit that is not finished, another table than that of the commits, and files that are missing or changed."""
        table = LoadedTable(version.path)
        for commit in version.prepared():
            if table.has(commit):
                yield f"commit {commit.number} is in the Delta table; the run that wrote it died, and the next run finishes it"
        expected = newest_with_files(version)
        if table.number != expected and not any(table.has(commit) for commit in version.prepared()):
            yield other_table(version, table, expected)
        for file in table.active_files():
            try:
                size = (version.path / file.path).stat().st_size
            except FileNotFoundError:
                yield f"{file.path} is missing: {file.records} records"
                continue
            if size != file.bytes:
                yield f"{file.path} has {size} bytes, and had {file.bytes} when it was written"
            if file.has_deletions:
                yield f"{file.path} has a deletion vector: another writer deleted records of it"

    def frame(self, spark: "SparkSession", version: VersionDirectory, summary: Summary) -> "DataFrame | None":
        """The records in the files of the table's newest version that exist; None if there are none."""
        from pyspark.sql import functions as F

        from odradek.jobs.load.frames import COLUMNS, RECORDS

        by_topic: dict[str | None, list[str]] = {}
        for file in LoadedTable(version.path).active_files():
            if (version.path / file.path).is_file():
                by_topic.setdefault(file.topic, []).append(str(version.path / file.path))
        frame: DataFrame | None = None
        # files of other writers may be in other directories: the log says which topic they have
        for topic, paths in sorted(by_topic.items(), key=lambda item: item[0] or ""):
            read = spark.read.schema(RECORDS).option("recursiveFileLookup", "true").parquet(*paths)
            part = read.withColumn("topic", F.lit(topic).cast("string")).select(*COLUMNS)
            frame = part if frame is None else frame.unionByName(part)
        return frame


def newest_with_files(version: VersionDirectory) -> int | None:
    """The number of the newest commit with files, which the table must have. Raises LoadError."""
    for number in reversed(version.numbers()):
        if version.commit(number).files:
            return number
    return None


def check_numbers(version: VersionDirectory, table: LoadedTable) -> None:
    """Refuse a table that is not the one of the commits. Raises LoadError."""
    expected = newest_with_files(version)
    if table.number != expected or (expected is None and table.exists):
        raise LoadError(f"{version.path}: {other_table(version, table, expected)}")


def other_table(version: VersionDirectory, table: LoadedTable, expected: int | None) -> str:
    """Why a table is not that of the commits, and what to do. :param expected: the newest commit with files."""
    if not table.exists:
        return f"has commits up to {expected}, and no Delta table: restore its directory _delta_log, {_AGAIN}"
    if expected is None and table.number is None:
        return "has a Delta table of another writer; use another --version or --out"
    if table.number is None:
        return (
            f"has commits up to {expected}, and the Delta table has none of them: another writer replaced the table; restore"
            f" its directory _delta_log, {_AGAIN}"
        )
    there = "none with files" if expected is None else f"{expected}"
    return (
        f"the newest commit in the Delta table is {table.number}, and in {version.commits} it is {there}: restore both from one"
        f" backup, {_AGAIN}"
    )


def place(version: VersionDirectory, commit: Commit) -> None:
    """Move the files of a commit to their places, and flush the directories. Raises OSError."""
    changed: set[Path] = set()
    for file in commit.files:
        target = version.path / file.path
        make_directories(version.path, target.parent)
        os.link(version.path / file.staging, target)
        changed.add(target.parent)
    for directory in sorted(changed):
        sync_directory(directory)


def discard(version: VersionDirectory, commit: Commit) -> None:
    """Remove a prepared commit that is not in the table, with its files: no other commit has files of these names."""
    for file in commit.files:
        (version.path / file.path).unlink(missing_ok=True)
    version.withdraw(commit)


def _own_files(version: VersionDirectory, summary: Summary) -> dict[str, DataFile]:
    """The files of the table that the load wrote, and of which no record was deleted."""
    whole: Collection[str] = {file.path for file in LoadedTable(version.path).active_files() if not file.has_deletions}
    written = {file.path for commit in summary.commits for file in commit.files}
    return {path: file for path, file in summary.files.items() if path in whole and path in written}


def _named(path: str, random: int) -> str:
    """The path of a file with the random number of its commit in its name."""
    return f"{path.removesuffix('.parquet')}-{random:016x}.parquet"


def _directory(path: str) -> str:
    return path.rpartition("/")[0]
