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
    """Lines that differ from Kafka's.

    :param rows: a pattern of names of rows. :param lines: the lines of their transcripts, by number.
    :param theirs: a pattern of what differs in Kafka's line. :param ours: what stands there instead; None: anything.
    """

    rows: str
    lines: tuple[int, ...]
    theirs: str = ""
    ours: str | None = None


_ENDED = "ends-of-protocol-2-"
_NOT_YET = ("INVALID_TXN_STATE", "PRODUCER_FENCED")
DIFFERENCES: dict[str, tuple[Difference, ...]] = {
    "a commit of a transaction that the coordinator aborted is fenced, which clients recover from, as in Kafka since "
    "August 2026 (KAFKA-20785)": (
        Difference(f"{_ENDED}(Empty|Ongoing|CompleteCommit|CompleteAbort|TimedOut)-abort-current", (4,), *_NOT_YET),
        Difference(f"{_ENDED}CompleteAbort-abort-ended", (4,), *_NOT_YET),
        Difference(f"{_ENDED}PrepareAbort-commit-ended", (4,), *_NOT_YET),
        Difference(f"{_ENDED}PrepareAbort-abort-ended", (5,), *_NOT_YET),
        Difference(f"{_ENDED}Prepare(Abort|Commit)-abort-current", (5,), *_NOT_YET),
        Difference(f"{_ENDED}(CompleteAbort-commit-ended|TimedOut-commit-current)", (1, 3), *_NOT_YET),
        Difference(f"{_ENDED}CompleteAbort-abort-current-level-1", (4,), *_NOT_YET),
        Difference("both-protocols-after-an-end-4-5-commit", (3,), *_NOT_YET),
        Difference("both-protocols-after-an-end-[45]-5-abort", (2, 4), *_NOT_YET),
        Difference("an-end-after-a-time-out-5-commit(-level-1)?", (2,), *_NOT_YET),
        Difference("an-init-during-a-transaction-4-named-level-[01]", (12,), *_NOT_YET),
        Difference("an-end-abort-5", (8,), *_NOT_YET),
        Difference("an-abort-without-partitions", (4,), *_NOT_YET),
        Difference("a-fence(-level-1)?", (7,), *_NOT_YET),
    ),
    "a marker of protocol 2 that is repeated is answered, and not written again": (
        Difference("a-marker-2-(current-ended|newe(r|st)-(open|ended))", (5,)),
        Difference("markers-of-strangers-2", (6,)),
    ),
    "a repeated batch gets the response of the first one, also when its transaction has ended": (
        Difference("repeated-batches-3-.*", (5,), "INVALID_TXN_STATE base_offset=-1", "NONE base_offset=0"),
        Difference("repeated-batches-11-.*", (5,), "TRANSACTION_ABORTABLE base_offset=-1", "NONE base_offset=0"),
        Difference("a-marker-[012]-current-ended", (7,), "TRANSACTION_ABORTABLE base_offset=-1", "NONE base_offset=0"),
    ),
    "after a refused batch, later batches with the right sequence are accepted, also before the end of the transaction": (
        Difference("repeated-batches-(3|11)-.*", (8, 11)),
        Difference("sequences-of-protocol-1-.*", (13, 14, 20, 21, 22)),
    ),
    "a request that retries InitProducerId near the last epoch gets its answer; Kafka fails": (
        Difference(
            "inits-with-an-epoch", (2,), "UNKNOWN_SERVER_ERROR none producer_epoch=-1", "NONE p0 producer_epoch=32766"
        ),
        Difference("a-fence-level-1", (10,), "UNKNOWN_SERVER_ERROR", "PRODUCER_FENCED"),
        Difference("a-time-out-level-1", (7,), "UNKNOWN_SERVER_ERROR", "PRODUCER_FENCED"),
    ),
    "a request that adds no partition does not begin a transaction": (Difference("no-partitions-.*", (2, 3, 4)),),
    "an empty transactional id has no coordinator": (
        Difference("coordinators-are-found-[456]", (1,), "key='' NONE", "key='' INVALID_REQUEST"),
    ),
    "a batch with a producer id and without an epoch is malformed": (
        Difference("batches-in-a-state-.*", (0,), "INVALID_PRODUCER_EPOCH", "INVALID_RECORD"),
    ),
    "a marker without a producer epoch is refused; Kafka fails": (
        Difference("markers-of-strangers-.*", (4,), "UNKNOWN_SERVER_ERROR", "INVALID_PRODUCER_EPOCH"),
        Difference("hanging-transactions", (23,)),
    ),
    "a partition that is verified twice in a request is in the response twice": (
        Difference("adds-of-what-is-not-there-[45]", (21,)),
    ),
    "brokers before Kafka 2.0 send WriteTxnMarkers 0": (Difference("versions-of-apis", (4,), r"\(1, 2\)", "(0, 2)"),),
    "UpdateFeatures 0 has a flag that allows downgrades; Kafka ignores it": (
        Difference("updates-of-features-by-old-clients", (3, 5, 10)),
    ),
}
"""What differs on purpose, by reason."""


def differences(row: Row, transcript: Transcript, theirs: list[str]) -> list[str]:
    """The lines of a conversation that differ from Kafka's, with their requests; without what differs on purpose."""
    ours = transcript.lines
    found = []
    for index in range(max(len(ours), len(theirs))):
        here = ours[index] if index < len(ours) else "nothing"
        there = theirs[index] if index < len(theirs) else "nothing"
        if here != there and not _is_on_purpose(row, index, here, there):
            asked = transcript.asked[index] if index < len(ours) else ""
            found.append(f"{index}: {asked}\n    ours:  {here}\n    Kafka: {there}")
    return found


def _is_on_purpose(row: Row, index: int, here: str, there: str) -> bool:
    return any(
        re.fullmatch(known.rows, row.name)
        and index in known.lines
        and (known.ours is None or re.sub(known.theirs, known.ours, there, count=1) == here)
        for all_ in DIFFERENCES.values()
        for known in all_
    )
