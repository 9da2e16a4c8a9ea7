/* See producers.h. */
#include "producers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { INIT_PRODUCER_ID_VERSION = 4, ADD_PARTITIONS_VERSION = 3, ADD_OFFSETS_VERSION = 3 };
enum { TIMEOUT_MS = 60000 };
enum { CRC_AT = 17, ATTRIBUTES_AT = 21, PRODUCER_AT = 43, TRANSACTIONAL = 0x10 };

static void store_u16(uint8_t *at, uint16_t value) {
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
}

static void store_u64(uint8_t *at, uint64_t value) {
    store_u32(at, (uint32_t)(value >> 32));
    store_u32(at + 4, (uint32_t)value);
}

/* Fourteen bytes of a batch: producer id, epoch, base sequence. */
static void store_producer(uint8_t *at, const struct producer *producer) {
    store_u64(at, (uint64_t)producer->id);
    store_u16(at + 8, (uint16_t)producer->epoch);
    store_u32(at + 10, (uint32_t)producer->sequence);
}

struct producer_crc make_transactional(struct batch *batch) {
    struct producer_crc crc = {0};
    uint8_t *fields = batch->data + PRODUCER_AT;
    size_t covered = batch->size - ATTRIBUTES_AT;
    batch->data[ATTRIBUTES_AT + 1] |= TRANSACTIONAL;
    memset(fields, 0, sizeof crc.change / sizeof *crc.change);
    crc.without = crc32c(batch->data + ATTRIBUTES_AT, covered);
    for (int byte = 0; byte < 14; byte++)
        for (int bit = 0; bit < 8; bit++) {
            fields[byte] = (uint8_t)(1 << bit);
            uint32_t change = crc32c(batch->data + ATTRIBUTES_AT, covered) ^ crc.without;
            for (int value = 0; value < 256; value++)
                if (value >> bit & 1)
                    crc.change[byte][value] ^= change;
            fields[byte] = 0;
        }
    store_u32(batch->data + CRC_AT, crc.without);
    return crc;
}

/* -- requests -- */

static void begin(struct prepared *request, enum api api, int version) {
    request->producer_at = request->offset_at = request->batch_at = 0;
    request->batches = 0;
    begin_request(&request->bytes, api, version, 0);
}

static void put_producer(struct prepared *request) {
    request->producer_at = request->bytes.size;
    put_i64(&request->bytes, 0);
    put_i16(&request->bytes, 0);
}

void put_init_producer_id(struct buffer *buffer, const char *transactional_id) {
    begin_request(buffer, INIT_PRODUCER_ID, INIT_PRODUCER_ID_VERSION, 0);
    put_compact_string(buffer, transactional_id);
    put_i32(buffer, TIMEOUT_MS);
    put_i64(buffer, -1);
    put_i16(buffer, -1);
    put_uvarint(buffer, 0);
    end_request(buffer);
}

void prepare_add_partitions(struct prepared *request, const char *transactional_id, const char *topic, int first, int partitions) {
    struct buffer *bytes = &request->bytes;
    begin(request, ADD_PARTITIONS_TO_TXN, ADD_PARTITIONS_VERSION);
    put_compact_string(bytes, transactional_id);
    put_producer(request);
    put_uvarint(bytes, 2);
    put_compact_string(bytes, topic);
    put_uvarint(bytes, (uint64_t)partitions + 1);
    for (int partition = first; partition < first + partitions; partition++)
        put_i32(bytes, partition);
    put_uvarint(bytes, 0);
    put_uvarint(bytes, 0);
    end_request(bytes);
}

void prepare_produce(struct prepared *request, int protocol, const char *transactional_id, const char *topic, int first, int partitions,
                     const struct batch *batch) {
    struct buffer *bytes = &request->bytes;
    begin(request, PRODUCE, protocol == 2 ? 12 : 11);
    put_compact_string(bytes, transactional_id);
    put_i16(bytes, -1);
    put_i32(bytes, 30000);
    put_uvarint(bytes, 2);
    put_compact_string(bytes, topic);
    put_uvarint(bytes, (uint64_t)partitions + 1);
    for (int partition = first; partition < first + partitions; partition++) {
        put_i32(bytes, partition);
        put_uvarint(bytes, batch->size + 1);
        if (partition == first)
            request->batch_at = bytes->size;
        else if (partition == first + 1)
            request->batch_step = bytes->size - request->batch_at;
        put_bytes(bytes, batch->data, batch->size);
        put_uvarint(bytes, 0);
    }
    put_uvarint(bytes, 0);
    put_uvarint(bytes, 0);
    end_request(bytes);
    request->batches = partitions;
}

void prepare_add_offsets(struct prepared *request, const char *transactional_id, const char *group) {
    begin(request, ADD_OFFSETS_TO_TXN, ADD_OFFSETS_VERSION);
    put_compact_string(&request->bytes, transactional_id);
    put_producer(request);
    put_compact_string(&request->bytes, group);
    put_uvarint(&request->bytes, 0);
    end_request(&request->bytes);
}

void prepare_offsets(struct prepared *request, int protocol, const char *transactional_id, const char *group, const char *topic,
                     int partition) {
    struct buffer *bytes = &request->bytes;
    begin(request, TXN_OFFSET_COMMIT, protocol == 2 ? 5 : 3);
    put_compact_string(bytes, transactional_id);
    put_compact_string(bytes, group);
    put_producer(request);
    put_i32(bytes, -1); /* no generation, no member */
    put_compact_string(bytes, "");
    put_uvarint(bytes, 0);
    put_uvarint(bytes, 2);
    put_compact_string(bytes, topic);
    put_uvarint(bytes, 2);
    put_i32(bytes, partition);
    request->offset_at = bytes->size;
    put_i64(bytes, 0);
    put_i32(bytes, -1);
    put_compact_string(bytes, "");
    put_uvarint(bytes, 0);
    put_uvarint(bytes, 0);
    put_uvarint(bytes, 0);
    end_request(bytes);
}

