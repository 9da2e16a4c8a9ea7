"""Verifying a whole log directory: its logs segment by segment in parallel processes, its checkpoints, its leftovers.

Run by `odradek log verify` and `odradek adopt`; writes nothing. The caller's process lists the files, hands out groups of
segments of similar size, and joins what comes back; the bytes done are counted in shared memory, a number a process.
A broker may run on the directory: then the offsets of the checkpoint files say what must be whole.
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

CLUSTER_METADATA = "__cluster_metadata"
OURS = "odradek"
ALWAYS_COMPACTED = ("__consumer_offsets", "__transaction_state", "__share_group_state")
GROUP_BYTES, GROUP_SEGMENTS = 64 << 20, 200
POLL_S = 0.1
Partition = tuple[str, int]
OFFSET_CHECKPOINTS = (
    RECOVERY_POINT_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    REPLICATION_CHECKPOINT,
    CLEANER_CHECKPOINT,
)
OWN_FILES = {LOCK, META_PROPERTIES, CLEAN_SHUTDOWN, *OFFSET_CHECKPOINTS}


class NotALogDirectoryError(ValueError):
    """A path that is no directory of logs; the message says why."""


@dataclass
class DirectoryFiles:
    """What lies in a log directory. `checkpoints`: by the file's name; `others`: what is neither log nor known file;
    `ours`: this broker wrote there, and not only Kafka."""

    path: str
    locked: bool = False
    clean: bool = False
    logs: dict[Partition, LogFiles] = field(default_factory=dict)
    checkpoints: dict[str, dict[Partition, int]] = field(default_factory=dict)
    others: list[str] = field(default_factory=list)
    ours: bool = False
    findings: list[Finding] = field(default_factory=list)

    def restate_lock(self, held_by_us: bool) -> None:
        """The lock that was found is the caller's own, taken to keep every broker away."""
        self.locked = self.locked and not held_by_us
        self.clean = not self.locked and Path(self.path, CLEAN_SHUTDOWN).exists()

    @property
    def bytes(self) -> int:
        """Of all logs."""
        return sum(files.bytes for files in self.logs.values())


@dataclass
class DirectoryReport:
    """A log directory as a whole: a report a log, and what was found besides."""

    files: DirectoryFiles
    logs: dict[Partition, LogReport] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    @property
    def all_findings(self) -> list[Finding]:
        """Of the directory and its logs."""
        return self.findings + [finding for log in self.logs.values() for finding in log.findings]

    @property
    def errors(self) -> list[Finding]:
        """Those that no start of a broker deals with by itself."""
        return [finding for finding in self.all_findings if finding.error]


def list_directory(path: str | os.PathLike[str]) -> DirectoryFiles:
    """What lies there; a partition's directory may be given as well, and is then all there is.

    Raises NotALogDirectoryError, OSError.
    """
    if not Path(path).is_dir():
        raise NotALogDirectoryError(f"{path} is not a directory")
    if any(name.suffix == LOG for name in Path(path).iterdir()):
        return _single(Path(path))
    found = DirectoryFiles(str(path), is_locked(path), Path(path, CLEAN_SHUTDOWN).exists())
    found.clean = found.clean and not found.locked
    for name in OFFSET_CHECKPOINTS:
        try:
            found.checkpoints[name] = read_offset_checkpoint(Path(path, name))
        except (CorruptCheckpointError, OSError) as error:
            found.checkpoints[name] = {}
            found.findings.append(Finding(f"{path}/{name}", str(error)))
    with os.scandir(path) as entries:
        children = sorted((entry.name, entry.is_dir()) for entry in entries)
    found.ours = _is_ours(name for name, _ in children)
    for name, is_directory in children:
        if is_directory and not name.startswith("."):
            _list_child(found, name)
        elif name not in OWN_FILES:
            found.others.append(name)
    return found


def _single(path: Path) -> DirectoryFiles:
    """A partition's directory alone: nothing is known of it, so it is held to be closed in order."""
    try:
        parsed = parse_directory_name(path.absolute().name)
        key = (parsed.topic, parsed.partition)
    except ForeignNameError:
        key = (path.absolute().name, -1)
    parent = path.absolute().parent
    locked = is_locked(parent)
    files = DirectoryFiles(str(path), locked, not locked and (Path(parent, CLEAN_SHUTDOWN).exists() or key[1] < 0))
    files.logs[key] = list_log(path)
    files.ours = _is_ours(child.name for child in parent.iterdir())
    for name in OFFSET_CHECKPOINTS:
        try:
            entries = read_offset_checkpoint(parent / name)
        except (CorruptCheckpointError, OSError) as error:
            files.findings.append(Finding(f"{parent}/{name}", str(error)))
            continue
        files.checkpoints[name] = {key: entries[key]} if key in entries else {}
    return files


