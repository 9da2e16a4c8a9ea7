"""ExplainPartition (20103, private): returns what this broker knows about a partition. Executed by an off-loop thread of a
worker, because it waits for the lock of the slot."""

from typing import Any

import odradek._ext.partition.slots as slots
from odradek._ext.partition.lost_tails import lost_tail
from odradek._ext.partition.role_facts import describe_role
from odradek._ext.shm import brokers
from odradek._ext.shm.slot import InSyncState, LostTail, Role, SlotState
from odradek._ext.shm.views import view_of
from odradek.api.api import Api, Place
from odradek.api.call import Call
from odradek.api.guarding import (
    Asked,
    Refused,
    Verdict,
)
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import explain_partition
from odradek.security.acl import Operation
from odradek.security.needs import (
    TOPIC,
    TOPIC_DENIED,
    need,
)
from odradek.stepwise import Steps

Response = explain_partition.Response
API = Api(
    explain_partition.SCHEMA,
    versions=(0, 1),
    place=Place.WORKER_THREAD,
    rights=need(Operation.DESCRIBE, TOPIC, TOPIC_DENIED),
    private=True,
)


def guard(asked: Asked) -> Verdict:
    """DESCRIBE on the topic."""
    if asked.permits.topic(Operation.DESCRIBE, asked.request.topic_name):
        return None
    return Refused(explain_partition.Response(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED))


def handle(request: explain_partition.Request, call: Call) -> Steps:
    """Return the state, the role and the published view of the partition, from its slot."""
    yield
    topic = call.view.topics.get(request.topic_name)
    slot = topic.slot(request.partition_index) if topic is not None else -1
    if slot < 0:
        return Response(error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, broker_id=call.view.config.node_id)
    state = SlotState(slots.state_of(slot))
    view = view_of(slot)
    response = Response(
        broker_id=call.view.config.node_id,
        state=state.name.removeprefix("SLOT_").lower(),
        role="none",
        replicas=list(view.replicas),
        published_leader=view.leader_id,
        published_epoch=view.leader_epoch,
        published_in_sync=list(view.in_sync),
    )
    if state != SlotState.SLOT_REMOTE:
        _add_role(response, slot)
    if call.version >= 1 and call.view.tasks is not None:
        response.failing_tasks = [
            Response.FailingTask(task=task, reason=found.reason, since_ms=found.since_ms)
            for task, found in call.view.tasks.failing_at(f"{request.topic_name}-{request.partition_index}")
        ]
    return response


def _add_role(response: Any, slot: int) -> None:
    """Add the facts that only a broker with a replica of the partition has."""
    facts = describe_role(slot)
    response.role = Role(facts.role).name.removeprefix("ROLE_").lower()
    response.leader_id, response.leader_epoch = facts.leader_id, facts.leader_epoch
    response.partition_epoch, response.controller_epoch = facts.partition_epoch, facts.controller_epoch
    response.leader_epoch_start, response.recovering = facts.leader_epoch_start, facts.recovering
    response.log_start_offset, response.log_end_offset = facts.log_start_offset, facts.log_end_offset
    response.high_watermark, response.min_in_sync_replicas = facts.high_watermark, facts.min_in_sync
    response.replicas, response.fetch_error = facts.replicas, facts.fetch_error
    response.adding_replicas, response.removing_replicas = facts.adding, facts.removing
    response.in_sync_replicas, response.maximal_in_sync = facts.in_sync, facts.max_in_sync
    response.in_sync_state = InSyncState(facts.in_sync_state).name.removeprefix("IN_SYNC_").lower()
    response.in_sync_ms = facts.in_sync_ms
    lost = lost_tail(slot)
    if lost.state != LostTail.TAIL_COMPLETE:
        response.lost_tail = "led" if lost.state == LostTail.TAIL_LOST_LED else "lost"
        response.lost_tail_bytes, response.lost_tail_end = lost.lost_bytes, lost.log_end_offset
    if facts.role == Role.ROLE_LEADER:
        alive = {broker.id for broker in brokers.brokers()}
        response.followers = [
            Response.Follower(
                broker_id=follower.broker_id,
                alive=follower.broker_id in alive,
                broker_epoch=follower.broker_epoch,
                log_end_offset=follower.log_end_offset,
                log_start_offset=follower.log_start_offset,
                fetched_ms_ago=follower.fetched_ms_ago,
                caught_up_ms_ago=follower.caught_up_ms_ago,
            )
            for follower in facts.followers
        ]
