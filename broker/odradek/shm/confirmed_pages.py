"""Bytes that one process publishes to all others in a memfd, and that each of them confirms.

The memfd must be created before the first fork. Layout: a version word, one word per process with the version that it has taken
over, then the two copies of `PublishedPages`. The writer publishes the bytes, then stores their version in the word; a reader
that finds a new version word takes the newest bytes, which may be newer than the word. Words have eight bytes, are aligned, and
have one writer each.
"""

import mmap
import os
import select
import time
from collections.abc import Iterable

from odradek.shm.published_pages import HEAD_BYTES, PublishedPages

PROCESSES = 64
_WORDS = 1 + PROCESSES
_COPIES_AT = 4096


class ConfirmedPages:
    """See the module. Every process that is forked later inherits it; the `descriptors` must stay open in a child.

    :param name: of the memfd. :param copy_bytes: the bytes reserved for each copy; unwritten parts take no memory.
    """

    def __init__(self, name: str, copy_bytes: int) -> None:
        self._fd = os.memfd_create(name, os.MFD_CLOEXEC)
        os.ftruncate(self._fd, _COPIES_AT + 2 * copy_bytes)
        self.largest = copy_bytes - HEAD_BYTES
        self._pages = PublishedPages(self._fd, start=_COPIES_AT, copy_bytes=copy_bytes)
        self._map = mmap.mmap(self._fd, _COPIES_AT)
        self._words = memoryview(self._map).cast("Q")
        self._taken_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.seen = 0
        """The version that this process has taken over."""
        self._index = 0

    @property
    def descriptors(self) -> tuple[int, int]:
        """The descriptors that a child must keep open."""
        return self._fd, self._taken_fd

    @property
    def version(self) -> int:
        """The newest published version; 0 if nothing was published yet."""
        return self._words[0]

    @property
    def word(self) -> memoryview:
        """The version word, of eight bytes, for native code that compares it."""
        return self._words[:1]

    @property
    def changed(self) -> bool:
        """Whether a version exists that this process has not taken over. Costs one read of memory."""
        return self._words[0] != self.seen

    def publish(self, data: bytes) -> int:
        """Publish bytes to every process. Returns their version. The caller must wake the processes. Raises ValueError."""
        version = self._pages.publish(data)
        self._words[0] = version
        return version

    def read(self) -> tuple[int, bytes] | None:
        """The newest version and its bytes; None if nothing was published yet."""
        return self._pages.read()

    def enter(self, index: int) -> None:
        """Set the calling process's place in the shared process table. It starts with the version that its parent has taken
        over."""
        self._index = index
        self._words[1 + index] = self.seen

    def taken(self, version: int) -> None:
        """Confirm that this process uses `version`."""
        self.seen = self._words[1 + self._index] = version
        os.eventfd_write(self._taken_fd, 1)

    def wait_until_taken(self, version: int, indexes: Iterable[int], limit_s: float) -> list[int]:
        """Wait until these processes have taken over a version. Returns the processes that have not done so within `limit_s`
        seconds. Only one process of a broker may call this."""
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
