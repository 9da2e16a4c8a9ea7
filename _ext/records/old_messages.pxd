from libc.stdint cimport uint8_t

from odradek._ext.records.record_batch cimport BatchInfo


# Positions of the fields of a message (format v0 or v1), in bytes from its offset field; all are big-endian.
cdef enum:
    AT_MESSAGE_CRC = 12
    AT_MESSAGE_ATTRIBUTES = 17
    AT_MESSAGE_TIMESTAMP = 18           # v1 only
    MESSAGE_V0_BYTES = 26               # without key and value: the smallest message
    MESSAGE_V1_BYTES = 34
    MESSAGE_HEADER_BYTES = 26           # the part that `parse_message` reads in both formats


# Parses the header of a message of which p[0:n] is in memory (the rest may be missing); n >= MESSAGE_HEADER_BYTES. CORRUPT_MESSAGE
# if it is no message. `out` describes it as a batch: base offset and last offset are both the message's offset, which for a
# compressed wrapper is its last record's; no producer, no leader epoch (-1). `record_count` is 1, or -1 for a wrapper, because it
# is unknown without decompression.
cdef int parse_message(const uint8_t* p, size_t n, BatchInfo* out) noexcept nogil

# Whether the CRC-32 of a message that is completely in memory matches.
cdef bint message_crc_matches(const uint8_t* p, const BatchInfo* info) noexcept nogil
