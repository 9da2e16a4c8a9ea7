"""The clocks of the machine, in ms. Each function is inline in the module that uses it."""

from libc.stdint cimport int64_t


cdef extern from *:
    """
    #include <stdint.h>
    #include <time.h>

    static inline int64_t ms_of_clock(clockid_t clock) {
        struct timespec t;
        clock_gettime(clock, &t);
        return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
    }

    static inline int64_t now_ms(void) { return ms_of_clock(CLOCK_REALTIME); }
    static inline int64_t monotonic_ms(void) { return ms_of_clock(CLOCK_MONOTONIC); }
    static inline int64_t coarse_ms(void) { return ms_of_clock(CLOCK_MONOTONIC_COARSE); }
    """
    int64_t now_ms() noexcept nogil         # wall clock
    int64_t monotonic_ms() noexcept nogil
    int64_t coarse_ms() noexcept nogil      # like monotonic_ms, up to a few ms late, for a tenth of the cost
