"""Checkpoint files: a version, a count, and one line per entry (the format of Kafka's CheckpointFile).

Each partition's directory has a `leader-epoch-checkpoint`, which the holder of the slot's lock writes when a new epoch
begins, and an `odradek-gaps-checkpoint` (its native half is `odradek._ext.partition.gap_limit`). The `*-offset-checkpoint`
files are in the log directory: see `odradek.shm.checkpoints`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from odradek.storage.atomic_file import replace_file
from odradek.storage.file_names import GAPS_CHECKPOINT
from odradek.topic_partition import TopicPartition

VERSION = 0


class CorruptCheckpointError(ValueError):
    """A checkpoint file is malformed; the message names the file and the line."""


class CheckpointLines:
    """The content of a checkpoint to write. Holds the encoded bytes, because a directory may have very many logs."""

    def __init__(self) -> None:
        self._body = bytearray()
        self._count = 0

    def add(self, line: str) -> None:
        """Append an entry."""
        self._body += line.encode() + b"\n"
        self._count += 1

    def add_offset(self, topic: str, partition: int, offset: int) -> None:
        """Append an entry of an offset checkpoint."""
        self.add(f"{topic} {partition} {offset}")

    def _content(self) -> bytes:
        return b"%d\n%d\n" % (VERSION, self._count) + self._body

    def is_in(self, path: str | os.PathLike[str]) -> bool:
        """Whether the file already has this content. Raises OSError."""
        try:
            return Path(path).read_bytes() == self._content()
        except FileNotFoundError:
            return False

    def write(self, path: str | os.PathLike[str], *, sync: bool = True) -> None:
        """Replace the file. Raises OSError."""
        replace_file(path, self._content(), sync=sync)


def _read(path: str | os.PathLike[str], words: int) -> list[list[str]]:
    """The words of each line of the file; empty if the file is missing or empty."""
    try:
        text = Path(path).read_text("utf-8")
    except FileNotFoundError:
        return []
    except UnicodeDecodeError as error:
        raise CorruptCheckpointError(f"{path}: not UTF-8 text: {error}") from error
    lines = text.splitlines()
    if len(lines) < 2:
        if lines and lines[0] != str(VERSION):
            raise CorruptCheckpointError(f"{path}: unsupported version {lines[0]!r}; expected {VERSION}")
        return []
    if lines[0] != str(VERSION):
        raise CorruptCheckpointError(f"{path}: unsupported version {lines[0]!r}; expected {VERSION}")
    entries = [line.split() for line in lines[2:]]
    for line, entry in zip(lines[2:], entries, strict=True):
        if len(entry) != words:
            raise CorruptCheckpointError(f"{path}: malformed line {line!r}; expected {words} word(s)")
    if lines[1] != str(len(entries)):
        raise CorruptCheckpointError(f"{path}: {len(entries)} entries, but its count is {lines[1]!r}")
    return entries


def _number(path: str | os.PathLike[str], text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise CorruptCheckpointError(f"{path}: {text!r} is not a number") from error


def read_offset_checkpoint(path: str | os.PathLike[str]) -> dict[TopicPartition, int]:
    """{(topic, partition): offset}; empty if the file does not exist. Raises CorruptCheckpointError, OSError."""
    return {
        (topic, _number(path, partition)): _number(path, offset) for topic, partition, offset in _read(path, words=3)
    }


def write_offset_checkpoint(
    path: str | os.PathLike[str], offsets: Mapping[TopicPartition, int], *, sync: bool = True
) -> None:
    """Replace the file. Raises OSError."""
    lines = CheckpointLines()
    for (topic, partition), offset in offsets.items():
        lines.add_offset(topic, partition, offset)
    lines.write(path, sync=sync)


def read_gap_limit(directory: str | os.PathLike[str]) -> int | None:
    """The offset in `odradek-gaps-checkpoint` below which the log may have offset gaps; None if the file does not exist.

    Raises CorruptCheckpointError, OSError.
    """
    path = Path(directory, GAPS_CHECKPOINT)
    if not path.exists():
        return None
    entries = _read(path, words=1)
    if len(entries) != 1:
        raise CorruptCheckpointError(f"{path}: {len(entries)} entries; expected 1")
    return _number(path, entries[0][0])


def write_gap_limit(directory: str | os.PathLike[str], limit: int) -> None:
    """Replace the file. Raises OSError."""
    lines = CheckpointLines()
    lines.add(str(limit))
    lines.write(Path(directory, GAPS_CHECKPOINT))


def effective_gap_limit(own: int | None, cleaner_offset: int | None) -> float:
    """The offset below which a starting broker accepts offset gaps in a log; infinity: everywhere.

    :param own: the value of `odradek-gaps-checkpoint`; None without file.
    :param cleaner_offset: the log's entry in `cleaner-offset-checkpoint`; None without entry.
    """
    if own is not None:
        return max(own, cleaner_offset or 0)
    return 0 if cleaner_offset is None else float("inf")  # compacted by Kafka, or by a version without gaps checkpoint


def read_leader_epochs(path: str | os.PathLike[str]) -> list[tuple[int, int]]:
    """[(leader epoch, start offset)] in file order; empty if the file does not exist.

    Raises CorruptCheckpointError, OSError.
    """
    return [(_number(path, epoch), _number(path, offset)) for epoch, offset in _read(path, words=2)]


def epochs_from(epochs: Iterable[tuple[int, int]], log_start_offset: int) -> list[tuple[int, int]]:
    """Trim ascending (leader epoch, start offset) entries to a log that starts at `log_start_offset`, as Kafka's
    truncateFromStart.

    The epoch of the first record starts at the log start offset; epochs that ended before it are removed.
    """
    entries = list(epochs)
    before = [entry for entry in entries if entry[1] <= log_start_offset]
    if not before:
        return entries
    return [(before[-1][0], log_start_offset), *entries[len(before) :]]


def write_leader_epochs(path: str | os.PathLike[str], epochs: Iterable[tuple[int, int]], *, sync: bool = True) -> None:
    """Replace the file. Raises OSError."""
    lines = CheckpointLines()
    for epoch, offset in epochs:
        lines.add(f"{epoch} {offset}")
    lines.write(path, sync=sync)
