"""Families about consumer groups, and about readers, which may never commit: offsets, lag in records, lag in seconds."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from odradek._ext.shm.overview import Partition
from odradek.metrics.exposition import Family, Labels, Sample
from odradek.metrics.group_rows import GroupRow
from odradek.metrics.lag import EndHistory
from odradek.metrics.names import METRICS
from odradek.metrics.pages import PositionRow
from odradek.metrics.partitions import Rows, serves

STATES = ("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty", "Assigning", "Reconciling")
"""What Kafka calls the states of groups, of both protocols."""


READER_ENDS_AFTER_MS = 2 * 60_000
"""The series of a reader end this long after the last connection that read the partition was closed or turned to others. A
reader that connects again sooner goes on with its series. Each alert about readers waits longer than this."""


class Lag(NamedTuple):
    """How far a reader is behind in one partition. :param lag: records. :param seconds: since the log went past `offset`."""

    topic: str
    partition: int
    offset: int
    lag: int
    seconds: float


class Reader(NamedTuple):
    """A client that fetches, and how far it is behind in one partition."""

    principal: str
    client_id: str
    lag: Lag


def lag_of(topic: str, row: Partition, offset: int, history: EndHistory, now_ms: int) -> Lag:
    """The lag of a reader that goes on at `offset`. :param now_ms: by the clock of the history."""
    seconds = history.lag_seconds(row.slot, row.incarnation, offset, now_ms)
    behind = max(0, row.high_watermark - offset)
    return Lag(topic, row.partition, offset, behind, seconds if behind else 0.0)


def group_lags(group: GroupRow, rows: Rows, history: EndHistory, now_ms: int) -> Iterator[Lag]:
    """The lag of one group wherever it has committed, partitions that are not open here left out."""
    for topic, offsets in group.offsets.items():
        for row in rows.get(topic, ()):
            offset = offsets.get(row.partition)
            if offset is not None and serves(row):
                yield lag_of(topic, row, offset, history, now_ms)


def group_families(
    groups: Sequence[GroupRow], rows: Rows, topics: set[str], names: set[str], history: EndHistory, now_ms: int
) -> Iterator[Family]:
    """What kafka_exporter tells of groups, and the lag in seconds. :param names: groups shown; `topics`: likewise."""
    places: list[tuple[Labels, Lag]] = []
    sums: list[tuple[Labels, int, int]] = []
    for group in groups:
        if group.group_id not in names:
            continue
        of_topic: dict[str, list[Lag]] = {}
        for lag in group_lags(group, rows, history, now_ms):
            of_topic.setdefault(lag.topic, []).append(lag)
        for topic, lags in of_topic.items():
            if topic not in topics:
                continue
            places += [
                (Labels(consumergroup=group.group_id, topic=topic, partition=str(lag.partition)), lag) for lag in lags
            ]
            labels = Labels(consumergroup=group.group_id, topic=topic)
            sums.append((labels, sum(lag.offset for lag in lags), sum(lag.lag for lag in lags)))
    prefix = "kafka_consumergroup_"
    yield Family(METRICS[prefix + "current_offset"], [("", labels, lag.offset) for labels, lag in places])
    yield Family(METRICS[prefix + "lag"], [("", labels, lag.lag) for labels, lag in places])
    yield Family(METRICS[prefix + "current_offset_sum"], [("", labels, offsets) for labels, offsets, _ in sums])
    yield Family(METRICS[prefix + "lag_sum"], [("", labels, lag) for labels, _, lag in sums])
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
    """How far each reader is behind, whichever worker it reads from.

    Of several positions the newest counts that is still read; if none is, the newest.

    :param where: slot to topic and partition.
    """
    newest: dict[tuple[str, str, int], PositionRow] = {}
    for position in positions:
        key = position.principal, position.client_id, position.slot
        known = newest.get(key)
        if known is None or (known.readers > 0, known.at_ms) <= (position.readers > 0, position.at_ms):
            newest[key] = position
    for position in newest.values():
        found = where.get(position.slot)
        if found is None or found[1].incarnation != position.incarnation or not serves(found[1]):
            continue
        lag = lag_of(found[0], found[1], position.offset, history, now_ms)
        yield Reader(position.principal, position.client_id, lag)


def live_positions(positions: Iterable[PositionRow], now_ms: int, idle_ms: int) -> Iterator[PositionRow]:
    """Those of readers that have not ended. :param now_ms: by the wall clock. :param idle_ms: `metrics.usage.idle.ms`."""
    for position in positions:
        if position.at_ms >= now_ms - (idle_ms if position.readers else min(idle_ms, READER_ENDS_AFTER_MS)):
            yield position


def reader_families(found: Iterable[Reader]) -> Iterator[Family]:
    """Position and lag of readers that have names."""
    shown = [
        (
            Labels(
                principal=one.principal, client_id=one.client_id, topic=one.lag.topic, partition=str(one.lag.partition)
            ),
            one.lag,
        )
        for one in found
    ]
    yield Family(METRICS["odradek_reader_position"], [("", labels, lag.offset) for labels, lag in shown])
    yield Family(METRICS["odradek_reader_lag"], [("", labels, lag.lag) for labels, lag in shown])
    yield Family(METRICS["odradek_reader_lag_seconds"], [("", labels, lag.seconds) for labels, lag in shown])
