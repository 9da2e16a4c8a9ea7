"""Verifies a log directory: its logs, segment by segment in parallel processes, its checkpoints and its leftover files.

Runs in `odradek log verify` and `odradek adopt`; writes nothing. The caller's process lists the files, distributes groups
of segments of similar size, and joins the reports. Shared memory has one counter of verified bytes per process. A broker
may run on the directory: the checkpoint files then determine which part of a log must be intact.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from odradek.storage.checkpoints import (
    CorruptCheckpointError,
    effective_gap_limit,
    read_gap_limit,
    read_offset_checkpoint,
)
from odradek.storage.file_names import (
    CLEAN_SHUTDOWN,
    CLEANER_CHECKPOINT,
    GAPS_CHECKPOINT,
    LOCK,
    LOG,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_CHECKPOINT,
    ForeignNameError,
    parse_directory_name,
    segment_file_name,
)
from odradek.storage.log_directory import is_locked
from odradek.storage.verify_log import (
    ANYWHERE,
    Expectation,
    Finding,
    LogFiles,
    LogReport,
    SegmentReport,
    check_segment,
    join,
    list_log,
)
from odradek.topic_partition import TopicPartition

ODRADEK_PREFIX = "odradek"
ALWAYS_COMPACTED = ("__consumer_offsets", "__transaction_state", "__share_group_state")
GROUP_BYTES, GROUP_SEGMENTS = 64 << 20, 200
POLL_S = 0.1
OFFSET_CHECKPOINTS = (
    RECOVERY_POINT_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    REPLICATION_CHECKPOINT,
    CLEANER_CHECKPOINT,
)
OWN_FILES = {LOCK, META_PROPERTIES, CLEAN_SHUTDOWN, *OFFSET_CHECKPOINTS}


class NotALogDirectoryError(ValueError):
    """A path that is not a log directory; the message has the reason."""


@dataclass
class DirectoryFiles:
    """The files in a log directory.

    `locked`: a broker runs on it; `clean`: it was cleanly shut down; `checkpoints`: by file name; `unknown_files`: names of
    unknown files and directories; `written_by_odradek`: Odradek has written there, not only Kafka.
    """

    path: str
    locked: bool = False
    clean: bool = False
    logs: dict[TopicPartition, LogFiles] = field(default_factory=dict)
    checkpoints: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)
    unknown_files: list[str] = field(default_factory=list)
    written_by_odradek: bool = False
    findings: list[Finding] = field(default_factory=list)

    def restate_lock(self, held_by_us: bool) -> None:
        """Ignore the lock if the caller itself holds it, to keep brokers away."""
        self.locked = self.locked and not held_by_us
        self.clean = not self.locked and Path(self.path, CLEAN_SHUTDOWN).exists()

    @property
    def bytes(self) -> int:
        """Size of all logs in bytes."""
        return sum(files.bytes for files in self.logs.values())


@dataclass
class DirectoryReport:
    """The report of a log directory: one report per log, and findings about other files."""

    files: DirectoryFiles
    logs: dict[TopicPartition, LogReport] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    @property
    def all_findings(self) -> list[Finding]:
        """The findings of the directory and of its logs."""
        return self.findings + [finding for log in self.logs.values() for finding in log.findings]

    @property
    def errors(self) -> list[Finding]:
        """Findings that a broker does not repair when it starts."""
        return [finding for finding in self.all_findings if finding.error]


def list_directory(path: str | os.PathLike[str]) -> DirectoryFiles:
    """List a log directory, or a single partition directory.

    Raises NotALogDirectoryError, OSError.
    """
    if not Path(path).is_dir():
        problem = "is not a directory" if Path(path).exists() else "does not exist"
        raise NotALogDirectoryError(f"{path} {problem}; name a directory of the broker's log.dirs")
    if any(name.suffix == LOG for name in Path(path).iterdir()):
        return _single(Path(path))
    files = DirectoryFiles(str(path), is_locked(path), Path(path, CLEAN_SHUTDOWN).exists())
    files.clean = files.clean and not files.locked
    for name in OFFSET_CHECKPOINTS:
        try:
            files.checkpoints[name] = read_offset_checkpoint(Path(path, name))
        except (CorruptCheckpointError, OSError) as error:
            files.checkpoints[name] = {}
            files.findings.append(Finding(f"{path}/{name}", str(error)))
    with os.scandir(path) as entries:
        children = sorted((entry.name, entry.is_dir()) for entry in entries)
    files.written_by_odradek = _has_odradek_files(name for name, _ in children)
    for name, is_directory in children:
        if is_directory and not name.startswith("."):
            _list_child(files, name)
        elif name not in OWN_FILES:
            files.unknown_files.append(name)
    return files


def _single(path: Path) -> DirectoryFiles:
    """List a single partition directory. Without a valid partition name it counts as cleanly shut down."""
    try:
        parsed = parse_directory_name(path.absolute().name)
        key = (parsed.topic, parsed.partition)
    except ForeignNameError:
        key = (path.absolute().name, -1)
    parent = path.absolute().parent
    locked = is_locked(parent)
    files = DirectoryFiles(str(path), locked, not locked and (Path(parent, CLEAN_SHUTDOWN).exists() or key[1] < 0))
    files.logs[key] = list_log(path)
    files.written_by_odradek = _has_odradek_files(child.name for child in parent.iterdir())
    for name in OFFSET_CHECKPOINTS:
        try:
            entries = read_offset_checkpoint(parent / name)
        except (CorruptCheckpointError, OSError) as error:
            files.findings.append(Finding(f"{parent}/{name}", str(error)))
            continue
        files.checkpoints[name] = {key: entries[key]} if key in entries else {}
    return files


def _has_odradek_files(names: Iterable[str]) -> bool:
    return any(name.startswith((ODRADEK_PREFIX, f".{ODRADEK_PREFIX}")) for name in names)


def _list_child(files: DirectoryFiles, name: str) -> None:
    path = f"{files.path}/{name}"
    try:
        parsed = parse_directory_name(name)
    except ForeignNameError:
        files.unknown_files.append(name)
        return
    if parsed.fate is not None:
        text = f"leftover partition directory that {_FATES[parsed.fate]}"
        files.findings.append(Finding(path, text, error=False))
        return
    try:
        files.logs[parsed.topic, parsed.partition] = list_log(path)
    except FileNotFoundError:
        return  # a running broker has just deleted it


_FATES = {
    "delete": "waits for its deletion",
    "future": "waits for its promotion",
    "stray": "belongs to no topic; delete it if its records are not needed",
}


def expectation(
    files: DirectoryFiles, key: TopicPartition, gaps: Iterable[str] = (), deep: bool = False
) -> Expectation:
    """The expectations for a log. :param gaps: topics that are known to be compacted."""
    log_start = files.checkpoints.get(LOG_START_OFFSET_CHECKPOINT, {}).get(key, 0)
    return Expectation(
        files.clean,
        files.checkpoints.get(RECOVERY_POINT_CHECKPOINT, {}).get(key, 0),
        log_start,
        max(log_start, _gap_limit(files, key, gaps)),
        deep,
    )


def _gap_limit(files: DirectoryFiles, key: TopicPartition, gaps: Iterable[str]) -> int:
    """The offset below which a starting broker would accept offset gaps as caused by compaction.

    In a directory that only Kafka has written, Kafka's always compacted topics may have gaps anywhere: the log of a
    follower has the gaps of its leader.
    """
    cleaner_offset = files.checkpoints.get(CLEANER_CHECKPOINT, {}).get(key)
    try:
        own = read_gap_limit(files.logs[key].directory)
    except (CorruptCheckpointError, OSError) as error:
        files.findings.append(Finding(f"{files.logs[key].directory}/{GAPS_CHECKPOINT}", str(error)))
        return ANYWHERE
    if key[0] in gaps or (own is None and not files.written_by_odradek and key[0] in ALWAYS_COMPACTED):
        return ANYWHERE
    limit = effective_gap_limit(own, cleaner_offset)
    return ANYWHERE if limit == float("inf") else int(limit)


# -- in parallel ---------------------------------------------------------------------------------------------------

Job = tuple[LogFiles, Expectation, list[int]]
SIGNALS = (signal.SIGINT, signal.SIGTERM)
_done: Any = None  # shared: verified bytes, one number per process of the pool; set when a process starts
_process_number = 0
_cancelled: Any = None  # shared: whether the processes of the pool must end


class _CancelledError(Exception):
    """The caller has cancelled the verification."""


def _begin(done: Any, taken: Any, cancelled: Any) -> None:
    """Initialize a process of the pool. A terminal sends Ctrl-C to all processes: only the caller's process handles it."""
    global _done, _process_number, _cancelled
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    _done, _cancelled = done, cancelled
    with taken.get_lock():
        _process_number = taken.value
        taken.value += 1