void prepare_end(struct prepared *request, int protocol, const char *transactional_id) {
    begin(request, END_TXN, protocol == 2 ? 5 : 4);
    put_compact_string(&request->bytes, transactional_id);
    put_producer(request);
    put_i8(&request->bytes, 1);
    put_uvarint(&request->bytes, 0);
    end_request(&request->bytes);
}

void prepare_fetch(struct prepared *request, const struct topic *topic, int partition, int max_wait, int max_bytes) {
    request->producer_at = request->batch_at = 0;
    request->batches = 0;
    request->offset_at = put_fetch(&request->bytes, topic, partition, 0, max_wait, max_bytes, READ_COMMITTED);
}

void set_producer(struct prepared *request, const struct producer *producer) {
    store_u64(request->bytes.data + request->producer_at, (uint64_t)producer->id);
    store_u16(request->bytes.data + request->producer_at + 8, (uint16_t)producer->epoch);
}

void set_offset(struct prepared *request, int64_t offset) {
    store_u64(request->bytes.data + request->offset_at, (uint64_t)offset);
}

void set_batches(struct prepared *request, const struct producer *producer, const struct producer_crc *crc) {
    uint8_t fields[14];
    uint32_t value = crc->without;
    store_producer(fields, producer);
    for (int byte = 0; byte < 14; byte++)
        value ^= crc->change[byte][fields[byte]];
    for (int number = 0; number < request->batches; number++) {
        uint8_t *batch = request->bytes.data + request->batch_at + (size_t)number * request->batch_step;
        memcpy(batch + PRODUCER_AT, fields, sizeof fields);
        store_u32(batch + CRC_AT, value);
    }
}

/* -- responses -- */

bool is_retried(int16_t error) { return error == CONCURRENT_TRANSACTIONS || error == COORDINATOR_LOAD_IN_PROGRESS; }

static void begin_response(struct cursor *response) {
    take_i32(response);
    skip_tags(response);
}

static void take_no_throttle(struct cursor *response) {
    if (take_i32(response) != 0)
        die("a request about a transaction was throttled");
}

/* The codes of the partitions of one topic. */
static int16_t read_codes(struct cursor *response, int partitions, const char *api) {
    int16_t first = 0;
    if (take_uvarint(response) != 2)
        die("an answer to %s came without its topic", api);
    skip_compact_bytes(response);
    if (take_uvarint(response) != (uint64_t)partitions + 1)
        die("an answer to %s came without all partitions", api);
    for (int i = 0; i < partitions; i++) {
        take_i32(response);
        int16_t error = take_i16(response);
        skip_tags(response);
        if (error && !first)
            first = error;
    }
    return first;
}

int16_t read_added_partitions(struct cursor response, int partitions) {
    begin_response(&response);
    take_no_throttle(&response);
    return read_codes(&response, partitions, "AddPartitionsToTxn");
}

int16_t read_offsets(struct cursor response) {
    begin_response(&response);
    take_no_throttle(&response);
    return read_codes(&response, 1, "TxnOffsetCommit");
}

static char message[200]; /* of the first error of a Produce */

const char *message_of_produce(void) { return message; }

int16_t read_produced(struct cursor response, int partitions) {
    int16_t first = 0;
    message[0] = 0;
    begin_response(&response);
    if (take_uvarint(&response) != 2)
        die("a Produce was answered without its topic");
    skip_compact_bytes(&response);
    if (take_uvarint(&response) != (uint64_t)partitions + 1)
        die("a Produce was answered without all partitions");
    for (int i = 0; i < partitions; i++) {
        take_i32(&response);
        int16_t error = take_i16(&response);
        if (error && !first)
            first = error;
        take(&response, 24); /* base offset, append time, log start offset */
        for (uint64_t errors = take_uvarint(&response); errors > 1; errors--) {
            take_i32(&response);
            skip_compact_bytes(&response);
            skip_tags(&response);
        }
        uint64_t length = take_uvarint(&response);
        const uint8_t *text = take(&response, length ? length - 1 : 0);
        if (error && !message[0])
            snprintf(message, sizeof message, ": %.*s", (int)(length ? length - 1 : 0), (const char *)text);
        skip_tags(&response);
    }
    return first;
}

int16_t read_added_offsets(struct cursor response) {
    begin_response(&response);
    take_no_throttle(&response);
    return take_i16(&response);
}

int16_t read_end(struct cursor response, int protocol, struct producer *producer) {
    begin_response(&response);
    take_no_throttle(&response);
    int16_t error = take_i16(&response);
    if (!error && protocol == 2) {
        producer->id = take_i64(&response);
        producer->epoch = take_i16(&response);
        producer->sequence = 0;
    }
    return error;
}

struct producer init_producer(int fd, const char *transactional_id) {
    struct buffer request = {0};
    uint64_t until = now_ns() + PATIENCE_NS;
    find_coordinator(fd, transactional_id, OF_TRANSACTIONS);
    put_init_producer_id(&request, transactional_id);
    for (;;) {
        struct cursor response = ask(fd, &request);
        begin_response(&response);
        take_no_throttle(&response);
        int16_t error = take_i16(&response);
        if (!error) {
            struct producer producer = {.id = take_i64(&response), .epoch = take_i16(&response)};
            free(request.data);
            return producer;
        }
        if (now_ns() > until)
            die("InitProducerId of %s: error %d", transactional_id, error);
        pause_a_little();
    }
}
