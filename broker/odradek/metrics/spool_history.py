"""What a spool says of a time: sums of usage by principal, client, topic and API, and what it cannot say.

Pure but for reading files; used by the command. Memory: the last values of what was in use at one time.
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
_SET_CLOCK_MS = 25 * HOUR_MS  # how far beside its hour a file is still looked into


class Gap(NamedTuple):
    """Intervals of a boot that are not there. Their counts are in the next interval, if there is one."""

    boot: str
    from_ms: int
    to_ms: int
    missing: int

    def __str__(self) -> str:
        return f"{self.missing} intervals of boot {self.boot} are missing"


class History:
    """Read when it is made. Raises OSError if the directory cannot be listed.

    :param since_ms, until_ms: of intervals that end within, everything counts; so `from_ms`, where the first of them begins,
        may be before `since_ms`.
    :param wanted: of which rows to keep sums, by their fields.
    :param needle: bytes that a row's line has if it may be wanted: saves the others' parsing.
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
        self.from_ms: int | None = None  # of what was found; None: nothing
        self.to_ms: int | None = None
        self.intervals = 0
        self.damages: list[Damage] = []
        self.gaps: list[Gap] = []
        self._since_ms, self._until_ms = since_ms, until_ms
        self._wanted, self._needle = wanted, needle
        files = sorted(_once(list_files(directory)), key=lambda one: one.boot)
        for boot, of_boot in groupby(files, key=lambda one: one.boot):
            self._read_boot(boot, _needed(list(of_boot), since_ms, until_ms))

    def _read_boot(self, boot: str, files: list[SpoolFile]) -> None:
        last: dict[tuple[Any, ...], list[int]] = {}
        spans: dict[int, tuple[int, int]] = {}  # from and to, by seq
        for file in sorted(files, key=_first_seq):  # where the clock was set back, names are in another order
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
        """Add what an interval brought. :param whole: what is new in it was certainly not there before."""
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
    """Of files that are there plain and compressed, the compressed one, which is whole."""
    packed = {one.path.name.removesuffix(".gz") for one in files if one.compressed}
    return (one for one in files if one.compressed or one.path.name not in packed)


def _first_seq(file: SpoolFile) -> int:
    return next((part.seq for part in read_file(file.path) if isinstance(part, Interval)), 1 << 62)


def _needed(files: list[SpoolFile], since_ms: int, until_ms: int) -> list[SpoolFile]:
    """Of one boot's files, those that may have intervals of that time, and the one before: what its series stood at."""
    first = next((at for at, one in enumerate(files) if one.hour_ms + HOUR_MS > since_ms), len(files))
    return [one for one in files[max(0, first - 1) :] if one.hour_ms <= until_ms + _SET_CLOCK_MS]
