"""How many bytes and segments each partition's log has: the active segment's from its slot, the others' from the directory.

In the reporter. Closed segments change with the slot's generation only (rolls, removals, swaps, truncations), so a directory is
read again when that moved; a bounded number at a time, so that ten thousand at a start do not hold up anything.
"""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from broker._ext import slots
from broker._ext.overview import Partition
from broker._ext.shared import SlotState
from broker.storage import file_names


class LogSize(NamedTuple):
    """Of one log."""

    size_bytes: int
    segments: int


class LogSizes:
    """:param log_dirs: paths by the number that slots have."""

    def __init__(self, log_dirs: Sequence[Path]) -> None:
        self._log_dirs = log_dirs
        self._closed: dict[int, tuple[int, int, int, int]] = {}  # slot to incarnation, generation, bytes, segments

    def of(self, row: Partition) -> LogSize | None:
        """None if it is not known yet; the sizes of some moment since the generation before, if it has just changed."""
        known = self._closed.get(row.slot)
        if known is None or known[0] != row.incarnation:
            return None
        return LogSize(known[2] + row.segment_bytes, known[3] + 1)

    def refresh(self, topics: Iterable[tuple[str, Sequence[Partition]]], most: int) -> bool:
        """Read at most so many directories of logs that changed; whether some are left."""
        left = most
        for topic, rows in topics:
            for row in rows:
                known = self._closed.get(row.slot)
                if row.state != SlotState.SLOT_ONLINE or (known is not None and known[:2] == row[2:4]):
                    continue
                if left == 0:
                    return True
                left -= 1
                self._read(topic, row)
        return False

    def _read(self, topic: str, row: Partition) -> None:
        directory = self._log_dirs[row.log_dir] / f"{topic}-{row.partition}"
        active = file_names.segment_file_name(row.segment_base, file_names.LOG)
        total = segments = 0
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    if entry.name.endswith(file_names.LOG) and entry.name != active:
                        total += entry.stat().st_size
                        segments += 1
        except (FileNotFoundError, NotADirectoryError):
            return  # deleted, or renamed, since the slot was read
        state = slots.describe(row.slot)
        if (state["incarnation"], state["generation"]) == row[2:4]:  # else a roll came between: next time
            self._closed[row.slot] = row.incarnation, row.generation, total, segments
