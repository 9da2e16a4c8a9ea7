"""Reads the logs at the end of a run, when all clients have ended and all transactions have ended or timed out."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tests.transactions.checker.history import History, Log, Place, Record
from tests.transactions.wire_reader import READ_COMMITTED, READ_UNCOMMITTED, WireReader
from tests.waiting import until

STABLE_WITHIN_S = 30.0
"""The time in seconds within which the last stable offset must reach the end, longer than any transaction time-out of
the tests.
"""

MakeReader = Callable[[Iterable[Place], int], WireReader]


def read_logs(
    make_reader: MakeReader, history: History, places: Iterable[Place], stable_within_s: float = STABLE_WITHIN_S
) -> None:
    """Put the logs of partitions into the history.

    A last stable offset that does not reach the end stays where it is: that is the checker's business.

    :param make_reader: makes a reader of partitions with an isolation level.
    """
    places = list(places)
    watch = make_reader(places, READ_COMMITTED)
    try:
        ends = _stable_ends(watch, places, stable_within_s)
    finally:
        watch.close()
    committed = _read(make_reader, READ_COMMITTED, {place: stable for place, (_, stable) in ends.items()})
    everything = _read(make_reader, READ_UNCOMMITTED, {place: end for place, (end, _) in ends.items()})
    for place, (end, stable) in ends.items():
        history.logs[place] = Log(end, stable, committed[place], everything[place])


def _stable_ends(reader: WireReader, places: list[Place], stable_within_s: float) -> dict[Place, tuple[int, int]]:
    """The log end and the last stable offset of each partition, once they are equal or the time is over."""
    ends: dict[Place, tuple[int, int]] = {}

    def all_stable() -> bool:
        for place in places:
            stable = reader.end(place, READ_COMMITTED)  # first: a marker may come in between
            ends[place] = reader.end(place, READ_UNCOMMITTED), stable
        return all(end == stable for end, stable in ends.values())

    try:
        until(all_stable, "all transactions have ended", stable_within_s)
    except AssertionError:
        return ends
    return ends


def _read(make_reader: MakeReader, isolation: int, ends: dict[Place, int]) -> dict[Place, list[Record]]:
    """All records of each partition below its end."""
    reader = make_reader(ends, isolation)
    found: dict[Place, list[Record]] = {place: [] for place in ends}

    def read() -> bool:
        for poll in reader.poll():
            found[poll.place] += [record for record in poll.records if record.offset < ends[poll.place]]
        return all(reader.positions[place] >= end for place, end in ends.items())

    try:
        until(read, lambda: f"all records are read to {ends}; the positions are {reader.positions}")
    finally:
        reader.close()
    return found
