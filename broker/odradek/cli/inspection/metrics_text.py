"""Reads the samples in the text of a broker's `/metrics`, for commands, which do not load prometheus_client's parser. Pure.

Labels contain what clients choose, such as client ids, with any character. In the text, a line ends at a line feed alone, and
a line feed in a label is escaped.
"""

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

_ONE_LABEL = r'\w+="(?:[^"\\]|\\.)*"'
_SAMPLE = re.compile(rf"(\w+)(?:\{{((?:{_ONE_LABEL}(?:,{_ONE_LABEL})*)?)\}})? (\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r"\\(.)")


class Sample(NamedTuple):
    """One line, with the labels as they were before the text was written. Users match it by a pattern, which skips samples
    without a label that they need."""

    name: str
    labels: dict[str, str]
    value: float


def samples(text: str) -> Iterator[Sample]:
    """Yield all samples of a text that have a finite value. Lines that are not exactly a sample are skipped: comments, and
    what no broker writes."""
    for line in text.split("\n"):
        match = _SAMPLE.fullmatch(line)
        if match is None:
            continue
        try:
            value = float(match[3])
        except ValueError:
            continue
        if not math.isfinite(value):
            continue
        labels = {name: _ESCAPED.sub(_plain, written) for name, written in _LABEL.findall(match[2] or "")}
        yield Sample(match[1], labels, value)


def _plain(escape: re.Match[str]) -> str:
    return "\n" if escape[1] == "n" else escape[1]
