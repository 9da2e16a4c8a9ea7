"""Reads the samples in the text of a broker's `/metrics`, for commands, which do not load prometheus_client's parser. Pure."""

import re
from collections.abc import Iterator
from typing import NamedTuple

_SAMPLE = re.compile(r'(\w+)(?:\{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\})? (\S+)')
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


class Sample(NamedTuple):
    """One line. Values of labels are as in the text, with escapes."""

    name: str
    labels: dict[str, str]
    value: float


def samples(text: str) -> Iterator[Sample]:
    """Yield all samples of a text."""
    for line in text.splitlines():
        match = _SAMPLE.match(line)
        if match is not None:
            yield Sample(match[1], dict(_LABEL.findall(match[2] or "")), float(match[3]))
