"""Late requests: they waited too long before they were read, and their client has ended the connection meanwhile. They are not executed.

The rule and its reasons: ``docs/decisions/0021-late-requests.md``. All times are CLOCK_MONOTONIC milliseconds.
"""

from libc.stdint cimport int64_t, uint8_t


cdef enum:
    LATE_MS = 1000                # a request that waited this long is late if its client has ended the connection
    STANDSTILL_MS = 1000          # the loop stood still if its timer, due every 500 ms, did not fire for this long


cdef struct Standstill:           # standstills of one event loop
    int64_t beat_ms               # when its timer last fired; 0: the loop has no timer, and standstills are not noticed
    int64_t resumed_ms            # end of the last standstill; 0: none so far


cdef inline void look_at_clock(Standstill* s, int64_t now_ms) noexcept nogil:
    """Notice a standstill. Must be called at the start of a turn, before the turn executes any request."""
    if s.beat_ms and now_ms - s.beat_ms >= STANDSTILL_MS:
        s.resumed_ms = s.beat_ms = now_ms


cdef inline void beat(Standstill* s, int64_t now_ms) noexcept nogil:
    """Note that the loop's timer fired."""
    look_at_clock(s, now_ms)
    s.beat_ms = now_ms


cdef inline bint waited_too_long(Standstill* s, int64_t since_ms, int64_t now_ms) noexcept nogil:
    return now_ms - since_ms >= LATE_MS or since_ms <= s.resumed_ms


# Returns how long ago the last bytes of a TCP connection arrived, read or not; -1 if the kernel does not know (not a TCP socket).
cdef int64_t last_arrival_age_ms(int fd) noexcept nogil
# Returns whether the other side has closed the connection, or its own direction of it.
cdef bint ended_by_peer(int fd) noexcept nogil
# Returns whether clients send this request (passed with its header) and close the connection without awaiting the response.
cdef bint is_unawaited(const uint8_t* request, int64_t size) noexcept nogil
