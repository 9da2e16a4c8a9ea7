"""Where `group reset-offsets` puts a group: what people may write for it, and the offsets that it comes to."""

import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

from odradek.cli.values import duration_ms, time_ms
from odradek.clients import topics
from odradek.clients.cluster import Cluster
from odradek.clients.groups import Committed, Place

_AGO = re.compile(r"(.+?)\s+ago")


class NoTarget(ValueError):
    """What was written cannot be meant; one line."""


def chosen_places(cluster: Cluster, words: Sequence[str]) -> list[Place]:
    """The partitions of "topic" and "topic:0,1". Raises NoTarget, Refused for a topic that there is not, ClientError."""
    wanted: dict[str, set[int] | None] = {}
    for word in words:
        name, colon, numbers = word.partition(":")
        if not colon:
            wanted[name] = None
            continue
        try:
            wanted[name] = (wanted.get(name) or set()) | {int(number) for number in numbers.split(",")}
        except ValueError:
            raise NoTarget(f"'{word}' is not like orders:0,3 (topic, colon, numbers of partitions)") from None
    places = []
    for info in cluster.topics(list(wanted)):
        indexes = {part.number for part in info.partitions}
        asked = wanted[info.name]
        strange = sorted((asked or set()) - indexes)
        if strange:
            raise NoTarget(f"topic '{info.name}' has no partition {strange[0]}; it has 0 to {len(indexes) - 1}")
        places += [(info.name, index) for index in sorted(indexes if asked is None else asked)]
    return places


def planned(
    cluster: Cluster, places: Sequence[Place], committed: Mapping[Place, Committed], target: str
) -> list[dict[str, Any]]:
    """A row for each partition: before, after (None where it cannot be told), change. Raises NoTarget, ClientError."""
    there = cluster.metadata({name for name, _ in places}).topics
    wanted = set(places)
    partitions = [part for one in there.values() for part in one.partitions if (part.topic, part.number) in wanted]
    starts = _offsets(topics.list_offsets(cluster, partitions, topics.EARLIEST))
    ends = _offsets(topics.list_offsets(cluster, partitions, topics.LATEST))
    goals = _goals(cluster, partitions, committed, target, starts, ends)
    rows = []
    for place in places:
        before = committed[place].offset if place in committed else None
        after = goals.get(place)
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


def _offsets(found: Mapping[Place, topics.ListedOffset]) -> dict[Place, int]:
    return {place: one.offset for place, one in found.items() if not one.error}


def _goals(
    cluster: Cluster,
    partitions: Sequence[Any],
    committed: Mapping[Place, Committed],
    target: str,
    starts: Mapping[Place, int],
    ends: Mapping[Place, int],
) -> Mapping[Place, int]:
    word = target.strip().lower()
    here = {place: committed[place].offset if place in committed else ends.get(place, 0) for place in ends}
    if word in ("earliest", "beginning", "start"):
        return starts
    if word in ("latest", "end"):
        return ends
    if word == "current":
        return here
    if re.fullmatch(r"[+-]\d+", word):
        return {place: offset + int(word) for place, offset in here.items()}
    if word.isdigit():
        return dict.fromkeys(ends, int(word))
    now_ms = time.time_ns() // 1_000_000
    try:
        ago = _AGO.fullmatch(word)
        moment = now_ms - duration_ms(ago[1]) if ago else time_ms(target, now_ms)
    except ValueError:
        raise NoTarget(
            f"'{target}' is no place to go to: write earliest, latest, current, an offset, +N or -N,"
            " a time such as 2026-01-31T12:00, or '1h ago'"
        ) from None
    found = topics.list_offsets(cluster, partitions, moment)
    return {
        place: one.offset if one.offset >= 0 else ends[place]
        for place, one in found.items()
        if not one.error and place in ends
    }
