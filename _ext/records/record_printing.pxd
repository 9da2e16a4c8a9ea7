"""Records as text for people and scripts: the output of `odradek consume`. See `record_printing.pyx`."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from odradek._ext.protocol.cursor cimport WriteBuffer


cdef struct RecordView:
    # A record in the memory of its batch; lengths of -1 mean null. `headers`: header_count of them in the format of a record.
    int64_t offset
    int64_t timestamp
    const uint8_t* key
    const uint8_t* value
    const uint8_t* headers
    const uint8_t* headers_end
    int32_t key_bytes
    int32_t value_bytes
    int32_t header_count
    int32_t timestamp_type              # -1 none, 0 CreateTime, 1 LogAppendTime


cdef class RecordPrinter:
    cdef WriteBuffer out
    cdef list texts                     # for each step: its text, or None if it prints a field
    cdef list fields                    # for each step of the template: the number of its field, or TEXT
    cdef object when                    # function: ms since 1970 to a text
    cdef bytes topic
    cdef bytes json_begin               # '{"topic": "t", "partition": 0, "offset": '
    cdef bytes time_text
    cdef int64_t time_of                # the ms of `time_text`
    cdef int32_t partition

    cpdef set_partition(self, str topic, int32_t partition)
    # Append the record to the result of `take`. Raises MemoryError, and ValueError for invalid headers.
    cdef int put(self, const RecordView* record) except -1
    cdef int put_json(self, const RecordView* record) except -1
