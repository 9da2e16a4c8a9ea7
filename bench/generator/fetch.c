/* `fetch`: reads partitions again and again, --max-bytes at a time, one Fetch in flight on each connection, until
 * --bytes were delivered in all. Connection i reads partition i modulo --partitions.
 * The log must hold one batch repeated (as `produce` leaves it): its size then tells how far a response reaches, and the
 * bytes of most responses can be dropped inside the kernel (MSG_TRUNC), which costs next to nothing here. The first
 * response of a connection and every --sample-th are read and checked whole. A pass must end exactly at the log's end.
 * Counted are whole batches: a batch that is cut off at the end of a response is of no use to a consumer. */
#include "session.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

enum { HEAD_BYTES = 512 };

struct reader {
    int fd, partition;
    struct buffer request;
    struct buffer frame; /* the whole response if it is sampled, else its first bytes */
    struct fetched fetched;
    bool head_read, sampled;
    size_t total, got; /* bytes of the response frame, size field included */
    int64_t start_offset, end_offset, offset;
    uint64_t responses, bytes, began_ns;
    bool idle;
};

struct fetch {
    const struct options *options;
    struct topic topic;
    struct reader *readers;
    struct batch batch; /* the one that the log repeats, as the first response shows it */
    uint64_t sampled;
    struct latencies latencies;
};

static void send_fetch(const struct fetch *run, struct reader *reader) {
    put_fetch(&reader->request, &run->topic, reader->partition, reader->offset, run->options->max_wait, run->options->max_bytes,
              READ_UNCOMMITTED);
    reader->sampled = reader->responses % (uint64_t)run->options->sample == 0;
    reader->head_read = false;
    reader->frame.size = reader->got = reader->total = 0;
    reader->idle = false;
    reader->began_ns = now_ns();
    if (send(reader->fd, reader->request.data, reader->request.size, MSG_NOSIGNAL) != (ssize_t)reader->request.size)
        die("send: %s", strerror(errno));
}

/* Remembers the batch that the log repeats. */
static void learn(struct fetch *run, const struct reader *reader, const uint8_t *records) {
    int64_t offset = reader->offset;
    if (reader->fetched.records_bytes < BATCH_HEADER_BYTES)
        die("%s-%d has nothing to fetch", run->topic.name, reader->partition);
    run->batch.size = 12 + (size_t)load_u32(records + 8);
    run->batch.data = malloc(run->batch.size);
    if (!run->batch.data || run->batch.size > reader->fetched.records_bytes)
        die("the first batch of %s-%d is not whole", run->topic.name, reader->partition);
    memcpy(run->batch.data, records, run->batch.size);
    check_batches(records, run->batch.size, &offset, NULL);
    run->batch.records = (int)(offset - reader->offset);
}

static void finish(struct fetch *run, struct reader *reader) {
    int64_t next_offset = reader->offset;
    size_t whole;
    if (reader->sampled) {
        const uint8_t *records = reader->frame.data + reader->fetched.records_at;
        if (!run->batch.data)
            learn(run, reader, records);
        whole = check_batches(records, reader->fetched.records_bytes, &next_offset, &run->batch);
        run->sampled++;
    } else {
        whole = reader->fetched.records_bytes / run->batch.size * run->batch.size;
        next_offset += (int64_t)(whole / run->batch.size) * run->batch.records;
    }
    if (!whole || next_offset > reader->end_offset)
        die("a Fetch at offset %lld of %lld brought %zu bytes", (long long)reader->offset, (long long)reader->end_offset,
            reader->fetched.records_bytes);
    add_latency(&run->latencies, now_ns() - reader->began_ns);
    reader->bytes += whole;
    reader->responses++;
    reader->offset = next_offset == reader->end_offset ? reader->start_offset : next_offset;
    reader->idle = true;
}

