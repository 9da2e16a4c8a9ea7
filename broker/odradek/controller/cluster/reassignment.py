"""Reassignments: replicas of partitions move to other brokers, in two phases that any later controller can resume.

Pure, see `effects`. Phase A writes the assignment with the added and removed replicas, begins a leader epoch and starts the new
replicas. Phase B runs when all target replicas are in sync: it moves the leader if necessary, removes the old replicas, and
writes the final assignment last.
"""

import json
import logging
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from odradek.controller.cluster import deletion, replica_states
from odradek.controller.cluster.context import ControllerContext, Partition, ReplicaStatus, Topic
from odradek.controller.cluster.effects import PARTITIONS_A_STEP, Delete, Later, Read, Send, Set, Steps, Write
from odradek.controller.cluster.partition_states import begin_epochs, elect_leaders, reassignment_election
from odradek.controller.cluster.requests import RequestBatch
from odradek.controller.cluster.topic_events import write_topics
from odradek.controller.store_errors import code_of
from odradek.controller.topics import Refusal, refuse_too_many_replicas
from odradek.metadata.store import NodeError, Refused, TooLarge
from odradek.metadata.znodes import UNDECODABLE
from odradek.protocol.errors import ErrorCode
from odradek.topic_partition import TopicPartition

log = logging.getLogger("odradek.controller")

REASSIGN_PARTITIONS = "/admin/reassign_partitions"
"""The node of Kafka's tools before 2.5."""

NEW, OFFLINE = ReplicaStatus.NEW, ReplicaStatus.OFFLINE


class Assignment(NamedTuple):
    """The assignment of a partition, see `context.Partition`."""

    replicas: list[int]
    adding: list[int]
    removing: list[int]


def reassigned(replicas: Sequence[int], adding: Collection[int], target: Sequence[int]) -> Assignment:
    """The assignment with which a reassignment to ``target`` begins.

    :param replicas: all present replicas. :param adding: those that a reassignment in progress adds; it is replaced.
    """
    original = [replica for replica in replicas if replica not in adding]
    full = [*target, *(replica for replica in original if replica not in target)]
    return Assignment(
        full,
        [replica for replica in full if replica not in original],
        [replica for replica in full if replica not in target],
    )


def planned(
    context: ControllerContext,
    partition: Partition | None,
    target: Sequence[int] | None,
    factor_may_change: bool = True,
) -> Assignment:
    """Check a request. Raises Refusal with the codes of AlterPartitionReassignments.

    :param target: the new replicas, the preferred leader first; None to cancel the reassignment in progress.
    """
    if partition is None or context.is_deleting(partition):
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
    if partition in context.unannounced:
        raise Refusal(
            ErrorCode.REQUEST_TIMED_OUT,
            f"Partition {partition} is being created; repeat the request when all partitions of the topic have leaders.",
        )
    if target is None:
        if not partition.reassigning:
            raise Refusal(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No reassignment of the partition is in progress.")
        return _checked(partition, reassigned(partition.replicas, partition.adding, partition.original_replicas))
    dead = [replica for replica in target if replica not in context.live]
    problem = (
        "the list of replicas is empty"
        if not target
        else f"the list of replicas {list(target)} contains a negative broker id"
        if min(target) < 0
        else f"the list of replicas {list(target)} contains a broker twice"
        if len(set(target)) != len(target)
        else f"the brokers {dead} are not alive; the live brokers are {sorted(context.live)}"
        if dead
        else None
    )
    if problem is not None:
        raise Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The partition cannot be reassigned: {problem}.")
    factor = len(partition.original_replicas)
    if not factor_may_change and len(target) != factor:
        raise Refusal(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The partition has {factor} replicas, the request {len(target)}; it does not allow a change of the number.",
        )
    assignment = reassigned(partition.replicas, partition.adding, target)
    if len(assignment.replicas) > len(partition.replicas):
        refuse_too_many_replicas(
            "The number of replicas during the reassignment, with those that it adds and removes,",
            len(assignment.replicas),
        )
    return _checked(partition, assignment)


def _checked(partition: Partition, assignment: Assignment) -> Assignment:
    """Refuse an assignment that has none of the in-sync replicas, because it would delete all committed records."""
    in_sync = partition.in_sync
    if in_sync and set(in_sync).isdisjoint(assignment.replicas):
        raise Refusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"The partition cannot be reassigned: its in-sync replicas {in_sync} would all be removed.",
        )
    return assignment


def is_complete(partition: Partition) -> bool:
    """Whether all target replicas are in sync."""
    return not partition.reassigning or set(partition.target_replicas) <= set(partition.in_sync)


def refusal_of(error: Refused) -> tuple[ErrorCode, str]:
    """The answer for a partition whose topic node could not be written."""
    if isinstance(error, NodeError):
        return ErrorCode.INVALID_UPDATE_VERSION, "Another program changed the topic; retry."
    if isinstance(error, TooLarge):
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The partition cannot be reassigned: {error}."
    return code_of(error), f"The partition cannot be reassigned: {error}."


