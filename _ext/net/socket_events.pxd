"""The part of the data loop that uses epoll: one descriptor reports which sockets of connections are ready."""

from libc.stdint cimport uint32_t

from odradek._ext.net.connection cimport Connection


cdef extern from "<sys/epoll.h>" nogil:
    ctypedef union epoll_data_t:
        void* ptr
    struct epoll_event:
        uint32_t events
        epoll_data_t data
    uint32_t EPOLLIN, EPOLLOUT, EPOLLRDHUP, EPOLLHUP, EPOLLERR


cdef class SocketEvents:
    """Owns the epoll descriptor, and `LoopState.interest` of each connection. An event points to its Connection
    (`event.data.ptr`) and holds no reference to it; NULL: connections in `unread` must continue.
    """
    cdef int epoll_fd
    cdef int again_fd                          # eventfd, readable while `unread` is not empty; -1 until a listener uses TLS
    cdef bint again
    cdef list unread                           # connections with received TLS records that continue in the next turn
    cdef int begin_tls(self) except -1
    # Registers a new connection. Returns 0, or the errno of the failure.
    cdef int register(self, Connection c, uint32_t interest, bint prepared) noexcept
    cdef void remove(self, Connection c) noexcept
    cdef int update_interest(self, Connection c, bint force) except -1
    cdef int continue_later(self, Connection c) except -1
    cdef list take_unread(self)
    # Stores at most `room` events that are ready now, and returns their number; -1: an error.
    cdef int ready(self, epoll_event* events, int room) noexcept
