"""The rates of clients in shared memory; see client_quotas.pxd [R 14].

A rate is the sum of windows, divided by the time since the oldest of them began, which counts as at least all windows but one. A window
is one word, its number and its amount, and is changed by compare and swap. Kafka's windows begin at a client's first record; these begin
at multiples of their length, so that processes need not agree on a beginning (docs/decisions/0032-quotas.md).
"""

import struct

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.math cimport floor
from libc.stdint cimport INT32_MAX, int64_t, uint16_t, uint32_t, uint64_t, uint8_t
from libc.string cimport memcpy

from odradek._ext.shm.atomics cimport (
    compare_swap_64,
    copy_words,
    fence,
    fence_acquire,
    fence_release,
    fetch_add_64,
    fetch_or_64,
    load_acquire_64,
    load_relaxed_64,
    store_relaxed_64,
    store_release_64,
)
from odradek._ext.shm.clock cimport monotonic_ms
from odradek._ext.shm.layout cimport region
from odradek._ext.shm.siphash cimport hash_bytes


cdef enum:
    AMOUNT_BITS = 40
    NUMBER_MASK = (1 << 24) - 1
    NEVER_USED = 0
    FREED = 1
    PROBES = 32                   # places at which a key may be
    ATTEMPTS = 4                  # to take a place while other processes take theirs
    ALL_BUCKETS = QUOTA_BUCKETS + QUOTA_OTHERS * QUOTA_KINDS
    LONGEST_WINDOW_MS = 1 << 30

cdef int64_t MOST_AMOUNT = (<int64_t>1 << AMOUNT_BITS) - 1
cdef int64_t STRIDE_OF_ALL = sizeof(QuotaBucket) + QUOTA_CELLS * sizeof(QuotaCell)


cdef int64_t quota_table_bytes() noexcept nogil:
    return QUOTA_TABLE_PAGE + (<int64_t>ALL_BUCKETS * STRIDE_OF_ALL + 4095) // 4096 * 4096


cdef QuotaTable* quota_table() noexcept nogil:
    return <QuotaTable*>(region().base + region().header.total_bytes - quota_table_bytes())


cdef inline QuotaBucket* bucket_at(QuotaTable* table, uint32_t index) noexcept nogil:
    return <QuotaBucket*>(<char*>table + QUOTA_TABLE_PAGE + <uint64_t>index * table.stride)


cdef inline QuotaCell* cells_of(QuotaBucket* bucket) noexcept nogil:
    return <QuotaCell*>(<char*>bucket + sizeof(QuotaBucket))


cdef inline uint64_t double_bits(double value) noexcept nogil:
    cdef uint64_t bits
    memcpy(&bits, &value, 8)
    return bits


# -- groups of buckets that were used -------------------------------------------------------------------------------------

cdef inline void note_used(QuotaTable* table, uint32_t index) noexcept nogil:
    cdef uint32_t group = index // QUOTA_BUCKETS_OF_GROUP
    cdef uint64_t bit = <uint64_t>1 << (group & 63)
    if not load_relaxed_64(&table.used_groups[group >> 6]) & bit:
        fetch_or_64(&table.used_groups[group >> 6], bit)


cdef uint32_t next_used(QuotaTable* table, uint32_t index) noexcept nogil:
    """Return the first bucket from `index` on that may have been used; ALL_BUCKETS if there is none. A page takes memory as
    soon as it is read: 8 MB for the whole table.
    """
    cdef uint32_t group
    while index < QUOTA_BUCKETS:
        group = index // QUOTA_BUCKETS_OF_GROUP
        if load_acquire_64(&table.used_groups[group >> 6]) >> (group & 63) & 1:
            return index
        index = (group + 1) * QUOTA_BUCKETS_OF_GROUP
    return index if load_relaxed_64(&table.overflows) else ALL_BUCKETS


# -- places ---------------------------------------------------------------------------------------------------------------

