"""Finds the partition for a request that reads its log: the slot's state, or Kafka's error code."""

import odradek._ext.partition.slot_facts as slot_facts
from odradek._ext.partition.slot_facts import SlotFacts
from odradek._ext.shm.slot import Role, SlotState
from odradek.api.call import Call
from odradek.protocol.errors import ErrorCode


def leader_state(
    call: Call, name: str, partition: int, leader_epoch: int, *, or_follower: bool = False
) -> tuple[ErrorCode, int, SlotFacts | None]:
    """Return (error, slot, the slot's facts) of a partition; None for an unknown partition.

    The error says why this broker does not lead the partition in the epoch of the client.

    :param leader_epoch: the leader epoch that the client knows; -1 if the request does not contain it.
    :param or_follower: whether a follower may answer, too.
    """
    topic = call.view.topics.get(name)
    slot = topic.slot(partition) if topic is not None else -1
    if slot < 0:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, None
    state = slot_facts.describe(slot)
    if state.topic != name or state.partition != partition or state.state == SlotState.SLOT_DELETED:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, slot, state
    if state.state == SlotState.SLOT_OFFLINE:
        return ErrorCode.KAFKA_STORAGE_ERROR, slot, state
    if state.state != SlotState.SLOT_ONLINE or state.role == Role.ROLE_NONE:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER, slot, state
    if leader_epoch >= 0 and leader_epoch != state.leader_epoch:
        older = leader_epoch < state.leader_epoch
        return ErrorCode.FENCED_LEADER_EPOCH if older else ErrorCode.UNKNOWN_LEADER_EPOCH, slot, state
    if state.role != Role.ROLE_LEADER and not or_follower:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER, slot, state
    return ErrorCode.NONE, slot, state
