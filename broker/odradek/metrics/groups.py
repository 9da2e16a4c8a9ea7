"""Families about consumer groups, and about readers with or without commits: offsets, lag in records, lag in seconds.

Pure functions; the collector calls them with its lock held.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from odradek._ext.shm.overview import Partition
from odradek.metrics.client_labels import cut
from odradek.metrics.exposition import LINE_BYTES, Family, Labels, Sample, Shares, TextLimit, escape
from odradek.metrics.group_rows import GroupRow
from odradek.metrics.lag import EndHistory
from odradek.metrics.names import METRICS
from odradek.metrics.pages import PositionRow
from odradek.metrics.partitions import Rows, serves
from odradek.topic_partition import TopicPartition

STATES = ("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty", "Assigning", "Reconciling")
"""Kafka's names of group states, of both protocols."""


MOST_LAGS = 250_000
"""The largest number of partitions of groups whose lag one scrape computes."""

READER_ENDS_AFTER_MS = 2 * 60_000
"""The series of a reader end this long after the last connection that read the partition was closed or stopped reading it. A
reader that connects again sooner continues its series. Each alert about readers waits longer than this."""


class Lag(NamedTuple):
    """The lag of a reader in one partition.

    :param offset: the next offset to read. :param lag: records. :param seconds: since the high watermark passed `offset`.
    """

    topic: str
    partition: int
    offset: int
    lag: int
    seconds: float


class Reader(NamedTuple):
    """A client that fetches, and its lag in one partition.

    :param back_ms: when its position last moved back (`PositionRow.back_ms`); 0: never.
    """

    principal: str
    client_id: str
    lag: Lag
    back_ms: int = 0


def lag_of(topic: str, row: Partition, offset: int, history: EndHistory, now_ms: int) -> Lag:
    """Return the lag of a reader whose next offset is `offset`. :param now_ms: by the clock of the history."""
    seconds = history.lag_seconds(row.slot, row.incarnation, offset, now_ms)
    behind = max(0, row.high_watermark - offset)
    return Lag(topic, row.partition, offset, behind, seconds if behind else 0.0)


def group_lags(group: GroupRow, rows: Rows, history: EndHistory, now_ms: int) -> Iterator[Lag]:
    """Yield the lag of a group in each partition with a committed offset whose log is open on this broker."""
    for topic, offsets in group.offsets.items():
        for row in rows.get(topic, ()):
            offset = offsets.get(row.partition)
            if offset is not None and serves(row):
                yield lag_of(topic, row, offset, history, now_ms)


def size_of(group: GroupRow) -> int:
    """Return the number of partitions in which a group has committed offsets."""
    return sum(len(offsets) for offsets in group.offsets.values())


class _Sums(NamedTuple):
    """Sums of a group over the partitions of a topic. ``lag``: None if no lag is known; ``unknown``: partitions without one."""

    labels: Labels
    offsets: int
    lag: int | None
    unknown: int


def committed_offsets(group: GroupRow, rows: Rows) -> dict[str, dict[int, int]]:
    """The committed offsets of a group in partitions that exist, by topic and partition; topics without one are left out."""
    found = {}
    for topic, offsets in group.offsets.items():
        existing = {row.partition for row in rows.get(topic, ())}
        if of_topic := {number: offset for number, offset in offsets.items() if number in existing}:
            found[topic] = of_topic
    return found


def _sums_of(group_id: str, topic: str, committed: Mapping[int, int], lags: Mapping[TopicPartition, Lag]) -> _Sums:
    known = [lags[topic, number].lag for number in committed if (topic, number) in lags]
    labels = Labels(consumergroup=group_id, topic=topic)
    return _Sums(labels, sum(committed.values()), sum(known) if known else None, len(committed) - len(known))


