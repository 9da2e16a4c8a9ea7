r"""The spool: what the broker counted, interval by interval, in files that outlive it. This text is the format's definition.

Owned and written by one process, the reporter; whoever may read the directory reads. Without locks: a file only grows at its
end.

**Files.** `usage-<YYYYMMDD>T<HH>-<boot>.jsonl`: by the hour (UTC) in which its first interval ended and by the boot, hex
digits that are new whenever the broker counts from zero. A file whose hour is over is compressed (`.jsonl.gz`): into a
temporary file, synced, renamed, and only then the plain one is removed; if both are there, they have the same content. The
oldest files are deleted so that all together stay within `usage.spool.max.bytes`. A clock set back does not open a file anew
that was compressed: the one begun last goes on meanwhile.

**Intervals.** Lines of JSON, without blanks outside of strings, each ended by `\n`: first rows, then the line that makes them
count,

    {"kind":"interval","boot":hex,"broker":id,"seq":n,"from":ms,"to":ms,"rows":n,"crc":n,"elapsed":ms,"clock":ms,"full":bool}

with the number of rows and the CRC-32 of their lines with their ends. They reach the file in one write, which is synced. Rows
without their interval's line do not count; they are what a crash left, or the write that the next interval will replace.
`seq` counts a boot's intervals from 1 in their order, across files: an interval is known by (boot, seq). `from` is the `to`
before it, by the wall clock; `elapsed` says how long it was by a clock that is never set, which showed `clock` at its end.
Where the two disagree by more than a second, the wall clock was set: `"jump":ms` says by how much (negative: back), and
`from` is `to - elapsed`.

**Rows** (made by `odradek.metrics.spool_rows`; times and durations in ms, sizes in bytes, `lag_s` in seconds or null):

    {"kind":"usage","page":n,"principal":s,"client":s,"topic":s|null,"api":s,"since":ms,"in":n,"out":n,"rin":n,"rout":n,"req":n,"err":n,
     "thr":ms,"conn":ms}       bytes and records in and out, requests, errors, throttle and connection time
    {"kind":"topic","topic":s,"id":hex,"partitions":n,"bytes":n,"largest":n,"end":n,"start":n,"retention_ms":n,"retention_bytes":n}
    {"kind":"stored","topic":s,"path":s,"bytes":n}        of the topic in one log directory; only if the broker has several
    {"kind":"log_dir","path":s,"free":n,"total":n,"online":bool}
    {"kind":"group","group":s,"topic":s,"lag":n,"lag_s":x|null,"members":n}
    {"kind":"reader","principal":s,"client":s,"topic":s,"lag":n,"lag_s":x|null}
    {"kind":"worker","worker":n,"connections":n,"busy_us":n,"in":n,"out":n}
    {"kind":"retired","page":n,"in":n,...,"conn":ms}      for the writer's own use, see below

A row is written when it is new or differs from what the boot's earlier intervals said. The first interval of a file has all
rows (`"full":true`): what is not in it is gone. Values of usage rows (and `busy_us`, `in`, `out` of workers) are cumulative
within (boot, page, principal, client, topic, api, since), so that an interval that is lost loses no count, and none counts
twice: what happened between two intervals is the difference of their rows, of a row's first appearance all of it. Another
`since` begins at 0.

**Retired entries.** The broker moves the values of entries unused for long to one entry a page, and forgets them. Their last
rows here have told most or all of that already. So the row with principal "other" and client "retired" has only the rest:
what was retired, less what rows of entries that are gone had told. The sum over all series is the broker's total, therefore.
What was subtracted stands in the row "retired", so that a successor of the writer goes on with it.

**Failures.** A full or failing disk costs no count: the interval is tried again with the next one, longer then. It is logged
once, and counted. After a crash of the reporter alone its successor reads what the last whole interval of the boot said, cuts
off what is behind it, and goes on. The file of a broker that died stays as it is.
"""

