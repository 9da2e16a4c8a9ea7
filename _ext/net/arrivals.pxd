"""Requests that workers forward, as the coordinator gets them. One owner, its event loop's thread; no lock.

`ForwardServer` (broker/odradek/net/forward_server.py) is the rest of it: listening, tasks, the stop.
"""

from libc.stdint cimport int16_t, int64_t, uint64_t, uint8_t

from odradek._ext.net.forward_frames cimport FrameCutter, RequestHead
from odradek._ext.net.late_requests cimport Standstill
from odradek._ext.protocol.cursor cimport WriteBuffer


cdef class Arrival:
    """A request. Answered once, by anybody, at any time."""
    cdef readonly bytes payload                 # b"": it was parked
    cdef readonly object context                # what `decode_context` made of the context's bytes
    cdef readonly double deadline               # in the loop's time, seconds: nobody waits for the answer afterwards
    cdef readonly int kind
    cdef readonly int64_t connection_id
    cdef uint64_t correlation
    cdef int64_t size                           # of its frame, while that is in memory
    cdef readonly bint unawaited                # clients send it without waiting for the response
    cdef ArrivalStream stream                   # None: it was answered
    cdef bint watched                           # `when_gone` was called
    cdef int reply(self, int status, uint64_t metadata_version, const uint8_t* payload, int64_t size) except -1


cdef class InFlight:
    """The requests under way, of all streams."""
    cdef readonly int64_t bytes_in_flight
    cdef readonly int64_t in_flight
    cdef readonly int64_t max_bytes
    cdef public bint told_when_idle
    cdef Standstill standstill                  # of the loop
    cdef int took(self, int64_t size) except -1
    cdef int released(self, int64_t size) except -1
    cdef int gave_back(self, int64_t size) except -1


cdef class ArrivalStream:
    """One worker's stream, but for its transport and its tasks."""
    cdef readonly InFlight flight
    cdef object at_once
    cdef object end_of_read
    cdef object decode_context
    cdef object write                           # the transport's; None: there is none
    cdef dict tasks_of                          # connection id -> how many of its requests are served by tasks
    cdef dict waiting_of                        # connection id -> {request: what to call if the connection ends before its answer}
    cdef FrameCutter cutter
    cdef WriteBuffer out                        # answers that leave together
    cdef bint reading
    cdef list doubtful                          # Arrivals that wait until their worker has looked whose clients are gone; None
    cdef int read_frame(self, RequestHead* head, int64_t size, int64_t now_us) except -1
    cdef Arrival arrival_of(self, RequestHead* head, int64_t size)
    cdef int have_looked(self) except -1
    cdef int serve(self, Arrival one) except -1
    cdef int drop_doubtful(self, int64_t connection_id) except -1
    cdef int serve_doubtful(self) except -1
    cdef int watched_no_more(self, Arrival one) except -1
