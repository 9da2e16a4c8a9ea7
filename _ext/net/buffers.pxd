"""Large receive buffers, kept for the next use in power-of-two size classes."""

from libc.stdint cimport int64_t, uint8_t


cdef struct Buffer:               # the bytes in use are data[start:end]
    uint8_t* data                 # NULL: none
    int64_t capacity
    int64_t start
    int64_t end


cdef class BufferPool:
    cdef (uint8_t*)[33] free_lists
    cdef readonly int64_t retained_limit
    cdef readonly int64_t retained_bytes      # in free buffers that are kept
    cdef readonly int64_t lent_bytes          # in buffers that connections and delayed produces hold
    # Sets `buffer` to an empty buffer of at least `size` bytes (at most 4 GiB).
    cdef int take(self, Buffer* buffer, int64_t size) except -1
    cdef void free_down_to(self, int64_t limit) noexcept
    # Takes the buffer back, if `buffer` has one; `buffer.data` is NULL afterwards.
    cdef void give(self, Buffer* buffer) noexcept
