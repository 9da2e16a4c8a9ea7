"""Accepting connections with one system call and no socket object for each, and reading of the reports of closed ones. Used by the
acceptor, in the supervisor's loop."""

from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int64_t, uint16_t, uint64_t
from libc.string cimport strerror


cdef extern from *:
    """
    #include <arpa/inet.h>
    #include <netinet/in.h>
    #include <sys/socket.h>

    #define ADDRESS_TEXT INET6_ADDRSTRLEN

    /* Accepts a connection as accept4 does, and writes the client's address as text, and its port. */
    static int accept_client(int listening, char *host, uint16_t *port) {
        struct sockaddr_storage storage;
        socklen_t length = sizeof storage;
        int fd = accept4(listening, (struct sockaddr *)&storage, &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
        host[0] = 0;
        *port = 0;
        if (fd < 0)
            return fd;
        if (storage.ss_family == AF_INET) {
            struct sockaddr_in *ipv4 = (struct sockaddr_in *)&storage;
            inet_ntop(AF_INET, &ipv4->sin_addr, host, ADDRESS_TEXT);
            *port = ntohs(ipv4->sin_port);
        } else if (storage.ss_family == AF_INET6) {
            struct sockaddr_in6 *ipv6 = (struct sockaddr_in6 *)&storage;
            inet_ntop(AF_INET6, &ipv6->sin6_addr, host, ADDRESS_TEXT);
            *port = ntohs(ipv6->sin6_port);
        }
        return fd;
    }
    """
    int accept_client(int listening, char* host, uint16_t* port) nogil

cdef extern from "<sys/socket.h>" nogil:
    ssize_t recv(int socket, void* data, size_t n, int flags)
    int MSG_DONTWAIT

cdef extern from "<endian.h>" nogil:
    uint64_t le64toh(uint64_t number)


cdef enum:
    NUMBERS_A_MESSAGE = 500


def accept(int listening):
    """Accept a connection: (fd, host, port), the socket non-blocking and close-on-exec, the host an address as text.

    :param listening: a non-blocking listening socket. Returns None if no connection waits. :raises OSError: see accept(2).
    """
    cdef char[64] host                 # at least INET6_ADDRSTRLEN
    cdef uint16_t port
    cdef int fd
    while True:
        fd = accept_client(listening, host, &port)
        if fd >= 0:
            return fd, (<bytes>host).decode("ascii"), port
        if errno == EAGAIN:
            return None
        if errno != EINTR:
            raise OSError(errno, strerror(errno).decode())


def read_numbers(int channel):
    """All numbers in the messages that wait in a channel of messages: a list, empty if none wait or the other end is closed.

    :param channel: a SOCK_SEQPACKET socket whose messages are up to 500 numbers of 8 bytes, little-endian; a part of a number at the end
        of a message is ignored. :raises OSError: see recv(2).
    """
    cdef uint64_t[NUMBERS_A_MESSAGE] data
    cdef list numbers = []
    cdef int64_t n, i
    while True:
        n = recv(channel, data, sizeof(data), MSG_DONTWAIT)
        if n < 0:
            if errno == EINTR:
                continue
            if errno != EAGAIN:
                raise OSError(errno, strerror(errno).decode())
        if n <= 0:
            return numbers
        for i in range(n // 8):
            numbers.append(le64toh(data[i]))
