"""The directory in which Spark spills and shuffles: one for each run, below the system's directory for temporary files.

A killed run cannot remove its directory, so each run removes the directories whose process has ended. Runs in the driver.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PREFIX = "odradek-load-"
LOCK = ".lock"


@contextmanager
def scratch_directory() -> Iterator[Path]:
    """Yield a new directory, which is removed afterwards; first remove what killed runs of this user left.

    :raises OSError: the directory cannot be made
    """
    for left in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        _remove_abandoned(left)
    path = Path(tempfile.mkdtemp(prefix=PREFIX))
    lock = os.open(path / f"{LOCK}.new", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # it gets its name when it is locked: a directory without it belongs to a run that starts
        (path / f"{LOCK}.new").rename(path / LOCK)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(lock)


def _remove_abandoned(path: Path) -> None:
    """Remove a directory of this user whose process has ended; what cannot be looked at stays."""
    try:
        if path.is_symlink() or path.stat().st_uid != os.getuid():
            return
        lock = os.open(path / LOCK, os.O_RDWR | os.O_CLOEXEC)
    except OSError:  # another run has removed it, or it starts
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    else:
        shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(lock)
