"""Verifies the files of one log: their formats and their consistency with each other. Writes nothing.

Runs in the processes of `odradek log verify` and `odradek adopt`. Any process of the pool verifies a segment with native
code (`odradek._ext.storage.log_check`); `join` combines the reports of a log's segments and checks the files of the whole
log. A broker may run on the files: an index is read before its log, a log ends at its size when it was opened, and deleted
files are skipped.
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

ANYWHERE = (1 << 63) - 1  # value of gap_limit: gaps may be anywhere
STEP_BYTES = 16 << 20
MOST_FINDINGS = 1000  # per segment; enough to describe a disk of garbage
OF_METADATA_LOG = "quorum-state"  # in KRaft's metadata log
KNOWN_FILES = {LEADER_EPOCH_CHECKPOINT, PARTITION_METADATA, GAPS_CHECKPOINT, OF_METADATA_LOG}
IN_INDEXES = {log_check.INDEX_POSITION, log_check.INDEX_OFFSET, log_check.TIME_OFFSET, log_check.TIME_STAMP}
LEFT_OVER = "leftover file: a starting broker deletes or completes it"
FOREIGN = "not a file of a log: a starting broker does not touch it"
Progress = Callable[[int], None]


@dataclass
class Finding:
    """An error, or (with ``error`` False) a fact that a starting broker handles by itself.

    :param offset: in the log; None if not applicable. :param position: in the file; None if not applicable.
    """

    file: str
    what: str
    offset: int | None = None
    position: int | None = None
    error: bool = True


@dataclass(frozen=True)
class Expectation:
    """The facts about a log that decide which findings are errors.

    :param clean: it was cleanly shut down and no broker runs on it: every file must be intact. Otherwise the recovery handles
        the log after `recovery_point`, and the indexes there.
    :param gap_limit: the log may have offset gaps below this offset, from compaction; ANYWHERE: the offset is not known.
    :param deep: decompress every batch.
    """

    clean: bool = True
    recovery_point: int = 0
    log_start_offset: int = 0
    gap_limit: int = 0
    deep: bool = False


@dataclass
class LogFiles:
    """The files in a partition's directory.

    `segments` and `snapshots`: sorted base offsets; `names`: sizes by file name; `leftovers`: names of other files.
    """

    directory: str
    segments: list[int] = field(default_factory=list)
    snapshots: list[int] = field(default_factory=list)
    names: dict[str, int] = field(default_factory=dict)
    leftovers: list[str] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        """Size of the log files of all segments."""
        return sum(self.names[segment_file_name(base, LOG)] for base in self.segments)


@dataclass
class SegmentReport:
    """The result of verifying one segment.

    `epochs`: (leader epoch, its first offset in the segment); `gaps_end`: the offset after the last offset gap, 0 without gaps;
    `deleted`: the file did not exist any more.
    """

    base_offset: int
    size: int = 0
    first_offset: int = -1
    next_offset: int = -1
    batches: int = 0
    records: int = 0
    formats: int = 0
    codecs: int = 0
    gaps_end: int = 0
    deleted: bool = False
    epochs: list[tuple[int, int]] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


@dataclass
class LogReport:
    """The result of verifying a log.

    `formats` and `codecs` are bit sets; `log_end_offset` is exact for an undamaged log; `gaps_end` is the offset after the last
    offset gap, 0 without gaps.
    """

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
    """List the files in a partition's directory. Raises OSError."""
    files = LogFiles(str(directory))
    with os.scandir(directory) as entries:
        for entry in entries:
            try:
                files.names[entry.name] = entry.stat().st_size
            except FileNotFoundError:
                continue  # a running broker has just renamed it
            parsed = parse_segment_file_name(entry.name)
            if parsed is None:
                if entry.name not in KNOWN_FILES and not entry.name.endswith(".checkpoint"):
                    files.leftovers.append(entry.name)
            elif parsed.state:
                files.leftovers.append(entry.name)
            elif parsed.kind == LOG:
                files.segments.append(parsed.base_offset)
            elif parsed.kind == SNAPSHOT:
                files.snapshots.append(parsed.base_offset)
    files.segments.sort()
    files.snapshots.sort()
    bases = set(files.segments)
    for name in files.names:
        parsed = parse_segment_file_name(name)
        if parsed and not parsed.state and parsed.kind not in (LOG, SNAPSHOT) and parsed.base_offset not in bases:
            files.leftovers.append(name)
    files.leftovers.sort()
    return files


# -- one segment ---------------------------------------------------------------------------------------------------


