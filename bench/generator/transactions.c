/* `transactions`: transactional producers, one on each connection, with one transaction in flight each. A transaction writes
 * --batches times to --spread partitions, and is committed. Connection i writes to the partitions from i * spread on, modulo
 * --partitions. With --transform each transaction also fetches a record before, from a partition that no other connection
 * reads (number --partitions + i), and commits its offset for a group of this connection.
 *
 * The next transaction begins when EndTxn is answered. An answer that clients retry (CONCURRENT_TRANSACTIONS) is retried after
 * the time that Java and librdkafka wait; the retries are counted.
 * Checked: every answer in order and without error; afterwards the logs have grown by exactly what was committed, with one
 * marker for each transaction, and the groups have the offsets of the last transactions. */
#include "producers.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

enum { OFFSET_FETCH_VERSION = 7, UNSTABLE_OFFSET_COMMIT = 88, INPUT_BATCHES = 500, TICK = 256, RESPONSE_BYTES = 8192 };
enum step { FETCH_RECORD, ADD_PARTITIONS, WRITE, ADD_OFFSETS, COMMIT_OFFSETS, END, STEPS };

struct writer {
    int fd, first;
    char group[TRANSACTIONAL_ID_BYTES];
    struct producer producer;
    struct prepared requests[STEPS];
    enum step step;
    int begun, answered;         /* requests of this step */
    const uint8_t *out;          /* what is left to send of the last one */
    size_t left;
    uint32_t sent, received;     /* correlation ids */
    uint64_t began_ns, retry_ns; /* of the transaction; when the step is repeated, 0 if it is not */
    uint64_t completed;
    int64_t offset, committed;   /* of the next record that is fetched; the last one that was committed */
    bool idle;
    size_t have;
    uint8_t in[RESPONSE_BYTES];
};

struct transactions {
    const struct options *options;
    struct batch batch;
    struct producer_crc crc;
    struct writer *writers;
    struct latencies latencies;
    uint64_t retries;
    int epoll, busy;
    bool stopping;
};

static bool has_step(const struct options *options, enum step step) {
    switch (step) {
    case FETCH_RECORD:
    case COMMIT_OFFSETS: return options->transform;
    case ADD_PARTITIONS: return options->protocol == 1;
    case ADD_OFFSETS: return options->protocol == 1 && options->transform;
    default: return true;
    }
}

static void begin_step(struct transactions *run, struct writer *writer, enum step step) {
    while (!has_step(run->options, step))
        step++;
    writer->step = step;
    writer->begun = writer->answered = 0;
}

static void begin_transaction(struct transactions *run, struct writer *writer) {
    if (run->stopping) {
        writer->idle = true;
        run->busy--;
        return;
    }
    writer->began_ns = now_ns();
    begin_step(run, writer, FETCH_RECORD);
}

/* How many requests the step has, and how many of them may be in flight: the first one opens the transaction. */
static int of_step(const struct transactions *run, const struct writer *writer) { return writer->step == WRITE ? run->options->batches : 1; }

static int at_once(const struct transactions *run, const struct writer *writer) {
    return writer->step == WRITE && writer->answered ? run->options->inflight : 1;
}

static void prepare_next(struct transactions *run, struct writer *writer) {
    struct prepared *request = &writer->requests[writer->step];
    if (request->producer_at)
        set_producer(request, &writer->producer);
    if (writer->step == FETCH_RECORD)
        set_offset(request, writer->offset);
    if (writer->step == COMMIT_OFFSETS)
        set_offset(request, writer->committed = writer->offset);
    if (writer->step == WRITE) {
        set_batches(request, &writer->producer, &run->crc);
        writer->producer.sequence += run->batch.records;
    }
    store_u32(request->bytes.data + 8, writer->sent++);
    writer->begun++;
    writer->out = request->bytes.data;
    writer->left = request->bytes.size;
}

