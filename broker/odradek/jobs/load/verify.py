"""Compares what a version has: its commits, its files, the broker, and the broker's usage metering.

Runs in the driver. Files and broker are read by Spark: counts, first and last offsets and checksums of each partition must be
equal. Where they are not, the offsets of the records that differ are looked up.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odradek.jobs.load import frames
from odradek.jobs.load.commit_log import LOG, VersionDirectory
from odradek.jobs.load.files import HASH
from odradek.jobs.load.offsets import ClusterState, NamedPartition, Range
from odradek.jobs.load.summary import Summary

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_HASHES = 1 << 64
_SHOWN = 10
_HOUR_MS = 3_600_000


@dataclass(frozen=True)
class Totals:
    """Records of a partition. :param doubled: the records that are there more than once."""

    records: int
    first_offset: int | None
    last_offset: int | None
    checksum: int
    doubled: int = 0


NOTHING = Totals(0, None, None, 0)


def differences_in_log(summary: Summary) -> Iterator[str]:
    """Ranges that overlap: their records were loaded twice. Ranges that leave offsets out must have a finding."""
    reached: dict[NamedPartition, int] = {}
    reported: set[tuple[str, int | None]] = set()
    for commit in summary.commits:
        reported |= {(finding.topic, finding.partition) for finding in commit.findings}
        for topic, ranges in commit.ranges.items():
            for number, part in ranges.items():
                place = NamedPartition(topic, number)
                before = reached.get(place, part.start)
                where = f"commit {commit.number}: {place} begins at offset {part.start}"
                if part.start < before:
                    yield f"{where}, and offsets up to {before - 1} were loaded before"
                if part.start > before and place not in reported:
                    yield f"{where}, and offsets from {before} on were not loaded"
                reached[place] = part.until


def differences_in_directory(version: VersionDirectory, summary: Summary) -> Iterator[str]:
    """Files that are missing, of another size, or in no commit."""
    for path, file in sorted(summary.files.items()):
        try:
            size = (version.path / path).stat().st_size
        except FileNotFoundError:
            there = (version.path / file.staging).is_file()
            why = "; the run that wrote it died, and the next run puts it in place" if there else ""
            yield f"{path} is missing: {file.records} records{why}"
            continue
        if size != file.bytes:
            yield f"{path} has {size} bytes, and had {file.bytes} when it was written"
    for found in sorted(version.path.rglob("*.parquet")):
        path = str(found.relative_to(version.path))
        if not path.startswith(LOG) and path not in summary.files:
            yield f"{path} is in no commit: its commit is missing, or another program wrote it"


def totals(frame: "DataFrame") -> dict[NamedPartition, Totals]:
    """Aggregate records with the columns of `frames.COLUMNS` by partition."""
    from pyspark.sql import functions as F

    rows = (
        frames.with_hash(frame)
        .groupBy("topic", "partition")
        .agg(
            F.count("*").alias("records"),
            F.min("offset").alias("first"),
            F.max("offset").alias("last"),
            F.sum(F.col(HASH).cast("decimal(38,0)")).alias("checksum"),
            F.countDistinct("offset").alias("distinct"),
        )
        .collect()
    )
    return {
        NamedPartition(row["topic"], row["partition"]): Totals(
            row["records"], row["first"], row["last"], int(row["checksum"]) % _HASHES, row["records"] - row["distinct"]
        )
        for row in rows
    }


def files_frame(spark: "SparkSession", version: VersionDirectory, summary: Summary) -> "DataFrame | None":
    """The records in the files that exist; None if there are none."""
    paths = [str(version.path / path) for path in summary.files if (version.path / path).is_file()]
    if not paths:
        return None
    spark.conf.set("spark.sql.sources.partitionColumnTypeInference.enabled", "false")
    frame = spark.read.option("basePath", str(version.path)).option("mergeSchema", "false").parquet(*paths)
    return frame.select(*frames.COLUMNS)


def differences_in_files(summary: Summary, found: Mapping[NamedPartition, Totals]) -> Iterator[str]:
    """Partitions whose files do not have what the commits say."""
    for place in sorted({*summary.partitions, *found}):
        part = summary.partitions.get(place)
        logged = NOTHING if part is None else Totals(part.records, part.first_offset, part.last_offset, part.checksum)
        here = found.get(place, NOTHING)
        if here.doubled:
            yield f"{place}: {here.doubled} records are in the files more than once"
        if (here.records, here.first_offset, here.last_offset) != (
            logged.records,
            logged.first_offset,
            logged.last_offset,
        ):
            yield f"{place}: the files have {_text(here)}, the commits {_text(logged)}"
        elif here.checksum != logged.checksum:
            yield f"{place}: the checksum of the files is {here.checksum:016x}, of the commits {logged.checksum:016x}"


def _text(some: Totals) -> str:
    where = "" if some.first_offset is None else f" at offsets {some.first_offset} to {some.last_offset}"
    return f"{some.records} records{where}"


@dataclass(frozen=True)
class BrokerRanges:
    """The loaded ranges that the broker still has. :param ranges: these ranges. :param notes: sentences about those that it
    no longer has.
    """

    ranges: tuple[Range, ...]
    notes: tuple[str, ...]


def still_there(summary: Summary, state: ClusterState) -> BrokerRanges:
    """The loaded ranges that can be read again."""
    ranges: list[Range] = []
    notes = [f"topic '{topic}' does not exist any more" for topic in state.missing]
    for name, topic in sorted(state.topics.items()):
        loaded_id = summary.positions[name].topic_id
        if loaded_id and topic.topic_id and loaded_id != topic.topic_id:
            notes.append(f"topic '{name}' was deleted and created again: its records are others")
            continue
        for place in sorted(summary.partitions):
            if place.topic != name:
                continue
            bounds = topic.partitions.get(place.partition)
            if bounds is None:
                notes.append(f"{place} does not exist any more")
                continue
            for start, until in _runs(summary, place):
                first = max(start, bounds.earliest)
                if first > start:
                    notes.append(f"{place}: the broker has deleted offsets {start} to {min(first, until) - 1}")
                if first < until:
                    ranges.append(Range(name, place.partition, first, until))
    return BrokerRanges(tuple(ranges), tuple(notes))


def _runs(summary: Summary, place: NamedPartition) -> list[tuple[int, int]]:
    """The loaded ranges of a partition, those joined that touch."""
    runs: list[tuple[int, int]] = []
    for commit in summary.commits:
        part = commit.ranges.get(place.topic, {}).get(place.partition)
        if part is None:
            continue
        if runs and runs[-1][1] == part.start:
            runs[-1] = (runs[-1][0], part.until)
        else:
            runs.append((part.start, part.until))
    return runs


def rounds(ranges: Iterable[Range]) -> list[list[Range]]:
    """Group ranges so that each group has at most one of a partition, as Spark's source needs it."""
    groups: list[list[Range]] = []
    used: dict[NamedPartition, int] = {}
    for part in ranges:
        index = used.get(part.place, 0)
        used[part.place] = index + 1
        if index == len(groups):
            groups.append([])
        groups[index].append(part)
    return groups


