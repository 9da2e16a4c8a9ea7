"""The requests that a process forwards to the coordinator and that are not answered yet. Used by its event loop's thread only; no lock.

`ForwardClient` (broker/odradek/net/forward.py) adds the Python half: the stream, the timer and the callbacks.
"""

from libc.stdint cimport int16_t, int64_t, uint64_t, uint8_t

from odradek._ext.net.connection cimport Connection, Pending
from odradek._ext.net.forward_frames cimport FrameCutter, ReplyHead
from odradek._ext.protocol.cursor cimport WriteBuffer
from odradek._ext.shm.topics cimport TopicDirectory


cdef class Route:
    """How requests of one API and version are forwarded."""
    cdef readonly str name
    cdef readonly double patience_s     # time until the request fails without an answer
    cdef readonly int error_at          # position of the error code in the answer; -1: at no fixed position
    cdef readonly bint of_brokers       # only brokers send it, on the listener that they use among themselves
    cdef readonly bint follows          # served in the order of arrival: a request need not wait for an earlier request of its kind


cdef class CachedContext:
    """A connection's encoded context, and the values it was made from."""
    cdef bytes client_id                # None: the request has none
    cdef object principal
    cdef object software_name
    cdef object software_version
    cdef bytes context


cdef class ForwardedRequest:
    """A request that is not answered yet; it is queued or sent."""
    cdef uint64_t correlation
    cdef double deadline                # in the loop's time, seconds
    cdef int64_t forwarded_ms               # when `put` or `forward` was called, CLOCK_MONOTONIC
    cdef uint64_t connection_id
    cdef readonly bint sent
    cdef bint dropped                   # cancelled or expired before it was sent
    cdef uint8_t kind
    cdef bytes context                  # only while the request is queued
    cdef bytes payload                  # only while the request is queued
    cdef object callback                # set by `put`
    cdef Pending pending                # set by `forward`
    cdef Route route                    # set by `forward`


cdef class ForwardTable:
    cdef readonly object queue          # unsent ForwardedRequests, including dropped ones
    cdef readonly int64_t queued
    cdef readonly int64_t queued_bytes
    cdef readonly int64_t max_queued
    cdef readonly int64_t max_queued_bytes
    cdef dict pending                   # correlation -> ForwardedRequest, queued and sent
    cdef public double expires_at       # when the timer fires; infinite: no timer is set
    cdef readonly bint writable         # the stream is connected, and takes more bytes
    cdef readonly bint held             # between `hold` and `release`
    cdef object write                   # the stream's `write`; None: not connected
    cdef object settled
    cdef object take_over
    cdef TopicDirectory topics
    cdef WriteBuffer out                # frames that are sent in one write; their requests count as sent
    cdef FrameCutter cutter
    cdef uint64_t next_correlation
    cdef public bint has_answered              # the coordinator has sent bytes on the current stream

    cdef bint full(self, int64_t size) noexcept
    # Forwards the request of a client. Returns a FrameResult. The answer completes a Pending of the connection.
    cdef int forward(self, Connection connection, Route route, const uint8_t* client_id, int64_t client_id_bytes,
                     const uint8_t* payload, int64_t size) except -1
    cdef bytes context_of(self, Connection connection, const uint8_t* client_id, int64_t size)
    cdef int add(self, ForwardedRequest request, bytes context, const uint8_t* payload, int64_t size) except -1
    cdef int enqueue(self, ForwardedRequest request, bytes context, bytes payload) except -1
    cpdef int flush(self) except -1
    cdef int write_out(self) except -1
    cdef int enqueue_note(self, int kind, uint64_t connection_id) except -1
    cdef int check_clients(self) except -1
    cdef int hang_up(self, uint64_t connection_id) except -1
    cdef int forget(self, ForwardedRequest request) except -1
    cdef int answer(self, ForwardedRequest request, ReplyHead* head) except -1
    cdef int refuse(self, ForwardedRequest request, reason) except -1
