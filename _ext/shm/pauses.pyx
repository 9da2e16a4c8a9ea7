"""The words about pauses of this broker; see pauses.pxd [R 12].

`begin` and `beat` are called by the supervisor, `session_beat`, `set_session_timeout` and `confirm` by the coordinator. Times are in ms of
`clock_ms`.
"""

from libc.stdint cimport int64_t
from posix.time cimport clock_gettime, timespec

from odradek._ext.shm.atomics cimport load_acquire_i64, store_relaxed_i64, store_release_i64
from odradek._ext.shm.layout cimport Header, region


cdef extern from "<time.h>" nogil:
    int CLOCK_BOOTTIME


cdef enum:
    BEATS = 4                     # beats in the longest time that is no pause
    LONGEST_BEAT_MS = 1000


cdef int64_t pause_clock_ms() noexcept nogil:
    cdef timespec t
    clock_gettime(CLOCK_BOOTTIME, &t)
    return <int64_t>t.tv_sec * 1000 + t.tv_nsec // 1000000


cdef bint unconfirmed_pause(Header* header) noexcept nogil:
    """Return whether a pause of the broker, or of its coordinator, was found that is not confirmed yet."""
    cdef int64_t confirmed = load_acquire_i64(&header.confirmed_ms)
    return confirmed < load_acquire_i64(&header.paused_ms) or confirmed < load_acquire_i64(&header.session_paused_ms)


cdef bint in_doubt() noexcept nogil:
    """Return whether this broker may have been deposed during a pause that ended before this call: found, or not found yet.

    The beats are read before the clock, and all before the pauses: a pause after one of these reads can only lead to the result True.
    Roles that are read after this call are those of a moment after the confirmation [R 12.3].
    """
    cdef Header* header = region().header
    cdef int64_t limit = header.pause_limit_ms
    cdef int64_t beat
    if limit == 0:
        return False
    beat = min(load_acquire_i64(&header.beat_ms), load_acquire_i64(&header.session_beat_ms))
    return pause_clock_ms() - beat > limit or unconfirmed_pause(header)


def clock_ms() -> int:
    """The time in ms since the machine was booted, with the time in which it was suspended."""
    return pause_clock_ms()


def set_session_timeout(int64_t timeout_ms) -> None:
    """Take a time without a beat of more than half the session timeout for a pause.

    A client of ZooKeeper is silent for a third of the session timeout at most. So a session does not end during a shorter pause, if the
    connection existed when the pause began.

    :param timeout_ms: as granted by ZooKeeper; as configured before it has granted one.
    """
    store_relaxed_i64(&region().header.pause_limit_ms, max(timeout_ms // 2, <int64_t>1))


def begin(int64_t timeout_ms, int64_t now_ms) -> None:
    """Begin to look for pauses. Called once, before the first child starts. :param timeout_ms: see `set_session_timeout`."""
    store_release_i64(&region().header.beat_ms, now_ms)
    store_release_i64(&region().header.session_beat_ms, now_ms)
    set_session_timeout(timeout_ms)


def interval_s() -> float:
    """The time in seconds between two beats."""
    return min(<int64_t>LONGEST_BEAT_MS, region().header.pause_limit_ms // BEATS) / 1000.0


def beat(int64_t now_ms) -> int:
    """Note that the supervisor runs, and a pause that has just ended. Returns the length of the pause in ms; 0: there was none."""
    cdef Header* header = region().header
    cdef int64_t silent = now_ms - header.beat_ms
    cdef bint paused = silent > header.pause_limit_ms
    if paused:      # before the beat: a reader that sees the beat must see the pause
        store_release_i64(&header.paused_ms, now_ms)
    store_release_i64(&header.beat_ms, now_ms)
    return silent if paused else 0


def session_beat(int64_t now_ms) -> int:
    """Note that the coordinator keeps the session, or knows that it has no connection; and a pause of the coordinator that has just
    ended. Returns the length of the pause in ms; 0: there was none.

    The coordinator's threads call this with the GIL, so that no two of them are in it at the same time.
    """
    cdef Header* header = region().header
    cdef int64_t silent = now_ms - header.session_beat_ms
    cdef bint paused = silent > header.pause_limit_ms > 0
    if paused:      # before the beat: a reader that sees the beat must see the pause
        store_release_i64(&header.session_paused_ms, now_ms)
    store_release_i64(&header.session_beat_ms, now_ms)
    return silent if paused else 0


def unconfirmed() -> bool:
    """Whether there was a pause after which nobody has confirmed yet that this broker may lead."""
    return unconfirmed_pause(region().header)


def confirm(int64_t began_ms) -> None:
    """Note that the broker was registered, or led nothing, at some moment after `began_ms`."""
    cdef Header* header = region().header
    if began_ms > load_acquire_i64(&header.confirmed_ms):
        store_release_i64(&header.confirmed_ms, began_ms)
