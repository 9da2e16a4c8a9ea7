/* `produce`: the same prepared batch again and again, a fixed number of requests in flight on each connection.
 * Connection i writes to partition i modulo --partitions. Ends after --requests in all, or after --seconds.
 * Checked: every response in order, without error, with an offset above the last of its connection; afterwards the
 * logs have grown by exactly what was acknowledged, and their newest batches are those that were sent. */
#include "streams.h"

#include <stdio.h>
#include <stdlib.h>

/* Of one connection, in order: each offset is above the last. */
static void check_response(struct stream *stream, const uint8_t *payload, size_t size, uint32_t correlation_id) {
    int64_t offset = read_produce_response(payload, size, correlation_id);
    if (offset <= stream->last_offset)
        die("offset %lld after %lld", (long long)offset, (long long)stream->last_offset);
    stream->last_offset = offset;
}

/* The log ends moved by exactly what was acknowledged since `before`, and the newest batch is the one sent. */
static void check_logs(const struct streams *run, int fd, const struct topic *topic, const struct batch *batch, const int64_t *before) {
    int partitions = run->options->partitions;
    int64_t *after = calloc((size_t)partitions, sizeof *after);
    int64_t *acknowledged = calloc((size_t)partitions, sizeof *acknowledged);
    if (!after || !acknowledged)
        die("out of memory");
    for (int i = 0; i < run->options->connections; i++)
        acknowledged[run->all[i].partition] += (int64_t)run->all[i].completed * batch->records;
    list_offsets(fd, topic->name, partitions, LATEST, after);
    struct buffer request = {0};
    for (int partition = 0; partition < partitions; partition++) {
        if (after[partition] - before[partition] != acknowledged[partition])
            die("%s-%d grew by %lld records, acknowledged were %lld", topic->name, partition,
                (long long)(after[partition] - before[partition]), (long long)acknowledged[partition]);
        if (!acknowledged[partition])
            continue;
        put_fetch(&request, topic, partition, after[partition] - batch->records, 1000, (int)batch->size + 1024, READ_UNCOMMITTED);
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
    struct streams run = make_streams(options, check_response);
    struct batch batch = batch_for(options);
    int control = connect_to(options, 0);
    struct topic topic = find_topic(control, options->topic);
    if (topic.partitions < options->partitions)
        die("%s has only %d partitions", options->topic, topic.partitions);
    int64_t *before = calloc((size_t)options->partitions, sizeof *before);
    struct buffer *requests = calloc((size_t)options->partitions, sizeof *requests);
    if (!before || !requests)
        die("out of memory");
    list_offsets(control, options->topic, options->partitions, LATEST, before);
    for (int i = 0; i < options->connections; i++) {
        struct stream *stream = &run.all[i];
        stream->partition = i % options->partitions;
        stream->request = &requests[stream->partition];
        if (!stream->request->size)
            put_produce(stream->request, options->topic, stream->partition, 1, &batch, options->acks);
        stream->last_offset = -1;
        open_stream(&run, stream);
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
