"""Checks for late requests: since when a request waits, whether its client disconnected, and whether it must be executed nevertheless.

See late_requests.pxd for the rule. Used in the event loops of workers and of the coordinator. No state, no lock.
"""

from libc.stdint cimport int16_t, int64_t, uint8_t

from odradek._ext.protocol.api_versions cimport (
    CONSUMER_GROUP_HEARTBEAT,
    LEAVE_GROUP,
    LEAVE_GROUP_FLEXIBLE,
    PRODUCE,
    PRODUCE_FLEXIBLE,
)
from odradek._ext.protocol.cursor cimport (
    Cursor,
    cursor_init,
    read_bytes,
    read_int16,
    read_int32,
    read_length,
    read_string_length,
    skip_tagged_fields,
)


cdef extern from "<netinet/tcp.h>" nogil:
    """
    #include <netinet/in.h>
    #include <poll.h>
    #include <stdint.h>
    #include <sys/socket.h>

    static int64_t odradek_last_arrival_age_ms(int fd) {
        struct tcp_info info;
        socklen_t size = sizeof info;
        if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return -1;
        return (int64_t)info.tcpi_last_data_recv;
    }

    static int odradek_ended_by_peer(int fd) {
        struct pollfd event = { fd, POLLRDHUP, 0 };
        return poll(&event, 1, 0) > 0;        /* poll always reports POLLHUP and POLLERR too */
    }
    """
    int64_t odradek_last_arrival_age_ms(int fd)
    int odradek_ended_by_peer(int fd)


cdef enum:
    PRODUCE_WITH_TRANSACTIONS = 3
    LEAVE_MANY = 3
    LEAVE_WITH_REASON = 5


cdef int64_t last_arrival_age_ms(int fd) noexcept nogil:
    return odradek_last_arrival_age_ms(fd)


cdef bint ended_by_peer(int fd) noexcept nogil:
    return odradek_ended_by_peer(fd) != 0


cdef inline int64_t skip_string(Cursor* c, bint compact) noexcept nogil:
    """Skip a string and return its length; -1 for null."""
    cdef int64_t length = read_string_length(c, compact)
    if length > 0:
        read_bytes(c, length)
    return length


cdef bint is_unawaited(const uint8_t* request, int64_t size) noexcept nogil:
    """True for a Produce with acks=0, which has no response, and for the request by which a closing consumer leaves its group.

    Such a request does no harm, however late it is executed: the client does not send the records again, and only one consumer uses a
    member id. An administrator's request to remove a static member names no member id, and awaits the response.
    """
    cdef Cursor c
    cdef int16_t key, version
    cdef int64_t members
    cursor_init(&c, request, size)
    key = read_int16(&c)
    version = read_int16(&c)
    read_int32(&c)
    skip_string(&c, False)
    if key == PRODUCE:
        if version >= PRODUCE_FLEXIBLE:
            skip_tagged_fields(&c)
        if version >= PRODUCE_WITH_TRANSACTIONS:
            skip_string(&c, version >= PRODUCE_FLEXIBLE)
        return read_int16(&c) == 0 and not c.error
    if key == CONSUMER_GROUP_HEARTBEAT:
        skip_tagged_fields(&c)
        skip_string(&c, True)
        return skip_string(&c, True) > 0 and read_int32(&c) < 0 and not c.error
    if key != LEAVE_GROUP:
        return False
    if version >= LEAVE_GROUP_FLEXIBLE:
        skip_tagged_fields(&c)
    skip_string(&c, version >= LEAVE_GROUP_FLEXIBLE)
    if version < LEAVE_MANY:
        return skip_string(&c, False) > 0 and not c.error
    members = read_length(&c, version >= LEAVE_GROUP_FLEXIBLE)
    while members > 0 and not c.error:
        if skip_string(&c, version >= LEAVE_GROUP_FLEXIBLE) <= 0:
            return False
        skip_string(&c, version >= LEAVE_GROUP_FLEXIBLE)
        if version >= LEAVE_WITH_REASON:
            skip_string(&c, True)
        if version >= LEAVE_GROUP_FLEXIBLE:
            skip_tagged_fields(&c)
        members -= 1
    return not c.error


def unawaited(bytes request not None) -> bool:
    """`is_unawaited` for Python: whether clients close the connection without awaiting the response to this request."""
    return is_unawaited(<const uint8_t*><const char*>request, len(request))
