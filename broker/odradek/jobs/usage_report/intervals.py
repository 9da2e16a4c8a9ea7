"""Reads a file of the spool interval by interval; damaged parts are skipped and reported with their byte offset.

Pure: runs in Spark's Python workers, for one file at a time, and holds one interval in memory. A file is JSON lines, plain or
gzip. An interval is the lines of its rows and then a line ``{"kind":"interval",...,"rows":n,"crc":c}`` with their count and
the CRC-32 of their bytes, line ends included. Rows without such a line are not counted: the process that wrote
them died in the middle. If count or CRC differ, the last `rows` lines are tried alone, because a later process
may have continued after an incomplete line.
"""

import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

MARK = b'{"kind":"interval"'
_NUMBERS = ("broker", "seq", "from", "to", "elapsed", "rows", "crc")
_ROW = b'{"kind":"'
_BLOCK = 1 << 20
#: Maximum size of an interval; a longer one means that the file has lost its line ends.
_LONGEST = 1 << 29


class Interval(NamedTuple):
    """A complete interval. `rows` are its lines without line ends; times are milliseconds of the epoch, `end_ms` is exclusive.

    :ivar elapsed_ms: its length by a clock that is never set
    :ivar jump_ms: how far the wall clock was set forward (negative: back) during the interval
    """

    boot: str
    broker: int
    seq: int
    from_ms: int
    end_ms: int
    elapsed_ms: int
    jump_ms: int
    rows: list[bytes]


class Damage(NamedTuple):
    """A part that could not be used: `position` is an offset in the (uncompressed) content, `unit` describes the offset."""

    reason: str
    position: int
    unit: str = "byte"


class _Broken(Exception):
    """The content ends early; `damage` is the reason."""

    def __init__(self, damage: Damage) -> None:
        self.damage = damage


def read_intervals(path: Path) -> Iterator[Interval | Damage]:
    """Yield all complete intervals and all damaged parts of the file, in order.

    :raises OSError: never; a file that cannot be opened or read is a Damage too
    """
    buffer = b""
    start = 0  # the position of buffer[0] in the content
    scanned = 0
    broken: Damage | None = None
    blocks = _content(path)
    while True:
        try:
            block = next(blocks, b"")
        except _Broken as stop:
            broken, block = stop.damage, b""
        if block:
            buffer += block
        used = 0
        while (at := buffer.find(MARK, max(used, scanned))) >= 0:
            end = buffer.find(b"\n", at)
            if end < 0:
                break
            yield from _interval(buffer[used:at], buffer[at:end], start + used)
            used = scanned = end + 1
        if used:
            buffer = buffer[used:]
            start += used
        scanned = max(0, len(buffer) - len(MARK)) if at < 0 else at - used
        if not block:
            break
        if len(buffer) > _LONGEST:
            yield Damage(f"has no interval line within {_LONGEST >> 20} MiB", start)
            return
    if broken is not None:
        yield broken
    elif buffer:
        yield Damage("ends in the middle of an interval", start)


def _content(path: Path) -> Iterator[bytes]:
    """Yield the bytes of the file, decompressed if its name ends in .gz."""
    compressed = path.name.endswith(".gz")
    position = 0
    try:
        with path.open("rb") as file:
            if not compressed:
                while block := file.read(_BLOCK):
                    position += len(block)
                    yield block
                return
            opened, between = zlib.decompressobj(wbits=31), False  # a file may consist of several gzip streams
            while block := file.read(_BLOCK >> 2):
                position += len(block)
                while block:
                    try:
                        content = opened.decompress(block)
                    except zlib.error:
                        raise _Broken(
                            Damage(
                                "is not valid gzip", position - len(block), "compressed byte, or the 256 KiB after it,"
                            )
                        ) from None
                    if content:
                        yield content
                    block, between = opened.unused_data, opened.eof
                    if between:
                        opened = zlib.decompressobj(wbits=31)
            if not between:
                raise _Broken(Damage("is an incomplete gzip file", position, "compressed byte"))
    except OSError as error:
        raise _Broken(Damage(f"cannot be read ({error.strerror or error})", position)) from None


def _interval(rows: bytes, line: bytes, position: int) -> Iterator[Interval | Damage]:
    """Yield the interval of these rows and this line, or a damage before it or instead of it.

    :param position: offset of `rows` in the content
    """
    try:
        fields = json.loads(line)
        boot = fields["boot"]
        broker, seq, from_ms, end_ms, elapsed_ms, count, crc = numbers = [fields[name] for name in _NUMBERS]
        jump_ms = fields.get("jump", 0)
        if not isinstance(boot, str) or not all(type(number) is int for number in (*numbers, jump_ms)):
            raise ValueError("a field has another type")
    except (ValueError, KeyError, TypeError):
        yield Damage("has an interval line that cannot be parsed", position + len(rows))
        return
    place = boot, broker, seq, from_ms, end_ms, elapsed_ms, jump_ms
    lines = rows.split(b"\n")
    rest = lines.pop()  # empty, unless the interval line was written after an incomplete line
    if not rest and len(lines) == count and zlib.crc32(rows) == crc:
        yield Interval(*place, lines)
        return
    if not rest and 0 < count <= len(lines):
        tail = lines[-count:]
        glued = tail[0].rfind(_ROW)
        for first in {tail[0], tail[0][max(glued, 0) :]}:
            whole = [first, *tail[1:]]
            content = b"\n".join(whole) + b"\n"
            if zlib.crc32(content) == crc:
                yield Damage("has rows without an interval line", position)
                yield Interval(*place, whole)
                return
    if count == 0 and crc == 0:
        yield Damage("has rows without an interval line", position)
        yield Interval(*place, [])
        return
    present = len(lines) + bool(rest)
    why = f"{present} row{'' if present == 1 else 's'} instead of {count}" if present != count else "a wrong checksum"
    yield Damage(f"has an interval with {why}", position)