/* Sends what may be sent now, as far as the socket takes it. */
static void pump(struct transactions *run, struct writer *writer) {
    for (;;) {
        while (writer->left) {
            ssize_t sent = send(writer->fd, writer->out, writer->left, MSG_DONTWAIT | MSG_NOSIGNAL);
            if (sent < 0 && (errno == EAGAIN || errno == EINTR))
                return;
            if (sent < 0)
                die("send: %s", strerror(errno));
            writer->out += sent;
            writer->left -= (size_t)sent;
        }
        if (writer->idle || writer->retry_ns || writer->begun == of_step(run, writer) ||
            writer->begun - writer->answered >= at_once(run, writer))
            return;
        prepare_next(run, writer);
    }
}

/* The error of an answer to the present step. `frame` begins with the size field. */
static int16_t read_answer(struct transactions *run, struct writer *writer, const uint8_t *frame, size_t size) {
    const struct options *options = run->options;
    struct cursor response = {frame + 4, frame + size};
    struct fetched fetched;
    switch (writer->step) {
    case FETCH_RECORD:
        if (!read_fetch_head(frame, size, &fetched) || fetched.error)
            die("a Fetch was answered with error %d", fetched.error);
        int64_t before = writer->offset;
        check_batches(frame + fetched.records_at, fetched.records_bytes, &writer->offset, NULL);
        if (writer->offset != before + 1)
            die("a Fetch brought %lld records; 1 was due", (long long)(writer->offset - before));
        return 0;
    case ADD_PARTITIONS: return read_added_partitions(response, options->spread);
    case WRITE: return read_produced(response, options->spread);
    case ADD_OFFSETS: return read_added_offsets(response);
    case COMMIT_OFFSETS: return read_offsets(response);
    default: return read_end(response, options->protocol, &writer->producer);
    }
}

static void answered(struct transactions *run, struct writer *writer, const uint8_t *frame, size_t size) {
    if (load_u32(frame + 4) != writer->received++)
        die("an answer is out of order");
    int16_t error = read_answer(run, writer, frame, size);
    if (is_retried(error) && writer->begun - writer->answered == 1) {
        run->retries++;
        writer->begun--;
        writer->retry_ns = now_ns() + RETRY_NS;
        if (writer->step == WRITE)
            writer->producer.sequence -= run->batch.records;
        return;
    }
    if (error)
        die("a request of API %d was answered with error %d%s", writer->requests[writer->step].bytes.data[5], error,
            writer->step == WRITE ? message_of_produce() : "");
    if (++writer->answered < of_step(run, writer))
        return;
    if (writer->step != END) {
        begin_step(run, writer, writer->step + 1);
        return;
    }
    writer->completed++;
    if (writer->offset == INPUT_BATCHES)
        writer->offset = 0;
    add_latency(&run->latencies, now_ns() - writer->began_ns);
    begin_transaction(run, writer);
}

