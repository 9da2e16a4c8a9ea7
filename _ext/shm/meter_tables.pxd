"""The tables of this process's meter page: indexes in private memory, taking a page over, retiring idle entries."""

from libc.stdint cimport int64_t, uint32_t, uint64_t, uint8_t

from odradek._ext.shm.atomics cimport fence_release, load_relaxed_64, store_relaxed_64, store_release_64
from odradek._ext.shm.layout cimport Region
from odradek._ext.shm.meter_layout cimport MeterPage


cdef inline void begin_change(MeterPage* page) noexcept nogil:
    """Call before published entries are withdrawn: until `end_change`, readers do not use what they read. `changes` is odd already if
    the process died during the last change."""
    cdef uint64_t changes = load_relaxed_64(&page.changes)
    if changes & 1 == 0:
        store_relaxed_64(&page.changes, changes + 1)
    fence_release()


cdef inline void end_change(MeterPage* page) noexcept nogil:
    store_release_64(&page.changes, load_relaxed_64(&page.changes) + 1)


cdef struct Index:                # open addressing; a place holds an entry's number + 1
    uint32_t* places
    uint32_t mask


cdef struct MeterState:           # of this process; not shared
    Region* region
    MeterPage* page
    MeterPage* private_page
    Index clients
    Index topics
    Index usage
    Index positions
    uint32_t live_clients
    uint32_t live_topics
    uint32_t live_usage
    uint32_t live_positions
    uint32_t free_client          # no entry before it is free
    uint32_t free_topic
    uint32_t free_usage
    uint32_t free_position
    int64_t now_ms
    int64_t fixed_now_ms          # clock for tests; 0: none
    int64_t idle_ms
    int64_t next_retire_ms
    bint indexed                  # the indexes are not empty
    uint64_t[2] hash_key          # of the index of clients: a client that does not know it cannot choose ids that collide
    uint32_t owner                # address of the connection for which a client is looked up (owners.pxd); 0: not known
    uint32_t* owners              # by client: the address that created its entry
    uint32_t* clients_of          # by address: the number of its clients
    int64_t next_eviction_ms


cdef MeterState* meter_state() noexcept nogil


cdef inline uint32_t place_of(uint64_t key, uint32_t mask) noexcept nogil:
    return <uint32_t>((key * <uint64_t>0x9E3779B97F4A7C15) >> 40) & mask


cdef uint64_t hash_bytes(uint64_t seed, const uint8_t* data, int64_t n) noexcept nogil
cdef uint64_t client_hash(const uint8_t* principal, int64_t principal_bytes, const uint8_t* client_id, int64_t client_bytes) noexcept nogil
cdef void enter_index(Index* index, uint64_t key, uint32_t number) noexcept nogil
cdef uint64_t new_since(MeterPage* page) noexcept nogil
# Count in this page from now on. The caller has set `now_ms`.
cdef void adopt(MeterPage* page) noexcept nogil
cdef bint retire() noexcept nogil
# Free entries of clients for one of `state.owner`. Returns whether it freed any.
cdef bint evict_clients() noexcept nogil
