"""Elections of leaders: pure functions.

Each receives the replicas in the order of preference, the in-sync replicas and the brokers whose replica is online, and returns
the new leader and the new in-sync replicas, or None if no replica can lead.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple


class Choice(NamedTuple):
    """The result of an election. ``unclean``: the leader was not in sync, so committed records may be lost."""

    leader: int
    in_sync: list[int]
    unclean: bool = False


def elect_offline(
    replicas: Sequence[int], in_sync: Collection[int], online: Collection[int], unclean: bool
) -> Choice | None:
    """The first replica that is in sync and online; the new in-sync replicas are those online.

    :param unclean: if no replica is in sync and online, elect the first replica that is online.
    """
    for replica in replicas:
        if replica in online and replica in in_sync:
            return Choice(replica, [member for member in in_sync if member in online])
    if unclean:
        for replica in replicas:
            if replica in online:
                return Choice(replica, [replica], True)
    return None


def elect_for_reassignment(target: Sequence[int], in_sync: Sequence[int], online: Collection[int]) -> Choice | None:
    """The first replica of the target that is in sync and online; the in-sync replicas do not change."""
    for replica in target:
        if replica in online and replica in in_sync:
            return Choice(replica, list(in_sync))
    return None


def elect_preferred(replicas: Sequence[int], in_sync: Sequence[int], online: Collection[int]) -> Choice | None:
    """The first replica of the assignment, if it is in sync and online; the in-sync replicas do not change."""
    if replicas and replicas[0] in online and replicas[0] in in_sync:
        return Choice(replicas[0], list(in_sync))
    return None


def elect_for_shutdown(
    replicas: Sequence[int], in_sync: Sequence[int], online: Collection[int], shutting_down: Collection[int]
) -> Choice | None:
    """The first replica that is in sync, online and not shutting down; replicas that shut down leave the in-sync replicas."""
    for replica in replicas:
        if replica in online and replica in in_sync and replica not in shutting_down:
            return Choice(replica, [member for member in in_sync if member not in shutting_down])
    return None


def first_leader(replicas: Sequence[int], online: Collection[int]) -> Choice | None:
    """The leader of a new partition: the first replica that is online; all replicas that are online are in sync."""
    in_sync = [replica for replica in replicas if replica in online]
    return Choice(in_sync[0], in_sync) if in_sync else None


def without(in_sync: Sequence[int], leader: int, leaving: Collection[int]) -> tuple[int, list[int]]:
    """The leader (-1 if it leaves) and the in-sync replicas after replicas went offline.

    The in-sync replicas never become empty: if all leave at once, they all stay members, because each of them has all
    committed records.
    """
    remaining = [member for member in in_sync if member not in leaving]
    return (-1 if leader in leaving else leader), remaining or list(in_sync)
