"""Frames between workers and coordinator, natively; `broker/odradek/net/forward_frames.py` says what they are.

What `read_*` and `next` hand out points into what they were given, and holds no longer than that.
"""

from libc.stdint cimport int64_t, uint64_t, uint8_t

from odradek._ext.protocol.cursor cimport WriteBuffer


cdef enum:
    KIND_KAFKA = 0
    KIND_CANCEL = 2
    KIND_METRICS = 3
    KIND_LOOKED = 4                     # the answer to STATUS_LOOK
    KIND_HANG_UP = 5
    KINDS = 6
    STATUS_OK = 0
    STATUS_FAILED = 1
    STATUS_LOOK = 4                     # no answer: the worker is to look which clients are gone
    STATUSES = 5
    LENGTH_BYTES = 4
    LEAST_CONTEXT_BYTES = 10            # connection and listener


cdef struct RequestHead:
    uint64_t correlation
    double deadline
    int64_t asked_ms                    # when its worker forwarded it
    uint64_t connection_id
    const uint8_t* context              # the connection id included
    int64_t context_bytes
    const uint8_t* payload
    int64_t payload_bytes
    uint8_t kind


cdef struct ReplyHead:
    uint64_t correlation
    uint64_t metadata_version
    const uint8_t* payload
    int64_t payload_bytes
    uint8_t status


cdef class FrameCutter:
    cdef int64_t most_bytes
    cdef WriteBuffer part               # the beginning of a frame that has not wholly arrived
    cdef object data                    # at hand, between `begin` and `finish`
    cdef const uint8_t* at
    cdef const uint8_t* end
    cdef int begin(self, bytes data) except -1
    cdef int next(self, const uint8_t** frame, int64_t* size) except -1     # 1: a frame, without its length; 0: no more
    cdef int finish(self) except -1     # always after `begin`: keeps what is left


cdef int read_request(const uint8_t* frame, int64_t size, RequestHead* head) except -1
cdef int read_reply(const uint8_t* frame, int64_t size, ReplyHead* head) except -1
# A frame with its length is added whole, or MemoryError is raised.
cdef int put_request(WriteBuffer* out, uint64_t correlation, uint8_t kind, double deadline, int64_t asked_ms,
                     const uint8_t* context, int64_t context_bytes, const uint8_t* payload, int64_t payload_bytes) except -1
cdef int put_reply(WriteBuffer* out, uint64_t correlation, uint8_t status, uint64_t metadata_version,
                   const uint8_t* payload, int64_t payload_bytes) except -1
cdef bytes taken(WriteBuffer* out)      # all of it; empty afterwards, and not much larger than it needs to be
