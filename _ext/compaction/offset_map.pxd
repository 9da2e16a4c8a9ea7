"""The newest offset of each key of a log's dirty part, in memory of a fixed size: the key's hash and the offset, no key.

One a compacting thread, used by it alone. The hash is SipHash-1-3 with 128 bits of output and a key drawn for each pass (decision
0009): nobody can make two keys that fall together, so that no producer can have another's record removed.
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
    int64_t slots_used            # of this pass: few keys shall lie close together
    int64_t limit                 # keys that it may take: slots x load factor
    int64_t count
    uint64_t key0
    uint64_t key1


# Memory for `bytes`; 0, or -errno.
cdef int open_map(OffsetMap* map, size_t bytes) noexcept nogil
cdef void close_map(OffsetMap* map) noexcept nogil

# Empty, with a new hash key, for at most `keys` keys; `load_factor` of the slots may be taken.
cdef void begin_map(OffsetMap* map, int64_t keys, double load_factor, uint64_t key0, uint64_t key1) noexcept nogil

# The newest offset of a key: 0, or -1 when there is no room for another key.
cdef int put_offset(OffsetMap* map, const uint8_t* key, size_t n, int64_t offset) noexcept nogil

# -1 for a key that is not in the map.
cdef int64_t get_offset(const OffsetMap* map, const uint8_t* key, size_t n) noexcept nogil
