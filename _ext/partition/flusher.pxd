"""Threads that sync logs, for a process whose loop must not wait for the device: a worker or the coordinator [R 4.5].

Each log directory has a separate queue and separate threads, because a device that hangs blocks every thread that waits for it.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t, uint8_t

from odradek._ext.shm.c_library cimport pthread_cond_t, pthread_mutex_t


cdef enum:
    THREADS_OF_DIRECTORY = 4      # the syncs of several partitions run together and share one commit of the file system's journal
    FLUSH_THREADS = 20            # of all directories: MAX_LOG_DIRS + 4; there are enough lanes from LANE_FLUSH on (LANES)


cdef class DirectoryQueue:
    """Slots of one log directory that need a sync, each at most once in the queue; the directory's threads take them from it.
    """
    cdef pthread_mutex_t mutex
    cdef pthread_cond_t requested
    cdef int log_dir
    cdef uint8_t* queued          # one byte for each slot
    cdef uint32_t* ring           # of max_slots places
    cdef uint64_t first
    cdef uint64_t end
    cdef uint64_t room
    cdef int idle
    cdef bint closing
    cdef int threads              # number of started threads; only the loop's thread changes it

    # Add `slot` to the queue. Returns whether more slots are queued than threads are idle, so that one more thread would help.
    cdef bint add(self, uint32_t slot) noexcept nogil
    cdef void put(self, uint32_t slot) noexcept nogil
    cdef int64_t take(self) noexcept nogil
    cdef void serve(self, int lane) noexcept nogil
    cdef void end_soon(self) noexcept nogil


cdef class Flusher:
    """The queues of a process by number of the log directory, created when first needed, and all their threads."""
    cdef list queues              # DirectoryQueue or None
    cdef list threads
    cdef int served               # directories that have a thread
    cdef bint closing
    cdef int64_t report_from_ms   # earliest time to log again that no thread can be started

    # Sync the log of `slot` soon; never blocks. Call this from the loop's thread.
    cdef int request(self, uint32_t slot) except -1
    cdef bint may_start(self, DirectoryQueue queue)
    cdef int start_thread(self, DirectoryQueue queue) except -1


cdef class SharedFlusher(Flusher):
    """A Flusher whose `request` any thread may call."""
    cdef object turn              # threading.Lock: held during a request
