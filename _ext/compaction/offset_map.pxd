"""The newest offset of each key of a log's dirty part, in memory of a fixed size. The map contains hashes of keys and offsets,
no keys.

Each compacting thread has its own map. The hash is SipHash-1-3 with 128 bits of output and a random key for each pass
(docs/decisions/0009): nobody can construct two keys with the same hash, so no producer can cause the removal of another key's
record.
"""

from libc.stdint cimport int64_t, uint64_t, uint8_t


cdef struct MapEntry:
    uint64_t low
    uint64_t high
    int64_t follower              # offset + 1; 0: free


cdef struct OffsetMap:
    MapEntry* entries
    size_t mapped_bytes
    int64_t slots                 # of the mapping
    int64_t slots_used            # used in this pass: few keys should be close together
    int64_t limit                 # most keys that it accepts: slots x load factor
    int64_t count
    uint64_t key0
    uint64_t key1


# Allocate `bytes` of memory. Returns 0, or -errno.
cdef int open_map(OffsetMap* map, size_t bytes) noexcept nogil
cdef void close_map(OffsetMap* map) noexcept nogil

# Empty the map and set a new hash key, for at most `keys` keys; at most `load_factor` of the slots are filled.
cdef void begin_map(OffsetMap* map, int64_t keys, double load_factor, uint64_t key0, uint64_t key1) noexcept nogil

# Set the newest offset of a key. Returns 0, or -1 if there is no room for another key.
cdef int put_offset(OffsetMap* map, const uint8_t* key, size_t n, int64_t offset) noexcept nogil

# Returns the newest offset of a key, -1 for a key that is not in the map.
cdef int64_t get_offset(const OffsetMap* map, const uint8_t* key, size_t n) noexcept nogil
