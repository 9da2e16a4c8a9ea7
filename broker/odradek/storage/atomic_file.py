"""Files that are replaced whole: a temporary file, fsync, rename, fsync of the directory.

Any process may write; who writes which file is its caller's rule. A crash leaves the old content or the new, and at
most a `.tmp` that the next writer overwrites.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

TEMPORARY = ".tmp"
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
"""What a full disk says: the one failure of a file that passes."""


def fsync_directory(path: str | os.PathLike[str]) -> None:
    """Makes names created, renamed or removed in the directory `path` last. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_file(path: str | os.PathLike[str], content: bytes, *, sync: bool = True) -> None:
    """Replaces the file `path` by `content` in one step, lasting unless `sync` is False.

    Raises OSError, which names a file; the old content is there then, and room that the new one took is given back.
    """
    target = Path(path)
    temporary = target.with_name(target.name + TEMPORARY)
    try:
        _write(temporary, content, sync)
        temporary.replace(target)
        if sync:
            fsync_directory(target.parent)
    except OSError as error:
        if error.filename is None:  # os.write and os.fsync know a descriptor only
            error.filename = str(temporary)
        with contextlib.suppress(OSError):  # the first failure is what is reported
            temporary.unlink(missing_ok=True)
        raise


def _write(path: Path, content: bytes, sync: bool) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(descriptor, view) :]
        if sync:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
