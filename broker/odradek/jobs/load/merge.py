"""Merges small files of a directory into one, in a separate commit. Runs in the driver, which holds the lock of the version.

The merged file is written into a directory in staging that also gets a second name of every other file. After the commit the
two directories are exchanged in one step, so that a reader who lists them finds each record once, before and after.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from odradek.clock import now_ms
from odradek.jobs.load.commit_log import MERGE, Commit, DataFile, VersionDirectory, sync_directory
from odradek.jobs.load.errors import LoadError
from odradek.jobs.load.publishing import can_exchange, publish
from odradek.jobs.load.summary import summary_of
from odradek.jobs.usage_report.times import iso

#: Files below this size are small, and a merged file has about this size at most.
SMALL_BYTES = 64 << 20
_ROWS = 1 << 17
_GROUP_BYTES = 64 << 20


def crowded(version: VersionDirectory, files: Iterable[DataFile], least: int) -> bool:
    """Whether a directory of these files has at least `least` files; cheap, for a run that has just written them."""
    directories = {version.path / file.path.rpartition("/")[0] for file in files}
    return any(sum(1 for _ in directory.glob("part-*.parquet")) >= least for directory in directories)


def groups_of(current: Mapping[str, DataFile], least: int) -> list[list[DataFile]]:
    """The small files to merge: lists of at least two files of a directory that has at least `least` small files."""
    by_directory: dict[str, list[DataFile]] = {}
    for path, file in sorted(current.items()):
        if file.bytes < SMALL_BYTES:
            by_directory.setdefault(path.rpartition("/")[0], []).append(file)
    groups = []
    for files in by_directory.values():
        if len(files) < max(2, least):
            continue
        group: list[DataFile] = []
        for file in files:
            if group and sum(member.bytes for member in group) + file.bytes > SMALL_BYTES:
                groups.append(group)
                group = []
            group.append(file)
        groups.append(group)
    return [group for group in groups if len(group) > 1]


def merge(version: VersionDirectory, least: int, threads: int | None = None) -> Commit | None:
    """Merge the small files of directories that have at least `least` of them. The caller holds the lock, after `recover`.

    :returns: the commit; None if there is nothing to merge
    :raises LoadError: a file does not have the records that its commit says, or the file system cannot exchange directories
    """
    summary = summary_of(version)
    groups = [group for group in groups_of(summary.files, least) if _has_only_files(version, group)]
    if not groups:
        return None
    begun = iso(now_ms())
    newest = summary.commits[-1]
    number = newest.number + 1
    with version.staged(number) as staging:
        if not can_exchange(staging):
            raise LoadError(
                f"{version.path}: files cannot be merged, because its file system cannot exchange directories"
            )
        with ThreadPoolExecutor(threads) as pool:
            merged = list(pool.map(lambda item: merged_file(version, staging, number, *item), enumerate(groups)))
        _add_others(version, staging, groups)
        removed = tuple(file.path for group in groups for file in group)
        commit = Commit(
            number,
            MERGE,
            newest.cluster_id,
            begun,
            iso(now_ms()),
            newest.positions,
            files=tuple(merged),
            removed=removed,
        )
        version.append(commit)
        publish(version, commit)
    return commit


def _has_only_files(version: VersionDirectory, group: Sequence[DataFile]) -> bool:
    """Whether the directory of a group has no directory in it, which an exchange would take away."""
    return all(entry.is_file() for entry in (version.path / group[0].path).parent.iterdir())


def merged_file(
    version: VersionDirectory, staging: Path, number: int, index: int, group: Sequence[DataFile]
) -> DataFile:
    """Write the records of a group into one file in `staging`, flushed to the disk. Raises LoadError."""
    directory, _, _ = group[0].path.rpartition("/")
    name = f"part-{number:010}-{index:05}.parquet"
    target = staging / directory / name
    target.parent.mkdir(parents=True, exist_ok=True)
    records = write_merged([version.path / file.path for file in group], target)
    wanted = sum(file.records for file in group)
    if records != wanted:
        raise LoadError(
            f"{version.path / directory}: files to merge have {records} records, and had {wanted} when they were written"
        )
    relative = staging.relative_to(version.path)
    undecoded = sum(file.undecoded for file in group)
    return DataFile(f"{relative}/{directory}/{name}", f"{directory}/{name}", target.stat().st_size, records, undecoded)


def write_merged(sources: Sequence[Path], target: Path) -> int:
    """Write the rows of Parquet files of one schema into a new file, flushed to the disk. Returns the number of rows.

    :raises LoadError: a file cannot be read, or has other columns than the first one
    """
    rows = 0
    kept: list[pa.RecordBatch] = []
    try:
        schema = pq.read_schema(sources[0])
        with open(target, "xb") as file:
            with pq.ParquetWriter(file, schema, compression="zstd") as writer:
                for source in sources:
                    with pq.ParquetFile(source) as parquet:
                        for batch in parquet.iter_batches(_ROWS):
                            kept.append(batch)
                            rows += batch.num_rows
                            if sum(part.nbytes for part in kept) >= _GROUP_BYTES:
                                writer.write_table(pa.Table.from_batches(kept, schema))
                                kept = []
                if kept:
                    writer.write_table(pa.Table.from_batches(kept, schema))
            file.flush()
            os.fsync(file.fileno())
    except (pa.ArrowException, FileNotFoundError) as error:
        raise LoadError(f"{sources[0].parent}: files cannot be merged: {error}") from None
    return rows


def _add_others(version: VersionDirectory, staging: Path, groups: Sequence[Sequence[DataFile]]) -> None:
    """Give the files that are not merged a second name beside the merged ones, and flush the directories."""
    merged = {version.path / file.path for group in groups for file in group}
    for directory in sorted({group[0].path.rpartition("/")[0] for group in groups}):
        for file in (version.path / directory).iterdir():
            if file not in merged:
                os.link(file, staging / directory / file.name)
        for level in (staging / directory, (staging / directory).parent, staging):
            sync_directory(level)
    sync_directory(version.staging)