cdef inline uint32_t place_of(uint64_t key, uint32_t probe) noexcept nogil:
    """Double hashing: keys that share a place share no others, so runs of used places do not grow together."""
    return <uint32_t>((key >> 8) + probe * (key >> 40 | 1)) % QUOTA_BUCKETS


cdef inline bint is_idle(QuotaTable* table, QuotaBucket* bucket, int64_t now_ms) noexcept nogil:
    """Return whether all windows of the bucket are over: it can be freed without any effect on its client."""
    return now_ms - <int64_t>load_relaxed_64(&bucket.used_ms) > <int64_t>(table.windows + 2) * <int64_t>table.window_ms


cdef int64_t look_up(QuotaTable* table, uint64_t key) noexcept nogil:
    """Return the first place with the key, or -1."""
    cdef uint32_t probe, index
    cdef uint64_t found
    for probe in range(PROBES):
        index = place_of(key, probe)
        found = load_acquire_64(&bucket_at(table, index).key)
        if found == key:
            return index
        if found == NEVER_USED:
            return -1
    return -1


cdef int64_t victim_of(QuotaTable* table, uint64_t key, uint32_t owner, int64_t now_ms) noexcept nogil:
    """Return the place that a new key may take although it is used, or -1: one whose windows are over; else the one that was unused for
    the longest time among those of the address that has most of the places, if that is at least half of them and not this client's.
    """
    cdef uint32_t probe, other, index, count, most = 0, flooder = 0
    cdef int64_t oldest = -1, used, oldest_ms = now_ms + 1
    cdef QuotaBucket* bucket
    for probe in range(PROBES):
        index = place_of(key, probe)
        bucket = bucket_at(table, index)
        used = <int64_t>load_relaxed_64(&bucket.used_ms)
        if is_idle(table, bucket, now_ms) and used < oldest_ms:
            oldest, oldest_ms = index, used
    if oldest >= 0:
        return oldest
    for probe in range(PROBES):
        count = 0
        bucket = bucket_at(table, place_of(key, probe))
        for other in range(PROBES):
            count += bucket_at(table, place_of(key, other)).owner == bucket.owner
        if count > most:
            most, flooder = count, bucket.owner
    if most < PROBES // 2 or flooder == owner:
        return -1
    for probe in range(PROBES):
        index = place_of(key, probe)
        bucket = bucket_at(table, index)
        used = <int64_t>load_relaxed_64(&bucket.used_ms)
        if bucket.owner == flooder and used < oldest_ms:
            oldest, oldest_ms = index, used
    return oldest


cdef inline void clear_cells(QuotaTable* table, QuotaBucket* bucket) noexcept nogil:
    """A place was taken: what its former key used does not count for the new one."""
    cdef QuotaCell* cell = cells_of(bucket)
    cdef uint64_t i
    for i in range(table.windows + 1):
        store_relaxed_64(&cell[i].word, 0)
        store_relaxed_64(&cell[i].last_ms, 0)


cdef int64_t take_place(QuotaTable* table, uint64_t key, uint32_t owner, int64_t now_ms) noexcept nogil:
    """Return the place of a key, taken for it if it has none; -1 if no place is free.

    Two processes may take different places for one key at the same time, if a place is freed meanwhile. Each looks again after it took
    its place, so at least one of them sees both, and frees its own.
    """
    cdef uint32_t probe, index
    cdef int64_t free, second
    cdef uint64_t found
    cdef QuotaBucket* bucket
    for _ in range(ATTEMPTS):
        free = -1
        for probe in range(PROBES):
            index = place_of(key, probe)
            found = load_acquire_64(&bucket_at(table, index).key)
            if found == key:
                return index
            if found <= FREED and free < 0:
                free = index
            if found == NEVER_USED:
                break
        if free < 0:
            free = victim_of(table, key, owner, now_ms)
            if free < 0:
                return -1
            bucket = bucket_at(table, <uint32_t>free)
            found = load_acquire_64(&bucket.key)
            if found == key:
                return free
            if found > FREED:
                if not compare_swap_64(&bucket.key, found, FREED):
                    continue
                fetch_add_64(&table.evicted, 1)
        bucket = bucket_at(table, <uint32_t>free)
        found = load_acquire_64(&bucket.key)
        if found > FREED:
            if found == key:
                return free
            continue
        store_relaxed_64(&bucket.used_ms, <uint64_t>now_ms)      # before the key: no one may take it for unused
        note_used(table, <uint32_t>free)
        if not compare_swap_64(&bucket.key, found, key):
            continue
        fence()
        second = -1
        for probe in range(PROBES):
            index = place_of(key, probe)
            if <int64_t>index != free and load_acquire_64(&bucket_at(table, index).key) == key:
                second = index
        if second < 0:
            clear_cells(table, bucket)
            return free
        compare_swap_64(&bucket.key, key, FREED)
    return -1


