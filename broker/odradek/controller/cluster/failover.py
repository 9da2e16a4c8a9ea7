"""The begin of a controller: it reads the whole tree, informs all brokers, and resumes what its predecessor began.

Pure, see `effects`. All watches are set by the reads, so that no change between reading and watching is lost.
"""

import logging
from collections.abc import Iterable, Mapping

from odradek.controller.cluster import deletion, leadership, reassignment, replica_states
from odradek.controller.cluster.broker_events import read_brokers
from odradek.controller.cluster.context import ControllerContext, Partition, Replica, ReplicaStatus
from odradek.controller.cluster.effects import Children, Create, OpenChannel, Read, Send, Steps, Write
from odradek.controller.cluster.elections import Choice, elect_offline
from odradek.controller.cluster.in_sync import ISR_CHANGES
from odradek.controller.cluster.log_dirs import LOG_DIR_EVENTS, remove_notifications
from odradek.controller.cluster.partition_states import (
    OFFLINE,
    UncleanElections,
    bring_online,
    initial_status,
    read_states,
    to_elect,
)
from odradek.controller.cluster.requests import RequestBatch
from odradek.controller.cluster.topic_events import read_topics
from odradek.metadata import znodes
from odradek.metadata.znodes import PartitionState

log = logging.getLogger("odradek.controller")

FEATURE = "/feature"
NO_FEATURES = b'{"features":{},"version":2,"status":1}'


def begin(context: ControllerContext, unclean: UncleanElections, deletion_enabled: bool) -> Steps[None]:
    """Become active with an empty context.

    :param deletion_enabled: ``delete.topic.enable``; without it, marks of deletions are removed.
    """
    yield from _ensure_features()
    yield from remove_notifications((LOG_DIR_EVENTS, ISR_CHANGES))
    brokers = yield from read_brokers()
    context.add_brokers(brokers.values())
    for broker in brokers.values():
        yield OpenChannel(broker)
    yield from read_topics(context, (yield Children(znodes.TOPICS, watched=True)))
    partitions = list(context.partitions())
    modified = yield from read_states(partitions)
    restarted = missed_restarts(context, zip(partitions, modified, strict=True))
    marks = yield Children(znodes.DELETE_TOPICS, watched=True)
    if deletion_enabled:
        deletion.queue(context, [name for name in marks if name in context.topics])
    batch = RequestBatch(context)
    batch.update_all(())
    yield Send(batch.take())  # brokers must know each other before they receive their replicas
    yield from _start_machines(context, restarted, unclean)
    log.info(
        "leading the cluster in controller epoch %d, with %d brokers, %d topics, %d partitions",
        context.epoch, len(context.brokers), len(context.topics), sum(1 for _ in context.partitions()),
    )  # fmt: skip
    yield from reassignment.resume(context, reassignment.in_progress(context))
    yield from reassignment.legacy_requested(context)
    yield from deletion.deletions_requested(context, deletion_enabled)
    yield from deletion.proceed(context)
    yield from leadership.legacy_requested(context)


def _ensure_features() -> Steps[None]:
    (node,) = yield Read([FEATURE])
    if node is None:
        yield Write([(Create(FEATURE, NO_FEATURES),)])


def missed_restarts(context: ControllerContext, written: Iterable[tuple[Partition, int]]) -> dict[Partition, set[int]]:
    """The members of in-sync replicas whose broker restarted, and no controller has noticed it yet.

    A broker leads or joins only by a write after its registration. A member that registered after the last write of the state
    is therefore a new incarnation: without a new leader epoch it could lead on in the epoch of its predecessor.

    :param written: partitions with the number of the transaction that wrote their state.
    """
    missed = {}
    for partition, number in written:
        members = {
            member
            for member in partition.in_sync
            if member in context.brokers and context.brokers[member].epoch > number
        }
        if members:
            missed[partition] = members
    return missed


def _start_machines(
    context: ControllerContext, restarted: Mapping[Partition, set[int]], unclean: UncleanElections
) -> Steps[None]:
    """Put all partitions and replicas into their first states, elect leaders, and send every broker all its replicas.

    Replicas of topics that are queued for deletion receive nothing: the deletion stops them.
    """
    online: list[Replica] = []
    offline: list[Replica] = []
    leaving: dict[Partition, set[int]] = {}
    for partition in context.partitions():
        members = restarted.get(partition, set())
        partition.status = OFFLINE if partition.leader in members else initial_status(context, partition)
        deleting = context.is_deleting(partition)
        live = context.online_for(partition)
        for broker_id in partition.replicas:
            is_live = broker_id in live
            partition.replica_status[broker_id] = ReplicaStatus.ONLINE if is_live else ReplicaStatus.DELETION_INELIGIBLE
            if not deleting:
                (online if is_live else offline).append((partition, broker_id))
        if members and partition.status is not OFFLINE and not deleting:
            leaving[partition] = members

    def elect(context: ControllerContext, partition: Partition, state: PartitionState, unclean: bool) -> Choice | None:
        """Elect a replica that did not restart; otherwise one that did."""
        live = context.online_for(partition)
        steady = set(live) - restarted.get(partition, set())
        replicas, in_sync = partition.replicas, state.in_sync_replicas
        return elect_offline(replicas, in_sync, steady, False) or elect_offline(replicas, in_sync, live, unclean)

    batch = RequestBatch(context)
    batch.update_all(context.partitions())
    replica_states.to_online(online, batch)
    yield from bring_online(context, to_elect(context), elect, batch, unclean)
    for partition in (yield from replica_states.leave_in_sync(context, leaving)):
        batch.lead(partition.replicas, partition)
    yield from replica_states.to_offline(context, offline, batch)
    yield Send(batch.take())
