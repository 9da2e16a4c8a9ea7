"""Brokers come, fail, restart and change their endpoints: the difference of two looks at the registrations, and its effects.

Pure, see `effects`.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from odradek.controller.cluster import deletion, reassignment, replica_states
from odradek.controller.cluster.context import ControllerContext, LiveBroker, Replica
from odradek.controller.cluster.effects import Children, CloseChannel, OpenChannel, Read, Send, Steps
from odradek.controller.cluster.partition_states import (
    OFFLINE,
    UncleanElections,
    bring_online,
    move,
    offline_election,
    to_elect,
)
from odradek.controller.cluster.requests import RequestBatch
from odradek.metadata import znodes

log = logging.getLogger("odradek.controller")


class BrokerChanges(NamedTuple):
    """The difference of two looks. ``bounced``: same id, newer epoch; ``changed``: same epoch, other endpoints."""

    new: list[LiveBroker]
    dead: list[int]
    bounced: list[LiveBroker]
    changed: list[LiveBroker]


def difference(known: Mapping[int, LiveBroker], present: Mapping[int, LiveBroker]) -> BrokerChanges:
    """What happened to the brokers between two looks, each list by id."""
    new, bounced, changed = [], [], []
    for broker_id, broker in sorted(present.items()):
        old = known.get(broker_id)
        if old is None:
            new.append(broker)
        elif broker.epoch > old.epoch:
            bounced.append(broker)
        elif broker.epoch == old.epoch and broker != old:
            changed.append(broker)
    return BrokerChanges(new, sorted(known.keys() - present.keys()), bounced, changed)


def read_brokers() -> Steps[dict[int, LiveBroker]]:
    """Read all registrations and watch them."""
    names = yield Children(znodes.BROKER_IDS, watched=True)
    ids = znodes.broker_ids(names)
    nodes = yield Read([znodes.broker_path(broker_id) for broker_id in ids], watched=True)
    brokers = {}
    for broker_id, node in zip(ids, nodes, strict=True):
        if node is not None:
            data, stat = node
            try:
                registration = znodes.decode_broker(broker_id, data)
            except znodes.CorruptNode as error:
                log.error("broker %d is ignored until it registers again: %s", broker_id, error)
                continue
            brokers[broker_id] = LiveBroker(broker_id, stat.created, registration.rack, tuple(registration.endpoints))
    return brokers


def brokers_changed(context: ControllerContext, unclean: UncleanElections) -> Steps[None]:
    """Look at the registrations and react to every difference."""
    changes = difference(context.brokers, (yield from read_brokers()))
    if any(changes):
        log.info(
            "brokers changed: new %s, failed %s, restarted %s, changed %s",
            [broker.id for broker in changes.new], changes.dead,
            [broker.id for broker in changes.bounced], [broker.id for broker in changes.changed],
        )  # fmt: skip
    for broker in (*changes.new, *changes.bounced):
        yield OpenChannel(broker)
    for broker_id in changes.dead:
        yield CloseChannel(broker_id)
    failed = [broker.id for broker in changes.bounced] + changes.dead
    if failed:
        context.remove_brokers(failed)
        yield from brokers_failed(context, failed, unclean)
    started = changes.new + changes.bounced
    if started:
        context.add_brokers(started)
        yield from brokers_started(context, [broker.id for broker in started], unclean)
    if changes.changed:
        context.add_brokers(changes.changed)
        batch = RequestBatch(context)
        batch.update_all(())
        yield Send(batch.take())


def brokers_failed(context: ControllerContext, ids: Sequence[int], unclean: UncleanElections) -> Steps[None]:
    """Elect other leaders for the partitions that the brokers led, and remove their replicas from the in-sync replicas.

    The brokers are already removed from the context.
    """
    for broker_id in ids:
        context.offline_dirs.pop(broker_id, None)
    yield from replicas_offline(context, context.replicas_on(frozenset(ids)), unclean)


def replicas_offline(
    context: ControllerContext, replicas: Collection[Replica], unclean: UncleanElections
) -> Steps[None]:
    """Replicas went offline, with their broker or with their log directory."""
    kept = [replica for replica in replicas if not context.is_deleting(replica[0])]
    lost_leaders = [partition for partition, broker_id in kept if partition.leader == broker_id]
    move(lost_leaders, OFFLINE)
    batch = RequestBatch(context)
    yield from bring_online(context, to_elect(context), offline_election, batch, unclean)
    yield from replica_states.to_offline(context, kept, batch)
    batch.update_all(())
    yield Send(batch.take())
    yield from deletion.replicas_failed(context, [replica for replica in replicas if context.is_deleting(replica[0])])


def elect_leaderless(context: ControllerContext, unclean: UncleanElections) -> Steps[None]:
    """Elect leaders where there is none: unclean elections may be allowed now."""
    waiting = to_elect(context)
    if waiting:
        batch = RequestBatch(context)
        yield from bring_online(context, waiting, offline_election, batch, unclean)
        yield Send(batch.take())


def brokers_started(context: ControllerContext, ids: Sequence[int], unclean: UncleanElections) -> Steps[None]:
    """Inform the brokers of the cluster and of their replicas, elect leaders of offline partitions, resume what waited.

    The brokers are already in the context. They receive all live brokers before they receive their replicas.
    """
    started = frozenset(ids)
    for broker_id in ids:
        context.offline_dirs.pop(broker_id, None)
    to_others, to_new = RequestBatch(context), RequestBatch(context)
    to_others.update(context.brokers.keys() - started, ())
    to_new.update(started, context.partitions())
    yield Send(to_others.take() + to_new.take())
    replicas = context.replicas_on(started)
    batch = RequestBatch(context)
    kept = [replica for replica in replicas if not context.is_deleting(replica[0])]
    replica_states.to_online(kept, batch)
    yield from bring_online(context, to_elect(context), offline_election, batch, unclean)
    yield Send(batch.take())
    waiting = [
        partition
        for partition in reassignment.in_progress(context)
        if not started.isdisjoint(partition.target_replicas)
    ]
    yield from reassignment.resume(context, waiting)
    deleting = {partition.topic.name for partition, _ in replicas if context.is_deleting(partition)}
    if deleting:
        yield from deletion.resume(context, deleting)
