"""Raises epochs that brokers refuse because they have seen newer ones: ZooKeeper was restored from an older backup.

Pure, see `effects`. A controller writes every epoch to the tree before any broker learns of it, so a broker that knows a newer
epoch than the tree, or the same one with another leader, proves that the tree went back. An answer does not say which epoch the
broker knows; so the epoch rises by 1, 2, 4 and so on until no broker refuses it, after at most 31 attempts.

Brokers of Odradek refuse such epochs with FENCED_LEADER_EPOCH. Brokers of Kafka refuse them with STALE_CONTROLLER_EPOCH, but
they also refuse the epoch that they have already, which a new controller sends to all brokers: that error proves nothing.
"""

import logging
from collections.abc import Iterable
from typing import Any

from odradek.controller.cluster.context import ControllerContext, Partition
from odradek.controller.cluster.effects import Send, Steps
from odradek.controller.cluster.partition_states import ATTEMPTS, write_states
from odradek.controller.cluster.requests import RequestBatch
from odradek.metadata.znodes import PartitionState
from odradek.protocol.errors import ErrorCode

log = logging.getLogger("odradek.controller")

LARGEST_EPOCH = (1 << 31) - 1


def raised(epoch: int, attempts: int) -> int | None:
    """The epoch for the next attempt, after `attempts` ones were refused; None if there is none left."""
    higher = epoch + (1 << min(attempts, 31))
    return higher if higher <= LARGEST_EPOCH else LARGEST_EPOCH if epoch < LARGEST_EPOCH else None


def answered(
    context: ControllerContext, broker_id: int, request: Any, codes: Iterable[tuple[Partition, int]]
) -> Steps[None]:
    """A broker answered LeaderAndIsr: raise the leader epochs that it refused, unless newer ones are on their way.

    :param codes: the error code of each partition.
    """
    refused = []
    for partition, code in codes:
        if code == ErrorCode.FENCED_LEADER_EPOCH:
            refused.append(partition)
        else:
            context.epoch_attempts.pop((partition, broker_id), None)
    if not refused:
        return
    sent = {
        (topic.topic_name, state.partition_index): state.leader_epoch
        for topic in request.topic_states
        for state in topic.partition_states
    }
    old = [
        partition
        for partition in refused
        if partition.state is not None
        and not context.is_deleting(partition)
        and sent.get((partition.topic.name, partition.index)) == partition.state.leader_epoch
    ]
    if old:
        log.warning(
            "broker %d has seen newer leader epochs of %d partitions than ZooKeeper has, such as %s: ZooKeeper was restored "
            "from an older backup; raising these epochs. Records that were acknowledged by other in-sync replicas than those "
            "in the backup may be lost",
            broker_id, len(old), old[0],
        )  # fmt: skip
        yield from _raise(context, broker_id, old)


def _raise(context: ControllerContext, broker_id: int, partitions: Iterable[Partition]) -> Steps[None]:
    """Begin newer leader epochs with the same leaders and in-sync replicas, because a broker refused the present ones, and send
    them."""
    attempts = context.epoch_attempts
    batch = RequestBatch(context)
    remaining = list(partitions)
    for _ in range(ATTEMPTS):
        changes: list[tuple[Partition, PartitionState]] = []
        for partition in remaining:
            state = partition.state
            if state is None:
                continue
            epoch = raised(state.leader_epoch, attempts.get((partition, broker_id), 0))
            if epoch is None:
                log.error("cannot raise the leader epoch of %s: it already is the largest possible epoch", partition)
                continue
            changes.append((partition, state._replace(controller_epoch=context.epoch, leader_epoch=epoch)))
        refused = yield from write_states(context, changes)
        for partition, _ in changes:
            if partition not in refused:
                attempts[partition, broker_id] = attempts.get((partition, broker_id), 0) + 1
                online = context.online_for(partition)
                batch.lead([replica for replica in partition.replicas if replica in online], partition)
        if not refused:
            break
        remaining = list(refused)
    yield Send(batch.take())
