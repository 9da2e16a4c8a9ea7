"""Produce requests: parsed in place, checked, appended jointly, answered in order."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t

from broker._ext.connection cimport Connection, ResponseOutput
from broker._ext.cursor cimport Cursor, WriteBuffer
from broker._ext.flusher cimport Flusher
from broker._ext.produce_items cimport ProduceItem, ProduceRequest
from broker._ext.topics cimport TopicDirectory
from broker._ext.waiting cimport WaitingRoom


cdef class Producing:
    cdef TopicDirectory topics
    cdef WaitingRoom room
    cdef object offload           # callable(ProducePending)
    cdef object retry             # callable(ProducePending): call its `again` soon
    cdef object prepare           # callable(data, old, codec, level, limit, max_message_bytes) -> (error, fields, replacement, size)
    cdef int64_t max_opened_bytes  # that the compressed records of a request may open to
    cdef int64_t max_partitions   # of a request
    cdef bint too_many            # the request read last has more
    cdef ProduceItem* items
    cdef int item_room
    cdef int item_count
    cdef ProduceRequest* requests
    cdef int request_room
    cdef int request_count
    cdef list record_errors           # RecordErrors of refused batches of `requests`; None if there are none
    cdef Connection joined_by         # whose requests are in `requests`, None if there are none
    cdef readonly Flusher flusher
    cdef WriteBuffer response
    cdef bytes last_name          # name or id of the topic looked up last: most requests name one topic over and over
    # Batches of new producers that were refused for want of room since `take_refusals`, and the last one of them
    cdef int64_t refusals
    cdef int refused_room         # Room
    cdef int64_t refused_connection
    cdef uint32_t refused_client
    cdef readonly int64_t records_in
    cdef readonly int64_t batches_in
    cdef readonly int64_t bytes_in

    cdef int offer(self, Connection connection, int16_t version, int32_t correlation_id, Cursor* body, uint8_t* frame,
                   int64_t size) except -1
    cdef int parse(self, int16_t version, int32_t correlation_id, Cursor* body) except -1
    cdef int look_up(self, ProduceItem* item, bint by_id) except -1
    cdef int check(self, ProduceItem* item, int16_t acks, int64_t wall_ms) noexcept
    cdef int name_bad_records(self, ProduceItem* item, int64_t wall_ms) except -1
    cdef int execute(self, Connection connection) except -1
    cdef int forget(self, Connection connection) except -1
    cdef ProduceItem* new_item(self) except NULL
    cdef int ask_flush(self, ProduceRequest* request, ProduceItem* items) except -1
    cdef int ask_flush_of(self, ProduceItem* item) except -1
    cdef int count_arrival(self, ProduceRequest* request, ProduceItem* items, int64_t size) noexcept
    cdef int count_in(self, ProduceRequest* request, ProduceItem* items) noexcept
    cdef int count_answer(self, ProduceRequest* request, ProduceItem* items, int64_t size) noexcept
    cdef int write_response(self, ResponseOutput out, ProduceRequest* request, ProduceItem* items, list record_errors) except -1


# Find out which records, `records[0:size]` not compressed, make the item refused, with which code, and list as many as the
# request's answer has room for in `found`. `first_decides`: see `find_record_errors`.
cdef int attach_record_errors(ProduceRequest* request, ProduceItem* item, list found, const uint8_t* records, int64_t size,
                              int64_t wall_ms, bint first_decides) except -1
