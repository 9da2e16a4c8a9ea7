"""Logs that the broker has set aside as `*-stray`, because their topic was deleted and created again (docs/operate/cluster.md).

The broker neither reads nor deletes them, so the metrics count them and `odradek doctor` names them. Stateless.
"""

import os
from pathlib import Path
from typing import NamedTuple

from odradek.storage.file_names import STRAY, ForeignNameError, parse_directory_name


class StrayLog(NamedTuple):
    """The directory of a log that was set aside. :param since_s: Unix time in seconds at which the directory got its name."""

    path: str
    size_bytes: int
    since_s: float


def stray_logs(log_dir: Path) -> list[StrayLog]:
    """The logs of a log directory that were set aside, by path. Raises OSError if it cannot be read."""
    found = []
    with os.scandir(log_dir) as entries:
        for entry in entries:
            if not entry.name.endswith(f"-{STRAY}") or not entry.is_dir(follow_symlinks=False):
                continue
            try:
                if parse_directory_name(entry.name).fate == STRAY:
                    # The rename sets the time of the last status change; nobody writes to the directory afterwards.
                    found.append(StrayLog(entry.path, _size(entry.path), entry.stat(follow_symlinks=False).st_ctime))
            except (ForeignNameError, FileNotFoundError):
                continue  # of another program; or the operator has just deleted it
    return sorted(found)


def _size(directory: str) -> int:
    with os.scandir(directory) as entries:
        return sum(
            entry.stat(follow_symlinks=False).st_size for entry in entries if entry.is_file(follow_symlinks=False)
        )
