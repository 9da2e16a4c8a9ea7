"""What waits to be sent on a connection: a queue of byte spans and slices of files."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t


cdef enum SendState:
    SENT_ALL = 0
    SENT_BLOCKED = 1              # the socket is full
    SENT_ENOUGH = 2               # the turn's budget is used up; the socket takes more
    SENT_COLD = 3                 # the head is a slice whose next FILE_CHUNK bytes are not in the page cache
    SENT_SHORT_FILE = 4           # the file ended before the promised length
    SENT_ERROR = 5                # *error is the errno

cdef enum:
    FILE_CHUNK = 1024 * 1024      # bytes of a file sent by one call, and looked up in the page cache by one call
    COPIED_SLICE = 16 * 1024      # a slice up to this size is read into a span if it is cached


cdef struct OutNode:
    OutNode* next
    int64_t length                # bytes still to be sent
    uint8_t* data                 # a span's next byte
    PyObject* owner               # a slice's: keeps fd open (a strong reference)
    int64_t position              # a slice's next byte in the file
    int64_t warm_until            # a slice's bytes before this position need no look-up
    int fd                        # -1: a span
    bint viewed                   # a Py_buffer follows, to be released; otherwise the bytes themselves, or nothing


cdef struct OutQueue:
    OutNode* head
    OutNode* tail
    int64_t span_bytes
    int64_t file_bytes
    int64_t count


cdef class FileSlice:
    cdef readonly object file
    cdef readonly int fd
    cdef readonly int64_t position
    cdef readonly int64_t length


cdef int add_copy(OutQueue* queue, const uint8_t* data, int64_t length) except -1
cdef int add_framed(OutQueue* queue, const uint8_t* data, int64_t length) except -1       # with its length in four bytes in front
cdef int add_file(OutQueue* queue, object owner, int fd, int64_t position, int64_t length) except -1
# A bytes-like object (not copied unless small: it must not change), or a FileSlice.
cdef int add_part(OutQueue* queue, object part) except -1
# Moves all of `source` to the end of `queue`.
cdef void join_queues(OutQueue* queue, OutQueue* source) noexcept
cdef void drop_queue(OutQueue* queue) noexcept
# Sends until all is sent, the socket is full, `budget` bytes were sent, or one of the other states. *sent, *from_files
# are increased by what was sent in all and of files.
cdef SendState send_queue(OutQueue* queue, int socket, int64_t budget, bint look_up, int64_t* sent, int64_t* from_files,
                          int* error) noexcept
