"""OffsetForLeaderEpoch (23): returns the end offset of a leader epoch in this leader's log. Executed by an off-loop thread of
the worker, because it may read a file.

The slot contains the newest epochs. Older ones are read from the partition's leader-epoch-checkpoint, which contains all
epochs. Epochs whose records are all deleted are unknown as soon as the log start offset has moved.
"""

import logging
from typing import Any

from odradek._ext.partition.slot_facts import SlotFacts
from odradek._ext.partition.slots import SlotBusy
from odradek._ext.protocol.arrays import new_array
from odradek.api.api import Api, Place
from odradek.api.call import Call
from odradek.api.elements import Elements
from odradek.api.guarding import (
    Asked,
    Merged,
    VerdictInSteps,
    appended,
    refused_elements,
    taken_out,
)
from odradek.api.records.partition_lookup import leader_state
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import offset_for_leader_epoch
from odradek.security.acl import Operation
from odradek.security.needs import (
    CLUSTER,
    OF_PARTITIONS,
    TOPIC,
    either,
)
from odradek.shm.epochs import end_offset_for
from odradek.stepwise import Pace, Steps
from odradek.storage.checkpoints import CorruptCheckpointError

log = logging.getLogger("odradek.requests")

STEP = 50
ELEMENTS = Elements(offset_for_leader_epoch.SCHEMA, "topics.partitions", "topics.partitions")
API = Api(
    offset_for_leader_epoch.SCHEMA,
    versions=(0, 4),
    place=Place.WORKER_THREAD,
    rights=either((Operation.DESCRIBE, TOPIC), (Operation.CLUSTER_ACTION, CLUSTER), refused=OF_PARTITIONS),
    per_partition=2,
)


def guard(asked: Asked) -> VerdictInSteps:
    """CLUSTER_ACTION on the cluster (followers), or DESCRIBE on the topics."""
    if asked.permits.cluster(Operation.CLUSTER_ACTION, quiet=True):
        return None
    refuse = refused_elements(ELEMENTS, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    refused = yield from taken_out(asked, Operation.DESCRIBE, refuse, lambda topic: topic.topic)
    return Merged(appended("topics", refused)) if refused else None


def handle(request: offset_for_leader_epoch.Request, call: Call) -> Steps:
    """Handle each partition independently, a few per step."""
    make = offset_for_leader_epoch.Response
    topics = new_array()
    pace = Pace(STEP)
    for topic in request.topics:
        partitions = new_array()
        for partition in topic.partitions:
            if pace.over():
                yield
            partitions.append(_partition(topic.topic, partition, call))
        topics.append(make.OffsetForLeaderTopicResult(topic=topic.topic, partitions=partitions))
        if pace.over():
            yield
    return make(topics=topics)


def _partition(name: str, requested: Any, call: Call) -> Any:
    number = requested.partition
    answer = offset_for_leader_epoch.Response.EpochEndOffset(partition=number)
    error, slot, state = leader_state(call, name, number, requested.current_leader_epoch)
    while not error and state is not None:
        try:
            found = end_offset_for(slot, requested.leader_epoch)
        except SlotBusy:
            answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            return answer
        except (OSError, CorruptCheckpointError) as problem:
            log.error("cannot read the leader epochs of %s-%d: %s", name, number, problem)
            answer.error_code = ErrorCode.KAFKA_STORAGE_ERROR
            return answer
        # The result is of one log only if this broker was the leader all the time: a follower truncates its log by it.
        before = state
        error, slot, state = leader_state(call, name, number, requested.current_leader_epoch)
        if state is not None and _term(state) == _term(before):
            answer.leader_epoch, answer.end_offset = found
            return answer
    answer.error_code = error
    return answer


def _term(state: SlotFacts) -> tuple[int, int, int]:
    return state.incarnation, state.role, state.leader_epoch
