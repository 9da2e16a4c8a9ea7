"""State that a reporter process leaves to the next one: bytes in a memfd that the supervisor holds until the broker ends.

Two areas, written in turn, each with a sequence number, a length and CRC-32s: a process that dies while it writes one area
leaves the other one intact. Only the reporter writes.
"""

import os
import struct
import zlib

_HEAD = struct.Struct(">QQII")  # sequence, length, CRC-32 of the data, CRC-32 of these three
_CRC = struct.Struct(">I")
AREAS = (0, 1 << 32)  # offsets of the areas; unwritten parts take no memory


class Memory:
    """The saved state. :param fd: descriptor of the memfd; -1: nothing is saved."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._sequence = 0

    def load(self) -> bytes | None:
        """Return the data of the last `save`; None if there are none."""
        newest = None
        for area in AREAS if self._fd >= 0 else ():
            head = os.pread(self._fd, _HEAD.size, area)
            if len(head) < _HEAD.size:
                continue
            sequence, length, crc, head_crc = _HEAD.unpack(head)
            if sequence <= self._sequence or zlib.crc32(head[: -_CRC.size]) != head_crc:
                continue
            data = os.pread(self._fd, length, area + _HEAD.size)
            if len(data) == length and zlib.crc32(data) == crc:
                self._sequence, newest = sequence, data
        return newest

    def save(self, data: bytes) -> None:
        """Replace the saved data. Raises OSError if there is no memory."""
        if self._fd < 0:
            return
        sequence = self._sequence + 1
        area = AREAS[sequence % 2]
        os.pwrite(self._fd, bytes(_HEAD.size), area)
        position = area + _HEAD.size
        view = memoryview(data)
        while view:
            written = os.pwrite(self._fd, view, position)
            view, position = view[written:], position + written
        head = _HEAD.pack(sequence, len(data), zlib.crc32(data), 0)[: -_CRC.size]
        os.pwrite(self._fd, head + _CRC.pack(zlib.crc32(head)), area)
        self._sequence = sequence
