"""Frames between workers and the coordinator; see `forward_frames.pxd`. No state except in FrameCutter, no lock.

The bytes of a socket are not trusted: every length is checked against the available bytes before it is used.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint32_t, uint64_t, uint8_t
from libc.string cimport memcpy, memmove

from odradek._ext.protocol.byte_order cimport load32, load64, store32, store64
from odradek._ext.protocol.cursor cimport WriteBuffer, buffer_free, buffer_init, buffer_reserve, write_bytes


MAX_FRAME_BYTES = 128 << 20

cdef enum:
    REQUEST_BYTES = 29                  # correlation, kind, deadline, time of forwarding, size of the context
    REPLY_BYTES = 25                    # correlation, status, metadata version, time of the coordinator, throttle time
    SPARE_BYTES = 1 << 20               # a larger buffer is freed when it becomes empty


class MalformedFrame(ValueError):
    """The bytes are not a frame of this protocol."""


cdef class FrameCutter:
    """Cuts a byte stream, which may arrive in any pieces, into frames. Raises MalformedFrame if a frame is too long; the stream
    cannot be used after that.
    """

    def __cinit__(self, int64_t max_frame_bytes=MAX_FRAME_BYTES):
        self.most_bytes = max_frame_bytes
        buffer_init(&self.part)

    def __dealloc__(self):
        buffer_free(&self.part)

    def feed(self, bytes data not None) -> list[bytes]:
        """Return the frames, without their lengths, that `data` completes."""
        cdef list frames = []
        cdef const uint8_t* frame
        cdef int64_t size
        try:
            self.begin(data)
            while self.next(&frame, &size):
                frames.append(PyBytes_FromStringAndSize(<const char*>frame, size))
        finally:
            self.finish()
        return frames

    cdef int begin(self, bytes data) except -1:
        if self.part.size:
            write_bytes(&self.part, <const char*>data, len(data))
            if self.part.error:
                raise MemoryError("no memory for a forwarded request")
            self.at = self.part.data
            self.end = self.at + self.part.size
        else:                           # most often `data` consists of whole frames
            self.data = data
            self.at = <const uint8_t*><const char*>data
            self.end = self.at + len(data)
        return 0

    cdef int next(self, const uint8_t** frame, int64_t* size) except -1:
        cdef int64_t length
        if self.end - self.at < LENGTH_BYTES:
            return 0
        length = load32(self.at)
        if length > self.most_bytes:
            raise MalformedFrame(f"frame of {length} bytes, allowed are at most {self.most_bytes}")
        if self.end - self.at - LENGTH_BYTES < length:
            return 0
        frame[0] = self.at + LENGTH_BYTES
        size[0] = length
        self.at += LENGTH_BYTES + length
        return 1

    cdef int finish(self) except -1:
        cdef int64_t rest = self.end - self.at
        if self.part.size:
            if rest and self.at != self.part.data:      # most often a long frame's next piece arrived: nothing to move
                memmove(self.part.data, self.at, rest)
            self.part.size = rest
        elif rest:
            write_bytes(&self.part, self.at, rest)
        if rest == 0 and self.part.capacity > SPARE_BYTES:
            buffer_free(&self.part)
        self.at = self.end = NULL
        self.data = None
        if self.part.error:
            raise MemoryError("no memory for a forwarded request")
        return 0


cdef inline uint64_t bits_of(double number) noexcept:
    cdef uint64_t raw
    memcpy(&raw, &number, 8)
    return raw


cdef int read_request(const uint8_t* frame, int64_t size, RequestHead* head) except -1:
    cdef uint64_t raw
    if size < REQUEST_BYTES:
        raise MalformedFrame(f"request frame of {size} bytes, at least {REQUEST_BYTES} are needed")
    head.correlation = load64(frame)
    head.kind = frame[8]
    raw = load64(frame + 9)
    memcpy(&head.deadline, &raw, 8)
    head.forwarded_ms = <int64_t>load64(frame + 17)
    head.context_bytes = load32(frame + 25)
    if head.kind >= KINDS:
        raise MalformedFrame(f"request frame of unknown kind {head.kind}")
    if head.context_bytes > size - REQUEST_BYTES:
        raise MalformedFrame(f"a request context of {head.context_bytes} bytes does not fit into its frame of {size} bytes")
    if head.context_bytes < LEAST_CONTEXT_BYTES:
        raise MalformedFrame(f"a request context has {head.context_bytes} bytes, but needs at least {LEAST_CONTEXT_BYTES}")
    head.context = frame + REQUEST_BYTES
    head.connection_id = load64(head.context)
    head.payload = head.context + head.context_bytes
    head.payload_bytes = size - REQUEST_BYTES - head.context_bytes
    return 0


cdef int read_reply(const uint8_t* frame, int64_t size, ReplyHead* head) except -1:
    if size < REPLY_BYTES:
        raise MalformedFrame(f"response frame of {size} bytes, at least {REPLY_BYTES} are needed")
    head.correlation = load64(frame)
    head.status = frame[8]
    head.metadata_version = load64(frame + 9)
    head.work_us = load32(frame + 17)
    head.throttle_ms = load32(frame + 21)
    if head.status >= STATUSES:
        raise MalformedFrame(f"response frame of unknown status {head.status}")
    head.payload = frame + REPLY_BYTES
    head.payload_bytes = size - REPLY_BYTES
    return 0


cdef uint8_t* room_for(WriteBuffer* out, int64_t length) except NULL:
    cdef uint8_t* to = buffer_reserve(out, LENGTH_BYTES + length)
    if to == NULL:
        out.error = 0                   # the frames written before remain valid
        raise MemoryError(f"no memory for a frame of {length} bytes")
    store32(to, <uint32_t>length)
    return to + LENGTH_BYTES


cdef int put_request(WriteBuffer* out, uint64_t correlation, uint8_t kind, double deadline, int64_t forwarded_ms,
                     const uint8_t* context, int64_t context_bytes, const uint8_t* payload, int64_t payload_bytes) except -1:
    cdef uint8_t* to = room_for(out, REQUEST_BYTES + context_bytes + payload_bytes)
    store64(to, correlation)
    to[8] = kind
    store64(to + 9, bits_of(deadline))
    store64(to + 17, <uint64_t>forwarded_ms)
    store32(to + 25, <uint32_t>context_bytes)
    memcpy(to + REQUEST_BYTES, context, context_bytes)
    memcpy(to + REQUEST_BYTES + context_bytes, payload, payload_bytes)
    return 0


cdef int put_reply(WriteBuffer* out, uint64_t correlation, uint8_t status, uint64_t metadata_version,
                   const uint8_t* payload, int64_t payload_bytes, int64_t work_us, int64_t throttle_ms) except -1:
    cdef uint8_t* to = room_for(out, REPLY_BYTES + payload_bytes)
    store64(to, correlation)
    to[8] = status
    store64(to + 9, metadata_version)
    store32(to + 17, <uint32_t>min(max(work_us, <int64_t>0), <int64_t>0xFFFFFFFF))
    store32(to + 21, <uint32_t>min(max(throttle_ms, <int64_t>0), <int64_t>0x7FFFFFFF))
    if payload_bytes:
        memcpy(to + REPLY_BYTES, payload, payload_bytes)
    return 0


cdef bytes taken(WriteBuffer* out):
    cdef bytes data = PyBytes_FromStringAndSize(<const char*>out.data, out.size)
    out.size = 0
    if out.capacity > SPARE_BYTES:
        buffer_free(out)
    return data


# -- functions for Python --------------------------------------------------------------------------------------------

def encode_request(uint64_t correlation, uint8_t kind, bytes context not None, double deadline, bytes payload not None,
                   int64_t forwarded_ms=0) -> bytes:
    """Return a request's frame, length included."""
    cdef WriteBuffer out
    buffer_init(&out)
    try:
        put_request(&out, correlation, kind, deadline, forwarded_ms, <const uint8_t*><const char*>context, len(context),
                    <const uint8_t*><const char*>payload, len(payload))
        return taken(&out)
    finally:
        buffer_free(&out)


