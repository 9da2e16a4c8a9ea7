"""What the memory of producers contains, for tests: units of the arena, owners and their counts. Read without locks."""

from libc.stdint cimport uint32_t

from odradek._ext.shm.layout cimport region
from odradek._ext.shm.owners cimport PRODUCER_OWNERS


def arena_units_used() -> int:
    """Taken units of the arena, of ARENA_UNIT_BYTES each."""
    return region().header.arena_used


def producers_of(uint32_t owner) -> int:
    """How many producers an owner has according to the table of counts."""
    return region().owner_counts[owner % PRODUCER_OWNERS]
