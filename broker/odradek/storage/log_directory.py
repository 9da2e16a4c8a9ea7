"""The files at the top of a log directory (`log.dirs`) and the identity file of a partition.

`meta.properties` (the owner of the directory), `.kafka_cleanshutdown` (exists only between a clean stop and the next
start), `.lock` (one broker per directory) and `<partition>/partition.metadata` (the topic id). The supervisor takes the
lock before the first fork, and its children inherit it: an open-file-description lock lasts until the last of these
processes ends. It also excludes Kafka, which takes POSIX locks on the same file.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import struct
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from odradek.storage.atomic_file import fsync_directory, replace_file
from odradek.storage.file_names import CLEAN_SHUTDOWN, LOCK, META_PROPERTIES, PARTITION_METADATA

CLEAN_SHUTDOWN_VERSION = 0
DIRECTORY_MODE = 0o750
"""The rights of a new log directory, before the umask."""
PARTITION_METADATA_VERSION = 0
F_OFD_GETLK, F_OFD_SETLK = 36, 37  # Linux; not in every version of the fcntl module
# struct flock of 64-bit Linux: type, whence, start, length (0: all), pid (must be 0 for these locks).
WHOLE_FILE_EXCLUSIVE = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)


class CorruptMetadataError(ValueError):
    """A malformed identity file; the message names the file."""


class DirectoryInUseError(RuntimeError):
    """Another broker, Odradek or Kafka, holds the lock of the directory."""


@dataclass(frozen=True)
class MetaProperties:
    """`meta.properties`: version 0 calls the node `broker.id` (ZooKeeper), version 1 `node.id`; None where absent."""

    version: int
    node_id: int | None
    cluster_id: str | None
    directory_id: uuid.UUID | None = None


def encode_uuid(value: uuid.UUID) -> str:
    """Encode a uuid as Kafka does: base64 for URLs, without padding, 22 characters."""
    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")


def decode_uuid(text: str) -> uuid.UUID:
    """Decode Kafka's 22 characters. Raises ValueError."""
    raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if len(raw) != 16:
        raise ValueError(f"{text!r} is not a uuid: expected 22 characters of URL-safe base64")
    return uuid.UUID(bytes=raw)


def _properties(text: str) -> dict[str, str]:
    """Parse a Java properties file, as far as these files use the format."""
    properties = {}
    for line in text.splitlines():
        line = line.strip()
        if line and line[0] not in "#!":
            key, _, value = line.partition("=")
            properties[key.strip()] = value.strip().replace("\\:", ":").replace("\\=", "=")
    return properties


def read_meta_properties(directory: str | os.PathLike[str]) -> MetaProperties | None:
    """Read `meta.properties`; None if it does not exist. Raises CorruptMetadataError, OSError."""
    path = Path(directory, META_PROPERTIES)
    try:
        values = _properties(path.read_text("utf-8"))
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise CorruptMetadataError(f"{path}: {error}") from error
    try:
        version = int(values.get("version", "0"))
        node = values.get("broker.id") if version == 0 else values["node.id"]
        directory_id = values.get("directory.id")
        properties = MetaProperties(
            version,
            None if node is None else int(node),
            values.get("cluster.id"),
            None if directory_id is None else decode_uuid(directory_id),
        )
    except (ValueError, KeyError) as error:
        raise CorruptMetadataError(f"{path}: {error}") from error
    if version not in (0, 1):
        raise CorruptMetadataError(f"{path}: unsupported version {version}; expected 0 or 1")
    return properties


def write_meta_properties(directory: str | os.PathLike[str], properties: MetaProperties) -> None:
    """Replace `meta.properties`. Raises OSError."""
    lines = ["#", time.strftime("#%a %b %d %H:%M:%S UTC %Y", time.gmtime())]
    if properties.node_id is not None:
        lines.append(f"{'broker.id' if properties.version == 0 else 'node.id'}={properties.node_id}")
    if properties.directory_id is not None:
        lines.append(f"directory.id={encode_uuid(properties.directory_id)}")
    lines.append(f"version={properties.version}")
    if properties.cluster_id is not None:
        lines.append(f"cluster.id={properties.cluster_id}")
    replace_file(Path(directory, META_PROPERTIES), "\n".join([*lines, ""]).encode())


def write_clean_shutdown(directory: str | os.PathLike[str], broker_epoch: int) -> None:
    """Mark the directory as cleanly shut down. Raises OSError."""
    content = json.dumps({"version": CLEAN_SHUTDOWN_VERSION, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    replace_file(Path(directory, CLEAN_SHUTDOWN), content.encode())


def take_clean_shutdown(directory: str | os.PathLike[str]) -> tuple[bool, int | None]:
    """Remove the mark; return (whether it existed, its broker epoch if it has one). Raises OSError.

    The removal is durable before any append: a start after a later crash must not find the mark.
    """
    path = Path(directory, CLEAN_SHUTDOWN)
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return False, None
    path.unlink()
    fsync_directory(directory)
    try:
        epoch = json.loads(content)["brokerEpoch"]
    except (ValueError, KeyError, TypeError):
        return True, None  # Kafka before 3.7 left the file empty.
    return True, epoch if isinstance(epoch, int) else None


def lock_directory(directory: str | os.PathLike[str]) -> int:
    """Take the lock of the directory; return a descriptor, which holds the lock while it is open here or in a child.

    Raises DirectoryInUseError, OSError.
    """
    path = Path(directory, LOCK)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.fcntl(descriptor, F_OFD_SETLK, WHOLE_FILE_EXCLUSIVE)
    except (BlockingIOError, PermissionError) as error:
        os.close(descriptor)
        raise DirectoryInUseError(
            f"another broker uses {directory}: {path.name} is locked; stop that broker, or use another directory"
        ) from error
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def is_locked(directory: str | os.PathLike[str]) -> bool:
    """Whether a broker, Odradek or Kafka, holds the lock of the directory; does not change anything. Raises OSError."""
    try:
        descriptor = os.open(Path(directory, LOCK), os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        lock = fcntl.fcntl(descriptor, F_OFD_GETLK, WHOLE_FILE_EXCLUSIVE)
    finally:
        os.close(descriptor)
    return bool(struct.unpack("hhqqi4x", lock)[0] != fcntl.F_UNLCK)


def write_partition_metadata(directory: str | os.PathLike[str], topic_id: uuid.UUID) -> None:
    """Replace the `partition.metadata` of a partition. Raises OSError."""
    content = f"version: {PARTITION_METADATA_VERSION}\ntopic_id: {encode_uuid(topic_id)}"
    replace_file(Path(directory, PARTITION_METADATA), content.encode())


def read_partition_metadata(directory: str | os.PathLike[str]) -> uuid.UUID | None:
    """The topic id in the `partition.metadata` of a partition; None if the file does not exist.

    Raises CorruptMetadataError, OSError.
    """
    path = Path(directory, PARTITION_METADATA)
    try:
        lines = path.read_text("utf-8").split("\n")
    except FileNotFoundError:
        return None
    values = dict(line.split(": ", 1) for line in lines if ": " in line)
    try:
        if int(values["version"]) != PARTITION_METADATA_VERSION:
            raise CorruptMetadataError(
                f"{path}: unsupported version {values['version']}; expected {PARTITION_METADATA_VERSION}"
            )
        return decode_uuid(values["topic_id"])
    except (KeyError, ValueError) as error:
        raise CorruptMetadataError(f"{path}: {error}") from error
