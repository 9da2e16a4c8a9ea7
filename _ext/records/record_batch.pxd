from libc.stdint cimport int16_t, int32_t, int64_t, int8_t, uint16_t, uint32_t, uint64_t, uint8_t


# Positions of the fields of a record batch (message format v2), in bytes from its start; all are big-endian.
cdef enum:
    AT_BASE_OFFSET = 0
    AT_BATCH_LENGTH = 8
    AT_PARTITION_LEADER_EPOCH = 12
    AT_MAGIC = 16
    AT_CRC = 17
    AT_ATTRIBUTES = 21
    AT_LAST_OFFSET_DELTA = 23
    AT_BASE_TIMESTAMP = 27
    AT_MAX_TIMESTAMP = 35
    AT_PRODUCER_ID = 43
    AT_PRODUCER_EPOCH = 51
    AT_BASE_SEQUENCE = 53
    AT_RECORD_COUNT = 57
    AT_RECORDS = 61
    BATCH_HEADER_BYTES = 61
    BATCH_OVERHEAD_BYTES = 12           # base offset and length field, which "batch length" does not include


cdef enum:
    ATTRIBUTE_LOG_APPEND_TIME = 0x08
    ATTRIBUTE_TRANSACTIONAL = 0x10
    ATTRIBUTE_CONTROL = 0x20
    ATTRIBUTE_DELETE_HORIZON = 0x40


cdef struct BatchInfo:
    # From the header.
    int64_t base_offset
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t producer_id
    int32_t size                        # bytes of the whole batch, including the header
    int32_t partition_leader_epoch
    int32_t last_offset_delta
    int32_t base_sequence
    int32_t record_count
    uint32_t crc
    int16_t attributes
    int16_t producer_epoch
    int8_t magic
    uint8_t codec
    uint8_t transactional
    uint8_t control
    uint8_t log_append_time
    # From the records; valid if `framed` is 1.
    uint8_t framed                      # all records were read
    uint8_t keyless                     # some record has no key: compacted topics refuse the batch
    int32_t offset_delta_of_max_timestamp   # the first record with the maximum
    int64_t found_max_timestamp         # -1 if no record has a timestamp
    int64_t found_min_timestamp         # of the records that have a timestamp; -1 if none has


cdef enum:
    NO_SEQUENCE = -1                    # of control batches, and of batches without a producer


# Sequences run from 0 to 2**31 - 1 and wrap around; a batch without a base sequence has no last sequence either.

cdef inline int32_t last_sequence_of(int32_t base_sequence, int64_t last_offset_delta) noexcept nogil:
    return NO_SEQUENCE if base_sequence < 0 else <int32_t>((<int64_t>base_sequence + last_offset_delta) & 0x7FFFFFFF)


cdef inline int32_t base_sequence_of(int32_t last_sequence, int64_t last_offset_delta) noexcept nogil:
    return NO_SEQUENCE if last_sequence < 0 else <int32_t>((<int64_t>last_sequence - last_offset_delta) & 0x7FFFFFFF)


cdef inline int32_t sequence_behind(int32_t last_sequence) noexcept nogil:
    """The base sequence of the following batch; 0 also after a batch without a sequence."""
    return 0 if last_sequence == 0x7FFFFFFF else last_sequence + 1


# Parses a header of which p[0:n] is in memory (the records may be missing). CORRUPT_MESSAGE if n < 61 or the stated length is less
# than a header; INVALID_RECORD if the magic is not 2 (out.size and out.magic are valid then; needs n >= 17).
cdef int parse_batch_header(const uint8_t* p, size_t n, BatchInfo* out) noexcept nogil

# Whether the CRC-32C of a batch that is completely in memory matches.
cdef bint crc_matches(const uint8_t* p, const BatchInfo* info) noexcept nogil

# Whether the control batch with the records p[0:n] aborts its transaction; otherwise it commits it, or is invalid.
cdef bint is_abort(const uint8_t* p, size_t n) noexcept nogil

# Performs all checks of the first batch in p[0:n], which has out.size bytes. from_client: the rules for producers, and every record
# of an uncompressed batch is read; otherwise (replica) only header, CRC and counts are checked.
cdef int check_batch(const uint8_t* p, size_t n, bint from_client, BatchInfo* out) noexcept nogil

# Checks the framing of a batch's uncompressed (or decompressed) records p[0:n]; `out` contains the parsed header and receives the
# values found in the records.
cdef int check_records(const uint8_t* p, size_t n, BatchInfo* out) noexcept nogil

# Sets the largest timestamp and its type (log append time or create time) in a batch in memory, and updates its CRC if necessary.
cdef void set_max_timestamp(uint8_t* p, BatchInfo* info, int64_t timestamp, bint log_append_time) noexcept nogil

# Signed (zigzag) base-128 numbers; *p is advanced. Returns 0, or -1 if the number exceeds `end` or its width.
cdef int read_varint(const uint8_t** p, const uint8_t* end, int32_t* out) noexcept nogil
cdef int read_varlong(const uint8_t** p, const uint8_t* end, int64_t* out) noexcept nogil
