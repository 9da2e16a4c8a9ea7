from libc.stdint cimport uint8_t

from odradek._ext.records.record_batch cimport BatchInfo


# Where the fields of a message (format v0 or v1) lie, in bytes from its offset; all are big-endian.
cdef enum:
    AT_MESSAGE_CRC = 12
    AT_MESSAGE_ATTRIBUTES = 17
    AT_MESSAGE_TIMESTAMP = 18           # v1 only
    MESSAGE_V0_BYTES = 26               # without key and value: the least that a message has
    MESSAGE_V1_BYTES = 34
    MESSAGE_HEADER_BYTES = 26           # what `parse_message` looks at, of both formats


# Reads the head of a message of which p[0:n] is in memory (the rest need not be); n >= MESSAGE_HEADER_BYTES.
# CORRUPT_MESSAGE when it is none. `out` describes it as a batch of its own: base offset and last offset are both the one
# that it states, which for a compressed wrapper is its last record's; no producer, no leader epoch (-1). `record_count`
# is 1, or -1 for a wrapper, which only opening it would tell.
cdef int parse_message(const uint8_t* p, size_t n, BatchInfo* out) noexcept nogil

# Whether the CRC-32 of a message that lies in memory whole matches.
cdef bint message_crc_matches(const uint8_t* p, const BatchInfo* info) noexcept nogil