def _count(size: int) -> None:
    """Add `size` verified bytes; 0 only checks for a cancellation. Raises _CancelledError."""
    if _done is not None:
        _done[_process_number] += size
        if _cancelled.value:
            raise _CancelledError


def _run(jobs: list[Job]) -> list[list[SegmentReport]]:
    return [[_check(files, base, expected) for base in bases] for files, expected, bases in jobs]


def _check(files: LogFiles, base: int, expected: Expectation) -> SegmentReport:
    try:
        return check_segment(files, base, expected, _count)
    except OSError as error:
        path = error.filename or f"{files.directory}/{segment_file_name(base, LOG)}"
        text = f"cannot read the file: {error.strerror}"
        return SegmentReport(base, findings=[Finding(str(path), text)])


def verify(
    directories: Sequence[DirectoryFiles],
    *,
    processes: int = 0,
    gaps: Iterable[str] = (),
    deep: bool = False,
    progress: Callable[[int], None] | None = None,
) -> list[DirectoryReport]:
    """Verify the directories.

    :param processes: number of processes; 0: one per core. :param gaps: topics that are known to be compacted.
    :param deep: decompress every batch.
    :param progress: called periodically in this process with the number of bytes verified so far.
    :raises BrokenProcessPool: a process of the pool was killed.

    An exception of `progress` or of a signal handler also ends the processes.
    """
    gaps = frozenset(gaps)
    expected = {
        (number, key): expectation(files, key, gaps, deep)
        for number, files in enumerate(directories)
        for key in files.logs
    }
    groups = _groups(directories, expected)
    count = min(processes or len(os.sched_getaffinity(0)), len(groups))
    reports_by_segment: dict[tuple[str, int], SegmentReport] = {}
    if count <= 1:
        for group in groups:
            _collect(reports_by_segment, group, _run(group))
            if progress is not None:
                progress(sum(segment.size for segment in reports_by_segment.values()))
    else:
        _run_in_parallel(groups, count, reports_by_segment, progress)
    reports = []
    for number, files in enumerate(directories):
        report = DirectoryReport(files, findings=list(files.findings))
        for key, log in files.logs.items():
            segments = [reports_by_segment[log.directory, base] for base in log.segments]
            report.logs[key] = join(log, segments, expected[number, key])
        _check_directory(report)
        reports.append(report)
    return reports


