"""What the memory of producers contains, for tests: units of the arena, owners and their counts. Read without locks."""

from libc.stdint cimport uint32_t, uint64_t

from odradek._ext.shm.arena cimport is_whole_pages
from odradek._ext.shm.layout cimport region
from odradek._ext.shm.owners cimport PRODUCER_OWNERS


def arena_units_used() -> int:
    """Taken units of the arena, of ARENA_UNIT_BYTES each."""
    return region().header.arena_used


def producers_of(uint32_t owner) -> int:
    """How many producers an owner has according to the table of counts."""
    return region().owner_counts[owner % PRODUCER_OWNERS]


def returns_memory(uint64_t unit_bytes, uint64_t size, uint64_t page_bytes) -> bool:
    """Whether a freed run that begins `unit_bytes` after the arena's start is returned to the system, with pages of this size."""
    return is_whole_pages(region().header.arena_at + unit_bytes, size, page_bytes)
