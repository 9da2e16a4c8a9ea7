"""Serves the requests of group members in both protocols, and moves groups from one protocol to the other.

Runs in the coordinator process's loop, its only protection. Results for clients are Kafka error codes; requests of clients
raise no exceptions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace

from odradek.groups import migration
from odradek.groups.classic import ClassicGroup
from odradek.groups.classic_member import JoinRequest, JoinResult, Subscribed, SyncRequest, SyncResult
from odradek.groups.classic_roster import can_be_first
from odradek.groups.consumer_group import ConsumerGroup
from odradek.groups.consumer_member import (
    JOINING,
    LEAVING,
    LEAVING_STATIC,
    HeartbeatRequest,
    HeartbeatResult,
    size_of,
)
from odradek.groups.consumer_refusals import join_refusal, pattern_refusal, request_error
from odradek.groups.environment import Topics
from odradek.groups.group import Group, classic_record
from odradek.groups.history import client_text
from odradek.groups.shards import NONE, Shard, Shards, log_failed_append
from odradek.groups.visible_topics import Visible
from odradek.protocol.errors import ErrorCode
from odradek.quotas.new_names import LENGTH_KEY, SHORT
from odradek.security.owners import Client

log = logging.getLogger("odradek.groups")

LeaveResult = tuple[ErrorCode, list[ErrorCode]]
"""The result of a LeaveGroup: the error of the request, and one error per member; no member errors if the request has one."""


class Membership:
    """The requests of members. It keeps no state: `shards` owns the groups.

    :param topics: the existing topics, for the translation between the names and the ids of topics.
    """

    def __init__(self, shards: Shards, topics: Topics) -> None:
        self._shards = shards
        self._topics = topics

    # -- the classic protocol --------------------------------------------------------------------------------------------

    def join(self, group_id: str, join: JoinRequest, then: Callable[[JoinResult], None]) -> None:
        """Handle a JoinGroup."""
        error, shard = self._shards.shard_of(group_id)
        if not group_id:
            error, shard = ErrorCode.INVALID_GROUP_ID, None
        settings = self._shards.settings
        shortest, longest = settings.min_session_timeout_ms, settings.max_session_timeout_ms
        if shard is not None and not shortest <= join.session_timeout_ms <= longest:
            error, shard = ErrorCode.INVALID_SESSION_TIMEOUT, None
        size, limit = sum(len(name) + len(data) for name, data in join.protocols), settings.max_member_bytes
        if shard is not None and size > limit:
            log.warning(
                "refused a JoinGroup of client %s to group %s: its subscriptions take %d bytes, more than "
                "message.max.bytes (%d); subscribe to fewer topics or raise message.max.bytes",
                client_text(join.client_id, join.client_host), group_id, size, limit,
                extra={"client_address": _client_of(join).host},
            )  # fmt: skip
            error, shard = ErrorCode.UNKNOWN_SERVER_ERROR, None  # the error for a generation that cannot be stored
        if shard is None:
            then(JoinResult(error, join.member_id))
            return
        group = shard.groups.get(group_id)
        known = group is not None and join.instance_id in group.protocol.static_members
        if self._too_long(_client_of(join), None if known else join.instance_id, join.protocol_type):
            then(JoinResult(ErrorCode.INVALID_REQUEST, join.member_id))
            return
        if len(join.client_id) > SHORT:
            join = join._replace(client_id=join.client_id[: settings.names().length])
        if group is None:
            if join.member_id:
                then(JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, join.member_id))
                return
            error = self._shards.creation_error(group_id, _client_of(join))
            if error is not NONE:
                then(JoinResult(error, join.member_id))
                return
            group = self._shards.new_group(group_id)
            if can_be_first(join):
                self._shards.add(shard, group, _client_of(join))
        if group.consumer is not None:
            if not group.empty:
                migration.join(group.consumer, self._topics, limit, join, then)
                self._maybe_downgrade(shard, group)
                return
            if join.member_id or not can_be_first(join):  # refuse without changing the protocol of the group
                error = ErrorCode.UNKNOWN_MEMBER_ID if join.member_id else ErrorCode.INCONSISTENT_GROUP_PROTOCOL
                then(JoinResult(error, join.member_id))
                return
            self._change_protocol(shard, group, self._shards.new_classic(group_id))
        assert group.classic is not None
        group.classic.join(join, then)

    def reads_subscriptions(self, group_id: str) -> bool:
        """Whether `join` reads the subscription of a member of this group."""
        group = self._shards.find(group_id)[1]
        return group is not None and group.consumer is not None and not group.empty

    def subscribed_in_steps(self, metadata: bytes) -> Generator[None, None, Subscribed]:
        """See `migration`."""
        return migration.subscribed_in_steps(metadata, self._topics)

    def join_disconnected(self, group_id: str, then: Callable[[JoinResult], None]) -> None:
        """Handle the loss of the connection of a pending JoinGroup. :param then: the callback of `join`, not called yet."""
        group = self._shards.find(group_id)[1]
        if group is not None and group.classic is not None:
            group.classic.client_disconnected(then)

    def sync(self, group_id: str, sync: SyncRequest, then: Callable[[SyncResult], None]) -> None:
        """Handle a SyncGroup."""
        error, group = self._member_group(group_id)
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            error = ErrorCode.REBALANCE_IN_PROGRESS  # clients of SyncGroup do not know the other; they join again
        if group is None:
            then(SyncResult(error))
            return
        if group.consumer is not None:
            self._downgrade_if_due(group)
        if group.consumer is not None:
            answer = migration.sync(group.consumer, sync, self._topics.name_of)
            self._shards.persist_records(group.consumer, (), lambda error: then(SyncResult(error) if error else answer))
        elif group.classic is not None:
            group.classic.rebalance.sync(sync, then)

    def heartbeat(self, group_id: str, member_id: str, generation_id: int, instance_id: str | None) -> ErrorCode:
        """Handle a Heartbeat. While the group is loading it succeeds: members must not fail because of a load."""
        error, group = self._member_group(group_id)
        if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            return NONE
        if group is None:
            return error
        if group.consumer is not None:
            self._downgrade_if_due(group)
        if group.consumer is not None:
            return migration.heartbeat(group.consumer, member_id, generation_id, instance_id)
        assert group.classic is not None
        return group.classic.heartbeat(member_id, generation_id, instance_id)

    def leave(
        self, group_id: str, members: Sequence[tuple[str, str | None, str]], then: Callable[[LeaveResult], None]
    ) -> None:
        """Handle a LeaveGroup. :param members: (member id, instance id, reason)."""
        error, group = self._member_group(group_id)
        if group is None and error is not ErrorCode.UNKNOWN_MEMBER_ID:
            then((error, []))
        elif group is None:
            then((NONE, [ErrorCode.UNKNOWN_MEMBER_ID for _ in members]))
        elif group.consumer is not None:
            errors = [group.consumer.leave_classic(*member) for member in members]
            self._shards.persist_records(group.consumer, (), lambda error: then((error, [] if error else errors)))
        elif group.classic is not None:
            then((NONE, group.classic.leave(members)))

    def _member_group(self, group_id: str) -> tuple[ErrorCode, Group | None]:
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID, None
        error, group = self._shards.find(group_id)
        return (ErrorCode.UNKNOWN_MEMBER_ID if error is NONE and group is None else error), group

    # -- KIP-848 ---------------------------------------------------------------------------------------------------------

    def unresolved_patterns(self, group_id: str, request: HeartbeatRequest) -> list[str]:
        """Patterns that must be resolved before a heartbeat is handled; see `TopicPatterns`. They do not include that of a
        heartbeat that `beat` will refuse."""
        error, group = self._shards.find(group_id)
        if error is not NONE:
            return []
        of_group = group.consumer.patterns if group is not None and group.consumer is not None else ()
        own = None if self._refused(group, request) else request.pattern
        return [pattern for pattern in {*of_group, own} if pattern and not self._shards.patterns.resolved(pattern)]

    def _refused(self, group: Group | None, request: HeartbeatRequest) -> bool:
        """Whether `beat` will refuse a heartbeat for another reason than its pattern, or will ignore its pattern, because the
        member leaves."""
        if size_of(request) > self._shards.settings.max_member_bytes or request.member_epoch in (
            LEAVING,
            LEAVING_STATIC,
        ):
            return True
        if group is None or group.consumer is None:
            return request.member_epoch != JOINING
        return group.consumer.refusal(request) is not None

    def sight(
        self, group_id: str, request: HeartbeatRequest
    ) -> tuple[str | None, Visible | None, Mapping[str, Visible]]:
        """The pattern that the member has after a heartbeat, what it may see so far, and what other members may see."""
        error, group = self._shards.find(group_id)
        consumer = group.consumer if error is NONE and group is not None else None
        if consumer is None:
            return request.pattern, None, {}
        replaced = consumer.static_members.get(request.instance_id or "", "")
        member = consumer.members.get(request.member_id) or consumer.members.get(replaced)
        pattern = request.pattern if request.pattern is not None or member is None else member.pattern
        others = {
            other.member_id: other.visible
            for other in (consumer.members.values() if consumer.patterns else ())
            if other is not member and other.visible is not None and other.pattern is not None
        }
        return pattern, None if member is None else member.visible, others

    def see(self, group_id: str, seen: Mapping[str, tuple[Visible, Visible]]) -> None:
        """Change what members of a consumer group may see, by member id, from one to the other; see `visible_topics`."""
        error, group = self._shards.find(group_id)
        if seen and error is NONE and group is not None and group.consumer is not None:
            group.consumer.see(seen)

    def beat(self, group_id: str, request: HeartbeatRequest, then: Callable[[HeartbeatResult], None]) -> None:
        """Handle a ConsumerGroupHeartbeat."""
        error, shard = self._shards.shard_of(group_id)
        if shard is None:
            then(HeartbeatResult(error))
            return
        size, limit = size_of(request), self._shards.settings.max_member_bytes
        if size > limit:
            why = f"The subscription takes {size} bytes, more than message.max.bytes ({limit}) of this broker."
            then(HeartbeatResult(ErrorCode.UNKNOWN_SERVER_ERROR, why))
            return
        group = shard.groups.get(group_id)
        names = [request.rack_id]
        if group is None or request.member_id not in group.protocol.members:
            names += [request.member_id, request.instance_id]
        if self._too_long(_client_of(request), *names):
            longest = self._shards.settings.names().length
            why = f"The ids and the rack of a member have at most {longest} characters ({LENGTH_KEY})."
            then(HeartbeatResult(ErrorCode.INVALID_REQUEST, why))
            return
        if len(request.client_id) > SHORT:
            request = replace(request, client_id=request.client_id[: self._shards.settings.names().length])
        if request.member_epoch != JOINING and (group is None or group.classic is not None):
            # Kafka returns GROUP_ID_NOT_FOUND here, which KIP-848 does not list and which ends clients. UNKNOWN_MEMBER_ID makes
            # them join again, also if a loss of power took the group's records.
            then(HeartbeatResult(ErrorCode.UNKNOWN_MEMBER_ID, f"Group {group_id} has no member {request.member_id}."))
            return
        if group is None or group.classic is not None:
            if group is not None and not self._may_upgrade(group, request):
                then(HeartbeatResult(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group."))
                return
            settings = self._shards.consumer_settings.of(group_id)
            refusal = request_error(request, settings)
            if refusal is None and group is not None and group.classic is not None:
                refusal = join_refusal(group.classic, settings, request)
            if refusal is None:
                refusal = pattern_refusal(request, self._shards.patterns.error_of)
            if refusal is not None:  # a refused heartbeat creates no group and changes no protocol
                if group is not None and group.classic is not None:
                    group.classic.record_refusal(request, refusal.error, refusal.message or "")
                then(refusal)
                return
        if group is None:
            error = self._shards.creation_error(group_id, _client_of(request))
            if error is not NONE:
                limits = self._shards.settings.names()
                why = (
                    f"The id of a new group has at most {limits.length} characters ({LENGTH_KEY})."
                    if error is ErrorCode.INVALID_GROUP_ID
                    else f"No more groups can be created ({limits.key}, {limits.key}.per.client)."
                )
                then(HeartbeatResult(error, why))
                return
            group = Group(group_id, self._shards.new_consumer(group_id))
            self._shards.add(shard, group, _client_of(request))
        elif group.classic is not None:
            self._upgrade(shard, group)
        assert group.consumer is not None
        group.consumer.heartbeat(request, then)
        member = group.consumer.members.get(request.member_id)
        if member is None or member.classic is not None:  # otherwise this member itself uses the consumer protocol
            self._maybe_downgrade(shard, group)

    # -- changes of the protocol -----------------------------------------------------------------------------------------

    def _too_long(self, client: Client, *names: str | None) -> bool:
        """Whether one of the names that the group would keep for a member is too long; a refusal is logged."""
        return any(name is not None and self._shards.names.too_long(name, str(client)) for name in names)

    def _may_upgrade(self, group: Group, request: HeartbeatRequest) -> bool:
        if request.member_epoch != JOINING or group.classic is None:
            return False
        if not group.classic.members:  # pending ids may join a group of either protocol
            return True
        settings = self._shards.consumer_settings.of(group.group_id)
        obstacle = migration.upgrade_obstacle(group.classic, settings.max_size, self._shards.settings.max_member_bytes)
        if obstacle is not None or not settings.upgrade:
            why = obstacle or "group.consumer.migration.policy does not allow upgrades"
            log.info(
                "refused a member of the consumer protocol: classic group %s cannot become a consumer group: %s",
                group.group_id, why, extra={"client_address": _client_of(request).host},
            )  # fmt: skip
            why = f"the classic group cannot become one of the consumer protocol: {why}"
            group.classic.record_refusal(request, ErrorCode.GROUP_ID_NOT_FOUND, why)
            return False
        return True

    def _upgrade(self, shard: Shard, group: Group) -> None:
        consumer = self._shards.new_consumer(group.group_id)
        if group.classic is None or not group.classic.members:
            self._change_protocol(shard, group, consumer)
            return
        log.info("upgrading classic group %s to a consumer group", group.group_id)
        tombstones = group.tombstones()
        records = migration.upgrade(group.classic, consumer, self._topics)
        group.protocol = consumer
        self._shards.append_changes(shard, [*tombstones, *records], log_failed_append)

    def _downgrade_if_due(self, group: Group) -> None:
        """Downgrade a group if its last member of the consumer protocol was removed meanwhile."""
        shard = self._shards.shard_of(group.group_id)[1]
        if shard is not None:
            self._maybe_downgrade(shard, group)

    def _maybe_downgrade(self, shard: Shard, group: Group) -> None:
        """Downgrade a consumer group to a classic group if only classic members are left."""
        consumer = group.consumer
        if (
            consumer is None
            or not consumer.all_classic
            or not self._shards.consumer_settings.of(group.group_id).downgrade
        ):
            return
        if len(consumer.members) > self._shards.settings.max_size or group.downgrade_refused_at == consumer.epoch:
            return  # it stays a consumer group whose classic members are translated
        classic = self._shards.new_classic(group.group_id)
        migration.downgrade(consumer, classic, self._topics.name_of)
        records = [*consumer.tombstones(), classic_record(classic, classic.roster.assignments())]
        size = migration.batch_bytes(records)
        if size > self._shards.settings.max_member_bytes:  # such a batch can never be stored
            group.downgrade_refused_at = consumer.epoch
            log.warning(
                "consumer group %s stays a consumer group although all its %d members use the classic "
                "protocol: as a classic group it needs a batch of %d bytes, more than message.max.bytes (%d)",
                group.group_id, len(consumer.members), size, self._shards.settings.max_member_bytes,
            )  # fmt: skip
            return
        log.info("downgrading consumer group %s to a classic group", group.group_id)
        consumer.die(ErrorCode.REBALANCE_IN_PROGRESS)
        classic.begin_sessions()
        group.protocol = classic
        self._shards.append_changes(shard, records, log_failed_append)
        classic.rebalance.begin("the last member of the consumer protocol left")

    def _change_protocol(self, shard: Shard, group: Group, protocol: ClassicGroup | ConsumerGroup) -> None:
        """Give a group without members the other protocol."""
        if group.protocol.protocol_type is not None:
            self._shards.append_changes(shard, group.tombstones(), log_failed_append)
        group.protocol.die(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        group.protocol = protocol


def _client_of(request: JoinRequest | HeartbeatRequest) -> Client:
    return Client(request.principal, request.client_host.removeprefix("/"))