def _groups(
    directories: Sequence[DirectoryFiles], expected: Mapping[tuple[int, TopicPartition], Expectation]
) -> list[list[Job]]:
    """All segments in groups; a process verifies one group at a time. Large groups come first."""
    groups: list[tuple[int, list[Job]]] = []
    jobs: list[Job] = []
    size = segments = 0
    for number, files in enumerate(directories):
        for key, log in files.logs.items():
            bases: list[int] = []
            for base in log.segments:
                bases.append(base)
                size += log.names[segment_file_name(base, LOG)]
                segments += 1
                if size >= GROUP_BYTES or segments >= GROUP_SEGMENTS:
                    groups.append((size, [*jobs, (log, expected[number, key], bases)]))
                    jobs, bases, size, segments = [], [], 0, 0
            if bases:
                jobs.append((log, expected[number, key], bases))
    if jobs:
        groups.append((size, jobs))
    return [group for _, group in sorted(groups, key=lambda pair: -pair[0])]


def _collect(
    reports_by_segment: dict[tuple[str, int], SegmentReport], group: list[Job], reports: list[list[SegmentReport]]
) -> None:
    for (files, _, _), segments in zip(group, reports, strict=True):
        for segment in segments:
            reports_by_segment[files.directory, segment.base_offset] = segment


def _run_in_parallel(
    groups: list[list[Job]],
    count: int,
    reports_by_segment: dict[tuple[str, int], SegmentReport],
    progress: Callable[[int], None] | None,
) -> None:
    context = multiprocessing.get_context("fork")
    done: Any = context.Array(ctypes.c_int64, count, lock=False)
    taken = context.Value(ctypes.c_int)
    cancelled: Any = context.Value(ctypes.c_bool, lock=False)
    with ProcessPoolExecutor(count, context, _begin, (done, taken, cancelled)) as pool:
        try:
            waiting = _submit(pool, groups)
            while waiting:
                ended, _ = wait(waiting, timeout=POLL_S, return_when=FIRST_COMPLETED)
                for future in ended:
                    _collect(reports_by_segment, waiting.pop(future), future.result())
                if progress is not None:
                    progress(sum(done))
        except BaseException:
            cancelled.value = True
            # It waits: the pool's thread would otherwise close its pipe while the interpreter ends and uses the pipe.
            pool.shutdown(cancel_futures=True)
            raise


def _submit(pool: ProcessPoolExecutor, groups: list[list[Job]]) -> dict[Future[list[list[SegmentReport]]], list[Job]]:
    """Submit all groups; return them by future.

    The first submit forks the processes, whose signals are blocked until `_begin`.
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        return {pool.submit(_run, group): group for group in groups}
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


# -- other files of the directory ------------------------------------------------------------------------------------


def _check_directory(report: DirectoryReport) -> None:
    files = report.files
    for name, entries in files.checkpoints.items():
        for key, offset in entries.items():
            _check_entry(report, name, key, offset)
    topic_ids: dict[str, Any] = {}
    for (topic, _), log in report.logs.items():
        if log.topic_id is not None and topic_ids.setdefault(topic, log.topic_id) != log.topic_id:
            text = f"the topic id differs from that of another partition of {topic}"
            report.findings.append(Finding(f"{log.directory}/partition.metadata", text))


def _check_entry(report: DirectoryReport, name: str, key: TopicPartition, offset: int) -> None:
    """Check that the offset of a checkpoint is within its log."""
    path = f"{report.files.path}/{name}"
    place = f"{key[0]}-{key[1]}"
    log = report.logs.get(key)
    if log is None:
        if report.files.path == str(Path(report.files.path)) and not report.files.locked:
            text = f"has offset {offset} for {place}, which has no directory"
            report.findings.append(Finding(path, text, offset, error=False))
        return
    end = log.log_end_offset
    if 0 <= offset <= end:
        return
    # The disk may have a high watermark before its records, which need not be flushed.
    is_error = report.files.clean or name != REPLICATION_CHECKPOINT
    text = f"has offset {offset} for {place}, but the log ends at {end}"
    report.findings.append(Finding(path, text, offset, error=is_error and not (report.files.locked and offset >= 0)))