cdef inline QuotaBucket* bucket_of(QuotaTable* table, QuotaUse* use, int64_t now_ms) noexcept nogil:
    """Return the bucket of a use. If it was freed meanwhile, the key gets a place again, without names."""
    cdef QuotaBucket* bucket = bucket_at(table, use.bucket)
    cdef int64_t at
    if load_relaxed_64(&bucket.key) != use.key:
        at = take_place(table, use.key, use.owner, now_ms)
        if at < 0:
            return NULL
        use.bucket = <uint32_t>at
        bucket = bucket_at(table, use.bucket)
    return bucket


cdef int quota_find(int kind, bytes user, bytes client, double limit, uint32_t owner, int64_t now_ms, QuotaUse* out) except -1:
    cdef QuotaTable* table = quota_table()
    cdef QuotaBucket* bucket
    cdef bytes names = struct.pack("<BBBI", kind, user is not None, client is not None, len(user or b"")) + (user or b"") + (client or b"")
    cdef uint64_t key = hash_bytes(region().header.hash_key, <const uint8_t*><const char*>names, len(names))
    cdef int64_t at
    if table.windows == 0:
        raise ValueError("the windows of client quotas are not set")
    key = max(key, <uint64_t>(1 << 32))                         # smaller ones are the states and the keys of `other`
    at = take_place(table, key, owner, now_ms)
    if at < 0:
        fetch_add_64(&table.overflows, 1)
        at = QUOTA_BUCKETS + kind * QUOTA_OTHERS + owner % QUOTA_OTHERS
        key = <uint64_t>(at + 2)
        user = client = b""
    out.key = key
    out.limit = limit
    out.bucket = <uint32_t>at
    out.owner = owner
    bucket = bucket_at(table, out.bucket)
    store_relaxed_64(&bucket.used_ms, <uint64_t>now_ms)
    store_relaxed_64(&bucket.limit_bits, double_bits(limit))
    if load_acquire_64(&bucket.named) != key:
        store_release_64(&bucket.named, 0)
        fence_release()                 # a reader that copies a new field sees that `named` has changed
        bucket.kind = kind
        bucket.owner = owner
        bucket.user_bytes = put_name(bucket.user, user)
        bucket.client_bytes = put_name(bucket.client, client)
        store_relaxed_64(&bucket.throttled_ms, 0)
        store_relaxed_64(&bucket.throttled_until_ms, 0)
        store_relaxed_64(&bucket.throttles, 0)
        store_relaxed_64(&bucket.total, 0)
        if at >= QUOTA_BUCKETS:
            store_relaxed_64(&bucket.key, key)
        store_release_64(&bucket.named, key)
    return 0


cdef uint16_t put_name(uint8_t* to, bytes name) noexcept:
    cdef Py_ssize_t length
    if name is None:
        return QUOTA_NO_NAME
    length = min(PyBytes_GET_SIZE(name), <Py_ssize_t>QUOTA_NAME_BYTES)
    memcpy(to, PyBytes_AS_STRING(name), length)
    return <uint16_t>length


# -- rates ----------------------------------------------------------------------------------------------------------------

