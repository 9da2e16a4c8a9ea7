"""Static members (KIP-345): whose instance id it is, and who is fenced. Pure functions, used by groups of both protocols."""

from collections.abc import Mapping

from broker.protocol.errors import ErrorCode


def instance_error(static_members: Mapping[str, str], instance_id: str | None, member_id: str) -> ErrorCode | None:
    """Why a member with this id does not own the instance id; None if it does, or names none.

    :param static_members: member ids by instance id.
    """
    if instance_id is None:
        return None
    known = static_members.get(instance_id)
    if known is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return None if known == member_id else ErrorCode.FENCED_INSTANCE_ID
