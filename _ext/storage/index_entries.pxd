"""The entries of the three indexes of a segment; all numbers are big-endian. `odradek.storage.indexes` is their Python counterpart.

    offset index, 8 bytes:  last offset of a batch less the segment's base i32, that batch's position i32
    time index, 12 bytes:   largest timestamp so far i64, last offset of the batch that has it less the base i32
    txn index, 34 bytes:    version i16 (0), producer id i64, first offset i64, last offset i64, last stable offset i64
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t, uint8_t

from odradek._ext.protocol.byte_order cimport load64, store16, store32, store64


cdef enum:
    OFFSET_ENTRY_BYTES = 8
    TIME_ENTRY_BYTES = 12
    TXN_ENTRY_BYTES = 34


cdef struct AbortedEntry:         # an entry of a transaction index
    int64_t producer_id
    int64_t first_offset
    int64_t last_offset           # that of the abort marker
    int64_t last_stable_offset


cdef inline void pack_offset_entry(uint8_t* entry, int64_t relative_offset, int64_t position) noexcept nogil:
    store32(entry, <uint32_t>relative_offset)
    store32(entry + 4, <uint32_t>position)


cdef inline void pack_time_entry(uint8_t* entry, int64_t timestamp, int64_t relative_offset) noexcept nogil:
    store64(entry, <uint64_t>timestamp)
    store32(entry + 8, <uint32_t>relative_offset)


cdef inline void pack_txn_entry(uint8_t* entry, const AbortedEntry* aborted) noexcept nogil:
    store16(entry, 0)
    store64(entry + 2, <uint64_t>aborted.producer_id)
    store64(entry + 10, <uint64_t>aborted.first_offset)
    store64(entry + 18, <uint64_t>aborted.last_offset)
    store64(entry + 26, <uint64_t>aborted.last_stable_offset)


cdef inline void unpack_txn_entry(const uint8_t* entry, AbortedEntry* aborted) noexcept nogil:
    aborted.producer_id = <int64_t>load64(entry + 2)
    aborted.first_offset = <int64_t>load64(entry + 10)
    aborted.last_offset = <int64_t>load64(entry + 18)
    aborted.last_stable_offset = <int64_t>load64(entry + 26)
