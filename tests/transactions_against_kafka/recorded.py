"""What Apache Kafka 4.3 said in the conversations: files of this directory, which `test_kafka.py` writes and compares.

A file holds the rows of a module. Rows in which Kafka said the same have one text: a line "== " with the name of each, then
the lines of the transcript.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.transactions_against_kafka.sides import Row
from tests.transactions_against_kafka.transcript import Transcript

DIRECTORY = Path(__file__).parent / "recorded"
_HEAD = "== "


def read(name: str) -> dict[str, list[str]]:
    """The lines of each row of a module."""
    found: dict[str, list[str]] = {}
    names: list[str] = []
    lines: list[str] = []
    for line in (DIRECTORY / f"{name}.txt").read_text().splitlines():
        if line.startswith(_HEAD):
            if lines:
                names, lines = [], []
            names.append(line.removeprefix(_HEAD))
            found[names[-1]] = lines
        else:
            lines.append(line)
    return found


def write(name: str, transcripts: Mapping[str, Iterable[str]]) -> None:
    """Write the file of a module."""
    names: dict[tuple[str, ...], list[str]] = {}
    for row, lines in transcripts.items():
        names.setdefault(tuple(lines), []).append(row)
    DIRECTORY.mkdir(exist_ok=True)
    parts = [[*(f"{_HEAD}{row}" for row in rows), *lines] for lines, rows in names.items()]
    (DIRECTORY / f"{name}.txt").write_text("".join(f"{line}\n" for part in parts for line in part))


class Difference(NamedTuple):
    """What differs on purpose: rows by a pattern of their names; in their lines what the pattern matches.

    :param ours: what stands there instead of `theirs`; None: anything.
    """

    rows: str
    theirs: str
    ours: str | None
    reason: str


DIFFERENCES: tuple[Difference, ...] = ()
"""Each is a decision of this project, with its reason."""


def differences(row: Row, transcript: Transcript, theirs: list[str]) -> list[str]:
    """The lines of a conversation that differ from Kafka's, with their requests; without what differs on purpose."""
    ours = transcript.lines
    found = []
    for index in range(max(len(ours), len(theirs))):
        here = ours[index] if index < len(ours) else "nothing"
        there = theirs[index] if index < len(theirs) else "nothing"
        if here != there and not _is_on_purpose(row, here, there):
            asked = transcript.asked[index] if index < len(ours) else ""
            found.append(f"{index}: {asked}\n    ours:  {here}\n    Kafka: {there}")
    return found


def _is_on_purpose(row: Row, here: str, there: str) -> bool:
    return any(
        re.fullmatch(known.rows, row.name)
        and re.search(known.theirs, there)
        and (known.ours is None or re.sub(known.theirs, known.ours, there) == here)
        for known in DIFFERENCES
    )
