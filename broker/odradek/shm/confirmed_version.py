"""A version that one process raises in a memfd, and that every process confirms when it acts by it.

The memfd must be created before the first fork. Layout: a version word, then one word per process with the version that it
has taken over. Words have eight bytes, are aligned, and have one writer each. The writer's successor continues with the version
in the memory. What the version describes is stored after the words (`ConfirmedPages`) or elsewhere (`CredentialsVersion`).
"""

import mmap
import os
import select
import time
from collections.abc import Iterable

from odradek._ext.shm.layout import ProcessKind, ProcessState
from odradek._ext.shm.shared_memory import SharedMemory
from odradek._ext.shm.shared_words import SharedWords
from odradek.shm.owned_descriptors import close_with

PROCESSES = 64
WORDS_BYTES = 4096
TAKEN_WITHIN_S = 2.0
"""For so long the answer to a change waits for processes that have not confirmed it."""


class ConfirmedVersion:
    """See the module. Every process that is forked later inherits it; the `descriptors` must stay open in a child.

    :param name: of the memfd. :param more_bytes: of the memfd, after the words.
    """

    def __init__(self, name: str, more_bytes: int = 0) -> None:
        self._fd = os.memfd_create(name, os.MFD_CLOEXEC)
        os.ftruncate(self._fd, WORDS_BYTES + more_bytes)
        self._map = mmap.mmap(self._fd, WORDS_BYTES)
        self._words = SharedWords(self._map)
        self._taken_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        close_with(self, self._fd, self._taken_fd)
        self._index = 0

    @property
    def descriptors(self) -> tuple[int, int]:
        """The descriptors that a child must keep open."""
        return self._fd, self._taken_fd

    @property
    def more_words(self) -> SharedWords:
        """The words after those of the processes, for other purposes; each has one writer, too."""
        return SharedWords(self._map, 1 + PROCESSES)

    @property
    def version(self) -> int:
        """The newest version; 0 if there was no change yet."""
        return self._words[0]

    def _enter(self, index: int, version: int) -> None:
        """Set the calling process's place in the process table, and the version that it starts with. Raises ValueError."""
        if not 0 <= index < PROCESSES:
            raise ValueError(f"the number {index} of the process is not from 0 to {PROCESSES - 1}")
        self._index = index
        self._words[1 + index] = version

    def _taken(self, version: int) -> None:
        """Confirm that this process acts by `version`."""
        self._words[1 + self._index] = version
        os.eventfd_write(self._taken_fd, 1)

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


def serving(shm: SharedMemory, *kinds: ProcessKind) -> list[int]:
    """The places in the process table of the processes that serve now. :param kinds: only these kinds; none for all."""
    return [
        process.index
        for process in shm.processes()
        if process.state == ProcessState.SERVING and (not kinds or process.kind in kinds)
    ]
