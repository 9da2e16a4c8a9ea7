r"""The usage spool: the broker's usage counters, interval by interval, in files that outlive the broker.

This docstring defines the format. One process, the reporter, owns and writes the spool; every process with permission may read
it. There are no locks: a file only grows at its end.

**Files.** `usage-<YYYYMMDD>T<HH>-<boot>.jsonl`: the hour (UTC) in which the first interval of the file ended, and the boot,
hex digits that are new whenever all counters begin at zero. A file whose hour is over is compressed (`.jsonl.gz`): into a
temporary file, which is synced and renamed, and only then the plain file is removed; if both exist, they have the same
content. The oldest files are deleted so that all files together stay within `usage.spool.max.bytes`. If the clock is set
back, the writer does not reopen a compressed file: it continues the newest file meanwhile.

**Intervals.** Lines of JSON, without blanks outside of strings, each ended by `\n`: first the rows, then the interval line,
which makes the rows valid,

    {"kind":"interval","boot":hex,"broker":id,"seq":n,"from":ms,"to":ms,"rows":n,"crc":n,"elapsed":ms,"clock":ms,"full":bool}

with the number of rows and the CRC-32 of their lines including line ends. Rows and interval line reach the file in one write,
which is synced. Rows without an interval line do not count; a crash left them, or the next interval will replace them.
`seq` numbers the intervals of a boot from 1, across files: (boot, seq) identifies an interval. `from` is the `to` of the
previous interval, by the wall clock; `elapsed` is the length by a clock that is never set, whose value at the end was `clock`.
If the two clocks differ by more than a second, the wall clock was set: `"jump":ms` is the difference (negative: back), and
`from` is `to - elapsed`.

**Rows** (made by `odradek.metrics.spool_rows`; times and durations in ms, sizes in bytes, `lag_s` in seconds or null):

    {"kind":"usage","page":n,"principal":s,"client":s,"topic":s|null,"api":s,"since":ms,"in":n,"out":n,"rin":n,"rout":n,"req":n,"err":n,
    "thr":ms,"conn":ms}       bytes and records in and out, requests, errors (see below), throttle and connection time
    {"kind":"topic","topic":s,"id":hex,"partitions":n,"replicas":n,"bytes":n,"largest":n,"end":n,"start":n,"led":n,
    "led_end":n,"led_start":n,"retention_ms":n,"retention_bytes":n}
                              of the topic's logs on this broker (`replicas` is their number; "led": those that it leads),
                              except for `partitions`
    {"kind":"cluster","brokers":[id,...]}                 the live brokers; only in a cluster
    {"kind":"stored","topic":s,"path":s,"bytes":n}        of the topic in one log directory; only if the broker has several
    {"kind":"log_dir","path":s,"free":n,"total":n,"online":bool}
    {"kind":"group","group":s,"topic":s,"lag":n,"lag_s":x|null,"members":n}
    {"kind":"reader","principal":s,"client":s,"topic":s,"lag":n,"lag_s":x|null,"back":ms|null}
                              back: when its position in a partition last moved back; null: never
    {"kind":"worker","worker":n,"connections":n,"busy_us":n,"in":n,"out":n}
    {"kind":"retired","page":n,"in":n,...,"conn":ms}      for the writer's own use, see below

A row is written if it is new or differs from the boot's earlier intervals. The first interval of a file has all rows
(`"full":true`): rows that are not in it no longer exist. Values of usage rows (and `busy_us`, `in`, `out` of workers) are
cumulative within (boot, page, principal, client, topic, api, since), so a lost interval loses no count, and nothing counts
twice: the counts between two intervals are the difference of their rows, or the whole first row of a series. A series with
another `since` begins at 0.

**Requests and errors.** Bytes, records and times belong to one row. A request is counted in "req" of the row without topic
(null), and once more in the row of each topic that it named. An error counts in "err" of the row without topic if the request
was answered with an error, and in the row of a topic once for each of its partitions with an error. So a sum of "req" or of
"err" over clients or APIs takes the rows without topic only, and the figures of a topic are those of its rows. All versions of
the broker write them so.

**Retired entries.** The broker moves the values of entries that were unused for a long time to one entry per page, and deletes
them. The spool already contains most or all of these values in the entries' last rows. So the row with principal "other" and
client "retired" has only the rest: the retired values minus the last rows of deleted entries. So the sum over all series (of
"req" and "err": over those without topic) is the broker's total. The row "retired" contains the subtracted values, so that the
next reporter process can continue.

**Failures.** A full or failing disk loses no counts: the writer tries again with the next interval, which is longer then. The
first failure is logged, and all are counted. After a crash of only the reporter, the next reporter process reads the last
complete interval of the boot, truncates the file after it, and continues. The file of a broker that died is not changed.
"""

