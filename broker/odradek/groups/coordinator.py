"""The group coordinator: commits, fetches, deletes and expires offsets, and deletes groups.

It has two members: `Shards` (`shards.py`) owns the groups and writes them to the log, `Membership` (`membership.py`) serves
the requests of group members. Callers use them directly, e.g. `coordinator.members.join`. Runs in the coordinator
process's loop, which is its only protection. Results for clients are Kafka error codes; requests of clients raise no
exceptions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from itertools import chain

from odradek.coordination.environment import AppendCallback, EndMarker, LateCallback, Record, Timers, Waiter
from odradek.groups.classic import ClassicGroup
from odradek.groups.commits import UnacknowledgedCommit, UnacknowledgedTransactionalCommit
from odradek.groups.consumer_metadata import CONSUMER
from odradek.groups.environment import Topics
from odradek.groups.group import Group
from odradek.groups.membership import Membership
from odradek.groups.migration import batch_bytes
from odradek.groups.offsets import CommitRequest, Offsets, offset_record
from odradek.groups.patterns import Slices
from odradek.groups.settings import GroupSettings, SettingsSource
from odradek.groups.shards import NONE, Shard, Shards, log_failed_append
from odradek.protocol.errors import ErrorCode
from odradek.security.owners import NOBODY, Client
from odradek.topic_partition import TopicPartition

log = logging.getLogger("odradek.groups")

RETRY_MS = 1000
COORDINATOR_ERRORS = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
"""Errors of appends that are reported to the transaction coordinator as NOT_LEADER_OR_FOLLOWER."""
MAX_RECORDS_AT_ONCE = 1000
"""Largest number of tombstones in one append, which keeps batches small."""


class GroupCoordinator:
    """The offsets of groups, and the end of groups.

    :param partitions, diverged, slices: see `Shards`.
    :ivar shards: the groups, by partition of `__consumer_offsets`.
    :ivar members: serves the requests of group members.
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
        self.shards = Shards(timers, settings, partitions, topics, consumer_settings, diverged, slices)
        self.members = Membership(self.shards, topics)

    def wall_ms(self) -> int:
        """The wall clock, ms since 1970, for the timestamps of commits."""
        return self._timers.wall_ms()

    # -- offsets ---------------------------------------------------------------------------------------------------------

    def commit(self, commit: CommitRequest, then: Callable[[ErrorCode], None], client: Client = NOBODY) -> None:
        """Store offsets; `then` is called when all in-sync replicas have them. The caller refuses metadata of an offset that is
        too long.

        :param client: the client for which a new group is counted.
        """
        group_id = commit.group_id
        error, shard = self.shards.shard_of(group_id)
        if shard is None:
            then(error)
            return
        group = shard.groups.get(group_id)
        if group is None:
            if commit.generation_id >= 0:
                # From version 9 on Kafka returns GROUP_ID_NOT_FOUND, which clients treat as an unexpected error; see
                # `Membership.beat`.
                then(ErrorCode.UNKNOWN_MEMBER_ID if commit.knows_epochs else ErrorCode.ILLEGAL_GENERATION)
                return
            error = self.shards.creation_error(group_id, client)
            if error is not NONE:
                then(error)
                return
            group = self.shards.new_group(group_id)
        protocol = group.protocol
        if isinstance(protocol, ClassicGroup):
            error = protocol.commit_error(commit.member_id, commit.generation_id, commit.instance_id)
        else:
            places = partial(_places_of, commit)
            error = protocol.commit_error(commit.member_id, commit.generation_id, commit.knows_epochs, places)
        if error is not NONE or not len(commit):
            then(error)
            return
        if shard.deleted_topics and not shard.deleted_topics.isdisjoint(place[0] for place in _places_of(commit)):
            then(ErrorCode.COORDINATOR_NOT_AVAILABLE)  # the log still has offsets of a deleted topic with this name
            return
        if not self.shards.metadata.admit(group, commit, client):
            then(ErrorCode.OFFSET_METADATA_TOO_LARGE)
            return
        self.shards.add(shard, group, client)
        pending = UnacknowledgedCommit(group, commit, then)
        shard.log.append(commit, pending.appended, pending.late)

    def commit_in_transaction(
        self,
        commit: CommitRequest,
        producer_id: int,
        producer_epoch: int,
        confirm: Callable[[AppendCallback], None],
        then: Callable[[ErrorCode], None],
        client: Client = NOBODY,
    ) -> None:
        """Store offsets as part of a producer's transaction; see `commit`.

        :param confirm: called once with a callback: asks the transaction coordinator whether the partition of the group belongs
            to the transaction, and passes the error for the client to the callback.
        """
        error, shard = self.shards.shard_of(commit.group_id)
        if shard is None:
            then(error)
            return
        guard = shard.transactions.guard(producer_id, producer_epoch)

        def confirmed(error: ErrorCode) -> None:
            unbroken = shard.transactions.release(producer_id, guard)
            now = self.shards.shard_of(commit.group_id)
            if error is not NONE:
                then(error)
            elif now[1] is not shard:  # loaded again, here or by another broker: the guard has not seen all markers
                then(now[0] if now[0] is not NONE else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            elif not unbroken:
                then(ErrorCode.INVALID_TXN_STATE)
            else:
                self._commit_confirmed(shard, commit, producer_id, producer_epoch, then, client)

        confirm(confirmed)

    def _commit_confirmed(
        self,
        shard: Shard,
        commit: CommitRequest,
        producer_id: int,
        producer_epoch: int,
        then: Callable[[ErrorCode], None],
        client: Client,
    ) -> None:
        """Check the group, and append a commit whose transaction the transaction coordinator has confirmed."""
        group = shard.groups.get(commit.group_id)
        if group is None:
            if commit.generation_id >= 0:
                then(ErrorCode.ILLEGAL_GENERATION)
                return
            error = self.shards.creation_error(commit.group_id, client)
            if error is not NONE:
                then(error)
                return
            group = self.shards.new_group(commit.group_id)
        protocol = group.protocol
        identity = commit.member_id, commit.generation_id, commit.instance_id
        if isinstance(protocol, ClassicGroup):
            error = protocol.transactional_commit_error(*identity)
        else:
            error = protocol.transactional_commit_error(*identity, partial(_places_of, commit))
        if error is not NONE or not len(commit):
            then(error)
            return
        if shard.deleted_topics and not shard.deleted_topics.isdisjoint(place[0] for place in _places_of(commit)):
            then(ErrorCode.COORDINATOR_NOT_AVAILABLE)  # as in `commit`
            return
        if not self.shards.metadata.admit(group, commit, client):
            then(ErrorCode.OFFSET_METADATA_TOO_LARGE)
            return
        self.shards.add(shard, group, client)
        pending = UnacknowledgedTransactionalCommit(shard.transactions, producer_id, group, commit, then)
        shard.log.append_transactional(commit, producer_id, producer_epoch, pending.appended_at, pending.late)

    def end_transaction(self, partition: int, marker: EndMarker, then: AppendCallback) -> None:
        """Write the end marker of a transaction to a partition of `__consumer_offsets`, and apply it to the groups.

        `then` receives the error for the transaction coordinator, which retries after NOT_LEADER_OR_FOLLOWER.
        """
        shard = self.shards.by_partition.get(partition)
        if shard is None or shard.loading:
            then(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return

        def appended(error: ErrorCode, offset: int) -> None:
            if error is NONE or offset >= 0:  # the marker, or an earlier one of this transaction, is in the log
                shard.transactions.end(marker.producer_id, marker.commits)
            then(ErrorCode.NOT_LEADER_OR_FOLLOWER if error in COORDINATOR_ERRORS else error)

        shard.transactions.ending(marker)
        shard.log.append_marker(marker, appended)

    def unstable_places(self, group_id: str) -> Collection[TopicPartition]:
        """The places of a group whose committed offset an open transaction may change."""
        group = self.shards.find(group_id)[1]
        return group.unstable_places() if group is not None else ()

    def fetch(self, group_id: str, member_id: str | None = None, member_epoch: int = -1) -> tuple[ErrorCode, Offsets]:
        """The committed offsets of a group; none for a group that does not exist.

        :param member_id: with `member_epoch`, the requesting member of a consumer group; checked if either is given.
        """
        error, shard = self.shards.shard_of(group_id)
        group = shard.groups.get(group_id) if shard is not None else None
        if group is None or shard is None:
            return error, Offsets()
        if group.consumer is not None and (member_id is not None or member_epoch >= 0):
            error = group.consumer.epoch_error(member_id or "", member_epoch)
        return error, group.offsets.without(shard.deleted_topics) if shard.deleted_topics else group.offsets

    def delete_offsets(
        self,
        group_id: str,
        places: Sequence[TopicPartition],
        then: Callable[[ErrorCode, dict[TopicPartition, ErrorCode]], None],
    ) -> None:
        """Delete offsets of topics that no member subscribes to; `then` receives the error of the request and one
        for each place.
        """
        error, shard = self.shards.shard_of(group_id)
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
        in_use = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        results = {place: in_use if subscribed is None or place[0] in subscribed else error for place in places}
        deletable = [place for place, result in results.items() if result is NONE]

        def removed(error: ErrorCode) -> None:
            then(error, results)

        self._remove(shard, group, deletable, removed)

    def _remove(self, shard: Shard, group: Group, places: Sequence[TopicPartition], then: AppendCallback) -> None:
        """Delete the offsets at these places: committed and pending ones, and those of commits under way."""
        under_way = group.places_under_way()
        present = [
            place
            for place in places
            if place in under_way or group.offsets.get(*place) is not None or place in group.pending
        ]
        waiter = Waiter(then)
        self._delete_offsets(shard, group, present, waiter, waiter.late)

    def _delete_offsets(
        self,
        shard: Shard,
        group: Group,
        places: Sequence[TopicPartition],
        then: AppendCallback,
        late: LateCallback = None,
    ) -> None:
        """Append tombstones of these offsets, then remove them from memory.

        :param then: called once, with the last error, or NONE.
        """
        if not places:
            then(NONE)
            return
        parts = self._batches(group.group_id, places)
        waiting = len(parts)
        failed = NONE

        def appended(part: Iterable[TopicPartition], error: ErrorCode) -> None:
            nonlocal waiting, failed
            waiting -= 1
            if error is NONE:
                for place in part:
                    group.forget(*place)
            else:
                failed = error
            if waiting == 0:
                then(failed)

        for part in parts:
            shard.log.append(
                list(part.values()),
                lambda error, part=part: appended(part, error),  # type: ignore[misc]
                late,
            )

    def _batches(self, group_id: str, places: Iterable[TopicPartition]) -> list[dict[TopicPartition, Record]]:
        """The tombstones of offsets, split so that each part fits in a batch even with long names."""
        parts: list[dict[TopicPartition, Record]] = []
        size = 0
        for place in places:
            tombstone = offset_record(group_id, *place, None)
            size += batch_bytes([tombstone])
            if not parts or len(parts[-1]) == MAX_RECORDS_AT_ONCE or size > self.shards.settings.max_member_bytes:
                parts.append({})
                size = batch_bytes([tombstone])
            parts[-1][place] = tombstone
        return parts

    # -- whole groups ----------------------------------------------------------------------------------------------------

    def delete(self, group_id: str, then: AppendCallback) -> None:
        """Delete a group without members and its offsets."""
        error, shard = self.shards.shard_of(group_id)
        group = shard.groups.get(group_id) if shard is not None else None
        if shard is not None and group is None:
            error = ErrorCode.GROUP_ID_NOT_FOUND
        elif group is not None and not group.empty:
            error = ErrorCode.NON_EMPTY_GROUP
        if error is not NONE or group is None or shard is None:
            then(error)
            return

        def emptied(error: ErrorCode) -> None:
            if error is NONE and shard.groups.get(group_id) is not group:  # another deletion was faster
                then(ErrorCode.GROUP_ID_NOT_FOUND)
            elif error is NONE and group.disposable:
                self._delete_group(shard, group, then)
            else:
                then(error if error is not NONE else ErrorCode.NON_EMPTY_GROUP)

        committed = ((topic, partition) for topic, partition, _ in group.offsets)
        places = dict.fromkeys(chain(committed, group.pending.places()))
        self._remove(shard, group, list(places), emptied)

    def _delete_group(self, shard: Shard, group: Group, then: AppendCallback) -> None:
        """Remove an empty group without offsets from memory and append its tombstone."""
        group.protocol.die(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if shard.groups.get(group.group_id) is group:
            del shard.groups[group.group_id]
        self.shards.append_changes(shard, group.tombstones(), then)

    def topics_deleted(self, topics: Iterable[str]) -> None:
        """Delete the offsets of deleted topics in all groups, including pending commits."""
        names = set(topics)
        for shard in self.shards.by_partition.values():
            new = names - shard.deleted_topics  # commits to the other names are refused since their deletion began
            shard.deleted_topics |= new
            if not shard.loading:
                self._delete_offsets_of_topics(shard, new)

    def loaded(self, partition: int) -> None:
        """Serve a loaded partition, see `Shards.loaded`, and delete offsets of topics that no longer exist."""
        self.shards.loaded(partition)
        shard = self.shards.by_partition[partition]
        if shard.topics is not None:  # `topics_deleted` reports later deletions
            loaded_topics = {
                topic
                for group in shard.groups.values()
                for topic, _ in chain(group.offsets.topics(), group.pending.places())
            }
            shard.deleted_topics |= loaded_topics - shard.topics
            shard.topics = None
        count = self._delete_offsets_of_topics(shard, shard.deleted_topics)
        if count:
            log.info("__consumer_offsets-%d: deleting %d offset(s) of deleted topics", partition, count)

    def _delete_offsets_of_topics(self, shard: Shard, topics: Collection[str]) -> int:
        """Delete the offsets of topics and retry failures after RETRY_MS; return their number.

        Commits to these topics are refused.
        """
        names = frozenset(topics)
        places_by_group = [(group, places) for group in shard.groups.values() if (places := group.places_in(names))]
        waiting, failed = len(places_by_group), NONE

        def removed(error: ErrorCode) -> None:
            nonlocal waiting, failed
            waiting -= 1
            failed = failed if error is NONE else error
            if waiting > 0:
                return
            if failed is NONE:
                shard.deleted_topics -= names
            elif (
                self.shards.by_partition.get(shard.partition) is shard
            ):  # otherwise the load of the next coordinator deletes them
                log.warning(
                    "__consumer_offsets-%d: cannot delete the offsets of deleted topics: %s; retrying in %d ms",
                    shard.partition,
                    failed.name,
                    RETRY_MS,
                )
                self._timers.call_at(self._timers.now_ms() + RETRY_MS, retry)

        def retry() -> None:
            if self.shards.by_partition.get(shard.partition) is shard and not shard.loading:
                self._delete_offsets_of_topics(shard, names)

        if not places_by_group:
            shard.deleted_topics -= names
        for group, places in places_by_group:
            self._delete_offsets(shard, group, places, removed)
        return sum(len(places) for _, places in places_by_group)

    def expire(self) -> int:
        """Delete expired offsets, and groups without members and offsets; return the number of offsets."""
        now_ms, count = self._timers.wall_ms(), 0
        for shard in self.shards.by_partition.values():
            if shard.loading:
                continue
            shard.not_expired = NONE
            for group in list(shard.groups.values()):
                places = group.expired(now_ms, self.shards.settings.offsets_retention_ms)
                count += len(places)
                self._expire_group(shard, group, places)
        return count

    def not_expired(self) -> dict[str, str]:
        """The partitions in which the last `expire` could not write the tombstones of expired offsets, and why."""
        return {
            f"__consumer_offsets-{partition}": f"cannot write the tombstones of expired offsets: {shard.not_expired.name}"
            for partition, shard in self.shards.by_partition.items()
            if shard.not_expired is not NONE
        }

    def _expire_group(self, shard: Shard, group: Group, places: Sequence[TopicPartition]) -> None:

        def removed(error: ErrorCode) -> None:
            log_failed_append(error, "retrying at the next expiration")
            if error is not NONE:
                shard.not_expired = error
            if error is NONE and group.disposable and shard.groups.get(group.group_id) is group:
                self._delete_group(shard, group, log_failed_append)

        if places or group.disposable:
            self._remove(shard, group, places, removed)


def _places_of(commit: CommitRequest) -> list[TopicPartition]:
    return [place for place, _ in commit.items()]
