"""Charging requests to the quotas of their clients (KIP-13, KIP-124, KIP-219). Used in a worker's event loop.

A worker has one `Charges` while any limit of clients exists. `RequestHandler` calls `note` for each request; the code that answers it
charges it and throttles its connection. `Connection.quotas.limited` is false for requests to which no limit applies.
"""

from libc.stdint cimport int16_t, int64_t, uint64_t, uint8_t

from odradek._ext.net.connection cimport Connection
from odradek._ext.shm.client_quotas cimport QuotaRate, QuotaUse


cdef struct JointCharge:               # of the Produce requests of one read, which are answered together
    bint above                         # the rate of their client is above a limit
    int64_t now_ms
    int64_t bytes_left                 # of the requests that are not answered yet
    QuotaRate bytes_rate               # with all of them
    QuotaRate time_rate


cdef class Charges:
    cdef object resolve
    cdef readonly uint64_t version
    cdef int64_t since_ms              # when these limits came into force
    cdef int note(self, Connection c, int16_t api_key, int16_t api_version, bint exempt, const uint8_t* client_id, int64_t length) except -1
    cdef int note_client(self, Connection c, const uint8_t* client_id, int64_t length) except -1
    # Returns whether the request must wait, because its client is above a limit on a connection that it opened meanwhile; the connection
    # is throttled. Else a client could escape from its throttle times by connecting again for each request.
    cdef bint holds(self, Connection c, bint produces) except -1
    cdef int find(self, Connection c, uint64_t client, const uint8_t* client_id, int64_t length) except -1


# Returns the time in us that was spent on the connection's requests since the last call, in this turn.
cdef int64_t spend(Connection c) noexcept
# Charges the time that was spent on a request, which is answered now. Returns the throttle time in ms.
cdef int64_t charge_time(Connection c, QuotaUse* use, int64_t us) except -1
# Charges a Produce request and throttles its connection. Returns the throttle time in ms. `us` -1: its time is not charged.
cdef int64_t charge_produce(Connection c, QuotaUse* produce, QuotaUse* request, int64_t size, int64_t us) except -1
# Charges Produce requests that are answered together, of `size` bytes together: one change of each bucket instead of one for each request.
# If `joint.above`, `wait_of_joined` must be called for each of them, in their order. `us` -1: their time is not charged.
cdef void charge_joined(QuotaUse* produce, QuotaUse* request, int64_t size, int64_t us, JointCharge* joint) noexcept
# Returns the throttle time of the next of these requests: as if it was charged before the requests that follow. Throttles the connection.
cdef int64_t wait_of_joined(Connection c, QuotaUse* produce, QuotaUse* request, int64_t size, bint timed, JointCharge* joint) except -1
# Charges the response to a Fetch. Returns the throttle time in ms; the connection is throttled. `empty`: an empty response must be sent
# instead, and the bytes of the other one are not counted. A response that could never be sent otherwise is sent with its throttle time.
cdef int64_t charge_fetch(Connection c, QuotaUse* fetch, QuotaUse* request, int64_t size, int64_t us, bint* empty) except -1
