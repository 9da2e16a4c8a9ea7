"""The committed offsets of one group, as in the group's records. Used in the coordinator's loop.

An offset expires when its group no longer needs it (KIP-211): offsets.retention.minutes after the group became empty; or
after the commit, if no member subscribes to its topic or the group never had members.
"""

from __future__ import annotations

from collections.abc import Collection, ItemsView, Iterable, Iterator
from typing import Any, Protocol

from odradek._ext.api.offset_commits import CommittedOffset
from odradek.coordination.environment import Record
from odradek.protocol.schemas import group_records
from odradek.topic_partition import TopicPartition

NO_EXPIRY = -1


class CommitRequest(Protocol):
    """What a client asks the coordinator to store: a native `OffsetCommit`, or a `Commit` (commits.py).

    Its length is the number of its records, and iteration gives them.

    `generation_id` is -1 for a client that assigns partitions to itself. `knows_epochs`: the client knows the errors of
    KIP-848 (from version 9 on).
    """

    @property
    def group_id(self) -> str: ...
    @property
    def member_id(self) -> str: ...
    @property
    def generation_id(self) -> int: ...
    @property
    def instance_id(self) -> str | None: ...
    @property
    def knows_epochs(self) -> bool: ...
    @property
    def metadata_size(self) -> int:
        """The characters of the metadata of all offsets."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Record]: ...
    def items(self) -> ItemsView[TopicPartition, CommittedOffset] | list[tuple[TopicPartition, CommittedOffset]]:
        """Each partition with the offset to commit."""

    def put_into(self, offsets: dict[str, dict[int, CommittedOffset]]) -> None:
        """Store the offsets in memory: {topic: {partition: CommittedOffset}}."""


class Offsets:
    """Committed offsets by topic and partition.

    :ivar metadata_size: the characters of the metadata of all offsets.
    """

    def __init__(self) -> None:
        self._of_topic: dict[str, dict[int, CommittedOffset]] = {}
        self.metadata_size = 0

    def __bool__(self) -> bool:
        return bool(self._of_topic)

    def __iter__(self) -> Iterator[tuple[str, int, CommittedOffset]]:
        for topic, partitions in self._of_topic.items():
            for partition, committed in partitions.items():
                yield topic, partition, committed

    def __len__(self) -> int:
        return sum(len(partitions) for partitions in self._of_topic.values())

    def get(self, topic: str, partition: int) -> CommittedOffset | None:
        """The committed offset of a partition; None without one."""
        return self._of_topic.get(topic, {}).get(partition)

    def put(self, topic: str, partition: int, committed: CommittedOffset) -> None:
        """Store a committed offset."""
        partitions = self._of_topic.setdefault(topic, {})
        former, partitions[partition] = partitions.get(partition), committed
        self.metadata_size += len(committed.metadata) - (0 if former is None else len(former.metadata))

    def put_all(self, commit: CommitRequest) -> None:
        """Store all offsets of a commit."""
        if commit.metadata_size or self.metadata_size:
            self.metadata_size += self.growth(commit)
        commit.put_into(self._of_topic)

    def growth(self, commit: CommitRequest) -> int:
        """The characters of metadata that a commit adds, less those that it replaces."""
        if not self.metadata_size:
            return commit.metadata_size
        growth = 0
        for place, committed in commit.items():
            former = self.get(*place)
            growth += len(committed.metadata) - (0 if former is None else len(former.metadata))
        return growth

    def remove(self, topic: str, partition: int) -> None:
        """Remove a committed offset, if it exists."""
        partitions = self._of_topic.get(topic)
        if partitions is not None:
            former = partitions.pop(partition, None)
            self.metadata_size -= 0 if former is None else len(former.metadata)
            if not partitions:
                del self._of_topic[topic]

    def topics(self) -> list[tuple[str, dict[int, CommittedOffset]]]:
        """A list of the topics with their committed offsets by partition; the dicts are live."""
        return list(self._of_topic.items())

    def without(self, topics: Collection[str]) -> Offsets:
        """The offsets of all other topics; the data per topic is live."""
        remaining = Offsets()
        remaining._of_topic = {name: partitions for name, partitions in self._of_topic.items() if name not in topics}
        return remaining

    def of_topics(self, topics: Iterable[str]) -> list[TopicPartition]:
        """All places with committed offsets in these topics."""
        return [(topic, partition) for topic in topics for partition in self._of_topic.get(topic, {})]

    def expired(
        self, now_ms: int, retention_ms: int, needed: set[str] | None, empty_since_ms: int | None
    ) -> list[TopicPartition]:
        """Places with expired offsets.

        :param needed: topics that members subscribe to, whose offsets do not expire; None if unknown: no offset expires.
        :param empty_since_ms: wall clock when the group lost its last member; None if it never had members.
        """
        if needed is None:
            return []
        places = []
        for topic, partition, committed in self:
            if topic in needed:
                continue
            if committed.expire_timestamp_ms != NO_EXPIRY:
                expires_ms = committed.expire_timestamp_ms
            else:
                expires_ms = max(committed.commit_timestamp_ms, empty_since_ms or 0) + retention_ms
            if now_ms >= expires_ms:
                places.append((topic, partition))
        return places


def offset_record(group_id: str, topic: str, partition: int, committed: CommittedOffset | None) -> Record:
    """The record of one committed offset; None makes the tombstone."""
    kind = group_records.OFFSET_COMMIT
    value = None
    if committed is not None:
        value = kind.value(
            offset=committed.offset,
            leader_epoch=committed.leader_epoch,
            metadata=committed.metadata,
            commit_timestamp=committed.commit_timestamp_ms,
            expire_timestamp=committed.expire_timestamp_ms,
        )
        if committed.expire_timestamp_ms != NO_EXPIRY:
            kind = kind._replace(written=1)  # the only version that has the field
    return group_records.record(kind, value, group=group_id, topic=topic, partition=partition)


def committed_of(value: Any) -> CommittedOffset:
    """The committed offset in the value of a record."""
    return CommittedOffset(
        value.offset, value.leader_epoch, value.metadata, value.commit_timestamp, value.expire_timestamp
    )
