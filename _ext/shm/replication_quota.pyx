"""The rates of throttled replication of this broker, and their limits; see replication_quota.pxd.

A rate is the sum of windows, divided by the time since they began, but at least by the length of one window. A window is one word, its
number and its bytes, and is changed by compare and swap: a process that dies leaves at most bytes that it counted and did not send,
which are forgotten with their window.
"""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from odradek._ext.shm.atomics cimport compare_swap_64, fetch_add_64, load_relaxed_64, shared_u64, store_relaxed_64
from odradek._ext.shm.clock cimport coarse_ms, monotonic_ms
from odradek._ext.shm.layout cimport QUOTA_WINDOWS, QuotaLimit, ReplicationQuota, region
from odradek._ext.shm.partition_view cimport MAX_IN_SYNC
from odradek._ext.shm.slot cimport Slot


cdef enum:
    BYTES_BITS = 40
    NUMBER_MASK = (1 << 24) - 1
    MOST_WINDOWS = QUOTA_WINDOWS - 4
    ROOM_PARTS = 10               # the room is at least the limit of a second, divided by this
    SHORTEST_WAIT_MS = 10
    LONGEST_WAIT_MS = 1000
    LONGEST_WINDOW_MS = 1 << 30

cdef int64_t MOST_BYTES = (<int64_t>1 << BYTES_BITS) - 1


cdef bint quota_limited(int side) noexcept nogil:
    return region().quota_limits[side].limited


cdef inline int64_t bytes_of(const ReplicationQuota* quota, int64_t number) noexcept nogil:
    """Return the bytes of a window; 0 if its word belongs to an older one."""
    cdef uint64_t word = load_relaxed_64(&quota.windows[number % QUOTA_WINDOWS])
    return <int64_t>(word & <uint64_t>MOST_BYTES) if word >> BYTES_BITS == <uint64_t>number & NUMBER_MASK else 0


cdef inline int64_t span_since(const ReplicationQuota* quota, const QuotaLimit* limit, int64_t number, int64_t saved_ms,
                               int64_t now_ms) noexcept nogil:
    """Return the ms from the beginning of a window, or the first bytes if they were later, until now; at least one window.

    :param saved_ms: time before the window in which less was sent, which may be made up for. There is none before the first bytes and
    before the last change of the limit; -1: the limit does not matter.
    """
    cdef int64_t began = <int64_t>load_relaxed_64(&quota.began_ms), start = number * limit.window_ms
    if saved_ms >= 0:
        began = max(began, limit.since_ms)
    else:
        saved_ms = 0
    return max(now_ms - max(start - saved_ms, began), limit.window_ms)


cdef int64_t live_bytes(const ReplicationQuota* quota, const QuotaLimit* limit, int64_t now_ms) noexcept nogil:
    cdef int64_t number = now_ms // limit.window_ms, total = 0
    cdef int i
    for i in range(<int>min(limit.windows, number + 1)):
        total += bytes_of(quota, number - i)
    return total


cdef inline double least_room(const QuotaLimit* limit) noexcept nogil:
    return <double>limit.rate / ROOM_PARTS


