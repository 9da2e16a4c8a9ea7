"""The summary page of a version: one HTML file in the style of the usage report, made from the commits after each run.

Runs in the driver; pure functions except `write_page`. The same commits produce the same bytes.
"""

from __future__ import annotations

import uuid
from collections import Counter
from pathlib import Path

from odradek.jobs.load.commit_log import MERGE, VersionDirectory, sync_directory
from odradek.jobs.load.offsets import LOSSES
from odradek.jobs.load.summary import Summary, summary_of
from odradek.jobs.usage_report.findings import BAD, GOOD, NOTE, WARN, Finding
from odradek.jobs.usage_report.page.document import Page, Section, Tile, html
from odradek.jobs.usage_report.page.text import Cell, Table, bytes_, count, counted, name_cell, time_cell
from odradek.jobs.usage_report.times import iso

PAGE = "summary.html"
#: The newest commits that the page lists.
_COMMITS = 200
_FINDINGS = 50


def write_page(version: VersionDirectory) -> Path:
    """Write the page of a version, replacing the earlier one. Returns its path. Raises LoadError, OSError."""
    path = version.log / PAGE
    temporary = version.log / f".{PAGE}.{uuid.uuid4().hex}"
    temporary.write_text(html(page_of(summary_of(version))), encoding="utf-8")
    temporary.rename(path)
    sync_directory(version.log)
    return path


def page_of(summary: Summary) -> Page:
    """The contents of the page."""
    size = sum(file.bytes for file in summary.files.values())
    undecoded = summary.undecoded
    last = summary.commits[-1].ended if summary.commits else ""
    tiles = (
        Tile("records", "Records", count(summary.records), summary.records),
        Tile("bytes", "Size of the files", bytes_(size), size, counted(len(summary.files), "file")),
        Tile("partitions", "Partitions", count(len(summary.partitions)), len(summary.partitions)),
        Tile("undecoded", "Values not decoded", count(undecoded), undecoded, summary.head.decoding),
        Tile("commits", "Commits", count(len(summary.commits)), len(summary.commits), last),
    )
    return Page(
        f"Load {summary.head.version}",
        f"{summary.period}, from cluster {summary.head.cluster_id}",
        _findings(summary, undecoded),
        tiles,
        (_topics(summary), _partitions(summary), _commits(summary)),
        f"Made from the commits of version {summary.head.version}, created {summary.head.created}.",
    )


def _findings(summary: Summary, undecoded: int) -> tuple[Finding, ...]:
    found = [
        Finding(BAD if finding.kind in LOSSES else NOTE, finding.kind, finding.topic, finding.text, "partitions")
        for finding in reversed(summary.findings)
    ][:_FINDINGS]
    if undecoded:
        sentence = f"{counted(undecoded, 'value')} could not be decoded: their decode_error says why."
        found.append(Finding(WARN, "undecoded", "", sentence, "topics"))
    if not any(finding.level == BAD for finding in found):
        found.insert(
            0, Finding(GOOD, "complete", "", "No commit has a gap: each offset since the first was loaded.", "topics")
        )
    return tuple(found)


def _number(value: int) -> Cell:
    return Cell(count(value), value)


def _time(at_ms: int | None) -> str:
    """A timestamp of a record as text; producers may send any number."""
    if at_ms is None:
        return ""
    try:
        return iso(at_ms)
    except OverflowError:  # after year 9999, or before year 1
        return f"{at_ms} ms"


def _topics(summary: Summary) -> Section:
    records: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    files: Counter[str] = Counter()
    for place, part in summary.partitions.items():
        records[place.topic] += part.records
    for path, file in summary.files.items():
        topic = path.partition("/")[0].removeprefix("topic=")
        sizes[topic] += file.bytes
        files[topic] += 1
    rows = tuple(
        (name_cell(topic), _number(records[topic]), Cell(bytes_(sizes[topic]), sizes[topic]), _number(files[topic]))
        for topic in sorted(summary.positions)
    )
    columns = (("topic", "Topic"), ("records", "Records"), ("bytes", "Size"), ("files", "Files"))
    return Section(
        "topics", "Topics", "What the files of each topic have.", ((Table("topics", "Topics", columns, rows),),)
    )


def _partitions(summary: Summary) -> Section:
    rows = []
    for place, part in sorted(summary.partitions.items()):
        position = summary.positions[place.topic].partitions[place.partition]
        times = [_time(ms) for ms in (part.first_timestamp_ms, part.last_timestamp_ms)]
        rows.append(
            (
                name_cell(str(place)),
                _number(part.records),
                Cell(str(part.start), part.start),
                Cell(str(position.next), position.next),
                time_cell(times[0]),
                time_cell(times[1]),
                name_cell(f"{part.checksum:016x}"),
            )
        )
    columns = (
        ("partition", "Partition"),
        ("records", "Records"),
        ("from", "From offset"),
        ("next", "Next offset"),
        ("first", "First timestamp"),
        ("last", "Last timestamp"),
        ("checksum", "Checksum"),
    )
    lead = (
        "The offsets that were loaded; offsets without a record are transaction markers, aborted or compacted records."
    )
    table = Table("partitions", "Partitions", columns, tuple(rows))
    return Section("partitions", "Partitions", lead, ((table,),))


def _commits(summary: Summary) -> Section:
    rows = tuple(
        (
            Cell(str(commit.number), commit.number),
            time_cell(commit.ended),
            name_cell("merge" if commit.kind == MERGE else "load"),
            _number(commit.records),
            Cell(bytes_(sum(file.bytes for file in commit.files)), sum(file.bytes for file in commit.files)),
            _number(len(commit.files)),
            _number(len(commit.findings)),
        )
        for commit in reversed(summary.commits[-_COMMITS:])
    )
    columns = (
        ("commit", "Commit"),
        ("ended", "Ended"),
        ("kind", "Kind"),
        ("records", "Records"),
        ("bytes", "Size"),
        ("files", "Files"),
        ("findings", "Findings"),
    )
    lead = f"The newest commits, up to {_COMMITS}."
    return Section("commits", "Commits", lead, ((Table("commits", "Commits", columns, rows),),))
