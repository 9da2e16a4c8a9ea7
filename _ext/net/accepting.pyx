"""Accepting connections with one system call and no socket object for each, and reading which ones were closed with one for many
reports. Used by the acceptor, in the supervisor's loop."""

from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport uint16_t, uint64_t
from libc.string cimport memcpy, strerror


cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <arpa/inet.h>
    #include <netinet/in.h>
    #include <string.h>
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

    #define REPORTS 16
    #define REPORT_BYTES 4000

    /* Receives up to REPORTS messages of at most REPORT_BYTES. Returns their number, and the size of each. */
    static int receive_reports(int fd, char *data, unsigned *sizes) {
        struct mmsghdr messages[REPORTS];
        struct iovec parts[REPORTS];
        memset(messages, 0, sizeof messages);
        for (int i = 0; i < REPORTS; i++) {
            parts[i].iov_base = data + i * REPORT_BYTES;
            parts[i].iov_len = REPORT_BYTES;
            messages[i].msg_hdr.msg_iov = &parts[i];
            messages[i].msg_hdr.msg_iovlen = 1;
        }
        int count = recvmmsg(fd, messages, REPORTS, MSG_DONTWAIT, NULL);
        for (int i = 0; i < count; i++)
            sizes[i] = messages[i].msg_len;
        return count;
    }
    """
    int accept_client(int listening, char* host, uint16_t* port) nogil
    int receive_reports(int fd, char* data, unsigned int* sizes) nogil
    int REPORTS, REPORT_BYTES


def accept(int listening) -> tuple[int, str, int] | None:
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


cdef char[64000] reports               # REPORTS messages; used by one thread, within one call


def read_reports(int fd) -> list[int]:
    """The ids, 8 bytes each in the order of this machine, in the messages that wait on a SOCK_SEQPACKET socket.

    A message has at most 500 ids, see `odradek.net.handover`. :raises OSError: see recvmmsg(2).
    """
    cdef list ids = []
    cdef unsigned int[16] sizes
    cdef uint64_t number
    cdef unsigned int at
    cdef int count, i
    while True:
        count = receive_reports(fd, reports, sizes)
        if count < 0:
            if errno == EINTR:
                continue
            if errno == EAGAIN:
                return ids
            raise OSError(errno, strerror(errno).decode())
        for i in range(count):
            if sizes[i] == 0:          # the other end is closed
                return ids
            for at in range(0, sizes[i] // 8 * 8, 8):
                memcpy(&number, reports + i * REPORT_BYTES + at, 8)
                ids.append(number)
        if count < REPORTS:
            return ids
