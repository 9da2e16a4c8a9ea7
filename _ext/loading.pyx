"""How several loaders share the slots that are to be opened at start-up: a counter in the shared header.

Written by the loaders alone; the first one begins when every partition has its slot.
"""

from libc.stdint cimport uint64_t

from broker._ext.atomics cimport compare_swap_64, load_acquire_64, store_release_64
from broker._ext.shared cimport Header, region


def begin(uint64_t total):
    """Let the loaders take the slots from 0 to `total` - 1. By the first loader, once."""
    store_release_64(&region().header.loading_total, total)
    store_release_64(&region().header.loading_begun, 1)


def begun():
    """Whether slots may be taken."""
    return load_acquire_64(&region().header.loading_begun) != 0


def take():
    """A slot that no other loader takes; -1 when all are taken."""
    cdef Header* header = region().header
    cdef uint64_t taken
    while True:
        taken = load_acquire_64(&header.loading_done)
        if taken >= load_acquire_64(&header.loading_total):
            return -1
        if compare_swap_64(&header.loading_done, taken, taken + 1):
            return taken
