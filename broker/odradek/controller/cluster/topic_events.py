"""Topics and partitions come and go in the tree, whoever changed it: this controller, another broker or an old tool.

Pure, see `effects`. The machines react to what the nodes contain, not to requests.
"""

import logging
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from odradek.controller.cluster import partition_states, replica_states
from odradek.controller.cluster.context import ControllerContext, Partition, PartitionStatus, Replica, Topic
from odradek.controller.cluster.effects import PARTITIONS_A_STEP, Children, Group, Later, Read, Send, Set, Steps, Write
from odradek.controller.cluster.partition_states import create_states
from odradek.controller.cluster.requests import RequestBatch
from odradek.metadata import znodes
from odradek.metadata.cluster import new_uuid
from odradek.metadata.store import Refused, Stat

log = logging.getLogger("odradek.controller")

NewId = Callable[[], uuid.UUID]


def topics_changed(context: ControllerContext, make_id: NewId = new_uuid) -> Steps[None]:
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
        yield from begin_partitions(context, [part for topic in topics for part in topic.partitions.values()])


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


def topic_changed(context: ControllerContext, name: str) -> Steps[None]:
    """Look at a topic's node: begin partitions that were added.

    The context is the truth for everything else. Where an old tool wrote the node without the topic id, or added partitions to
    a topic that is being deleted, the node is written again.
    """
    (node,) = yield Read([znodes.topic_path(name)], watched=True)
    topic = context.topics.get(name)
    if node is None:
        return
    if topic is None:
        yield from topics_changed(context)  # its node was corrupt before
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
        yield from begin_partitions(context, [topic.partitions[index] for index in added])


def begin_partitions(context: ControllerContext, partitions: Iterable[Partition]) -> Steps[None]:
    """Create partitions that are new to the context: at most `PARTITIONS_A_STEP` now, those of other topics in later steps.

    Brokers announce the new partitions of a topic to clients together, after the last step: a producer must not distribute keys
    over the first ones. Partitions without an online replica wait for a broker. A partition whose state exists already, from a
    topic of that name that was not deleted in order, keeps its state.
    """
    new = [partition for partition in partitions if partition.status is PartitionStatus.NON_EXISTENT]
    log.info("creating %d new partitions", len(new))
    replica_states.to_new(_replicas(new), RequestBatch(context))
    by_topic: dict[Topic, list[Partition]] = {}
    for partition in new:
        by_topic.setdefault(partition.topic, []).append(partition)
    now: list[Partition] = []
    idle = not context.beginning
    for topic, added in by_topic.items():
        if topic not in context.beginning and len(now) + len(added) <= PARTITIONS_A_STEP:
            now += added
        else:
            context.beginning.setdefault(topic, deque()).extend(added)
            context.unannounced.update(added)
    if idle and context.beginning:
        yield Later(_begin_next(context))
    if now:
        batch = RequestBatch(context)
        yield from _begin(context, now, batch)
        yield Send(batch.take())


def _begin_next(context: ControllerContext) -> Steps[None]:
    """Create some of the partitions that wait; their topics take turns. Before that their status is NON_EXISTENT, so no event
    elects their leaders."""
    part: list[Partition] = []
    complete: list[Topic] = []
    while context.beginning and len(part) < PARTITIONS_A_STEP:
        topic = next(iter(context.beginning))
        waiting = context.beginning.pop(topic)
        while waiting and len(part) < PARTITIONS_A_STEP:
            part.append(waiting.popleft())
        if waiting:
            context.beginning[topic] = waiting  # behind the other topics
        else:
            complete.append(topic)
    batch = RequestBatch(context)
    yield from _begin(context, part, batch)
    for topic in complete:
        announced = context.unannounced.intersection(topic.partitions.values())
        context.unannounced -= announced
        batch.update_all(sorted(announced, key=lambda partition: partition.index))
    yield Send(batch.take())
    if context.beginning:
        yield Later(_begin_next(context))


def _begin(context: ControllerContext, partitions: Sequence[Partition], batch: RequestBatch) -> Steps[None]:
    partition_states.move(partitions, PartitionStatus.NEW)
    yield from create_states(context, partitions, batch)
    replica_states.to_online(_replicas(partitions), batch)


def _replicas(partitions: Iterable[Partition]) -> list[Replica]:
    return [(partition, broker_id) for partition in partitions for broker_id in partition.replicas]
