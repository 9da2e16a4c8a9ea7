"""Removes the directories of deleted partitions, `log.segment.delete.delay.ms` after the deletion. Runs in the cleaner."""

import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from odradek._ext.partition.removed_files import announce_removed_files
from odradek._ext.shm.layout import DiskState
from odradek._ext.shm.shared_memory import SharedMemory
from odradek.storage.file_names import DELETE, ForeignNameError, parse_directory_name

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

    def remove(self, delay_ms: int) -> dict[str, str]:
        """Remove the directories of partitions that were deleted at least `delay_ms` ago; the delay lets reads under way
        finish. Without delay if the log directory is low on space or full.

        A directory that cannot be removed is logged, and the next call tries again. Returns the failures, by path.
        """
        first_seen: dict[Path, int] = {}
        due: list[Path] = []
        failures = {}
        for number, log_dir in enumerate(self._log_dirs):
            if self._shm.log_dir_offline(number):
                continue
            wait_ms = delay_ms if self._shm.disk(number)[0] == DiskState.DISK_ROOMY else 0
            try:
                deleted = _deleted_in(log_dir)
            except OSError as error:
                log.error("cannot look for directories of deleted partitions: %s; retrying in the next pass", error)
                failures[str(log_dir)] = f"cannot look for directories of deleted partitions: {error}"
                continue
            for path in deleted:
                first_seen[path] = self._seen.get(path, self._clock())
                if self._clock() - first_seen[path] >= wait_ms:
                    due.append(path)
        self._seen = first_seen
        for path in due:
            reason = self._remove(path)
            if reason:
                failures[str(path)] = reason
        if due:
            announce_removed_files()
        return failures

    def _remove(self, path: Path) -> str:
        """Remove a directory. Returns why that failed, or an empty text."""
        try:
            for entry in path.iterdir():
                if entry.is_dir() and not entry.is_symlink():
                    import shutil  # a log has no subdirectories, and shutil imports all formats of archives

                    shutil.rmtree(entry)
                else:
                    entry.unlink(missing_ok=True)
                self._shm.beat()
            path.rmdir()
        except OSError as error:
            log.error("cannot remove a deleted partition's directory: %s; retrying in the next pass", error)
            return f"cannot remove the directory of a deleted partition: {error}"
        self._seen.pop(path, None)
        log.info("removed the deleted partition's directory %s", path)
        return ""


def _deleted_in(log_dir: Path) -> list[Path]:
    """The directories of deleted partitions in a log directory. Directories with other names, which another program has made,
    are left alone. Raises OSError."""
    found = []
    for path in log_dir.iterdir():
        try:
            if path.name.endswith(f"-{DELETE}") and parse_directory_name(path.name).fate == DELETE:
                found.append(path)
        except ForeignNameError:
            continue
    return sorted(found)
