/* `longpoll`: many consumers that wait. Each of --connections long-polls one partition (number i modulo --partitions),
 * while one producer appends single records, --rate a second in all, to the partitions in turn. Fetches wait up to
 * --max-wait ms, so some are answered empty.
 * Checked: every consumer has every record of its partition in the end, in order, with its CRC. */
#include "session.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

enum { RESPONSE_BYTES = 16384 };

struct consumer {
    int fd, partition;
    int64_t offset;
    struct buffer response;
};

struct longpoll {
    const struct options *options;
    struct topic topic;
    struct consumer *consumers;
    int64_t *ends;
    uint64_t *produced_ns; /* when the newest record of a partition was sent */
    uint64_t filled, empty, producing, acknowledged;
    int epoll, producer;
    struct buffer *requests; /* one a partition */
    struct buffer acks;
    struct latencies latencies;
};

static void send_fetch(struct longpoll *run, struct consumer *consumer) {
    static struct buffer request;
    put_fetch(&request, &run->topic, consumer->partition, consumer->offset, run->options->max_wait, 1 << 20, READ_UNCOMMITTED);
    consumer->response.size = 0;
    send_all(consumer->fd, request.data, request.size);
}

static void receive(struct longpoll *run, struct consumer *consumer) {
    uint8_t block[RESPONSE_BYTES];
    ssize_t got = recv(consumer->fd, block, sizeof block, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0)
        die("the broker closed a consumer's connection");
    put_bytes(&consumer->response, block, (size_t)got);
    if (consumer->response.size < 4 || consumer->response.size < 4 + (size_t)load_u32(consumer->response.data))
        return;
    struct fetched fetched;
    if (!read_fetch_head(consumer->response.data, consumer->response.size, &fetched) || fetched.error)
        die("a Fetch was answered with error %d", fetched.error);
    if (fetched.records_bytes) {
        check_batches(consumer->response.data + fetched.records_at, fetched.records_bytes, &consumer->offset, NULL);
        if (consumer->offset == run->ends[consumer->partition])
            add_latency(&run->latencies, now_ns() - run->produced_ns[consumer->partition]);
        run->filled++;
    } else {
        run->empty++;
    }
    send_fetch(run, consumer);
}

static void produce(struct longpoll *run) {
    int partition = (int)(run->producing++ % (uint64_t)run->options->partitions);
    run->produced_ns[partition] = now_ns();
    run->ends[partition]++;
    send_all(run->producer, run->requests[partition].data, run->requests[partition].size);
}

static void receive_acks(struct longpoll *run) {
    uint8_t block[RESPONSE_BYTES];
    ssize_t got = recv(run->producer, block, sizeof block, MSG_DONTWAIT);
    if (got <= 0)
        die("the broker closed the producer's connection");
    put_bytes(&run->acks, block, (size_t)got);
    size_t at = 0;
    while (run->acks.size - at >= 4 && run->acks.size - at >= 4 + (size_t)load_u32(run->acks.data + at)) {
        size_t size = load_u32(run->acks.data + at);
        read_produce_response(run->acks.data + at + 4, size, 0);
        run->acknowledged++;
        at += 4 + size;
    }
    run->acks.size -= at;
    memmove(run->acks.data, run->acks.data + at, run->acks.size);
}

/* Polls and, while the clock is before `until`, produces at the rate. */
static void drive(struct longpoll *run, double seconds) {
    uint64_t began = now_ns(), until = began + (uint64_t)(seconds * 1e9);
    uint64_t step = (uint64_t)(1e9 / run->options->rate), next = began + step;
    struct epoll_event events[256];
    for (uint64_t now; (now = now_ns()) < until;) {
        for (; next <= now; next += step)
            produce(run);
        uint64_t wake = next < until ? next : until;
        int count = epoll_wait(run->epoll, events, 256, (int)((wake - now) / 1000000 + 1));
        for (int i = 0; i < count; i++) {
            if (events[i].data.ptr)
                receive(run, events[i].data.ptr);
            else
                receive_acks(run);
        }
    }
}

static int behind(const struct longpoll *run) {
    int count = run->producing != run->acknowledged;
    for (int i = 0; i < run->options->connections; i++)
        count += run->consumers[i].offset != run->ends[run->consumers[i].partition];
    return count;
}

static void catch_up(struct longpoll *run) {
    struct epoll_event events[256];
    for (uint64_t until = now_ns() + 10000000000; behind(run);) {
        if (now_ns() > until)
            die("%d consumers do not have all records after 10 s", behind(run));
        int count = epoll_wait(run->epoll, events, 256, 100);
        for (int i = 0; i < count; i++) {
            if (events[i].data.ptr)
                receive(run, events[i].data.ptr);
            else
                receive_acks(run);
        }
    }
}

void run_longpoll(const struct options *options) {
    struct longpoll run = {.options = options, .epoll = epoll_create1(EPOLL_CLOEXEC), .producer = connect_to(options, 0)};
    struct options one = *options;
    one.records = 1;
    struct batch batch = batch_for(&one);
    size_t partitions = (size_t)options->partitions;
    run.topic = find_topic(run.producer, options->topic);
    run.consumers = calloc((size_t)options->connections, sizeof *run.consumers);
    run.ends = calloc(partitions, sizeof *run.ends);
    run.produced_ns = calloc(partitions, sizeof *run.produced_ns);
    run.requests = calloc(partitions, sizeof *run.requests);
    if (!run.consumers || !run.ends || !run.produced_ns || !run.requests)
        die("out of memory");
    list_offsets(run.producer, options->topic, options->partitions, LATEST, run.ends);
    for (int partition = 0; partition < options->partitions; partition++)
        put_produce(&run.requests[partition], options->topic, partition, 1, &batch, options->acks);
    struct epoll_event event = {.events = EPOLLIN};
    if (epoll_ctl(run.epoll, EPOLL_CTL_ADD, run.producer, &event))
        die("cannot watch a connection");
    for (int i = 0; i < options->connections; i++) {
        struct consumer *consumer = &run.consumers[i];
        consumer->partition = i % options->partitions;
        consumer->offset = run.ends[consumer->partition];
        consumer->fd = connect_to(options, 0);
        event.data.ptr = consumer;
        if (epoll_ctl(run.epoll, EPOLL_CTL_ADD, consumer->fd, &event))
            die("cannot watch a connection");
        send_fetch(&run, consumer);
    }
    drive(&run, options->warmup > 0 ? options->warmup : 0.1);
    catch_up(&run);
    run.filled = run.empty = run.latencies.count = 0;
    struct window window;
    open_window(&window, options);
    drive(&run, options->seconds);
    close_window(&window, options);
    uint64_t filled = run.filled, empty = run.empty;
    catch_up(&run);
    printf("{\"responses\": %llu, \"filled\": %llu, \"empty\": %llu", (unsigned long long)(filled + empty), (unsigned long long)filled,
           (unsigned long long)empty);
    print_window(&window);
    print_latencies(&run.latencies);
    printf("}\n");
}
