/* See streams.h. */
#include "streams.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum { REQUESTS_A_SEND = 64, TICK = 256 };

static uint64_t begun(const struct stream *stream) {
    return (stream->sent_bytes + stream->request->size - 1) / stream->request->size;
}

/* Sends as much as may be in flight and the socket takes. */
static void pump(struct stream *stream, int inflight) {
    size_t size = stream->request->size;
    for (;;) {
        uint64_t target = stream->completed + (uint64_t)inflight;
        if (target > stream->limit)
            target = stream->limit;
        uint8_t prefixes[REQUESTS_A_SEND][REQUEST_PREFIX_BYTES];
        struct iovec spans[REQUESTS_A_SEND * 2];
        int count = 0;
        size_t wanted = 0;
        uint64_t at = stream->sent_bytes, first = begun(stream);
        while (at < target * size && count < REQUESTS_A_SEND * 2) {
            uint64_t number = at / size;
            size_t within = at % size;
            uint8_t *prefix = prefixes[count / 2];
            memcpy(prefix, stream->request->data, REQUEST_PREFIX_BYTES);
            store_u32(prefix + 8, (uint32_t)number);
            size_t of_prefix = within < REQUEST_PREFIX_BYTES ? REQUEST_PREFIX_BYTES - within : 0;
            size_t of_rest = size - within - of_prefix;
            spans[count++] = (struct iovec){prefix + REQUEST_PREFIX_BYTES - of_prefix, of_prefix};
            spans[count++] = (struct iovec){stream->request->data + size - of_rest, of_rest};
            wanted += of_prefix + of_rest;
            at += of_prefix + of_rest;
        }
        if (!wanted)
            return;
        uint64_t now = now_ns();
        struct msghdr message = {.msg_iov = spans, .msg_iovlen = (size_t)count};
        ssize_t sent = sendmsg(stream->fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (sent < 0)
            die("send: %s", strerror(errno));
        stream->sent_bytes += (uint64_t)sent;
        for (uint64_t number = first, end = begun(stream); number < end; number++)
            stream->began_ns[number % (uint64_t)inflight] = now;
        if ((size_t)sent < wanted)
            return;
    }
}

static void read_responses(struct streams *run, struct stream *stream) {
    for (;;) {
        size_t room = sizeof stream->in - stream->have;
        ssize_t got = recv(stream->fd, stream->in + stream->have, room, MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (got <= 0)
            die("the broker closed a connection after %llu responses", (unsigned long long)stream->completed);
        stream->have += (size_t)got;
        uint64_t now = now_ns();
        size_t at = 0;
        while (stream->have - at >= 4) {
            size_t size = load_u32(stream->in + at);
            if (size > sizeof stream->in - 4)
                die("a response of %zu bytes", size);
            if (stream->have - at - 4 < size)
                break;
            run->answered(stream, stream->in + at + 4, size, (uint32_t)stream->completed);
            add_latency(&run->latencies, now - stream->began_ns[stream->completed % (uint64_t)run->options->inflight]);
            stream->completed++;
            at += 4 + size;
        }
        memmove(stream->in, stream->in + at, stream->have - at);
        stream->have -= at;
        if ((size_t)got < room)
            return;
    }
}

struct streams make_streams(const struct options *options,
                            void (*answered)(struct stream *, const uint8_t *, size_t, uint32_t)) {
    struct streams run = {.options = options, .epoll = epoll_create1(EPOLL_CLOEXEC), .answered = answered};
    run.all = calloc((size_t)options->connections, sizeof *run.all);
    if (!run.all || run.epoll < 0)
        die("out of memory or descriptors");
    return run;
}

void open_stream(struct streams *run, struct stream *stream) {
    stream->began_ns = calloc((size_t)run->options->inflight, sizeof *stream->began_ns);
    stream->fd = connect_to(run->options, 0);
    set_nonblocking(stream->fd);
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = stream};
    if (!stream->began_ns || epoll_ctl(run->epoll, EPOLL_CTL_ADD, stream->fd, &event))
        die("cannot watch a connection");
}

uint64_t drive(struct streams *run, uint64_t requests, double seconds) {
    const struct options *options = run->options;
    uint64_t deadline = seconds > 0 ? now_ns() + (uint64_t)(seconds * 1e9) : UINT64_MAX, before = 0, after = 0;
    int busy = options->connections;
    run->latencies.count = 0;
    for (int i = 0; i < options->connections; i++) {
        struct stream *stream = &run->all[i];
        before += stream->completed;
        stream->limit = seconds > 0 ? UINT64_MAX / (stream->request->size + 1) : stream->completed + requests;
        pump(stream, options->inflight);
    }
    struct epoll_event events[TICK];
    while (busy) {
        int count = epoll_wait(run->epoll, events, TICK, 1000);
        if (count < 0 && errno != EINTR)
            die("epoll_wait: %s", strerror(errno));
        for (int i = 0; i < count; i++) {
            struct stream *stream = events[i].data.ptr;
            if (stream->completed == stream->limit)
                continue; /* an event of what it has already finished */
            read_responses(run, stream);
            pump(stream, options->inflight);
            if (stream->completed == stream->limit)
                busy--;
        }
        if (deadline != UINT64_MAX && now_ns() >= deadline) {
            deadline = UINT64_MAX;
            for (int i = 0; i < options->connections; i++) {
                run->all[i].limit = begun(&run->all[i]);
                if (run->all[i].completed == run->all[i].limit)
                    busy--;
            }
        }
    }
    for (int i = 0; i < options->connections; i++)
        after += run->all[i].completed;
    return after - before;
}
