"""The end of a Produce request: its response, its metrics, and the sync that its topics require."""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint8_t

from odradek._ext.api.produce_items cimport ProduceItem, ProduceRequest
from odradek._ext.net.connection cimport ResponseOutput
from odradek._ext.partition.flusher cimport Flusher
from odradek._ext.protocol.cursor cimport WriteBuffer


cdef class ProduceResponses:
    cdef readonly Flusher flusher
    cdef object replicas          # see ProduceHandler
    cdef WriteBuffer response
    # Since `take_refusals`: number of batches that were refused because the broker had no room for new producers, and the last of them
    cdef int64_t refusals
    cdef int refused_room         # Room
    cdef int64_t refused_connection
    cdef uint32_t refused_client

    cdef int name_leader(self, ProduceItem* item, set leaders) except -1
    cdef int write_response_tags(self, ProduceRequest* request, set leaders) except -1
    cdef int write_response(self, ResponseOutput out, ProduceRequest* request, ProduceItem* items, list record_errors,
                            int64_t wait_ms) except -1
    cdef int count_in(self, ProduceRequest* request, ProduceItem* items) noexcept
    cdef int count_answer(self, ProduceRequest* request, ProduceItem* items, int64_t size) noexcept
    cdef str text_of_refusal(self, ProduceRequest* request, ProduceItem* items)
    cdef int request_flush(self, ProduceRequest* request, ProduceItem* items) except -1
    cdef int request_flush_of(self, ProduceItem* item) except -1


# Finds the records, in the uncompressed `records[0:size]`, because of which the item is refused, and the error code. Refuses the item,
# and appends as many as the response has room for to `record_errors`. `first_decides`: see `find_record_errors`.
cdef int attach_record_errors(ProduceRequest* request, ProduceItem* item, list record_errors, const uint8_t* records, int64_t size,
                              int64_t wall_ms, bint first_decides) except -1
