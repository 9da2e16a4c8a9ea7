"""Holds the groups of the partitions of `__consumer_offsets` that this broker leads; loads and writes them.

Each group belongs to one partition; the leader of that partition coordinates it. Runs in the coordinator process's loop,
which is its only protection.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from odradek._ext.api.offset_commits import partition_for
from odradek.coordination.environment import NO_PRODUCER, AppendCallback, LogBatch, OffsetsLog, Record, Timers, Waiter
from odradek.groups import consumer_records
from odradek.groups.classic import ClassicGroup
from odradek.groups.consumer_group import ConsumerGroup
from odradek.groups.environment import Topics
from odradek.groups.group import Group, classic_record, restore_classic
from odradek.groups.metadata_limits import MetadataLimits
from odradek.groups.offsets import committed_of
from odradek.groups.patterns import Slices, TopicPatterns
from odradek.groups.settings import GroupSettings, SettingsSource
from odradek.groups.transactions import OpenTransactions
from odradek.protocol import ProtocolError
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas.group_records import (
    CONSUMER_GROUP_METADATA,
    GROUP_METADATA,
    OFFSET_COMMIT,
    Kind,
    UnknownRecord,
    read_record,
)
from odradek.quotas.new_names import NewNames
from odradek.security.owners import Client

log = logging.getLogger("odradek.groups")

RECORDS_A_STEP = 100
"""The largest number of records that one step of a load applies: a few milliseconds of work."""
NONE = ErrorCode.NONE  # looked up once: access to a member of an enumeration is slow compared with a short method


class Shard:
    """The groups of one partition of `__consumer_offsets`.

    :param topics: names of the existing topics when the load began: offsets of other names belong to deleted topics, even if
        topics with these names exist now. None: the topics are not known.
    :ivar loading: the log is being read; requests get COORDINATOR_LOAD_IN_PROGRESS.
    :ivar deleted_topics: topics whose offsets are being deleted; commits to them are refused until the log has the tombstones.
    :ivar transactions: the open transactions with pending offsets in these groups.
    :ivar not_expired: why tombstones of expired offsets could not be written since the last check; NONE: they could.
    """

    def __init__(self, partition: int, group_log: OffsetsLog, topics: frozenset[str] | None) -> None:
        self.partition = partition
        self.log = group_log
        self.loading = True
        self.groups: dict[str, Group] = {}
        self.topics = topics
        self.deleted_topics: set[str] = set()
        self.transactions = OpenTransactions()
        self.not_expired = NONE


class Shards:
    """The shards of all led partitions: the only owner of groups, and the only writer of their state to the log.

    `Membership` and `GroupCoordinator` look groups up here for each request and keep none.

    :param partitions: number of partitions of `__consumer_offsets`.
    :param diverged: called with a partition that must be loaded again, because an append failed and its groups are ahead of
        its log.
    :param slices: see `TopicPatterns`.
    :ivar by_partition: the shards by partition of `__consumer_offsets`; only `Shards` changes it.
    """

    def __init__(
        self,
        timers: Timers,
        settings: GroupSettings,
        partitions: int,
        topics: Topics,
        consumer_settings: SettingsSource,
        diverged: Callable[[int], None],
        slices: Slices | None = None,
    ) -> None:
        self._timers = timers
        self.settings = settings
        self.consumer_settings = consumer_settings
        self._partitions = partitions
        self._topics = topics
        self._diverged = diverged
        self.patterns = TopicPatterns(topics, slices, self._live_patterns)
        self.by_partition: dict[int, Shard] = {}
        self._ending = False
        self.names = NewNames(settings.names, self._count, lambda name: self.find(name)[1] is not None, timers.wall_ms)
        self.metadata = MetadataLimits(settings.metadata, self._metadata_of, timers.wall_ms)
        # Version of the topics, names in the store, names in the store or served.
        self._names: tuple[int, frozenset[str], frozenset[str]] | None = None

    # -- leadership ------------------------------------------------------------------------------------------------------

    def begin(self, partition: int, group_log: OffsetsLog) -> None:
        """Begin to load a partition, which this broker now leads; requests for its groups must wait until `loaded`.

        Also begins a repeated load. Then the pending deletions of topics stay valid, because commits to them were refused.
        """
        before = self.by_partition.get(partition)
        self.resign(partition)
        shard = self.by_partition[partition] = Shard(partition, group_log, self._topics_now())
        if before is not None:
            shard.deleted_topics |= before.deleted_topics
            if before.loading:
                shard.topics = before.topics

    def _topics_now(self) -> frozenset[str] | None:
        """Topics in the store or served; both, because a change may be in progress. None if the store does not answer."""
        stored = self._topics.in_store()
        if stored is None:
            return None
        version = self._topics.version
        if self._names is None or self._names[:2] != (version, stored):
            self._names = version, stored, stored.union(self._topics.names())
        return self._names[2]  # one object for all partitions that are loaded together

    def replay_batches(self, partition: int, batches: Iterable[LogBatch]) -> Iterator[None]:
        """Apply batches of the log, in order; yield after each short step."""
        transactions = self.by_partition[partition].transactions
        for batch in batches:
            if batch.commits is not None:
                transactions.end(batch.producer_id, batch.commits)
                yield
                continue
            for first in range(0, len(batch.records), RECORDS_A_STEP):
                step = slice(first, first + RECORDS_A_STEP)
                self.replay(partition, batch.records[step], batch.producer_id, batch.offsets[step])
                yield

    def replay(
        self, partition: int, records: Iterable[Record], producer_id: int = NO_PRODUCER, offsets: Sequence[int] = ()
    ) -> int:
        """Apply records of the log, in order; return the number of skipped unknown records.

        :param producer_id: of the records' transaction. :param offsets: of the records, if they belong to a transaction.
        """
        shard = self.by_partition[partition]
        unknown = 0
        for number, (key, value) in enumerate(records):
            try:
                kind, read_key, read_value = read_record(key, value)
            except (UnknownRecord, ProtocolError) as error:
                unknown += 1
                log.warning("__consumer_offsets-%d: skipped a record that cannot be read: %s", partition, error)
                continue
            if kind is OFFSET_COMMIT:
                at = None if producer_id == NO_PRODUCER else (producer_id, offsets[number])
                self._replay_offset(shard, read_key, read_value, at)
            elif kind is GROUP_METADATA:
                self._replay_classic(shard, read_key.group, read_value)
            else:
                self._replay_consumer(shard, kind, read_key, read_value)
        return unknown

    def _replay_classic(self, shard: Shard, group_id: str, value: Any) -> None:
        group = shard.groups.setdefault(group_id, self.new_group(group_id))
        if value is None and group.consumer is not None:
            return  # the tombstone of its former classic protocol
        group.protocol.die(ErrorCode.NOT_COORDINATOR)
        group.protocol = protocol = self.new_classic(group_id)
        if value is not None:
            restore_classic(protocol, value)

    def _replay_consumer(self, shard: Shard, kind: Kind, key: Any, value: Any) -> None:
        group = shard.groups.get(key.group_id)
        if group is None or group.consumer is None:
            if value is None:
                return  # the group is deleted, or has the classic protocol now
            if group is None:
                group = shard.groups[key.group_id] = self.new_group(key.group_id)
            group.protocol.die(ErrorCode.NOT_COORDINATOR)
            group.protocol = self.new_consumer(key.group_id)
        if value is None and kind is CONSUMER_GROUP_METADATA:
            group.protocol.die(ErrorCode.NOT_COORDINATOR)
            group.protocol = self.new_classic(key.group_id)
            return
        assert group.consumer is not None
        consumer_records.replay(group.consumer, kind, key, value)

    def _replay_offset(self, shard: Shard, key: Any, value: Any, at: tuple[int, int] | None) -> None:
        """Apply an offset record. :param at: producer id and record offset; None outside of transactions."""
        place = key.topic, key.partition
        group = shard.groups.get(key.group)
        if value is None:
            if group is not None:
                group.forget(*place)
            return
        if group is None:
            group = shard.groups[key.group] = self.new_group(key.group)
        if at is not None:
            shard.transactions.put(at[0], group, ((place, committed_of(value)),), (at[1],))
            return
        group.offsets.put(*place, committed_of(value))
        group.pending.overtake(place)

    def _log_open_transactions(self, shard: Shard) -> None:
        """Log the transactions that were open at the end of a loaded log."""
        groups = {group.group_id: group for group in shard.groups.values() if group.pending}
        if groups:
            names = ", ".join(sorted(groups)[:10]) + (", ..." if len(groups) > 10 else "")
            count = sum(len(group.pending) for group in groups.values())
            producers = list(shard.transactions)
            log.info(
                "__consumer_offsets-%d: %d offset(s) of group(s) %s wait for the end of their transactions (producer id %s)",
                shard.partition, count, names, ", ".join(map(str, producers[:10])) + (", ..." if len(producers) > 10 else ""),
            )  # fmt: skip

    def loaded(self, partition: int) -> None:
        """Serve a partition whose records are all applied. Groups without members, offsets and protocol are dropped."""
        shard = self.by_partition[partition]
        self._log_open_transactions(shard)
        for group in list(shard.groups.values()):
            if group.consumer is not None:
                group.consumer.loaded()
                continue
            assert group.classic is not None
            group.classic.begin_sessions()
            if group.empty and not group.offsets and not group.pending and group.protocol.protocol_type is None:
                del shard.groups[group.group_id]
        shard.loading = False

    def resign(self, partition: int) -> None:
        """Drop a partition that another broker leads; pending requests get NOT_COORDINATOR."""
        shard = self.by_partition.pop(partition, None)
        if shard is not None:
            for group in shard.groups.values():
                group.protocol.die(ErrorCode.NOT_COORDINATOR)

    def end(self) -> None:
        """The broker stops: pending requests of members, and all later requests, get NOT_COORDINATOR. A client then looks for
        the coordinator, and joins again after the restart. Commits whose append is under way are still answered."""
        self._ending = True
        for group in self.groups():
            group.protocol.die(ErrorCode.NOT_COORDINATOR)

    # -- look-ups -------------------------------------------------------------------------------------------------------

    def partition_of(self, group_id: str) -> int:
        """The partition of `__consumer_offsets` to which a group belongs."""
        return partition_for(group_id, self._partitions)

    def shard_of(self, group_id: str) -> tuple[ErrorCode, Shard | None]:
        """The shard that serves a group, or the error if none does."""
        shard = self.by_partition.get(self.partition_of(group_id))
        if shard is None or self._ending:
            return ErrorCode.NOT_COORDINATOR, None
        if shard.loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, None
        return NONE, shard

    def find(self, group_id: str) -> tuple[ErrorCode, Group | None]:
        """A group, or None if it does not exist; the error if this broker does not serve it."""
        error, shard = self.shard_of(group_id)
        return error, shard.groups.get(group_id) if shard is not None else None

    def groups(self) -> Iterator[Group]:
        """All groups of loaded partitions."""
        for shard in self.by_partition.values():
            if not shard.loading:
                yield from shard.groups.values()

    @property
    def loading(self) -> bool:
        """Whether any partition is loading."""
        return any(shard.loading for shard in self.by_partition.values())

    def _count(self) -> int:
        return sum(len(shard.groups) for shard in self.by_partition.values())

    def _metadata_of(self, owner: str) -> int:
        groups = (self.find(name)[1] for name in self.names.names_of(owner))
        return sum(group.metadata_size for group in groups if group is not None)

    # -- creating and writing groups -------------------------------------------------------------------------------------

    def creation_error(self, group_id: str, client: Client) -> ErrorCode:
        """The error for a client whose request would create a group; NONE if it may."""
        if self.names.too_long(group_id, str(client)):
            return ErrorCode.INVALID_GROUP_ID
        return ErrorCode.POLICY_VIOLATION if self.names.full(group_id, client.owner, str(client)) else NONE

    def add(self, shard: Shard, group: Group, client: Client) -> None:
        """Store a group in its shard, if it is not there yet. :param client: the client that creates it."""
        if group.group_id not in shard.groups:
            shard.groups[group.group_id] = group
            self.names.created(group.group_id, client.owner)

    def new_classic(self, group_id: str) -> ClassicGroup:
        """A classic group without members, not stored in a shard."""
        return ClassicGroup(group_id, self._timers, self.settings, self._persist)

    def new_group(self, group_id: str) -> Group:
        """A group with a classic protocol without members, not stored in a shard."""
        return Group(group_id, self.new_classic(group_id))

    def new_consumer(self, group_id: str) -> ConsumerGroup:
        """A consumer group without members, not stored in a shard."""
        return ConsumerGroup(
            group_id, self._timers, self.consumer_settings, self._topics, self.persist_records, self.patterns
        )

    def _live_patterns(self) -> set[str]:
        groups = (group for shard in self.by_partition.values() for group in shard.groups.values())
        return {pattern for group in groups if group.consumer is not None for pattern in group.consumer.patterns}

    def _persist(self, group: ClassicGroup, assignments: Mapping[str, bytes], then: AppendCallback) -> None:
        error, shard = self.shard_of(group.group_id)
        if shard is None:
            then(error)
            return
        waiter = Waiter(then)

        def appended(error: ErrorCode) -> None:
            # Members do not know this error: it belongs to commits.
            too_large = error is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
            waiter(ErrorCode.UNKNOWN_SERVER_ERROR if too_large else error)

        shard.log.append([classic_record(group, assignments)], appended, waiter.late)

    def persist_records(self, group: ConsumerGroup, records: Sequence[Record], then: AppendCallback) -> None:
        """Append changes of a consumer group; without records, wait until all earlier appends are acknowledged."""
        error, shard = self.shard_of(group.group_id)
        if shard is None:
            then(error)
        else:
            self.append_changes(shard, records, then)

    def append_changes(self, shard: Shard, records: Sequence[Record], then: AppendCallback) -> None:
        """Append changes that groups in memory already have; if the append fails, load the shard again from its log."""
        waiter = Waiter(then)

        def appended(error: ErrorCode) -> None:
            # Without records it only waited: the append that failed has its own callback, which reloads the shard.
            if error is not NONE and records:
                self._reload(shard)  # a group is ahead of its log: the log counts
            waiter(error)

        shard.log.append(records, appended, waiter.late)

    def _reload(self, shard: Shard) -> None:
        """Stop serving a shard whose groups differ from its log, until it is loaded again."""
        if self.by_partition.get(shard.partition) is shard:
            if not shard.loading:
                shard.loading, shard.topics = True, self._topics_now()
            self._diverged(shard.partition)


def log_failed_append(error: ErrorCode, action: str = "loading its partition again") -> None:
    """Log a failed append for which no request waits. :param action: what the coordinator does about it."""
    if error is not NONE:
        log.warning("cannot write a change of a group to __consumer_offsets: %s; %s", error.name, action)
