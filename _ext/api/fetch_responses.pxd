"""Writing of Fetch responses from plans."""

from libc.stdint cimport int16_t, int32_t, int64_t

from odradek._ext.api.fetch_context cimport FetchContext
from odradek._ext.net.connection cimport Connection, Pending, ResponseOutput
from odradek._ext.protocol.cursor cimport WriteBuffer
from odradek._ext.shm.metering cimport Client


cdef class FetchResponses:
    cdef object replicas              # ReplicaView in a cluster; None
    cdef WriteBuffer response
    cdef readonly int64_t bytes_out
    cdef readonly int64_t responses

    cdef int answer(self, FetchContext context, Pending pending) except -1
    cdef int write(self, ResponseOutput out, FetchContext context, Connection connection, int64_t spent_us) except -1
    cdef int write_throttled(self, ResponseOutput out, FetchContext context, list cuts, int64_t wait_ms) except -1
    cdef int write_empty(self, ResponseOutput out, Client* client, int16_t version, int32_t correlation_id, int16_t error,
                         int32_t session_id, int64_t wait_ms) except -1
    cdef int count_served(self, FetchContext context, list included, list cuts) except -1
    cdef int write_error(self, ResponseOutput out, Client* client, int16_t version, int32_t correlation_id, int16_t error,
                         int64_t wait_ms) except -1
