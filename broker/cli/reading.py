"""What `odradek consume` reads: which partitions, from where, to where; and the loop. In the process of the command."""

import re
import time
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, BinaryIO, NamedTuple

from broker.cli.client_library import in_words
from broker.cli.record_format import Writer
from broker.cli.values import duration_ms, time_ms
from broker.clients import topics
from broker.clients.cluster import Cluster, Partition
from broker.clients.errors import Refused
from broker.protocol.errors import ErrorCode

Place = tuple[str, int]
AT_ONCE = 1000
POLL_S = 0.2
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
            raise Refused(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"there is no topic '{word}'; `odradek topic list` shows what there is",
            )
        found.update(dict.fromkeys(fit))
    partitions = [part for name in found for part in there[name].partitions if not chosen or part.number in chosen]
    missing = set(chosen) - {part.number for part in partitions}
    if missing:
        raise Refused(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {min(missing)} of {', '.join(found)}"
        )
    return partitions


def assignment(cluster: Cluster, partitions: Sequence[Partition], start: Start) -> dict[Place, int]:
    """The offset to begin with in each partition that has a leader. Raises ClientError."""
    firsts = topics.list_offsets(cluster, partitions, topics.EARLIEST)
    ends = topics.list_offsets(cluster, partitions, topics.LATEST)
    at_time = topics.list_offsets(cluster, partitions, start.time_ms) if start.time_ms is not None else {}
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


class Ends:
    """Where each partition ends, and which are not there yet. Read in the loop's thread."""

    def __init__(self, offsets: Mapping[Place, int], starts: Mapping[Place, int]) -> None:
        self._left = {place: end for place, end in offsets.items() if end > starts[place]}

    @classmethod
    def of(cls, cluster: Cluster, partitions: Sequence[Partition], committed_only: bool) -> "Ends":
        """The ends as they are now; of empty partitions nothing is waited for. Raises ClientError."""
        firsts = topics.list_offsets(cluster, partitions, topics.EARLIEST)
        ends = topics.list_offsets(cluster, partitions, topics.LATEST, committed_only)
        return cls(
            {place: one.offset for place, one in ends.items()}, {place: one.offset for place, one in firsts.items()}
        )

    def skip_read(self, cluster: Cluster, group_id: str) -> None:
        """What the group has read already is not waited for. Raises ClientError."""
        from broker.clients.groups import fetch_offsets

        self.reached({place: one.offset for place, one in fetch_offsets(cluster, group_id).items()})

    def reached(self, positions: Mapping[Place, int]) -> None:
        """The next offset to be read of partitions."""
        for place, position in positions.items():
            if place in self._left and position >= self._left[place]:
                del self._left[place]

    def drop(self, place: Place) -> None:
        """Nothing more is wanted of this partition."""
        self._left.pop(place, None)

    @property
    def done(self) -> bool:
        """Whether all are read."""
        return not self._left


class Reading:
    """The loop.

    :param write: a message to bytes. :param limit: of messages.
    :param pattern: compiled; only messages whose key or value has it.
    :param until_ms: messages of this time and later are left out. :param commits: whether a group commits what was written.
    """

    def __init__(
        self,
        confluent: Any,
        consumer: Any,
        write: Writer,
        pattern: Any,
        limit: int | None,
        until_ms: int | None,
        ends: Ends | None,
        commits: bool,
    ) -> None:
        self._confluent = confluent
        self._consumer = consumer
        self._write = write
        self._pattern = pattern
        self._limit = limit
        self._until_ms = until_ms
        self._ends = ends
        self._commits = commits
        self._read: dict[Place, int] = {}
        self.records = 0
        self.failure: str | None = None

    def run(self, out: BinaryIO, timeout_s: float) -> None:
        """Until the end, the limit, a failure, or KeyboardInterrupt. :param timeout_s: without any word of a broker."""
        heard = time.monotonic()
        while not self._over():
            messages = self._consumer.consume(AT_ONCE if self._limit is None else min(AT_ONCE, self._limit), POLL_S)
            if messages:
                heard = time.monotonic()
            elif self._ends is not None and time.monotonic() - heard > timeout_s:
                self.failure = f"nothing came for {timeout_s:g} s, before the end of the topics"
            for message in messages:
                self._take(message, out)
                if self._over():
                    break
            out.flush()
            if self._commits and messages:
                self._commit(asynchronous=True)

    def _over(self) -> bool:
        at_limit = self._limit is not None and self.records >= self._limit
        return at_limit or self.failure is not None or (self._ends is not None and self._ends.done)

    def _take(self, message: Any, out: BinaryIO) -> None:
        error = message.error()
        place = message.topic(), message.partition()
        if error is not None:
            if error.code() == self._confluent.KafkaError._PARTITION_EOF:
                if self._ends is not None:
                    self._ends.reached({place: message.offset()})
            elif error.code() != self._confluent.KafkaError._ALL_BROKERS_DOWN and not error.retriable():
                self.failure = in_words(error)
            return
        position = message.offset() + 1
        if self._until_ms is not None and message.timestamp()[1] >= self._until_ms:
            if self._ends is not None:
                self._ends.drop(place)
            return
        if self._pattern is None or any(self._pattern.search(data or b"") for data in (message.key(), message.value())):
            out.write(self._write(message))
            self.records += 1
        self._read[place] = position
        if self._ends is not None:
            self._ends.reached({place: position})

    def _commit(self, asynchronous: bool) -> None:
        offsets = [self._confluent.TopicPartition(name, number, at) for (name, number), at in self._read.items()]
        if offsets:
            try:
                self._consumer.commit(offsets=offsets, asynchronous=asynchronous)
            except self._confluent.KafkaException as error:
                self.failure = self.failure or f"what was read could not be committed: {in_words(error.args[0])}"
        self._read.clear()  # what another member has by now must not be put back

    def finish(self) -> None:
        """Commit, and leave the group."""
        if self._commits and self._read:
            self._commit(asynchronous=False)
        self._consumer.close()
