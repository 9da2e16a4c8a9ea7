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
    :param theirs: a pattern of what differs in Kafka's line. :param ours: what is there instead, as `re.sub` takes it.
    """

    rows: str
    lines: tuple[int, ...]
    theirs: str
    ours: str


_ENDED = "ends-of-protocol-2-"
_NOT_YET = ("INVALID_TXN_STATE", "PRODUCER_FENCED")
_ANOTHER = "INVALID_PRODUCER_ID_MAPPING base_offset=-1"
_REFUSED = "OUT_OF_ORDER_SEQUENCE_NUMBER base_offset=-1"
_ENDS = "high_watermark={} last_stable_offset={}{}.*"
_ENDS_HERE = r"high_watermark={} last_stable_offset={}\1]}}]}}]}}"
"""A Fetch of a log that is longer at Kafka, and up to where it is the same."""
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
        Difference("a-marker-2-current-ended", (5,), _ENDS.format(6, 6, "(.*? 1-1 of .*?>)"), _ENDS_HERE.format(2, 2)),
        Difference(
            "a-marker-2-newe(r|st)-open", (5,), _ENDS.format(5, 5, "(.*? 1-1 of .*?>)"), _ENDS_HERE.format(2, 2)
        ),
        Difference(
            "a-marker-2-newe(r|st)-ended", (5,), _ENDS.format(6, 6, "(.*? 2-2 of .*?>)"), _ENDS_HERE.format(3, 3)
        ),
        Difference(
            "markers-of-strangers-2",
            (6,),
            _ENDS.format(3, 3, r"(.*? 0-0 of .*?>) <.* 1-1 of .*?> <transactional control 2-2(.*?>)"),
            r"high_watermark=2 last_stable_offset=2\1 <transactional control 1-1\2]}]}]}",
        ),
    ),
    "a batch with the sequence of a batch whose transaction has ended is refused: librdkafka uses such sequences again for "
    "other records (docs/operate/transactions.md)": (
        Difference("repeated-batches-(3|11)-.*", (9,), "NONE base_offset=0", "INVALID_TXN_STATE base_offset=-1"),
        Difference("repeated-batches-11-.*", (5,), "TRANSACTION_ABORTABLE", "INVALID_TXN_STATE"),
        Difference("a-marker-[012]-current-ended", (7,), "TRANSACTION_ABORTABLE", "INVALID_TXN_STATE"),
        Difference("a-marker-[012]-current-open", (7,), "NONE base_offset=0", "INVALID_TXN_STATE base_offset=-1"),
    ),
    "after a refused batch, later batches with the right sequence are accepted, also before the end of the transaction": (
        Difference("repeated-batches-(3|11)-.*", (8,), _REFUSED, "NONE base_offset=2"),
        Difference(
            "repeated-batches-(3|11)-.*",
            (11,),
            r"high_watermark=3 last_stable_offset=3(.*? 1-1 of .*?>) <transactional control 2-2",
            r"high_watermark=4 last_stable_offset=4\1 <transactional 2-2 of p0 epoch 0 sequence 1: second> "
            "<transactional control 3-3",
        ),
        Difference("sequences-of-protocol-1-.*", (13,), _REFUSED, "NONE base_offset=3"),
        Difference("sequences-of-protocol-1-.*", (14,), _REFUSED, "NONE base_offset=4"),
        Difference("sequences-of-protocol-1-.*", (20,), "base_offset=4", "base_offset=6"),
        Difference("sequences-of-protocol-1-.*", (21,), "base_offset=5", "base_offset=7"),
        Difference(
            "sequences-of-protocol-1-.*",
            (22,),
            "high_watermark=6 last_stable_offset=4(.*? 2-2 of .*?>) <transactional control 3-3(.*?) <transactional 4-4(.*?) "
            "<transactional 5-5",
            r"high_watermark=8 last_stable_offset=6\1 <transactional 3-3 of p0 epoch 0 sequence 7: value> "
            r"<transactional 4-4 of p0 epoch 0 sequence 8: value> <transactional control 5-5\2 <transactional 6-6\3 "
            "<transactional 7-7",
        ),
    ),
    "a request that retries InitProducerId near the last epoch gets its answer; Kafka fails": (
        Difference(
            "inits-with-an-epoch", (2,), "UNKNOWN_SERVER_ERROR none producer_epoch=-1", "NONE p0 producer_epoch=32766"
        ),
        Difference("a-fence-level-1", (10,), "UNKNOWN_SERVER_ERROR", "PRODUCER_FENCED"),
        Difference("a-time-out-level-1", (7,), "UNKNOWN_SERVER_ERROR", "PRODUCER_FENCED"),
    ),
    "a batch with a producer id and without an epoch is malformed": (
        Difference("batches-in-a-state-.*", (0,), "INVALID_PRODUCER_EPOCH", "INVALID_RECORD"),
    ),
    "a marker without a producer epoch is refused; Kafka fails": (
        Difference("markers-of-strangers-.*", (4,), "UNKNOWN_SERVER_ERROR", "INVALID_PRODUCER_EPOCH"),
        Difference(
            "hanging-transactions",
            (23,),
            "due to unexpected error: <message>",
            "due an invalid producer epoch. Enable debug logging for additional detail.",
        ),
    ),
    "brokers before Kafka 2.0 send WriteTxnMarkers 0": (Difference("versions-of-apis", (4,), r"\(1, 2\)", "(0, 2)"),),
    "UpdateFeatures 0 has a flag that allows downgrades; Kafka ignores it": (
        Difference(
            "updates-of-features-by-old-clients",
            (3, 5),
            r"INVALID_UPDATE_VERSION results=\[\]",
            "NONE results=[{feature=transaction.version NONE}]",
        ),
        Difference("updates-of-features-by-old-clients", (10,), r"finalized \[\(2, 2\)\]", "finalized []"),
    ),
    "offsets that come after the outcome of their transaction was decided are refused; Kafka adds them as long as the marker "
    "is not written": (
        Difference("pending-offsets-while-a-transaction-ends-.*", (4,), "NONE", "INVALID_PRODUCER_EPOCH"),
        Difference(
            "pending-offsets-while-a-transaction-ends-commit", (6, 7, 8, 9), "committed_offset=6", "committed_offset=5"
        ),
    ),
    "an id that is in a request several times is described once": (
        Difference(
            "transactions-are-described", (2,), r"\[({NONE transactional_id=~Empty .*?topics=\[\]}) \1\]", r"[\1]"
        ),
    ),
    "a batch with the transactional id of another producer is refused while the transaction is open, too": (
        Difference("requests-without-the-right-id-(.|10|11)", (8,), "NONE base_offset=1", _ANOTHER),
        Difference("requests-without-the-right-id-(12|13)", (7,), "NONE base_offset=1", _ANOTHER),
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
        and re.sub(known.theirs, known.ours, there, count=1) == here
        for all_ in DIFFERENCES.values()
        for known in all_
    )