static void receive(struct transactions *run, struct writer *writer) {
    for (;;) {
        size_t room = sizeof writer->in - writer->have, at = 0;
        ssize_t got = recv(writer->fd, writer->in + writer->have, room, MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (got <= 0)
            die("the broker closed a connection after %llu transactions", (unsigned long long)writer->completed);
        writer->have += (size_t)got;
        while (writer->have - at >= 4) {
            size_t size = 4 + (size_t)load_u32(writer->in + at);
            if (size > sizeof writer->in)
                die("a response of %zu bytes", size);
            if (writer->have - at < size)
                break;
            answered(run, writer, writer->in + at, size);
            at += size;
        }
        memmove(writer->in, writer->in + at, writer->have - at);
        writer->have -= at;
        if ((size_t)got < room)
            return;
    }
}

/* Repeats the steps that are due; ms until the next one, at most a second. */
static int retry_due(struct transactions *run) {
    uint64_t now = now_ns(), next = now + 1000000000;
    for (int i = 0; i < run->options->connections; i++) {
        struct writer *writer = &run->writers[i];
        if (!writer->retry_ns)
            continue;
        if (writer->retry_ns <= now) {
            writer->retry_ns = 0;
            pump(run, writer);
        } else if (writer->retry_ns < next) {
            next = writer->retry_ns;
        }
    }
    return (int)((next - now + 999999) / 1000000);
}

/* Runs until all transactions that began within `seconds` are completed, or --requests of them; how many are. */
static uint64_t drive(struct transactions *run, double seconds, uint64_t requests) {
    const struct options *options = run->options;
    uint64_t deadline = now_ns() + (uint64_t)(seconds * 1e9), first = run->latencies.count = run->retries = 0;
    struct epoll_event events[TICK];
    run->stopping = false;
    run->busy = options->connections;
    for (int i = 0; i < options->connections; i++) {
        run->writers[i].idle = false;
        begin_transaction(run, &run->writers[i]);
        pump(run, &run->writers[i]);
    }
    int wait_ms = 1000;
    while (run->busy) {
        int count = epoll_wait(run->epoll, events, TICK, wait_ms);
        if (count < 0 && errno != EINTR)
            die("epoll_wait: %s", strerror(errno));
        for (int i = 0; i < count; i++) {
            receive(run, events[i].data.ptr);
            pump(run, events[i].data.ptr);
        }
        wait_ms = retry_due(run);
        if (requests ? run->latencies.count - first + (uint64_t)options->connections > requests : now_ns() >= deadline)
            run->stopping = true;
    }
    return run->latencies.count;
}

/* -- before and after -- */

static void open_writer(struct transactions *run, int control, const struct topic *topic, int number) {
    const struct options *options = run->options;
    struct writer *writer = &run->writers[number];
    char id[TRANSACTIONAL_ID_BYTES];
    snprintf(id, sizeof id, "%s-producer-%d", options->topic, number);
    snprintf(writer->group, sizeof writer->group, "%s-group-%d", options->topic, number);
    writer->first = number * options->spread % options->partitions;
    if (writer->first + options->spread > options->partitions)
        die("--partitions is not a multiple of --spread");
    writer->producer = init_producer(control, id);
    struct prepared *requests = writer->requests;
    prepare_add_partitions(&requests[ADD_PARTITIONS], id, options->topic, writer->first, options->spread);
    prepare_produce(&requests[WRITE], options->protocol, id, options->topic, writer->first, options->spread, &run->batch);
    prepare_end(&requests[END], options->protocol, id);
    if (options->transform) {
        int input = options->partitions + number;
        find_coordinator(control, writer->group, OF_GROUPS);
        prepare_fetch(&requests[FETCH_RECORD], topic, input, options->max_wait, (int)run->batch.size);
        prepare_add_offsets(&requests[ADD_OFFSETS], id, writer->group);
        prepare_offsets(&requests[COMMIT_OFFSETS], options->protocol, id, writer->group, options->topic, input);
    }
    writer->fd = connect_to(options, 0);
    set_nonblocking(writer->fd);
    struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = writer};
    if (epoll_ctl(run->epoll, EPOLL_CTL_ADD, writer->fd, &event))
        die("cannot watch a connection");
}

/* The records that a connection fetches, one in each batch. */
static void fill_input(const struct options *options, int fd, int partition) {
    struct options one = *options;
    struct buffer request = {0};
    one.records = 1;
    one.batch_bytes = 0;
    struct batch batch = batch_for(&one);
    put_produce(&request, options->topic, partition, 1, &batch, 1);
    for (int number = 0; number < INPUT_BATCHES; number++) {
        struct cursor response = ask(fd, &request);
        if (read_produce_response(response.at, (size_t)(response.end - response.at), 0) != number)
            die("the partition %d of %s is not empty", partition, options->topic);
    }
    free(request.data);
    free(batch.data);
}

