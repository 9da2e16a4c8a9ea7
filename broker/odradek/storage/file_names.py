"""Builds and parses the names of files and directories in a log directory. No other module does.

Stateless. The names are Kafka's; a base offset has twenty digits.
"""

from __future__ import annotations

import re
import uuid
from dataclasses import dataclass
from typing import NamedTuple

LOG, INDEX, TIME_INDEX, TXN_INDEX, SNAPSHOT = ".log", ".index", ".timeindex", ".txnindex", ".snapshot"
SEGMENT_SUFFIXES = (LOG, INDEX, TIME_INDEX, TXN_INDEX)
DELETED, CLEANED, SWAP, TEMPORARY = ".deleted", ".cleaned", ".swap", ".tmp"

LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
META_PROPERTIES = "meta.properties"
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT = "log-start-offset-checkpoint"
REPLICATION_CHECKPOINT = "replication-offset-checkpoint"
CLEANER_CHECKPOINT = "cleaner-offset-checkpoint"
GAPS_CHECKPOINT = "odradek-gaps-checkpoint"
"""In a partition's directory: the offset below which the log may have offset gaps.

Only Odradek uses it; Kafka does not touch it.
"""
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
LOCK = ".lock"
CLUSTER_METADATA = "__cluster_metadata"
"""The topic of the log of Kafka's KRaft controller, which stays in a log directory that was adopted."""
RESERVE = ".odradek.reserve"

DIRECTORY_NAME_LIMIT = 255
DELETE, FUTURE, STRAY = "delete", "future", "stray"
_MARKED = re.compile(r"(?P<topic>\S+)-(?P<partition>\d+)\.(?P<unique>[^\s.]+)-(?P<fate>delete|future|stray)", re.ASCII)
_PLAIN = re.compile(r"(?P<topic>\S+)-(?P<partition>\d+)", re.ASCII)
_SEGMENT_FILE = re.compile(
    r"(?P<offset>\d{20})(?P<kind>\.log|\.index|\.timeindex|\.txnindex|\.snapshot)(?P<state>\.deleted|\.cleaned|\.swap|\.tmp)?",
    re.ASCII,
)


class ForeignNameError(ValueError):
    """A directory name with which Kafka would refuse to start."""


class PartitionDirectory(NamedTuple):
    """The parts of a directory name. `fate`: None for a live partition, otherwise DELETE, FUTURE or STRAY."""

    topic: str
    partition: int
    fate: str | None = None


@dataclass(frozen=True)
class SegmentFile:
    """The parts of a segment file name.

    `kind`: .log ...; `state`: empty, .deleted, .cleaned, .swap, or .tmp of a snapshot that is being written.
    """

    base_offset: int
    kind: str
    state: str


def segment_file_name(base_offset: int, kind: str) -> str:
    """The name of a file of a segment, or of the snapshot at `base_offset`."""
    return f"{base_offset:020d}{kind}"


def parse_segment_file_name(name: str) -> SegmentFile | None:
    """The parts of a segment's file name; None for any other file."""
    match = _SEGMENT_FILE.fullmatch(name)
    if not match or (match["state"] == TEMPORARY and match["kind"] != SNAPSHOT):
        return None
    return SegmentFile(int(match["offset"]), match["kind"], match["state"] or "")


def partition_directory_name(topic: str, partition: int) -> str:
    """The name of a live partition's directory."""
    return f"{topic}-{partition}"


def marked_directory_name(topic: str, partition: int, fate: str) -> str:
    """A new unique name for a directory that waits for its deletion (DELETE, STRAY) or its promotion (FUTURE).

    The topic is cut if the name would exceed 255 bytes, as in Kafka. For FUTURE it is not cut, because the promotion needs
    it; the caller's topic must be short enough.
    """
    suffix = f"-{partition}.{uuid.uuid4().hex}-{fate}"
    if fate == FUTURE:
        return topic + suffix
    return topic[: DIRECTORY_NAME_LIMIT - len(suffix)] + suffix


def parse_directory_name(name: str) -> PartitionDirectory:
    """The partition of a directory. Raises ForeignNameError for a name with which Kafka would refuse to start."""
    marked = name.endswith(("-delete", "-future", "-stray"))
    match = (_MARKED if marked else _PLAIN).fullmatch(name)
    if not match:
        raise ForeignNameError(
            f"{name!r} is not a partition directory: expected <topic>-<partition>[.<id>-delete|-future|-stray]"
        )
    return PartitionDirectory(match["topic"], int(match["partition"]), match["fate"] if marked else None)
