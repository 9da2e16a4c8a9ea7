"""Copies files with their checksums, at a limited rate, and finds where a log must be cut. Runs in the command."""

import ctypes
import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path

from odradek.backup.errors import BackupError
from odradek.backup.manifest import DIRECTORY_MODE, OWNER_ONLY

PIECE_BYTES = 1 << 20
OVERHEAD_BYTES = 12
"""The offset and the size before each batch or old message."""
HEAD_BYTES = 27
"""The bytes of a header up to the end of its last offset delta."""
MAGIC_AT, DELTA_AT = 16, 23
LEAST_BYTES = 26
"""The size of the smallest message of format v0."""
FILE_MODE = 0o640
_libc = ctypes.CDLL(None, use_errno=True)


class Copier:
    """Copies files. `copied`: the bytes so far.

    :param rate: bytes per second; 0: no limit. :param progress: called with `copied` after each piece.
    """

    def __init__(self, rate: int = 0, progress: Callable[[int], None] = lambda _: None) -> None:
        self.copied = 0
        self._rate = rate
        self._progress = progress
        self._free_at = 0.0

    def note(self, count: int, *, paced: bool = True) -> None:
        """Count bytes, and wait until they are due."""
        self.copied += count
        self._progress(self.copied)
        if not self._rate or not paced:
            return
        self._free_at = max(self._free_at, time.monotonic()) + count / self._rate
        wait_s = self._free_at - time.monotonic()
        if wait_s > 0:
            time.sleep(wait_s)

    def copy(self, source: int, size: int, target: Path, what: object, mode: int = OWNER_ONLY) -> str:
        """Copy the first `size` bytes of the descriptor `source` to a new file; return the SHA-256 in hex.

        :param what: the source, for messages. Raises BackupError if it is shorter, OSError with the name of the target.
        """
        digest = hashlib.sha256()
        descriptor = create_file(target, mode)
        try:
            position = 0
            while position < size:
                piece = os.pread(source, min(PIECE_BYTES, size - position), position)
                if not piece:
                    raise BackupError(f"{what} has {position} bytes, but {size} were expected: it was cut meanwhile")
                digest.update(piece)
                _write(descriptor, piece, target)
                position += len(piece)
                self.note(len(piece))
        finally:
            os.close(descriptor)
        return digest.hexdigest()

    def copy_checked(self, source: Path, size: int, sha256: str, target: Path, mode: int) -> None:
        """Copy a file of a backup, and compare its size and checksum. Raises BackupError, OSError."""
        with open_file(source) as descriptor:
            found = os.fstat(descriptor).st_size
            if found != size:
                raise BackupError(f"{source} has {found} bytes, but the manifest says {size}: the backup is damaged")
            if self.copy(descriptor, size, target, source, mode) != sha256:
                raise BackupError(f"{source} does not match its checksum in the manifest: the backup is damaged")

    def check(self, path: Path, size: int, sha256: str) -> str | None:
        """What is wrong with a file of a backup; None if nothing is. Raises OSError."""
        digest = hashlib.sha256()
        with open_file(path) as descriptor:
            found = os.fstat(descriptor).st_size
            if found != size:
                return f"{found} bytes, but the manifest says {size}"
            position = 0
            while piece := os.pread(descriptor, PIECE_BYTES, position):
                digest.update(piece)
                position += len(piece)
                self.note(len(piece), paced=False)
        return None if digest.hexdigest() == sha256 else "the content does not match its checksum in the manifest"


class open_file:
    """A descriptor for reading, closed at the end."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)

    def __enter__(self) -> int:
        return self._descriptor

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


def create_file(path: Path, mode: int) -> int:
    """A descriptor of a new file. Raises OSError."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, mode)


def _write(descriptor: int, data: bytes, path: Path) -> None:
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(descriptor, view) :]
    except OSError as error:
        error.filename = str(path)  # os.write does not know it
        raise


def write_file(path: Path, content: bytes, mode: int = OWNER_ONLY) -> str:
    """Write a new file; return the SHA-256 in hex. Raises OSError."""
    descriptor = create_file(path, mode)
    try:
        _write(descriptor, content, path)
    finally:
        os.close(descriptor)
    return hashlib.sha256(content).hexdigest()


def make_directory(path: Path, mode: int = DIRECTORY_MODE) -> None:
    """Create a directory, unless it exists. Raises OSError."""
    path.mkdir(mode=mode, exist_ok=True)


def sync_file_system(path: Path) -> None:
    """Write everything of the file system of `path` to the device: one call for very many files. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if _libc.syncfs(descriptor):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(path))
    finally:
        os.close(descriptor)


def end_of_batches(descriptor: int, size: int, base_offset: int, end: int | None, path: object) -> tuple[int, int]:
    """Where to cut a segment: (position after the last whole batch before the offset `end`, offset after that batch).

    Bytes after the batch that ends at `end` may be anything: a running broker may be writing there.

    :param base_offset: of the segment; returned if it has no batch before `end`.
    :param end: None: the end of the last whole batch.
    :raises BackupError: the bytes before `end` are not batches.
    """
    position, next_offset = 0, base_offset
    window, window_at = b"", 0
    while size - position >= LEAST_BYTES:
        begin = position - window_at
        if begin < 0 or begin + HEAD_BYTES > len(window):
            window, window_at, begin = os.pread(descriptor, PIECE_BYTES, position), position, 0
            if len(window) < LEAST_BYTES:
                break
        base = int.from_bytes(window[begin : begin + 8], "big", signed=True)
        length = OVERHEAD_BYTES + int.from_bytes(window[begin + 8 : begin + 12], "big", signed=True)
        magic = window[begin + MAGIC_AT]
        delta = int.from_bytes(window[begin + DELTA_AT : begin + HEAD_BYTES], "big", signed=True) if magic == 2 else 0
        if end is not None and base + max(delta, 0) >= end:
            break
        if magic > 2 or delta < 0 or not LEAST_BYTES <= length <= size - position:
            if end is None or next_offset >= end:
                break
            raise BackupError(
                f"{path}, position {position}: there is no valid batch, but the log goes to offset {end}: `odradek log verify`"
            )
        position += length
        next_offset = base + delta + 1
    return position, next_offset
