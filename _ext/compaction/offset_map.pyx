"""The map of keys to newest offsets; see offset_map.pxd. Open addressing with linear probing, no removal."""

from libc.errno cimport ENOMEM, errno
from libc.stdint cimport int64_t, uint64_t, uint8_t
from posix.mman cimport MAP_ANONYMOUS, MAP_FAILED, MAP_NORESERVE, MAP_PRIVATE, PROT_READ, PROT_WRITE, mmap, munmap

from odradek._ext.shm.c_library cimport madvise
from odradek._ext.shm.siphash cimport sip_hash_128


cdef extern from "<sys/mman.h>" nogil:
    int MADV_DONTDUMP
    int MADV_DONTNEED
    int MADV_HUGEPAGE

cdef extern from *:
    """
    /* Maps a hash to one of `slots` places with a multiplication instead of a division. */
    static inline uint64_t place_of(uint64_t hash, uint64_t slots) {
        return (uint64_t)(((unsigned __int128)hash * slots) >> 64);
    }
    """
    uint64_t place_of(uint64_t hash, uint64_t slots) noexcept nogil


cdef enum:
    LEAST_SLOTS = 1024


cdef int open_map(OffsetMap* map, size_t bytes) noexcept nogil:
    cdef void* memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
    if memory == MAP_FAILED:
        map.entries = NULL
        return -errno if errno else -ENOMEM
    madvise(memory, bytes, MADV_HUGEPAGE)
    madvise(memory, bytes, MADV_DONTDUMP)                      # hashes and offsets, of no use in a core
    map.entries = <MapEntry*>memory
    map.mapped_bytes = bytes
    map.slots = <int64_t>(bytes // sizeof(MapEntry))
    map.slots_used = map.limit = map.count = 0
    return 0


cdef void close_map(OffsetMap* map) noexcept nogil:
    if map.entries != NULL:
        munmap(map.entries, map.mapped_bytes)
        map.entries = NULL


cdef void begin_map(OffsetMap* map, int64_t keys, double load_factor, uint64_t key0, uint64_t key1) noexcept nogil:
    cdef double needed = <double>keys / load_factor + LEAST_SLOTS
    madvise(map.entries, map.mapped_bytes, MADV_DONTNEED)      # clears it, and returns the memory to the system
    map.slots_used = map.slots if needed > <double>map.slots else <int64_t>needed
    map.limit = <int64_t>(<double>map.slots_used * load_factor)
    if map.limit >= map.slots_used:
        map.limit = map.slots_used - 1          # a search must end at a free place
    map.count = 0
    map.key0 = key0
    map.key1 = key1


cdef int put_offset(OffsetMap* map, const uint8_t* key, size_t n, int64_t offset) noexcept nogil:
    cdef uint64_t low = 0, high = 0
    cdef MapEntry* entry
    cdef MapEntry* end = map.entries + map.slots_used
    if map.count >= map.limit:
        return -1
    sip_hash_128(map.key0, map.key1, key, n, &low, &high)
    entry = map.entries + place_of(low, <uint64_t>map.slots_used)
    while entry.follower:
        if entry.low == low and entry.high == high:
            entry.follower = offset + 1
            return 0
        entry += 1
        if entry == end:
            entry = map.entries
    entry.low = low
    entry.high = high
    entry.follower = offset + 1
    map.count += 1
    return 0


cdef int64_t get_offset(const OffsetMap* map, const uint8_t* key, size_t n) noexcept nogil:
    cdef uint64_t low = 0, high = 0
    cdef const MapEntry* entry
    cdef const MapEntry* end = map.entries + map.slots_used
    if map.count == 0:
        return -1
    sip_hash_128(map.key0, map.key1, key, n, &low, &high)
    entry = map.entries + place_of(low, <uint64_t>map.slots_used)
    while entry.follower:
        if entry.low == low and entry.high == high:
            return entry.follower - 1
        entry += 1
        if entry == end:
            entry = map.entries
    return -1