def _is_ours(names: Iterable[str]) -> bool:
    return any(name.startswith((OURS, f".{OURS}")) for name in names)


def _list_child(found: DirectoryFiles, name: str) -> None:
    path = f"{found.path}/{name}"
    try:
        parsed = parse_directory_name(name)
    except ForeignNameError:
        found.others.append(name)
        return
    if parsed.fate is not None:
        text = f"left over: a partition's directory that awaits its {_FATES[parsed.fate]}"
        found.findings.append(Finding(path, text, error=False))
        return
    try:
        found.logs[parsed.topic, parsed.partition] = list_log(path)
    except FileNotFoundError:
        return  # a broker runs and has just deleted it


_FATES = {"delete": "deletion", "future": "promotion", "stray": "judgement by somebody"}


def expectation(files: DirectoryFiles, key: Partition, gaps: Iterable[str] = (), deep: bool = False) -> Expectation:
    """What is known of a log; `gaps` are topics known to be compacted."""
    log_start = files.checkpoints.get(LOG_START_OFFSET_CHECKPOINT, {}).get(key, 0)
    return Expectation(
        files.clean,
        files.checkpoints.get(RECOVERY_POINT_CHECKPOINT, {}).get(key, 0),
        log_start,
        max(log_start, _gap_limit(files, key, gaps)),
        deep,
    )


def _gap_limit(files: DirectoryFiles, key: Partition, gaps: Iterable[str]) -> int:
    """Where a start of the broker would take a gap for the work of compaction. In a directory that only Kafka wrote to,
    topics that are compacted by their nature may have gaps anywhere: a follower's log has those of its leader."""
    cleaner_offset = files.checkpoints.get(CLEANER_CHECKPOINT, {}).get(key)
    try:
        own = read_gap_limit(files.logs[key].directory)
    except (CorruptCheckpointError, OSError) as error:
        files.findings.append(Finding(f"{files.logs[key].directory}/{GAPS_CHECKPOINT}", str(error)))
        return ANYWHERE
    if key[0] in gaps or (own is None and not files.ours and key[0] in ALWAYS_COMPACTED):
        return ANYWHERE
    limit = effective_gap_limit(own, cleaner_offset)
    return ANYWHERE if limit == float("inf") else int(limit)


# -- in parallel ---------------------------------------------------------------------------------------------------

Job = tuple[LogFiles, Expectation, list[int]]
SIGNALS = (signal.SIGINT, signal.SIGTERM)
_done: Any = None  # bytes done, a number for each process of the pool; set when one of them starts
_mine = 0
_cancelled: Any = None  # shared: whether the pool's processes shall end


class _CancelledError(Exception):
    """The caller no longer wants the results."""


def _begin(done: Any, taken: Any, cancelled: Any) -> None:
    """First in each process of the pool. A terminal sends Ctrl-C to all of them: only the caller's process answers it."""
    global _done, _mine, _cancelled
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    _done, _cancelled = done, cancelled
    with taken.get_lock():
        _mine = taken.value
        taken.value += 1


def _count(size: int) -> None:
    """Of `size` bytes just done; 0 only asks whether to go on. Raises _CancelledError."""
    if _done is not None:
        _done[_mine] += size
        if _cancelled.value:
            raise _CancelledError


def _run(jobs: list[Job]) -> list[list[SegmentReport]]:
    return [[_check(files, base, expected) for base in bases] for files, expected, bases in jobs]


def _check(files: LogFiles, base: int, expected: Expectation) -> SegmentReport:
    try:
        return check_segment(files, base, expected, _count)
    except OSError as error:
        path = error.filename or f"{files.directory}/{segment_file_name(base, LOG)}"
        text = f"cannot be read: {error.strerror}"
        return SegmentReport(base, findings=[Finding(str(path), text)])