cdef inline void add_to(QuotaTable* table, QuotaBucket* bucket, int64_t amount, int64_t now_ms) noexcept nogil:
    cdef uint64_t number = <uint64_t>now_ms // table.window_ms
    cdef QuotaCell* cell = cells_of(bucket) + number % (table.windows + 1)
    cdef uint64_t before, age
    cdef int64_t counted
    while True:
        before = load_relaxed_64(&cell.word)
        age = (number - (before >> AMOUNT_BITS)) & NUMBER_MASK
        counted = amount
        if age == 0:
            counted += <int64_t>(before & <uint64_t>MOST_AMOUNT)
        elif age > NUMBER_MASK // 2 and before \
                and now_ms - <int64_t>load_relaxed_64(&cell.last_ms) < (NUMBER_MASK // 2) * <int64_t>table.window_ms:
            return                      # this process stood still for longer than all windows last
        counted = max(<int64_t>0, min(counted, MOST_AMOUNT))
        if compare_swap_64(&cell.word, before, (number & NUMBER_MASK) << AMOUNT_BITS | <uint64_t>counted):
            break
    store_relaxed_64(&cell.last_ms, <uint64_t>now_ms)
    store_relaxed_64(&bucket.used_ms, <uint64_t>now_ms)
    fetch_add_64(&bucket.total, <uint64_t>amount)


cdef void measure(QuotaTable* table, QuotaBucket* bucket, int64_t now_ms, QuotaRate* rate) noexcept nogil:
    """Set the sum of the live windows, and the time that they count as. As in Kafka, a window lives while something was counted in it in
    the time of all windows. Divisions are slow, and each request pays for this: none is in the loop.
    """
    cdef int64_t window_ms = <int64_t>table.window_ms, windows = <int64_t>table.windows
    cdef int64_t number = now_ms // window_ms, oldest = number, dead_ms = now_ms - windows * window_ms, elapsed, sum_ = 0
    cdef int64_t least = max(number - windows, <int64_t>0)
    cdef QuotaCell* first = cells_of(bucket)
    cdef QuotaCell* cell = first + number % (windows + 1)
    cdef uint64_t word
    cdef int64_t n = number
    while n >= least:
        word = load_relaxed_64(&cell.word)
        if word >> AMOUNT_BITS == <uint64_t>n & NUMBER_MASK and <int64_t>load_relaxed_64(&cell.last_ms) > dead_ms:
            sum_ += <int64_t>(word & <uint64_t>MOST_AMOUNT)
            oldest = n
        n -= 1
        cell = first + windows if cell == first else cell - 1
    elapsed = now_ms - number * window_ms + max(number - oldest, windows - 1) * window_ms
    rate.total = <double>sum_
    rate.elapsed_ms = <double>max(elapsed, <int64_t>1)


cdef inline bint is_surely_below(QuotaTable* table, QuotaBucket* bucket, double limit) noexcept nogil:
    """Return whether even the sum of all windows, the dead ones included, is within the limit for the shortest time that they can count as:
    the usual case, for a fifth of the cost of `measure`.
    """
    cdef QuotaCell* cell = cells_of(bucket)
    cdef QuotaCell* end = cell + table.windows + 1
    cdef uint64_t sum_ = 0
    while cell < end:
        sum_ += load_relaxed_64(&cell.word) & <uint64_t>MOST_AMOUNT
        cell += 1
    return <double>sum_ * 1000 <= limit * <double>((table.windows - 1) * table.window_ms)


cdef inline bint is_above(const QuotaRate* rate, double limit) noexcept nogil:
    return rate.total / (rate.elapsed_ms / 1000) > limit


cdef int64_t quota_wait_at(QuotaUse* use, const QuotaRate* rate, int64_t less, bint bounded) noexcept nogil:
    cdef double per_second = (rate.total - <double>less) / (rate.elapsed_ms / 1000), wait
    if per_second <= use.limit:
        return 0
    wait = floor((per_second - use.limit) / use.limit * rate.elapsed_ms + 0.5)
    if bounded:
        wait = min(wait, <double>quota_table().window_ms)
    return <int64_t>min(wait, <double>INT32_MAX)


cdef void quota_add(QuotaUse* use, int64_t amount, int64_t now_ms) noexcept nogil:
    cdef QuotaTable* table = quota_table()
    cdef QuotaBucket* bucket = bucket_of(table, use, now_ms)
    if bucket != NULL:
        add_to(table, bucket, amount, now_ms)


cdef int64_t quota_wait_ms(QuotaUse* use, int64_t now_ms, bint bounded) noexcept nogil:
    cdef QuotaTable* table = quota_table()
    cdef QuotaBucket* bucket = bucket_of(table, use, now_ms)
    cdef QuotaRate rate
    if bucket == NULL:
        return 0
    measure(table, bucket, now_ms, &rate)
    return quota_wait_at(use, &rate, 0, bounded)


cdef bint quota_exceeded_at_once(QuotaUse* use, int64_t amount, int64_t now_ms) noexcept nogil:
    cdef QuotaTable* table = quota_table()
    cdef QuotaBucket* bucket = bucket_of(table, use, now_ms)
    cdef QuotaRate rate
    if bucket == NULL:
        return False
    measure(table, bucket, now_ms, &rate)
    return rate.total <= <double>amount and <double>amount * 1000 > use.limit * <double>((table.windows + 1) * table.window_ms)


cdef void quota_throttled(QuotaUse* use, int kind, int64_t wait_ms, int64_t now_ms) noexcept nogil:
    cdef QuotaTable* table = quota_table()
    cdef QuotaBucket* bucket = bucket_of(table, use, now_ms)
    fetch_add_64(&table.throttles[kind], 1)
    if bucket != NULL:
        fetch_add_64(&bucket.throttles, 1)
        fetch_add_64(&bucket.throttled_ms, <uint64_t>wait_ms)
        store_relaxed_64(&bucket.throttled_until_ms,
                         max(load_relaxed_64(&bucket.throttled_until_ms), <uint64_t>(now_ms + wait_ms)))


cdef int64_t quota_charge(QuotaUse* use, int kind, int64_t amount, int64_t now_ms) noexcept nogil:
    cdef QuotaRate rate
    cdef int64_t wait_ms = 0
    if quota_count(use, amount, now_ms, &rate):
        wait_ms = quota_wait_at(use, &rate, 0, kind == QUOTA_REQUEST)
    if wait_ms:
        quota_throttled(use, kind, wait_ms, now_ms)
    return wait_ms


cdef bint quota_count(QuotaUse* use, int64_t amount, int64_t now_ms, QuotaRate* rate) noexcept nogil:
    cdef QuotaTable* table
    cdef QuotaBucket* bucket
    rate.total = 0
    rate.elapsed_ms = 1
    if use.key == 0:
        return False
    table = quota_table()
    bucket = bucket_of(table, use, now_ms)
    if bucket == NULL:
        return False
    add_to(table, bucket, amount, now_ms)
    if is_surely_below(table, bucket, use.limit):
        return False
    measure(table, bucket, now_ms, rate)
    return is_above(rate, use.limit)


cdef int64_t quota_span_ms() noexcept nogil:
    cdef QuotaTable* table = quota_table()
    return <int64_t>(max(table.windows, <uint64_t>2) - 1) * <int64_t>table.window_ms


cdef double quota_burst(QuotaUse* use) noexcept nogil:
    cdef QuotaTable* table = quota_table()
    return use.limit * <double>(max(table.windows, <uint64_t>1) - 1) * <double>table.window_ms / 1000


# -- for Python -----------------------------------------------------------------------------------------------------------

def set_windows(windows, window_seconds) -> None:
    """Set the windows of time over which rates are measured. More windows than the shared memory has are merged into longer ones that
    cover the same time. Called before the first fork.

    :param windows: quota.window.num. :param window_seconds: quota.window.size.seconds.
    """
    cdef QuotaTable* table = quota_table()
    merged = min(windows, MOST_QUOTA_WINDOWS)
    table.window_ms = min(-(-window_seconds * 1000 * windows // merged), LONGEST_WINDOW_MS)
    table.stride = sizeof(QuotaBucket) + (<uint64_t>merged + 1) * sizeof(QuotaCell)
    table.windows = merged


def free_unused(int64_t unused_ms, now_ms=None) -> int:
    """Free the buckets that were unused for this time. Returns their number."""
    cdef QuotaTable* table = quota_table()
    cdef QuotaBucket* bucket
    cdef int64_t now = monotonic_ms() if now_ms is None else now_ms
    cdef uint64_t key
    cdef uint32_t index = next_used(table, 0)
    freed = 0
    while index < QUOTA_BUCKETS:
        bucket = bucket_at(table, index)
        key = load_acquire_64(&bucket.key)
        if key > FREED and now - <int64_t>load_relaxed_64(&bucket.used_ms) > unused_ms and is_idle(table, bucket, now):
            if compare_swap_64(&bucket.key, key, FREED):
                fetch_add_64(&table.expired, 1)
                freed += 1
        index = next_used(table, index + 1)
    return freed


def counters() -> dict[str, Any]:
    """Return {name: count}: buckets in use, overflows, evicted and expired buckets, and throttled requests by kind."""
    cdef QuotaTable* table = quota_table()
    cdef uint32_t index = next_used(table, 0)
    used = 0
    while index < QUOTA_BUCKETS:
        used += load_relaxed_64(&bucket_at(table, index).key) > FREED
        index = next_used(table, index + 1)
    return {"used": used, "room": QUOTA_BUCKETS, "overflows": table.overflows, "evicted": table.evicted, "expired": table.expired,
            "throttles": tuple([table.throttles[i] for i in range(QUOTA_KINDS)]), "connections": table.throttles[QUOTA_KINDS]}


def first_overflow() -> bool:
    """Return whether the table was full for the first time. Only one process, once, receives True."""
    cdef QuotaTable* table = quota_table()
    return table.overflows > 0 and compare_swap_64(&table.overflow_logged, 0, 1)


def count_throttled_connection() -> None:
    """Count a new connection that is not served because its address creates too many. Without shared memory nothing is counted."""
    if region().header != NULL:
        fetch_add_64(&quota_table().throttles[QUOTA_KINDS], 1)


def buckets(now_ms=None) -> list[tuple[int, bytes | None, bytes | None, float, float, int, int, int, int]]:
    """Return the buckets in use: [(kind, user, client id, limit, rate, throttles, sum of throttle times in ms, remaining ms of the
    longest throttle time, total)]. Names are bytes, cut at 120; None: the level does not tell them apart. Limits and rates in units per
    second. A name of a bucket `other` is empty.
    """
    cdef QuotaTable* table = quota_table()
    cdef QuotaBucket* bucket
    cdef QuotaBucket copy
    cdef int64_t now = monotonic_ms() if now_ms is None else now_ms
    cdef uint64_t key
    cdef QuotaRate rate
    cdef double limit
    cdef uint32_t index = 0, found
    rows = []
    while (found := next_used(table, index)) < ALL_BUCKETS:
        index = found + 1
        bucket = bucket_at(table, found)
        key = load_acquire_64(&bucket.key)
        if key <= FREED:
            continue
        copy_words(&copy, bucket, sizeof(QuotaBucket))
        fence_acquire()
        if copy.named != key or load_relaxed_64(&bucket.named) != key or load_relaxed_64(&bucket.key) != key:
            continue
        measure(table, bucket, now, &rate)
        memcpy(&limit, &copy.limit_bits, 8)
        user = None if copy.user_bytes == QUOTA_NO_NAME else copy.user[:min(copy.user_bytes, <uint16_t>QUOTA_NAME_BYTES)]
        client = None if copy.client_bytes == QUOTA_NO_NAME else copy.client[:min(copy.client_bytes, <uint16_t>QUOTA_NAME_BYTES)]
        rows.append((copy.kind, user, client, limit, rate.total * 1000 / rate.elapsed_ms, copy.throttles, copy.throttled_ms,
                     max(0, <int64_t>copy.throttled_until_ms - now), copy.total))
    return rows
