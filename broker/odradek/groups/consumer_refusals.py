"""Which heartbeats of KIP-848 are refused, and in which words. Pure functions on a group, used in the coordinator's loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from odradek.groups.consumer_member import JOINING, LEAVING_STATIC, ConsumerMember, HeartbeatRequest, HeartbeatResult
from odradek.groups.patterns import compiled
from odradek.groups.settings import ConsumerSettings
from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.groups.classic import ClassicGroup
    from odradek.groups.consumer_group import ConsumerGroup


def request_error(beat: HeartbeatRequest, settings: ConsumerSettings) -> HeartbeatResult | None:
    """Why a heartbeat is refused whatever its group; None if that depends on the group."""
    if beat.pattern:
        try:
            compiled(beat.pattern)
        except ValueError as error:
            return HeartbeatResult(
                ErrorCode.INVALID_REGULAR_EXPRESSION,
                f"SubscribedTopicRegex `{beat.pattern}` is not a valid regular expression: {error}.",
            )
    if beat.assignor is not None and beat.assignor not in settings.assignors:
        offered = ", ".join(settings.assignors)
        return HeartbeatResult(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {beat.assignor} is not supported. Supported assignors: {offered}.",
        )
    return None


def refusal(group: ConsumerGroup, settings: ConsumerSettings, beat: HeartbeatRequest) -> HeartbeatResult | None:
    """Why a heartbeat of one that joins, or is a member, is refused."""
    wrong = request_error(beat, settings)
    if wrong is not None:
        return wrong
    if beat.member_epoch == JOINING:
        return join_refusal(group, settings, beat)
    return _member_refusal(group, beat)


def join_refusal(
    group: ConsumerGroup | ClassicGroup, settings: ConsumerSettings, beat: HeartbeatRequest
) -> HeartbeatResult | None:
    """Why one that joins is refused: by a consumer group, or by a classic one that would become one for it."""
    known = beat.member_id in group.members or beat.instance_id in group.static_members
    if not known and len(group.members) >= settings.max_size:
        return HeartbeatResult(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {settings.max_size} members.",
        )
    if beat.instance_id is not None:
        holder = group.static_members.get(beat.instance_id)
        member = None if holder is None else group.members[holder]
        # One of the classic protocol never says that it leaves for a while: who comes in its name takes its place.
        owns = (
            isinstance(member, ConsumerMember)
            and member.classic is None
            and member.epoch != LEAVING_STATIC
            and member.claimed_by != beat.member_id
        )
        if owns and holder != beat.member_id:
            return HeartbeatResult(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {beat.member_id} with instance id {beat.instance_id} cannot join the group because the "
                f"instance id is owned by member {holder}.",
            )
    return None


def _member_refusal(group: ConsumerGroup, beat: HeartbeatRequest) -> HeartbeatResult | None:
    wrong = identity_refusal(group, beat)
    if wrong is not None:
        return wrong
    member = group.members[beat.member_id]
    if beat.member_epoch > member.epoch:
        return HeartbeatResult(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The consumer group member has a greater member epoch ({beat.member_epoch}) than the one known by the group "
            f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
        )
    if beat.member_epoch < member.epoch:
        # The answer that told the newer epoch may have been lost: the one before is taken while it holds nothing else.
        lost = beat.member_epoch == member.previous_epoch
        if not (lost and beat.owned is not None and beat.owned <= member.assigned):
            return HeartbeatResult(
                ErrorCode.FENCED_MEMBER_EPOCH,
                f"The consumer group member has a smaller member epoch ({beat.member_epoch}) than the one known by the "
                f"group coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
            )
    return None


def identity_refusal(group: ConsumerGroup, beat: HeartbeatRequest) -> HeartbeatResult | None:
    """Why one is refused that stays or leaves: it is not the member that it says. All that is asked of one that leaves."""
    if beat.instance_id is not None:
        known = group.static_members.get(beat.instance_id)
        if known is None:
            return HeartbeatResult(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {beat.instance_id} is unknown.")
        if known != beat.member_id:
            holder = group.members[known]
            if beat.member_id == holder.claimed_by or holder.epoch == LEAVING_STATIC:
                return HeartbeatResult(
                    ErrorCode.UNKNOWN_MEMBER_ID, f"Member {beat.member_id} is not a member of the group."
                )
            return HeartbeatResult(
                ErrorCode.FENCED_INSTANCE_ID, f"Instance id {beat.instance_id} is owned by member {known}."
            )
    if beat.member_id not in group.members:
        return HeartbeatResult(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {beat.member_id} is not a member of the group.")
    return None
