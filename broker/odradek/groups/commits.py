"""Commits of offsets on their way to the log: what a commit is, and what happens when its append ends.

Used in the coordinator's loop only.

A commit changes a group's offsets when its records are acknowledged, not when they are appended: until then a fetch of
offsets returns the previous ones, and the group remembers the commit in `under_way`. Offsets of a transaction are then pending
(`transactions.py`).
"""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from odradek._ext.api.offset_commits import CommittedOffset
from odradek.coordination.environment import Record
from odradek.groups.offsets import CommitRequest, offset_record
from odradek.protocol.errors import ErrorCode
from odradek.topic_partition import TopicPartition

if TYPE_CHECKING:
    from odradek.groups.group import Group
    from odradek.groups.transactions import OpenTransactions


@dataclass(frozen=True, slots=True)
class Commit:
    """A `CommitRequest` from objects, for requests that the native reader leaves to the schemas."""

    group_id: str
    member_id: str
    generation_id: int
    instance_id: str | None
    offsets: Mapping[TopicPartition, CommittedOffset]
    knows_epochs: bool = True

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def metadata_size(self) -> int:
        """The characters of the metadata of all offsets."""
        return sum(len(committed.metadata) for committed in self.offsets.values())

    def __iter__(self) -> Iterator[Record]:
        for (topic, partition), committed in self.offsets.items():
            yield offset_record(self.group_id, topic, partition, committed)

    def items(self) -> ItemsView[TopicPartition, CommittedOffset]:
        """Each partition with the offset to commit."""
        return self.offsets.items()

    def put_into(self, offsets: MutableMapping[str, dict[int, CommittedOffset]]) -> None:
        """Store the offsets in memory: {topic: {partition: CommittedOffset}}."""
        for (topic, partition), committed in self.offsets.items():
            offsets.setdefault(topic, {})[partition] = committed


class UnacknowledgedCommit:
    """A commit whose append has begun.

    :param answer: called once: with the outcome of the append, or before that with COORDINATOR_NOT_AVAILABLE if it takes
        too long.
    """

    __slots__ = ("_answer", "_commit", "_group")

    def __init__(self, group: Group, commit: CommitRequest, answer: Callable[[ErrorCode], None]) -> None:
        self._group = group
        self._commit = commit
        self._answer: Callable[[ErrorCode], None] | None = answer
        group.under_way[self] = commit

    def appended(self, error: ErrorCode) -> None:
        """Commit the offsets if the append succeeded, and answer the client."""
        del self._group.under_way[self]
        if error is ErrorCode.NONE:
            self._group.put(self._commit)
        self._answer_once(error)

    def late(self) -> None:
        """Answer the client now, because the append takes too long; its outcome then matters only to the group."""
        self._answer_once(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    def _answer_once(self, error: ErrorCode) -> None:
        answer, self._answer = self._answer, None
        if answer is not None:
            answer(error)


class UnacknowledgedTransactionalCommit(UnacknowledgedCommit):
    """A commit in a transaction; its append has begun and is not acknowledged yet."""

    __slots__ = ("_producer_id", "_transactions")

    def __init__(
        self,
        transactions: OpenTransactions,
        producer_id: int,
        group: Group,
        commit: CommitRequest,
        answer: Callable[[ErrorCode], None],
    ) -> None:
        super().__init__(group, commit, answer)
        self._transactions = transactions
        self._producer_id = producer_id
        group.transactional_under_way[self] = commit

    def appended_at(self, error: ErrorCode, base_offset: int) -> None:
        """Make the offsets pending if their records are in the log, even if the client receives an error; then answer it."""
        group = self._group
        del group.under_way[self], group.transactional_under_way[self]
        if base_offset >= 0:
            self._transactions.put(self._producer_id, group, self._commit.items(), count(base_offset))
        self._answer_once(error)
