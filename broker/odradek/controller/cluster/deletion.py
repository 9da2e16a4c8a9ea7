"""Deletion of topics, from the mark under ``/admin/delete_topics`` to the removal of the topic's nodes.

Pure, see `effects`. A topic is deleted when all its replicas have confirmed it. A topic with a replica on a dead broker, or
with a reassignment in progress, waits (``ControllerContext.ineligible``).
"""

import logging
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence

from odradek.controller.cluster import partition_states, replica_states
from odradek.controller.cluster.context import ControllerContext, PartitionStatus, Replica, ReplicaStatus, Topic
from odradek.controller.cluster.effects import (
    PARTITIONS_A_STEP,
    Children,
    Delete,
    Group,
    Later,
    Read,
    Send,
    Steps,
    Write,
)
from odradek.controller.cluster.requests import RequestBatch
from odradek.metadata import znodes

log = logging.getLogger("odradek.controller")

STARTED, SUCCESSFUL = ReplicaStatus.DELETION_STARTED, ReplicaStatus.DELETION_SUCCESSFUL
INELIGIBLE, REPLICA_OFFLINE = ReplicaStatus.DELETION_INELIGIBLE, ReplicaStatus.OFFLINE
STOPPABLE = frozenset({ReplicaStatus.NEW, ReplicaStatus.ONLINE, REPLICA_OFFLINE})


def deletions_requested(context: ControllerContext, enabled: bool) -> Steps[None]:
    """Look at the marks and begin new deletions. Marks of unknown topics are removed, and all marks unless ``enabled``."""
    names = yield Children(znodes.DELETE_TOPICS, watched=True)
    unknown = [name for name in names if name not in context.topics or not enabled]
    if unknown:
        yield Write([(Delete(znodes.delete_topic_path(name)),) for name in unknown])
    if enabled:
        new = [name for name in names if name in context.topics and name not in context.deleting]
        if new:
            log.info("deleting topics, as clients requested: %s", ", ".join(new[:20]))
            yield from begin(context, new)


def begin(context: ControllerContext, names: Iterable[str]) -> Steps[None]:
    """Queue topics for deletion and delete those that are eligible."""
    queue(context, names)
    yield from proceed(context)


def queue(context: ControllerContext, names: Iterable[str]) -> None:
    """Queue topics; those with a reassignment in progress must wait for it."""
    for name in names:
        context.deleting.add(name)
        context.stop_beginning(context.topics[name])
        if any(partition.reassigning for partition in context.topics[name].partitions.values()):
            context.ineligible.add(name)


def resume(context: ControllerContext, names: Collection[str]) -> Steps[None]:
    """Topics that waited can be deleted now: a broker started, or a reassignment ended."""
    context.ineligible.difference_update(names)
    if not context.deleting.isdisjoint(names):
        yield from proceed(context)


def replicas_failed(context: ControllerContext, replicas: Sequence[Replica]) -> Steps[None]:
    """Replicas of queued topics cannot be deleted now: their broker failed, or returned an error."""
    failed = [replica for replica in replicas if context.is_deleting(replica[0])]
    if not failed:
        return
    for partition, broker_id in failed:  # a replica that was online when its broker failed
        if partition.replica_status.get(broker_id) in (ReplicaStatus.NEW, ReplicaStatus.ONLINE):
            partition.replica_status[broker_id] = REPLICA_OFFLINE
    movable = replica_states.ALLOWED[INELIGIBLE]
    replica_states.mark(
        [(partition, broker_id) for partition, broker_id in failed if partition.replica_status[broker_id] in movable],
        INELIGIBLE,
    )
    context.ineligible |= {partition.topic.name for partition, _ in failed}
    yield from proceed(context)


def replicas_deleted(context: ControllerContext, deleted: Sequence[Replica], failed: Sequence[Replica]) -> Steps[None]:
    """A broker confirmed the deletion of replicas, or failed to delete them."""
    if failed:
        log.warning("replicas could not be deleted, a later start of their brokers retries it: %s", list(failed)[:20])
        yield from replicas_failed(context, failed)
    confirmed = [
        (partition, broker_id)
        for partition, broker_id in deleted
        if context.is_deleting(partition) and partition.replica_status.get(broker_id) is STARTED
    ]
    if confirmed:
        replica_states.mark(confirmed, SUCCESSFUL)
        yield from proceed(context)


def proceed(context: ControllerContext) -> Steps[None]:
    """Complete deletions whose replicas are all deleted, and begin or retry those that are eligible."""
    eligible = []
    for name in sorted(context.deleting):
        topic = context.topics[name]
        if topic.deletion_continues:
            continue
        if all(status is SUCCESSFUL for status in _statuses(topic)):
            yield from _complete(context, topic)
            continue
        if name in context.ineligible or STARTED in _statuses(topic):
            continue
        replica_states.mark(_replicas(topic, INELIGIBLE), REPLICA_OFFLINE)
        eligible.append(topic)
    if eligible:
        yield from _delete(context, eligible)