cdef double exact_room(int side, int64_t now_ms) noexcept nogil:
    """Return the bytes that the limit permits now; negative after an overrun.

    The limit applies to the last window, to the last two, and so on up to all live ones, each with half a window more. If it applied
    only to all, then the time in which nothing was sent, for example after an overrun, would be made up for in one burst. Windows before
    the last change of the limit do not count.
    """
    cdef const ReplicationQuota* quota = &region().header.quotas[side]
    cdef const QuotaLimit* limit = &region().quota_limits[side]
    cdef int64_t number = now_ms // limit.window_ms, saved_ms = limit.window_ms // 2, total = 0
    cdef double room = <double>limit.rate * (limit.window_ms + saved_ms) / 1000
    cdef int i
    for i in range(<int>min(limit.windows, number - limit.since_ms // limit.window_ms + 1)):
        total += bytes_of(quota, number - i)
        room = min(room, <double>limit.rate * span_since(quota, limit, number - i, saved_ms, now_ms) / 1000 - total)
    return room if total else <double>limit.rate * limit.window_ms / 1000


cdef int64_t quota_room(int side, int64_t now_ms) noexcept nogil:
    cdef const QuotaLimit* limit = &region().quota_limits[side]
    cdef double room = exact_room(side, now_ms)
    if room < least_room(limit):
        return 0
    return max(<int64_t>1, <int64_t>min(room / limit.sharers, <double>MOST_BYTES))


cdef int64_t quota_wait_ms(int side, int64_t now_ms) noexcept nogil:
    cdef const QuotaLimit* limit = &region().quota_limits[side]
    cdef double missing = least_room(limit) - exact_room(side, now_ms)
    if limit.rate == 0:
        return LONGEST_WAIT_MS
    return max(<int64_t>SHORTEST_WAIT_MS, <int64_t>min(missing * 1000 / limit.rate + 1, <double>LONGEST_WAIT_MS))


cdef void quota_record(int side, int64_t bytes_, int64_t now_ms) noexcept nogil:
    cdef ReplicationQuota* quota = &region().header.quotas[side]
    cdef const QuotaLimit* limit = &region().quota_limits[side]
    cdef uint64_t number = <uint64_t>(now_ms // limit.window_ms)
    cdef shared_u64* window = &quota.windows[number % QUOTA_WINDOWS]
    cdef uint64_t before, counted
    if bytes_ <= 0:
        return
    if live_bytes(quota, limit, now_ms) == 0:
        store_relaxed_64(&quota.began_ms, <uint64_t>now_ms)
    fetch_add_64(&quota.total_bytes, <uint64_t>bytes_)
    while True:
        before = load_relaxed_64(window)
        counted = <uint64_t>bytes_
        if before >> BYTES_BITS == number & NUMBER_MASK:
            counted += before & <uint64_t>MOST_BYTES
        counted = min(counted, <uint64_t>MOST_BYTES)
        if compare_swap_64(window, before, (number & NUMBER_MASK) << BYTES_BITS | counted):
            return


cdef bint is_in_sync(Slot* slot, int32_t broker_id) noexcept nogil:
    cdef int i
    for i in range(min(slot.in_sync_count, <int32_t>MAX_IN_SYNC)):
        if slot.in_sync[i] == broker_id:
            return True
    return False


cdef bint is_adding(Slot* slot, int32_t broker_id) noexcept nogil:
    cdef uint32_t adding = slot.adding
    cdef int i
    if adding:
        for i in range(min(slot.replica_count, <int32_t>MAX_IN_SYNC)):
            if adding >> i & 1 and slot.replicas[i] == broker_id:
                return True
    return False


cdef void count_reassigned(int side, int64_t bytes_) noexcept nogil:
    if bytes_ > 0:
        fetch_add_64(&region().header.quotas[side].reassigned_bytes, <uint64_t>bytes_)


# -- for Python ---------------------------------------------------------------------------------------------------------

def set_windows(windows, window_seconds) -> None:
    """Set the windows of time over which the rates are measured. More windows than the shared memory has are merged into longer ones that
    cover the same time. Called before the first fork; every process inherits the setting.

    :param windows: replication.quota.window.num. :param window_seconds: replication.quota.window.size.seconds.
    """
    cdef int side
    merged = min(windows, MOST_WINDOWS)
    window_ms = min(-(-window_seconds * 1000 * windows // merged), LONGEST_WINDOW_MS)
    for side in range(QUOTA_SIDES):
        region().quota_limits[side].windows = merged
        region().quota_limits[side].window_ms = window_ms


def set_limit(int side, rate, int64_t sharers=1, now_ms=None) -> None:
    """Set the limit of a rate in this process; `set_windows` must have been called.

    :param side: a QuotaSide. :param rate: bytes per second; None: no limit. :param now_ms: the monotonic clock.
    :param sharers: number of processes or threads that may send or fetch at the same time: each gets its share of the room, because all of
    them may find the same room.
    """
    cdef QuotaLimit* limit
    if not 0 <= side < QUOTA_SIDES:
        raise ValueError(f"{side} is no quota of replication")
    limit = &region().quota_limits[side]
    if limit.window_ms == 0:
        raise ValueError("the windows of the quotas are not set")
    if rate is not None:
        if not limit.limited or limit.rate != rate:
            limit.since_ms = coarse_ms() if now_ms is None else now_ms     # the clock of fetches, whose time can be behind monotonic_ms
        limit.rate = rate
    limit.sharers = max(sharers, <int64_t>1)
    limit.limited = rate is not None


def byte_rate(int side, now_ms=None) -> float:
    """Return the bytes per second that this broker sent to, or fetched as, throttled replicas; 0.0 without a cluster.

    :param side: a QuotaSide. :param now_ms: the monotonic clock.
    """
    cdef const ReplicationQuota* quota
    cdef const QuotaLimit* limit
    cdef int64_t now = monotonic_ms() if now_ms is None else now_ms
    if not 0 <= side < QUOTA_SIDES:
        raise ValueError(f"{side} is no quota of replication")
    quota, limit = &region().header.quotas[side], &region().quota_limits[side]
    if limit.window_ms == 0:
        return 0.0
    return live_bytes(quota, limit, now) * 1000.0 / span_since(quota, limit, now // limit.window_ms - limit.windows + 1, -1, now)


def total_bytes(int side) -> int:
    """Return the bytes that `byte_rate` measures, since the broker started."""
    if not 0 <= side < QUOTA_SIDES:
        raise ValueError(f"{side} is no quota of replication")
    return load_relaxed_64(&region().header.quotas[side].total_bytes)


def reassigned_bytes(int side) -> int:
    """Return the bytes of records that this broker sent to, or fetched as, replicas that a reassignment adds, since it started."""
    if not 0 <= side < QUOTA_SIDES:
        raise ValueError(f"{side} is no quota of replication")
    return load_relaxed_64(&region().header.quotas[side].reassigned_bytes)