import json
import logging
import os
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from odradek.metrics.pages import OTHER, RETIRED
from odradek.metrics.spool_files import COMPRESSED, HOUR_MS, SpoolCalls, SpoolFile, file_name, list_files
from odradek.metrics.spool_reader import Damage, Interval, read_file
from odradek.metrics.spool_rows import Row, RowKey, key_of
from odradek.metrics.usage_totals import VALUES
from odradek.storage.atomic_file import TEMPORARY

log = logging.getLogger("odradek.reporter.spool")

JUMP_MS = 1000
"""Clocks that disagree by more than that over an interval: somebody set the one that can be set."""
GRACE_MS = 5 * 60_000
"""How long after its hour the file of another boot is left alone."""

_PAGE = 0  # of a usage row's key
_DISAGREE = "the spool %s goes on after %d intervals that could not be written"


def wall_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def steady_ms() -> int:
    """By a clock that nobody sets, and that goes on while the machine sleeps."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


class Spool:
    """Writes intervals. Not safe for threads: one call at a time.

    :param boot: hex digits, new whenever counting begins at zero.
    :param began_ms: when it began, by the wall clock; the first interval is from then on.
    :param max_bytes: of all files together.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        boot: str,
        broker: int,
        *,
        began_ms: int,
        max_bytes: int,
        calls: SpoolCalls | None = None,
        wall: Callable[[], int] = wall_ms,
        steady: Callable[[], int] = steady_ms,
    ) -> None:
        self.directory = Path(directory)
        self.intervals = 0  # that this object has written
        self.failures = 0
        self.bytes = 0  # of all files, when looked last
        self._boot, self._broker = boot, broker
        self._max_bytes = max_bytes
        self._calls = calls or SpoolCalls()
        self._wall, self._steady = wall, steady
        self._begun = False
        self._failing = 0
        self._untidy = False
        self._file: Path | None = None  # which intervals go to, and up to where it is whole
        self._whole_bytes = 0
        self._suspect: tuple[Path, int] | None = (
            None  # a file, and from where on a write failed: it may be there nevertheless
        )
        self._seq = 0
        self._to_ms, self._clock_ms = began_ms, -1
        self._told: dict[RowKey, bytes] = {}

    def write(self, rows: Iterable[Row]) -> bool:
        """One interval of what is now; then the files of past hours are compressed, the oldest deleted.

        :param rows: all there are, of all kinds but "retired"; of a page that is left out all stays as it was.
        :returns: whether it is on disk. If not, that was logged and counted, and the next one will say it.
        """
        try:
            self._begin()
            self._append(list(rows))
        except (OSError, SpoolTooSmall) as error:
            self._failed(error)
            return False
        if self._failing:
            log.warning(_DISAGREE, self.directory, self._failing)
            self._failing = 0
        self.intervals += 1
        self._tidy()
        return True

    # What the last reporter left

    def _begin(self) -> None:
        """Once: the directory is made, and the boot's last whole interval is gone on from."""
        if self._begun:
            return
        self._calls.make_directory(self.directory)
        for path in self.directory.glob(f"usage-*{TEMPORARY}"):
            self._calls.remove(path)
        ours = [one for one in self._without_doubles(list_files(self.directory)) if one.boot == self._boot]
        plain = [(*end, one) for one in ours if not one.compressed and (end := _end_of(one.path)) is not None]
        if plain:
            _, self._whole_bytes, file = max(plain)
            self._file = file.path
            self._calls.cut(self._file, self._whole_bytes)  # who wrote it may have died before it was synced
            self._go_on(file)
        else:  # the file that was written last is plain, unless somebody deleted it
            for one in reversed(ours):
                if one.compressed and _end_of(one.path) is not None:
                    self._go_on(one)
                    break
        self._begun = True

    def _go_on(self, file: SpoolFile) -> None:
        """Take over what the intervals of a file said."""
        for interval in read_file(file.path):
            if isinstance(interval, Damage):
                continue
            self._seq, self._to_ms, self._clock_ms = interval.seq, interval.to_ms, interval.clock_ms
            if interval.full:
                self._told.clear()
            for line in interval.rows:
                key = key_of(json.loads(line))
                if (
                    key.kind != "retired" or interval.full
                ):  # which entries went since then, the next interval finds anew
                    self._told[key] = line

    def _without_doubles(self, files: list[SpoolFile]) -> list[SpoolFile]:
        """A crash between the two last steps of compressing leaves the plain file, too: it goes now."""
        packed = {one.path.name.removesuffix(COMPRESSED) for one in files if one.compressed}
        for one in files:
            if one.path.name in packed:
                self._calls.remove(one.path)
        return [one for one in files if one.path.name not in packed]

    # One interval

    def _append(self, rows: list[Row]) -> None:
        to_ms, clock_ms = self._wall(), self._steady()
        self._calls.make_directory(self.directory)
        path, at = self._place(to_ms)
        full = at == 0 or path != self._file
        told, lines = self._changes(rows, full)
        body = b"".join(lines)
        mark = {"kind": "interval", "boot": self._boot, "broker": self._broker, "seq": self._seq + 1}
        mark |= self._times(to_ms, clock_ms) | {
            "rows": len(lines),
            "crc": zlib.crc32(body),
            "clock": clock_ms,
            "full": full,
        }
        content = body + _line(mark)
        self._make_room(path, at + len(content))
        if self._suspect is not None and self._suspect[0] != path:  # it has this seq
            self._calls.cut(*self._suspect)
        self._suspect = path, at
        self._calls.append(path, at, content)
        self._suspect = None
        self._seq += 1
        self._to_ms, self._clock_ms, self._told = to_ms, clock_ms, told
        self._file, self._whole_bytes = path, at + len(content)

    def _place(self, now_ms: int) -> tuple[Path, int]:
        """The file for an interval that ends now, and how much of it is whole."""
        hour_ms = now_ms // HOUR_MS * HOUR_MS
        while (path := self.directory / file_name(hour_ms, self._boot)).with_name(path.name + COMPRESSED).exists():
            if self._file is not None:
                path = self._file
                break
            hour_ms += HOUR_MS
        if not path.exists():
            return path, 0
        if path == self._file and path.stat().st_size >= self._whole_bytes:
            return path, self._whole_bytes
        end = _end_of(path, self._seq)  # what is behind it was written in a way that failed
        return path, 0 if end is None else end[1]

    def _times(self, to_ms: int, clock_ms: int) -> dict[str, int]:
        """from, to, elapsed and, if the wall clock was set, jump."""
        if self._clock_ms < 0 or clock_ms < self._clock_ms:  # the boot's first one
            elapsed_ms = max(0, to_ms - self._to_ms)
            return {"from": min(self._to_ms, to_ms), "to": to_ms, "elapsed": elapsed_ms}
        elapsed_ms = clock_ms - self._clock_ms
        jump_ms = to_ms - self._to_ms - elapsed_ms
        if abs(jump_ms) > JUMP_MS or to_ms < self._to_ms:
            return {"from": to_ms - elapsed_ms, "to": to_ms, "elapsed": elapsed_ms, "jump": jump_ms}
        return {"from": self._to_ms, "to": to_ms, "elapsed": elapsed_ms}

    def _changes(self, rows: list[Row], full: bool) -> tuple[dict[RowKey, bytes], list[bytes]]:
        """What will have been told, and the lines that say what is new in it."""
        now = {key_of(row): row for row in rows if not _is_retired(row)}
        pages = {row["page"] for row in rows if row["kind"] == "usage"}
        told: dict[RowKey, bytes] = {}
        gone: dict[int, list[int]] = {}
        for key, line in self._told.items():
            if key.kind == "retired":
                gone[key.values[_PAGE]] = _values(json.loads(line))
        kept = []  # rows of pages that were left out
        for key, line in self._told.items():
            if key.kind not in ("usage", "retired") or key in now:
                continue
            if key.values[_PAGE] not in pages:
                kept.append((key, line))
            elif key.kind == "usage" and not _is_retired(row := json.loads(line)):
                before = gone.get(row["page"], [0] * len(VALUES))
                gone[row["page"]] = [a + b for a, b in zip(before, _values(row), strict=True)]
        for page, values in gone.items():
            if page in pages:
                row = {"kind": "retired", "page": page} | dict(zip(VALUES, values, strict=True))
                now[key_of(row)] = row
        for row in filter(_is_retired, rows):
            rest = self._rest(row, gone.get(row["page"], [0] * len(VALUES)))
            if any(_values(rest)):
                now[key_of(rest)] = rest
        told.update(kept)
        lines = [line for _, line in kept] if full else []
        for key, row in now.items():
            line = _line(row)
            told[key] = line
            if full or self._told.get(key) != line:
                lines.append(line)
        return told, lines

    def _rest(self, row: Row, gone: list[int]) -> Row:
        """The row of the page's retired entry, less what is known by name; it never goes back."""
        line = self._told.get(key_of(row))
        before = _values(json.loads(line)) if line is not None else [0] * len(VALUES)
        rest = [max(old, value - named) for old, value, named in zip(before, _values(row), gone, strict=True)]
        return row | dict(zip(VALUES, rest, strict=True))

    # Room

    def _make_room(self, path: Path, size: int) -> None:
        """Delete the oldest files until this one may have that size. Raises SpoolTooSmall."""
        others = [one for one in list_files(self.directory) if one.path != path]
        total = size + sum(one.size for one in others)
        for one in others:
            if total <= self._max_bytes:
                break
            self._calls.remove(one.path)
            total -= one.size
        if total > self._max_bytes:
            raise SpoolTooSmall(
                f"usage.spool.max.bytes={self._max_bytes} is less than the {total} bytes of {path.name}: what an hour needs"
            )
        self.bytes = total

    def _tidy(self) -> None:
        """Compress what is over. What fails is tried again after the next interval."""
        try:
            for one in self._without_doubles(list_files(self.directory)):
                if not one.compressed and one.path != self._file and self._is_over(one):
                    self._calls.compress(one.path)
            self.bytes = sum(one.size for one in list_files(self.directory))
            self._untidy = False
        except OSError as error:
            self.failures += 1
            if not self._untidy:
                log.warning("a file of the spool cannot be compressed, %s: %s", error.filename, error.strerror)
            self._untidy = True

    def _is_over(self, file: SpoolFile) -> bool:
        return self._wall() >= file.hour_ms + HOUR_MS + (0 if file.boot == self._boot else GRACE_MS)

    def _failed(self, error: Exception) -> None:
        self.failures += 1
        if not self._failing:
            where = (
                self.directory
                if isinstance(error, SpoolTooSmall)
                else getattr(error, "filename", None) or self.directory
            )
            reason = getattr(error, "strerror", None) or error
            log.warning("the spool of usage cannot be written, %s: %s; tried again at each interval", where, reason)
        self._failing += 1


class SpoolTooSmall(Exception):
    """The current hour alone does not fit."""


def _end_of(path: Path, up_to: int | None = None) -> tuple[int, int] | None:
    """(seq, the byte behind it) of the last whole interval of a file, or the last up to that seq; None if there is none."""
    end = None
    for part in read_file(path):
        if isinstance(part, Interval) and (up_to is None or part.seq <= up_to):
            end = part.seq, part.end
    return end


def _line(row: Mapping[str, object]) -> bytes:
    return json.dumps(row, separators=(",", ":")).encode() + b"\n"


def _values(row: Mapping[str, int]) -> list[int]:
    return [row[name] for name in VALUES]


def _is_retired(row: Row) -> bool:
    return row["kind"] == "usage" and row["client"] == RETIRED and row["principal"] == OTHER