def decode_request(bytes frame not None) -> tuple[int, int, bytes, float, bytes]:
    """Return (correlation, kind, context, deadline, payload) of a frame without its length. Raises MalformedFrame."""
    cdef RequestHead head
    read_request(<const uint8_t*><const char*>frame, len(frame), &head)
    return (head.correlation, head.kind, <bytes>head.context[:head.context_bytes], head.deadline,
            <bytes>head.payload[:head.payload_bytes])


def encode_reply(uint64_t correlation, uint8_t status, uint64_t metadata_version, bytes payload not None, int64_t work_us=0,
                 int64_t throttle_ms=0) -> bytes:
    """Return a response's frame, length included."""
    cdef WriteBuffer out
    buffer_init(&out)
    try:
        put_reply(&out, correlation, status, metadata_version, <const uint8_t*><const char*>payload, len(payload), work_us, throttle_ms)
        return taken(&out)
    finally:
        buffer_free(&out)


def decode_reply(bytes frame not None) -> tuple[int, int, int, bytes]:
    """Return (correlation, status, metadata version, payload) of a frame without its length. Raises MalformedFrame."""
    cdef ReplyHead head
    read_reply(<const uint8_t*><const char*>frame, len(frame), &head)
    return head.correlation, head.status, head.metadata_version, <bytes>head.payload[:head.payload_bytes]
