"""Reads the spool's files, interval by interval; what is damaged is skipped and named. The format:
`broker/odradek/metrics/spool.py`.

Pure but for reading files. The reporter uses it to go on where its predecessor was; the command to show history.
"""

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

INTERVAL_MARK = b'{"kind":"interval"'


class Interval(NamedTuple):
    """A whole one.

    :param from_ms: wall clock, as `to_ms`; `elapsed_ms` by a clock that nobody sets, `clock_ms` is what that showed at the end.
    :param full: it has all rows, not only those that changed.
    :param jump_ms: how far the wall clock was set forward during it; negative: back; 0: it was not.
    :param end: the byte of the file's (uncompressed) content behind it.
    :param rows: their lines, each with its line end.
    """

    path: Path
    boot: str
    broker: int
    seq: int
    from_ms: int
    to_ms: int
    elapsed_ms: int
    clock_ms: int
    full: bool
    jump_ms: int
    end: int
    rows: list[bytes]


class Damage(NamedTuple):
    """What could not be used. :param position: the byte of the file's (uncompressed) content where it begins."""

    path: Path
    position: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path}, byte {self.position}: {self.reason}"


def read_file(path: Path) -> Iterator[Interval | Damage]:
    """All intervals of a file, plain or compressed, and what is damaged, in their order.

    A file that cannot be opened or read is a damage, too; of one that was compressed just now the compressed one is read.
    """
    rows: list[bytes] = []
    position = begun = 0
    try:
        for line in _lines(path):
            position += len(line)
            if not line.startswith(INTERVAL_MARK):
                rows.append(line)
                continue
            found = _interval(path, line, rows, position)
            if isinstance(found, str):
                yield Damage(path, begun, found)
            else:
                yield found
            rows, begun = [], position
    except FileNotFoundError:
        yield Damage(path, 0, "is gone")
        return
    except (OSError, EOFError, zlib.error) as error:
        yield Damage(path, position, f"cannot be read: {getattr(error, 'strerror', None) or error}")
        return
    if rows:
        yield Damage(path, begun, "ends in the middle of an interval")


def _lines(path: Path) -> Iterator[bytes]:
    packed = path.name.endswith(".gz")
    if not packed and not path.exists():
        path, packed = path.with_name(path.name + ".gz"), True
    with gzip.open(path, "rb") if packed else path.open("rb") as file:
        yield from file


def _interval(path: Path, line: bytes, rows: list[bytes], end: int) -> Interval | str:
    """The interval of these rows, or what is wrong with it."""
    if not line.endswith(b"\n"):
        return "ends in the middle of an interval"
    try:
        told = json.loads(line)
        if told["rows"] != len(rows):
            return f"has an interval with {len(rows)} rows instead of {told['rows']}"
        if told["crc"] != zlib.crc32(b"".join(rows)):
            return "has an interval whose rows have another checksum"
        return Interval(
            path,
            str(told["boot"]),
            int(told["broker"]),
            int(told["seq"]),
            int(told["from"]),
            int(told["to"]),
            int(told["elapsed"]),
            int(told["clock"]),
            bool(told["full"]),
            int(told.get("jump", 0)),
            end,
            rows,
        )
    except (ValueError, KeyError, TypeError) as error:
        return f"has an interval line that cannot be read ({type(error).__name__}: {error})"
