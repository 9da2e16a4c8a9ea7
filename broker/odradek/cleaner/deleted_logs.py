"""Removes the directories of deleted partitions, `log.segment.delete.delay.ms` after the deletion. Runs in the cleaner."""

import logging
import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from odradek._ext.partition.removed_files import announce_removed_files
from odradek._ext.shm.layout import DiskState
from odradek._ext.shm.shared_memory import SharedMemory
from odradek.storage.file_names import parse_directory_name

log = logging.getLogger("odradek.cleaner")


class DeletedLogs:
    """The directories of deleted partitions, as a cleaner process sees them.

    The delay counts from the moment when this cleaner first saw the directory, by the monotonic clock: a step of the wall clock
    neither keeps the disk full nor removes a directory early.

    :param log_dirs: paths in the order of the shared table's log directories.
    :param clock: monotonic time in ms.
    """

    def __init__(
        self,
        shm: SharedMemory,
        log_dirs: Sequence[Path],
        clock: Callable[[], int] = lambda: time.monotonic_ns() // 1_000_000,
    ) -> None:
        self._shm = shm
        self._log_dirs = [Path(path) for path in log_dirs]
        self._clock = clock
        self._seen: dict[Path, int] = {}

    def remove(self, delay_ms: int) -> None:
        """Remove the directories of partitions that were deleted at least `delay_ms` ago; the delay lets reads under way
        finish. Without delay if the log directory is low on space or full.

        A directory that cannot be removed is logged, and the next call tries again.
        """
        first_seen: dict[Path, int] = {}
        due: list[Path] = []
        for number, log_dir in enumerate(self._log_dirs):
            wait_ms = delay_ms if self._shm.disk(number)[0] == DiskState.DISK_ROOMY else 0
            for path in sorted(log_dir.glob("*-delete")):
                if parse_directory_name(path.name).fate == "delete":
                    first_seen[path] = self._seen.get(path, self._clock())
                    if self._clock() - first_seen[path] >= wait_ms:
                        due.append(path)
        self._seen = first_seen
        for path in due:
            self._remove(path)
        if due:
            announce_removed_files()

    def _remove(self, path: Path) -> None:
        try:
            for entry in path.iterdir():
                if entry.is_dir() and not entry.is_symlink():
                    shutil.rmtree(entry)
                else:
                    entry.unlink(missing_ok=True)
                self._shm.beat()
            path.rmdir()
        except OSError as error:
            log.error("cannot remove a deleted partition's directory: %s; retrying in the next pass", error)
            return
        self._seen.pop(path, None)
        log.info("removed the deleted partition's directory %s", path)
