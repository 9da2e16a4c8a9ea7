/* `commit`: offsets of all partitions of a topic, committed again and again, a fixed number of requests in flight on each
 * connection. Connection i commits for a group of its own, as a consumer that assigns itself. Checked: every answer in
 * order and without error for every partition; afterwards OffsetFetch tells what was committed.
 * `groups`: one such commit for each of --groups groups, one after the other. */
#include "streams.h"

#include <stdio.h>
#include <stdlib.h>

enum { OFFSET_COMMIT_VERSION = 9, OFFSET_FETCH_VERSION = 7 };
enum { GROUP_NAME_BYTES = 300, OFFSETS_FROM = 1000000 };

static void name_group(char *name, const struct options *options, int number) {
    snprintf(name, GROUP_NAME_BYTES, "%s-group-%d", options->topic, number);
}

static void put_commit(struct buffer *buffer, const char *group, const char *topic, int partitions) {
    begin_request(buffer, OFFSET_COMMIT, OFFSET_COMMIT_VERSION, 0);
    put_compact_string(buffer, group);
    put_i32(buffer, -1); /* no generation, no member */
    put_compact_string(buffer, "");
    put_uvarint(buffer, 0);
    put_uvarint(buffer, 2);
    put_compact_string(buffer, topic);
    put_uvarint(buffer, (uint64_t)partitions + 1);
    for (int partition = 0; partition < partitions; partition++) {
        put_i32(buffer, partition);
        put_i64(buffer, OFFSETS_FROM + partition);
        put_i32(buffer, -1);
        put_compact_string(buffer, "");
        put_uvarint(buffer, 0);
    }
    put_uvarint(buffer, 0);
    put_uvarint(buffer, 0);
    end_request(buffer);
}

/* The first error of a response to a commit, 0 if there is none; how many partitions it tells of. */
static int16_t read_commit_response(const uint8_t *payload, size_t size, uint32_t correlation_id, uint64_t *partitions) {
    struct cursor cursor = {payload, payload + size};
    int16_t first = 0;
    if ((uint32_t)take_i32(&cursor) != correlation_id)
        die("an OffsetCommit was answered out of order");
    skip_tags(&cursor);
    if (take_i32(&cursor) != 0)
        die("an OffsetCommit was throttled");
    if (take_uvarint(&cursor) != 2)
        die("an OffsetCommit was answered without its topic");
    skip_compact_bytes(&cursor);
    *partitions = take_uvarint(&cursor) - 1;
    for (uint64_t i = 0; i < *partitions; i++) {
        take_i32(&cursor);
        int16_t error = take_i16(&cursor);
        if (error && !first)
            first = error;
        skip_tags(&cursor);
    }
    return first;
}

static void check_response(struct stream *stream, const uint8_t *payload, size_t size, uint32_t correlation_id) {
    uint64_t partitions;
    int16_t error = read_commit_response(payload, size, correlation_id, &partitions);
    if (error || partitions != (uint64_t)stream->partition)
        die("an OffsetCommit was answered with error %d for %llu of %d partitions", error, (unsigned long long)partitions,
            stream->partition);
}

/* One commit; again while the group is being loaded. */
static void commit_once(int fd, const struct buffer *request, const char *group) {
    uint64_t until = now_ns() + PATIENCE_NS, partitions;
    for (;;) {
        struct cursor response = ask(fd, request);
        int16_t error = read_commit_response(response.at, (size_t)(response.end - response.at), 0, &partitions);
        if (!error)
            return;
        if (now_ns() > until)
            die("the first commit of the group %s: error %d", group, error);
        pause_a_little();
    }
}

static void check_committed(int fd, const char *group, const char *topic, int partitions) {
    struct buffer request = {0};
    begin_request(&request, OFFSET_FETCH, OFFSET_FETCH_VERSION, 0);
    put_compact_string(&request, group);
    put_uvarint(&request, 2);
    put_compact_string(&request, topic);
    put_uvarint(&request, (uint64_t)partitions + 1);
    for (int partition = 0; partition < partitions; partition++)
        put_i32(&request, partition);
    put_uvarint(&request, 0);
    put_i8(&request, 0);
    put_uvarint(&request, 0);
    end_request(&request);
    struct cursor response = ask(fd, &request);
    take_i32(&response);
    skip_tags(&response);
    take_i32(&response);
    if (take_uvarint(&response) != 2)
        die("an OffsetFetch was answered without its topic");
    skip_compact_bytes(&response);
    uint64_t told = take_uvarint(&response) - 1;
    if (told != (uint64_t)partitions)
        die("the group %s has offsets of %llu of %d partitions", group, (unsigned long long)told, partitions);
    for (uint64_t i = 0; i < told; i++) {
        int32_t partition = take_i32(&response);
        int64_t offset = take_i64(&response);
        take_i32(&response);
        skip_compact_bytes(&response);
        int16_t error = take_i16(&response);
        skip_tags(&response);
        if (error || offset != OFFSETS_FROM + partition)
            die("the group %s has offset %lld of %s-%d, error %d", group, (long long)offset, topic, partition, error);
    }
    free(request.data);
}

void run_commit(const struct options *options) {
    struct streams run = make_streams(options, check_response);
    struct buffer *requests = calloc((size_t)options->connections, sizeof *requests);
    char group[GROUP_NAME_BYTES];
    int control = connect_to(options, 0);
    if (!requests)
        die("out of memory");
    for (int i = 0; i < options->connections; i++) {
        name_group(group, options, i);
        put_commit(&requests[i], group, options->topic, options->partitions);
        find_coordinator(control, group, OF_GROUPS);
        commit_once(control, &requests[i], group);
        run.all[i].partition = options->partitions;
        run.all[i].request = &requests[i];
        open_stream(&run, &run.all[i]);
    }
    if (options->warmup > 0)
        drive(&run, 0, options->warmup);
    struct window window;
    open_window(&window, options);
    uint64_t each = (uint64_t)(options->requests / options->connections);
    uint64_t completed = drive(&run, each ? each : 1, options->requests ? 0 : options->seconds);
    close_window(&window, options);
    for (int i = 0; i < options->connections; i++) {
        name_group(group, options, i);
        check_committed(control, group, options->topic, options->partitions);
    }
    printf("{\"requests\": %llu, \"offsets\": %llu", (unsigned long long)completed,
           (unsigned long long)completed * (unsigned long long)options->partitions);
    print_window(&window);
    print_latencies(&run.latencies);
    printf("}\n");
}

void run_groups(const struct options *options) {
    struct buffer request = {0};
    struct window window;
    char group[GROUP_NAME_BYTES];
    int fd = connect_to(options, 0);
    open_window(&window, options);
    for (int i = 0; i < options->groups; i++) {
        name_group(group, options, i);
        put_commit(&request, group, options->topic, options->partitions);
        if (i == 0)
            find_coordinator(fd, group, OF_GROUPS);
        commit_once(fd, &request, group);
    }
    close_window(&window, options);
    for (int i = 0; i < options->groups; i += 100) {
        name_group(group, options, i);
        check_committed(fd, group, options->topic, options->partitions);
    }
    printf("{\"groups\": %d", options->groups);
    print_window(&window);
    printf("}\n");
}
