"""Message sets of formats v0 and v1 in memory, checked as hostile input: a message's header, a whole message, a whole set.

`messages_to_batch` (from producers) and `batch_to_messages` (for consumers) convert them.

    message: offset i64, size i32 (of all that follows), crc u32 (CRC-32 of all that follows it), magic i8, attributes i8,
    timestamp i64 (v1 only), key length i32 (-1: null), key, value length i32 (-1: null), value

A compressed message is a wrapper: its value is a message set. Its offset is that of the last message inside. The offsets
inside are absolute in v0 and relative in v1, where the last one corresponds to the wrapper's offset.
"""

from libc.stdint cimport int32_t, int64_t, int8_t, uint32_t, uint8_t


cdef enum:
    MESSAGE_AT_SIZE = 8
    MESSAGE_AT_CRC = 12
    MESSAGE_AT_MAGIC = 16
    MESSAGE_AT_ATTRIBUTES = 17
    MESSAGE_AT_TIMESTAMP = 18
    MESSAGE_OVERHEAD_BYTES = 12         # offset and size field, which "size" does not include
    MESSAGE_V0_BYTES = 26               # of a message without key and value
    MESSAGE_V1_BYTES = 34


cdef struct Message:
    int64_t offset
    int64_t timestamp                   # ms; -1 in v0
    int32_t size                        # bytes of the whole message, including offset and size field
    uint32_t crc
    int32_t key_at                      # from the message's start
    int32_t key_bytes                   # -1: null
    int32_t value_at
    int32_t value_bytes
    int8_t magic                        # 0 or 1
    uint8_t codec
    uint8_t log_append_time


cdef struct MessageSet:                 # the outer messages of a set
    int64_t size                        # total bytes of the messages
    int64_t first_offset                # of the first message; for a wrapper, of its last inner message
    int64_t last_offset
    int64_t max_timestamp               # -1 if none has a timestamp
    int64_t offset_of_max_timestamp     # of the first message that has it
    int32_t count
    uint8_t codec                       # of the last compressed message, 0 if there is none


# Reads the fixed fields of a message of which p[0:n] is in memory; key and value fields stay unset. CORRUPT_MESSAGE if n or the
# stated size is less than the smallest message; INVALID_RECORD if the magic is neither 0 nor 1 (needs n >= 17).
cdef int parse_message_header(const uint8_t* p, size_t n, Message* out) noexcept nogil

# Checks a whole message: header, that it lies completely in p[0:n], that key and value fill it exactly, and the CRC.
cdef int check_message(const uint8_t* p, size_t n, Message* out) noexcept nogil

# Checks every outer message of p[0:n]; all must be complete. Returns 0 or the first error; `out.size` is the length of the valid
# part.
cdef int check_message_set(const uint8_t* p, size_t n, MessageSet* out) noexcept nogil
