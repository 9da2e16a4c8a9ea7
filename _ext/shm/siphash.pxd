"""SipHash-1-3 (Aumasson and Bernstein): a keyed hash for tables whose keys clients choose.

Without the key nobody can choose keys that collide in a table. All functions are inline. Words are in the machine's byte order,
which is little-endian.
"""

from libc.stdint cimport uint64_t, uint8_t
from libc.string cimport memcpy


cdef inline uint64_t rotate(uint64_t x, int bits) noexcept nogil:
    return (x << bits) | (x >> (64 - bits))


cdef inline void sip_round(uint64_t* v) noexcept nogil:
    v[0] += v[1]
    v[2] += v[3]
    v[1] = rotate(v[1], 13) ^ v[0]
    v[3] = rotate(v[3], 16) ^ v[2]
    v[0] = rotate(v[0], 32)
    v[2] += v[1]
    v[0] += v[3]
    v[1] = rotate(v[1], 17) ^ v[2]
    v[3] = rotate(v[3], 21) ^ v[0]
    v[2] = rotate(v[2], 32)


cdef inline void sip_begin(uint64_t* v, const uint64_t* key) noexcept nogil:
    v[0] = key[0] ^ <uint64_t>0x736F6D6570736575
    v[1] = key[1] ^ <uint64_t>0x646F72616E646F6D
    v[2] = key[0] ^ <uint64_t>0x6C7967656E657261
    v[3] = key[1] ^ <uint64_t>0x7465646279746573


cdef inline void sip_word(uint64_t* v, uint64_t word) noexcept nogil:
    v[3] ^= word
    sip_round(v)
    v[0] ^= word


cdef inline void sip_bytes(uint64_t* v, const uint8_t* p, size_t n) noexcept nogil:
    """Add a whole message of n bytes, including its length."""
    cdef uint64_t word, last = <uint64_t>n << 56
    cdef size_t left = n
    while left >= 8:
        memcpy(&word, p, 8)
        sip_word(v, word)
        p += 8
        left -= 8
    while left > 0:
        left -= 1
        last |= <uint64_t>p[left] << (8 * left)
    sip_word(v, last)


cdef inline uint64_t sip_end(uint64_t* v) noexcept nogil:
    """Finish, and return the hash of 64 bits."""
    v[2] ^= 0xFF
    sip_round(v)
    sip_round(v)
    sip_round(v)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


cdef inline uint64_t hash_word(const uint64_t* key, uint64_t word) noexcept nogil:
    """The hash of a message of eight bytes."""
    cdef uint64_t[4] v
    sip_begin(v, key)
    sip_word(v, word)
    sip_word(v, <uint64_t>8 << 56)
    return sip_end(v)


cdef inline uint64_t hash_bytes(const uint64_t* key, const uint8_t* p, size_t n) noexcept nogil:
    cdef uint64_t[4] v
    sip_begin(v, key)
    sip_bytes(v, p, n)
    return sip_end(v)


cdef inline void sip_hash_128(uint64_t key0, uint64_t key1, const uint8_t* p, size_t n, uint64_t* low,
                              uint64_t* high) noexcept nogil:
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
