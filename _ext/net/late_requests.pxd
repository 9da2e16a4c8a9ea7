"""Requests that waited too long before they were read, and whose client has ended the connection meanwhile: not executed.

The rule and its reasons: ``docs/decisions/0021-late-requests.md``. All times are CLOCK_MONOTONIC milliseconds.
"""

from libc.stdint cimport int64_t, uint8_t


cdef enum:
    LATE_MS = 1000                # so long a request may wait whose client has ended the connection
    STANDSTILL_MS = 1000          # a loop whose timer is due every 500 ms and did not fire for so long has stood still


cdef struct Standstill:           # of one loop
    int64_t beat_ms               # when its timer fired last; 0: it has none, and no standstill is noticed
    int64_t resumed_ms            # when it went on after the last standstill; 0: there was none


cdef inline void look_at_clock(Standstill* s, int64_t now_ms) noexcept nogil:
    """At the beginning of a turn, before anything is executed in it."""
    if s.beat_ms and now_ms - s.beat_ms >= STANDSTILL_MS:
        s.resumed_ms = s.beat_ms = now_ms


cdef inline void beat(Standstill* s, int64_t now_ms) noexcept nogil:
    """The loop's timer fired."""
    look_at_clock(s, now_ms)
    s.beat_ms = now_ms


cdef inline bint waited_too_long(Standstill* s, int64_t since_ms, int64_t now_ms) noexcept nogil:
    return now_ms - since_ms >= LATE_MS or since_ms <= s.resumed_ms


# How long ago the last bytes of a TCP connection arrived, read or not; -1 if the kernel cannot tell (no TCP socket).
cdef int64_t last_arrival_age_ms(int fd) noexcept nogil
# Whether the other side has ended the connection, or its own direction of it.
cdef bint ended_by_peer(int fd) noexcept nogil
# Whether clients send this request, given with its header, and close without waiting for the response.
cdef bint is_unawaited(const uint8_t* request, int64_t size) noexcept nogil
