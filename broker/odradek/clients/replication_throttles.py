"""Throttles of replication (KIP-73) for moves of partitions: sets them as kafka-reassign-partitions does, and removes them.

A throttle is a rate in the run-time configuration of each broker that takes part, and two lists in the configuration of each
topic. The lists name replicas as `partition:broker`; `*` stands for all, which an operator sets and nothing here changes.
Functions over a `Cluster`.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from odradek.clients import configs
from odradek.clients.cluster import Cluster
from odradek.clients.configs import Resource
from odradek.clients.errors import ClientError
from odradek.clients.move_plan import Move
from odradek.topic_partition import TopicPartition

RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LISTS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
NO_RATES = (None, None)
ALL = "*"
AT_RUN_TIME = 2
"""The source of a value that was set for one broker at run time, see `configs.SOURCES`."""

Lists = tuple[frozenset[str], frozenset[str]]
"""The entries of the lists of a topic, in the order of `LISTS`."""


class Throttle(NamedTuple):
    """What `throttle` has set. :param added: by topic, the entries that it added to the lists.

    :param rates: by broker, the values of `RATES` that were set before; None: none.
    """

    added: Mapping[str, Lists]
    rates: Mapping[int, tuple[str | None, ...]]


class Removed(NamedTuple):
    """What `finish` removed. :param topics: whose lists are empty now. :param brokers: whose rates it removed.

    :param kept: topics whose lists are in use, so that the rates stay.
    :param problems: what could not be removed, with the reason.
    """

    topics: Sequence[str]
    brokers: Sequence[int]
    kept: Sequence[str]
    problems: Sequence[str]


def entries(moves: Iterable[Move]) -> dict[str, Lists]:
    """The replicas to throttle, by topic: all present ones as leaders, and the new ones as followers."""
    leaders: dict[str, set[str]] = {}
    followers: dict[str, set[str]] = {}
    for move in moves:
        topic, number = move.partition.place
        added = move.added or _arriving(move)
        if not added:
            continue
        leaders.setdefault(topic, set()).update(
            f"{number}:{broker_id}" for broker_id in move.partition.present if broker_id not in added
        )
        followers.setdefault(topic, set()).update(f"{number}:{broker_id}" for broker_id in added)
    return {topic: (frozenset(leaders[topic]), frozenset(followers[topic])) for topic in leaders}


def _arriving(move: Move) -> tuple[int, ...]:
    """The new replicas of a reassignment that is in progress already: those that are not in sync yet."""
    return tuple(broker_id for broker_id in move.target if broker_id not in move.partition.in_sync)


def throttle(
    cluster: Cluster,
    moves: Sequence[Move],
    rate: int,
    brokers: Collection[int],
    resumed: Collection[TopicPartition] = (),
    restore: bool = True,
) -> Throttle:
    """Limit the copying for moves to `rate` bytes per second, at each broker. Raises ClientError.

    :param brokers: the registered brokers. The rates of those that take part in the moves are set.
    :param resumed: moves that an earlier command began: what it left in the lists is removed with this throttle.
    :param restore: note the present rates, so that `unthrottle` restores them. False if they may be those of another move.
    """
    wanted = entries(moves)
    busy = {broker_id for move in moves for broker_id in (*move.partition.present, *move.target)} & set(brokers)
    before = {broker_id: _rates_of(cluster, broker_id) if restore else NO_RATES for broker_id in sorted(busy)}
    present = _lists_of(cluster, sorted(wanted))
    added: dict[str, Lists] = {}
    for topic, lists in wanted.items():
        left = _entries(topic, lists, resumed.__contains__)
        leaders, followers = (
            (more - has) | earlier for has, more, earlier in zip(present[topic], lists, left, strict=True)
        )
        added[topic] = leaders, followers
        values = {
            key: _joined(has | more)
            for key, has, more in zip(LISTS, present[topic], lists, strict=True)
            if ALL not in has and more - has
        }
        if values:
            configs.alter(cluster, Resource("topic", topic), values)
    for broker_id in before:
        configs.alter(cluster, Resource("broker", str(broker_id)), dict.fromkeys(RATES, str(rate)))
    return Throttle(added, before)


def unthrottle(cluster: Cluster, set_: Throttle, in_progress: int) -> list[str]:
    """Remove what `throttle` has set, and restore the former rates. Returns what could not be removed, with the reason.

    Raises ClientError if no broker responds.

    :param in_progress: the number of other reassignments. With any, the rates stay, because they may limit those, too.
    """
    problems = []
    for topic, lists in _lists_of(cluster, sorted(set_.added)).items():
        problems += _attempt(cluster, Resource("topic", topic), *_without(lists, set_.added[topic]))
    if in_progress:
        brokers = ", ".join(map(str, sorted(set_.rates)))
        others = "another reassignment is" if in_progress == 1 else f"{in_progress} other reassignments are"
        return [*problems, f"the rates of the brokers {brokers} stay, because {others} in progress"]
    for broker_id, former in set_.rates.items():
        values = {key: value for key, value in zip(RATES, former, strict=True) if value is not None}
        deletions = [key for key, value in zip(RATES, former, strict=True) if value is None]
        problems += _attempt(cluster, Resource("broker", str(broker_id)), values, deletions)
    return problems


def finish(
    cluster: Cluster, topics: Collection[str], busy: Collection[TopicPartition], brokers: Iterable[int]
) -> Removed:
    """Remove the throttles of moves that have ended: entries in the lists of topics, and rates if no list is left.

    A rate that was set for another purpose cannot be distinguished, and is removed with them, as kafka-reassign-partitions
    --verify does. Raises ClientError.

    :param topics: the topics to look at: all of the cluster, or some; in the second case rates stay.
    :param busy: the reassignments in progress. :param brokers: the registered brokers whose rates are removed.
    """
    problems: list[str] = []
    done, kept = [], []
    for topic, lists in sorted(_lists_of(cluster, sorted(topics)).items()):
        ended = _entries(topic, lists, lambda place: place not in busy)
        if any(ended):
            problems += _attempt(cluster, Resource("topic", topic), *_without(lists, ended))
        if any(has - gone for has, gone in zip(lists, ended, strict=True)):
            kept.append(topic)
        elif any(ended):
            done.append(topic)
    freed = []
    if not kept and not busy:
        for broker_id in brokers:
            if any(value is not None for value in _rates_of(cluster, broker_id)):
                found = _attempt(cluster, Resource("broker", str(broker_id)), {}, RATES)
                problems += found
                freed += [] if found else [broker_id]
    return Removed(done, freed, kept, problems)


def _attempt(cluster: Cluster, resource: Resource, values: Mapping[str, str], deletions: Collection[str]) -> list[str]:
    if not values and not deletions:
        return []
    try:
        configs.alter(cluster, resource, values, deletions)
    except ClientError as error:
        return [f"{resource}: {', '.join([*values, *deletions])}: {error}"]
    return []


def _entries(topic: str, lists: Lists, chosen: Callable[[TopicPartition], bool]) -> Lists:
    """The entries of chosen partitions in the lists of a topic."""
    found = [frozenset(entry for entry in has if entry != ALL and chosen((topic, _number(entry)))) for has in lists]
    return found[0], found[1]


def _without(present: Lists, gone: Lists) -> tuple[dict[str, str], list[str]]:
    """The settings (values, deletions) that remove entries from the lists of a topic."""
    values, deletions = {}, []
    for key, has, entries_ in zip(LISTS, present, gone, strict=True):
        if ALL in has or has.isdisjoint(entries_):
            continue
        if left := has - entries_:
            values[key] = _joined(left)
        else:
            deletions.append(key)
    return values, deletions


def _lists_of(cluster: Cluster, topics: Sequence[str]) -> dict[str, Lists]:
    """The lists of the topics that exist."""
    found = [configs.of_topics(cluster, topics, key) for key in LISTS]
    return {
        topic: (_split(found[0].get(topic)), _split(found[1].get(topic)))
        for topic in topics
        if topic in found[0] or topic in found[1]
    }


def _split(entry: configs.Entry | None) -> frozenset[str]:
    text = "" if entry is None else entry.value or ""
    return frozenset(word for word in (part.strip() for part in text.split(",")) if word)


def _joined(words: Iterable[str]) -> str:
    return ",".join(sorted(words, key=lambda word: (_number(word), word)))


def _number(entry: str) -> int:
    number = entry.partition(":")[0]
    return int(number) if number.isdigit() else -1


def _rates_of(cluster: Cluster, broker_id: int) -> tuple[str | None, ...]:
    """The values of `RATES` that are set for this broker at run time."""
    known = configs.describe(cluster, Resource("broker", str(broker_id)), RATES)
    return tuple(
        next((value for _, value, source in known[key].synonyms if source == AT_RUN_TIME), None)
        if key in known
        else None
        for key in RATES
    )
