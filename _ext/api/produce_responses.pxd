"""The end of a Produce request: its response, what is counted of it, and the sync that its topics ask for."""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint8_t

from odradek._ext.api.produce_items cimport ProduceItem, ProduceRequest
from odradek._ext.net.connection cimport ResponseOutput
from odradek._ext.partition.flusher cimport Flusher
from odradek._ext.protocol.cursor cimport WriteBuffer


cdef class ProduceResponses:
    cdef readonly Flusher flusher
    cdef WriteBuffer response
    # Batches of new producers that were refused for want of room since `take_refusals`, and the last one of them
    cdef int64_t refusals
    cdef int refused_room         # Room
    cdef int64_t refused_connection
    cdef uint32_t refused_client

    cdef int write_response(self, ResponseOutput out, ProduceRequest* request, ProduceItem* items, list record_errors) except -1
    cdef int count_in(self, ProduceRequest* request, ProduceItem* items) noexcept
    cdef int count_answer(self, ProduceRequest* request, ProduceItem* items, int64_t size) noexcept
    cdef int ask_flush(self, ProduceRequest* request, ProduceItem* items) except -1
    cdef int ask_flush_of(self, ProduceItem* item) except -1


# Find out which records, `records[0:size]` not compressed, make the item refused, with which code, and list as many as the
# request's answer has room for in `found`. `first_decides`: see `find_record_errors`.
cdef int attach_record_errors(ProduceRequest* request, ProduceItem* item, list found, const uint8_t* records, int64_t size,
                              int64_t wall_ms, bint first_decides) except -1
