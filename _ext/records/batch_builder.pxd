"""A record batch (message format v2) that grows record by record: those of `__consumer_offsets`, and of the command's producer."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from odradek._ext.protocol.cursor cimport WriteBuffer


cdef class BatchBuilder:
    cdef WriteBuffer out                # the header's room, then the records
    cdef readonly int count             # records so far
    cdef int64_t base_timestamp
    cdef int64_t max_timestamp

    # Makes the records a whole batch, in place; once. Without a producer its id, epoch and sequence are -1.
    cdef int seal(self, int codec, compress, int64_t producer_id=*, int producer_epoch=*, int32_t base_sequence=*) except -1
    # Adds a record without headers; a length of -1 is null.
    cdef int put(self, const uint8_t* key, Py_ssize_t key_bytes, const uint8_t* value, Py_ssize_t value_bytes, int64_t timestamp) except -1
    # Adds a record; `headers`: their count and themselves, in the format of a record.
    cdef int put_with_headers(self, const uint8_t* key, Py_ssize_t key_bytes, const uint8_t* value, Py_ssize_t value_bytes,
                              int64_t timestamp, const uint8_t* headers, Py_ssize_t header_bytes) except -1
