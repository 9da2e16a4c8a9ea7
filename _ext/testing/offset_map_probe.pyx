"""The compaction's map of keys to offsets, and its hash, for tests."""

from libc.stdint cimport int64_t, uint64_t

from odradek._ext.compaction.offset_map cimport OffsetMap, begin_map, close_map, get_offset, open_map, put_offset
from odradek._ext.shm.siphash cimport sip_hash_128


def digest(uint64_t key0, uint64_t key1, bytes data) -> bytes:
    """The hash of `data` as 16 bytes, the lower word first."""
    cdef uint64_t low = 0, high = 0
    sip_hash_128(key0, key1, data, len(data), &low, &high)
    return low.to_bytes(8, "little") + high.to_bytes(8, "little")


cdef class Offsets:
    """The map: `bytes` of memory, filled up to `load_factor`, for at most `keys` keys."""

    cdef OffsetMap map

    def __cinit__(self, size_t bytes, double load_factor, int64_t keys):
        cdef int error = open_map(&self.map, bytes)
        if error:
            raise OSError(-error, "no memory for the map of offsets")
        begin_map(&self.map, keys, load_factor, 1, 2)

    def __dealloc__(self):
        close_map(&self.map)

    def put(self, bytes key, int64_t offset) -> bool:
        """Returns whether there was room."""
        return put_offset(&self.map, key, len(key), offset) == 0

    def get(self, bytes key) -> int:
        """The offset last put for the key, or -1."""
        return get_offset(&self.map, key, len(key))

    def __len__(self) -> int:
        return self.map.count