def begin(context: ControllerContext, changes: Mapping[Partition, Assignment]) -> Steps[dict[Partition, Refused]]:
    """Begin, replace or cancel reassignments. Returns the partitions whose topic node could not be written."""
    old = {
        partition: Assignment(partition.replicas, partition.adding, partition.removing) for partition in changes
    }  # fmt: skip
    changed = [partition for partition, assignment in changes.items() if old[partition] != assignment]
    for partition in changed:
        context.set_assignment(partition, *changes[partition])
    refused_topics = yield from write_topics(_topics(changed))
    refused = {
        partition: refused_topics[partition.topic] for partition in changed if partition.topic in refused_topics
    }  # fmt: skip
    for partition in refused:
        context.set_assignment(partition, *old[partition])
    begun = [partition for partition in changes if partition not in refused]
    context.ineligible |= {partition.topic.name for partition in begun if partition.reassigning}
    unneeded = [
        (partition, replica)
        for partition in changed
        if partition not in refused
        for replica in old[partition].replicas
        if replica not in partition.replicas
    ]
    # Not in a later step: the nodes do not name these replicas any more, so no successor would remove them.
    yield from remove_replicas(context, unneeded)
    yield from _begin_next(context, deque((partition, changes[partition]) for partition in begun))
    return refused


def _begin_next(context: ControllerContext, begun: deque[tuple[Partition, Assignment]]) -> Steps[None]:
    """Begin the first phase of the first reassignments in `begun`; later steps begin that of the others.

    :param begun: a reassignment is left out if the assignment of its partition has changed: another request, or the
        completion of the reassignment, has changed it and does what is left to do.
    """
    resumed: list[Partition] = []
    while begun and len(resumed) < PARTITIONS_A_STEP:
        partition, assignment = begun.popleft()
        present = Assignment(partition.replicas, partition.adding, partition.removing)
        if present == assignment and context.topics.get(partition.topic.name) is partition.topic:
            resumed.append(partition)
    yield from resume(context, resumed)
    if begun:
        yield Later(_begin_next(context, begun))


def resume(context: ControllerContext, partitions: Iterable[Partition]) -> Steps[None]:
    """Do the next phase of reassignments; phase A is repeated until phase B can run.

    Called at their begin, after a failover, when a broker started, and when in-sync replicas changed.
    """
    complete: list[Partition] = []
    incomplete: list[Partition] = []
    for partition in partitions:
        (complete if is_complete(partition) else incomplete).append(partition)
    yield from _start_added(context, incomplete)
    if complete:
        yield from _complete(context, complete)


def _start_added(context: ControllerContext, partitions: Sequence[Partition]) -> Steps[None]:
    """Phase A. The added replicas are sent as new ones, so that a broker with a failed log directory creates them, too."""
    if not partitions:
        return
    batch = RequestBatch(context)
    for partition in (yield from begin_epochs(context, partitions)):
        batch.lead(partition.original_replicas, partition)
        batch.lead(partition.adding, partition, is_new=True)
    added = [
        (partition, replica)
        for partition in partitions
        for replica in partition.adding
        if partition.replica_status.get(replica) is ReplicaStatus.NON_EXISTENT
    ]
    replica_states.to_new(added, batch)
    yield Send(batch.take())


def _complete(context: ControllerContext, partitions: Sequence[Partition]) -> Steps[None]:
    """Phase B."""
    batch = RequestBatch(context)
    before = {
        partition: Assignment(partition.replicas, partition.adding, partition.removing) for partition in partitions
    }
    replica_states.to_online(
        [
            (partition, replica)
            for partition in partitions
            for replica in partition.adding
            if partition.replica_status.get(replica) is not ReplicaStatus.ONLINE
        ],
        batch,
    )
    for partition in partitions:  # in memory: replicas to remove cannot join again
        context.set_assignment(partition, list(partition.target_replicas), [], [])
    failed = yield from _lead_in_target(context, partitions, batch)
    for partition in failed:
        context.set_assignment(partition, *before[partition])
    yield Send(batch.take())
    done = [partition for partition in partitions if partition not in failed]
    removed = [(partition, replica) for partition in done for replica in before[partition].removing]
    yield from remove_replicas(context, removed)
    yield from write_topics(_topics(done))
    yield from remove_from_legacy_node(context, done)
    batch.update_all(done)
    yield Send(batch.take())
    log.info("completed %d reassignments", len(done))
    finished = {
        topic.name
        for topic in _topics(done)
        if not any(partition.reassigning for partition in topic.partitions.values())
    }
    yield from deletion.resume(context, finished)