static void check_logs(const struct transactions *run, int fd, const int64_t *before) {
    const struct options *options = run->options;
    int64_t *after = calloc((size_t)options->partitions, sizeof *after), *due = calloc((size_t)options->partitions, sizeof *due);
    uint64_t until = now_ns() + PATIENCE_NS;
    if (!after || !due)
        die("out of memory");
    for (int i = 0; i < options->connections; i++)
        for (int partition = run->writers[i].first; partition < run->writers[i].first + options->spread; partition++)
            due[partition] += (int64_t)run->writers[i].completed * (options->batches * run->batch.records + 1);
    for (int partition = 0; partition < options->partitions; partition++)
        for (;;) { /* the last markers may still be under way */
            list_offsets(fd, options->topic, options->partitions, LATEST, after);
            if (after[partition] - before[partition] == due[partition])
                break;
            if (now_ns() > until || after[partition] - before[partition] > due[partition])
                die("%s-%d grew by %lld offsets, committed were %lld", options->topic, partition,
                    (long long)(after[partition] - before[partition]), (long long)due[partition]);
            pause_a_little();
        }
    free(after);
    free(due);
}

static void check_offset(const struct transactions *run, int fd, const struct writer *writer, int partition) {
    struct buffer request = {0};
    uint64_t until = now_ns() + PATIENCE_NS;
    begin_request(&request, OFFSET_FETCH, OFFSET_FETCH_VERSION, 0);
    put_compact_string(&request, writer->group);
    put_uvarint(&request, 2);
    put_compact_string(&request, run->options->topic);
    put_uvarint(&request, 2);
    put_i32(&request, partition);
    put_uvarint(&request, 0);
    put_i8(&request, 1); /* stable offsets */
    put_uvarint(&request, 0);
    end_request(&request);
    for (;;) {
        struct cursor response = ask(fd, &request);
        take_i32(&response);
        skip_tags(&response);
        take_i32(&response);
        if (take_uvarint(&response) != 2)
            die("an OffsetFetch was answered without its topic");
        skip_compact_bytes(&response);
        if (take_uvarint(&response) != 2)
            die("an OffsetFetch was answered without its partition");
        take_i32(&response);
        int64_t offset = take_i64(&response);
        take_i32(&response);
        skip_compact_bytes(&response);
        int16_t error = take_i16(&response);
        if (!error && offset == writer->committed)
            break;
        if ((error && error != UNSTABLE_OFFSET_COMMIT) || now_ns() > until)
            die("the group %s has offset %lld, error %d; committed was %lld", writer->group, (long long)offset, error,
                (long long)writer->committed);
        pause_a_little();
    }
    free(request.data);
}

void run_transactions(const struct options *options) {
    struct transactions run = {.options = options, .batch = batch_for(options), .epoll = epoll_create1(EPOLL_CLOEXEC)};
    int control = connect_to(options, 0);
    struct topic topic = find_topic(control, options->topic);
    if (topic.partitions < options->partitions + (options->transform ? options->connections : 0))
        die("%s has only %d partitions", options->topic, topic.partitions);
    int64_t *before = calloc((size_t)options->partitions, sizeof *before);
    run.writers = calloc((size_t)options->connections, sizeof *run.writers);
    if (!before || !run.writers || run.epoll < 0)
        die("out of memory or descriptors");
    run.crc = make_transactional(&run.batch);
    list_offsets(control, options->topic, options->partitions, LATEST, before);
    for (int i = 0; i < options->connections; i++) {
        if (options->transform)
            fill_input(options, control, options->partitions + i);
        open_writer(&run, control, &topic, i);
    }
    if (options->warmup > 0)
        drive(&run, options->warmup, 0);
    struct window window;
    open_window(&window, options);
    uint64_t completed = drive(&run, options->seconds, (uint64_t)options->requests);
    close_window(&window, options);
    check_logs(&run, control, before);
    for (int i = 0; options->transform && i < options->connections; i++)
        check_offset(&run, control, &run.writers[i], options->partitions + i);
    printf("{\"transactions\": %llu, \"retries\": %llu, \"bytes\": %llu", (unsigned long long)completed, (unsigned long long)run.retries,
           (unsigned long long)completed * (unsigned long long)(options->batches * options->spread) * (unsigned long long)run.batch.size);
    print_window(&window);
    print_latencies(&run.latencies);
    printf("}\n");
}