def check_segment(
    files: LogFiles, base_offset: int, expected: Expectation, progress: Progress | None = None
) -> SegmentReport:
    """Verify a segment and its indexes. :param progress: called with the number of newly verified bytes. Raises OSError."""
    report = SegmentReport(base_offset)
    last = base_offset == files.segments[-1]
    path = Path(files.directory, segment_file_name(base_offset, LOG))
    index = _read_entries(files, base_offset, INDEX, expected.clean and not last, report)
    times = _read_entries(files, base_offset, TIME_INDEX, expected.clean and not last, report)
    _check_txn_index(files, base_offset, report)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return SegmentReport(base_offset, deleted=True)
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
    """Whether the recovery of the next start handles the finding, because the log was not cleanly shut down."""
    if expected.clean:
        return False
    if kind in IN_INDEXES:
        return last or end < 0 or end > expected.recovery_point
    # The torn end of the log: no data after it can be read.
    return last and kind == log_check.FRAMING and value < 0 and offset >= expected.recovery_point


_SENTENCES: dict[int, str] = {
    log_check.FRAMING: "invalid batch header; {resume}",
    log_check.CRC: "the batch does not match its CRC",
    log_check.OFFSET_BACK: "the batch has base offset {offset}; expected at least {value}",
    log_check.GAP: "offsets {value} to {before} are missing, and compaction did not remove them",
    log_check.EPOCH_BACK: "the batch has an older leader epoch than the batch before it ({value})",
    log_check.RECORDS: "the number of records does not match the batch header{count}",
    log_check.HEADER: "the batch header has an impossible record count: {value}",
    log_check.RANGE: "offsets {offset} to {value} do not belong to a segment with this name",
}
_INDEX_SENTENCES: dict[int, str] = {
    log_check.INDEX_POSITION: "the entry (offset {first}, position {second}) does not point at a batch",
    log_check.INDEX_OFFSET: "the entry (offset {first}, position {second}) has a lower offset than its batch",
    log_check.TIME_OFFSET: "the entry (timestamp {first}, offset {second}) does not point at a batch",
    log_check.TIME_STAMP: "the entry (timestamp {first}, offset {second}) is not the largest timestamp up to that offset",
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
        resume=f"the next batch is at position {value}" if value >= 0 else "the rest of the file cannot be read",
    )
    return Finding(f"{directory}/{segment_file_name(base, LOG)}", text, offset if offset >= 0 else None, position)


