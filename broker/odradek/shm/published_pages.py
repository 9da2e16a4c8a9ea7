"""Bytes that one process publishes in a memfd and any process reads: two copies, which are written in turn.

One process at a time writes; after its death a successor continues. Processes that have the descriptor read at any time. There
is no lock. A copy is a head (version, length, CRC-32 of the data, CRC-32 of these three) and the data.

A write replaces the older copy in three steps: it clears the head, then stores the data, then stores the new head. Therefore:

- A writer that dies before its first step has changed nothing, and one that dies after its last step has published everything.
  In between, the older copy has no valid head, so no reader uses it. The newer copy, which the write does not touch, is the
  newest valid one: readers get it, and the successor repeats the write with the same version.
- A reader takes the copy with the newest valid head, reads its data, and reads the head again. If the head is the same, no
  write of this copy had begun while the data were read, because a write clears the head first. Otherwise two writes have begun
  meanwhile, and the reader starts again.

The CRC of the data is a second check, against a stray write into the memfd.
"""

import os
import struct
import zlib
from typing import NamedTuple

_FIELDS = struct.Struct(">QII")  # version, length, CRC-32 of the data
_CRC = struct.Struct(">I")
HEAD_BYTES = _FIELDS.size + _CRC.size


class _Head(NamedTuple):
    version: int
    length: int
    crc: int


class PublishedPages:
    """The published bytes in a memfd.

    :param fd: descriptor of the memfd; the caller closes it.
    :param start: where the two copies begin in the memfd.
    :param copy_bytes: bytes reserved for each copy with its head; unwritten parts take no memory.
    """

    def __init__(self, fd: int, *, start: int = 0, copy_bytes: int = 1 << 32) -> None:
        self._fd = fd
        self._start = start
        self._copy_bytes = copy_bytes

    def read(self) -> tuple[int, bytes] | None:
        """The newest version and its data; None if nothing was published yet."""
        while True:
            heads = self._heads()
            for head in sorted(filter(None, heads), reverse=True):
                data = os.pread(self._fd, head.length, self._position(head.version) + HEAD_BYTES)
                if self._head(head.version) == head and len(data) == head.length and zlib.crc32(data) == head.crc:
                    return head.version, data
            if self._heads() == heads:
                return None

    @property
    def version(self) -> int:
        """The newest version; 0 if nothing was published yet. The data are not read."""
        return max((head.version for head in self._heads() if head), default=0)

    def publish(self, data: bytes) -> int:
        """Publish `data` in place of the former data, and return its version, the next number. Only one process may call this.

        :raises ValueError: the data do not fit. :raises OSError: there is no memory; the former data stay published.
        """
        if len(data) > self._copy_bytes - HEAD_BYTES:
            raise ValueError(f"{len(data)} bytes do not fit; the limit is {self._copy_bytes - HEAD_BYTES} bytes")
        version = 1 + max((head.version for head in self._heads() if head), default=0)
        position = self._position(version)
        fields = _FIELDS.pack(version, len(data), zlib.crc32(data))
        self._store(bytes(HEAD_BYTES), position)
        self._store(data, position + HEAD_BYTES)
        self._store(fields + _CRC.pack(zlib.crc32(fields)), position)
        return version

    def _position(self, version: int) -> int:
        return self._start + version % 2 * self._copy_bytes

    def _heads(self) -> list[_Head | None]:
        return [self._head(0), self._head(1)]

    def _head(self, version: int) -> _Head | None:
        """The head of the copy for `version`, or for its predecessor there; None if it is not valid."""
        head = os.pread(self._fd, HEAD_BYTES, self._position(version))
        if len(head) < HEAD_BYTES or zlib.crc32(head[: _FIELDS.size]) != _CRC.unpack_from(head, _FIELDS.size)[0]:
            return None
        return _Head(*_FIELDS.unpack_from(head))

    def _store(self, data: bytes, position: int) -> None:
        view = memoryview(data)
        while view:
            written = os.pwrite(self._fd, view, position)
            view, position = view[written:], position + written
