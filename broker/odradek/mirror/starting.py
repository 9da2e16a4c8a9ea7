"""Where partitions of a flow begin: at a committed position, else at the start or the end of the source.

Used in the threads of the lanes, and by `odradek mirror check`; stateless.
"""

from collections.abc import Collection, Mapping

from odradek.clients import groups
from odradek.clients.cluster import Cluster
from odradek.clients.errors import RefusedError, describe_code
from odradek.mirror.commits import Position
from odradek.mirror.leaders import limits
from odradek.mirror.positions import noted
from odradek.mirror.routes import LATEST
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import offset_fetch
from odradek.topic_partition import TopicPartition

NOT_READABLE = frozenset({ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.GROUP_ID_NOT_FOUND})
"""Errors of a group that the flow does not use: whoever has moved records with it was allowed to read it."""


def positions_group(group_id: str, exactly_once: bool) -> str:
    """The group of the target that has the positions of a flow.

    Only members may commit offsets of a group that has members, unless they do it in a transaction: without transactions
    the positions are in a separate group.
    """
    return group_id if exactly_once else f"{group_id}.positions"


def positions_in(target: Cluster, group_id: str, places: Collection[TopicPartition]) -> dict[TopicPartition, Position]:
    """The positions of partitions in a group that the flow does not use now. Raises ClientError.

    Empty if there is no such group, or if it may not be read.
    """
    served = target.any_broker().serves(offset_fetch.API_KEY)
    try:
        found = groups.fetch_offsets(target, group_id, stable=served is not None and served[1] >= groups.FIRST_STABLE)
    except RefusedError as error:
        if error.code not in NOT_READABLE:
            raise
        return {}
    return {place: Position(found[place].offset, found[place].metadata) for place in places if place in found}


def newest(
    own: Mapping[TopicPartition, Position], other: Mapping[TopicPartition, Position]
) -> dict[TopicPartition, Position]:
    """The positions to begin at, if `odradek.mirror.exactly.once` was switched: each group may have later ones.

    A position is committed with or after its records, so the later one of the same topic is right.
    """
    chosen = dict(own)
    for place, position in other.items():
        known = chosen.get(place)
        if known is None or (known.offset < position.offset and _topic(known) == _topic(position)):
            chosen[place] = position
    return chosen


def _topic(position: Position) -> tuple[object, object]:
    found = noted(position.metadata)
    return found.get("cluster_id"), found.get("topic_id")


def obstacles(target: Cluster, places: Collection[TopicPartition]) -> dict[TopicPartition, str]:
    """Why copies without a position cannot begin at the start of the source: they have records, or do not say it.

    A partition that does not exist, or has no leader, is left out. Raises ClientError.
    """
    if not places:
        return {}
    ends = limits(target, places, LATEST)
    found = {
        place: f"the target does not say whether {place[0]}-{place[1]} has records: {describe_code(code)}"
        for place, code in ends.refused.items()
    }
    return found | {place: _has_records(place, end) for place, end in ends.offsets.items() if end > 0}


def check_copies(target: Cluster, group_id: str, places: Collection[TopicPartition]) -> dict[TopicPartition, str]:
    """As `obstacles`, of the partitions without a position in any group of a flow. :param group_id: of its workers."""
    known: set[TopicPartition] = set()
    for exactly_once in (True, False) if places else ():
        known |= positions_in(target, positions_group(group_id, exactly_once), places).keys()
    return obstacles(target, [place for place in places if place not in known])


def _has_records(place: TopicPartition, end: int) -> str:
    return (
        f"the copy {place[0]}-{place[1]} has {end} offsets but no position, so all records could be copied a second time: "
        "delete the copy to begin again, or set odradek.mirror.start=latest to copy only new records, or "
        "odradek.mirror.copies.with.records=append to append all records of the source"
    )
