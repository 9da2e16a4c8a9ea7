"""Replaces files atomically: a temporary file, fsync, rename, fsync of the directory.

Runs in any process; the callers ensure that each file has one writer. A crash leaves the old content or the new, and at
most a `.tmp` file, which the next writer overwrites.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

TEMPORARY = ".tmp"
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
"""Errors of a full disk or quota: the only failures of a file that may end by themselves."""


def fsync_directory(path: str | os.PathLike[str]) -> None:
    """Make file creations, renames and removals in the directory `path` durable. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: str | os.PathLike[str], content: bytes, *, sync: bool = True, mode: int = 0o644) -> None:
    """Replace the file `path` by `content` atomically, and durably unless `sync` is False.

    :param mode: the permissions of a new file, before the umask.

    Raises OSError with a filename; the file then has its old content, and the temporary file is deleted.
    """
    target = Path(path)
    temporary = target.with_name(target.name + TEMPORARY)
    try:
        _write(temporary, content, sync, mode)
        temporary.replace(target)
        if sync:
            fsync_directory(target.parent)
    except OSError as error:
        if error.filename is None:  # os.write and os.fsync do not know the name
            error.filename = str(temporary)
        with contextlib.suppress(OSError):  # report the first failure
            temporary.unlink(missing_ok=True)
        raise


def _write(path: Path, content: bytes, sync: bool, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(descriptor, view) :]
        if sync:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
