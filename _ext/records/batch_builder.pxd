"""A record batch (message format v2) built record by record: for `__consumer_offsets`, and for `odradek produce`."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from odradek._ext.protocol.cursor cimport WriteBuffer


cdef class BatchBuilder:
    cdef WriteBuffer out                # room for the header, then the records
    cdef readonly int count             # records so far
    cdef int64_t base_timestamp
    cdef int64_t max_timestamp
    cdef bint packed                    # the records are compressed: `put_packed`

    # Complete the batch in place. Called again, it writes the same header. Without a producer its id, epoch and sequence are -1.
    cdef int seal(self, int codec, compress, int64_t producer_id=*, int producer_epoch=*, int32_t base_sequence=*,
                  bint transactional=*) except -1
    # Add a record without headers; a length of -1 means null.
    cdef int put(self, const uint8_t* key, Py_ssize_t key_bytes, const uint8_t* value, Py_ssize_t value_bytes, int64_t timestamp) except -1
    # Add a record; `headers`: their number and the headers, in the format of a record.
    cdef int put_with_headers(self, const uint8_t* key, Py_ssize_t key_bytes, const uint8_t* value, Py_ssize_t value_bytes,
                              int64_t timestamp, const uint8_t* headers, Py_ssize_t header_bytes) except -1
