"""Bytes and segments of each partition's log: the active segment from its slot, closed segments from the directory.

Runs in the reporter. Closed segments change only with the slot's generation (rolls, removals, swaps, truncations), so a
directory is read again when its generation has changed. The number of directories per call is limited, so that ten thousand
logs at a start do not block the reporter.
"""

import logging
import os
from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import odradek._ext.partition.slot_facts as slot_facts
from odradek._ext.shm.overview import Partition
from odradek._ext.shm.slot import SlotState
from odradek.storage import file_names

log = logging.getLogger("odradek.reporter")


class LogSize(NamedTuple):
    """The size of one log."""

    size_bytes: int
    segments: int


class LogSizes:
    """The sizes of all logs. :param log_dirs: paths, indexed by the log directory numbers in slots."""

    def __init__(self, log_dirs: Sequence[Path]) -> None:
        self._log_dirs = log_dirs
        # Arrays indexed by slot; a dictionary of ten thousand logs would take some megabytes.
        self._incarnation, self._generation = array("Q"), array("Q")
        self._bytes, self._segments = array("Q"), array("Q")
        self._unreadable: dict[
            int, tuple[str, str]
        ] = {}  # by slot: the partition, and why its directory cannot be read

    @property
    def failures(self) -> dict[str, str]:
        """The partitions whose logs cannot be measured, and why."""
        return dict(self._unreadable.values())

    def of(self, row: Partition) -> LogSize | None:
        """Return the size of a log; None if it is not measured yet.

        If the generation has just changed, the size of closed segments is the one of the previous generation.
        """
        slot = row.slot
        if slot >= len(self._incarnation) or self._incarnation[slot] != row.incarnation:
            return None
        return LogSize(self._bytes[slot] + row.segment_bytes, self._segments[slot] + 1)

    def _is_known(self, row: Partition) -> bool:
        return (
            row.slot < len(self._incarnation)
            and self._incarnation[row.slot] == row.incarnation
            and self._generation[row.slot] == row.generation
        )

    def refresh(self, topics: Iterable[tuple[str, Sequence[Partition]]], most: int) -> bool:
        """Read at most `most` directories of logs that changed; return whether some remain."""
        left = most
        for topic, rows in topics:
            for row in rows:
                if row.state != SlotState.SLOT_ONLINE or self._is_known(row):
                    continue
                if left == 0:
                    return True
                left -= 1
                self._read(topic, row)
        return False

    def _read(self, topic: str, row: Partition) -> None:
        directory = f"{self._log_dirs[row.log_dir]}/{file_names.partition_directory_name(topic, row.partition)}"
        active = file_names.segment_file_name(row.segment_base, file_names.LOG)
        total = segments = 0
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    if entry.name.endswith(file_names.LOG) and entry.name != active:
                        total += entry.stat().st_size
                        segments += 1
        except (FileNotFoundError, NotADirectoryError):
            self._unreadable.pop(row.slot, None)
            return  # deleted, or renamed, since the slot was read
        except OSError as error:
            if row.slot not in self._unreadable:
                log.error("cannot measure the log of %s-%d: %s; retrying at each look", topic, row.partition, error)
            self._unreadable[row.slot] = f"{topic}-{row.partition}", f"cannot measure the log: {error}"
            return
        self._unreadable.pop(row.slot, None)
        state = slot_facts.describe(row.slot)
        if (state.incarnation, state.generation) == row[
            2:4
        ]:  # else the log rolled meanwhile: measured by the next call
            self._put(row, total, segments)

    def _put(self, row: Partition, size_bytes: int, segments: int) -> None:
        columns = (self._incarnation, self._generation, self._bytes, self._segments)
        for column, value in zip(columns, (row.incarnation, row.generation, size_bytes, segments), strict=True):
            if row.slot >= len(column):
                column.frombytes(bytes(column.itemsize * (row.slot + 1 - len(column))))
            column[row.slot] = value
