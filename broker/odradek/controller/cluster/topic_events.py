"""Topics and partitions come and go in the tree, whoever changed it: this controller, another broker or an old tool.

Pure, see `effects`. The machines react to what the nodes contain, not to requests.
"""

import logging
import uuid
from collections.abc import Callable, Iterable, Sequence

from odradek.controller.cluster import partition_states, replica_states
from odradek.controller.cluster.context import ControllerContext, Partition, PartitionStatus, Topic
from odradek.controller.cluster.effects import Children, Group, Read, Send, Set, Steps, Write
from odradek.controller.cluster.partition_states import UncleanElections, bring_online, offline_election
from odradek.controller.cluster.requests import RequestBatch
from odradek.metadata import znodes
from odradek.metadata.cluster import new_uuid
from odradek.metadata.store import Refused, Stat

log = logging.getLogger("odradek.controller")

NewId = Callable[[], uuid.UUID]


def topics_changed(context: ControllerContext, unclean: UncleanElections, make_id: NewId = new_uuid) -> Steps[None]:
    """Look at the topics: begin new ones, forget those whose node was removed."""
    names = yield Children(znodes.TOPICS, watched=True)
    present = set(names)
    removed = [name for name in context.topics if name not in present]
    for name in removed:
        log.warning("the node of topic %s was removed by another program", name)
        context.remove_topic(name)
    new = [name for name in names if name not in context.topics]
    if new:
        topics = yield from read_topics(context, new, make_id)
        yield from begin_partitions(
            context, [partition for topic in topics for partition in topic.partitions.values()], unclean
        )


def read_topics(context: ControllerContext, names: Sequence[str], make_id: NewId = new_uuid) -> Steps[list[Topic]]:
    """Read topics that the context does not contain and watch them; topics without an id receive one."""
    nodes = yield Read([znodes.topic_path(name) for name in names], watched=True)
    topics = []
    for name, node in zip(names, nodes, strict=True):
        if node is not None:
            data, stat = node
            try:
                assignment = znodes.decode_topic(name, data)
            except znodes.CorruptNode as error:
                log.error("topic %s is ignored until its node is correct: %s", name, error)
                continue
            topics.append(context.add_topic(name, assignment, stat.version))
    without_id = [topic for topic in topics if topic.topic_id is None]
    for topic in without_id:
        context.set_topic_id(topic, make_id())
    yield from write_topics(without_id)
    return topics


def write_topics(topics: Sequence[Topic]) -> Steps[dict[Topic, Refused]]:
    """Write the nodes of topics as the context has them. Returns the topics whose node was not written: another program had
    changed it, or the store refused the change."""
    if not topics:
        return {}
    groups: list[Group] = [
        (Set(znodes.topic_path(topic.name), znodes.encode_topic(topic.assignment()), topic.version),)
        for topic in topics
    ]
    refused: dict[Topic, Refused] = {}
    for topic, result in zip(topics, (yield Write(groups)), strict=True):
        if isinstance(result, Refused):
            log.warning("cannot write topic %s: %s; the watch of its node looks again", topic.name, result)
            refused[topic] = result
            continue
        (stat,) = result
        assert isinstance(stat, Stat)
        topic.version = stat.version
    return refused


def topic_changed(context: ControllerContext, name: str, unclean: UncleanElections) -> Steps[None]:
    """Look at a topic's node: begin partitions that were added.

    The context is the truth for everything else. Where an old tool wrote the node without the topic id, or added partitions to
    a topic that is being deleted, the node is written again.
    """
    (node,) = yield Read([znodes.topic_path(name)], watched=True)
    topic = context.topics.get(name)
    if node is None:
        return
    if topic is None:
        yield from topics_changed(context, unclean)  # its node was corrupt before
        return
    data, stat = node
    if stat.version == topic.version:
        return
    try:
        assignment = znodes.decode_topic(name, data)
    except znodes.CorruptNode as error:
        log.error("topic %s keeps its known partitions: %s", name, error)
        return
    added = [index for index in assignment.partitions if index not in topic.partitions]
    topic.version = stat.version
    if name in context.deleting:
        if added:
            log.warning("topic %s is being deleted: the partitions %s are not added", name, added[:20])
            yield from write_topics([topic])
        return
    if added:
        context.add_topic(name, assignment, stat.version)
    if assignment.topic_id != topic.topic_id:
        log.warning("topic %s was written with the id %s: it keeps %s", name, assignment.topic_id, topic.topic_id)
        yield from write_topics([topic])
    if added:
        yield from begin_partitions(context, [topic.partitions[index] for index in added], unclean)


def begin_partitions(
    context: ControllerContext, partitions: Iterable[Partition], unclean: UncleanElections
) -> Steps[list[Partition]]:
    """Create partitions that are new to the context. Returns those without an online replica, which wait for a broker.

    A partition whose state exists already, from a topic of that name that was not deleted in order, keeps its state.
    """
    new = [partition for partition in partitions if partition.status is PartitionStatus.NON_EXISTENT]
    log.info("%d new partitions", len(new))
    batch = RequestBatch(context)
    partition_states.move(new, PartitionStatus.NEW)
    replicas = [(partition, broker_id) for partition in new for broker_id in partition.replicas]
    replica_states.to_new(replicas, batch)
    failed = yield from bring_online(context, new, offline_election, batch, unclean)
    replica_states.to_online(replicas, batch)
    yield Send(batch.take())
    return failed
