"""AllocateProducerIds: the controller gives brokers blocks of producer ids.

Pure, see `effects`. The block is in the store before a broker receives it; a block whose answer is lost is never used.
"""

from odradek.controller.cluster.context import ControllerContext
from odradek.controller.cluster.effects import Read, Set, Steps, Write
from odradek.controller.producer_ids import BLOCK_SIZE, MAX_PRODUCER_ID, ProducerIdsExhausted
from odradek.metadata import znodes
from odradek.metadata.store import NodeError
from odradek.metadata.znodes import ProducerIdBlock
from odradek.protocol.errors import ErrorCode


def allocate(
    context: ControllerContext, broker_id: int, broker_epoch: int
) -> Steps[tuple[ErrorCode, ProducerIdBlock | None]]:
    """The next block, for a registered broker. Raises ProducerIdsExhausted."""
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
        latest = znodes.decode_producer_id_block(data)
        first = latest.last + 1 if latest else 0
        if first > MAX_PRODUCER_ID - BLOCK_SIZE:
            raise ProducerIdsExhausted(f"no block of producer ids is left after {first - 1}")
        block = ProducerIdBlock(broker_id, first, first + BLOCK_SIZE - 1)
        (result,) = yield Write(
            [(Set(znodes.PRODUCER_ID_BLOCK, znodes.encode_producer_id_block(block), stat.version),)]
        )
        if not isinstance(result, NodeError):
            return ErrorCode.NONE, block  # else another broker claimed that block itself
