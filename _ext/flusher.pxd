"""Threads that sync logs, for a process whose loop must not wait for the device: a worker's, the coordinator's [R 4.5]."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t


cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_cond_t:
        pass


cdef enum:
    FLUSH_THREADS = 4             # several partitions' syncs are under way together, and share the journal's commit


cdef class Flusher:
    """Slots whose logs somebody waits for, each in the queue at most once, and the threads that sync them."""
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
    cdef int64_t report_from_ms   # when it may be reported again that no thread can be started

    # Sync the log of `slot` soon; never blocks. From the loop's thread.
    cdef int request(self, uint32_t slot) except -1
    cdef int make_queue(self) except -1
    cdef int start_thread(self) except -1
    cdef void put(self, uint32_t slot) noexcept nogil
    cdef int64_t take(self) noexcept nogil
    cdef void serve(self, int lane) noexcept nogil
