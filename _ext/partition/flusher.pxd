"""Threads that sync logs, for a process whose loop must not wait for the device: a worker's, the coordinator's [R 4.5].

Each log directory has its own queue and its own threads, because a device that hangs keeps every thread that waits for it.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t, uint8_t


cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_mutex_t:
        pass
    ctypedef struct pthread_cond_t:
        pass


cdef enum:
    THREADS_OF_DIRECTORY = 4      # several partitions' syncs are under way together, and share the journal's commit
    FLUSH_THREADS = 20            # of all directories: MAX_LOG_DIRS + 4, as many as there are lanes from LANE_FLUSH on (LANES)


cdef class DirectoryQueue:
    """Slots of one log directory whose logs somebody waits for, each in the queue at most once; the threads take them from here."""
    cdef pthread_mutex_t mutex
    cdef pthread_cond_t asked
    cdef int log_dir
    cdef uint8_t* queued          # a byte a slot
    cdef uint32_t* ring           # of max_slots places
    cdef uint64_t first
    cdef uint64_t end
    cdef uint64_t room
    cdef int idle
    cdef bint closing
    cdef int threads              # that were started; the loop's thread alone changes it

    # Put `slot` into the queue; whether more slots are queued than threads are idle, so that one more thread would help.
    cdef bint add(self, uint32_t slot) noexcept nogil
    cdef void put(self, uint32_t slot) noexcept nogil
    cdef int64_t take(self) noexcept nogil
    cdef void serve(self, int lane) noexcept nogil
    cdef void end_soon(self) noexcept nogil


cdef class Flusher:
    """One a process: the queues by number of the log directory, made when first needed, and all their threads."""
    cdef list queues              # DirectoryQueue or None
    cdef list threads
    cdef int served               # directories with a thread
    cdef bint closing
    cdef int64_t report_from_ms   # when it may be reported again that no thread can be started

    # Sync the log of `slot` soon; never blocks. From the loop's thread.
    cdef int request(self, uint32_t slot) except -1
    cdef bint may_start(self, DirectoryQueue queue)
    cdef int start_thread(self, DirectoryQueue queue) except -1
