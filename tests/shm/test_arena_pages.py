"""A freed run of the arena is returned to the system only as whole pages of memory, whatever size they have."""

import pytest

from odradek._ext.shm.shared_memory import SharedMemory
from odradek._ext.testing.producer_memory import returns_memory

UNIT_BYTES = 1024


@pytest.mark.parametrize("page_bytes", [4096, 16384, 65536])
def test_only_whole_pages_are_returned(page_bytes: int) -> None:
    """aarch64 has pages of 4, 16 or 64 KiB. The kernel would round the end up, into the runs of other partitions."""
    memory = SharedMemory(64)
    assert memory.memfd >= 0
    for order in range(9):
        size = UNIT_BYTES << order
        runs = range(0, 4 * 65536, size)  # a run begins at a multiple of its size
        assert {returns_memory(start, size, page_bytes) for start in runs} == {size >= page_bytes}