def differences_from_broker(
    spark: "SparkSession",
    reader: frames.Reader,
    files: "DataFrame | None",
    ranges: Collection[Range],
    compacted: Collection[str],
) -> Iterator[str]:
    """Partitions whose files do not have what the broker has, with the first offsets that differ.

    :param compacted: topics whose records the broker may have removed since
    """
    for group in rounds(ranges):
        theirs = frames.read(spark, reader, group)
        ours = _within(spark, files, group)
        there, here = totals(theirs), totals(ours)
        differing = [
            part for part in group if _plain(there.get(part.place, NOTHING)) != _plain(here.get(part.place, NOTHING))
        ]
        if differing:
            yield from _located(spark, reader, files, differing, compacted)


def _plain(some: Totals) -> tuple[Any, ...]:
    return some.records, some.first_offset, some.last_offset, some.checksum


def _within(spark: "SparkSession", files: "DataFrame | None", ranges: Iterable[Range]) -> "DataFrame":
    """The records of these ranges in the files."""
    if files is None:
        return spark.createDataFrame(
            [],
            f"topic string, {frames.RECORDS}",
        )
    wanted = spark.createDataFrame(
        [(part.topic, part.partition, part.start, part.until) for part in ranges],
        "topic string, partition int, start bigint, until bigint",
    ).hint("broadcast")
    return (
        files.join(wanted, ["topic", "partition"]).where("offset >= start and offset < until").select(*frames.COLUMNS)
    )


