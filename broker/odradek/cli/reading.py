"""What `odradek consume` reads: which partitions, from where, to where. In the process of the command."""

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from odradek.cli.values import duration_ms, time_ms
from odradek.clients import topics
from odradek.clients.cluster import Cluster, Partition
from odradek.clients.errors import RefusedError
from odradek.protocol.errors import ErrorCode

Place = tuple[str, int]
_AGO = re.compile(r"(.+?)\s+ago")


class Start(NamedTuple):
    """Where to begin: one of these is set. :param end: "beginning" or "end". :param last: so many records."""

    end: str | None = None
    offset: int | None = None
    last: int | None = None
    time_ms: int | None = None


def parsed_start(text: str | None, now_ms: int) -> Start:
    """What was written for --from. Raises ValueError."""
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
            f"'{text}' is no place to begin: write beginning, end, an offset, -N for the last N,"
            " a time such as 2026-01-31T12:00, or '1h ago'"
        ) from None


def matching(cluster: Cluster, names: Sequence[str], chosen: Sequence[int]) -> list[Partition]:
    """The partitions that are meant by names and patterns. Raises Refused for what there is not, ClientError."""
    there = cluster.metadata().topics
    found: dict[str, None] = {}
    for word in names:
        fit = (
            [word]
            if word in there
            else [name for name in sorted(there) if fnmatchcase(name, word) and not there[name].internal]
        )
        if not fit:
            raise RefusedError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"there is no topic '{word}'; `odradek topic list` shows what there is",
            )
        found.update(dict.fromkeys(fit))
    partitions = [part for name in found for part in there[name].partitions if not chosen or part.number in chosen]
    missing = set(chosen) - {part.number for part in partitions}
    if missing:
        raise RefusedError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {min(missing)} of {', '.join(found)}"
        )
    return partitions


def assignment(cluster: Cluster, partitions: Sequence[Partition], start: Start) -> dict[Place, int]:
    """The offset to begin with in each partition that has a leader. Raises ClientError."""
    firsts = _offsets(cluster, partitions, topics.EARLIEST)
    ends = _offsets(cluster, partitions, topics.LATEST)
    at_time = _offsets(cluster, partitions, start.time_ms) if start.time_ms is not None else {}
    found = {}
    for place, end in ends.items():
        if start.end is not None:
            at = firsts[place].offset if start.end == "beginning" else end.offset
        elif start.time_ms is not None:
            at = at_time[place].offset if at_time[place].offset >= 0 else end.offset
        else:
            at = end.offset - start.last if start.last is not None else start.offset or 0
        found[place] = min(max(at, firsts[place].offset), end.offset)
    return found


def _offsets(
    cluster: Cluster, partitions: Sequence[Partition], time_ms: int, committed_only: bool = False
) -> dict[Place, topics.ListedOffset]:
    """As `list_offsets`. Raises RefusedError if a partition's leader answers with an error."""
    found = topics.list_offsets(cluster, partitions, time_ms, committed_only)
    for (name, number), one in found.items():
        if one.error:
            raise RefusedError(one.error, what=f"{name}-{number}")
    return found


class Ends:
    """Where each partition ends, and which are not there yet. Read in the loop's thread."""

    def __init__(self, offsets: Mapping[Place, int], starts: Mapping[Place, int]) -> None:
        self._left = {place: end for place, end in offsets.items() if end > starts[place]}

    @classmethod
    def of(cls, cluster: Cluster, partitions: Sequence[Partition], committed_only: bool) -> "Ends":
        """The ends as they are now; of empty partitions nothing is waited for. Raises ClientError."""
        firsts = _offsets(cluster, partitions, topics.EARLIEST)
        ends = _offsets(cluster, partitions, topics.LATEST, committed_only)
        return cls(
            {place: one.offset for place, one in ends.items()}, {place: one.offset for place, one in firsts.items()}
        )

    def skip_read(self, cluster: Cluster, group_id: str) -> None:
        """What the group has read already is not waited for. Raises ClientError."""
        from odradek.clients.groups import fetch_offsets

        self.reached({place: one.offset for place, one in fetch_offsets(cluster, group_id).items()})

    def reached(self, positions: Mapping[Place, int]) -> None:
        """The next offset to be read of partitions."""
        for place, position in positions.items():
            if place in self._left and position >= self._left[place]:
                del self._left[place]

    def drop(self, place: Place) -> None:
        """Nothing more is wanted of this partition."""
        self._left.pop(place, None)

    def of_place(self, place: Place) -> int | None:
        """Where the partition ended when the command began; None once that was reached."""
        return self._left.get(place)

    @property
    def done(self) -> bool:
        """Whether all are read."""
        return not self._left
