"""The machine of replicas: New, Online, Offline, the states of a deletion, NonExistent.

Pure, see `effects`. Each function moves replicas to one state and collects the requests of that move.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence

from odradek.controller.cluster.context import ControllerContext, Partition, Replica, ReplicaStatus
from odradek.controller.cluster.effects import Steps
from odradek.controller.cluster.elections import without
from odradek.controller.cluster.partition_states import ATTEMPTS, write_states
from odradek.controller.cluster.requests import RequestBatch
from odradek.metadata.znodes import PartitionState

log = logging.getLogger("odradek.controller")

NON_EXISTENT, NEW = ReplicaStatus.NON_EXISTENT, ReplicaStatus.NEW
ONLINE, OFFLINE = ReplicaStatus.ONLINE, ReplicaStatus.OFFLINE
DELETION_STARTED = ReplicaStatus.DELETION_STARTED
DELETION_SUCCESSFUL = ReplicaStatus.DELETION_SUCCESSFUL
DELETION_INELIGIBLE = ReplicaStatus.DELETION_INELIGIBLE

ALLOWED: Mapping[ReplicaStatus, frozenset[ReplicaStatus]] = {
    NEW: frozenset({NON_EXISTENT}),
    ONLINE: frozenset({NEW, ONLINE, OFFLINE, DELETION_INELIGIBLE}),
    OFFLINE: frozenset({NEW, ONLINE, OFFLINE, DELETION_INELIGIBLE}),
    DELETION_STARTED: frozenset({OFFLINE}),
    DELETION_SUCCESSFUL: frozenset({DELETION_STARTED}),
    DELETION_INELIGIBLE: frozenset({OFFLINE, DELETION_STARTED}),
    NON_EXISTENT: frozenset({DELETION_SUCCESSFUL}),
}
"""The states from which a replica may come to a state."""


def allowed(replicas: Iterable[Replica], target: ReplicaStatus) -> list[Replica]:
    """The replicas that may move to a state; an error is logged for each of the others."""
    sources = ALLOWED[target]
    result = []
    for replica in replicas:
        partition, broker_id = replica
        status = partition.replica_status.get(broker_id, NON_EXISTENT)
        if status in sources:
            result.append(replica)
        else:
            log.error(
                "replica %d of partition %s cannot move from %s to %s",
                broker_id, partition, status.value, target.value,
            )  # fmt: skip
    return result


def to_new(replicas: Iterable[Replica], batch: RequestBatch) -> None:
    """New replicas: each receives the state as a new replica, if the partition has one."""
    for partition, broker_id in allowed(replicas, NEW):
        if partition.state is not None:
            if partition.leader == broker_id:
                log.error("replica %d of partition %s is the leader and cannot be new", broker_id, partition)
                continue
            batch.lead((broker_id,), partition, is_new=True)
        partition.replica_status[broker_id] = NEW


def to_online(replicas: Iterable[Replica], batch: RequestBatch) -> None:
    """Online: a replica that is not New receives the state of its partition."""
    for partition, broker_id in allowed(replicas, ONLINE):
        if partition.replica_status.get(broker_id) is not NEW and partition.state is not None:
            batch.lead((broker_id,), partition)
        partition.replica_status[broker_id] = ONLINE


def to_offline(context: ControllerContext, replicas: Iterable[Replica], batch: RequestBatch) -> Steps[None]:
    """Offline: stop the replica, remove it from the in-sync replicas in a new leader epoch, and inform the other replicas.

    The last in-sync replica is not removed; only the leader becomes -1. States of topics that are queued for deletion are not
    changed, because their nodes will be deleted.
    """
    leaving: dict[Partition, set[int]] = {}
    for partition, broker_id in allowed(replicas, OFFLINE):
        batch.stop(broker_id, partition, delete=False)
        leaving.setdefault(partition, set()).add(broker_id)
        partition.replica_status[broker_id] = OFFLINE
    kept = {partition: ids for partition, ids in leaving.items() if not context.is_deleting(partition)}
    for partition in (yield from leave_in_sync(context, kept)):
        if partition.state is None:
            batch.update_all((partition,))
        else:
            others = [replica for replica in partition.replicas if replica not in leaving[partition]]
            batch.lead(others, partition)


def leave_in_sync(context: ControllerContext, leaving: Mapping[Partition, set[int]]) -> Steps[list[Partition]]:
    """Remove replicas from the in-sync replicas of their partitions, in a new leader epoch where they are members.

    Returns the partitions, except those whose state other programs keep changing.
    """
    remaining = list(leaving)
    done: list[Partition] = []
    for _ in range(ATTEMPTS):
        changes = []
        for partition in remaining:
            changed = _without_replicas(context, partition, leaving[partition])
            if changed is not None:
                changes.append((partition, changed))
        refused = yield from write_states(context, changes)
        done += [partition for partition in remaining if partition not in refused]
        if not refused:
            return done
        remaining = list(refused)
    log.error("cannot remove replicas from %s: their states could not be written %d times", remaining[:20], ATTEMPTS)
    return done


def _without_replicas(context: ControllerContext, partition: Partition, leaving: set[int]) -> PartitionState | None:
    """The state without these members; None if they are no members."""
    state = partition.state
    if state is None or not leaving.intersection(state.in_sync_replicas):
        return None
    leader, in_sync = without(state.in_sync_replicas, state.leader, leaving)
    if leader == state.leader and in_sync == state.in_sync_replicas:
        return None
    return PartitionState(context.epoch, leader, state.leader_epoch + 1, in_sync, state.leader_recovery_state)


def begin_deletion(replicas: Iterable[Replica], batch: RequestBatch) -> None:
    """DeletionStarted: stop and delete the replica."""
    for partition, broker_id in allowed(replicas, DELETION_STARTED):
        batch.stop(broker_id, partition, delete=True)
        partition.replica_status[broker_id] = DELETION_STARTED


def mark(replicas: Iterable[Replica], target: ReplicaStatus) -> list[Replica]:
    """Move replicas to a state without requests: DeletionSuccessful, DeletionIneligible. Returns those that moved."""
    moved = allowed(replicas, target)
    for partition, broker_id in moved:
        partition.replica_status[broker_id] = target
    return moved


def forget(context: ControllerContext, replicas: Sequence[Replica]) -> None:
    """NonExistent: remove the replicas from the assignment in memory."""
    for partition, broker_id in allowed(replicas, NON_EXISTENT):
        del partition.replica_status[broker_id]
        if broker_id in partition.replicas:
            context.set_assignment(
                partition,
                [replica for replica in partition.replicas if replica != broker_id],
                [replica for replica in partition.adding if replica != broker_id],
                [replica for replica in partition.removing if replica != broker_id],
            )
