"""The committed offsets of one group. Owned by the coordinator's loop; a replay of the group's records.

An offset expires when its group no longer needs it (KIP-211): a retention after the group became empty, or, where members
do not subscribe to its topic or there never were any, a retention after the commit.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from odradek._ext.api.offset_commits import Committed, OffsetCommit
from odradek.groups.environment import Record
from odradek.protocol.schemas import group_records

NO_EXPIRY = -1
LONGEST_STRING = 32767
_KEY_HEAD, _LENGTH, _PARTITION = struct.Struct(">hh"), struct.Struct(">h"), struct.Struct(">i")
_VALUE_HEAD, _TIME = struct.Struct(">hqih"), struct.Struct(">q")


Place = tuple[str, int]
"""Topic and partition."""


class Commit(NamedTuple):
    """An OffsetCommit: who commits what. `generation_id` is -1 for a client that assigns itself.

    :param knows_epochs: the client knows the errors of KIP-848 (from version 9 on).
    """

    group_id: str
    member_id: str
    generation_id: int
    instance_id: str | None
    offsets: Mapping[Place, Committed]
    knows_epochs: bool = True


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

    def put_all(self, commit: OffsetCommit) -> None:
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
    if committed is not None and committed.expire_timestamp_ms == NO_EXPIRY:
        # The same bytes as below, by hand: this is what a commit costs.
        group, name, note = group_id.encode(), topic.encode(), committed.metadata.encode()
        if max(len(group), len(name), len(note)) <= LONGEST_STRING:
            key = b"%b%b%b%b%b" % (
                _KEY_HEAD.pack(1, len(group)), group, _LENGTH.pack(len(name)), name, _PARTITION.pack(partition)
            )  # fmt: skip
            head = _VALUE_HEAD.pack(3, committed.offset, committed.leader_epoch, len(note))
            return key, head + note + _TIME.pack(committed.commit_timestamp_ms)
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
