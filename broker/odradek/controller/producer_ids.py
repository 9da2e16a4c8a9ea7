"""Producer ids: numbers that are unique in the cluster, allocated from blocks of 1000.

Runs in the coordinator's store thread. A block is stored in the metadata store before its first id is used. If the
coordinator dies, the unused ids of its block are never used.

A metadata store that was restored from an older backup does not know the blocks that were allocated after the backup. A second
producer with the same id would lose records: the leader would take its first batches for repetitions of those of the first
one. So each broker notes the newest block of the cluster (`look`, called whenever the block changes), and continues after it.
"""

import logging
from collections.abc import Callable

from odradek.metadata import znodes
from odradek.metadata.store import BadVersion, Event, Store, ensure_path
from odradek.metadata.znodes import ProducerIdBlock

log = logging.getLogger("odradek.controller")

BLOCK_SIZE = 1000
MAX_PRODUCER_ID = 2**63 - 1
LEFT_OUT = 1 << 20
"""The ids that are left out after the newest known block if the store has forgotten that: there may have been later ones."""


class ProducerIdsExhausted(Exception):
    """All 2**63 ids are allocated, or another program has stored a block near the end of the range."""


class ProducerIds:
    """The producer ids of one broker. A new object starts with a new block."""

    def __init__(self, store: Store, broker_id: int) -> None:
        self._store = store
        self._broker_id = broker_id
        self._next = 0
        self._last = -1
        self._newest = -1  # the last id of the newest block of the cluster that this broker knows

    def next(self) -> int:
        """Allocate an id. Raises StoreUnavailable, CorruptNode, ProducerIdsExhausted."""
        if self._next > self._last:
            block = self._claim()
            self._next, self._last = block.first, block.last
        producer_id = self._next
        self._next += 1
        return producer_id

    def look(self, watch: Callable[[Event], None] | None = None) -> None:
        """Note the newest block of the cluster. If the store has forgotten it, store a later one, so that the other brokers
        continue after that, too. Raises as `next`.

        :param watch: called when the block has changed.
        """
        data, _ = self._store.get(znodes.PRODUCER_ID_BLOCK, watch)
        latest = znodes.decode_producer_id_block(data)
        last = latest.last if latest else -1
        if last >= self._newest:
            self._newest = last
            return
        block = self._claim()
        log.warning(
            "the metadata store was restored from an older backup: its newest block of producer ids ends with %d, although"
            " %d was allocated; continuing with %d",
            last, self._newest, block.first,
        )  # fmt: skip

    def _claim(self) -> ProducerIdBlock:
        """Allocate the next block of the cluster for this broker."""
        ensure_path(self._store, znodes.PRODUCER_ID_BLOCK)
        while True:
            data, stat = self._store.get(znodes.PRODUCER_ID_BLOCK)
            latest = znodes.decode_producer_id_block(data)
            first = latest.last + 1 if latest else 0
            if first <= self._newest:
                first = self._newest + 1 + LEFT_OUT
            if first > MAX_PRODUCER_ID - BLOCK_SIZE:
                raise ProducerIdsExhausted(f"no block of producer ids is left after {first - 1}")
            block = ProducerIdBlock(self._broker_id, first, first + BLOCK_SIZE - 1)
            try:
                self._store.set(znodes.PRODUCER_ID_BLOCK, znodes.encode_producer_id_block(block), stat.version)
            except BadVersion:
                continue  # another broker claimed that block
            self._newest = block.last
            return block
