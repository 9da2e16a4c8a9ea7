/* `deliver`: from sending a Produce request on one connection to having its record in the response of a Fetch that was
 * waiting on another. One record at a time, --pause seconds after the last so that the Fetch has begun to wait. */
#include "session.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

struct side {
    int fd;
    struct buffer response;
};

/* True when a whole response is there. */
static bool receive(struct side *side) {
    uint8_t block[65536];
    ssize_t got = recv(side->fd, block, sizeof block, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (got <= 0)
        die("the broker closed a connection");
    put_bytes(&side->response, block, (size_t)got);
    return side->response.size >= 4 && side->response.size == 4 + (size_t)load_u32(side->response.data);
}

static int64_t deliver_one(struct side *producer, struct side *consumer, const struct buffer *produce, struct latencies *latencies,
                           int64_t offset) {
    bool acknowledged = false, delivered = false;
    producer->response.size = 0;
    uint64_t began = now_ns();
    send_all(producer->fd, produce->data, produce->size);
    while (!acknowledged || !delivered) {
        struct pollfd waiting[] = {{producer->fd, POLLIN, 0}, {consumer->fd, POLLIN, 0}};
        if (poll(waiting, 2, 10000) <= 0)
            die("nothing was delivered for 10 s");
        if (waiting[1].revents && receive(consumer)) {
            delivered = true;
            add_latency(latencies, now_ns() - began);
        }
        if (waiting[0].revents && receive(producer)) {
            acknowledged = true;
            if (read_produce_response(producer->response.data + 4, producer->response.size - 4, 0) != offset)
                die("a record got another offset than %lld", (long long)offset);
        }
    }
    struct fetched fetched;
    int64_t next_offset = offset;
    if (!read_fetch_head(consumer->response.data, consumer->response.size, &fetched) || fetched.error)
        die("a Fetch was answered with error %d", fetched.error);
    check_batches(consumer->response.data + fetched.records_at, fetched.records_bytes, &next_offset, NULL);
    if (next_offset != offset + 1)
        die("a Fetch that was due brought no record");
    return next_offset;
}

void run_deliver(const struct options *options) {
    struct options one = *options;
    one.records = 1;
    struct batch batch = batch_for(&one);
    struct buffer produce = {0}, fetch = {0};
    struct side producer = {.fd = connect_to(options, 0)}, consumer = {.fd = connect_to(options, 0)};
    struct topic topic = find_topic(producer.fd, options->topic);
    int64_t offset;
    list_offsets(producer.fd, options->topic, 1, LATEST, &offset);
    put_produce(&produce, options->topic, 0, 1, &batch, options->acks);
    struct latencies latencies = {0};
    struct window window;
    struct timespec pause = {0, (long)(options->pause * 1e9)};
    uint64_t warm_until = now_ns() + (uint64_t)(options->warmup * 1e9);
    bool warm = options->warmup <= 0;
    if (warm)
        open_window(&window, options);
    uint64_t until = now_ns() + (uint64_t)(options->seconds * 1e9);
    while (!warm || now_ns() < until) {
        consumer.response.size = 0;
        put_fetch(&fetch, &topic, 0, offset, 10000, 1 << 20, READ_UNCOMMITTED);
        send_all(consumer.fd, fetch.data, fetch.size);
        nanosleep(&pause, NULL); /* the arrival of work, not a wait for the broker: see the head of this file */
        offset = deliver_one(&producer, &consumer, &produce, &latencies, offset);
        if (!warm && now_ns() >= warm_until) {
            warm = true;
            latencies.count = 0;
            open_window(&window, options);
            until = now_ns() + (uint64_t)(options->seconds * 1e9);
        }
    }
    close_window(&window, options);
    printf("{\"records\": %zu", latencies.count);
    print_window(&window);
    print_latencies(&latencies);
    printf("}\n");
}
