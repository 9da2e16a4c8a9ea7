/* `produce`: the same prepared batch again and again, a fixed number of requests in flight on each connection.
 * Connection i writes to partition i modulo --partitions. Ends after --requests in all, or after --seconds.
 * Checked: every response in order, without error, with an offset above the last of its connection; afterwards the
 * logs have grown by exactly what was acknowledged, and their newest batches are those that were sent. */
#include "session.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>

enum { REQUESTS_A_SEND = 64, TICK = 256 };

struct stream {
    int fd, partition;
    struct buffer *request; /* shared by the streams of a partition; its first 12 bytes are replaced in each request */
    uint64_t sent_bytes, completed, limit;
    uint64_t *began_ns; /* a ring, one place a request in flight */
    int64_t last_offset;
    size_t have;
    uint8_t in[8192];
};

struct produce {
    const struct options *options;
    struct stream *streams;
    struct latencies latencies;
    int epoll;
};

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

static void read_responses(struct produce *run, struct stream *stream) {
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
                die("a Produce response of %zu bytes", size);
            if (stream->have - at - 4 < size)
                break;
            int64_t offset = read_produce_response(stream->in + at + 4, size, (uint32_t)stream->completed);
            if (offset <= stream->last_offset)
                die("offset %lld after %lld", (long long)offset, (long long)stream->last_offset);
            stream->last_offset = offset;
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

/* Runs until every stream completed `requests` more, or until `seconds` have passed and nothing is in flight. */
static uint64_t drive(struct produce *run, uint64_t requests, double seconds) {
    const struct options *options = run->options;
    uint64_t deadline = seconds > 0 ? now_ns() + (uint64_t)(seconds * 1e9) : UINT64_MAX, before = 0, after = 0;
    int busy = options->connections;
    run->latencies.count = 0;
    for (int i = 0; i < options->connections; i++) {
        struct stream *stream = &run->streams[i];
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
                run->streams[i].limit = begun(&run->streams[i]);
                if (run->streams[i].completed == run->streams[i].limit)
                    busy--;
            }
        }
    }
    for (int i = 0; i < options->connections; i++)
        after += run->streams[i].completed;
    return after - before;
}

/* The log ends moved by exactly what was acknowledged since `before`, and the newest batch is the one sent. */
static void check_logs(const struct produce *run, int fd, const struct topic *topic, const struct batch *batch, const int64_t *before) {
    int partitions = run->options->partitions;
    int64_t *after = calloc((size_t)partitions, sizeof *after);
    int64_t *acknowledged = calloc((size_t)partitions, sizeof *acknowledged);
    if (!after || !acknowledged)
        die("out of memory");
    for (int i = 0; i < run->options->connections; i++)
        acknowledged[run->streams[i].partition] += (int64_t)run->streams[i].completed * batch->records;
    list_offsets(fd, topic->name, partitions, LATEST, after);
    struct buffer request = {0};
    for (int partition = 0; partition < partitions; partition++) {
        if (after[partition] - before[partition] != acknowledged[partition])
            die("%s-%d grew by %lld records, acknowledged were %lld", topic->name, partition,
                (long long)(after[partition] - before[partition]), (long long)acknowledged[partition]);
        if (!acknowledged[partition])
            continue;
        put_fetch(&request, topic, partition, after[partition] - batch->records, 1000, (int)batch->size + 1024);
        struct cursor response = ask(fd, &request);
        struct fetched fetched;
        const uint8_t *frame = response.at - 4;
        int64_t next_offset = after[partition] - batch->records;
        if (!read_fetch_head(frame, (size_t)(response.end - frame), &fetched) || fetched.error)
            die("the newest batch of %s-%d cannot be fetched", topic->name, partition);
        check_batches(frame + fetched.records_at, fetched.records_bytes, &next_offset, batch);
        if (next_offset != after[partition])
            die("the newest batch of %s-%d is not there", topic->name, partition);
    }
    free(request.data);
    free(after);
    free(acknowledged);
}

void run_produce(const struct options *options) {
    struct produce run = {.options = options, .epoll = epoll_create1(EPOLL_CLOEXEC)};
    struct batch batch = batch_for(options);
    int control = connect_to(options, 0);
    struct topic topic = find_topic(control, options->topic);
    if (topic.partitions < options->partitions)
        die("%s has only %d partitions", options->topic, topic.partitions);
    int64_t *before = calloc((size_t)options->partitions, sizeof *before);
    struct buffer *requests = calloc((size_t)options->partitions, sizeof *requests);
    run.streams = calloc((size_t)options->connections, sizeof *run.streams);
    if (!before || !requests || !run.streams)
        die("out of memory");
    list_offsets(control, options->topic, options->partitions, LATEST, before);
    for (int i = 0; i < options->connections; i++) {
        struct stream *stream = &run.streams[i];
        stream->partition = i % options->partitions;
        stream->request = &requests[stream->partition];
        if (!stream->request->size)
            put_produce(stream->request, options->topic, stream->partition, 1, &batch);
        stream->began_ns = calloc((size_t)options->inflight, sizeof *stream->began_ns);
        stream->last_offset = -1;
        stream->fd = connect_to(options, 0);
        set_nonblocking(stream->fd);
        struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = stream};
        if (!stream->began_ns || epoll_ctl(run.epoll, EPOLL_CTL_ADD, stream->fd, &event))
            die("cannot watch a connection");
    }
    if (options->warmup > 0)
        drive(&run, 0, options->warmup);
    struct window window;
    open_window(&window, options);
    uint64_t each = (uint64_t)(options->requests / options->connections);
    uint64_t completed = drive(&run, each ? each : 1, options->requests ? 0 : options->seconds);
    close_window(&window, options);
    check_logs(&run, control, &topic, &batch, before);
    printf("{\"requests\": %llu, \"records\": %llu, \"bytes\": %llu, \"batch_bytes\": %zu, \"batch_records\": %d",
           (unsigned long long)completed, (unsigned long long)completed * (unsigned long long)batch.records,
           (unsigned long long)completed * (unsigned long long)batch.size, batch.size, batch.records);
    print_window(&window);
    print_latencies(&run.latencies);
    printf("}\n");
}
