"""Whether the files of one log agree with Kafka's formats, with themselves and with each other; nothing is written.

Runs in the processes of `odradek log verify` and `odradek adopt`. A segment is walked through natively
(`odradek._ext.storage.log_check`) by whichever process has time; `join` puts a log's segments together and looks at
what belongs to all of them. A broker may run on the files: indexes are read before the log that they point into, the
end of the log is where its size was when it was opened, and files that went meanwhile are passed over.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import odradek._ext.storage.log_check as log_check
from odradek.storage import batch_file
from odradek.storage.checkpoints import CorruptCheckpointError, read_leader_epochs
from odradek.storage.file_names import (
    GAPS_CHECKPOINT,
    INDEX,
    LEADER_EPOCH_CHECKPOINT,
    LOG,
    PARTITION_METADATA,
    SNAPSHOT,
    TIME_INDEX,
    TXN_INDEX,
    parse_segment_file_name,
    segment_file_name,
)
from odradek.storage.indexes import OFFSET_ENTRY, TIME_ENTRY, TXN_ENTRY, read_txn_index
from odradek.storage.log_directory import CorruptMetadataError, read_partition_metadata
from odradek.storage.producer_snapshot import CorruptSnapshotError, read_snapshot

ANYWHERE = (1 << 63) - 1  # as gap_limit
STEP_BYTES = 16 << 20
MOST_FINDINGS = 1000  # of one segment; a disk of rubbish is described well enough by them
OF_METADATA_LOG = "quorum-state"  # KRaft's
KNOWN_FILES = {LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, GAPS_CHECKPOINT, OF_METADATA_LOG}
IN_INDEXES = {log_check.INDEX_POSITION, log_check.INDEX_OFFSET, log_check.TIME_OFFSET, log_check.TIME_STAMP}
LEFT_OVER = "left over: a start of the broker removes or completes it"
FOREIGN = "not a file of a log: left untouched"
Progress = Callable[[int], None]


@dataclass
class Finding:
    """Something wrong (``error``), or something to know that a start of the broker deals with.

    `offset` in the log and `position` in the file where they say something, else None.
    """

    file: str
    what: str
    offset: int | None = None
    position: int | None = None
    error: bool = True


@dataclass(frozen=True)
class Expectation:
    """What is known of a log before it is read.

    :param clean: closed in order, and no broker runs on it: everything must be as it was left. Otherwise the end of the
        log behind `recovery_point`, and the indexes there, are for the recovery to judge.
    :param gap_limit: compaction may have left gaps between offsets below it, nothing else does; ANYWHERE: it is not
        known where.
    """

    clean: bool = True
    recovery_point: int = 0
    log_start_offset: int = 0
    gap_limit: int = 0
    deep: bool = False


@dataclass
class LogFiles:
    """The names in a partition's directory: base offsets of segments, and snapshots, in order; what else there is."""

    directory: str
    segments: list[int] = field(default_factory=list)
    snapshots: list[int] = field(default_factory=list)
    names: dict[str, int] = field(default_factory=dict)
    leftovers: list[str] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        """Of the segments' logs."""
        return sum(self.names[segment_file_name(base, LOG)] for base in self.segments)


@dataclass
class SegmentReport:
    """What one walk through a segment found. `epochs`: (leader epoch, first offset seen of it); `gaps_end`: the offset
    behind the last gap, 0 without one."""

    base_offset: int
    size: int = 0
    first_offset: int = -1
    next_offset: int = -1
    batches: int = 0
    records: int = 0
    formats: int = 0
    codecs: int = 0
    gaps_end: int = 0
    gone: bool = False
    epochs: list[tuple[int, int]] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


@dataclass
class LogReport:
    """A log as a whole. `formats` and `codecs` are bit sets; `log_end_offset` is where an undamaged log ends,
    `gaps_end` the offset behind its last gap, 0 without one."""

    directory: str
    log_start_offset: int = 0
    log_end_offset: int = 0
    size: int = 0
    segments: int = 0
    batches: int = 0
    records: int = 0
    formats: int = 0
    codecs: int = 0
    gaps_end: int = 0
    topic_id: Any = None
    leader_epoch: int = -1
    max_producer_id: int = -1
    findings: list[Finding] = field(default_factory=list)


