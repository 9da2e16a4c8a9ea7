"""ControlledShutdown: the leaderships of a broker that wants to stop move to other brokers.

Pure, see `effects`.
"""

import logging

from odradek.controller.cluster import replica_states
from odradek.controller.cluster.context import ControllerContext, Partition
from odradek.controller.cluster.effects import Send, Steps
from odradek.controller.cluster.partition_states import elect_leaders, shutdown_election
from odradek.controller.cluster.requests import RequestBatch
from odradek.protocol.errors import ErrorCode

log = logging.getLogger("odradek.controller")

UNKNOWN_BROKER_EPOCH = -1


def controlled_shutdown(
    context: ControllerContext, broker_id: int, broker_epoch: int
) -> Steps[tuple[ErrorCode, list[Partition]]]:
    """Move the leaderships of a broker. Returns an error, or NONE and the partitions that the broker still leads.

    A partition with a single replica stays and is not returned. A repeated request continues with what remained.
    """
    broker = context.brokers.get(broker_id)
    if broker is not None and broker_epoch != UNKNOWN_BROKER_EPOCH and broker_epoch < broker.epoch:
        return ErrorCode.STALE_BROKER_EPOCH, []
    if broker is None:
        return ErrorCode.BROKER_NOT_AVAILABLE, []
    context.begin_shutdown(broker_id)
    log.info("broker %d shuts down", broker_id)
    led: list[Partition] = []
    followed: list[Partition] = []
    for partition in context.partitions():
        if (
            broker_id in partition.replicas
            and len(partition.replicas) > 1
            and partition.state is not None
            and not context.is_deleting(partition)
        ):
            (led if partition.leader == broker_id else followed).append(partition)
    batch = RequestBatch(context)
    remaining = yield from elect_leaders(context, led, shutdown_election, batch)
    yield Send(batch.take())
    for partition in followed:  # first of all, so that it does not fetch when the leader learns that it left
        batch.stop(broker_id, partition, delete=False)
    yield Send(batch.take())
    yield from replica_states.to_offline(context, [(partition, broker_id) for partition in followed], batch)
    yield Send(batch.take())
    if remaining:
        log.info("broker %d still leads %d partitions, for example %s", broker_id, len(remaining), remaining[:5])
    return ErrorCode.NONE, [partition for partition in remaining if partition.leader == broker_id]
