"""Elections that are requested, by ElectLeaders, the node of old tools, or the balance of leaders.

Pure, see `effects`.
"""

import json
import logging
from collections.abc import Sequence

from odradek.controller.cluster.context import ControllerContext, Partition, PartitionStatus
from odradek.controller.cluster.effects import Delete, Read, Send, Steps, Write
from odradek.controller.cluster.partition_states import (
    UncleanElections,
    bring_online,
    offline_election,
    preferred_election,
)
from odradek.controller.cluster.requests import RequestBatch
from odradek.metadata.znodes import NO_LEADER, UNDECODABLE
from odradek.protocol.errors import ErrorCode

log = logging.getLogger("odradek.controller")

PREFERRED, UNCLEAN = 0, 1
"""Election types of ElectLeaders."""
PREFERRED_REPLICA_ELECTION = "/admin/preferred_replica_election"
"""The node of Kafka's tools before 2.4."""

_MESSAGES = {
    ErrorCode.NONE: None,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "The partition does not exist.",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "The topic is being deleted.",
    ErrorCode.ELECTION_NOT_NEEDED: "The partition already has the leader that the election would choose.",
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: "The preferred leader is not alive or not in sync.",
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: "No replica of the partition is alive.",
}


def message_of(code: ErrorCode) -> str | None:
    """The message for a code that `elect` returned."""
    return _MESSAGES[code]


def elect(
    context: ControllerContext, partitions: Sequence[Partition | None], election_type: int
) -> Steps[list[ErrorCode]]:
    """Elect the preferred leader, or with UNCLEAN any live replica where there is no leader; a code for each partition.

    :param partitions: None for a partition that does not exist.
    """
    codes: dict[int, ErrorCode] = {}
    electable: dict[Partition, None] = {}
    for place, partition in enumerate(partitions):
        if partition is None:
            codes[place] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif context.is_deleting(partition):
            codes[place] = ErrorCode.INVALID_TOPIC_EXCEPTION
        elif partition.status is PartitionStatus.NON_EXISTENT or not _needed(context, partition, election_type):
            codes[place] = ErrorCode.ELECTION_NOT_NEEDED
        else:
            electable[partition] = None
    batch = RequestBatch(context)
    if election_type == PREFERRED:
        failed = yield from bring_online(context, electable, preferred_election, batch)
    else:
        failed = yield from bring_online(context, electable, offline_election, batch, UncleanElections(forced=True))
    yield Send(batch.take())
    impossible = (
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
        if election_type == PREFERRED
        else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    )
    without_leader = frozenset(failed)
    return [
        codes.get(place, impossible if partition in without_leader else ErrorCode.NONE)
        for place, partition in enumerate(partitions)
    ]


def _needed(context: ControllerContext, partition: Partition, election_type: int) -> bool:
    if election_type == PREFERRED:
        return not partition.replicas or partition.leader != partition.replicas[0]
    return partition.leader == NO_LEADER or partition.leader not in context.live


def imbalanced(context: ControllerContext, percentage: int) -> list[Partition]:
    """The partitions that their preferred leader should lead again, where it can: those of brokers with too many of them.

    :param percentage: ``leader.imbalance.per.broker.percentage``: how many percent of the partitions whose preferred leader a
        broker is may have another leader.
    """
    if context.reassigning:
        return []
    preferred: dict[int, int] = {}
    elsewhere: dict[int, list[Partition]] = {}
    for partition in context.partitions():
        if context.is_deleting(partition) or not partition.replicas:
            continue
        broker_id = partition.replicas[0]
        preferred[broker_id] = preferred.get(broker_id, 0) + 1
        if partition.state is not None and partition.leader != broker_id:
            elsewhere.setdefault(broker_id, []).append(partition)
    return [
        partition
        for broker_id, partitions in sorted(elsewhere.items())
        if len(partitions) * 100 > percentage * preferred[broker_id]
        for partition in partitions
        if partition.in_sync and broker_id in partition.in_sync and context.is_online(partition, broker_id)
    ]


def rebalance(context: ControllerContext, percentage: int) -> Steps[int]:
    """Let preferred leaders lead again; returns how many partitions were elected."""
    partitions = imbalanced(context, percentage)
    if not partitions:
        return 0
    log.info("electing the preferred leaders of %d partitions", len(partitions))
    codes = yield from elect(context, partitions, PREFERRED)
    return codes.count(ErrorCode.NONE)


def legacy_requested(context: ControllerContext) -> Steps[None]:
    """Do the elections that the node of old tools requests, and remove the node."""
    (node,) = yield Read([PREFERRED_REPLICA_ELECTION], watched=True, awaited=True)
    if node is None:
        return
    try:
        entries = json.loads(node[0])["partitions"]
        partitions = [context.find(str(entry["topic"]), int(entry["partition"])) for entry in entries]
    except UNDECODABLE as error:
        log.error("cannot decode %s (%s): %r; removing it", PREFERRED_REPLICA_ELECTION, error, node[0][:200])
    else:
        yield from elect(context, partitions, PREFERRED)
    yield Write([(Delete(PREFERRED_REPLICA_ELECTION),)])
