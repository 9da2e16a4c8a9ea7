"""A worker's pool of receive buffers.

A frame that is larger than the shared receive buffer, and every frame of which only a part has arrived, is collected in
a buffer of the pool. The pool keeps returned buffers up to a bound, because on many machines the first touch of fresh
memory costs ten times a later touch. Used by the worker's event loop thread only; no lock.
"""

from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, malloc


cdef enum:
    SMALLEST_CLASS = 9            # 512 bytes
    LARGEST_CLASS = 32            # 4 GiB: a frame may have 2 GiB - 1, plus its length field


cdef int class_of(int64_t size) noexcept nogil:
    cdef int size_class = SMALLEST_CLASS
    while (<int64_t>1 << size_class) < size:
        size_class += 1
    return size_class


cdef class BufferPool:
    """Buffers in power-of-two size classes.

    :param retained_limit: maximum bytes of free buffers that are kept, over all classes.
    """

    def __cinit__(self, int64_t retained_limit):
        cdef int i
        for i in range(33):
            self.free_lists[i] = NULL
        self.retained_limit = retained_limit
        self.retained_bytes = 0
        self.lent_bytes = 0

    def __dealloc__(self):
        self.free_down_to(0)

    cdef void free_down_to(self, int64_t limit) noexcept:
        cdef int size_class = LARGEST_CLASS
        cdef uint8_t* data
        while size_class >= SMALLEST_CLASS and self.retained_bytes > limit:
            data = self.free_lists[size_class]
            if data == NULL:
                size_class -= 1
                continue
            self.free_lists[size_class] = (<uint8_t**>data)[0]
            self.retained_bytes -= <int64_t>1 << size_class
            free(data)

    def trim(self, int64_t limit=0) -> None:
        """Free buffers, the largest first, until at most `limit` bytes of free buffers are kept."""
        self.free_down_to(limit)

    cdef int take(self, Buffer* buffer, int64_t size) except -1:
        cdef int size_class
        cdef uint8_t* data
        if size < 0 or size > <int64_t>1 << LARGEST_CLASS:
            raise ValueError(f"receive buffer of {size} bytes: the size must be between 0 and 4 GiB")
        size_class = class_of(size)
        data = self.free_lists[size_class]
        if data != NULL:
            self.free_lists[size_class] = (<uint8_t**>data)[0]
            self.retained_bytes -= <int64_t>1 << size_class
        else:
            data = <uint8_t*>malloc(<size_t>1 << size_class)
            if data == NULL:
                raise MemoryError(f"no memory for a receive buffer of {size} bytes")
        buffer.data = data
        buffer.capacity = <int64_t>1 << size_class
        buffer.start = buffer.end = 0
        self.lent_bytes += buffer.capacity
        return 0

    cdef void give(self, Buffer* buffer) noexcept:
        cdef int size_class
        if buffer.data == NULL:
            return
        self.lent_bytes -= buffer.capacity
        if self.retained_bytes + buffer.capacity > self.retained_limit:
            free(buffer.data)
        else:
            size_class = class_of(buffer.capacity)
            (<uint8_t**>buffer.data)[0] = self.free_lists[size_class]
            self.free_lists[size_class] = buffer.data
            self.retained_bytes += buffer.capacity
        buffer.data = NULL
        buffer.capacity = buffer.start = buffer.end = 0
