/* `visible`: from sending an EndTxn on one connection to having the record of the transaction in the response of a Fetch with
 * read_committed that was waiting on another. One transaction of one record at a time; --pause seconds pass before its EndTxn,
 * so that the Fetch has begun to wait. */
#include "producers.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

enum { MAX_WAIT_MS = 10000, MAX_BYTES = 1 << 20 };

struct side {
    int fd;
    struct buffer response;
};

struct visible {
    const struct options *options;
    struct producer producer;
    struct prepared add, produce, end, fetch;
    struct producer_crc crc;
    struct side writer, reader;
    struct latencies latencies;
    uint64_t retries;
    int64_t offset;
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

/* The record, uncommitted. */
static void write_record(struct visible *run) {
    bool added = run->options->protocol == 2;
    for (;;) {
        struct prepared *request = added ? &run->produce : &run->add;
        if (added)
            set_batches(request, &run->producer, &run->crc);
        else
            set_producer(request, &run->producer);
        struct cursor response = ask(run->writer.fd, &request->bytes);
        int16_t error = added ? read_produced(response, 1) : read_added_partitions(response, 1);
        if (!error && added)
            break;
        if (!error)
            added = true;
        else if (!is_retried(error))
            die("a request of API %d was answered with error %d", request->bytes.data[5], error);
        else {
            run->retries++;
            pause_a_little();
        }
    }
    run->producer.sequence++;
}

static void commit(struct visible *run) {
    bool ended = false, delivered = false;
    run->writer.response.size = 0;
    set_producer(&run->end, &run->producer);
    uint64_t began = now_ns();
    send_all(run->writer.fd, run->end.bytes.data, run->end.bytes.size);
    while (!ended || !delivered) {
        struct pollfd waiting[] = {{run->writer.fd, POLLIN, 0}, {run->reader.fd, POLLIN, 0}};
        if (poll(waiting, 2, MAX_WAIT_MS) <= 0)
            die("nothing was delivered for %d ms", MAX_WAIT_MS);
        if (waiting[1].revents && receive(&run->reader)) {
            delivered = true;
            add_latency(&run->latencies, now_ns() - began);
        }
        if (waiting[0].revents && receive(&run->writer)) {
            ended = true;
            struct cursor response = {run->writer.response.data + 4, run->writer.response.data + run->writer.response.size};
            int16_t error = read_end(response, run->options->protocol, &run->producer);
            if (error)
                die("an EndTxn was answered with error %d", error);
        }
    }
    struct fetched fetched;
    int64_t next = run->offset;
    if (!read_fetch_head(run->reader.response.data, run->reader.response.size, &fetched) || fetched.error)
        die("a Fetch was answered with error %d", fetched.error);
    check_batches(run->reader.response.data + fetched.records_at, fetched.records_bytes, &next, NULL);
    if (next != run->offset + 2)
        die("a Fetch brought %lld offsets; a record and a marker were due", (long long)(next - run->offset));
    run->offset = next;
}

void run_visible(const struct options *options) {
    struct options one = *options;
    one.records = 1;
    struct batch batch = batch_for(&one);
    struct visible run = {.options = options, .crc = make_transactional(&batch)};
    char id[TRANSACTIONAL_ID_BYTES];
    snprintf(id, sizeof id, "%s-producer", options->topic);
    run.writer.fd = connect_to(options, 0);
    run.reader.fd = connect_to(options, 0);
    struct topic topic = find_topic(run.writer.fd, options->topic);
    list_offsets(run.writer.fd, options->topic, 1, LATEST, &run.offset);
    run.producer = init_producer(run.writer.fd, id);
    prepare_add_partitions(&run.add, id, options->topic, 0, 1);
    prepare_produce(&run.produce, options->protocol, id, options->topic, 0, 1, &batch);
    prepare_end(&run.end, options->protocol, id);
    prepare_fetch(&run.fetch, &topic, 0, MAX_WAIT_MS, MAX_BYTES);
    struct window window;
    struct timespec pause = {0, (long)(options->pause * 1e9)};
    uint64_t warm_until = now_ns() + (uint64_t)(options->warmup * 1e9);
    bool warm = options->warmup <= 0;
    if (warm)
        open_window(&window, options);
    uint64_t until = now_ns() + (uint64_t)(options->seconds * 1e9);
    while (!warm || now_ns() < until) {
        write_record(&run);
        run.reader.response.size = 0;
        set_offset(&run.fetch, run.offset);
        send_all(run.reader.fd, run.fetch.bytes.data, run.fetch.bytes.size);
        nanosleep(&pause, NULL); /* the arrival of work, not a wait for the broker: see the head of this file */
        commit(&run);
        if (!warm && now_ns() >= warm_until) {
            warm = true;
            run.latencies.count = run.retries = 0;
            open_window(&window, options);
            until = now_ns() + (uint64_t)(options->seconds * 1e9);
        }
    }
    close_window(&window, options);
    printf("{\"transactions\": %zu, \"retries\": %llu", run.latencies.count, (unsigned long long)run.retries);
    print_window(&window);
    print_latencies(&run.latencies);
    printf("}\n");
}
