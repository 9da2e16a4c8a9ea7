"""A connection's queue of unsent bytes: spans in memory and slices of files, in the order of sending."""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t


cdef enum SendState:
    SENT_ALL = 0
    SENT_BLOCKED = 1              # the socket is full
    SENT_ENOUGH = 2               # the turn's budget is used up; the socket may take more
    SENT_COLD = 3                 # the head is a slice whose next FILE_CHUNK bytes are not in the page cache
    SENT_SHORT_FILE = 4           # the file ended before the slice's length
    SENT_ERROR = 5                # *error is the errno

cdef enum:
    FILE_CHUNK = 1024 * 1024      # bytes of a file sent by one call, and checked in the page cache by one call
    COPIED_SLICE = 16 * 1024      # a slice up to this size is read into a span if the page cache has it


cdef struct OutNode:
    OutNode* next
    int64_t length                # unsent bytes
    uint8_t* data                 # a span's next byte
    PyObject* owner               # of a slice: keeps fd open (a strong reference)
    int64_t position              # a slice's next byte in the file
    int64_t warm_until            # a slice's bytes before this position need no check of the page cache
    int fd                        # -1: a span
    bint viewed                   # a Py_buffer follows the node in memory, to be released; otherwise a span's bytes, or nothing


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
cdef int add_framed(OutQueue* queue, const uint8_t* data, int64_t length) except -1       # after its length in four bytes
cdef int add_file(OutQueue* queue, object owner, int fd, int64_t position, int64_t length) except -1
# Adds a bytes-like object (copied only if it is small, so it must not change), or a FileSlice.
cdef int add_part(OutQueue* queue, object part) except -1
# Moves all of `source` to the end of `queue`.
cdef void join_queues(OutQueue* queue, OutQueue* source) noexcept
cdef void drop_queue(OutQueue* queue) noexcept
# Moves up to `room` bytes from the queue to `out`: spans, and slices of files that are in the page cache. SENT_ALL: the queue is empty;
# SENT_ENOUGH: `out` is full, or the next slice is to be asked for again; other states as above. Sets *got.
cdef SendState gather_queue(OutQueue* queue, uint8_t* out, int64_t room, bint look_up, int64_t* got, int* error) noexcept
# Sends until all is sent, the socket is full, `budget` bytes were sent, or another SendState occurs. Adds the sent bytes to *sent,
# and those of them that came from files to *from_files. `look_up`: check the page cache before each chunk of a file.
cdef SendState send_queue(OutQueue* queue, int socket, int64_t budget, bint look_up, int64_t* sent, int64_t* from_files,
                          int* error) noexcept
