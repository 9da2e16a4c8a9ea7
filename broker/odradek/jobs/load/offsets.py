"""Which offsets a run reads: the positions of the commit log compared with what the cluster has now. Pure functions.

A position is the offset of the next record to load. A run never moves a position back, and moves it only in a commit that also
names the files with the records before it. What a run cannot load is a `Finding`; it is written to the output's log and decides
the exit status.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class NamedPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Range(NamedTuple):
    """Offsets of one partition. :param until: exclusive."""

    topic: str
    partition: int
    start: int
    until: int

    @property
    def place(self) -> NamedPartition:
        """The partition."""
        return NamedPartition(self.topic, self.partition)


@dataclass(frozen=True)
class Bounds:
    """What a cluster has of one partition.

    :param earliest: the log start offset. :param end: the last stable offset: transactions before it have ended.
    :param from_offset: the first offset of the wanted period; None if the load has no start in time.
    :param to_offset: the offset after the wanted period; None if the load has no end in time.
    :param high_watermark: None if it is not known.
    """

    earliest: int
    end: int
    from_offset: int | None = None
    to_offset: int | None = None
    high_watermark: int | None = None

    @property
    def log_end(self) -> int:
        """Where the records end for readers who do not care about transactions."""
        return self.end if self.high_watermark is None else max(self.end, self.high_watermark)


@dataclass(frozen=True)
class TopicState:
    """A topic of a cluster. :param topic_id: 32 hexadecimal digits; None if the cluster has no topic ids."""

    topic_id: str | None
    partitions: Mapping[int, Bounds]


@dataclass(frozen=True)
class ClusterState:
    """The wanted topics when the run began. :param topics: those that exist, by name. :param missing: those that do not."""

    cluster_id: str
    topics: Mapping[str, TopicState]
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class Position:
    """How far a partition is loaded. :param end: where the load of a period ends; None without an end."""

    next: int
    end: int | None = None


@dataclass(frozen=True)
class TopicPositions:
    """How far a topic is loaded. :param topic_id: of the topic that was loaded; None if its cluster had no topic ids."""

    topic_id: str | None
    partitions: Mapping[int, Position]


Positions = Mapping[str, TopicPositions]

GONE, DELETED, RECREATED, CUT, ADDED, LATE = "gone", "deleted", "recreated", "cut", "partitions-added", "begins-late"
#: A finding of the moment, which no commit keeps.
HELD = "held-back"
#: The findings after which the output does not have all that was asked for: the run ends with exit status 3.
LOSSES = frozenset((GONE, DELETED, RECREATED, CUT))


@dataclass(frozen=True)
class Finding:
    """What a run found that its reader must know. :param kind: see `LOSSES`. :param text: a sentence."""

    kind: str
    topic: str
    partition: int | None
    text: str

    @property
    def is_loss(self) -> bool:
        """Whether the output lacks something because of it."""
        return self.kind in LOSSES


@dataclass(frozen=True)
class Plan:
    """What a run does. :param ranges: the offsets to read, not empty each, in the order of topic and partition.

    :param positions: those before the first record of `ranges` is loaded: with new partitions, and behind deleted records.
    """

    ranges: tuple[Range, ...]
    positions: Positions
    findings: tuple[Finding, ...] = field(default=())

    @property
    def lasting_findings(self) -> tuple[Finding, ...]:
        """The findings that the commit keeps."""
        return tuple(finding for finding in self.findings if finding.kind != HELD)

    @property
    def offsets(self) -> int:
        """The number of offsets to read; not each has a record."""
        return sum(part.until - part.start for part in self.ranges)


def plan(positions: Positions, state: ClusterState, another: str) -> Plan:
    """Decide what to load.

    :param another: how to load into another version, for the text of findings
    """
    ranges: list[Range] = []
    findings: list[Finding] = []
    after = dict(positions)
    for name in state.missing:
        if name in positions:
            text = f"topic '{name}' was deleted: the records after the last load, if it had any, are not in the output"
            findings.append(Finding(DELETED, name, None, text))
    for name, topic in sorted(state.topics.items()):
        known = positions.get(name)
        if known is not None and known.topic_id and topic.topic_id and known.topic_id != topic.topic_id:
            text = (
                f"topic '{name}' was deleted and created again (its id was {known.topic_id} and is {topic.topic_id}): nothing"
                f" of the new topic was loaded; load it into another version, with {another}"
            )
            findings.append(Finding(RECREATED, name, None, text))
            continue
        partitions: dict[int, Position] = {} if known is None else dict(known.partitions)
        for number in sorted(set(partitions) - set(topic.partitions)):
            text = f"{NamedPartition(name, number)} does not exist any more: the topic was created again with fewer partitions"
            findings.append(Finding(DELETED, name, number, text))
        for number, bounds in sorted(topic.partitions.items()):
            place = NamedPartition(name, number)
            position, found = _position(place, partitions.get(number), bounds, known is not None, another)
            findings += found
            partitions[number] = position
            until = bounds.end if position.end is None else min(bounds.end, position.end)
            wanted = bounds.log_end if position.end is None else min(bounds.log_end, position.end)
            stop = max(until, position.next)
            if wanted > stop:
                held = f"{wanted - stop} offsets from {stop} on"
                text = f"{place}: {held} come after a transaction that has not ended; a later run loads them"
                findings.append(Finding(HELD, *place, text))
            if position.next < until:
                ranges.append(Range(name, number, position.next, until))
        after[name] = TopicPositions(topic.topic_id or (known.topic_id if known else None), partitions)
    return Plan(tuple(ranges), after, tuple(findings))


def _position(
    place: NamedPartition, before: Position | None, bounds: Bounds, topic_is_known: bool, another: str
) -> tuple[Position, list[Finding]]:
    """The position from which to read a partition, and the findings about it."""
    if before is None:
        start = bounds.earliest if bounds.from_offset is None else max(bounds.earliest, bounds.from_offset)
        position = Position(start, None if bounds.to_offset is None else max(start, bounds.to_offset))
        found = []
        if topic_is_known:
            text = f"{place} is a new partition: it is loaded from offset {start}"
            found.append(Finding(ADDED, *place, text))
        if bounds.earliest > 0 and start == bounds.earliest:
            text = f"{place} begins at offset {start}: the records before it had been deleted before the first load"
            found.append(Finding(LATE, *place, text))
        return position, found
    complete = before.end is not None and before.next >= before.end
    if complete:
        return before, []
    if bounds.log_end < before.next:
        text = (
            f"{place} ends at offset {bounds.log_end}, but {before.next} is the next one to load: the cluster lost records that"
            " are in the output, or the topic was created again; nothing of it was loaded. Load it into another version, with"
            f" {another}"
        )
        return before, [Finding(CUT, *place, text)]
    if bounds.earliest > before.next:
        start = bounds.earliest if before.end is None else min(bounds.earliest, before.end)
        text = (
            f"{place}: offsets {before.next} to {start - 1} were deleted before they were loaded (retention, or a deletion of"
            f" records); the load continues at {start}"
        )
        return Position(start, before.end), [Finding(GONE, *place, text)]
    return before, []


def steps(ranges: Iterable[Range], most: int) -> list[tuple[Range, ...]]:
    """Cut ranges into steps of about `most` offsets each; a step has a part of every partition that still has offsets.

    :returns: the ranges of each step, in order; their union is `ranges`
    """
    whole = tuple(ranges)
    count = max(1, -(-sum(part.until - part.start for part in whole) // most))
    result = []
    for number in range(count):
        step = []
        for part in whole:
            size = part.until - part.start
            start, until = part.start + size * number // count, part.start + size * (number + 1) // count
            if start < until:
                step.append(part._replace(start=start, until=until))
        result.append(tuple(step))
    return [step for step in result if step]


def advanced(positions: Positions, ranges: Iterable[Range]) -> Positions:
    """The positions after these ranges were loaded."""
    result = {name: TopicPositions(topic.topic_id, dict(topic.partitions)) for name, topic in positions.items()}
    for part in ranges:
        partitions = dict(result[part.topic].partitions)
        partitions[part.partition] = Position(part.until, partitions[part.partition].end)
        result[part.topic] = TopicPositions(result[part.topic].topic_id, partitions)
    return result
