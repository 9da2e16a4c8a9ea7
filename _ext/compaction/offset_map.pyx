"""The map of keys to newest offsets; see offset_map.pxd. Open addressing with linear probing, no removal."""

from libc.errno cimport ENOMEM, errno
from libc.stdint cimport int64_t, uint64_t, uint8_t
from posix.mman cimport MAP_ANONYMOUS, MAP_FAILED, MAP_NORESERVE, MAP_PRIVATE, PROT_READ, PROT_WRITE, mmap, munmap

from odradek._ext.shm.siphash cimport sip_begin, sip_bytes, sip_round


cdef extern from "<sys/mman.h>" nogil:
    int madvise(void* start, size_t length, int advice)
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


cdef inline void sip_hash(uint64_t key0, uint64_t key1, const uint8_t* p, size_t n, uint64_t* low, uint64_t* high) noexcept nogil:
    """SipHash-1-3 with 128 bits of output."""
    cdef uint64_t[2] key
    cdef uint64_t[4] v
    key[0] = key0
    key[1] = key1
    sip_begin(v, key)
    v[1] ^= 0xEE
    sip_bytes(v, p, n)
    v[2] ^= 0xEE
    sip_round(v)
    sip_round(v)
    sip_round(v)
    low[0] = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    sip_round(v)
    sip_round(v)
    sip_round(v)
    high[0] = v[0] ^ v[1] ^ v[2] ^ v[3]


cdef int open_map(OffsetMap* map, size_t bytes) noexcept nogil:
    cdef void* memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
    if memory == MAP_FAILED:
        map.entries = NULL
        return -errno if errno else -ENOMEM
    madvise(memory, bytes, MADV_HUGEPAGE)
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
    sip_hash(map.key0, map.key1, key, n, &low, &high)
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
    sip_hash(map.key0, map.key1, key, n, &low, &high)
    entry = map.entries + place_of(low, <uint64_t>map.slots_used)
    while entry.follower:
        if entry.low == low and entry.high == high:
            return entry.follower - 1
        entry += 1
        if entry == end:
            entry = map.entries
    return -1


def digest(uint64_t key0, uint64_t key1, bytes data):
    """The hash of `data` as 16 bytes, the lower word first. For tests."""
    cdef uint64_t low = 0, high = 0
    sip_hash(key0, key1, data, len(data), &low, &high)
    return low.to_bytes(8, "little") + high.to_bytes(8, "little")


cdef class Offsets:
    """The map, for tests: `bytes` of memory, filled up to `load_factor`, for at most `keys` keys."""

    cdef OffsetMap map

    def __cinit__(self, size_t bytes, double load_factor, int64_t keys):
        cdef int error = open_map(&self.map, bytes)
        if error:
            raise OSError(-error, "no memory for the map of offsets")
        begin_map(&self.map, keys, load_factor, 1, 2)

    def __dealloc__(self):
        close_map(&self.map)

    def put(self, bytes key, int64_t offset):
        """Returns whether there was room."""
        return put_offset(&self.map, key, len(key), offset) == 0

    def get(self, bytes key):
        """The offset last put for the key, or -1."""
        return get_offset(&self.map, key, len(key))

    def __len__(self):
        return self.map.count
