"""Determines the partitions that `odradek consume` reads, their start offsets and their ends. Runs in the process of the
command."""

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from odradek.cli.framework.interrupt import Interruption
from odradek.cli.framework.values import duration_ms, time_ms
from odradek.clients import topics
from odradek.clients.cluster import Cluster, Partition
from odradek.clients.errors import RefusedError, UnreachableError, no_topic
from odradek.protocol.errors import ErrorCode
from odradek.topic_partition import TopicPartition

Keep = Callable[[bytes | None, bytes | None], bool]
"""Whether to write a record with this key and value."""
LOOK_EVERY_S = 5.0
"""How often a command that follows topics looks for new ones, and for new partitions."""
_PATTERN = re.compile(r"[*?\[]")
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
    if word in ("beginning", "earliest", "oldest", "start"):
        return Start(end="beginning")
    if word in ("end", "latest", "newest"):
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


def keeping(pattern: re.Pattern[bytes] | None, interruption: Interruption) -> Keep | None:
    """Keep the records whose key or value matches the pattern; None: all. A signal interrupts a match, which can take hours."""
    if pattern is None:
        return None
    search = interruption.at_once_in(pattern.search)
    return lambda key, value: search(key or b"") is not None or search(value or b"") is not None


class Selection(NamedTuple):
    """The topics and partitions to read.

    :param words: names of topics, or patterns: as of a shell, or regular expressions that match whole names.
    :param excluded: patterns of the same kind for topics that are not read. :param chosen: numbers of partitions; empty: all.
    """

    words: Sequence[str]
    regex: bool = False
    excluded: Sequence[str] = ()
    chosen: Sequence[int] = ()

    @property
    def may_be_several(self) -> bool:
        """Whether it can select more than one topic, now or when topics are created."""
        return len(self.words) > 1 or any(map(self.is_pattern, self.words))

    def is_pattern(self, word: str) -> bool:
        """Whether a word can select several topics."""
        return self.regex or _PATTERN.search(word) is not None

    def selects(self, word: str, name: str) -> bool:
        """Whether a word selects a topic."""
        return re.fullmatch(word, name) is not None if self.regex else fnmatchcase(name, word)

    def excludes(self, name: str) -> bool:
        """Whether a topic is excluded."""
        return any(self.selects(word, name) for word in self.excluded)


def matching(cluster: Cluster, selection: Selection) -> list[Partition]:
    """The selected partitions; those of internal topics only if they are named. Raises RefusedError if a word selects nothing,
    ClientError."""
    has_patterns = any(map(selection.is_pattern, selection.words))
    existing = cluster.metadata(None if has_patterns else selection.words).topics
    matches: dict[str, None] = {}
    for word in selection.words:
        found = [
            name
            for name in sorted(existing)
            if name == word or (selection.selects(word, name) and not existing[name].internal)
        ]
        if not found and selection.is_pattern(word):
            raise RefusedError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"no topic matches '{word}'; `odradek topic list` shows all topics",
            )
        if not found:
            raise no_topic(word, existing) if has_patterns else cluster.no_topic(word)
        matches.update(dict.fromkeys(name for name in found if not selection.excludes(name)))
    if not matches:
        raise RefusedError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"--exclude leaves no topic of {', '.join(selection.words)} to read"
        )
    partitions = [
        part
        for name in matches
        for part in existing[name].partitions
        if not selection.chosen or part.number in selection.chosen
    ]
    missing = set(selection.chosen) - {part.number for part in partitions}
    if missing:
        raise RefusedError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {min(missing)} of {', '.join(matches)} does not exist"
        )
    return partitions


class NewPartitions:
    """Finds the selected partitions that were created after the command's start, of new topics and of known ones.

    :param cluster: no request may be in flight on its connections: a reader that fetches has others.
    :param known: the partitions that are read already. :param clock: monotonic time in seconds.
    """

    def __init__(
        self,
        cluster: Cluster,
        selection: Selection,
        known: Iterable[Partition],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cluster = cluster
        self._selection = selection
        self._known = {(part.topic, part.number) for part in known}
        self._clock = clock
        self._due = clock() + LOOK_EVERY_S

    def look(self) -> dict[TopicPartition, int]:
        """The log start offsets of new partitions, if a look is due; each partition is returned once.

        One without a leader, and all while a broker is away, are left to a later look. Raises ClientError.
        """
        if self._clock() < self._due:
            return {}
        self._due = self._clock() + LOOK_EVERY_S
        try:
            found = matching(self._cluster, self._selection)
            new = [part for part in found if (part.topic, part.number) not in self._known]
            starts = topics.list_offsets(self._cluster, new, topics.EARLIEST)
        except (UnreachableError, RefusedError):  # the reader itself reports a broker that is away, and a deleted topic
            return {}
        offsets = {place: start.offset for place, start in starts.items() if not start.error}
        self._known |= offsets.keys()
        return offsets


def assignment(cluster: Cluster, partitions: Sequence[Partition], start: Start) -> dict[TopicPartition, int]:
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
) -> dict[TopicPartition, topics.ListedOffset]:
    """Like `topics.list_offsets`, but raises RefusedError if a partition's leader responds with an error."""
    results = topics.list_offsets(cluster, partitions, time_ms, committed_only)
    for (name, number), result in results.items():
        if result.error:
            raise RefusedError(result.error, what=f"{name}-{number}")
    return results


def hidden(cluster: Cluster, partitions: Sequence[Partition]) -> dict[TopicPartition, int]:
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

    def __init__(self, offsets: Mapping[TopicPartition, int], starts: Mapping[TopicPartition, int]) -> None:
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

    def reached(self, positions: Mapping[TopicPartition, int]) -> None:
        """Record the next offset to read of partitions."""
        for place, position in positions.items():
            if place in self._unread and position >= self._unread[place]:
                del self._unread[place]

    def drop(self, place: TopicPartition) -> None:
        """Mark the partition as read."""
        self._unread.pop(place, None)

    def of_place(self, place: TopicPartition) -> int | None:
        """The end of the partition when the command started; None once it is reached."""
        return self._unread.get(place)

    @property
    def done(self) -> bool:
        """Whether all partitions are read up to their ends."""
        return not self._unread
