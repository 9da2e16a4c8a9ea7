"""Bytes that one process publishes to all others in a memfd, and that each of them confirms.

The memfd contains the words of `ConfirmedVersion`, then the two copies of `PublishedPages`. The writer publishes the bytes,
then stores their version in the word; a reader that finds a new version word takes the newest bytes, which may be newer than
the word.
"""

from odradek.shm.confirmed_version import WORDS_BYTES, ConfirmedVersion
from odradek.shm.published_pages import HEAD_BYTES, PublishedPages


class ConfirmedPages(ConfirmedVersion):
    """See the module.

    :param name: of the memfd. :param copy_bytes: the bytes reserved for each copy; unwritten parts take no memory.
    """

    def __init__(self, name: str, copy_bytes: int) -> None:
        super().__init__(name, 2 * copy_bytes)
        self.largest = copy_bytes - HEAD_BYTES
        self._pages = PublishedPages(self._fd, start=WORDS_BYTES, copy_bytes=copy_bytes)
        self.seen = 0
        """The version that this process has taken over."""

    @property
    def word(self) -> memoryview:
        """The version word, of eight bytes, for native code that compares it."""
        return memoryview(self._map).cast("Q")[:1]

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
        self._enter(index, self.seen)

    def taken(self, version: int) -> None:
        """Confirm that this process uses `version`."""
        self.seen = version
        self._taken(version)