/* Takes what is there; true if a response ended with it. */
static bool receive(struct fetch *run, struct reader *reader) {
    for (;;) {
        ssize_t got;
        if (reader->head_read && !reader->sampled) {
            got = discard(run->options, reader->fd, reader->total - reader->got);
        } else {
            size_t room = reader->head_read ? reader->total - reader->got : HEAD_BYTES - reader->got;
            if (reader->frame.room < reader->got + room) {
                reader->frame.room = reader->got + room;
                reader->frame.data = realloc(reader->frame.data, reader->frame.room);
                if (!reader->frame.data)
                    die("out of memory");
            }
            got = recv(reader->fd, reader->frame.data + reader->got, room, MSG_DONTWAIT);
        }
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            return false;
        if (got <= 0)
            die("the broker closed a connection after %llu responses", (unsigned long long)reader->responses);
        reader->got += (size_t)got;
        if (!reader->head_read && read_fetch_head(reader->frame.data, reader->got, &reader->fetched)) {
            if (reader->fetched.error)
                die("a Fetch was answered with error %d", reader->fetched.error);
            reader->head_read = true;
            reader->total = 4 + (size_t)load_u32(reader->frame.data);
        }
        if (reader->head_read && reader->got >= reader->total) {
            if (reader->got > reader->total)
                die("bytes after the end of a Fetch response");
            finish(run, reader);
            return true;
        }
    }
}

/* One Fetch after the other on every connection until each delivered `bytes` more; at least one. */
static void drive(struct fetch *run, int epoll, uint64_t bytes) {
    const struct options *options = run->options;
    int busy = options->connections;
    for (int i = 0; i < options->connections; i++) {
        run->readers[i].bytes = 0;
        send_fetch(run, &run->readers[i]);
    }
    struct epoll_event events[64];
    while (busy) {
        int count = epoll_wait(epoll, events, 64, 30000);
        if (count == 0)
            die("no answer for 30 s");
        for (int i = 0; i < count; i++) {
            struct reader *reader = events[i].data.ptr;
            if (reader->idle || !receive(run, reader))
                continue;
            if (reader->bytes >= bytes)
                busy--;
            else
                send_fetch(run, reader);
        }
    }
}

void run_fetch(const struct options *options) {
    struct fetch run = {.options = options};
    int control = connect_to(options, 0), epoll = epoll_create1(EPOLL_CLOEXEC);
    run.topic = find_topic(control, options->topic);
    run.readers = calloc((size_t)options->connections, sizeof *run.readers);
    int64_t *starts = calloc((size_t)options->partitions, sizeof *starts), *ends = calloc((size_t)options->partitions, sizeof *ends);
    if (!run.readers || !starts || !ends)
        die("out of memory");
    list_offsets(control, options->topic, options->partitions, EARLIEST, starts);
    list_offsets(control, options->topic, options->partitions, LATEST, ends);
    for (int i = 0; i < options->connections; i++) {
        struct reader *reader = &run.readers[i];
        reader->partition = i % options->partitions;
        reader->offset = reader->start_offset = starts[reader->partition];
        reader->end_offset = ends[reader->partition];
        reader->fd = connect_to(options, 0);
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = reader};
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, reader->fd, &event))
            die("cannot watch a connection");
    }
    drive(&run, epoll, 1); /* one response a connection: learns the batch */
    uint64_t each = (uint64_t)(options->bytes / options->connections), bytes = 0, responses = 0;
    if (options->warmup > 0)
        drive(&run, epoll, (uint64_t)((double)each * options->warmup));
    for (int i = 0; i < options->connections; i++)
        responses -= run.readers[i].responses;
    run.latencies.count = 0;
    struct window window;
    open_window(&window, options);
    drive(&run, epoll, each);
    close_window(&window, options);
    for (int i = 0; i < options->connections; i++) {
        bytes += run.readers[i].bytes;
        responses += run.readers[i].responses;
    }
    printf("{\"bytes\": %llu, \"responses\": %llu, \"checked_responses\": %llu, \"batch_bytes\": %zu", (unsigned long long)bytes,
           (unsigned long long)responses, (unsigned long long)run.sampled, run.batch.size);
    print_window(&window);
    print_latencies(&run.latencies);
    printf("}\n");
}
