"""Fencing of static members (KIP-345). Pure functions, used by groups of both protocols."""

from collections.abc import Collection, Mapping

from odradek.protocol.errors import ErrorCode


def instance_error(
    static_members: Mapping[str, str], instance_id: str | None, member_id: str, unconfirmed: Collection[str] = ()
) -> ErrorCode | None:
    """The error if a member does not own its instance id; None if it owns it or has none.

    FENCED_INSTANCE_ID ends a client, so it is returned only if the holder of the instance id has sent a request, too. A holder
    that is known only from the log may be the same client under a former member id: a JoinGroup can be answered before the new
    id is stored, and a loss of power can take back a record that was stored. UNKNOWN_MEMBER_ID makes the client join again,
    which replaces the holder.

    :param static_members: member ids by instance id.
    :param unconfirmed: ids of members that have sent no request since they were loaded from the log.
    """
    if instance_id is None:
        return None
    known = static_members.get(instance_id)
    if known is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if known == member_id:
        return None
    return ErrorCode.UNKNOWN_MEMBER_ID if known in unconfirmed else ErrorCode.FENCED_INSTANCE_ID
