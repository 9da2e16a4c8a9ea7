"""The files of the usage spool: their names, and the calls with which the reporter changes them. Tests can make each call fail.

`broker/odradek/metrics/spool.py` defines their contents. Only the reporter writes; any process may read.
"""

import contextlib
import os
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from odradek.storage.atomic_file import TEMPORARY, fsync_directory

HOUR_MS = 3_600_000
COMPRESSED = ".gz"
GZIP_LEVEL = 6
_NAME = re.compile(r"usage-(\d{8}T\d{2})-([0-9A-Za-z_]+)\.jsonl(\.gz)?")
_COPY_BYTES = 1 << 20


class SpoolFile(NamedTuple):
    """A file, by its name. :param hour_ms: beginning of its hour. :param size: bytes on disk."""

    path: Path
    hour_ms: int
    boot: str
    compressed: bool
    size: int


def file_name(hour_ms: int, boot: str) -> str:
    """Return the name of the plain file of an hour and a boot."""
    return f"usage-{datetime.fromtimestamp(hour_ms / 1000, UTC):%Y%m%dT%H}-{boot}.jsonl"


def parse_name(name: str) -> tuple[int, str, bool] | None:
    """Return (beginning of its hour in ms, boot, whether compressed); None if the name is not that of a file of a spool."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    try:
        hour = datetime.fromisoformat(f"{match[1]}+00:00")  # strptime would import modules of 1 MB
    except ValueError:
        return None
    return round(hour.timestamp() * 1000), match[2], match[3] is not None


def list_files(directory: str | os.PathLike[str]) -> list[SpoolFile]:
    """Return the files of a spool, the oldest hours first. Raises OSError, which names the directory."""
    files = []
    with os.scandir(directory) as entries:
        for entry in entries:
            parsed = parse_name(entry.name)
            if parsed is None:
                continue
            try:
                size = entry.stat().st_size
            except FileNotFoundError:  # deleted or compressed just now
                continue
            hour_ms, boot, compressed = parsed
            files.append(SpoolFile(Path(entry.path), hour_ms, boot, compressed, size))
    return sorted(files, key=lambda file: (file.hour_ms, file.path.name))


class SpoolCalls:
    """The calls that change the disk. All of them raise OSError."""

    def make_directory(self, directory: Path) -> None:
        """Create a directory with its parents, if it does not exist."""
        directory.mkdir(parents=True, exist_ok=True)

    def append(self, path: Path, at: int, content: bytes) -> None:
        """Replace all bytes of the file after the first `at` by the content, and sync it; the file is created if needed."""
        made = not path.exists()
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if os.fstat(descriptor).st_size != at:
                os.ftruncate(descriptor, at)
            self.write(descriptor, at, content)
            self.sync(descriptor)
        finally:
            os.close(descriptor)
        if made:
            fsync_directory(path.parent)

    def write(self, descriptor: int, at: int, content: bytes) -> None:
        """Write all bytes, with more than one call if the kernel writes only a part."""
        view = memoryview(content)
        while view:
            written = os.pwrite(descriptor, view, at)
            view, at = view[written:], at + written

    def sync(self, descriptor: int) -> None:
        """Sync the data to the device."""
        os.fdatasync(descriptor)

    def cut(self, path: Path, at: int) -> None:
        """Truncate the file to `at` bytes and sync it; remove it if `at` is 0."""
        if not path.exists():
            return
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.ftruncate(descriptor, at)
            self.sync(descriptor)
        finally:
            os.close(descriptor)
        if at == 0:
            self.remove(path)

    def compress(self, path: Path) -> Path:
        """Replace a plain file by its compressed copy. A crash leaves one of the two, or both, complete."""
        import gzip  # both are imported at their first use, with the modules of all formats of archives
        import shutil

        target = path.with_name(path.name + COMPRESSED)
        temporary = path.with_name(target.name + TEMPORARY)
        try:
            with path.open("rb") as source, temporary.open("wb") as raw:
                with gzip.GzipFile("", "wb", GZIP_LEVEL, raw, mtime=0) as packed:
                    shutil.copyfileobj(source, packed, _COPY_BYTES)
                raw.flush()
                self.sync(raw.fileno())
            self.rename(temporary, target)
        except OSError as error:
            if error.filename is None:
                error.filename = str(temporary)
            with contextlib.suppress(OSError):  # the first failure is reported
                temporary.unlink(missing_ok=True)
            raise
        fsync_directory(path.parent)
        self.remove(path)
        return target

    def rename(self, old: Path, new: Path) -> None:
        """Rename a file atomically."""
        old.replace(new)

    def remove(self, path: Path) -> None:
        """Remove a file, if it exists."""
        path.unlink(missing_ok=True)
