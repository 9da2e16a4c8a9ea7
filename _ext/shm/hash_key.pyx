"""The random key of hash tables whose keys clients choose; see hash_key.pxd."""

from libc.stdint cimport uint64_t

from odradek._ext.shm.layout cimport region


cdef const uint64_t* hash_key() noexcept nogil:
    return region().header.hash_key
