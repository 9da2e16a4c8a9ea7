"""Flushing: what is in the log gets onto the device, by one flusher a slot at a time, shared by all who wait for it [R 4]."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t


cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_cond_t:
        pass


cdef enum:
    FLUSH_THREADS = 4             # of a worker; several partitions' syncs go out together, and share the journal's commit
    FIRST_FLUSH_LANE = 2          # behind the loop and the append thread


# Sync everything before the log end offset to the device. `whole`: the indexes too, even if the log itself is synced.
# 1 flushed, 0 nothing to do or another is at it, -errno.
cdef int flush_slot(uint32_t index, bint whole) noexcept nogil


cdef class Flusher:
    """A worker's flush threads: slots whose logs somebody waits for, each in the queue at most once."""
    cdef pthread_mutex_t mutex
    cdef pthread_cond_t asked
    cdef uint8_t* queued          # a byte a slot
    cdef uint32_t* ring           # of max_slots places
    cdef uint64_t first
    cdef uint64_t end
    cdef uint64_t room
    cdef int idle
    cdef bint closing
    cdef list threads

    # Sync the log of `slot` soon; never blocks. From the loop's thread.
    cdef int request(self, uint32_t slot) except -1
    cdef void put(self, uint32_t slot) noexcept nogil
    cdef int64_t take(self) noexcept nogil
    cdef void serve(self, int lane) noexcept nogil
