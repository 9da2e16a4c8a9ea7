"""The random key of hash tables whose keys clients choose. It is drawn when the mapping is created; all processes use it."""

from libc.stdint cimport uint64_t


cdef const uint64_t* hash_key() noexcept nogil    # two words, for SipHash (siphash.pxd)