def list_log(directory: str | os.PathLike[str]) -> LogFiles:
    """What lies in a partition's directory. Raises OSError."""
    found = LogFiles(str(directory))
    with os.scandir(directory) as entries:
        for entry in entries:
            try:
                found.names[entry.name] = entry.stat().st_size
            except FileNotFoundError:
                continue  # a broker runs and has just renamed it
            parsed = parse_segment_file_name(entry.name)
            if parsed is None:
                if entry.name not in KNOWN_FILES and not entry.name.endswith(".checkpoint"):
                    found.leftovers.append(entry.name)
            elif parsed.state:
                found.leftovers.append(entry.name)
            elif parsed.kind == LOG:
                found.segments.append(parsed.base_offset)
            elif parsed.kind == SNAPSHOT:
                found.snapshots.append(parsed.base_offset)
    found.segments.sort()
    found.snapshots.sort()
    bases = set(found.segments)
    for name in found.names:
        parsed = parse_segment_file_name(name)
        if parsed and not parsed.state and parsed.kind not in (LOG, SNAPSHOT) and parsed.base_offset not in bases:
            found.leftovers.append(name)
    found.leftovers.sort()
    return found


# -- one segment ---------------------------------------------------------------------------------------------------


def check_segment(
    files: LogFiles, base_offset: int, expected: Expectation, progress: Progress | None = None
) -> SegmentReport:
    """Walk through one segment of a log, its indexes in hand; `progress` is called with the bytes just done. Raises OSError."""
    report = SegmentReport(base_offset)
    last = base_offset == files.segments[-1]
    path = Path(files.directory, segment_file_name(base_offset, LOG))
    index = _read_entries(files, base_offset, INDEX, expected.clean and not last, report)
    times = _read_entries(files, base_offset, TIME_INDEX, expected.clean and not last, report)
    _check_txn_index(files, base_offset, report)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return SegmentReport(base_offset, gone=True)
    try:
        report.size = os.fstat(descriptor).st_size
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_SEQUENTIAL)
        _walk(descriptor, files, report, (index, times), expected, last, progress)
        if expected.deep:
            _open_batches(descriptor, report, str(path), progress)
    finally:
        os.close(descriptor)
    return report


def _walk(
    descriptor: int,
    files: LogFiles,
    report: SegmentReport,
    indexes: tuple[array[int], array[int]],
    expected: Expectation,
    last: bool,
    progress: Progress | None,
) -> None:
    index, times = indexes
    check = log_check.SegmentCheck(descriptor, report.size, report.base_offset, expected.gap_limit, index, times)
    before = 0
    while not check.finished:
        for kind, position, offset, value in check.step(STEP_BYTES):
            if kind == log_check.EPOCH:
                report.epochs.append((value, offset))
            elif len(report.findings) < MOST_FINDINGS:
                finding = _finding(files.directory, report.base_offset, indexes, (kind, position, offset, value))
                finding.error = not _for_recovery(kind, value, offset, expected, last, report, check.next_offset)
                report.findings.append(finding)
        if progress is not None:
            progress(check.position - before)
        before = check.position
    report.first_offset, report.next_offset = check.first_offset, check.next_offset
    report.batches, report.records = check.batches, check.records
    report.formats, report.codecs, report.gaps_end = check.formats, check.codecs, check.gaps_end



def _for_recovery(
    kind: int, value: int, offset: int, expected: Expectation, last: bool, report: SegmentReport, end: int
) -> bool:
    """Whether the next start of a broker will look at this by itself, because nobody closed the log in order."""
    if expected.clean:
        return False
    if kind in IN_INDEXES:
        return last or end < 0 or end > expected.recovery_point
    # The torn end of the log: nothing can be read behind it.
    return last and kind == log_check.FRAMING and value < 0 and offset >= expected.recovery_point


_SENTENCES: dict[int, str] = {
    log_check.FRAMING: "no batch begins here; {resume}",
    log_check.CRC: "the batch does not match its CRC",
    log_check.OFFSET_BACK: "the batch begins at {offset} where offset {value} comes next",
    log_check.GAP: "offsets {value} to {before} are missing, and compaction did not remove them",
    log_check.EPOCH_BACK: "the batch is of an older leader epoch than the one before it ({value})",
    log_check.RECORDS: "the batch does not hold the records that its header states{count}",
    log_check.HEADER: "the header states {value} records, which cannot be",
    log_check.RANGE: "offsets {offset} to {value} do not belong into a segment of this name",
}
_INDEX_SENTENCES: dict[int, str] = {
    log_check.INDEX_POSITION: "the entry (offset {first}, position {second}) points at no batch",
    log_check.INDEX_OFFSET: "the entry (offset {first}, position {second}) is before the batch it points at",
    log_check.TIME_OFFSET: "the entry (timestamp {first}, offset {second}) points at no batch",
    log_check.TIME_STAMP: "the entry (timestamp {first}, offset {second}) is not the largest timestamp up to there",
}


