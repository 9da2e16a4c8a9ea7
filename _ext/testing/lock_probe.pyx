"""Locks that a test holds: a slot's lock and the arena's mutex. The broker itself runs no Python code under either."""

from libc.stdint cimport uint32_t

from odradek._ext.partition.slot_access cimport wait_slot
from odradek._ext.partition.slots cimport LOCK_PATIENCE_MS, busy, checked_slot
from odradek._ext.shm.c_library cimport pthread_mutex_trylock, pthread_mutex_unlock
from odradek._ext.shm.layout cimport region
from odradek._ext.shm.locks cimport unlock
from odradek._ext.shm.slot cimport slot_at


cdef class SlotLock:
    """A slot's lock as a context: `with SlotLock(index): ...`."""

    cdef uint32_t index

    def __cinit__(self, uint32_t index):
        checked_slot(index)
        self.index = index

    def __enter__(self) -> SlotLock:
        cdef bint taken
        with nogil:
            taken = wait_slot(self.index, slot_at(self.index), LOCK_PATIENCE_MS) == 0
        if not taken:
            raise busy(self.index)
        return self

    def __exit__(self, *_) -> None:
        unlock(self.index, slot_at(self.index))


def lock_and_hold(uint32_t index) -> None:
    """Take the slot's lock and keep it; the process is then stopped or killed."""
    SlotLock(index).__enter__()


def lock_and_hold_arena() -> None:
    """Take the arena's mutex and keep it; the process then waits, or is killed.

    :raises RuntimeError: another thread holds the mutex, or its last holder died.
    """
    cdef int result = pthread_mutex_trylock(&region().header.arena_mutex)
    if result != 0:
        raise RuntimeError(f"the arena's mutex cannot be taken: error {result}")


def release_arena() -> None:
    """Release the arena's mutex after `lock_and_hold_arena`."""
    pthread_mutex_unlock(&region().header.arena_mutex)
