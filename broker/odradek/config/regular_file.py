"""Reads a file whose path a setting names. Stateless.

A pipe or a device could make the reader wait for ever, or never end: only regular files are read.
"""

import errno
import os
import stat


def read_regular(path: str | os.PathLike[str], most: int) -> bytes:
    """The first `most` bytes of a regular file (-1: all). Raises OSError, also if it is none; its `strerror` is the reason."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "it is no regular file", os.fspath(path))
        return file.read(most)
