"""Validates heartbeats of consumer groups (KIP-848). Pure functions on a group, used in the coordinator's loop.

The messages have Kafka's wording.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from odradek.groups.consumer_member import JOINING, LEAVING_STATIC, ConsumerMember, HeartbeatRequest, HeartbeatResult
from odradek.groups.settings import ConsumerSettings
from odradek.protocol.errors import ErrorCode

if TYPE_CHECKING:
    from odradek.groups.classic import ClassicGroup
    from odradek.groups.consumer_group import ConsumerGroup


PatternError = Callable[[str], str | None]
"""Returns why a pattern is invalid; None if it is valid."""


def request_error(request: HeartbeatRequest, settings: ConsumerSettings) -> HeartbeatResult | None:
    """The error of a heartbeat that is invalid in any group; None if it is valid so far. Does not look at its pattern."""
    if request.assignor is not None and request.assignor not in settings.assignors:
        offered = ", ".join(settings.assignors)
        return HeartbeatResult(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.assignor} is not supported. Supported assignors: {offered}.",
        )
    return None


def pattern_refusal(request: HeartbeatRequest, pattern_error: PatternError) -> HeartbeatResult | None:
    """The error of the pattern of a heartbeat that is valid otherwise; None if it is valid, or if there is none.

    It comes last, because a pattern is compiled only for a client that may be a member, as in Kafka.
    """
    error = pattern_error(request.pattern) if request.pattern else None
    if error is None:
        return None
    return HeartbeatResult(
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        f"SubscribedTopicRegex `{request.pattern}` is not a valid regular expression: {error}.",
    )


def refusal(group: ConsumerGroup, settings: ConsumerSettings, request: HeartbeatRequest) -> HeartbeatResult | None:
    """The error of a heartbeat that joins or keeps a member alive, apart from that of its pattern; None if it is valid."""
    error = request_error(request, settings)
    if error is not None:
        return error
    if request.member_epoch == JOINING:
        return join_refusal(group, settings, request)
    return _member_refusal(group, request)


def join_refusal(
    group: ConsumerGroup | ClassicGroup, settings: ConsumerSettings, request: HeartbeatRequest
) -> HeartbeatResult | None:
    """The error of a heartbeat that joins a consumer group, or a classic group that it would upgrade; None if it is valid."""
    known = request.member_id in group.members or request.instance_id in group.static_members
    if not known and len(group.members) >= settings.max_size:
        return HeartbeatResult(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {settings.max_size} members.",
        )
    if request.instance_id is not None:
        holder = group.static_members.get(request.instance_id)
        member = None if holder is None else group.members[holder]
        # A classic static member never announces that it leaves for a while: a member with its instance id replaces it.
        owns = (
            isinstance(member, ConsumerMember)
            and member.classic is None
            and member.epoch != LEAVING_STATIC
            and member.claimed_by != request.member_id
        )
        if owns and holder != request.member_id:
            return HeartbeatResult(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {request.member_id} with instance id {request.instance_id} cannot join the group because the "
                f"instance id is owned by member {holder}.",
            )
    return None


def _member_refusal(group: ConsumerGroup, request: HeartbeatRequest) -> HeartbeatResult | None:
    error = identity_refusal(group, request)
    if error is not None:
        return error
    member = group.members[request.member_id]
    if request.member_epoch > member.epoch:
        return HeartbeatResult(
            ErrorCode.FENCED_MEMBER_EPOCH,
            f"The consumer group member has a greater member epoch ({request.member_epoch}) than the one known by the group "
            f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
        )
    if request.member_epoch < member.epoch:
        # The response with the newer epoch may be lost: accept the previous epoch if the member owns no other partitions.
        lost = request.member_epoch == member.previous_epoch
        if not (lost and request.owned is not None and request.owned <= member.assigned):
            return HeartbeatResult(
                ErrorCode.FENCED_MEMBER_EPOCH,
                f"The consumer group member has a smaller member epoch ({request.member_epoch}) than the one known by the "
                f"group coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
            )
    return None


def identity_refusal(group: ConsumerGroup, request: HeartbeatRequest) -> HeartbeatResult | None:
    """The error of a heartbeat whose sender is not the member that it claims to be; the only check for a member that leaves."""
    if request.instance_id is not None:
        known = group.static_members.get(request.instance_id)
        if known is None:
            return HeartbeatResult(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {request.instance_id} is unknown.")
        if known != request.member_id:
            holder = group.members[known]
            if request.member_id == holder.claimed_by or holder.epoch == LEAVING_STATIC:
                return HeartbeatResult(
                    ErrorCode.UNKNOWN_MEMBER_ID, f"Member {request.member_id} is not a member of the group."
                )
            return HeartbeatResult(
                ErrorCode.FENCED_INSTANCE_ID, f"Instance id {request.instance_id} is owned by member {known}."
            )
    if request.member_id not in group.members:
        return HeartbeatResult(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {request.member_id} is not a member of the group.")
    return None
