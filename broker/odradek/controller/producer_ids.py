"""Producer ids: numbers that are unique in the cluster, allocated from blocks of 1000.

Runs in the coordinator's controller thread. A block is stored in the metadata store before its first id is used. If the
coordinator dies, the unused ids of its block are never used.

A metadata store that was restored from an older backup does not know the blocks that were allocated after the backup. A second
producer with the same id would lose records: the leader would take its first batches for repetitions of those of the first
one. So a broker leaves out ids if the store may have been restored.
"""

from collections.abc import Callable

from odradek.metadata import znodes
from odradek.metadata.store import BadVersion, Store, ensure_path
from odradek.metadata.znodes import ProducerIdBlock

BLOCK_SIZE = 1000
MAX_PRODUCER_ID = 2**63 - 1


class ProducerIdsExhausted(Exception):
    """All 2**63 ids are allocated, or another program has stored a block near the end of the range."""


class ProducerIds:
    """The producer ids of one broker. A new object starts with a new block.

    :param forgotten: how many ids may have been allocated that the store does not know. It is called after a read.
    """

    def __init__(self, store: Store, broker_id: int, forgotten: Callable[[], int] = lambda: 0) -> None:
        self._store = store
        self._broker_id = broker_id
        self._forgotten = forgotten
        self._next = 0
        self._last = -1

    def next(self) -> int:
        """Allocate an id. Raises StoreUnavailable, CorruptNode, ProducerIdsExhausted."""
        if self._next > self._last:
            self.begin_block()
        producer_id = self._next
        self._next += 1
        return producer_id

    def begin_block(self) -> None:
        """Go on with a new block; the ids that are left of the present one are never used. Raises as `next`."""
        block = self._claim()
        self._next, self._last = block.first, block.last

    def _claim(self) -> ProducerIdBlock:
        """Allocate the next block of the cluster for this broker."""
        ensure_path(self._store, znodes.PRODUCER_ID_BLOCK)
        while True:
            data, stat = self._store.get(znodes.PRODUCER_ID_BLOCK)
            latest = znodes.decode_producer_id_block(data)
            first = (latest.last + 1 if latest else 0) + self._forgotten()
            if first > MAX_PRODUCER_ID - BLOCK_SIZE:
                raise ProducerIdsExhausted(f"no block of producer ids is left after {first - 1}")
            block = ProducerIdBlock(self._broker_id, first, first + BLOCK_SIZE - 1)
            try:
                self._store.set(znodes.PRODUCER_ID_BLOCK, znodes.encode_producer_id_block(block), stat.version)
            except BadVersion:
                continue  # another broker claimed that block
            return block