def _lead_in_target(
    context: ControllerContext, partitions: Sequence[Partition], batch: RequestBatch
) -> Steps[list[Partition]]:
    """Begin a leader epoch with a leader among the target replicas. Returns the partitions that cannot have one now."""
    keep: list[Partition] = []
    elect: list[Partition] = []
    for partition in partitions:
        stays = partition.leader in partition.replicas and context.is_online(partition, partition.leader)
        (keep if stays else elect).append(partition)
    failed = yield from elect_leaders(context, elect, reassignment_election, batch)
    if failed:
        log.error("no target replica can lead %s; a later start of a broker retries the reassignment", failed[:20])
    for partition in (yield from begin_epochs(context, keep)):
        batch.lead(partition.replicas, partition)
    return failed


def remove_replicas(context: ControllerContext, replicas: Sequence[tuple[Partition, int]]) -> Steps[None]:
    """Remove replicas that are no longer assigned: out of the in-sync replicas, stopped, deleted, forgotten.

    The answers of the brokers are not awaited: a broker that is down finds out when it starts.
    """
    if not replicas:
        return
    batch = RequestBatch(context)
    movable = [
        (partition, replica)
        for partition, replica in replicas
        if partition.replica_status.get(replica) in replica_states.ALLOWED[OFFLINE]
    ]
    yield from replica_states.to_offline(context, movable, batch)
    yield Send(batch.take())
    replica_states.begin_deletion(movable, batch)
    yield Send(batch.take())
    replica_states.mark(movable, ReplicaStatus.DELETION_SUCCESSFUL)
    replica_states.forget(context, movable)
    for partition, replica in replicas:
        partition.replica_status.pop(replica, None)


def _topics(partitions: Iterable[Partition]) -> list[Topic]:
    return list(dict.fromkeys(partition.topic for partition in partitions))


def in_progress(context: ControllerContext) -> list[Partition]:
    """The reassignments in progress, by topic and partition."""
    return sorted(context.reassigning, key=lambda partition: (partition.topic.name, partition.index))


# -- the node of old tools --------------------------------------------------------------------------------------------


def decode_reassignments(data: bytes) -> dict[TopicPartition, list[int]]:
    """Replicas by topic and partition. Raises ValueError if the node cannot be decoded."""
    try:
        return {
            (str(entry["topic"]), int(entry["partition"])): [int(replica) for replica in entry["replicas"]]
            for entry in json.loads(data)["partitions"]
        }
    except UNDECODABLE as error:
        raise ValueError(f"cannot decode {REASSIGN_PARTITIONS}: {data[:200]!r}") from error


def encode_reassignments(entries: Mapping[TopicPartition, Sequence[int]]) -> bytes:
    """The data of the node, in version 1."""
    partitions = [
        {"topic": topic, "partition": index, "replicas": list(replicas)} for (topic, index), replicas in entries.items()
    ]
    return json.dumps({"version": 1, "partitions": partitions}, separators=(",", ":")).encode()


def legacy_requested(context: ControllerContext) -> Steps[None]:
    """Look at the node of old tools and begin the reassignments that it requests; those that are refused leave the node."""
    (node,) = yield Read([REASSIGN_PARTITIONS], watched=True, awaited=True)
    if node is None:
        return
    try:
        entries = decode_reassignments(node[0])
    except ValueError as error:
        log.error("%s; removing the node", error)
        yield Write([(Delete(REASSIGN_PARTITIONS),)])
        return
    changes: dict[Partition, Assignment] = {}
    finished = []
    for key, target in entries.items():
        partition = context.find(*key)
        if partition is not None and partition.reassigning and partition.target_replicas == target:
            continue
        try:
            assignment = planned(context, partition, target)
        except Refusal as refusal:
            log.error("the reassignment of %s-%d to %s is refused: %s", *key, target, refusal.message)
            finished.append(key)
            continue
        assert partition is not None
        changes[partition] = assignment
    if finished:
        yield from _keep_in_legacy_node({key: target for key, target in entries.items() if key not in finished})
    if changes:
        yield from begin(context, changes)


def remove_from_legacy_node(context: ControllerContext, partitions: Sequence[Partition]) -> Steps[None]:
    """Remove completed partitions from the node of old tools, and the node if it is empty."""
    (node,) = yield Read([REASSIGN_PARTITIONS], watched=True, awaited=True)
    if node is None:
        return
    try:
        entries = decode_reassignments(node[0])
    except ValueError:
        return  # `legacy_requested` removes it
    done = {(partition.topic.name, partition.index) for partition in partitions}
    if not done.isdisjoint(entries):
        yield from _keep_in_legacy_node({key: target for key, target in entries.items() if key not in done})


def _keep_in_legacy_node(entries: Mapping[TopicPartition, Sequence[int]]) -> Steps[None]:
    operation = Set(REASSIGN_PARTITIONS, encode_reassignments(entries)) if entries else Delete(REASSIGN_PARTITIONS)
    yield Write([(operation,)])