def _read_entries(files: LogFiles, base: int, suffix: str, closed: bool, report: SegmentReport) -> array[int]:
    """Read an index as absolute numbers, two per entry. :param closed: False: drop preallocated zero bytes at the end."""
    entry = OFFSET_ENTRY if suffix == INDEX else TIME_ENTRY
    path = Path(files.directory, segment_file_name(base, suffix))
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        report.findings.append(Finding(str(path), "missing: a starting broker rebuilds it", error=closed))
        return array("q")
    if not closed:
        data = data[: -(-len(data.rstrip(b"\0")) // entry.size) * entry.size]
    if len(data) % entry.size:
        text = f"{len(data)} bytes are not a multiple of {entry.size}"
        report.findings.append(Finding(str(path), text, error=closed))
    values = array("q")
    before = (-1, -1)
    for number, (first, second) in enumerate(entry.iter_unpack(data[: len(data) // entry.size * entry.size])):
        pair = (base + first, second) if suffix == INDEX else (first, base + second)
        if pair[0] < before[0] or pair[1] < before[1] or (suffix == INDEX and pair[0] == before[0]):
            text = f"the entry {pair} is out of order after {before}"
            report.findings.append(Finding(str(path), text, position=number * entry.size, error=closed))
            break
        before = pair
        values.extend(pair)
    return values


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
    """Decompress every batch and parse its records; do not repeat earlier findings.

    Calls `progress` with 0 for each batch, so that it can cancel a long check.
    """
    noted = {finding.position for finding in report.findings if finding.file == path}
    for batch in batch_file.read_file(descriptor, report.size):
        if progress is not None:
            progress(0)
        if isinstance(batch, batch_file.Damage):
            if batch.position not in noted:
                report.findings.append(Finding(path, batch.what, None, batch.position))
            if batch.size == 0:
                return
            continue
        try:
            batch_file.open_batch(batch.content)
        except ValueError as error:
            if batch.position not in noted:
                report.findings.append(
                    Finding(path, f"cannot decode the records: {error}", batch.base_offset, batch.position)
                )


# -- the log as a whole --------------------------------------------------------------------------------------------


def join(files: LogFiles, reports: Sequence[SegmentReport], expected: Expectation) -> LogReport:
    """Combine the reports of the segments, in order, and check the other files of the log."""
    present = [segment for segment in reports if not segment.deleted]
    report = LogReport(files.directory, expected.log_start_offset, segments=len(present))
    report.findings = [finding for segment in present for finding in segment.findings]
    for segment in present:
        report.size += segment.size
        report.batches += segment.batches
        report.records += segment.records
        report.formats |= segment.formats
        report.codecs |= segment.codecs
        report.gaps_end = max(report.gaps_end, segment.gaps_end)
    _check_order(files, reports, expected, report)
    if present:
        report.log_start_offset = max(expected.log_start_offset, present[0].base_offset)
        end = present[-1].next_offset
        report.log_end_offset = end if end >= 0 else present[-1].base_offset
    elif files.names and expected.clean and not reports:
        report.findings.append(Finding(files.directory, "no segments: the log is empty", error=False))
    _check_epochs(files, present, expected, report)
    _check_snapshots(files, expected, report)
    _check_identity(files, report)
    report.findings += [
        Finding(f"{files.directory}/{name}", LEFT_OVER if parse_segment_file_name(name) else FOREIGN, error=False)
        for name in files.leftovers
    ]
    return report


def _check_order(files: LogFiles, reports: Iterable[SegmentReport], expected: Expectation, report: LogReport) -> None:
    """Check that segments do not overlap, and have no offset gaps between them other than from compaction."""
    before: SegmentReport | None = None
    for segment in reports:
        if segment.deleted:
            before = None
            continue
        if before is not None and before.next_offset >= 0:
            path = f"{files.directory}/{segment_file_name(segment.base_offset, LOG)}"
            if segment.base_offset < before.next_offset:
                text = f"overlaps the previous segment, whose next offset is {before.next_offset}"
                report.findings.append(Finding(path, text, segment.base_offset))
            elif segment.base_offset > before.next_offset:
                report.gaps_end = max(report.gaps_end, segment.base_offset)
                if segment.base_offset > expected.gap_limit:
                    text = f"offsets {before.next_offset} to {segment.base_offset - 1} are missing before this segment"
                    report.findings.append(Finding(path, text, before.next_offset))
        before = segment


def _check_epochs(files: LogFiles, reports: Sequence[SegmentReport], expected: Expectation, report: LogReport) -> None:
    path = f"{files.directory}/{LEADER_EPOCH_CHECKPOINT}"
    seen: list[tuple[int, int]] = []
    for segment in reports:
        for epoch, offset in segment.epochs:
            if seen and epoch < seen[-1][0]:
                text = f"leader epoch {epoch} follows the newer leader epoch {seen[-1][0]}"
                log = f"{files.directory}/{segment_file_name(segment.base_offset, LOG)}"
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
        return  # Kafka before 0.11 wrote none
    if known != sorted(set(known)) or len({epoch for epoch, _ in known}) != len(known):
        report.findings.append(Finding(path, "the leader epochs and start offsets do not ascend"))
    starts = dict(known)
    report.leader_epoch = max([report.leader_epoch, *starts])
    for epoch, offset in seen:
        if offset < report.log_start_offset:
            continue  # the file has no entries for records before the log start offset
        is_error = expected.clean or offset < expected.recovery_point
        if epoch not in starts:
            report.findings.append(Finding(path, f"leader epoch {epoch} of the log is missing", offset, error=is_error))
        elif starts[epoch] > offset:
            text = f"leader epoch {epoch} starts at {starts[epoch]}, but in the log at {offset}"
            report.findings.append(Finding(path, text, offset, error=is_error))
    for epoch, offset in known:
        if offset > report.log_end_offset:
            text = f"leader epoch {epoch} starts after the log end offset {report.log_end_offset}"
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
        report.max_producer_id = max([report.max_producer_id, *(producer.producer_id for producer in producers)])
        late = [
            producer.producer_id
            for producer in producers
            if producer.batches and producer.batches[-1].last_offset >= offset
        ]
        if late:
            report.findings.append(Finding(path, f"has batches of producers {late[:5]} after its own offset", offset))
        if offset > report.log_end_offset:
            text = f"its offset is after the log end offset {report.log_end_offset}"
            report.findings.append(Finding(path, text, offset, error=expected.clean))


def _check_identity(files: LogFiles, report: LogReport) -> None:
    path = f"{files.directory}/{PARTITION_METADATA}"
    try:
        report.topic_id = read_partition_metadata(files.directory)
    except (CorruptMetadataError, OSError) as error:
        report.findings.append(Finding(path, str(error)))
