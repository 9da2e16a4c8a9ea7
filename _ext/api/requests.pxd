"""The handler of a worker's frames: executes Produce and Fetch natively, forwards or dispatches all other requests."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from odradek._ext.api.fetch cimport FetchHandler
from odradek._ext.api.produce cimport ProduceHandler
from odradek._ext.api.purgatory cimport Purgatory
from odradek._ext.net.charging cimport Charges
from odradek._ext.net.connection cimport Connection
from odradek._ext.net.forwarding cimport ForwardTable, Route
from odradek._ext.net.frame_reading cimport FrameHandler


cdef class RequestHandler(FrameHandler):
    cdef readonly ProduceHandler produce_handler
    cdef readonly FetchHandler fetch_handler
    cdef readonly Purgatory purgatory
    cdef object dispatch
    cdef public Charges charges         # None: no client has a limit
    cdef readonly ForwardTable forward_table
    cdef int brokers_listener           # index of the only listener for requests of brokers; -1: any listener
    cdef int64_t max_bytes              # size limit of a request other than Produce
    cdef dict routes                    # `route_number` of an API and version -> Route
    cdef readonly int64_t produce_requests
    cdef readonly int64_t fetch_requests
    cdef readonly int64_t other_requests
    cdef int offer_to_gate(self, Connection connection, uint8_t* data, int64_t size) except -1
    cdef int note_request(self, Connection connection, int16_t key, int16_t version, int32_t correlation_id, const uint8_t* client,
                          int64_t length) except -1
    cdef int respond(self, Connection connection, int16_t key, int16_t version, response) except -1
    cdef int run_other(self, Connection connection, int16_t key, int16_t version, int32_t correlation_id, client_id, bytes frame) except -1
