"""The brokers and partitions as returned by Metadata, DescribeCluster and DescribeTopicPartitions, from the worker's view.

In a cluster they are what the controller published: the table of live brokers, and the views in the slots. A broker without a
listener of the name that the client has connected to is invisible to this client.
"""

from collections.abc import Mapping
from typing import NamedTuple

import odradek._ext.shm.brokers as broker_table
from odradek._ext.shm.slot import SlotState
from odradek._ext.shm.topics import Topic
from odradek._ext.shm.views import View
from odradek.api.call import Call
from odradek.api.cluster_brokers import BrokerAddress
from odradek.protocol.errors import ErrorCode

NOT_ASKED = -(1 << 31)
"""The value of authorized_operations if the client did not request them."""
NO_LEADER = -1


class Errors(NamedTuple):
    """Which errors of partitions a version of Metadata has.

    :param listener_not_found: version 6 and later distinguish a leader that has no listener of the client's name from a leader
        that is not alive.
    :param replica_not_available: version 0 names no replica that is not alive, and reports an error instead.
    """

    listener_not_found: bool = True
    replica_not_available: bool = False


class PartitionState(NamedTuple):
    """The present state of a partition."""

    number: int
    error: ErrorCode
    leader_id: int
    leader_epoch: int
    replicas: list[int]
    in_sync: list[int]
    offline: list[int]


def brokers(call: Call) -> list[BrokerAddress]:
    """The live brokers of the cluster, with the address advertised for the listener of the client's connection. A single broker
    without `advertised.listeners` has the address to which the client has connected."""
    view = call.view
    if view.brokers is not None:
        return list(view.brokers.addresses(call.listener_index).values())
    rack = view.config["broker.rack"]
    advertised = view.advertised[call.listener_index]
    host, port = advertised.host, advertised.port
    if view.addresses is not None:
        host, port = view.addresses.of(call.listener_index, call.connection) or (host, port)
    return [BrokerAddress(view.config.node_id, host, port, str(rack) if rack is not None else None)]


def broker(call: Call, broker_id: int) -> BrokerAddress | None:
    """A live broker, with its address for the client's listener; None if it is not alive or has no such listener."""
    if call.view.brokers is not None:
        return call.view.brokers.addresses(call.listener_index).get(broker_id)
    return next((address for address in brokers(call) if address.node_id == broker_id), None)


def controller_id(call: Call) -> int:
    """The id of the broker that is the controller; -1 if it is not known."""
    return broker_table.controller()[0] if call.view.brokers is not None else call.view.config.node_id


def exists(topic: Topic, call: Call) -> bool:
    """Whether clients may see a topic: in a cluster, as soon as the controller has published it."""
    return call.view.brokers is None or topic.is_published()


def find(name: str, call: Call) -> Topic | None:
    """The topic with that name; None if it does not exist, or clients may not see it yet."""
    topic: Topic | None = call.view.topics.get(name)
    return topic if topic is not None and exists(topic, call) else None


def topics_by_name(call: Call) -> list[Topic]:
    """All topics that clients may see, in the order of their names."""
    return [topic for _, topic in sorted(call.view.topics.by_name.items()) if exists(topic, call)]


NEWEST_ERRORS = Errors()


def partitions(
    topic: Topic, call: Call, first: int = 0, end: int = 1 << 31, errors: Errors = NEWEST_ERRORS
) -> list[PartitionState]:
    """The known partitions of a topic, from number `first` to before `end`."""
    table = call.view.brokers
    if table is None:
        return _of_embedded_store(topic, first, end)
    addresses, live = table.addresses(call.listener_index), table.racks()
    return [
        _published(index, view, addresses, live, errors)
        for index in range(first, min(topic.count, end))
        if (view := topic.view(index)) is not None
    ]


def _published(
    number: int,
    view: View,
    addresses: Mapping[int, BrokerAddress],
    live: Mapping[int, str | None],
    errors: Errors,
) -> PartitionState:
    """The state of a partition from its view, by the rules of Kafka's metadata cache."""
    error, leader_id = ErrorCode.NONE, view.leader_id
    replicas, in_sync = view.replicas, view.in_sync
    if errors.replica_not_available:
        replicas = [replica for replica in replicas if replica in addresses]
        in_sync = [replica for replica in in_sync if replica in addresses]
        if len(replicas) < len(view.replicas) or len(in_sync) < len(view.in_sync):
            error = ErrorCode.REPLICA_NOT_AVAILABLE
    if leader_id not in addresses:
        error = ErrorCode.LEADER_NOT_AVAILABLE
        if leader_id in live and errors.listener_not_found:
            error = ErrorCode.LISTENER_NOT_FOUND
        leader_id = NO_LEADER
    offline = [replica for replica in view.replicas if replica in view.offline or replica not in live]
    return PartitionState(number, error, leader_id, view.leader_epoch, replicas, in_sync, offline)


def _of_embedded_store(topic: Topic, first: int, end: int) -> list[PartitionState]:
    """The partitions of the only broker, from their slots."""
    states = []
    for index in range(first, min(topic.count, end)):
        described = topic.describe(index)
        if described is None:
            continue
        state, leader_id, leader_epoch, replicas, in_sync, _ = described
        if state == SlotState.SLOT_OFFLINE:
            states.append(
                PartitionState(index, ErrorCode.LEADER_NOT_AVAILABLE, NO_LEADER, leader_epoch, replicas, [], replicas)
            )
        else:
            states.append(PartitionState(index, ErrorCode.NONE, leader_id, leader_epoch, replicas, in_sync, []))
    return states
