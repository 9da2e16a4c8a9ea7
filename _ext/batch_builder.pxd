"""A record batch (message format v2) that grows record by record; the control path's own batches are built by it."""

from libc.stdint cimport int64_t, uint8_t

from broker._ext.cursor cimport WriteBuffer


cdef class BatchBuilder:
    cdef WriteBuffer out                # the header's room, then the records
    cdef readonly int count             # records so far
    cdef int64_t base_timestamp
    cdef int64_t max_timestamp

    # Makes the records a whole batch, in place; once.
    cdef int seal(self, int codec, compress) except -1
    # Adds a record without headers; a length of -1 is null.
    cdef int put(self, const uint8_t* key, Py_ssize_t key_bytes, const uint8_t* value, Py_ssize_t value_bytes, int64_t timestamp) except -1
