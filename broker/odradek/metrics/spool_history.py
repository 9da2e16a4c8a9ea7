"""Reads the usage of a period from a spool: sums by principal, client, topic and API, with gaps and damaged files.

Pure except for reading files; used by the command. Its memory holds the last values of the series that exist at one time.
"""

import json
from collections.abc import Callable, Iterator
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from odradek.metrics.spool_files import HOUR_MS, SpoolFile, list_files
from odradek.metrics.spool_reader import Damage, Interval, read_file
from odradek.metrics.usage_totals import Counts, UsageKey, add

_USAGE = b'{"kind":"usage"'
_SET_CLOCK_MS = 25 * HOUR_MS  # a clock that was set may put intervals into a file this far from its hour


class Gap(NamedTuple):
    """Missing intervals of a boot. The next interval contains their counts, if there is one."""

    boot: str
    from_ms: int
    to_ms: int
    missing: int

    def __str__(self) -> str:
        return f"{self.missing} intervals of boot {self.boot} are missing"


class History:
    """The usage of a period; the constructor reads it. Raises OSError if the directory cannot be listed.

    :param since_ms, until_ms: intervals that end in this period count as a whole; so `from_ms`, the beginning of the first one,
        may be before `since_ms`.
    :param wanted: selects the rows to sum.
    :param needle: bytes that the lines of all selected rows contain, so that other lines need not be parsed.
    """

    def __init__(
        self,
        directory: Path,
        since_ms: int,
        until_ms: int,
        wanted: Callable[[dict[str, Any]], bool] = lambda row: True,
        needle: bytes = b"",
    ) -> None:
        self.usage: dict[UsageKey, Counts] = {}
        self.from_ms: int | None = None  # beginning of the first interval; None: there is none
        self.to_ms: int | None = None
        self.intervals = 0
        self.damages: list[Damage] = []
        self.gaps: list[Gap] = []
        self._since_ms, self._until_ms = since_ms, until_ms
        self._wanted, self._needle = wanted, needle
        files = sorted(_once(list_files(directory)), key=lambda file: file.boot)
        for boot, of_boot in groupby(files, key=lambda file: file.boot):
            self._read_boot(boot, _needed(list(of_boot), since_ms, until_ms))

    def _read_boot(self, boot: str, files: list[SpoolFile]) -> None:
        last: dict[tuple[Any, ...], list[int]] = {}
        spans: dict[int, tuple[int, int]] = {}  # from and to, by seq
        for file in sorted(files, key=_first_seq):  # if the clock was set back, names are in another order
            for part in read_file(file.path):
                if isinstance(part, Damage):
                    self.damages.append(part)
                elif part.boot != file.boot:
                    self.damages.append(Damage(file.path, part.end, f"has an interval of boot {part.boot}"))
                elif part.seq not in spans:
                    self._take(part, bool(spans) or part.seq == 1, last)
                    spans[part.seq] = part.from_ms, part.to_ms
        for (before, (_, ended)), (seq, (begins, _)) in pairwise(sorted(spans.items())):
            if seq > before + 1 and self._since_ms < begins <= self._until_ms:
                self.gaps.append(Gap(boot, ended, begins, seq - before - 1))

    def _take(self, interval: Interval, whole: bool, last: dict[tuple[Any, ...], list[int]]) -> None:
        """Add the counts of an interval. :param whole: rows that are new in it certainly did not exist before."""
        counts = self._since_ms < interval.to_ms <= self._until_ms
        if counts:
            self.intervals += 1
            begins = interval.from_ms if whole else interval.to_ms
            self.from_ms = begins if self.from_ms is None else min(self.from_ms, begins)
            self.to_ms = interval.to_ms if self.to_ms is None else max(self.to_ms, interval.to_ms)
        for line in interval.rows:
            if not line.startswith(_USAGE) or self._needle not in line:
                continue
            row = json.loads(line)
            if not self._wanted(row):
                continue
            key = UsageKey(row["principal"], row["client"], row["topic"], row["api"])
            identity = (row["page"], *key, row["since"])
            values = Counts.values_of(row)
            known = last.get(identity)
            if known is None:
                known = values if not whole and row["since"] < interval.from_ms else [0] * len(values)
            grown = [max(0, new - old) for new, old in zip(values, known, strict=True)]
            last[identity] = [max(new, old) for new, old in zip(values, known, strict=True)]
            if counts and any(grown):
                add(self.usage, key, grown, row["since"], interval.to_ms)


def _once(files: list[SpoolFile]) -> Iterator[SpoolFile]:
    """Yield each file once; if a file exists plain and compressed, the compressed one, which is complete."""
    packed = {file.path.name.removesuffix(".gz") for file in files if file.compressed}
    return (file for file in files if file.compressed or file.path.name not in packed)


def _first_seq(file: SpoolFile) -> int:
    return next((part.seq for part in read_file(file.path) if isinstance(part, Interval)), 1 << 62)


def _needed(files: list[SpoolFile], since_ms: int, until_ms: int) -> list[SpoolFile]:
    """Return the files of one boot that may have intervals of the period, and the file before them for the initial values."""
    first = next((at for at, file in enumerate(files) if file.hour_ms + HOUR_MS > since_ms), len(files))
    return [file for file in files[max(0, first - 1) :] if file.hour_ms <= until_ms + _SET_CLOCK_MS]
