/* See wire.h: buffers, cursors, requests and responses. */
#include "wire.h"

#include <endian.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char CLIENT_ID[] = "bench";

_Noreturn void die(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("generator: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}

void put_bytes(struct buffer *buffer, const void *bytes, size_t size) {
    if (buffer->room - buffer->size < size) {
        buffer->room = (buffer->size + size) * 2 + 256;
        buffer->data = realloc(buffer->data, buffer->room);
        if (!buffer->data)
            die("out of memory");
    }
    if (size)
        memcpy(buffer->data + buffer->size, bytes, size);
    buffer->size += size;
}

void put_i8(struct buffer *buffer, int8_t value) { put_bytes(buffer, &value, 1); }

void put_i16(struct buffer *buffer, int16_t value) {
    uint16_t wire = htobe16((uint16_t)value);
    put_bytes(buffer, &wire, sizeof wire);
}

void put_i32(struct buffer *buffer, int32_t value) {
    uint32_t wire = htobe32((uint32_t)value);
    put_bytes(buffer, &wire, sizeof wire);
}

void put_i64(struct buffer *buffer, int64_t value) {
    uint64_t wire = htobe64((uint64_t)value);
    put_bytes(buffer, &wire, sizeof wire);
}

void put_uvarint(struct buffer *buffer, uint64_t value) {
    for (; value >= 0x80; value >>= 7)
        put_i8(buffer, (int8_t)(value | 0x80));
    put_i8(buffer, (int8_t)value);
}

void put_varint(struct buffer *buffer, int64_t value) {
    put_uvarint(buffer, ((uint64_t)value << 1) ^ (uint64_t)(value >> 63));
}

void put_compact_string(struct buffer *buffer, const char *text) {
    put_uvarint(buffer, strlen(text) + 1);
    put_bytes(buffer, text, strlen(text));
}

const uint8_t *take(struct cursor *cursor, size_t size) {
    if ((size_t)(cursor->end - cursor->at) < size)
        die("a response is shorter than what it says");
    const uint8_t *at = cursor->at;
    cursor->at += size;
    return at;
}

uint32_t load_u32(const uint8_t *at) {
    uint32_t wire;
    memcpy(&wire, at, sizeof wire);
    return be32toh(wire);
}

uint64_t load_u64(const uint8_t *at) {
    uint64_t wire;
    memcpy(&wire, at, sizeof wire);
    return be64toh(wire);
}

void store_u32(uint8_t *at, uint32_t value) {
    uint32_t wire = htobe32(value);
    memcpy(at, &wire, sizeof wire);
}

int8_t take_i8(struct cursor *cursor) { return (int8_t)*take(cursor, 1); }

int16_t take_i16(struct cursor *cursor) {
    const uint8_t *at = take(cursor, 2);
    return (int16_t)(at[0] << 8 | at[1]);
}

int32_t take_i32(struct cursor *cursor) { return (int32_t)load_u32(take(cursor, 4)); }
int64_t take_i64(struct cursor *cursor) { return (int64_t)load_u64(take(cursor, 8)); }

uint64_t take_uvarint(struct cursor *cursor) {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        uint8_t byte = *take(cursor, 1);
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return value;
    }
    die("a response has an endless varint");
}

void skip_compact_bytes(struct cursor *cursor) {
    uint64_t size = take_uvarint(cursor);
    if (size > 1)
        take(cursor, size - 1);
}

void skip_tags(struct cursor *cursor) {
    for (uint64_t count = take_uvarint(cursor); count; count--) {
        take_uvarint(cursor);
        take(cursor, take_uvarint(cursor));
    }
}

void begin_request(struct buffer *buffer, enum api api, int version, int32_t correlation_id) {
    buffer->size = 0;
    put_i32(buffer, 0);
    put_i16(buffer, (int16_t)api);
    put_i16(buffer, (int16_t)version);
    put_i32(buffer, correlation_id);
    put_i16(buffer, sizeof CLIENT_ID - 1);
    put_bytes(buffer, CLIENT_ID, sizeof CLIENT_ID - 1);
    put_uvarint(buffer, 0);
}

void end_request(struct buffer *buffer) { store_u32(buffer->data, (uint32_t)(buffer->size - 4)); }

void put_produce(struct buffer *buffer, const char *topic, int first_partition, int partitions, const struct batch *batch, int acks) {
    begin_request(buffer, PRODUCE, PRODUCE_VERSION, 0);
    put_uvarint(buffer, 0); /* no transactional id */
    put_i16(buffer, (int16_t)acks);
    put_i32(buffer, 30000);
    put_uvarint(buffer, 2);
    put_compact_string(buffer, topic);
    put_uvarint(buffer, (uint64_t)partitions + 1);
    for (int partition = first_partition; partition < first_partition + partitions; partition++) {
        put_i32(buffer, partition);
        put_uvarint(buffer, batch->size + 1);
        put_bytes(buffer, batch->data, batch->size);
        put_uvarint(buffer, 0);
    }
    put_uvarint(buffer, 0);
    put_uvarint(buffer, 0);
    end_request(buffer);
}

size_t put_fetch(struct buffer *buffer, const struct topic *topic, int partition, int64_t offset, int max_wait_ms, int max_bytes,
                 enum isolation isolation) {
    begin_request(buffer, FETCH, FETCH_VERSION, 0);
    put_i32(buffer, -1);
    put_i32(buffer, max_wait_ms);
    put_i32(buffer, 1);
    put_i32(buffer, max_bytes);
    put_i8(buffer, (int8_t)isolation);
    put_i32(buffer, 0);  /* no fetch session */
    put_i32(buffer, -1);
    put_uvarint(buffer, 2);
    put_bytes(buffer, topic->id, 16);
    put_uvarint(buffer, 2);
    put_i32(buffer, partition);
    put_i32(buffer, -1);
    size_t offset_at = buffer->size;
    put_i64(buffer, offset);
    put_i32(buffer, -1);
    put_i64(buffer, -1);
    put_i32(buffer, max_bytes);
    put_uvarint(buffer, 0);
    put_uvarint(buffer, 0);
    put_uvarint(buffer, 1); /* nothing forgotten */
    put_uvarint(buffer, 1); /* no rack */
    put_uvarint(buffer, 0);
    end_request(buffer);
    return offset_at;
}

void put_list_offsets(struct buffer *buffer, const char *topic, int partitions, int64_t timestamp) {
    begin_request(buffer, LIST_OFFSETS, LIST_OFFSETS_VERSION, 0);
    put_i32(buffer, -1);
    put_i8(buffer, 0);
    put_uvarint(buffer, 2);
    put_compact_string(buffer, topic);
    put_uvarint(buffer, (uint64_t)partitions + 1);
    for (int partition = 0; partition < partitions; partition++) {
        put_i32(buffer, partition);
        put_i32(buffer, -1);
        put_i64(buffer, timestamp);
        put_uvarint(buffer, 0);
    }
    put_uvarint(buffer, 0);
    put_uvarint(buffer, 0);
    end_request(buffer);
}

void put_metadata(struct buffer *buffer, const char *topic) {
    static const uint8_t no_id[16];
    begin_request(buffer, METADATA, METADATA_VERSION, 0);
    put_uvarint(buffer, topic ? 2 : 1);
    if (topic) {
        put_bytes(buffer, no_id, 16);
        put_compact_string(buffer, topic);
        put_uvarint(buffer, 0);
    }
    put_i8(buffer, 0);
    put_i8(buffer, 0);
    put_uvarint(buffer, 0);
    end_request(buffer);
}

void put_api_versions(struct buffer *buffer) {
    begin_request(buffer, API_VERSIONS, API_VERSIONS_VERSION, 0);
    put_compact_string(buffer, "bench");
    put_compact_string(buffer, "1");
    put_uvarint(buffer, 0);
    end_request(buffer);
}

/* Size, correlation id, tags, throttle time, error, session id, topics, topic id, partitions, index, error, high
 * watermark, last stable offset, log start offset, aborted transactions (none), preferred replica, size of records. */
enum { FETCH_HEAD_BYTES = 4 + 4 + 1 + 4 + 2 + 4 + 1 + 16 + 1 + 4 + 2 + 8 + 8 + 8 + 1 + 4 };

bool read_fetch_head(const uint8_t *frame, size_t size, struct fetched *fetched) {
    size_t total = size >= 4 ? 4 + (size_t)load_u32(frame) : SIZE_MAX;
    if (size < total && size < FETCH_HEAD_BYTES + 10)
        return false;
    struct cursor cursor = {frame + 4, frame + size};
    take_i32(&cursor);
    skip_tags(&cursor);
    if (take_i32(&cursor) != 0)
        die("a Fetch was throttled");
    int16_t error = take_i16(&cursor);
    take_i32(&cursor);
    if (error || take_uvarint(&cursor) != 2)
        die("a Fetch was answered with error %d or without its topic", error);
    take(&cursor, 16);
    if (take_uvarint(&cursor) != 2)
        die("a Fetch was answered without its partition");
    take_i32(&cursor);
    fetched->error = take_i16(&cursor);
    fetched->high_watermark = take_i64(&cursor);
    take_i64(&cursor);
    take_i64(&cursor);
    if (take_uvarint(&cursor) > 1)
        die("a Fetch tells of aborted transactions");
    take_i32(&cursor);
    uint64_t records = take_uvarint(&cursor);
    fetched->records_bytes = records ? records - 1 : 0;
    fetched->records_at = (size_t)(cursor.at - frame);
    if (fetched->records_at + fetched->records_bytes > total)
        die("the records of a Fetch response exceed its frame");
    return true;
}

int64_t read_produce_response(const uint8_t *payload, size_t size, uint32_t correlation_id) {
    struct cursor cursor = {payload, payload + size};
    if ((uint32_t)take_i32(&cursor) != correlation_id)
        die("a Produce was answered out of order");
    skip_tags(&cursor);
    if (take_uvarint(&cursor) != 2)
        die("a Produce was answered without its topic");
    skip_compact_bytes(&cursor);
    if (take_uvarint(&cursor) != 2)
        die("a Produce was answered without its partition");
    take_i32(&cursor);
    int16_t error = take_i16(&cursor);
    int64_t offset = take_i64(&cursor);
    if (error)
        die("a Produce was answered with error %d", error);
    return offset;
}
