"""Closing what this process has open of removed files, so that their space is free when they are deleted.

Every process that caches descriptors of segments has one `RemovedFiles`, and lets it look when it is woken and at least
every half second [R 4.9]. The counter is in the shared memory; what is closed belongs to this process alone.
"""

from collections.abc import Callable

from odradek._ext.partition.removed_files import removed_files


class RemovedFiles:
    """:param sweeps: each closes one cache's descriptors of slots whose generation or incarnation has changed."""

    def __init__(self, *sweeps: Callable[[], object]) -> None:
        self._sweeps = sweeps
        self._seen = removed_files()

    def look(self) -> bool:
        """Run the sweeps if files were removed since the last look; whether they were."""
        if (now := removed_files()) == self._seen:
            return False
        self._seen = now  # before the sweeps: what is removed while they run is seen by the next look
        for sweep in self._sweeps:
            sweep()
        return True
