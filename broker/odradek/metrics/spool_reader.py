"""Reads the files of the usage spool, interval by interval; damaged parts are skipped and reported.

`broker/odradek/metrics/spool.py` defines the format. Pure except for reading files. The reporter uses it to continue the
files of the previous reporter process; the command uses it to show history.
"""

import json
import zlib
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

INTERVAL_MARK = b'{"kind":"interval"'


class Interval(NamedTuple):
    """A complete interval.

    :param from_ms: wall clock, as `to_ms`; `elapsed_ms` is by a clock that is never set, whose value at the end is `clock_ms`.
    :param full: the interval has all rows, not only the changed ones.
    :param jump_ms: how far the wall clock was set forward during the interval; negative: back; 0: it was not set.
    :param end: offset of its end in the (uncompressed) content of the file.
    :param rows: the lines of its rows, including line ends.
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
    """A part that could not be used. :param position: offset of its beginning in the (uncompressed) content of the file."""

    path: Path
    position: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path}, byte {self.position}: {self.reason}"


def read_file(path: Path) -> Iterator[Interval | Damage]:
    """Yield all intervals and damaged parts of a file, plain or compressed, in order.

    A file that cannot be opened or read is a Damage too. If a plain file has just been compressed, the compressed one is read.
    """
    rows: list[bytes] = []
    position = begun = 0
    try:
        for line in _lines(path):
            position += len(line)
            if not line.startswith(INTERVAL_MARK):
                rows.append(line)
                continue
            result = _interval(path, line, rows, position)
            if isinstance(result, str):
                yield Damage(path, begun, result)
            else:
                yield result
            rows, begun = [], position
    except FileNotFoundError:
        yield Damage(path, 0, "does not exist any more")
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
    with _unpacked(path) if packed else path.open("rb") as file:
        yield from file


def _unpacked(path: Path) -> AbstractContextManager[Iterable[bytes]]:
    import gzip  # imported at its first use

    return gzip.open(path, "rb")


def _interval(path: Path, line: bytes, rows: list[bytes], end: int) -> Interval | str:
    """Return the interval of these rows, or a description of the error."""
    if not line.endswith(b"\n"):
        return "ends in the middle of an interval"
    try:
        fields = json.loads(line)
        if fields["rows"] != len(rows):
            return f"has an interval with {len(rows)} rows instead of {fields['rows']}"
        if fields["crc"] != zlib.crc32(b"".join(rows)):
            return "has an interval with a wrong checksum"
        return Interval(
            path,
            str(fields["boot"]),
            int(fields["broker"]),
            int(fields["seq"]),
            int(fields["from"]),
            int(fields["to"]),
            int(fields["elapsed"]),
            int(fields["clock"]),
            bool(fields["full"]),
            int(fields.get("jump", 0)),
            end,
            rows,
        )
    except (ValueError, KeyError, TypeError) as error:
        return f"has an interval line that cannot be parsed ({type(error).__name__}: {error})"
