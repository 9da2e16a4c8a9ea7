"""AllocateProducerIds: the controller gives brokers blocks of producer ids.

Pure, see `effects`. The block is in the store before a broker receives it; a block whose answer is lost is never used.
"""

import logging

from odradek.controller.cluster.context import ControllerContext
from odradek.controller.cluster.effects import Read, Set, Steps, Write
from odradek.controller.producer_ids import BLOCK_SIZE, MAX_PRODUCER_ID
from odradek.metadata import znodes
from odradek.metadata.store import BadVersion, Refused
from odradek.metadata.znodes import ProducerIdBlock
from odradek.protocol.errors import ErrorCode

log = logging.getLogger("odradek.controller")


def allocate(
    context: ControllerContext, broker_id: int, broker_epoch: int
) -> Steps[tuple[ErrorCode, ProducerIdBlock | None]]:
    """The next block, for a registered broker, or an error. What is wrong with the node costs only this request."""
    broker = context.brokers.get(broker_id)
    if broker is None:
        return ErrorCode.BROKER_ID_NOT_REGISTERED, None
    if broker.epoch != broker_epoch:
        return ErrorCode.STALE_BROKER_EPOCH, None
    while True:
        (node,) = yield Read([znodes.PRODUCER_ID_BLOCK])
        if node is None:
            return ErrorCode.UNKNOWN_SERVER_ERROR, None  # every broker makes sure of this node when it starts
        data, stat = node
        try:
            latest = znodes.decode_producer_id_block(data)
        except znodes.CorruptNode as error:
            log.error("broker %d gets no producer ids until the node is correct: %s", broker_id, error)
            return ErrorCode.UNKNOWN_SERVER_ERROR, None
        first = latest.last + 1 if latest else 0
        if first > MAX_PRODUCER_ID - BLOCK_SIZE:
            log.error("broker %d gets no producer ids: no block is left after %d", broker_id, first - 1)
            return ErrorCode.UNKNOWN_SERVER_ERROR, None
        block = ProducerIdBlock(broker_id, first, first + BLOCK_SIZE - 1)
        (result,) = yield Write(
            [(Set(znodes.PRODUCER_ID_BLOCK, znodes.encode_producer_id_block(block), stat.version),)]
        )
        if not isinstance(result, Refused):
            return ErrorCode.NONE, block
        if not isinstance(result, BadVersion):  # else another broker claimed that block itself
            log.error("broker %d gets no producer ids: %s", broker_id, result)
            return ErrorCode.UNKNOWN_SERVER_ERROR, None
