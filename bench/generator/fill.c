/* `fill`: one batch into each of the partitions 0..partitions-1, a hundred partitions a request, every answer checked.
 * `batch`: writes the batch that the same options would send to --out. */
#include "session.h"

#include <stdio.h>
#include <stdlib.h>

enum { PARTITIONS_A_REQUEST = 100 };

static void check_response(struct cursor *response, const char *topic, int partitions) {
    take_i32(response);
    skip_tags(response);
    if (take_uvarint(response) != 2)
        die("a Produce was answered without its topic");
    skip_compact_bytes(response);
    if (take_uvarint(response) != (uint64_t)partitions + 1)
        die("a Produce was answered without all its partitions");
    for (int i = 0; i < partitions; i++) {
        int32_t partition = take_i32(response);
        int16_t error = take_i16(response);
        if (error)
            die("a Produce to %s-%d was answered with error %d", topic, partition, error);
        take_i64(response);
        take_i64(response);
        take_i64(response);
        if (take_uvarint(response) > 1)
            die("a Produce to %s-%d was answered with errors of records", topic, partition);
        skip_compact_bytes(response);
        skip_tags(response);
    }
}

void run_fill(const struct options *options) {
    struct batch batch = batch_for(options);
    struct buffer request = {0};
    int fd = connect_to(options, 0);
    for (int first = 0; first < options->partitions; first += PARTITIONS_A_REQUEST) {
        int left = options->partitions - first, partitions = left < PARTITIONS_A_REQUEST ? left : PARTITIONS_A_REQUEST;
        put_produce(&request, options->topic, first, partitions, &batch, options->acks);
        struct cursor response = ask(fd, &request);
        check_response(&response, options->topic, partitions);
    }
    printf("{\"partitions\": %d, \"batch_bytes\": %zu}\n", options->partitions, batch.size);
}

void run_batch(const struct options *options) {
    struct batch batch = batch_for(options);
    FILE *file = options->out ? fopen(options->out, "wb") : NULL;
    if (!file || fwrite(batch.data, 1, batch.size, file) != batch.size || fclose(file))
        die("cannot write the batch to --out %s", options->out ? options->out : "(missing)");
    printf("{\"batch_bytes\": %zu, \"batch_records\": %d}\n", batch.size, batch.records);
}
