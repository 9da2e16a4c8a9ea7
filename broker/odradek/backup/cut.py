"""The cut: which logs a broker has, and up to which offset each of them is copied.

A running broker returns its cut on a socket (`odradek.processes.coordinator.cut_socket`). For a stopped one it is read from the
directories, and every log is copied to its end.
"""

import json
import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from odradek.backup.errors import BackupError
from odradek.config.pid_file import CUT_SOCKET
from odradek.storage.checkpoints import CorruptCheckpointError, read_offset_checkpoint
from odradek.storage.file_names import (
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    ForeignNameError,
    parse_directory_name,
    partition_directory_name,
)
from odradek.storage.log_directory import CorruptMetadataError, read_meta_properties, read_partition_metadata
from odradek.topic_partition import TopicPartition

TIMEOUT_S = 60.0
VERSION = 1
CLUSTER_METADATA = "__cluster_metadata"


class LogCut(NamedTuple):
    """A log: `topic_id` in hex, empty if unknown. `end`: the offset of the first record that is not copied; None for the end
    of the log. `recovery_point`: None if all of the log is in its files."""

    topic_id: str
    log_dir: int
    log_start: int
    end: int | None
    recovery_point: int | None = None


@dataclass
class Cut:
    """A cut. `log_dirs`: paths; `LogCut.log_dir` is an index in them."""

    running: bool
    time_ms: int
    node_id: int
    cluster_id: str
    clustered: bool
    log_dirs: list[str]
    logs: dict[TopicPartition, LogCut] = field(default_factory=dict)

    def path(self, key: TopicPartition) -> Path:
        """The directory of a log."""
        return Path(self.log_dirs[self.logs[key].log_dir], partition_directory_name(*key))


def cut_of_running(directory: str) -> Cut:
    """The cut of the broker that runs on the log directory. Raises BackupError."""
    try:
        answer = _ask(directory)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BackupError(
            f"the coordinator of the broker of {directory} does not return its offsets ({CUT_SOCKET}: {reason}): repeat the"
            " command, as the user of the broker; `odradek status` shows the state of the coordinator"
        ) from error
    if answer["offline"]:
        raise BackupError(
            f"the log directory {answer['offline'][0]} is offline, so its partitions cannot be copied: repair it, and restart"
        )
    logs = {}
    for topic, partition, topic_id, log_dir, log_start, end in answer["partitions"]:
        if end < 0:
            raise BackupError(
                f"partition {topic}-{partition} is offline or still being opened: see the log of the broker"
            )
        logs[topic, partition] = LogCut(topic_id, log_dir, log_start, end)
    return Cut(
        True,
        answer["time_ms"],
        answer["node_id"],
        answer["cluster_id"],
        answer["clustered"],
        answer["log_dirs"],
        logs,
    )


def _ask(directory: str) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(TIMEOUT_S)
        descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY)
        try:
            connection.connect(f"/proc/self/fd/{descriptor}/{CUT_SOCKET}")  # the path of a socket has at most 107 bytes
        finally:
            os.close(descriptor)
        chunks = []
        while chunk := connection.recv(1 << 20):
            chunks.append(chunk)
    if not chunks:
        raise ValueError("it is busy with other backups")
    answer: dict[str, Any] = json.loads(b"".join(chunks))
    if answer.get("version") != VERSION:
        raise ValueError(
            f"it answered with version {answer.get('version')}, but this program supports only version {VERSION}"
        )
    return answer


def cut_of_stopped(directories: Sequence[str], clustered: bool) -> Cut:
    """The cut of the stopped broker that has these log directories. The caller holds their locks. Raises BackupError."""
    node_id, cluster_id = _identity(directories)
    cut = Cut(False, time.time_ns() // 1_000_000, node_id, cluster_id, clustered, list(directories))
    for number, path in enumerate(directories):
        try:
            starts = read_offset_checkpoint(Path(path, LOG_START_OFFSET_CHECKPOINT))
            points = read_offset_checkpoint(Path(path, RECOVERY_POINT_CHECKPOINT))
        except CorruptCheckpointError as error:
            raise BackupError(str(error)) from error
        with os.scandir(path) as entries:
            names = sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))
        for name in names:
            try:
                parsed = parse_directory_name(name)
            except ForeignNameError:
                continue  # the broker ignores it, too
            key = (parsed.topic, parsed.partition)
            if parsed.fate is not None or parsed.topic == CLUSTER_METADATA:
                continue
            if key in cut.logs:
                raise BackupError(f"{cut.path(key)} and {path}/{name} are the same partition: move one of them away")
            try:
                topic_id = read_partition_metadata(Path(path, name))
            except CorruptMetadataError as error:
                raise BackupError(str(error)) from error
            cut.logs[key] = LogCut(
                "" if topic_id is None else topic_id.hex, number, starts.get(key, 0), None, points.get(key, 0)
            )
    return cut


def _identity(directories: Sequence[str]) -> tuple[int, str]:
    """The node id and cluster id of the directories. Raises BackupError, OSError."""
    found: tuple[int, str] | None = None
    for path in directories:
        try:
            properties = read_meta_properties(path)
        except CorruptMetadataError as error:
            raise BackupError(str(error)) from error
        if properties is None or properties.node_id is None or properties.cluster_id is None:
            raise BackupError(f"{path} is not the log directory of a broker: it has no complete meta.properties")
        identity = (properties.node_id, properties.cluster_id)
        if found not in (None, identity):
            raise BackupError(
                f"{directories[0]} and {path} belong to different brokers or clusters: name the log.dirs of one broker"
            )
        found = identity
    assert found is not None
    return found
