"""What a process has asked the coordinator for and has no answer to yet. One owner, its event loop's thread; no lock.

`ForwardClient` (broker/odradek/net/forward.py) is the rest of it: the stream, the timer, and the promises.
"""

from libc.stdint cimport int16_t, int64_t, uint64_t, uint8_t

from odradek._ext.net.connection cimport Connection, Pending
from odradek._ext.net.forward_frames cimport FrameCutter, ReplyHead
from odradek._ext.protocol.cursor cimport WriteBuffer
from odradek._ext.shm.topics cimport TopicDirectory


cdef class Route:
    """How requests of one API and version are forwarded."""
    cdef readonly str name
    cdef readonly double patience_s     # how long an answer is waited for
    cdef readonly int error_at          # where the answer states its error code; -1: nowhere that is simply found
    cdef readonly bint follows          # served in the order of arrival: it need not wait for one of its kind before it


cdef class CachedContext:
    """A connection's context, as it was told last."""
    cdef bytes client_id                # None: none
    cdef object principal
    cdef object software_name
    cdef object software_version
    cdef bytes context


cdef class Forwarded:
    """A request without an answer, queued or sent."""
    cdef uint64_t correlation
    cdef double deadline                # in the loop's time, seconds
    cdef int64_t asked_ms               # since when it is under way
    cdef uint64_t connection_id
    cdef readonly bint sent
    cdef bint dropped                   # finished before it was sent
    cdef uint8_t kind
    cdef bytes context                  # while it is queued
    cdef bytes payload                  # likewise
    cdef object callback                # of `put`
    cdef Pending pending                # of `forward`
    cdef Route route                    # likewise


cdef class ForwardTable:
    cdef readonly object queue          # of Forwarded, not sent; with those that were dropped meanwhile
    cdef readonly int64_t queued
    cdef readonly int64_t queued_bytes
    cdef readonly int64_t max_queued
    cdef readonly int64_t max_queued_bytes
    cdef dict pending                   # correlation -> Forwarded, queued and sent
    cdef public double expires_at       # when the timer fires; infinite without one
    cdef readonly bint writable         # there is a stream, and it takes more
    cdef readonly bint held
    cdef object write                   # the stream's; None: there is none
    cdef object settled
    cdef object take_over
    cdef TopicDirectory topics
    cdef WriteBuffer out                # frames that leave together: sent, as far as anybody is told
    cdef FrameCutter cutter
    cdef uint64_t next_correlation
    cdef public bint heard              # something came by the stream

    cdef bint full(self, int64_t size) noexcept
    # The request of a client; a FrameResult. The answer completes a Pending of the connection.
    cdef int forward(self, Connection connection, Route route, const uint8_t* client_id, int64_t client_id_bytes,
                     const uint8_t* request, int64_t size) except -1
    cdef bytes context_of(self, Connection connection, const uint8_t* client_id, int64_t size)
    cdef int add(self, Forwarded one, bytes context, const uint8_t* payload, int64_t size) except -1
    cdef int enqueue(self, Forwarded one, bytes context, bytes payload) except -1
    cpdef int flush(self) except -1
    cdef int write_out(self) except -1
    cdef int enqueue_note(self, int kind, uint64_t connection_id) except -1
    cdef int look(self) except -1
    cdef int hang_up(self, uint64_t connection_id) except -1
    cdef int forget(self, Forwarded one) except -1
    cdef int answer(self, Forwarded one, ReplyHead* head) except -1
    cdef int refuse(self, Forwarded one, why) except -1
