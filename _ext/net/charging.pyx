"""Charging requests to the quotas of their clients; see charging.pxd."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int16_t, int64_t, uint64_t, uint8_t
from libc.string cimport memset

from odradek._ext.net.connection cimport Connection
from odradek._ext.shm.client_quotas cimport (
    QUOTA_FETCH,
    QUOTA_KINDS,
    QUOTA_PRODUCE,
    QUOTA_REQUEST,
    QuotaUse,
    quota_add,
    quota_charge,
    quota_count,
    quota_exceeded_at_once,
    quota_find,
    quota_span_ms,
    quota_throttled,
    quota_wait_at,
    quota_wait_ms,
)
from odradek._ext.shm.clock cimport monotonic_ms
from odradek._ext.shm.layout cimport region
from odradek._ext.shm.metering cimport CLIENT_ID_BYTES, Client, clock_us
from odradek._ext.shm.siphash cimport hash_bytes


cdef str ANONYMOUS = "User:ANONYMOUS"


cdef inline bint is_same_client(Connection c, int64_t length) noexcept:
    """Whether the quotas were looked up for a request with this client id. `Connection.counted_client` has compared the id with that of the
    metering entry, which holds so many bytes of it.
    """
    cdef Client* counted = &c.quotas.counted
    return counted.number == c.metering.client.number and counted.since == c.metering.client.since and counted.number \
        and length <= CLIENT_ID_BYTES


cdef class Charges:
    """Looks up the limits of clients.

    :param resolve: (principal, client id as bytes) -> for each QuotaKind (limit in units per second, user or None, client id or None), or
        None if no limit applies. A name that is None is not told apart: all of its clients share the limit.
    """

    def __init__(self, resolve):
        self.resolve = resolve
        self.version = 1
        self.since_ms = monotonic_ms()

    def changed(self) -> None:
        """The limits changed: look all clients up again at their next requests."""
        self.version += 1

    cdef int note(self, Connection c, int16_t api_key, int16_t api_version, bint exempt, const uint8_t* client_id,
                  int64_t length) except -1:
        """Note which quotas apply to the request that is executed next. :param length: of the client id; -1: it has none."""
        if not is_same_client(c, length) or c.quotas.version != self.version or c.quota_principal is not c.principal:
            self.note_client(c, client_id, max(length, <int64_t>0))
        if not c.quotas.limited:
            return 0
        c.quotas.api_key = api_key
        c.quotas.api_version = api_version
        c.quotas.request = c.quotas.request_of_client
        if exempt:
            c.quotas.request.key = 0
        if c.quotas.request_of_client.key and not c.frames.offered:
            c.quotas.mark_us = clock_us()
        return 0

    cdef int note_client(self, Connection c, const uint8_t* client_id, int64_t length) except -1:
        cdef uint64_t client = hash_bytes(region().header.hash_key, client_id, <size_t>length)
        if c.quotas.version != self.version or c.quotas.client != client or c.quota_principal is not c.principal:
            self.find(c, client, client_id, length)
        c.quotas.counted = c.metering.client
        return 0

    cdef bint holds(self, Connection c, bint produces) except -1:
        cdef int64_t now, wait_ms
        if not c.quotas.fresh:
            return False
        if produces:                    # a client that only asks for versions and metadata before is still fresh at its first Produce
            c.quotas.fresh = False
        now = monotonic_ms()
        wait_ms = quota_wait_ms(&c.quotas.request, now, True) if c.quotas.request.key else 0
        if produces and c.quotas.produce.key:
            wait_ms = max(wait_ms, min(quota_wait_ms(&c.quotas.produce, now, False), quota_span_ms()))
        if wait_ms == 0:
            return False
        c.quotas.fresh = False
        c.throttle_for(wait_ms)
        return True

    cdef int find(self, Connection c, uint64_t client, const uint8_t* client_id, int64_t length) except -1:
        cdef QuotaUse[QUOTA_KINDS] uses
        cdef int kind
        cdef int64_t now = monotonic_ms()
        memset(uses, 0, sizeof(uses))
        principal = ANONYMOUS if c.principal is None else c.principal
        c.quotas.version = 0
        c.quotas.limited = False
        limits = self.resolve(principal, PyBytes_FromStringAndSize(<const char*>client_id, length))
        for kind in range(QUOTA_KINDS):
            if limits[kind] is not None:
                limit, user, name = limits[kind]
                quota_find(kind, user, name, limit, c.owner, now, &uses[kind])
                c.quotas.limited = True
        c.quotas.produce = uses[<int>QUOTA_PRODUCE]
        c.quotas.fetch = uses[<int>QUOTA_FETCH]
        c.quotas.request_of_client = uses[<int>QUOTA_REQUEST]
        c.quotas.client = client
        c.quota_principal = c.principal
        c.quotas.fresh = c.quotas.limited and c.opened_ms > self.since_ms
        c.quotas.version = self.version
        return 0


cdef int64_t spend(Connection c) noexcept:
    cdef int64_t now = clock_us(), us = now - max(c.quotas.mark_us, c.responses.began_us)
    c.quotas.mark_us = now
    return max(us, <int64_t>0)


cdef int64_t charge_time(Connection c, QuotaUse* use, int64_t us) except -1:
    cdef int64_t wait_ms = quota_charge(use, QUOTA_REQUEST, us, monotonic_ms())
    c.throttle_for(wait_ms)
    return wait_ms


cdef int64_t charge_produce(Connection c, QuotaUse* produce, QuotaUse* request, int64_t size, int64_t us) except -1:
    cdef int64_t now = monotonic_ms(), wait_ms = quota_charge(produce, QUOTA_PRODUCE, size, now)
    if us >= 0:
        wait_ms = max(wait_ms, quota_charge(request, QUOTA_REQUEST, us, now))
    c.throttle_for(wait_ms)
    return wait_ms


cdef void charge_joined(QuotaUse* produce, QuotaUse* request, int64_t size, int64_t us, JointCharge* joint) noexcept:
    joint.now_ms = monotonic_ms()
    joint.bytes_left = size
    joint.above = quota_count(produce, size, joint.now_ms, &joint.bytes_rate)
    if us >= 0:
        joint.above |= quota_count(request, us, joint.now_ms, &joint.time_rate)


cdef int64_t wait_of_joined(Connection c, QuotaUse* produce, QuotaUse* request, int64_t size, bint timed, JointCharge* joint) except -1:
    cdef int64_t bytes_ms = 0, time_ms = 0
    joint.bytes_left -= size
    if produce.key:
        bytes_ms = quota_wait_at(produce, &joint.bytes_rate, joint.bytes_left, False)
    if timed and request.key:                 # the first of them has used all the time
        time_ms = quota_wait_at(request, &joint.time_rate, 0, True)
    if bytes_ms:
        quota_throttled(produce, QUOTA_PRODUCE, bytes_ms, joint.now_ms)
    if time_ms:
        quota_throttled(request, QUOTA_REQUEST, time_ms, joint.now_ms)
    c.throttle_for(max(bytes_ms, time_ms))
    return max(bytes_ms, time_ms)


cdef int64_t charge_fetch(Connection c, QuotaUse* fetch, QuotaUse* request, int64_t size, int64_t us, bint* empty) except -1:
    cdef int64_t now = monotonic_ms()
    cdef int64_t time_ms = quota_charge(request, QUOTA_REQUEST, us, now), bytes_ms = quota_charge(fetch, QUOTA_FETCH, size, now)
    cdef int64_t wait_ms = max(time_ms, bytes_ms)
    empty[0] = time_ms > 0 or (bytes_ms > 0 and not quota_exceeded_at_once(fetch, size, now))
    if empty[0] and fetch.key:
        quota_add(fetch, -size, now)              # the response that was counted is not sent
    c.throttle_for(wait_ms)
    return wait_ms
