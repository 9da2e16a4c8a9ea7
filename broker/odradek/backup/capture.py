"""Opens the files of a log, so that they stay readable until they are copied, whatever the broker does meanwhile.

A segment that retention or compaction removes, or whose partition is deleted, is deleted by its name only: an open descriptor
still reads it, and the broker never changes bytes below the high watermark. The descriptors end with this process, so nothing
remains after a kill. The files that the broker replaces (leader epochs, gap limit, topic id) are read at once.

If compaction has used records beyond the cut, records that they superseded are missing in the log up to the cut: `LogsMoved`.
The gap limit shows it, because a compaction raises it before it replaces the first segment.
"""

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from odradek.backup.cut import LogCut
from odradek.backup.errors import BackupError, LogsMoved
from odradek.storage.checkpoints import CorruptCheckpointError, read_gap_limit, read_leader_epochs
from odradek.storage.file_names import (
    GAPS_CHECKPOINT,
    LEADER_EPOCH_CHECKPOINT,
    LOG,
    PARTITION_METADATA,
    SEGMENT_SUFFIXES,
    SNAPSHOT,
    SWAP,
    parse_segment_file_name,
    segment_file_name,
)

TRIES = 20
SNAPSHOTS = 2
"""The number of producer snapshots that are copied: the newest that a recovery can begin with, and one before it."""


class OpenedFile(NamedTuple):
    """An open file. `size` in bytes; `partial`: it is copied only up to the cut."""

    name: str
    descriptor: int
    size: int
    inode: int
    mtime_ns: int
    partial: bool = False


@dataclass
class CapturedLog:
    """The files of a log. `contents`: small files by name; `last_base`: the base offset of the last segment.

    `gap_limit`: None if the log has none. `path` is for messages.
    """

    path: Path
    cut: LogCut
    log_start: int
    last_base: int
    opened: list[OpenedFile] = field(default_factory=list)
    contents: dict[str, bytes] = field(default_factory=dict)
    epochs: list[tuple[int, int]] = field(default_factory=list)
    gap_limit: int | None = None

    @property
    def bytes(self) -> int:
        """The size of the open files."""
        return sum(file.size for file in self.opened)

    def close(self) -> None:
        """Close the files. May be called twice."""
        opened, self.opened = self.opened, []
        for file in opened:
            os.close(file.descriptor)


@contextmanager
def many_files() -> Iterator[None]:
    """Allow this process to open as many files as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def capture(path: Path, cut: LogCut) -> CapturedLog | None:
    """Open the files of the log in the directory `path`; None if a stopped broker has left a log without segments.

    Raises LogsMoved if another cut is needed, BackupError, OSError.
    """
    for _ in range(TRIES):
        try:
            names = _files(path)
        except FileNotFoundError:
            raise LogsMoved(f"{path} was deleted") from None
        if any(name.endswith(SWAP) for name in names):
            if cut.end is None:
                raise BackupError(
                    f"{path} has files of an interrupted compaction (*{SWAP}): start and stop the broker, and repeat the"
                    " backup"
                )
            continue
        captured = _opened(path, cut, names)
        if isinstance(captured, CapturedLog):
            return captured
        if captured is _NO_SEGMENTS:
            return None
    raise LogsMoved(f"the files of {path} change continuously")


_NO_SEGMENTS = "no segments"
_CHANGED = "changed"


def _opened(path: Path, cut: LogCut, names: dict[str, int]) -> CapturedLog | str:
    bases = sorted(
        file.base_offset
        for name in names
        if (file := parse_segment_file_name(name)) is not None and file.kind == LOG and not file.state
    )
    if not bases:
        return _NO_SEGMENTS if cut.end is None else _CHANGED
    if cut.end is not None and bases[0] > cut.end:
        raise LogsMoved(f"the records of {path} before its cut were deleted")
    kept = [base for base in bases if cut.end is None or base < cut.end] or bases[:1]
    first = max((base for base in kept if base <= cut.log_start), default=kept[0])
    kept = [base for base in kept if base >= first]
    log = CapturedLog(path, cut, max(cut.log_start, kept[0]), kept[-1])
    try:
        for base in kept:
            _open(log, segment_file_name(base, LOG), partial=base == kept[-1])
            if base != kept[-1]:
                for suffix in SEGMENT_SUFFIXES[1:]:
                    name = segment_file_name(base, suffix)
                    if name in names:
                        _open(log, name)
        for name in _snapshots(names, log.last_base):
            _open(log, name)
        if _bases_of(_files(path), kept) != _bases_of(names, kept):
            log.close()
            return _CHANGED
        _read_small_files(log)
    except FileNotFoundError:
        log.close()
        return _CHANGED
    except BaseException:
        log.close()
        raise
    return log


def _files(path: Path) -> dict[str, int]:
    """The names of the files of a log with their inodes."""
    with os.scandir(path) as entries:
        return {entry.name: entry.inode() for entry in entries}


def _bases_of(names: dict[str, int], kept: list[int]) -> list[tuple[str, int | None]]:
    logs = [segment_file_name(base, LOG) for base in kept]
    return [(name, names.get(name)) for name in logs]


def _snapshots(names: dict[str, int], last_base: int) -> list[str]:
    """The newest producer snapshots at or before the last segment: what follows them is read from the log."""
    found = []
    for name in names:
        file = parse_segment_file_name(name)
        if file is not None and file.kind == SNAPSHOT and not file.state and file.base_offset <= last_base:
            found.append(name)
    return sorted(found)[-SNAPSHOTS:]


def _open(log: CapturedLog, name: str, partial: bool = False) -> None:
    try:
        descriptor = os.open(log.path / name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise BackupError(f"{log.path / name} is a symbolic link, which no broker makes: delete it") from error
        if error.errno in (errno.EMFILE, errno.ENFILE):
            limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            raise BackupError(
                f"cannot open {log.path / name}: a backup keeps all segments open, and the limit is {limit} open files;"
                " raise it with `ulimit -n` as root, or LimitNOFILE= of the unit that runs the backup"
            ) from error
        raise
    stat = os.fstat(descriptor)
    log.opened.append(OpenedFile(name, descriptor, stat.st_size, stat.st_ino, stat.st_mtime_ns, partial))


def _read_small_files(log: CapturedLog) -> None:
    """Read the files that the broker replaces. After the segments: their gap limit is not older than they are."""
    end = log.cut.end
    try:
        log.gap_limit = read_gap_limit(log.path)
        log.epochs = read_leader_epochs(log.path / LEADER_EPOCH_CHECKPOINT)
    except CorruptCheckpointError as error:
        raise BackupError(f"{error}: repair it with a restart of the broker") from error
    if end is not None:
        if log.gap_limit is not None and log.gap_limit > end:
            raise LogsMoved(f"{log.path} was compacted beyond its cut")
        log.epochs = [entry for entry in log.epochs if entry[1] <= end]
    for name in (GAPS_CHECKPOINT, PARTITION_METADATA):
        try:
            log.contents[name] = (log.path / name).read_bytes()
        except FileNotFoundError:
            pass  # logs without gaps have no gap limit
    if log.epochs:
        lines = [f"{epoch} {offset}" for epoch, offset in log.epochs]
        log.contents[LEADER_EPOCH_CHECKPOINT] = f"0\n{len(lines)}\n{''.join(line + chr(10) for line in lines)}".encode()
