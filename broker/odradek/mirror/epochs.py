"""Leader epochs of what was copied of a partition, and whether the source's log still has it (KIP-101, KIP-320).

Used in the thread of one lane. A leader that was elected although it lacked records (unclean leader election), or that lost
the end of its log, has other records at offsets that were copied before, or none. The leader epochs in the batches show that:
the leader is asked for the end offset of the epoch of the last copied record (OffsetForLeaderEpoch), as a follower asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from odradek.clients import topics
from odradek.clients.cluster import Cluster, Partition
from odradek.clients.errors import code_of
from odradek.clients.partition_leaders import STALE_LEADER
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import offset_for_leader_epoch as api
from odradek.topic_partition import TopicPartition

MOST = 8
"""Epochs of a partition that are remembered, in memory and in the metadata of its position."""
OF_CONSUMERS = 3
"""The first version of OffsetForLeaderEpoch that needs only the right to describe the topic (Kafka 2.3)."""
AS_CONSUMER = -1


class Epoch(NamedTuple):
    """:param start: the first offset that is known to have this leader epoch; older ones may have it too."""

    number: int
    start: int


@dataclass
class Epochs:
    """The newest leader epochs of what was fetched of a partition, ascending."""

    known: list[Epoch] = field(default_factory=list)

    @classmethod
    def noted(cls, metadata: Mapping[str, object]) -> Epochs:
        """Those in the metadata of a position. None if somebody else committed it: anything that is no list of pairs."""
        pairs = metadata.get("epochs")
        epochs = cls()
        for pair in pairs[-MOST:] if isinstance(pairs, list) else ():
            if not (isinstance(pair, list) and len(pair) == 2 and all(type(number) is int for number in pair)):
                return cls()
            if not epochs.note(*pair):
                return cls()
        return epochs

    @property
    def newest(self) -> int:
        """The epoch of the last record; -1 if it is unknown."""
        return self.known[-1].number if self.known else -1

    def note(self, number: int, offset: int) -> bool:
        """Note the epoch of the record at an offset; return False, and change nothing, if epochs go back. -1 is no epoch."""
        if number < 0 or number == self.newest:
            return True
        if number < self.newest:
            return False
        self.known.append(Epoch(number, offset))
        del self.known[:-MOST]
        return True

    def before(self, position: int) -> list[Epoch]:
        """Those of the records before a position."""
        return [epoch for epoch in self.known if epoch.start < position]

    def cut(self, position: int) -> None:
        """Forget the epochs of the records from a position on."""
        self.known = self.before(position)


class Asked(NamedTuple):
    """A partition whose records up to `position` were copied. :param partition: from the newest metadata."""

    partition: Partition
    position: int
    epochs: Epochs


class Diverged(NamedTuple):
    """The source's log is not the one that was copied.

    :param offset: the first offset with other records, or without; None: it is unknown. :param below: it is at most this one.
    """

    offset: int | None
    below: int


class Compared(NamedTuple):
    """Of some partitions: those that diverged, those whose leader changes just now, and those that are refused."""

    diverged: dict[TopicPartition, Diverged]
    again: set[TopicPartition]
    refused: dict[TopicPartition, ErrorCode]


class _Older(NamedTuple):
    """The next question: an older epoch. :param below: records from this offset on are known to differ."""

    number: int
    below: int


def compare(cluster: Cluster, asked: Iterable[Asked]) -> Compared:
    """Compare what was copied with the logs of the leaders, which the partitions must have. Raises ClientError.

    A partition is not compared if the epoch of its last copied record is unknown, or if its leader does not serve
    OffsetForLeaderEpoch for consumers (before Kafka 2.3). :param cluster: its connections have no requests in flight.
    """
    compared = Compared({}, set(), {})
    waiting = {(one.partition.topic, one.partition.number): one for one in asked if one.epochs.before(one.position)}
    wanted = {place: _Older(one.epochs.before(one.position)[-1].number, one.position) for place, one in waiting.items()}
    while wanted:
        answers = _ask(cluster, [waiting[place].partition for place in wanted], wanted)
        following: dict[TopicPartition, _Older] = {}
        for place, question in wanted.items():
            answer = answers.get(place)
            code = ErrorCode.NONE if answer is None else code_of(answer.error_code)
            if place not in answers or code in STALE_LEADER:
                compared.again.add(place)
            elif code:
                compared.refused[place] = code
            elif answer is not None:
                step = _judge(waiting[place], question, answer.leader_epoch, answer.end_offset)
                if isinstance(step, _Older):
                    following[place] = step
                elif step is not None:
                    compared.diverged[place] = step
        wanted = following
    for place, diverged in list(compared.diverged.items()):
        if diverged.offset is None and _emptied(cluster, waiting[place]):
            del compared.diverged[place]
    return compared


def _judge(one: Asked, question: _Older, found: int, end: int) -> Diverged | _Older | None:
    """What an answer means: the divergence, the next question, or None: the log has what was copied.

    :param found: the largest epoch of the leader up to the one of the question; it ends at the offset `end`.
    """
    known = one.epochs.before(one.position)
    if found == question.number and end >= 0:
        border = min((epoch.start for epoch in known if epoch.number > found), default=one.position)
        common = min(border, end)
        return None if common >= one.position else Diverged(common, common)
    if found < 0 or found >= question.number or end < 0:
        return Diverged(None, question.below)
    newer = min(
        epoch.start for epoch in known if epoch.number > found
    )  # records of this epoch are not in the leader's log
    below = min(question.below, newer, end)
    older = [epoch.number for epoch in known if epoch.number <= found]
    return _Older(older[-1], below) if older else Diverged(None, below)


def _emptied(cluster: Cluster, one: Asked) -> bool:
    """Whether the leader has deleted all that was copied, and so cannot know its epochs. Raises ClientError."""
    place = one.partition.topic, one.partition.number
    found = topics.list_offsets(cluster, [one.partition], topics.EARLIEST).get(place)
    return found is not None and not found.error and found.offset >= one.position


def _ask(
    cluster: Cluster, partitions: Iterable[Partition], wanted: Mapping[TopicPartition, _Older]
) -> dict[TopicPartition, Any]:
    """The answers of the leaders; None for a partition whose leader does not serve the request."""
    make = api.Request
    answers: dict[TopicPartition, Any] = {}
    for connection, led in cluster.by_leader(partitions):
        served = connection.serves(api.API_KEY)
        if served is None or served[1] < OF_CONSUMERS:
            answers.update({(partition.topic, partition.number): None for partition in led})
            continue
        by_name: dict[str, list[Any]] = {}
        for partition in led:
            by_name.setdefault(partition.topic, []).append(
                make.OffsetForLeaderPartition(
                    partition=partition.number,
                    current_leader_epoch=partition.leader_epoch,
                    leader_epoch=wanted[partition.topic, partition.number].number,
                )
            )
        request = make(
            replica_id=AS_CONSUMER,
            topics=[make.OffsetForLeaderTopic(topic=name, partitions=asked) for name, asked in by_name.items()],
        )
        response = connection.ask(api.SCHEMA, request, oldest=OF_CONSUMERS)
        for topic in response.topics:
            for answer in topic.partitions:
                answers[topic.topic, answer.partition] = answer
    return answers
