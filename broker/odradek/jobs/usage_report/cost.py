"""Costs by owner: reads the files of prices and owners, and computes the table of costs.

Runs in the driver of the report's job; reads only the two files.

A price file is TOML: a table `per_gb` with `in`, `out` (per GB of traffic) and `stored_month` (per GB stored for 730
hours), and optionally `currency`. A file of owners is CSV, so that a spreadsheet can edit it: the columns `kind` (client,
principal or topic), `pattern` (a shell pattern) and `team`; lines that begin with `#` are comments. Each traffic row
belongs to the first line that matches; stored bytes belong to the first line that matches the topic. A GB is 10**9 bytes.
"""

from __future__ import annotations

import csv
import fnmatch
import math
import re
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from odradek.jobs.usage_report.errors import ReportError

GB = 1_000_000_000
HOURS_A_MONTH = 730
UNOWNED = "(no owner)"
_KINDS = ("client", "principal", "topic")
_PRICES = ("in", "out", "stored_month")


@dataclass(frozen=True)
class Prices:
    """Prices of a GB in, a GB out, and a GB stored for a month of 730 hours."""

    currency: str
    in_: float
    out: float
    stored_month: float


@dataclass(frozen=True)
class Rule:
    """A line of the file of owners."""

    kind: str
    pattern: str
    team: str

    def matches(self, kind: str, name: str | None) -> bool:
        return kind == self.kind and name is not None and fnmatch.fnmatchcase(name, self.pattern)


@dataclass(frozen=True)
class Cost:
    """The usage of one owner and its costs; stored bytes are in byte-hours."""

    owner: str
    bytes_in: int
    bytes_out: int
    stored_byte_hours: int
    cost_in: float
    cost_out: float
    cost_stored: float

    @property
    def total(self) -> float:
        return self.cost_in + self.cost_out + self.cost_stored


def read_prices(path: Path) -> Prices:
    """Read a file of prices; raises ReportError with the file, the line and what is expected."""
    text = _text(path, "prices")
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        match = re.search(r"at line (\d+)", str(error))
        line = match[1] if match else str(max(1, len(text.splitlines())))
        reason = re.sub(r" \(at .*\)$", "", str(error))
        raise ReportError(f"{path}:{line}: this is not TOML: {reason}") from None
    for key in document:
        if key not in ("per_gb", "currency"):
            raise ReportError(f"{path}:{_line_of(text, key)}: unknown key {key!r}: expected currency and [per_gb]")
    currency = document.get("currency", "")
    if not isinstance(currency, str) or len(currency) > 8:
        raise ReportError(f'{path}:{_line_of(text, "currency")}: currency: expected a short name such as "EUR"')
    table = document.get("per_gb")
    if not isinstance(table, dict):
        line = _line_of(text, "per_gb")
        raise ReportError(f"{path}:{line}: expected a table [per_gb] with {', '.join(_PRICES)}")
    values = []
    for key in table:
        if key not in _PRICES:
            raise ReportError(f"{path}:{_line_of(text, key)}: unknown price {key!r}: expected {', '.join(_PRICES)}")
    for key in _PRICES:
        value = table.get(key)
        if value is None:
            raise ReportError(f"{path}:{_line_of(text, 'per_gb')}: [per_gb] has no {key}: expected a number, 0 if free")
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
            raise ReportError(f"{path}:{_line_of(text, key)}: {key} = {value!r}: expected a number of at least 0")
        values.append(float(value))
    return Prices(currency, *values)


def _line_of(text: str, key: str) -> int:
    """Return the line on which `key` is set or opens a table; 1 if there is none."""
    pattern = re.compile(rf"""\s*\[?\s*["']?{re.escape(key)}["']?\s*[\]=.]|.*[.{{,]\s*{re.escape(key)}\s*[=\]]""")
    for number, line in enumerate(text.splitlines(), 1):
        if pattern.match(line):
            return number
    return 1


def read_owners(path: Path) -> list[Rule]:
    """Read a file of owners; raises ReportError with the file, the line and what is expected."""
    rules: list[Rule] = []
    header: list[str] | None = None
    expected = "kind,pattern,team"
    lines = _text(path, "owners").splitlines()
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            fields = [field.strip() for field in next(csv.reader([line], strict=True))]
        except csv.Error as error:
            raise ReportError(f"{path}:{number}: not CSV: {error}: expected {expected}") from None
        if header is None:
            header = [field.lower() for field in fields]
            if header != expected.split(","):
                raise ReportError(f"{path}:{number}: the first line is {line.strip()!r}: expected {expected}")
            continue
        if len(fields) != 3:
            raise ReportError(f"{path}:{number}: {len(fields)} columns: expected 3: {expected}")
        kind, pattern, team = fields
        if kind not in _KINDS:
            raise ReportError(f"{path}:{number}: kind {kind!r}: expected {', '.join(_KINDS[:-1])} or {_KINDS[-1]}")
        if not pattern:
            raise ReportError(f"{path}:{number}: the pattern is empty: expected one such as etl-* (or * for all)")
        if not team:
            raise ReportError(f"{path}:{number}: the team is empty: expected its name")
        rules.append(Rule(kind, pattern, team))
    if header is None:
        raise ReportError(f"{path}:1: the file is empty: expected a first line {expected}")
    return rules


def _text(path: Path, what: str) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        raise ReportError(f"{path}:{line}: not UTF-8: expected a text file of {what}") from None
    except OSError as error:
        raise ReportError(f"{path}: the file of {what} cannot be read: {error.strerror}") from None


def owner_of(rules: list[Rule], *, principal: str | None = None, client: str | None = None, topic: str | None) -> str:
    """Return the team of the first rule that matches one of the names; UNOWNED if none does."""
    for rule in rules:
        names = (("client", client), ("principal", principal), ("topic", topic))
        if any(rule.matches(kind, name) for kind, name in names):
            return rule.team
    return UNOWNED


def costs(
    prices: Prices | None,
    rules: list[Rule],
    traffic: Iterable[tuple[str, str, str | None, int, int]],
    stored: Iterable[tuple[str, int]],
) -> list[Cost]:
    """Return the costs by owner, the highest first (without prices: ordered by bytes).

    `traffic` has (principal, client, topic or None, bytes in, bytes out), `stored` (topic, byte-hours).
    """
    used: dict[str, list[int]] = {}

    @cache
    def owner(principal: str | None, client: str | None, topic: str | None) -> str:
        return owner_of(rules, principal=principal, client=client, topic=topic)

    for principal, client, topic, bytes_in, bytes_out in traffic:
        mine = used.setdefault(owner(principal, client, topic), [0, 0, 0])
        mine[0] += bytes_in
        mine[1] += bytes_out
    for topic, byte_hours in stored:
        used.setdefault(owner(None, None, topic), [0, 0, 0])[2] += byte_hours
    price = prices or Prices("", 0.0, 0.0, 0.0)
    rows = [
        Cost(
            name,
            amounts[0],
            amounts[1],
            amounts[2],
            amounts[0] / GB * price.in_,
            amounts[1] / GB * price.out,
            amounts[2] / GB / HOURS_A_MONTH * price.stored_month,
        )
        for name, amounts in used.items()
    ]
    return sorted(
        rows, key=lambda row: (-row.total, -(row.bytes_in + row.bytes_out + row.stored_byte_hours), row.owner)
    )