def _finding(
    directory: str, base: int, indexes: tuple[array[int], array[int]], note: tuple[int, int, int, int]
) -> Finding:
    kind, position, offset, value = note
    if kind in IN_INDEXES:
        of_time = kind in (log_check.TIME_OFFSET, log_check.TIME_STAMP)
        entries, suffix, size = (
            (indexes[1], TIME_INDEX, TIME_ENTRY.size) if of_time else (indexes[0], INDEX, OFFSET_ENTRY.size)
        )
        text = _INDEX_SENTENCES[kind].format(first=entries[2 * value], second=entries[2 * value + 1])
        return Finding(f"{directory}/{segment_file_name(base, suffix)}", text, offset, value * size)
    text = _SENTENCES[kind].format(
        offset=offset,
        value=value,
        before=offset - 1,
        count=f" ({value} found)" if value >= 0 else "",
        resume=f"the next one is found at position {value}" if value >= 0 else "nothing behind it can be read",
    )
    return Finding(f"{directory}/{segment_file_name(base, LOG)}", text, offset if offset >= 0 else None, position)


def _read_entries(files: LogFiles, base: int, suffix: str, closed: bool, report: SegmentReport) -> array[int]:
    """An index as absolute numbers, two an entry; of one that a broker had open, without the room kept behind them."""
    entry = OFFSET_ENTRY if suffix == INDEX else TIME_ENTRY
    path = Path(files.directory, segment_file_name(base, suffix))
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        report.findings.append(Finding(str(path), "missing: a start of the broker makes it anew", error=closed))
        return array("q")
    if not closed:
        data = data[: -(-len(data.rstrip(b"\0")) // entry.size) * entry.size]
    if len(data) % entry.size:
        text = f"{len(data)} bytes are not a multiple of {entry.size}"
        report.findings.append(Finding(str(path), text, error=closed))
    found = array("q")
    before = (-1, -1)
    for number, (first, second) in enumerate(entry.iter_unpack(data[: len(data) // entry.size * entry.size])):
        pair = (base + first, second) if suffix == INDEX else (first, base + second)
        if pair[0] < before[0] or pair[1] < before[1] or (suffix == INDEX and pair[0] == before[0]):
            text = f"the entry {pair} does not follow {before}"
            report.findings.append(Finding(str(path), text, position=number * entry.size, error=closed))
            break
        before = pair
        found.extend(pair)
    return found


def _check_txn_index(files: LogFiles, base: int, report: SegmentReport) -> None:
    path = Path(files.directory, segment_file_name(base, TXN_INDEX))
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return
    try:
        if len(data) % TXN_ENTRY.size:
            raise ValueError(f"{len(data)} bytes are not a multiple of {TXN_ENTRY.size}")
        entries = read_txn_index(data)
    except ValueError as error:
        report.findings.append(Finding(str(path), str(error)))
        return
    before = base - 1
    for number, entry in enumerate(entries):
        if not before < entry.last_offset or not 0 <= entry.first_offset <= entry.last_offset:
            text = f"the entry of producer {entry.producer_id} ({entry.first_offset} to {entry.last_offset}) is out of order"
            report.findings.append(Finding(str(path), text, entry.last_offset, number * TXN_ENTRY.size))
        before = max(before, entry.last_offset)


def _open_batches(descriptor: int, report: SegmentReport, path: str, progress: Progress | None) -> None:
    """Decompress every batch and look at each record; findings that the walk has noted are not repeated.

    Calls `progress` with 0 for each batch, so that it can end a long check.
    """
    noted = {finding.position for finding in report.findings if finding.file == path}
    for found in batch_file.read_file(descriptor, report.size):
        if progress is not None:
            progress(0)
        if isinstance(found, batch_file.Damage):
            if found.position not in noted:
                report.findings.append(Finding(path, found.what, None, found.position))
            if found.size == 0:
                return
            continue
        try:
            batch_file.open_batch(found.content)
        except ValueError as error:
            if found.position not in noted:
                report.findings.append(Finding(path, f"its records: {error}", found.base_offset, found.position))


# -- the log as a whole --------------------------------------------------------------------------------------------


def join(files: LogFiles, reports: Sequence[SegmentReport], expected: Expectation) -> LogReport:
    """The log from its segments' reports, in order, and its other files."""
    there = [one for one in reports if not one.gone]
    report = LogReport(files.directory, expected.log_start_offset, segments=len(there))
    report.findings = [finding for one in there for finding in one.findings]
    for one in there:
        report.size += one.size
        report.batches += one.batches
        report.records += one.records
        report.formats |= one.formats
        report.codecs |= one.codecs
        report.gaps_end = max(report.gaps_end, one.gaps_end)
    _follow(files, reports, expected, report)
    if there:
        report.log_start_offset = max(expected.log_start_offset, there[0].base_offset)
        end = there[-1].next_offset
        report.log_end_offset = end if end >= 0 else there[-1].base_offset
    elif files.names and expected.clean and not reports:
        report.findings.append(Finding(files.directory, "no segment: the log is empty", error=False))
    _check_epochs(files, there, expected, report)
    _check_snapshots(files, expected, report)
    _check_identity(files, report)
    report.findings += [
        Finding(f"{files.directory}/{name}", LEFT_OVER if parse_segment_file_name(name) else FOREIGN, error=False)
        for name in files.leftovers
    ]
    return report


def _follow(files: LogFiles, reports: Iterable[SegmentReport], expected: Expectation, report: LogReport) -> None:
    """Segments must follow one another without overlap, and without a gap that compaction did not make."""
    before: SegmentReport | None = None
    for one in reports:
        if one.gone:
            before = None
            continue
        if before is not None and before.next_offset >= 0:
            path = f"{files.directory}/{segment_file_name(one.base_offset, LOG)}"
            if one.base_offset < before.next_offset:
                text = f"overlaps the segment before it, which ends before offset {before.next_offset}"
                report.findings.append(Finding(path, text, one.base_offset))
            elif one.base_offset > before.next_offset:
                report.gaps_end = max(report.gaps_end, one.base_offset)
                if one.base_offset > expected.gap_limit:
                    text = f"offsets {before.next_offset} to {one.base_offset - 1} are missing before this segment"
                    report.findings.append(Finding(path, text, before.next_offset))
        before = one


def _check_epochs(files: LogFiles, reports: Sequence[SegmentReport], expected: Expectation, report: LogReport) -> None:
    path = f"{files.directory}/{LEADER_EPOCH_CHECKPOINT}"
    seen: list[tuple[int, int]] = []
    for one in reports:
        for epoch, offset in one.epochs:
            if seen and epoch < seen[-1][0]:
                text = f"leader epoch {epoch} comes after {seen[-1][0]}"
                log = f"{files.directory}/{segment_file_name(one.base_offset, LOG)}"
                report.findings.append(Finding(log, text, offset))
            elif not seen or epoch > seen[-1][0]:
                seen.append((epoch, offset))
    report.leader_epoch = seen[-1][0] if seen else -1
    try:
        known = read_leader_epochs(path)
    except (CorruptCheckpointError, OSError) as error:
        report.findings.append(Finding(path, str(error)))
        return
    if LEADER_EPOCH_CHECKPOINT not in files.names:
        return  # Kafka before 0.11 kept none
    if known != sorted(set(known)) or len({epoch for epoch, _ in known}) != len(known):
        report.findings.append(Finding(path, "its epochs do not rise with their offsets"))
    starts = dict(known)
    report.leader_epoch = max([report.leader_epoch, *starts])
    for epoch, offset in seen:
        if offset < report.log_start_offset:
            continue  # records behind the log's start, to which the file owes nothing
        judged = expected.clean or offset < expected.recovery_point
        if epoch not in starts:
            report.findings.append(Finding(path, f"lacks leader epoch {epoch} of the log", offset, error=judged))
        elif starts[epoch] > offset:
            text = f"lets leader epoch {epoch} begin at {starts[epoch]}, the log at {offset}"
            report.findings.append(Finding(path, text, offset, error=judged))
    for epoch, offset in known:
        if offset > report.log_end_offset:
            text = f"leader epoch {epoch} begins behind the log's end {report.log_end_offset}"
            report.findings.append(Finding(path, text, offset, error=expected.clean))


def _check_snapshots(files: LogFiles, expected: Expectation, report: LogReport) -> None:
    for offset in files.snapshots:
        path = f"{files.directory}/{segment_file_name(offset, SNAPSHOT)}"
        try:
            producers = read_snapshot(path)
        except FileNotFoundError:
            continue
        except (CorruptSnapshotError, OSError) as error:
            report.findings.append(Finding(path, str(error)))
            continue
        report.max_producer_id = max([report.max_producer_id, *(one.producer_id for one in producers)])
        late = [one.producer_id for one in producers if one.batches and one.batches[-1].last_offset >= offset]
        if late:
            report.findings.append(
                Finding(path, f"states batches behind its own offset of producers {late[:5]}", offset)
            )
        if offset > report.log_end_offset:
            text = f"is of an offset behind the log's end {report.log_end_offset}"
            report.findings.append(Finding(path, text, offset, error=expected.clean))


def _check_identity(files: LogFiles, report: LogReport) -> None:
    path = f"{files.directory}/{PARTITION_METADATA}"
    try:
        report.topic_id = read_partition_metadata(files.directory)
    except (CorruptMetadataError, OSError) as error:
        report.findings.append(Finding(path, str(error)))
