"""Determines the partitions that `odradek consume` reads, their start offsets and their ends. Runs in the process of the
command."""

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from odradek.cli.values import duration_ms, time_ms
from odradek.clients import topics
from odradek.clients.cluster import Cluster, Partition
from odradek.clients.errors import RefusedError, no_topic
from odradek.protocol.errors import ErrorCode

Place = tuple[str, int]
_AGO = re.compile(r"(.+?)\s+ago")


class Start(NamedTuple):
    """The start position; one of the fields is set.

    :param end: "beginning" or "end".
    :param last: the number of records before the end of each partition.
    :param time_ms: ms since 1970.
    """

    end: str | None = None
    offset: int | None = None
    last: int | None = None
    time_ms: int | None = None


def parsed_start(text: str | None, now_ms: int) -> Start:
    """The start position that --from names. Raises ValueError."""
    word = (text or "end").strip().lower()
    if word in ("beginning", "earliest", "start"):
        return Start(end="beginning")
    if word in ("end", "latest"):
        return Start(end="end")
    if re.fullmatch(r"-\d+", word):
        return Start(last=int(word[1:]))
    if word.isdigit():
        return Start(offset=int(word))
    try:
        ago = _AGO.fullmatch(word)
        return Start(time_ms=now_ms - duration_ms(ago[1]) if ago else time_ms(text or "", now_ms))
    except ValueError:
        raise ValueError(
            f"'{text}' is not a valid start position: write beginning, end, an offset, -N for the last N records,"
            " a time such as 2026-01-31T12:00, or '1h ago'"
        ) from None


def matching(cluster: Cluster, names: Sequence[str], chosen: Sequence[int]) -> list[Partition]:
    """The partitions of the topics that match names and patterns. Raises RefusedError if one does not exist, ClientError."""
    existing = cluster.metadata().topics
    matches: dict[str, None] = {}
    for word in names:
        matching = (
            [word]
            if word in existing
            else [name for name in sorted(existing) if fnmatchcase(name, word) and not existing[name].internal]
        )
        if not matching:
            raise no_topic(word, existing)
        matches.update(dict.fromkeys(matching))
    partitions = [part for name in matches for part in existing[name].partitions if not chosen or part.number in chosen]
    missing = set(chosen) - {part.number for part in partitions}
    if missing:
        raise RefusedError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {min(missing)} of {', '.join(matches)} does not exist"
        )
    return partitions


def assignment(cluster: Cluster, partitions: Sequence[Partition], start: Start) -> dict[Place, int]:
    """The start offset of each partition that has a leader, limited to its log. Raises ClientError."""
    firsts = _offsets(cluster, partitions, topics.EARLIEST)
    ends = _offsets(cluster, partitions, topics.LATEST)
    at_time = _offsets(cluster, partitions, start.time_ms) if start.time_ms is not None else {}
    offsets = {}
    for place, end in ends.items():
        if start.end is not None:
            offset = firsts[place].offset if start.end == "beginning" else end.offset
        elif start.time_ms is not None:
            offset = at_time[place].offset if at_time[place].offset >= 0 else end.offset
        else:
            offset = end.offset - start.last if start.last is not None else start.offset or 0
        offsets[place] = min(max(offset, firsts[place].offset), end.offset)
    return offsets


def _offsets(
    cluster: Cluster, partitions: Sequence[Partition], time_ms: int, committed_only: bool = False
) -> dict[Place, topics.ListedOffset]:
    """Like `topics.list_offsets`, but raises RefusedError if a partition's leader responds with an error."""
    results = topics.list_offsets(cluster, partitions, time_ms, committed_only)
    for (name, number), result in results.items():
        if result.error:
            raise RefusedError(result.error, what=f"{name}-{number}")
    return results


def hidden(cluster: Cluster, partitions: Sequence[Partition]) -> dict[Place, int]:
    """The number of offsets from the last stable offset to the end, for the partitions in which it is not 0.

    The ends are read first: records that are appended between the two requests then raise the last stable offset, too, and do
    not look like an open transaction. Raises ClientError.
    """
    ends = _offsets(cluster, partitions, topics.LATEST)
    stable = _offsets(cluster, partitions, topics.LATEST, committed_only=True)
    return {
        place: end.offset - stable[place].offset for place, end in ends.items() if end.offset > stable[place].offset
    }


class Ends:
    """The end offset of each partition that is not yet read up to its end. Used by one thread."""

    def __init__(self, offsets: Mapping[Place, int], starts: Mapping[Place, int]) -> None:
        self._unread = {place: end for place, end in offsets.items() if end > starts[place]}

    @classmethod
    def of(cls, cluster: Cluster, partitions: Sequence[Partition], committed_only: bool) -> "Ends":
        """The current ends of the partitions that are not empty. Raises ClientError."""
        firsts = _offsets(cluster, partitions, topics.EARLIEST)
        ends = _offsets(cluster, partitions, topics.LATEST, committed_only)
        return cls(
            {place: end.offset for place, end in ends.items()}, {place: first.offset for place, first in firsts.items()}
        )

    def skip_read(self, cluster: Cluster, group_id: str) -> None:
        """Mark the partitions as read that the group has committed up to their ends. Raises ClientError."""
        from odradek.clients.groups import fetch_offsets

        self.reached({place: committed.offset for place, committed in fetch_offsets(cluster, group_id).items()})

    def reached(self, positions: Mapping[Place, int]) -> None:
        """Record the next offset to read of partitions."""
        for place, position in positions.items():
            if place in self._unread and position >= self._unread[place]:
                del self._unread[place]

    def drop(self, place: Place) -> None:
        """Mark the partition as read."""
        self._unread.pop(place, None)

    def of_place(self, place: Place) -> int | None:
        """The end of the partition when the command started; None once it is reached."""
        return self._unread.get(place)

    @property
    def done(self) -> bool:
        """Whether all partitions are read up to their ends."""
        return not self._unread
