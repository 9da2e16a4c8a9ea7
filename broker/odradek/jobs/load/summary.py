"""What a version has, as figures: folded from its commits. Pure functions over a `VersionDirectory`."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from odradek.jobs.load.commit_log import LOAD, Commit, DataFile, Head, LoadedRange, VersionDirectory
from odradek.jobs.load.errors import LoadError
from odradek.jobs.load.offsets import Finding, NamedPartition, Positions
from odradek.jobs.usage_report.times import iso

TITLES = ("version", "format", "topics", "partitions", "records", "bytes", "files", "commits", "last commit", "period")
_HASHES = 1 << 64


@dataclass(frozen=True)
class Summary:
    """What a version has. :param partitions: of each partition all ranges together. :param files: by path."""

    head: Head
    positions: Positions
    partitions: Mapping[NamedPartition, LoadedRange]
    files: Mapping[str, DataFile]
    findings: tuple[Finding, ...]
    commits: tuple[Commit, ...]

    @property
    def records(self) -> int:
        """The number of records."""
        return sum(part.records for part in self.partitions.values())

    @property
    def undecoded(self) -> int:
        """The number of records whose value could not be decoded."""
        return sum(file.undecoded for commit in self.commits if commit.kind == LOAD for file in commit.files)

    @property
    def period(self) -> str:
        """The period as text."""
        first, last = (None if ms is None else iso(ms) for ms in (self.head.from_ms, self.head.to_ms))
        return f"{first or 'beginning'} to {last or 'now'}"

    def row(self) -> tuple[Any, ...]:
        """The cells of a table with `TITLES`."""
        last = self.commits[-1].ended if self.commits else None
        size = sum(file.bytes for file in self.files.values())
        counts = (len(self.positions), len(self.partitions), self.records, size, len(self.files), len(self.commits))
        return (self.head.version, self.head.table, *counts, last, self.period)

    def document(self) -> dict[str, Any]:
        """The same for programs."""
        named = dict(zip((title.replace(" ", "_") for title in TITLES), self.row(), strict=True))
        findings = [asdict(finding) for finding in self.findings]
        return {**named, "from_ms": self.head.from_ms, "to_ms": self.head.to_ms, "findings": findings}


def summary_of(version: VersionDirectory) -> Summary:
    """Fold all commits of a version. Raises LoadError if it does not exist or its log cannot be read."""
    from odradek.jobs.load.output import format_of

    head = version.head()
    if head is None:
        raise LoadError(f"{version.path}: is no version of `odradek load`; `odradek load versions` lists them")
    commits = tuple(version.all_commits())
    files: dict[str, DataFile] = {}
    partitions: dict[NamedPartition, LoadedRange] = {}
    for commit in commits:
        for removed in commit.removed:
            files.pop(removed, None)
        files |= {file.path: file for file in commit.files}
        for topic, ranges in commit.ranges.items():
            for number, part in ranges.items():
                place = NamedPartition(topic, number)
                partitions[place] = together(partitions[place], part) if place in partitions else part
    positions = commits[-1].positions if commits else {}
    findings = tuple(finding for commit in commits for finding in commit.findings)
    current = format_of(version).current_files(version, files)
    return Summary(head, positions, partitions, current, findings, commits)


def together(one: LoadedRange, other: LoadedRange) -> LoadedRange:
    """Two ranges of a partition as one; `other` is behind `one`."""

    def pick(choose: Any, *values: int | None) -> int | None:
        known = [value for value in values if value is not None]
        return choose(known) if known else None

    return replace(
        one,
        until=other.until,
        records=one.records + other.records,
        first_offset=pick(min, one.first_offset, other.first_offset),
        last_offset=pick(max, one.last_offset, other.last_offset),
        first_timestamp_ms=pick(min, one.first_timestamp_ms, other.first_timestamp_ms),
        last_timestamp_ms=pick(max, one.last_timestamp_ms, other.last_timestamp_ms),
        checksum=(one.checksum + other.checksum) % _HASHES,
    )
