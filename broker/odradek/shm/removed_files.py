"""Closes this process's cached descriptors of removed files, so that the file system frees their space.

Every process that caches descriptors of segments has one `RemovedFiles`, and calls `look` when it is woken and at least every
half second [R 4.9]. The counter is in the shared memory; the descriptors belong to this process alone.
"""

from collections.abc import Callable

from odradek._ext.partition.removed_files import removed_files


class RemovedFiles:
    """Watches the counter of removed files.

    :param sweeps: functions that each close one cache's descriptors of slots whose generation or incarnation has changed.
    """

    def __init__(self, *sweeps: Callable[[], object]) -> None:
        self._sweeps = sweeps
        self._seen = removed_files()

    def look(self) -> bool:
        """Run the sweeps if files were removed since the last call. Returns whether files were removed."""
        if (now := removed_files()) == self._seen:
            return False
        self._seen = now  # before the sweeps, so that the next call sees removals that happen during them
        for sweep in self._sweeps:
            sweep()
        return True
