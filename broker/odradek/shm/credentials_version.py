"""The version of the SCRAM credentials, in a memfd that is created before the first fork.

The coordinator raises it after each change of credentials; every worker drops the credentials that it keeps, and confirms the
version. Layout: a version word, then one word per process with the version that it has taken over. Words have eight bytes, are
aligned, and have one writer each. The coordinator's successor continues with the version in the memory.
"""

import mmap
import os
import select
import time
from collections.abc import Iterable

_PROCESSES = 64
_BYTES = 4096


class CredentialsVersion:
    """See the module. The supervisor creates it; every process that it forks inherits it. The `descriptors` must stay open."""

    def __init__(self) -> None:
        self._fd = os.memfd_create("odradek-credentials-version", os.MFD_CLOEXEC)
        os.ftruncate(self._fd, _BYTES)
        self._map = mmap.mmap(self._fd, _BYTES)
        self._words = memoryview(self._map).cast("Q")
        self._taken_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._index = 0

    @property
    def descriptors(self) -> tuple[int, int]:
        """The descriptors that a child must keep open."""
        return self._fd, self._taken_fd

    @property
    def version(self) -> int:
        """The newest version."""
        return self._words[0]

    def enter(self, index: int) -> None:
        """Set the calling process's place in the process table. It has kept no credential yet."""
        if not 0 <= index < _PROCESSES:
            raise ValueError(f"process {index} of {_PROCESSES}")
        self._index = index
        self._words[1 + index] = self._words[0]

    def announce(self) -> int:
        """Credentials changed in the store. Returns the new version; the caller must wake the processes."""
        self._words[0] += 1
        return self._words[0]

    def take_over(self) -> int:
        """Confirm the newest version: this process keeps no older credential. Returns the version."""
        version = self._words[0]
        if self._words[1 + self._index] != version:
            self._words[1 + self._index] = version
            os.eventfd_write(self._taken_fd, 1)
        return version

    def wait_until_taken(self, version: int, indexes: Iterable[int], limit_s: float) -> list[int]:
        """Wait until these processes have confirmed a version. Returns those that have not done so within `limit_s` seconds.
        Only one process of a broker may call this."""
        deadline = time.monotonic() + limit_s
        poll = select.poll()
        poll.register(self._taken_fd, select.POLLIN)
        while True:
            late = [index for index in indexes if self._words[1 + index] < version]
            left = deadline - time.monotonic()
            if not late or left <= 0:
                return late
            if poll.poll(left * 1000):
                os.eventfd_read(self._taken_fd)
