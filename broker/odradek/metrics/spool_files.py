"""The spool's files: their names, and the few calls by which the reporter changes them. Each call is one that a test may fail.

`broker/odradek/metrics/spool.py` says what is in them. Only the reporter writes; anybody reads.
"""

import contextlib
import gzip
import os
import re
import shutil
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
    """A file by its name. :param hour_ms: when its hour begins. :param size: in bytes, as stored."""

    path: Path
    hour_ms: int
    boot: str
    compressed: bool
    size: int


def file_name(hour_ms: int, boot: str) -> str:
    """The plain file of an hour and a boot."""
    return f"usage-{datetime.fromtimestamp(hour_ms / 1000, UTC):%Y%m%dT%H}-{boot}.jsonl"


def parse_name(name: str) -> tuple[int, str, bool] | None:
    """(beginning of its hour in ms, boot, whether compressed); None for what is no file of a spool."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    try:
        hour = datetime.strptime(f"{found[1]}+0000", "%Y%m%dT%H%z")
    except ValueError:
        return None
    return round(hour.timestamp() * 1000), found[2], found[3] is not None


def list_files(directory: str | os.PathLike[str]) -> list[SpoolFile]:
    """Those of a spool, the oldest hours first. Raises OSError, which names the directory."""
    found = []
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
            found.append(SpoolFile(Path(entry.path), hour_ms, boot, compressed, size))
    return sorted(found, key=lambda one: (one.hour_ms, one.path.name))


class SpoolCalls:
    """What changes the disk. All raise OSError."""

    def make_directory(self, directory: Path) -> None:
        """With its parents, if it is not there."""
        directory.mkdir(parents=True, exist_ok=True)

    def append(self, path: Path, at: int, content: bytes) -> None:
        """The content behind the first `at` bytes of the file, lasting; what was behind them goes. A file is made if needed."""
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
        """One write, and what the kernel left of it."""
        view = memoryview(content)
        while view:
            written = os.pwrite(descriptor, view, at)
            view, at = view[written:], at + written

    def sync(self, descriptor: int) -> None:
        """Until it lasts."""
        os.fdatasync(descriptor)

    def cut(self, path: Path, at: int) -> None:
        """The file's end is at that byte from now on; without any it goes."""
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
        """Replaces a plain file by its compressed copy: a crash leaves the one, the other, or both of them whole."""
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
            with contextlib.suppress(OSError):  # the first failure is what is reported
                temporary.unlink(missing_ok=True)
            raise
        fsync_directory(path.parent)
        self.remove(path)
        return target

    def rename(self, old: Path, new: Path) -> None:
        """In one step."""
        old.replace(new)

    def remove(self, path: Path) -> None:
        """If it is there."""
        path.unlink(missing_ok=True)
