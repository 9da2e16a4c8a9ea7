"""Requests that workers forward to the coordinator, on the coordinator's side. Used by its event loop's thread only; no lock.

`ForwardServer` (broker/odradek/net/forward_server.py) adds the Python half: listening, tasks and the stop.
"""

from libc.stdint cimport int16_t, int64_t, uint64_t, uint8_t

from odradek._ext.net.forward_frames cimport FrameCutter, RequestHead
from odradek._ext.net.late_requests cimport Standstill
from odradek._ext.protocol.cursor cimport WriteBuffer


cdef class Arrival:
    """A forwarded request. Any code in the loop may answer it, once, at any time."""
    cdef readonly bytes payload                 # b"" once the request is parked
    cdef readonly object context                # result of `decode_context`
    cdef readonly double deadline               # in the loop's time, seconds; the worker discards an answer after it
    cdef readonly int kind
    cdef readonly int64_t connection_id
    cdef uint64_t correlation
    cdef int64_t size                           # bytes of the frame; 0 once the request is parked
    cdef readonly bint unawaited                # clients send it without waiting for the response
    cdef ArrivalStream stream                   # None: answered or dropped
    cdef bint watched                           # `when_gone` was called: the stream holds a callback
    cdef public int64_t work_us                 # time that this process spent on the request
    cdef public int64_t throttle_ms             # throttle time that the response contains
    cdef int64_t began_us                       # while `at_once` serves it; 0: it does not
    cdef int reply(self, int status, uint64_t metadata_version, const uint8_t* payload, int64_t size) except -1


cdef class InFlight:
    """Count and bytes of the requests in flight on all streams."""
    cdef readonly int64_t bytes_in_flight
    cdef readonly int64_t in_flight
    cdef readonly int64_t max_bytes
    cdef public bint report_idle
    cdef Standstill standstill                  # of the coordinator's loop
    cdef int begin_request(self, int64_t size) except -1
    cdef int release_bytes(self, int64_t size) except -1
    cdef int end_request(self, int64_t size) except -1


cdef class ArrivalStream:
    """One worker's stream of requests. The Python subclass adds the transport and the tasks."""
    cdef readonly InFlight flight
    cdef object at_once
    cdef object end_of_read
    cdef object decode_context
    cdef object write                           # the transport's `write`; None: the stream is not connected
    cdef dict tasks_of                          # connection id -> number of its requests that are served by tasks
    cdef dict waiting_of                        # connection id -> {Arrival: callback if the connection ends before the answer}
    cdef FrameCutter cutter
    cdef WriteBuffer out                        # answers that are sent in one write
    cdef bint reading                           # within `data_received`
    cdef list unchecked                         # Arrivals held until the worker has checked which clients disconnected; None: no check
    cdef int read_frame(self, RequestHead* head, int64_t size, int64_t now_us) except -1
    cdef Arrival arrival_of(self, RequestHead* head, int64_t size)
    cdef int request_client_check(self) except -1
    cdef int serve(self, Arrival arrival) except -1
    cdef int drop_unchecked(self, int64_t connection_id) except -1
    cdef int serve_unchecked(self) except -1
    cdef int stop_watching(self, Arrival arrival) except -1