import json
import logging
import os
import time
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from odradek.clock import now_ms
from odradek.metrics.pages import OTHER, RETIRED
from odradek.metrics.spool_files import COMPRESSED, HOUR_MS, SpoolCalls, SpoolFile, file_name, list_files
from odradek.metrics.spool_reader import Damage, Interval, read_file
from odradek.metrics.spool_rows import Row, RowKey, key_of
from odradek.metrics.usage_totals import VALUES, Counts
from odradek.storage.atomic_file import TEMPORARY

log = logging.getLogger("odradek.reporter.spool")

JUMP_MS = 1000
"""If the two clocks differ by more than this over an interval, the wall clock was set."""
GRACE_MS = 5 * 60_000
"""Time after its hour in which the file of another boot is not compressed."""

_PAGE = 0  # index of the page in a usage row's key
_RECOVERED = (
    "the usage spool in %s continues after %d failed intervals; the interval just written contains their counts"
)


def steady_ms() -> int:
    """Return milliseconds of a clock that is never set and continues while the machine sleeps."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


class Spool:
    """Writes intervals. Not safe for threads: one call at a time.

    :param boot: hex digits, new whenever all counters begin at zero.
    :param began_ms: when the counters began, by the wall clock; the first interval begins then.
    :param max_bytes: maximum size of all files together.
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
        wall: Callable[[], int] = now_ms,
        steady: Callable[[], int] = steady_ms,
    ) -> None:
        self.directory = Path(directory)
        self.intervals = 0  # intervals that this object has written
        self.failures = 0
        self.failure = ""  # why the last interval was not written, or files of past hours are not compressed
        self.bytes = 0  # size of all files at the last write
        self._boot, self._broker = boot, broker
        self._max_bytes = max_bytes
        self._calls = calls or SpoolCalls()
        self._wall, self._steady = wall, steady
        self._begun = False
        self._failing = 0
        self._untidy = False
        self._file: Path | None = None  # the file that gets intervals
        self._whole_bytes = 0  # size of its complete intervals
        self._suspect: tuple[Path, int] | None = (
            None  # file and offset of a failed write, parts of which may be on disk
        )
        self._seq = 0
        self._to_ms, self._clock_ms = began_ms, -1
        self._written: dict[RowKey, bytes] = {}  # the last written line of each row

    def write(self, rows: Iterable[Row]) -> bool:
        """Write one interval with the current rows; then compress the files of past hours and delete the oldest.

        :param rows: all current rows, of all kinds except "retired"; the rows of pages that are left out stay unchanged.
        :returns: whether the interval is on disk. If not, the failure was logged and counted, and the next interval will
            contain the counts.
        """
        try:
            self._begin()
            self._append(list(rows))
        except (OSError, SpoolTooSmall) as error:
            self._failed(error)
            return False
        if self._failing:
            log.warning(_RECOVERED, self.directory, self._failing)
            self._failing = 0
        self.failure = ""
        self.intervals += 1
        self._tidy()
        return True

    # Continue the files of the previous reporter process

    def _begin(self) -> None:
        """Create the directory and continue after the boot's last complete interval; once."""
        if self._begun:
            return
        self._calls.make_directory(self.directory)
        for path in self.directory.glob(f"usage-*{TEMPORARY}"):
            self._calls.remove(path)
        ours = [file for file in self._without_doubles(list_files(self.directory)) if file.boot == self._boot]
        plain = [(*end, file) for file in ours if not file.compressed and (end := _end_of(file.path)) is not None]
        if plain:
            _, self._whole_bytes, file = max(plain)
            self._file = file.path
            self._calls.cut(
                self._file, self._whole_bytes
            )  # the previous process may have died before it synced the file
            self._load(file)
        else:  # the file that was written last is plain, unless somebody deleted it
            for file in reversed(ours):
                if file.compressed and _end_of(file.path) is not None:
                    self._load(file)
                    break
        self._begun = True

    def _load(self, file: SpoolFile) -> None:
        """Load the state after the intervals of a file."""
        for interval in read_file(file.path):
            if isinstance(interval, Damage):
                continue
            self._seq, self._to_ms, self._clock_ms = interval.seq, interval.to_ms, interval.clock_ms
            if interval.full:
                self._written.clear()
            for line in interval.rows:
                key = key_of(json.loads(line))
                # of later rows "retired" none is needed: the next interval computes which entries were deleted since
                if key.kind != "retired" or interval.full:
                    self._written[key] = line

    def _without_doubles(self, files: list[SpoolFile]) -> list[SpoolFile]:
        """Remove plain files that also exist compressed, which a crash between the two last steps of compression leaves."""
        packed = {file.path.name.removesuffix(COMPRESSED) for file in files if file.compressed}
        for file in files:
            if file.path.name in packed:
                self._calls.remove(file.path)
        return [file for file in files if file.path.name not in packed]

    # One interval

    def _append(self, rows: list[Row]) -> None:
        to_ms, clock_ms = self._wall(), self._steady()
        self._calls.make_directory(self.directory)
        path, at = self._place(to_ms)
        full = at == 0 or path != self._file
        written, lines = self._changes(rows, full)
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
        if (
            self._suspect is not None and self._suspect[0] != path
        ):  # the failed write may have left an interval of this seq
            self._calls.cut(*self._suspect)
        self._suspect = path, at
        self._calls.append(path, at, content)
        self._suspect = None
        self._seq += 1
        self._to_ms, self._clock_ms, self._written = to_ms, clock_ms, written
        self._file, self._whole_bytes = path, at + len(content)

    def _place(self, now_ms: int) -> tuple[Path, int]:
        """Return the file for an interval that ends now, and the size of its complete intervals."""
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
        end = _end_of(path, self._seq)  # a failed write may have left bytes after it
        return path, 0 if end is None else end[1]

    def _times(self, to_ms: int, clock_ms: int) -> dict[str, int]:
        """Return from, to, elapsed and, if the wall clock was set, jump."""
        if self._clock_ms < 0 or clock_ms < self._clock_ms:  # the boot's first interval
            elapsed_ms = max(0, to_ms - self._to_ms)
            return {"from": min(self._to_ms, to_ms), "to": to_ms, "elapsed": elapsed_ms}
        elapsed_ms = clock_ms - self._clock_ms
        jump_ms = to_ms - self._to_ms - elapsed_ms
        if abs(jump_ms) > JUMP_MS or to_ms < self._to_ms:
            return {"from": to_ms - elapsed_ms, "to": to_ms, "elapsed": elapsed_ms, "jump": jump_ms}
        return {"from": self._to_ms, "to": to_ms, "elapsed": elapsed_ms}

    def _changes(self, rows: list[Row], full: bool) -> tuple[dict[RowKey, bytes], list[bytes]]:
        """Return the state after this interval, and the lines to write: all lines if `full`, else the changed ones."""
        now = {key_of(row): row for row in rows if not _is_retired(row)}
        pages = {row["page"] for row in rows if row["kind"] == "usage"}
        written: dict[RowKey, bytes] = {}
        deleted: dict[int, list[int]] = {}  # by page, the sums of the last rows of deleted entries
        for key, line in self._written.items():
            if key.kind == "retired":
                deleted[key.values[_PAGE]] = Counts.values_of(json.loads(line))
        kept = []  # rows of pages that were left out
        for key, line in self._written.items():
            if key.kind not in ("usage", "retired") or key in now:
                continue
            if key.values[_PAGE] not in pages:
                kept.append((key, line))
            elif key.kind == "usage" and not _is_retired(row := json.loads(line)):
                before = deleted.get(row["page"], [0] * len(VALUES))
                deleted[row["page"]] = [a + b for a, b in zip(before, Counts.values_of(row), strict=True)]
        for page, values in deleted.items():
            if page in pages:
                row = {"kind": "retired", "page": page} | dict(zip(VALUES, values, strict=True))
                now[key_of(row)] = row
        for row in filter(_is_retired, rows):
            rest = self._rest(row, deleted.get(row["page"], [0] * len(VALUES)))
            if any(Counts.values_of(rest)):
                now[key_of(rest)] = rest
        written.update(kept)
        lines = [line for _, line in kept] if full else []
        for key, row in now.items():
            line = _line(row)
            written[key] = line
            if full or self._written.get(key) != line:
                lines.append(line)
        return written, lines

    def _rest(self, row: Row, deleted: list[int]) -> Row:
        """Return the row of the page's retired entry, minus the last rows of deleted entries; its values never decrease."""
        line = self._written.get(key_of(row))
        before = Counts.values_of(json.loads(line)) if line is not None else [0] * len(VALUES)
        rest = [
            max(old, value - named) for old, value, named in zip(before, Counts.values_of(row), deleted, strict=True)
        ]
        return row | dict(zip(VALUES, rest, strict=True))

    # Room

    def _make_room(self, path: Path, size: int) -> None:
        """Delete the oldest files until `path` may have `size` bytes. Raises SpoolTooSmall."""
        others = [file for file in list_files(self.directory) if file.path != path]
        total = size + sum(file.size for file in others)
        for file in others:
            if total <= self._max_bytes:
                break
            self._calls.remove(file.path)
            total -= file.size
        if total > self._max_bytes:
            raise SpoolTooSmall(
                f"usage.spool.max.bytes={self._max_bytes} is too small: the file of the current hour, {path.name}, needs "
                f"{total} bytes"
            )
        self.bytes = total

    def _tidy(self) -> None:
        """Compress the files of past hours. A failure is retried after the next interval."""
        try:
            for file in self._without_doubles(list_files(self.directory)):
                if not file.compressed and file.path != self._file and self._is_over(file):
                    self._calls.compress(file.path)
            self.bytes = sum(file.size for file in list_files(self.directory))
            self._untidy = False
        except OSError as error:
            self.failures += 1
            self.failure = f"cannot compress a file of a past hour: {error}"
            if not self._untidy:
                log.warning(
                    "cannot compress a file of the usage spool, %s: %s; retrying after each interval",
                    error.filename,
                    error.strerror,
                )
            self._untidy = True

    def _is_over(self, file: SpoolFile) -> bool:
        return self._wall() >= file.hour_ms + HOUR_MS + (0 if file.boot == self._boot else GRACE_MS)

    def _failed(self, error: Exception) -> None:
        self.failures += 1
        self.failure = f"cannot write an interval: {error}"
        if not self._failing:
            where = (
                self.directory
                if isinstance(error, SpoolTooSmall)
                else getattr(error, "filename", None) or self.directory
            )
            reason = getattr(error, "strerror", None) or error
            log.warning("cannot write the usage spool, %s: %s; retrying at each interval", where, reason)
        self._failing += 1


class SpoolTooSmall(Exception):
    """The file of the current hour alone exceeds the maximum size of the spool."""


def _end_of(path: Path, up_to: int | None = None) -> tuple[int, int] | None:
    """Return (seq, end in bytes) of the last complete interval of a file, at most `up_to`; None if there is none."""
    end = None
    for part in read_file(path):
        if isinstance(part, Interval) and (up_to is None or part.seq <= up_to):
            end = part.seq, part.end
    return end


def _line(row: Mapping[str, object]) -> bytes:
    return json.dumps(row, separators=(",", ":")).encode() + b"\n"


def _is_retired(row: Row) -> bool:
    return bool(row["kind"] == "usage" and row["client"] == RETIRED and row["principal"] == OTHER)