def _statuses(topic: Topic) -> Iterator[ReplicaStatus]:
    return (status for partition in topic.partitions.values() for status in partition.replica_status.values())


def _replicas(topic: Topic, *statuses: ReplicaStatus) -> list[Replica]:
    return [
        (partition, broker_id)
        for partition in topic.partitions.values()
        for broker_id, status in partition.replica_status.items()
        if status in statuses
    ]


def _delete(context: ControllerContext, topics: Sequence[Topic]) -> Steps[None]:
    """Take the partitions offline, inform all brokers, then stop and delete the replicas on live brokers."""
    batch = RequestBatch(context)
    for topic in topics:
        if not topic.deletion_started:
            topic.deletion_started = True
            partitions = list(topic.partitions.values())
            begun = [
                partition for partition in partitions if partition.status is not PartitionStatus.NON_EXISTENT
            ]  # fmt: skip
            partition_states.move(begun, PartitionStatus.OFFLINE)
            partition_states.move(begun, PartitionStatus.NON_EXISTENT)
        batch.update_all(topic.partitions.values())
    yield Send(batch.take())
    stopping: list[Replica] = []
    for topic in topics:
        alive: list[Replica] = []
        dead: list[Replica] = []
        for replica in _replicas(topic, *(status for status in ReplicaStatus if status is not SUCCESSFUL)):
            (alive if context.is_online(*replica) else dead).append(replica)
        _mark_dead(dead)
        if dead:
            log.info("the deletion of topic %s waits for the brokers of %s", topic.name, dead[:20])
            context.ineligible.add(topic.name)
        stopping += alive
    yield from _stop(context, topics, deque(stopping))


def _stop(context: ControllerContext, topics: Sequence[Topic], waiting: deque[Replica]) -> Steps[None]:
    """Stop and delete replicas, the last of them in later steps. Meanwhile `proceed` passes over their topics, and
    `replicas_failed` moves replicas whose brokers fail to INELIGIBLE.

    :param waiting: replicas of the topics; they are removed.
    """
    part: list[Replica] = []
    while waiting and len(part) < PARTITIONS_A_STEP:
        partition, broker_id = waiting.popleft()
        known = context.topics.get(partition.topic.name) is partition.topic
        if known and partition.replica_status.get(broker_id) in STOPPABLE:
            part.append((partition, broker_id))
    batch = RequestBatch(context)
    yield from replica_states.to_offline(context, part, batch)
    yield Send(batch.take())
    replica_states.begin_deletion(part, batch)
    yield Send(batch.take())
    continued = any(topic.deletion_continues for topic in topics)
    for topic in topics:
        topic.deletion_continues = bool(waiting)
    if waiting:
        yield Later(_stop(context, topics, waiting))
    elif continued:
        yield from proceed(context)


def _mark_dead(dead: Iterable[Replica]) -> None:
    for partition, broker_id in dead:
        if partition.replica_status[broker_id] in (ReplicaStatus.NEW, ReplicaStatus.ONLINE):
            partition.replica_status[broker_id] = REPLICA_OFFLINE
    replica_states.mark(
        [replica for replica in dead if replica[0].replica_status[replica[1]] is not INELIGIBLE], INELIGIBLE
    )


def _complete(context: ControllerContext, topic: Topic) -> Steps[None]:
    """Delete the nodes of a topic, children before parents, its settings, and last its mark."""
    indexes = yield Children(znodes.partitions_path(topic.name))
    yield from _delete_nodes(context, topic, [znodes.partition_path(topic.name, int(index)) for index in indexes])


def _delete_nodes(context: ControllerContext, topic: Topic, paths: Sequence[str]) -> Steps[None]:
    """Delete the nodes of partitions, the last of them in later steps, then those of the topic."""
    name = topic.name
    if context.topics.get(name) is not topic:
        return  # another program removed its node
    part, rest = paths[:PARTITIONS_A_STEP], paths[PARTITIONS_A_STEP:]
    states = yield Read([f"{path}/state" for path in part])
    groups: list[Group] = []
    for path, state in zip(part, states, strict=True):
        groups.append((*((Delete(f"{path}/state"),) if state is not None else ()), Delete(path)))
    if groups:
        yield Write(groups)
    topic.deletion_continues = bool(rest)
    if rest:
        yield Later(_delete_nodes(context, topic, rest))
        return
    of_topic = [znodes.partitions_path(name), znodes.topic_path(name), znodes.topic_config_path(name)]
    of_topic.append(znodes.delete_topic_path(name))
    nodes = yield Read(of_topic)
    last = tuple(Delete(path) for path, node in zip(of_topic, nodes, strict=True) if node is not None)
    if last:
        (result,) = yield Write([last])
        if isinstance(result, Exception):
            log.error("cannot delete the nodes of topic %s: %s; a later step of a deletion retries it", name, result)
            return
    replica_states.forget(context, _replicas(topic, SUCCESSFUL))
    context.remove_topic(name)
    log.info("deleted topic %s", name)