def verify(
    directories: Sequence[DirectoryFiles],
    *,
    processes: int = 0,
    gaps: Iterable[str] = (),
    deep: bool = False,
    progress: Callable[[int], None] | None = None,
) -> list[DirectoryReport]:
    """Check everything in the directories.

    :param processes: that read; 0: one a core. :param gaps: topics known to be compacted. :param deep: open every batch.
    :param progress: called again and again, in this process, with the bytes read so far.
    :raises BrokenProcessPool: a process that read was killed.

    What `progress` or a signal handler raises ends the processes, too.
    """
    gaps = frozenset(gaps)
    expected = {
        (number, key): expectation(files, key, gaps, deep)
        for number, files in enumerate(directories)
        for key in files.logs
    }
    groups = _groups(directories, expected)
    count = min(processes or len(os.sched_getaffinity(0)), len(groups))
    found: dict[tuple[str, int], SegmentReport] = {}
    if count <= 1:
        for group in groups:
            _take(found, group, _run(group))
            if progress is not None:
                progress(sum(one.size for one in found.values()))
    else:
        _in_parallel(groups, count, found, progress)
    reports = []
    for number, files in enumerate(directories):
        report = DirectoryReport(files, findings=list(files.findings))
        for key, log in files.logs.items():
            segments = [found[log.directory, base] for base in log.segments]
            report.logs[key] = join(log, segments, expected[number, key])
        _check_directory(report)
        reports.append(report)
    return reports


def _groups(
    directories: Sequence[DirectoryFiles], expected: Mapping[tuple[int, Partition], Expectation]
) -> list[list[Job]]:
    """All segments in groups for one process at a time, the large ones first."""
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


def _take(found: dict[tuple[str, int], SegmentReport], group: list[Job], reports: list[list[SegmentReport]]) -> None:
    for (files, _, _), segments in zip(group, reports, strict=True):
        for one in segments:
            found[files.directory, one.base_offset] = one


def _in_parallel(
    groups: list[list[Job]],
    count: int,
    found: dict[tuple[str, int], SegmentReport],
    progress: Callable[[int], None] | None,
) -> None:
    context = multiprocessing.get_context("fork")
    done: Any = context.Array(ctypes.c_int64, count, lock=False)
    taken = context.Value(ctypes.c_int)
    cancelled: Any = context.Value(ctypes.c_bool, lock=False)
    with ProcessPoolExecutor(count, context, _begin, (done, taken, cancelled)) as pool:
        try:
            waiting = _submitted(pool, groups)
            while waiting:
                ended, _ = wait(waiting, timeout=POLL_S, return_when=FIRST_COMPLETED)
                for future in ended:
                    _take(found, waiting.pop(future), future.result())
                if progress is not None:
                    progress(sum(done))
        except BaseException:
            cancelled.value = True
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _submitted(
    pool: ProcessPoolExecutor, groups: list[list[Job]]
) -> dict[Future[list[list[SegmentReport]]], list[Job]]:
    """All jobs, by future. The first submit forks the processes, which inherit blocked signals until `_begin`."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        return {pool.submit(_run, group): group for group in groups}
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


# -- the directory's own files ---------------------------------------------------------------------------------------


def _check_directory(report: DirectoryReport) -> None:
    files = report.files
    for name, entries in files.checkpoints.items():
        for key, offset in entries.items():
            _check_entry(report, name, key, offset)
    topic_ids: dict[str, Any] = {}
    for (topic, _), log in report.logs.items():
        if log.topic_id is not None and topic_ids.setdefault(topic, log.topic_id) != log.topic_id:
            text = f"its topic id differs from that of another partition of {topic}"
            report.findings.append(Finding(f"{log.directory}/partition.metadata", text))


def _check_entry(report: DirectoryReport, name: str, key: Partition, offset: int) -> None:
    """A checkpoint's offset must lie within its log."""
    path = f"{report.files.path}/{name}"
    place = f"{key[0]}-{key[1]}"
    log = report.logs.get(key)
    if log is None:
        if report.files.path == str(Path(report.files.path)) and not report.files.locked:
            text = f"states {offset} for {place}, of which there is no directory"
            report.findings.append(Finding(path, text, offset, error=False))
        return
    end = log.log_end_offset
    if 0 <= offset <= end:
        return
    # A high watermark may be on the disk before the records are; nobody has to have flushed them.
    judged = report.files.clean or name != REPLICATION_CHECKPOINT
    text = f"states {offset} for {place}, whose log ends at {end}"
    report.findings.append(Finding(path, text, offset, error=judged and not (report.files.locked and offset >= 0)))
