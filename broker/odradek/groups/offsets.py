"""The committed offsets of one group. Owned by the coordinator's loop; a replay of the group's records.

An offset expires when its group no longer needs it (KIP-211): a retention after the group became empty, or, where members
do not subscribe to its topic or there never were any, a retention after the commit.
"""

from __future__ import annotations

from collections.abc import Collection, ItemsView, Iterable, Iterator, MutableMapping
from typing import Any, Protocol

from odradek._ext.api.offset_commits import Committed
from odradek.groups.environment import Record
from odradek.protocol.schemas import group_records

NO_EXPIRY = -1

Place = tuple[str, int]
"""Topic and partition."""


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
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Record]: ...
    def items(self) -> ItemsView[Place, Committed] | list[tuple[Place, Committed]]:
        """Each place with what is to be committed there."""

    def put_into(self, offsets: MutableMapping[str, dict[int, Committed]]) -> None:
        """Store it in memory: {topic: {partition: Committed}}."""


class Offsets:
    """What one group has committed."""

    def __init__(self) -> None:
        self._of_topic: dict[str, dict[int, Committed]] = {}

    def __bool__(self) -> bool:
        return bool(self._of_topic)

    def __iter__(self) -> Iterator[tuple[str, int, Committed]]:
        for topic, partitions in self._of_topic.items():
            for partition, committed in partitions.items():
                yield topic, partition, committed

    def __len__(self) -> int:
        return sum(len(partitions) for partitions in self._of_topic.values())

    def get(self, topic: str, partition: int) -> Committed | None:
        """None if nothing is committed there."""
        return self._of_topic.get(topic, {}).get(partition)

    def put(self, topic: str, partition: int, committed: Committed) -> None:
        """Replace what is committed there."""
        self._of_topic.setdefault(topic, {})[partition] = committed

    def put_all(self, commit: CommitRequest) -> None:
        """Take over all that a commit stores."""
        commit.put_into(self._of_topic)

    def remove(self, topic: str, partition: int) -> None:
        """Forget; nothing if there is none."""
        partitions = self._of_topic.get(topic)
        if partitions is not None:
            partitions.pop(partition, None)
            if not partitions:
                del self._of_topic[topic]

    def topics(self) -> list[tuple[str, dict[int, Committed]]]:
        """Each topic with what is committed in it by partition: live, but for the list."""
        return list(self._of_topic.items())

    def without(self, topics: Collection[str]) -> Offsets:
        """What is committed in other topics: live, as far as each topic goes."""
        found = Offsets()
        found._of_topic = {name: partitions for name, partitions in self._of_topic.items() if name not in topics}
        return found

    def of_topics(self, topics: Iterable[str]) -> list[Place]:
        """All places in these topics."""
        return [(topic, partition) for topic in topics for partition in self._of_topic.get(topic, {})]

    def expired(
        self, now_ms: int, retention_ms: int, needed: set[str] | None, empty_since_ms: int | None
    ) -> list[Place]:
        """Places whose offset is to go.

        :param needed: topics that members subscribe to; None when that is not known: nothing expires then.
        :param empty_since_ms: wall clock when the group lost its last member; None for one that never had any.
        """
        if needed is None:
            return []
        found = []
        for topic, partition, committed in self:
            if topic in needed:
                continue
            if committed.expire_timestamp_ms != NO_EXPIRY:
                expires_ms = committed.expire_timestamp_ms
            else:
                expires_ms = max(committed.commit_timestamp_ms, empty_since_ms or 0) + retention_ms
            if now_ms >= expires_ms:
                found.append((topic, partition))
        return found


def offset_record(group_id: str, topic: str, partition: int, committed: Committed | None) -> Record:
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


def committed_of(value: Any) -> Committed:
    """From a record's value."""
    return Committed(value.offset, value.leader_epoch, value.metadata, value.commit_timestamp, value.expire_timestamp)
