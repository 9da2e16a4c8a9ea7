"""Producer ids: numbers that are unique in the cluster, allocated from blocks of 1000.

Runs in the coordinator's controller thread. A block is stored in the metadata store before its first id is used. If the
coordinator dies, the unused ids of its block are never used.
"""

from odradek.metadata import znodes
from odradek.metadata.store import BadVersion, Store, ensure_path
from odradek.metadata.znodes import ProducerIdBlock

BLOCK_SIZE = 1000
MAX_PRODUCER_ID = 2**63 - 1


class ProducerIdsExhausted(Exception):
    """All 2**63 ids are allocated, or another program has stored a block near the end of the range."""


class ProducerIds:
    """The producer ids of one broker. A new object starts with a new block."""

    def __init__(self, store: Store, broker_id: int) -> None:
        self._store = store
        self._broker_id = broker_id
        self._next = 0
        self._last = -1

    def next(self) -> int:
        """Allocate an id. Raises StoreUnavailable, CorruptNode, ProducerIdsExhausted."""
        if self._next > self._last:
            block = self._claim()
            self._next, self._last = block.first, block.last
        producer_id = self._next
        self._next += 1
        return producer_id

    def _claim(self) -> ProducerIdBlock:
        """Allocate the next block of the cluster for this broker."""
        ensure_path(self._store, znodes.PRODUCER_ID_BLOCK)
        while True:
            data, stat = self._store.get(znodes.PRODUCER_ID_BLOCK)
            latest = znodes.decode_producer_id_block(data)
            first = latest.last + 1 if latest else 0
            if first > MAX_PRODUCER_ID - BLOCK_SIZE:
                raise ProducerIdsExhausted(f"no block of producer ids is left after {first - 1}")
            block = ProducerIdBlock(self._broker_id, first, first + BLOCK_SIZE - 1)
            try:
                self._store.set(znodes.PRODUCER_ID_BLOCK, znodes.encode_producer_id_block(block), stat.version)
            except BadVersion:
                continue  # another broker claimed that block
            return block
