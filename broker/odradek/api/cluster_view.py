"""The brokers and partitions as returned by Metadata, DescribeCluster and DescribeTopicPartitions, from the worker's view."""

from typing import NamedTuple

import odradek._ext.shm.brokers as broker_table
from odradek._ext.shm.layout import SlotState
from odradek._ext.shm.topics import Topic
from odradek.api.call import Call
from odradek.protocol.errors import ErrorCode

NOT_ASKED = -(1 << 31)
"""The value of authorized_operations if the client did not request them."""
# Bits of Kafka's AclOperation: what an unrestricted principal may do.
CLUSTER_OPERATIONS = sum(1 << bit for bit in (5, 7, 8, 9, 10, 11, 12))
TOPIC_OPERATIONS = sum(1 << bit for bit in (3, 4, 5, 6, 7, 8, 10, 11))


class BrokerAddress(NamedTuple):
    """A broker with the address that clients of one listener receive."""

    node_id: int
    host: str
    port: int
    rack: str | None


class PartitionState(NamedTuple):
    """The present state of a partition, from its slot."""

    number: int
    error: ErrorCode
    leader_id: int
    leader_epoch: int
    replicas: list[int]
    in_sync: list[int]
    offline: list[int]


def brokers(call: Call) -> list[BrokerAddress]:
    """The brokers of the cluster, with the address advertised for the listener of the client's connection."""
    view = call.view
    if view.config.clustered:
        name = view.advertised[call.listener_index].name
        return [
            BrokerAddress(broker.id, endpoint.host, endpoint.port, broker.rack)
            for broker in broker_table.brokers()
            if (endpoint := broker.endpoint(name)) is not None
        ]
    rack = view.config["broker.rack"]
    address = view.advertised[call.listener_index]
    return [BrokerAddress(view.config.node_id, address.host, address.port, str(rack) if rack is not None else None)]


def controller_id(call: Call) -> int:
    """The id of the broker that is the controller."""
    return broker_table.controller()[0] if call.view.config.clustered else call.view.config.node_id


def partitions(topic: Topic, first: int = 0, end: int = 1 << 31) -> list[PartitionState]:
    """The known partitions of a topic, from number `first` to before `end`."""
    states = []
    for index in range(first, min(topic.count, end)):
        described = topic.describe(index)
        if described is None:
            continue
        state, leader_id, leader_epoch, replicas, in_sync, _ = described
        if leader_id == -2:
            continue
        if state == SlotState.SLOT_OFFLINE:
            states.append(
                PartitionState(index, ErrorCode.LEADER_NOT_AVAILABLE, -1, leader_epoch, replicas, [], replicas)
            )
        else:
            states.append(PartitionState(index, ErrorCode.NONE, leader_id, leader_epoch, replicas, in_sync, []))
    return states
