/* The least that a login with SCRAM costs the system: a server that computes nothing and sends prepared responses to the
 * generator's `logins --user`. `login_floor PORT PROCESSES`: with 0 processes it accepts and serves the connections itself.
 * With more it accepts them and passes each one to the next process, which reports its end, as the broker does. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MOST_FDS = 4096, EVENTS = 64, LONGEST = 4096, VERSIONS_BYTES = 449, LAST_BYTES = 90 };

static int steps[MOST_FDS]; /* how many requests of the connection were answered */

static void check(int failed, const char *what) {
    if (failed) {
        perror(what);
        exit(1);
    }
}

static void watch(int epoll, int fd) {
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP, .data.fd = fd};
    check(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event), "epoll_ctl");
}

static size_t put(uint8_t *at, const void *bytes, size_t size) {
    memcpy(at, bytes, size);
    return size;
}

/* The response to SaslHandshake, the client's first message, its last message, or ApiVersions. */
static size_t respond(int step, const uint8_t *request, size_t size, uint8_t *out) {
    static const char mechanism[] = "\0\0\0\1\0\0\0\0\0\1\0\rSCRAM-SHA-512";
    static const char rest[] = "0123456789abcdef0123456789abcdef,s=MDEyMzQ1Njc4OWFiY2RlZg==,i=4096";
    size_t at = 4;
    if (step == 0) {
        at += put(out + at, mechanism, sizeof mechanism - 1);
    } else if (step < 3) {
        uint8_t token[LONGEST];
        size_t length = 0;
        if (step == 1) {
            const uint8_t *nonce = memmem(request, size, ",r=", 3);
            check(!nonce, "no nonce");
            length += put(token, nonce + 1, (size_t)(request + size - nonce - 1));
            length += put(token + length, rest, sizeof rest - 1);
        } else {
            memset(token, 'v', LAST_BYTES);
            length = LAST_BYTES;
        }
        uint32_t field = htonl((uint32_t)length);
        at += put(out + at, "\0\0\0\1\0\0\0\0", 8);
        at += put(out + at, &field, 4);
        at += put(out + at, token, length);
        memset(out + at, 0, 8);
        at += 8;
    } else {
        memset(out + at, 0, VERSIONS_BYTES);
        at += VERSIONS_BYTES;
    }
    uint32_t field = htonl((uint32_t)at - 4);
    memcpy(out, &field, 4);
    return at;
}

/* A connection is readable. Returns whether it was closed. */
static int serve(int fd) {
    uint8_t in[LONGEST], out[LONGEST];
    ssize_t got = recv(fd, in, sizeof in, MSG_DONTWAIT);
    if (got <= 0) {
        close(fd);
        return 1;
    }
    size_t size = respond(steps[fd]++, in, (size_t)got, out);
    check(send(fd, out, size, MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)size, "send");
    return 0;
}

static int receive_socket(int channel) {
    uint64_t number;
    char control[CMSG_SPACE(sizeof(int))];
    struct iovec part = {&number, sizeof number};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    if (recvmsg(channel, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT) <= 0)
        exit(0);
    int fd;
    memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof fd);
    return fd;
}

static void send_socket(int channel, int fd) {
    uint64_t number = (uint64_t)fd;
    char control[CMSG_SPACE(sizeof(int))] = {0};
    struct iovec part = {&number, sizeof number};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    check(sendmsg(channel, &message, 0) < 0, "sendmsg");
    close(fd);
}

static void begin(int epoll, int fd) {
    int one = 1;
    check(fd >= MOST_FDS, "too many connections");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    steps[fd] = 0;
    watch(epoll, fd);
}

static void work(int channel) {
    int epoll = epoll_create1(0);
    struct epoll_event events[EVENTS];
    uint64_t closed = 1;
    watch(epoll, channel);
    for (;;) {
        int count = epoll_wait(epoll, events, EVENTS, -1), ended = 0;
        for (int i = 0; i < count; i++) {
            int fd = events[i].data.fd;
            if (fd == channel)
                begin(epoll, receive_socket(channel));
            else
                ended += serve(fd);
        }
        if (ended)
            check(send(channel, &closed, sizeof closed, 0) < 0, "send");
    }
}

int main(int count, char **arguments) {
    check(count != 3, "usage: login_floor PORT PROCESSES");
    int processes = atoi(arguments[2]), channels[16], listening = socket(AF_INET, SOCK_STREAM, 0), one = 1, next = 0;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(arguments[1]))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    check(processes < 0 || processes > 16, "at most 16 processes");
    setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    check(bind(listening, (struct sockaddr *)&address, sizeof address) || listen(listening, 128), "listen");
    for (int i = 0; i < processes; i++) {
        int pair[2];
        check(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair), "socketpair");
        pid_t child = fork();
        check(child < 0, "fork");
        if (!child) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            work(pair[1]);
        }
        channels[i] = pair[0];
    }
    int epoll = epoll_create1(0);
    struct epoll_event events[EVENTS];
    watch(epoll, listening);
    for (int i = 0; i < processes; i++)
        watch(epoll, channels[i]);
    puts("ready");
    fflush(stdout);
    for (;;) {
        int ready = epoll_wait(epoll, events, EVENTS, -1);
        for (int i = 0; i < ready; i++) {
            int fd = events[i].data.fd;
            if (fd == listening) {
                int accepted = accept4(listening, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
                check(accepted < 0, "accept4");
                if (processes)
                    send_socket(channels[next++ % processes], accepted);
                else
                    begin(epoll, accepted);
            } else if (processes) {
                uint64_t closed;
                while (recv(fd, &closed, sizeof closed, MSG_DONTWAIT) > 0)
                    ;
            } else {
                serve(fd);
            }
        }
    }
}
