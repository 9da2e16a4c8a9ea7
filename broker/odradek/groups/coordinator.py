"""The group coordinator: what is committed, whole groups, and by inheritance who is a member and where groups live.

`membership.py` says what members ask for, `shards.py` which groups are here. Runs in the coordinator process's loop, which is
its only protection. What a client must be told is a Kafka error code; nothing here raises for what clients send.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from itertools import chain

from odradek.groups.classic import ClassicGroup
from odradek.groups.commits import UnacknowledgedCommit
from odradek.groups.consumer_metadata import CONSUMER
from odradek.groups.environment import AppendCallback, LateCallback, Record, Waiter
from odradek.groups.group import Group
from odradek.groups.membership import Membership
from odradek.groups.migration import batch_bytes
from odradek.groups.offsets import CommitRequest, Offsets, Place, offset_record
from odradek.groups.shards import NONE, Shard, report
from odradek.protocol.errors import ErrorCode

log = logging.getLogger("odradek.groups")

RETRY_MS = 1000
MAX_RECORDS_AT_ONCE = 1000
"""Of tombstones in one append, so that a batch stays small."""


class GroupCoordinator(Membership):
    """All that is asked of groups."""

    # -- offsets ---------------------------------------------------------------------------------------------------------

    def commit(self, commit: CommitRequest, then: Callable[[ErrorCode], None]) -> None:
        """Store offsets; answered once all in-sync replicas have them. Notes that are too long are the caller's to refuse."""
        group_id = commit.group_id
        error, shard = self.shard_of(group_id)
        if shard is None:
            then(error)
            return
        group = shard.groups.get(group_id)
        if group is None:
            if commit.generation_id >= 0:
                # From version 9 on Kafka returns GROUP_ID_NOT_FOUND, which clients treat as an unexpected error; see `beat`.
                then(ErrorCode.UNKNOWN_MEMBER_ID if commit.knows_epochs else ErrorCode.ILLEGAL_GENERATION)
                return
            group = self._new_group(group_id)
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
            then(ErrorCode.COORDINATOR_NOT_AVAILABLE)  # offsets of a deleted topic of that name are still in the log
            return
        shard.groups[group_id] = group
        pending = UnacknowledgedCommit(group, commit, then)
        shard.log.append(commit, pending.appended, pending.late)

    def fetch(self, group_id: str, member_id: str | None = None, member_epoch: int = -1) -> tuple[ErrorCode, Offsets]:
        """What a group has committed; nothing for a group that there is not.

        :param member_id: with its epoch, a member of a group of KIP-848 that asks; checked if one of both is given.
        """
        error, shard = self.shard_of(group_id)
        group = shard.groups.get(group_id) if shard is not None else None
        if group is None or shard is None:
            return error, Offsets()
        if group.consumer is not None and (member_id is not None or member_epoch >= 0):
            error = group.consumer.epoch_error(member_id or "", member_epoch)
        return error, group.offsets.without(shard.deleted_topics) if shard.deleted_topics else group.offsets

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

    def _remove(self, shard: Shard, group: Group, places: Sequence[Place], then: AppendCallback) -> None:
        """Forget what is committed, or is about to be, at these places."""
        coming = group.places_under_way()
        present = [
            place
            for place in places
            if place in coming or group.offsets.get(*place) is not None or group.pending.get(*place) is not None
        ]
        waiter = Waiter(then)
        self._delete_offsets(shard, group, present, waiter, waiter.late)

    def _delete_offsets(
        self, shard: Shard, group: Group, places: Sequence[Place], then: AppendCallback, late: LateCallback = None
    ) -> None:
        """Write tombstones of these offsets, then forget them. :param then: called once, with an error of any of them."""
        if not places:
            then(NONE)
            return
        parts = self._batches(group.group_id, places)
        waiting = len(parts)
        failed = NONE

        def appended(part: Iterable[Place], error: ErrorCode) -> None:
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

    def _batches(self, group_id: str, places: Iterable[Place]) -> list[dict[Place, Record]]:
        """The tombstones of offsets, as one batch each can hold them, whatever the group and the topics are called."""
        parts: list[dict[Place, Record]] = []
        size = 0
        for place in places:
            tombstone = offset_record(group_id, *place, None)
            size += batch_bytes([tombstone])
            if not parts or len(parts[-1]) == MAX_RECORDS_AT_ONCE or size > self.settings.max_member_bytes:
                parts.append({})
                size = batch_bytes([tombstone])
            parts[-1][place] = tombstone
        return parts

    # -- whole groups ----------------------------------------------------------------------------------------------------

    def delete(self, group_id: str, then: AppendCallback) -> None:
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

        places = dict.fromkeys((topic, partition) for topic, partition, _ in chain(group.offsets, group.pending))
        self._remove(shard, group, list(places), emptied)

    def _end(self, shard: Shard, group: Group, then: AppendCallback) -> None:
        """Take an empty group without offsets out of the log and of memory."""
        group.protocol.die(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        if shard.groups.get(group.group_id) is group:
            del shard.groups[group.group_id]
        self._append_changes(shard, group.tombstones(), then)

    def topics_deleted(self, topics: Iterable[str]) -> None:
        """The offsets of deleted topics go, of all groups, with those that are about to be committed."""
        names = set(topics)
        for shard in self._shards.values():
            new = names - shard.deleted_topics  # nothing was committed to the others since they began to go
            shard.deleted_topics |= new
            if not shard.loading:
                self._forget_topics(shard, new)

    def loaded(self, partition: int) -> None:
        """As `Shards` says; and what was read of topics that are no more goes."""
        super().loaded(partition)
        shard = self._shards[partition]
        if shard.topics is not None:  # those deleted since are told of
            read = {
                topic
                for group in shard.groups.values()
                for topic, _ in chain(group.offsets.topics(), group.pending.topics())
            }
            shard.deleted_topics |= read - shard.topics
            shard.topics = None
        count = self._forget_topics(shard, shard.deleted_topics)
        if count:
            log.info("__consumer_offsets-%d: deleting %d offset(s) of deleted topics", partition, count)

    def _forget_topics(self, shard: Shard, topics: Collection[str]) -> int:
        """Have offsets of topics removed, now or, if that fails, a little later; how many. Nobody commits to them before."""
        names = frozenset(topics)
        found = [(group, places) for group in shard.groups.values() if (places := group.places_in(names))]
        waiting, failed = len(found), NONE

        def removed(error: ErrorCode) -> None:
            nonlocal waiting, failed
            waiting -= 1
            failed = failed if error is NONE else error
            if waiting > 0:
                return
            if failed is NONE:
                shard.deleted_topics -= names
            elif self._shards.get(shard.partition) is shard:  # else whoever has it now sees that the topics are gone
                log.warning(
                    "__consumer_offsets-%d: cannot delete the offsets of deleted topics: %s; retrying in %d ms",
                    shard.partition,
                    failed.name,
                    RETRY_MS,
                )
                self._timers.call_at(self._timers.now_ms() + RETRY_MS, again)

        def again() -> None:
            if self._shards.get(shard.partition) is shard and not shard.loading:
                self._forget_topics(shard, names)

        if not found:
            shard.deleted_topics -= names
        for group, places in found:
            self._delete_offsets(shard, group, places, removed)
        return sum(len(places) for _, places in found)

    def expire(self) -> int:
        """Forget offsets that nobody needs any more, and groups of which nothing is left; how many offsets."""
        now_ms, count = self._timers.wall_ms(), 0
        for shard in self._shards.values():
            if shard.loading:
                continue
            for group in list(shard.groups.values()):
                places = group.expired(now_ms, self.settings.offsets_retention_ms)
                count += len(places)
                self._expire_group(shard, group, places)
        return count

    def _expire_group(self, shard: Shard, group: Group, places: Sequence[Place]) -> None:

        def removed(error: ErrorCode) -> None:
            report(error)
            if error is NONE and group.disposable and shard.groups.get(group.group_id) is group:
                self._end(shard, group, report)

        if places or group.disposable:
            self._remove(shard, group, places, removed)


def _places_of(commit: CommitRequest) -> list[Place]:
    return [place for place, _ in commit.items()]
