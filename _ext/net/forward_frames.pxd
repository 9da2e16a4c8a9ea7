"""Frames between workers and the coordinator; `broker/odradek/net/forward_frames.py` describes their format.

The pointers that `read_*` and `next` return point into the given bytes, and are valid no longer than those.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t, uint8_t

from odradek._ext.protocol.cursor cimport WriteBuffer


cdef enum:
    KIND_KAFKA = 0
    KIND_CANCEL = 2
    KIND_METRICS = 3
    KIND_LOOKED = 4                     # the worker's answer to STATUS_LOOK: it has checked its clients
    KIND_HANG_UP = 5
    KIND_ADD_PARTITIONS = 6
    KIND_CREDENTIAL = 7
    KINDS = 9                           # first unused kind
    STATUS_OK = 0
    STATUS_FAILED = 1
    STATUS_LOOK = 4                     # answers no request: the worker must check which clients disconnected
    STATUSES = 5                        # first unused status
    LENGTH_BYTES = 4
    LEAST_CONTEXT_BYTES = 10            # connection id and listener


cdef struct RequestHead:
    uint64_t correlation
    double deadline
    int64_t forwarded_ms                    # when the worker received it for forwarding, CLOCK_MONOTONIC
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
    uint32_t work_us              # time that the coordinator spent on the request
    uint32_t throttle_ms          # the connection is throttled for this time; the payload contains it


cdef class FrameCutter:
    cdef int64_t most_bytes
    cdef WriteBuffer part               # the start of a frame that has not completely arrived
    cdef object data                    # the bytes being cut, between `begin` and `finish`
    cdef const uint8_t* at
    cdef const uint8_t* end
    cdef int begin(self, bytes data) except -1
    cdef int next(self, const uint8_t** frame, int64_t* size) except -1     # 1: a frame, without its length; 0: no complete frame
    cdef int finish(self) except -1     # must be called after each `begin`: keeps the incomplete rest


cdef int read_request(const uint8_t* frame, int64_t size, RequestHead* head) except -1
cdef int read_reply(const uint8_t* frame, int64_t size, ReplyHead* head) except -1
# put_* add a whole frame, length included, or raise MemoryError and add nothing.
cdef int put_request(WriteBuffer* out, uint64_t correlation, uint8_t kind, double deadline, int64_t forwarded_ms,
                     const uint8_t* context, int64_t context_bytes, const uint8_t* payload, int64_t payload_bytes) except -1
cdef int put_reply(WriteBuffer* out, uint64_t correlation, uint8_t status, uint64_t metadata_version,
                   const uint8_t* payload, int64_t payload_bytes, int64_t work_us, int64_t throttle_ms) except -1
cdef bytes taken(WriteBuffer* out)      # returns all bytes of the buffer, empties it, and frees its memory if that is large