def _located(
    spark: "SparkSession",
    reader: frames.Reader,
    files: "DataFrame | None",
    ranges: list[Range],
    compacted: Collection[str],
) -> Iterator[str]:
    from pyspark.sql import functions as F

    keys = ["topic", "partition", "offset"]
    theirs = frames.with_hash(frames.read(spark, reader, ranges)).select(*keys, F.col(HASH).alias("theirs"))
    ours = frames.with_hash(_within(spark, files, ranges)).select(*keys, F.col(HASH).alias("ours"))
    joined = theirs.join(ours, keys, "full").withColumn(
        "what",
        F.expr(
            "case when ours is null then 'only the broker has' when theirs is null then 'only the files have'"
            " when ours <> theirs then 'differ at' end"
        ),
    )
    rows = (
        joined.where("what is not null")
        .groupBy("topic", "partition", "what")
        .agg(F.count("*").alias("count"), F.slice(F.sort_array(F.collect_list("offset")), 1, _SHOWN).alias("offsets"))
        .orderBy("topic", "partition", "what")
        .collect()
    )
    for row in rows:
        if row["what"] == "only the files have" and row["topic"] in compacted:
            continue
        more = ", ..." if row["count"] > _SHOWN else ""
        listed = ", ".join(map(str, row["offsets"])) + more
        yield f"{row['topic']}-{row['partition']}: {row['count']} records: {row['what']} offsets {listed}"


@dataclass(frozen=True)
class Metered:
    """A topic in the usage report's tables. :param hours: whole hours that both cover. :param metered, loaded: records in
    them.
    """

    topic: str
    hours: int
    metered: int
    loaded: int


def metering(spark: "SparkSession", tables: Path, files: "DataFrame | None", summary: Summary) -> list[Metered]:
    """Compare with the records that the broker counted as produced, in the hours that the load covers as a whole.

    :param tables: the directory ``tables`` of `odradek report usage`. The hour of a loaded record is that of its timestamp.
    """
    from pyspark.sql import functions as F

    if files is None:
        return []
    hour = (F.unix_millis("timestamp") / _HOUR_MS).cast("bigint")
    loaded = files.groupBy("topic", hour.alias("at")).agg(F.count("*").alias("loaded"))
    traffic = spark.read.parquet(str(tables / "traffic_hourly"))
    counted = (
        traffic.where("api = 'Produce' and topic is not null")
        .groupBy("topic", (F.unix_millis("hour") / _HOUR_MS).cast("bigint").alias("at"))
        .agg(F.sum("records_in").alias("metered"))
    )
    coverage = spark.read.parquet(str(tables / "coverage_hourly"))
    whole = (
        coverage.groupBy((F.unix_millis("hour") / _HOUR_MS).cast("bigint").alias("at"))
        .agg(F.max("covered_ms").alias("covered"))
        .where(f"covered >= {_HOUR_MS - 1000}")
    )
    bounds = spark.createDataFrame(
        [(name, *_whole_hours(summary, name)) for name in summary.positions], "topic string, first bigint, last bigint"
    ).hint("broadcast")
    rows = (
        loaded.join(counted, ["topic", "at"], "full")
        .join(whole, "at")
        .join(bounds, "topic")
        .where("at > first and at < last")
        .groupBy("topic")
        .agg(F.count("*").alias("hours"), F.sum("metered").alias("metered"), F.sum("loaded").alias("loaded"))
        .orderBy("topic")
        .collect()
    )
    return [Metered(row["topic"], row["hours"], row["metered"] or 0, row["loaded"] or 0) for row in rows]


def _whole_hours(summary: Summary, topic: str) -> tuple[int, int]:
    """The hours of the first and of the last record of a topic, which the load may cover in part."""
    parts = [part for place, part in summary.partitions.items() if place.topic == topic]
    firsts = [part.first_timestamp_ms for part in parts if part.first_timestamp_ms is not None]
    lasts = [part.last_timestamp_ms for part in parts if part.last_timestamp_ms is not None]
    if not firsts:
        return 0, 0
    return min(firsts) // _HOUR_MS, max(lasts) // _HOUR_MS