def group_families(
    groups: Sequence[GroupRow],
    rows: Rows,
    topics: set[str],
    names: set[str],
    history: EndHistory,
    now_ms: int,
    limit: TextLimit,
) -> Iterator[Family]:
    """Yield kafka_exporter's families of groups, and the lag in seconds.

    If the text is limited, each group has an equal part of each family, and its series with the smallest lag are left out: a
    group with very many partitions does not push others out, and is not left out itself. So a group is complete unless it has
    more than its part, and of each group the lags that somebody would act on are there. The number of partitions whose lag is
    computed is divided in the same way; of a group with more than its part only the members are shown.

    :param topics: topics that have series. :param names: groups that have series.
    """
    offsets: list[tuple[Labels, int]] = []
    places: list[tuple[Labels, Lag]] = []
    sums: list[_Sums] = []
    named = sorted((group for group in groups if group.group_id in names), key=size_of)
    of_work, of_partitions, of_sums = Shares(MOST_LAGS, len(named)), limit.shares(len(named)), limit.shares(len(named))
    for group in named:
        if not of_work.take([size_of(group)]):
            limit.left_out += 3 * size_of(group) + 3 * len(group.offsets)
            continue
        size = LINE_BYTES + len(escape(cut(group.group_id)).encode("utf-8", "replace"))
        lags = {(lag.topic, lag.partition): lag for lag in group_lags(group, rows, history, now_ms)}
        committed = {topic: of for topic, of in committed_offsets(group, rows).items() if topic in topics}
        shown = [(topic, number) for topic, of in committed.items() for number in of]
        count = of_partitions.take([size + len(topic) for topic, _ in shown])
        if count < len(shown):
            limit.left_out += 3 * (len(shown) - count)
            shown = sorted(shown, key=lambda place: lags[place].lag if place in lags else -1, reverse=True)[:count]
        for topic, number in shown:
            labels = Labels(consumergroup=group.group_id, topic=topic, partition=str(number))
            offsets.append((labels, committed[topic][number]))
            if (topic, number) in lags:
                places.append((labels, lags[topic, number]))
        of_topics = [_sums_of(group.group_id, topic, of, lags) for topic, of in committed.items()]
        count = of_sums.take([size + len(topic) for topic in committed])
        if count < len(of_topics):
            limit.left_out += 3 * (len(of_topics) - count)
            of_topics = sorted(of_topics, key=lambda row: -1 if row.lag is None else row.lag, reverse=True)[:count]
        sums += of_topics
    prefix = "kafka_consumergroup_"
    yield Family(METRICS[prefix + "current_offset"], [("", labels, offset) for labels, offset in offsets])
    yield Family(METRICS[prefix + "lag"], [("", labels, lag.lag) for labels, lag in places])
    yield Family(METRICS[prefix + "current_offset_sum"], [("", row.labels, row.offsets) for row in sums])
    yield Family(METRICS[prefix + "lag_sum"], [("", row.labels, row.lag) for row in sums if row.lag is not None])
    yield Family(
        METRICS["odradek_consumergroup_unknown_lag_partitions"], [("", row.labels, row.unknown) for row in sums]
    )
    yield Family(METRICS["odradek_consumergroup_lag_seconds"], [("", labels, lag.seconds) for labels, lag in places])
    members: list[Sample] = [
        ("", Labels(consumergroup=group.group_id), group.members) for group in groups if group.group_id in names
    ]
    yield Family(METRICS[prefix + "members"], members)
    states = Counter(dict.fromkeys(STATES, 0))
    states.update(group.state for group in groups)
    counts: list[Sample] = [("", Labels(state=state), count) for state, count in states.items()]
    yield Family(METRICS["kafka_coordinator_group_groupmetadatamanager_numgroups"], counts)


def readers(
    positions: Iterable[PositionRow], where: Mapping[int, tuple[str, Partition]], history: EndHistory, now_ms: int
) -> Iterator[Reader]:
    """Yield the lag of each reader, over all workers.

    If a reader has several positions in a partition, the newest one that an open connection still reads counts, else the
    newest.

    :param where: {slot: (topic, partition)}.
    """
    newest: dict[tuple[str, str, int], PositionRow] = {}
    back_ms: dict[tuple[str, str, int, int], int] = {}
    for position in positions:
        key = position.principal, position.client_id, position.slot
        known = newest.get(key)
        place_key = (*key, position.incarnation)  # a slot's former partition may have had the same reader
        back_ms[place_key] = max(position.back_ms, back_ms.get(place_key, 0))
        if known is None or (known.readers > 0, known.at_ms) <= (position.readers > 0, position.at_ms):
            newest[key] = position
    for key, position in newest.items():
        place = where.get(position.slot)
        if place is None or place[1].incarnation != position.incarnation or not serves(place[1]):
            continue
        lag = lag_of(place[0], place[1], position.offset, history, now_ms)
        yield Reader(position.principal, position.client_id, lag, back_ms[*key, position.incarnation])


def live_positions(positions: Iterable[PositionRow], now_ms: int, idle_ms: int) -> Iterator[PositionRow]:
    """Yield the positions of readers that have not ended.

    :param now_ms: by the wall clock. :param idle_ms: `metrics.usage.idle.ms`.
    """
    for position in positions:
        if position.at_ms >= now_ms - (idle_ms if position.readers else min(idle_ms, READER_ENDS_AFTER_MS)):
            yield position


def reader_families(named_readers: Iterable[Reader]) -> Iterator[Family]:
    """Yield position and lag of readers. :param named_readers: readers whose client and topic have series."""
    shown = [
        (
            Labels(
                principal=reader.principal,
                client_id=reader.client_id,
                topic=reader.lag.topic,
                partition=str(reader.lag.partition),
            ),
            reader,
        )
        for reader in named_readers
    ]
    yield Family(METRICS["odradek_reader_position"], [("", labels, reader.lag.offset) for labels, reader in shown])
    yield Family(METRICS["odradek_reader_lag"], [("", labels, reader.lag.lag) for labels, reader in shown])
    yield Family(METRICS["odradek_reader_lag_seconds"], [("", labels, reader.lag.seconds) for labels, reader in shown])
    yield Family(
        METRICS["odradek_reader_last_back_timestamp_seconds"],
        [("", labels, reader.back_ms / 1000) for labels, reader in shown if reader.back_ms],
    )
