"""The groups that this broker coordinates: found by id, loaded, changed, listed, expired.

A group belongs to one partition of `__consumer_offsets`; who leads that coordinates it. Runs in the coordinator process's loop,
which is its only protection. What a client must be told is a Kafka error code; nothing here raises for what clients send.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from broker._ext.offset_commits import OffsetCommit, partition_for
from broker.groups import consumer_records, migration
from broker.groups.classic import ClassicGroup, can_be_first
from broker.groups.classic_member import Join, Joined, Sync, Synced
from broker.groups.consumer_group import ConsumerGroup, SettingsSource, Topics, wrong_with
from broker.groups.consumer_member import JOINING, Beat, Beaten
from broker.groups.environment import Appended, GroupLog, GroupSettings, Record, Timers, Waiter
from broker.groups.group import CONSUMER, Group, classic_record, restore_classic
from broker.groups.offsets import Committed, Offsets, Place, committed_of, offset_record
from broker.protocol import ProtocolError
from broker.protocol.errors import ErrorCode
from broker.protocol.group_records import (
    CONSUMER_GROUP_METADATA,
    GROUP_METADATA,
    OFFSET_COMMIT,
    Kind,
    UnknownRecord,
    read_record,
)

log = logging.getLogger(__name__)

NONE = ErrorCode.NONE  # looked up once: an enumeration's members cost more to find than all else in a short verb
MAX_RECORDS_AT_ONCE = 1000
"""Of tombstones in one append, so that a batch stays small."""


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


class Shard:
    """The groups of one partition of `__consumer_offsets`. :param loading: its log is being read: nobody is served yet."""

    def __init__(self, partition: int, group_log: GroupLog) -> None:
        self.partition = partition
        self.log = group_log
        self.loading = True
        self.groups: dict[str, Group] = {}


class GroupCoordinator:
    """:param partitions: how many partitions `__consumer_offsets` has.
    :param diverged: called with a partition whose groups may be ahead of its log, because an append failed: it is to be
        loaded anew.
    """

    def __init__(
        self,
        timers: Timers,
        settings: GroupSettings,
        partitions: int,
        topics: Topics,
        consumer_settings: SettingsSource,
        diverged: Callable[[int], None],
    ) -> None:
        self._timers = timers
        self.settings = settings
        self.consumer_settings = consumer_settings
        self._partitions = partitions
        self._topics = topics
        self._diverged = diverged
        self._shards: dict[int, Shard] = {}

    def wall_ms(self) -> int:
        """What commits are stamped with."""
        return self._timers.wall_ms()

    # -- leadership -----------------------------------------------------------------------------------------------

    def begin(self, partition: int, group_log: GroupLog) -> None:
        """This broker leads a partition now: its groups are told to wait until `replay` and `loaded`."""
        self.resign(partition)
        self._shards[partition] = Shard(partition, group_log)

    def replay(self, partition: int, records: Iterable[Record]) -> int:
        """Take over records of the log, in order; how many were of a kind that is not known."""
        shard = self._shards[partition]
        unknown = 0
        for key, value in records:
            try:
                kind, read_key, read_value = read_record(key, value)
            except (UnknownRecord, ProtocolError) as error:
                unknown += 1
                log.warning("__consumer_offsets-%d holds %s: ignored", partition, error)
                continue
            if kind is OFFSET_COMMIT:
                self._replay_offset(shard, read_key, read_value)
            elif kind is GROUP_METADATA:
                self._replay_classic(shard, read_key.group, read_value)
            else:
                self._replay_consumer(shard, kind, read_key, read_value)
        return unknown

    def _replay_classic(self, shard: Shard, group_id: str, value: Any) -> None:
        group = shard.groups.setdefault(group_id, self._new_group(group_id))
        if value is None and group.consumer is not None:
            return  # it was a classic group once
        group.protocol.die(ErrorCode.NOT_COORDINATOR)
        group.protocol = protocol = self._new_classic(group_id)
        if value is not None:
            restore_classic(protocol, value)

    def _replay_consumer(self, shard: Shard, kind: Kind, key: Any, value: Any) -> None:
        group = shard.groups.get(key.group_id)
        if group is None or group.consumer is None:
            if value is None:
                return  # of a group that is no more, or has another protocol now
            if group is None:
                group = shard.groups[key.group_id] = self._new_group(key.group_id)
            group.protocol.die(ErrorCode.NOT_COORDINATOR)
            group.protocol = self._new_consumer(key.group_id)
        if value is None and kind is CONSUMER_GROUP_METADATA:
            group.protocol.die(ErrorCode.NOT_COORDINATOR)
            group.protocol = self._new_classic(key.group_id)
            return
        assert group.consumer is not None
        consumer_records.replay(group.consumer, kind, key, value)

    def _replay_offset(self, shard: Shard, key: Any, value: Any) -> None:
        group_id, topic, partition = key.group, key.topic, key.partition
        group = shard.groups.get(group_id)
        if value is None:
            if group is not None:
                group.offsets.remove(topic, partition)
            return
        if group is None:
            group = shard.groups[group_id] = self._new_group(group_id)
        group.offsets.put(topic, partition, committed_of(value))

    def loaded(self, partition: int) -> None:
        """All records were taken over: serve. Groups of which nothing is left are forgotten."""
        shard = self._shards[partition]
        for group in list(shard.groups.values()):
            if group.consumer is not None:
                group.consumer.loaded()
                continue
            assert group.classic is not None
            group.classic.begin_sessions()
            if group.empty and not group.offsets and group.protocol.protocol_type is None:
                del shard.groups[group.group_id]
        shard.loading = False

    def resign(self, partition: int) -> None:
        """Another broker leads the partition: whoever waits here is told so."""
        shard = self._shards.pop(partition, None)
        if shard is not None:
            for group in shard.groups.values():
                group.protocol.die(ErrorCode.NOT_COORDINATOR)

    # -- finding --------------------------------------------------------------------------------------------------

    def shard_of(self, group_id: str) -> tuple[ErrorCode, Shard | None]:
        """The shard that serves a group, or why none does."""
        shard = self._shards.get(partition_for(group_id, self._partitions))
        if shard is None:
            return ErrorCode.NOT_COORDINATOR, None
        if shard.loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, None
        return NONE, shard

    def find(self, group_id: str) -> tuple[ErrorCode, Group | None]:
        """A group, None if there is none; or why this broker cannot say."""
        error, shard = self.shard_of(group_id)
        return error, shard.groups.get(group_id) if shard is not None else None

    def groups(self) -> Iterator[Group]:
        """All that are served."""
        for shard in self._shards.values():
            if not shard.loading:
                yield from shard.groups.values()

    @property
    def loading(self) -> bool:
        """Whether some partition is still being read."""
        return any(shard.loading for shard in self._shards.values())

    def _new_classic(self, group_id: str) -> ClassicGroup:
        return ClassicGroup(group_id, self._timers, self.settings, self._persist)

    def _new_group(self, group_id: str) -> Group:
        return Group(group_id, self._new_classic(group_id))

    def _persist(self, group: ClassicGroup, assignments: Mapping[str, bytes], then: Appended) -> None:
        error, shard = self.shard_of(group.group_id)
        if shard is None:
            then(error)
            return
        waiter = Waiter(then)

        def appended(error: ErrorCode) -> None:
            too_large = (
                error is ErrorCode.INVALID_COMMIT_OFFSET_SIZE
            )  # said of a generation, it means nothing to members
            waiter(ErrorCode.UNKNOWN_SERVER_ERROR if too_large else error)

        shard.log.append([classic_record(group, assignments)], appended, waiter.late)

    def _new_consumer(self, group_id: str) -> ConsumerGroup:
        return ConsumerGroup(group_id, self._timers, self.consumer_settings, self._topics, self._persist_records)

    def _persist_records(self, group: ConsumerGroup, records: Sequence[Record], then: Appended) -> None:
        error, shard = self.shard_of(group.group_id)
        if shard is None:
            then(error)
            return
        waiter = Waiter(then)

        def appended(error: ErrorCode) -> None:
            if error is not NONE and self._shards.get(shard.partition) is shard:
                self._diverged(shard.partition)  # the group is ahead of its log: what the log says counts
            waiter(error)

        shard.log.append(records, appended, waiter.late)

    # -- KIP-848 --------------------------------------------------------------------------------------------------

    def beat(self, group_id: str, beat: Beat, then: Callable[[Beaten], None]) -> None:
        """A ConsumerGroupHeartbeat."""
        error, shard = self.shard_of(group_id)
        if shard is None:
            then(Beaten(error))
            return
        group = shard.groups.get(group_id)
        if group is None and beat.member_epoch != JOINING:
            then(Beaten(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found."))
            return
        if group is None or group.classic is not None:
            if group is not None and not self._may_upgrade(group, beat):
                then(Beaten(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group."))
                return
            refusal = wrong_with(beat, self.consumer_settings.of(group_id))
            if refusal is not None:  # no group comes to be, or changes its protocol, by a heartbeat that is refused
                then(refusal)
                return
        if group is None:
            group = shard.groups[group_id] = Group(group_id, self._new_consumer(group_id))
        elif group.classic is not None:
            self._upgrade(shard, group)
        assert group.consumer is not None
        group.consumer.heartbeat(beat, then)
        member = group.consumer.members.get(beat.member_id)
        if member is None or member.classic is not None:  # while it is there, not all are of the classic protocol
            self._maybe_downgrade(shard, group)

    def _may_upgrade(self, group: Group, beat: Beat) -> bool:
        if beat.member_epoch != JOINING or group.classic is None:
            return False
        if group.empty:
            return True
        obstacle = migration.upgrade_obstacle(group.classic)
        if obstacle is not None or not self.consumer_settings.of(group.group_id).upgrade:
            why = obstacle or "group.consumer.migration.policy does not allow it"
            log.info("classic group %s does not become a consumer group: %s", group.group_id, why)
            return False
        return True

    def _upgrade(self, shard: Shard, group: Group) -> None:
        consumer = self._new_consumer(group.group_id)
        if group.empty or group.classic is None:
            self._change_protocol(shard, group, consumer)
            return
        log.info("classic group %s becomes a consumer group", group.group_id)
        tombstones = group.tombstones()
        records = migration.upgraded(group.classic, consumer, self._topics)
        group.protocol = consumer
        self._persist_records(consumer, [*tombstones, *records], _report)

    def _settle_protocol(self, group: Group) -> None:
        """A member of the newer protocol may have been expelled since."""
        shard = self._shards.get(partition_for(group.group_id, self._partitions))
        if shard is not None:
            self._maybe_downgrade(shard, group)

    def _maybe_downgrade(self, shard: Shard, group: Group) -> None:
        """Once the last member of the new protocol has gone, the others go back to the old one."""
        consumer = group.consumer
        if consumer is None or not consumer.all_classic or not self.consumer_settings.of(group.group_id).downgrade:
            return
        log.info("consumer group %s becomes a classic group", group.group_id)
        tombstones = consumer.tombstones()
        classic = self._new_classic(group.group_id)
        migration.downgraded(consumer, classic, self._topics.name_of)
        classic.begin_sessions()
        group.protocol = classic
        shard.log.append([*tombstones, classic_record(classic, classic.assignments())], _report)
        classic.rebalance("the last member of the newer protocol left")

    def _change_protocol(self, shard: Shard, group: Group, protocol: ClassicGroup | ConsumerGroup) -> None:
        """A group without members goes over to the other protocol."""
        if group.protocol.protocol_type is not None:
            shard.log.append(group.tombstones(), _report)
        group.protocol.die(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        group.protocol = protocol

    # -- membership -----------------------------------------------------------------------------------------------

    def join(self, group_id: str, join: Join, then: Callable[[Joined], None]) -> None:
        """A JoinGroup."""
        error, shard = self.shard_of(group_id)
        if not group_id:
            error, shard = ErrorCode.INVALID_GROUP_ID, None
        shortest, longest = self.settings.min_session_timeout_ms, self.settings.max_session_timeout_ms
        if shard is not None and not shortest <= join.session_timeout_ms <= longest:
            error, shard = ErrorCode.INVALID_SESSION_TIMEOUT, None
        size, most = sum(len(name) + len(data) for name, data in join.protocols), self.settings.max_member_bytes
        if shard is not None and size > most:
            log.warning(
                "a JoinGroup of %s at %s to group %s brings %d bytes of subscriptions; at most message.max.bytes (%d) can be "
                "stored",
                join.client_id, join.client_host, group_id, size, most,
            )  # fmt: skip
            error, shard = ErrorCode.UNKNOWN_SERVER_ERROR, None  # as a generation that cannot be stored
        if shard is None:
            then(Joined(error, join.member_id))
            return
        group = shard.groups.get(group_id)
        if group is None:
            if join.member_id:
                then(Joined(ErrorCode.UNKNOWN_MEMBER_ID, join.member_id))
                return
            group = self._new_group(group_id)
            if can_be_first(join):
                shard.groups[group_id] = group
        if group.consumer is not None:
            if not group.empty:
                migration.join(group.consumer, self._topics, join, then)
                self._maybe_downgrade(shard, group)
                return
            self._change_protocol(shard, group, self._new_classic(group_id))
        assert group.classic is not None
        group.classic.join(join, then)

    def sync(self, group_id: str, sync: Sync, then: Callable[[Synced], None]) -> None:
        """A SyncGroup."""
        error, group = self._member_group(group_id)
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            error = ErrorCode.REBALANCE_IN_PROGRESS  # clients of SyncGroup do not know the other; they join again
        if group is None:
            then(Synced(error))
            return
        if group.consumer is not None:
            self._settle_protocol(group)
        if group.consumer is not None:
            then(migration.sync(group.consumer, sync, self._topics.name_of))
        elif group.classic is not None:
            group.classic.sync(sync, then)

    def heartbeat(self, group_id: str, member_id: str, generation_id: int, instance_id: str | None) -> ErrorCode:
        """A Heartbeat. While the group is being loaded it is taken for good: nobody is expelled for that."""
        error, group = self._member_group(group_id)
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return NONE
        if group is None:
            return error
        if group.consumer is not None:
            self._settle_protocol(group)
        if group.consumer is not None:
            return migration.heartbeat(group.consumer, member_id, generation_id, instance_id)
        assert group.classic is not None
        return group.classic.heartbeat(member_id, generation_id, instance_id)

    def leave(self, group_id: str, members: Sequence[tuple[str, str | None, str]]) -> tuple[ErrorCode, list[ErrorCode]]:
        """A LeaveGroup of (member id, instance id, reason): the error of the request, then one of each member."""
        error, group = self._member_group(group_id)
        if group is None and error is not ErrorCode.UNKNOWN_MEMBER_ID:
            return error, []
        if group is None:
            return NONE, [ErrorCode.UNKNOWN_MEMBER_ID for _ in members]
        if group.consumer is not None:
            return NONE, [group.consumer.leave_classic(*member) for member in members]
        assert group.classic is not None
        return NONE, [group.classic.leave(*member) for member in members]

    def _member_group(self, group_id: str) -> tuple[ErrorCode, Group | None]:
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID, None
        error, group = self.find(group_id)
        return (ErrorCode.UNKNOWN_MEMBER_ID if error is NONE and group is None else error), group

    # -- offsets --------------------------------------------------------------------------------------------------

    def commit(self, commit: Commit | OffsetCommit, then: Callable[[ErrorCode], None]) -> None:
        """Store offsets; answered once all in-sync replicas have them. Notes that are too long are the caller's to refuse.

        :param commit: as objects, or as a request that was read natively.
        """
        group_id = commit.group_id
        error, shard = self.shard_of(group_id)
        if shard is None:
            then(error)
            return
        group = shard.groups.get(group_id)
        if group is None:
            if commit.generation_id >= 0:
                then(ErrorCode.GROUP_ID_NOT_FOUND if commit.knows_epochs else ErrorCode.ILLEGAL_GENERATION)
                return
            group = self._new_group(group_id)
        protocol = group.protocol
        if isinstance(protocol, ClassicGroup):
            error = protocol.commit_error(commit.member_id, commit.generation_id, commit.instance_id)
        else:
            error = protocol.commit_error(commit.member_id, commit.generation_id, commit.knows_epochs)
        if error is not NONE or not commit.offsets:
            then(error)
            return
        shard.groups[group_id] = group
        if isinstance(commit, OffsetCommit):  # a sequence of its records; it does natively what `appended` does
            commit.under_way(group, then)
            shard.log.append(commit, commit.appended, commit.late)
            return
        offsets = commit.offsets
        records = [offset_record(group_id, topic, number, one) for (topic, number), one in offsets.items()]
        waiter = Waiter(then)

        def appended(error: ErrorCode) -> None:
            group.commits_under_way -= 1
            if error is NONE:
                for (topic, partition), committed in offsets.items():
                    group.offsets.put(topic, partition, committed)
            waiter(error)

        group.commits_under_way += 1
        shard.log.append(records, appended, waiter.late)

    def fetch(self, group_id: str, member_id: str | None = None, member_epoch: int = -1) -> tuple[ErrorCode, Offsets]:
        """What a group has committed; nothing for a group that there is not.

        :param member_id: with its epoch, a member of a group of KIP-848 that asks; checked if one of both is given.
        """
        error, group = self.find(group_id)
        if group is None:
            return error, Offsets()
        if group.consumer is not None and (member_id is not None or member_epoch >= 0):
            error = group.consumer.epoch_error(member_id or "", member_epoch)
        return error, group.offsets

    def delete_offsets(
        self, group_id: str, places: Sequence[Place], then: Callable[[ErrorCode, dict[Place, ErrorCode]], None]
    ) -> None:
        """Forget offsets of topics that no member reads: the error of all, and one of each place."""
        error, shard = self.shard_of(group_id)
        group = shard.groups.get(group_id) if shard is not None else None
        if not group_id:
            error = ErrorCode.INVALID_GROUP_ID
        elif shard is not None and group is None:
            error = ErrorCode.GROUP_ID_NOT_FOUND
        elif group is not None and not group.empty and group.protocol.protocol_type != CONSUMER:
            error = ErrorCode.NON_EMPTY_GROUP
        if error is not NONE or group is None or shard is None:
            then(error, {})
            return
        subscribed = group.subscribed()
        taken = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        results = {place: taken if subscribed is None or place[0] in subscribed else error for place in places}
        gone = [place for place, result in results.items() if result is NONE]

        def removed(error: ErrorCode) -> None:
            then(error, results)

        self._remove(shard, group, gone, removed)

    def _remove(self, shard: Shard, group: Group, places: Sequence[Place], then: Appended) -> None:
        """Write tombstones of these offsets, then forget them; and the group, if nothing is left of it."""
        present = [place for place in places if group.offsets.get(*place) is not None]
        if not present:
            then(NONE)
            return
        parts = [present[at : at + MAX_RECORDS_AT_ONCE] for at in range(0, len(present), MAX_RECORDS_AT_ONCE)]
        waiting = len(parts)
        failed = NONE
        waiter = Waiter(then)

        def appended(part: Sequence[Place], error: ErrorCode) -> None:
            nonlocal waiting, failed
            waiting -= 1
            if error is NONE:
                for place in part:
                    group.offsets.remove(*place)
            else:
                failed = error
            if waiting == 0:
                waiter(failed)

        for part in parts:
            shard.log.append(
                [offset_record(group.group_id, *place, None) for place in part],
                lambda error, part=part: appended(part, error),  # type: ignore[misc]
                waiter.late,
            )

    # -- whole groups ---------------------------------------------------------------------------------------------

    def delete(self, group_id: str, then: Appended) -> None:
        """Delete a group without members, and its offsets."""
        error, shard = self.shard_of(group_id)
        group = shard.groups.get(group_id) if shard is not None else None
        if shard is not None and group is None:
            error = ErrorCode.GROUP_ID_NOT_FOUND
        elif group is not None and not group.empty:
            error = ErrorCode.NON_EMPTY_GROUP
        if error is not NONE or group is None or shard is None:
            then(error)
            return

        def emptied(error: ErrorCode) -> None:
            if error is NONE and group.disposable:
                self._end(shard, group, then)
            else:
                then(error if error is not NONE else ErrorCode.NON_EMPTY_GROUP)

        self._remove(shard, group, [(topic, partition) for topic, partition, _ in group.offsets], emptied)

    def _end(self, shard: Shard, group: Group, then: Appended) -> None:
        """Take an empty group without offsets out of the log and of memory."""
        group.protocol.die(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if shard.groups.get(group.group_id) is group:
            del shard.groups[group.group_id]
        waiter = Waiter(then)
        shard.log.append(group.tombstones(), waiter, waiter.late)

    def topics_deleted(self, topics: Iterable[str]) -> None:
        """The offsets of deleted topics go, of all groups."""
        names = list(topics)
        for shard in self._shards.values():
            if not shard.loading:
                for group in list(shard.groups.values()):
                    self._remove(shard, group, group.offsets.of_topics(names), _report)

    def expire(self) -> int:
        """Forget offsets that nobody needs any more, and groups of which nothing is left; how many offsets."""
        now_ms, count = self._timers.wall_ms(), 0
        for shard in self._shards.values():
            if shard.loading:
                continue
            for group in list(shard.groups.values()):
                places = group.offsets.expired(
                    now_ms, self.settings.offsets_retention_ms, group.subscribed(), group.empty_since_ms
                )
                count += len(places)
                self._expire_group(shard, group, places)
        return count

    def _expire_group(self, shard: Shard, group: Group, places: Sequence[Place]) -> None:

        def removed(error: ErrorCode) -> None:
            _report(error)
            if error is NONE and group.disposable and shard.groups.get(group.group_id) is group:
                self._end(shard, group, _report)

        if places or group.disposable:
            self._remove(shard, group, places, removed)


def _report(error: ErrorCode) -> None:
    if error is not NONE:
        log.warning("offsets could not be removed: %s; it is tried again later", error.name)
