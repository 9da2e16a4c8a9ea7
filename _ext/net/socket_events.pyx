"""The events of a worker's data sockets: one epoll descriptor, which the worker's event loop watches.

Runs in a worker, in the thread of its event loop. The registered events change only where they must, because each change is a system
call: EPOLLIN and EPOLLRDHUP may stay registered although nothing is to be read, until epoll reports one of them.
"""

from cpython.object cimport PyObject
from libc.errno cimport errno
from libc.stdint cimport uint32_t, uint64_t
from posix.unistd cimport close, read, write

from odradek._ext.net.connection cimport Connection


cdef extern from "<sys/epoll.h>" nogil:
    """
    #include <fcntl.h>
    #include <netinet/in.h>
    #include <netinet/tcp.h>
    #include <sys/epoll.h>
    #include <sys/socket.h>
    #include <unistd.h>

    static int make_data_socket(int fd) {
        int flags = fcntl(fd, F_GETFL), one = 1;
        if (flags < 0) return -1;
        if (!(flags & O_NONBLOCK) && fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0) return -1;
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);   /* fails on a Unix socket, which does not need it */
        return 0;
    }
    """
    int epoll_create1(int flags)
    int epoll_ctl(int epoll_fd, int operation, int fd, epoll_event* event)
    int epoll_wait(int epoll_fd, epoll_event* events, int room, int timeout)
    int EPOLL_CLOEXEC, EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLL_CTL_MOD
    int make_data_socket(int fd)

cdef extern from "<sys/eventfd.h>" nogil:
    int eventfd(unsigned int initial, int flags)
    int EFD_CLOEXEC, EFD_NONBLOCK


cdef class SocketEvents:

    def __cinit__(self):
        self.again_fd = -1
        self.unread = []
        self.epoll_fd = epoll_create1(EPOLL_CLOEXEC)
        if self.epoll_fd < 0:
            raise OSError(errno, "epoll_create1 failed")

    def __dealloc__(self):
        if self.again_fd >= 0:
            close(self.again_fd)
        if self.epoll_fd >= 0:
            close(self.epoll_fd)

    cdef int begin_tls(self) except -1:
        """Open the eventfd of `unread`."""
        cdef epoll_event event
        cdef int error
        if self.again_fd >= 0:
            return 0
        self.again_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)
        event.events = EPOLLIN
        event.data.ptr = NULL
        if self.again_fd < 0:
            raise OSError(errno, "eventfd failed")
        if epoll_ctl(self.epoll_fd, EPOLL_CTL_ADD, self.again_fd, &event) < 0:
            error = errno
            close(self.again_fd)
            self.again_fd = -1     # the next call tries both again
            raise OSError(error, "epoll_ctl failed for the eventfd")
        return 0

    cdef int register(self, Connection c, uint32_t interest, bint prepared) noexcept:
        cdef epoll_event event
        c.state.interest = event.events = interest
        event.data.ptr = <void*><PyObject*>c
        if (not prepared and make_data_socket(c.fd) < 0) or epoll_ctl(self.epoll_fd, EPOLL_CTL_ADD, c.fd, &event) < 0:
            return errno
        return 0

    cdef void remove(self, Connection c) noexcept:
        cdef epoll_event event
        epoll_ctl(self.epoll_fd, EPOLL_CTL_DEL, c.fd, &event)

    cdef int ready(self, epoll_event* events, int room) noexcept:
        return epoll_wait(self.epoll_fd, events, room, 0)

    cdef int update_interest(self, Connection c, bint force) except -1:
        """Register the epoll events that the connection needs. :param force: also if only events of reading are removed."""
        cdef epoll_event event
        cdef uint32_t changed
        event.events = EPOLLOUT if c.output.blocked and (c.output.queue.head != NULL or c.output.sealed_bytes) else 0
        if not c.frames.hold and not c.state.eof:
            event.events |= EPOLLIN
        if not c.state.peer_finished:
            event.events |= EPOLLRDHUP
        changed = event.events ^ c.state.interest
        if changed & EPOLLOUT or changed & event.events & EPOLLIN or (force and changed):
            event.data.ptr = <void*><PyObject*>c
            if epoll_ctl(self.epoll_fd, EPOLL_CTL_MOD, c.fd, &event) < 0:
                raise OSError(errno, "epoll_ctl failed")
            c.state.interest = event.events
        return 0

    cdef int continue_later(self, Connection c) except -1:
        """Continue with the unread records of the connection in the next turn: epoll does not report them."""
        cdef uint64_t one = 1
        if not c.tls.listed:
            c.tls.listed = True
            self.unread.append(c)
        if not self.again:
            self.again = True
            if write(self.again_fd, &one, sizeof(one)) < 0:
                raise OSError(errno, "cannot write to an eventfd")
        return 0

    cdef list take_unread(self):
        """Remove the connections that must continue from `unread`, and return them."""
        cdef list batch = self.unread
        cdef uint64_t ones
        self.unread = []
        self.again = False
        read(self.again_fd, &ones, sizeof(ones))
        return batch
