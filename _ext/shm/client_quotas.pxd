"""The rates of clients: a table of buckets in shared memory, and what a request counts in it (KIP-13, KIP-124) [R 14].

`now_ms` is always the monotonic clock. Amounts are bytes, or microseconds of a process's time.
"""

from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t, uint8_t

from odradek._ext.shm.atomics cimport shared_u64

cpdef enum QuotaKind:
    QUOTA_PRODUCE = 0             # bytes of Produce requests
    QUOTA_FETCH = 1               # bytes of Fetch responses
    QUOTA_REQUEST = 2             # us of time in which requests were executed

cdef enum:
    QUOTA_KINDS = 3
    QUOTA_BUCKETS = 16384         # of the table, without those of `other`
    QUOTA_OTHERS = 64             # buckets `other` of each kind; a client's address decides which one it uses
    QUOTA_NAME_BYTES = 120        # bytes of a name that are kept for metrics; buckets are told apart by a hash of the whole names
    MOST_QUOTA_WINDOWS = 60
    QUOTA_CELLS = MOST_QUOTA_WINDOWS + 1
    QUOTA_BUCKETS_OF_GROUP = 64   # one bit says whether any of them was ever used
    QUOTA_GROUP_WORDS = 4         # a bit for each group


cdef struct QuotaCell:            # one window of time
    shared_u64 word               # its number modulo 2**24, then 40 bits of amount
    shared_u64 last_ms            # when something was last counted


cdef struct QuotaBucket:          # `cells` cells follow
    shared_u64 key                # keyed hash of kind and names; 0: never used; 1: freed
    shared_u64 named              # equal to `key` once the fields below belong to it
    shared_u64 used_ms
    shared_u64 limit_bits         # the limit as a double, units per second, as of the last look-up
    shared_u64 throttled_ms       # sum of all throttle times
    shared_u64 throttled_until_ms  # the end of the longest throttle time
    shared_u64 throttles          # how many requests were throttled
    shared_u64 total              # counted since the bucket was taken
    uint32_t kind
    uint32_t owner                # of the client that made it necessary (owners.pxd)
    uint16_t user_bytes           # QUOTA_NO_NAME: the level does not tell users apart
    uint16_t client_bytes         # QUOTA_NO_NAME: the level does not tell client ids apart
    uint32_t spare
    uint8_t[QUOTA_NAME_BYTES] user
    uint8_t[QUOTA_NAME_BYTES] client


cdef struct QuotaTable:           # the last part of the mapping; the buckets follow in the next page
    uint64_t windows              # number of windows of a rate; 0: not set
    uint64_t window_ms
    uint64_t stride               # bytes of a bucket with its cells
    shared_u64 overflows          # how often a bucket `other` was used because the table was full
    shared_u64 evicted            # how many buckets were freed because another needed their place
    shared_u64 expired            # how many buckets were freed because they were unused for long
    shared_u64 overflow_logged
    shared_u64[16] throttles      # how many requests were throttled, by kind
    shared_u64[QUOTA_GROUP_WORDS] used_groups  # a bit for each group of buckets [R 14.7]


cdef enum:
    QUOTA_NO_NAME = 0xFFFF
    QUOTA_TABLE_PAGE = 4096


cdef struct QuotaUse:             # where a request counts
    uint64_t key                  # 0: no limit applies
    double limit                  # units per second
    uint32_t bucket
    uint32_t owner


cdef struct QuotaRate:            # what is in the windows of a bucket, after something was counted
    double total
    double elapsed_ms             # the time that the windows count as


cdef int64_t quota_table_bytes() noexcept nogil
cdef QuotaTable* quota_table() noexcept nogil
# Counts an amount, negative to take it back.
cdef void quota_add(QuotaUse* use, int64_t amount, int64_t now_ms) noexcept nogil
# Returns how long the client must wait until its rate is at the limit, in ms; 0: its rate is not above it. Kafka's formula.
# `bounded`: at most a window.
cdef int64_t quota_wait_ms(QuotaUse* use, int64_t now_ms, bint bounded) noexcept nogil
# Returns whether nothing but `amount` was counted in the windows, although all of them together do not permit it.
cdef bint quota_exceeded_at_once(QuotaUse* use, int64_t amount, int64_t now_ms) noexcept nogil
# Counts, for metrics, that a request was throttled.
cdef void quota_throttled(QuotaUse* use, int kind, int64_t wait_ms, int64_t now_ms) noexcept nogil
# Counts an amount and returns the throttle time, which is counted, too. Without a quota (key 0) it does nothing.
cdef int64_t quota_charge(QuotaUse* use, int kind, int64_t amount, int64_t now_ms) noexcept nogil
# Counts the sum of several requests' amounts. Returns whether the rate with them is above the limit: at least the last of the requests is
# throttled. Sets the rate; to zero if it is not above the limit for certain. Without a quota (key 0) it only sets the rate to zero.
cdef bint quota_count(QuotaUse* use, int64_t amount, int64_t now_ms, QuotaRate* rate) noexcept nogil
# Returns the throttle time at a rate, in ms, as if `less` of the counted amount were not counted yet.
cdef int64_t quota_wait_at(QuotaUse* use, const QuotaRate* rate, int64_t less, bint bounded) noexcept nogil
# Finds or makes the bucket of a user and a client id (None: the level does not tell them apart).
cdef int quota_find(int kind, bytes user, bytes client, double limit, uint32_t owner, int64_t now_ms, QuotaUse* out) except -1
# Returns the time of all windows but one, in ms.
cdef int64_t quota_span_ms() noexcept nogil
# Returns the most bytes that can be counted without a throttle if nothing was counted before.
cdef double quota_burst(QuotaUse* use) noexcept nogil
