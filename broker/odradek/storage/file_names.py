"""Names of files and directories in a log directory: made and parsed here only.

Stateless. The names are Kafka's; a base offset is written with twenty digits.
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
"""In a partition's directory: the offset below which offsets may be missing. Ours alone; Kafka leaves it untouched."""
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
LOCK = ".lock"
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
    """A name that no Kafka log directory should hold."""


class PartitionDirectory(NamedTuple):
    """What a directory's name says. `fate`: None for a live partition, else DELETE, FUTURE or STRAY."""

    topic: str
    partition: int
    fate: str | None = None


@dataclass(frozen=True)
class SegmentFile:
    """What a file's name says. `kind`: .log ...; `state`: empty, or .deleted, .cleaned, .swap, or .tmp of a snapshot that is
    not in place yet."""

    base_offset: int
    kind: str
    state: str


def segment_file_name(base_offset: int, kind: str) -> str:
    """The name of a segment's file (or of a snapshot taken at `base_offset`)."""
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
    """A fresh name for a directory that awaits its deletion (DELETE, STRAY) or its promotion (FUTURE).

    The topic's name is cut where the whole would pass 255 bytes, as Kafka does; for FUTURE it never is, because the
    name is needed again, and the caller's topic is at most 249 bytes less what the suffix takes.
    """
    suffix = f"-{partition}.{uuid.uuid4().hex}-{fate}"
    if fate == FUTURE:
        return topic + suffix
    return topic[: DIRECTORY_NAME_LIMIT - len(suffix)] + suffix


def parse_directory_name(name: str) -> PartitionDirectory:
    """The partition that a directory belongs to. Raises ForeignNameError where Kafka would refuse to start."""
    marked = name.endswith(("-delete", "-future", "-stray"))
    match = (_MARKED if marked else _PLAIN).fullmatch(name)
    if not match:
        raise ForeignNameError(f"{name!r} is not <topic>-<partition>, nor that with .<id>-delete, -future or -stray")
    return PartitionDirectory(match["topic"], int(match["partition"]), match["fate"] if marked else None)
