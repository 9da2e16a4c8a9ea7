"""The manifest of a backup: which files it has, with their sizes and checksums, and what they are.

`manifest.json` is written last, by a rename: a directory without it is not a backup. It has a checksum of itself.
"""

import hashlib
import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from odradek.backup.errors import BackupError
from odradek.storage.atomic_file import replace_file

FILE_NAME = "manifest.json"
FORMAT = 1
OWNER_ONLY = 0o600
DIRECTORY_MODE = 0o700
METADATA_FILE = "metadata.db"
TREE_FILE = "zookeeper.json"
LOG_DIRS = "dirs"
"""The directory with one directory for each log directory: `dirs/0`, `dirs/1` ..."""


class FileEntry(NamedTuple):
    """A file of the backup. `path`: relative to the backup; `size` in bytes; `sha256` in hex. `inode` and `mtime_ns` are those
    of the broker's file, by which a later backup knows that the file is unchanged; 0 for files that may change."""

    path: str
    size: int
    sha256: str
    inode: int = 0
    mtime_ns: int = 0


@dataclass
class LogEntry:
    """The log of a partition: the records from `log_start_offset` to before `end_offset`. `log_dir`: its number."""

    topic: str
    partition: int
    topic_id: str
    log_dir: int
    log_start_offset: int
    end_offset: int
    files: list[FileEntry] = field(default_factory=list)


@dataclass
class Manifest:
    """A backup. `created_ms`: the time of the cut. `running`: the broker ran. `tree`: whether it has the nodes in ZooKeeper."""

    created_ms: int
    program: str
    node_id: int
    cluster_id: str
    clustered: bool
    running: bool
    log_dirs: list[str]
    logs: list[LogEntry] = field(default_factory=list)
    files: list[FileEntry] = field(default_factory=list)

    @property
    def all_files(self) -> list[FileEntry]:
        """The files of logs, and the others."""
        return [entry for log in self.logs for entry in log.files] + self.files

    @property
    def bytes(self) -> int:
        """The size of all files."""
        return sum(entry.size for entry in self.all_files)

    def has(self, path: str) -> bool:
        """Whether a file outside of the logs is in the backup."""
        return any(entry.path == path for entry in self.files)


def encode(manifest: Manifest) -> bytes:
    """The content of `manifest.json`."""
    body = json.dumps(asdict(manifest), separators=(",", ":"), ensure_ascii=False)
    head = {"format": FORMAT, "sha256": hashlib.sha256(body.encode()).hexdigest()}
    return f"{json.dumps(head)}\n{body}\n".encode()


def decode(data: bytes, path: object) -> Manifest:
    """The inverse of `encode`. Raises BackupError."""
    head_line, _, body = data.partition(b"\n")
    body = body.removesuffix(b"\n")
    try:
        head: dict[str, Any] = json.loads(head_line)
        version = head["format"]
    except (ValueError, KeyError, TypeError) as error:
        raise BackupError(f"{path} is not the manifest of a backup: its first line is damaged") from error
    if version != FORMAT:
        raise BackupError(
            f"{path} has format {version}, but this program reads only format {FORMAT}: use the version that wrote it"
        )
    if hashlib.sha256(body).hexdigest() != head.get("sha256"):
        raise BackupError(f"{path} is damaged: it does not match its own checksum")
    try:
        fields: dict[str, Any] = json.loads(body)
        logs = [LogEntry(**log | {"files": [FileEntry(*entry) for entry in log["files"]]}) for log in fields["logs"]]
        files = [FileEntry(*entry) for entry in fields["files"]]
        return Manifest(**fields | {"logs": logs, "files": files})
    except (ValueError, KeyError, TypeError) as error:
        raise BackupError(f"{path} cannot be read: {error}") from error


def read(directory: str | os.PathLike[str]) -> Manifest:
    """The manifest of a backup. Raises BackupError, OSError."""
    path = Path(directory, FILE_NAME)
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        what = "an interrupted backup" if Path(directory, LOG_DIRS).exists() else "not a backup"
        raise BackupError(f"{directory} is {what}: it has no {FILE_NAME}") from None
    manifest = decode(data, path)
    for entry in manifest.all_files:
        if entry.path not in (METADATA_FILE, TREE_FILE) and not _is_of_log_dir(entry.path, len(manifest.log_dirs)):
            raise BackupError(f"{path} names the file {entry.path!r}, which no backup with its log directories has")
    return manifest


def _is_of_log_dir(path: str, log_dirs: int) -> bool:
    """Whether a path is `dirs/NUMBER/NAME` or `dirs/NUMBER/LOG/NAME`, for the number of a log directory."""
    parts = path.split("/")
    numbers = map(str, range(log_dirs))
    return len(parts) in (3, 4) and parts[0] == LOG_DIRS and parts[1] in numbers and not {"", ".", ".."} & set(parts)


def write(directory: Path, manifest: Manifest) -> None:
    """Write the manifest durably. Raises OSError."""
    replace_file(directory / FILE_NAME, encode(manifest), mode=OWNER_ONLY)
