"""Parses the partitions and the target of `group reset-offsets`, and computes the new offsets.

Runs in the process of the command.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from odradek import clock
from odradek.cli.framework.values import duration_ms, time_ms
from odradek.clients import topics
from odradek.clients.cluster import Cluster
from odradek.clients.groups import CommittedOffset
from odradek.topic_partition import TopicPartition

_AGO = re.compile(r"(.+?)\s+ago")


class InvalidTargetError(ValueError):
    """A partition or a target that does not exist or cannot be parsed; one line."""


def parse_partitions(cluster: Cluster, words: Sequence[str]) -> list[TopicPartition]:
    """The partitions of words such as "topic" and "topic:0,1".

    Raises InvalidTargetError, RefusedError for a topic that does not exist, ClientError.
    """
    numbers_by_topic: dict[str, set[int] | None] = {}
    for word in words:
        name, colon, numbers = word.partition(":")
        if not colon:
            numbers_by_topic[name] = None
            continue
        try:
            numbers_by_topic[name] = (numbers_by_topic.get(name) or set()) | {int(n) for n in numbers.split(",")}
        except ValueError:
            raise InvalidTargetError(
                f"'{word}' is not of the form orders:0,3 (topic, colon, partition numbers)"
            ) from None
    places = []
    for info in cluster.topics(list(numbers_by_topic)):
        existing = {part.number for part in info.partitions}
        chosen = numbers_by_topic[info.name]
        missing = sorted((chosen or set()) - existing)
        if missing:
            raise InvalidTargetError(
                f"topic '{info.name}' has no partition {missing[0]}; it has 0 to {len(existing) - 1}"
            )
        places += [(info.name, index) for index in sorted(existing if chosen is None else chosen)]
    return places


def plan(
    cluster: Cluster, places: Sequence[TopicPartition], committed: Mapping[TopicPartition, CommittedOffset], target: str
) -> list[dict[str, Any]]:
    """A row for each partition: before, after (None if it cannot be determined), change.

    Raises InvalidTargetError, ClientError.
    """
    existing = cluster.metadata({name for name, _ in places}).topics
    chosen = set(places)
    partitions = [part for info in existing.values() for part in info.partitions if (part.topic, part.number) in chosen]
    starts = _offsets(topics.list_offsets(cluster, partitions, topics.EARLIEST))
    ends = _offsets(topics.list_offsets(cluster, partitions, topics.LATEST))
    targets = _targets(cluster, partitions, committed, target, starts, ends)
    rows = []
    for place in places:
        before = committed[place].offset if place in committed else None
        after = targets.get(place)
        if after is not None and place in starts and place in ends:
            after = min(max(after, starts[place]), ends[place])
        rows.append(
            {
                "topic": place[0],
                "partition": place[1],
                "before": before,
                "after": after,
                "change": None if before is None or after is None else after - before,
            }
        )
    return rows


def _offsets(results: Mapping[TopicPartition, topics.ListedOffset]) -> dict[TopicPartition, int]:
    return {place: result.offset for place, result in results.items() if not result.error}


def _targets(
    cluster: Cluster,
    partitions: Sequence[Any],
    committed: Mapping[TopicPartition, CommittedOffset],
    target: str,
    starts: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> Mapping[TopicPartition, int]:
    """The target offset of each partition, not yet limited to its log. Raises InvalidTargetError, ClientError."""
    word = target.strip().lower()
    current = {place: committed[place].offset if place in committed else ends.get(place, 0) for place in ends}
    if word in ("earliest", "beginning", "start"):
        return starts
    if word in ("latest", "end"):
        return ends
    if word == "current":
        return current
    if re.fullmatch(r"[+-]\d+", word):
        return {place: offset + int(word) for place, offset in current.items()}
    if word.isdigit():
        return dict.fromkeys(ends, int(word))
    now_ms = clock.now_ms()
    try:
        ago = _AGO.fullmatch(word)
        moment = now_ms - duration_ms(ago[1]) if ago else time_ms(target, now_ms)
    except ValueError:
        raise InvalidTargetError(
            f"'{target}' is not a valid target: write earliest, latest, current, an offset, +N or -N,"
            " a time such as 2026-01-31T12:00, or '1h ago'"
        ) from None
    results = topics.list_offsets(cluster, partitions, moment)
    return {
        place: result.offset if result.offset >= 0 else ends[place]
        for place, result in results.items()
        if not result.error and place in ends
    }
