/* See wire.h: CRC-32C and record batches (magic 2). */
#include "wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Positions within a batch. */
enum { LENGTH_AT = 8, MAGIC_AT = 16, CRC_AT = 17, ATTRIBUTES_AT = 21, LAST_OFFSET_DELTA_AT = 23, RECORDS_AT = 57 };

static uint32_t crc_table[256];

static uint32_t crc32c_plain(const uint8_t *data, size_t size) {
    if (!crc_table[1])
        for (uint32_t byte = 0; byte < 256; byte++) {
            uint32_t crc = byte;
            for (int bit = 0; bit < 8; bit++)
                crc = crc & 1 ? crc >> 1 ^ 0x82f63b78 : crc >> 1;
            crc_table[byte] = crc;
        }
    uint32_t crc = ~0u;
    while (size--)
        crc = crc_table[(crc ^ *data++) & 0xff] ^ crc >> 8;
    return ~crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t crc32c_sse42(const uint8_t *data, size_t size) {
    uint64_t crc = ~0u;
    for (; size >= 8; data += 8, size -= 8) {
        uint64_t word;
        memcpy(&word, data, 8);
        crc = __builtin_ia32_crc32di(crc, word);
    }
    while (size--)
        crc = __builtin_ia32_crc32qi((uint32_t)crc, *data++);
    return ~(uint32_t)crc;
}

uint32_t crc32c(const uint8_t *data, size_t size) {
    return __builtin_cpu_supports("sse4.2") ? crc32c_sse42(data, size) : crc32c_plain(data, size);
}
#else
uint32_t crc32c(const uint8_t *data, size_t size) { return crc32c_plain(data, size); }
#endif

/* A repeatable sequence (xorshift): the same text in every run. */
static uint64_t random_state = 0x9e3779b97f4a7c15;

static uint32_t next_random(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 32);
}

/* Lines as a service logs them: words that repeat, numbers that do not. */
static void put_text(struct buffer *buffer, size_t size) {
    static const char *const words[] = {"level=info ",  "level=warn ", "service=checkout ", "service=stock ", "region=eu-west-1 ",
                                        "method=GET ",  "method=POST ", "path=/api/v2/orders/", "path=/health ", "status=200 ",
                                        "status=404 ",  "cache=miss ", "cache=hit ", "message=\"order accepted\" "};
    size_t end = buffer->size + size;
    while (buffer->size < end) {
        char text[64];
        uint32_t choice = next_random();
        int length = choice % 3 ? snprintf(text, sizeof text, "%s", words[choice / 3 % (sizeof words / sizeof *words)])
                                : snprintf(text, sizeof text, "id=%08x took=%u ", next_random(), next_random() % 5000);
        size_t room = end - buffer->size;
        put_bytes(buffer, text, (size_t)length < room ? (size_t)length : room);
    }
}

static size_t varint_bytes(int64_t value) {
    struct buffer buffer = {0};
    put_varint(&buffer, value);
    free(buffer.data);
    return buffer.size;
}

/* The bytes of a record after its length: attributes, timestamp delta, offset delta, no key, value, no headers. */
static size_t record_body_bytes(int offset_delta, size_t value_bytes) {
    return 1 + varint_bytes(0) + varint_bytes(offset_delta) + varint_bytes(-1) + varint_bytes((int64_t)value_bytes) + value_bytes + 1;
}

static size_t record_bytes(int offset_delta, size_t value_bytes) {
    size_t body = record_body_bytes(offset_delta, value_bytes);
    return varint_bytes((int64_t)body) + body;
}

static void put_record(struct buffer *buffer, int offset_delta, size_t value_bytes) {
    put_varint(buffer, (int64_t)record_body_bytes(offset_delta, value_bytes));
    put_i8(buffer, 0);
    put_varint(buffer, 0);
    put_varint(buffer, offset_delta);
    put_varint(buffer, -1);
    put_varint(buffer, (int64_t)value_bytes);
    put_text(buffer, value_bytes);
    put_varint(buffer, 0);
}

/* The value that makes the last record end exactly at `room`; 0 where the lengths' own lengths leave no such value. */
static size_t filling_value(int offset_delta, size_t room) {
    for (size_t value = room > 32 ? room - 32 : 1; value < room; value++)
        if (record_bytes(offset_delta, value) == room)
            return value;
    return 0;
}

struct batch make_batch(int records, size_t batch_bytes, int value_min, int value_max) {
    struct buffer buffer = {0};
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t now_ms = (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
    put_i64(&buffer, 0);
    put_i32(&buffer, 0);  /* length: below */
    put_i32(&buffer, -1); /* leader epoch */
    put_i8(&buffer, 2);
    put_i32(&buffer, 0);  /* CRC: below */
    put_i16(&buffer, 0);
    put_i32(&buffer, 0);  /* last offset delta: below */
    put_i64(&buffer, now_ms);
    put_i64(&buffer, now_ms);
    put_i64(&buffer, -1);
    put_i16(&buffer, -1);
    put_i32(&buffer, -1);
    put_i32(&buffer, 0);  /* records: below */
    int count = 0;
    for (bool last = false; !last; count++) {
        size_t value = (size_t)value_min + (value_max > value_min ? next_random() % (uint32_t)(value_max - value_min + 1) : 0);
        if (batch_bytes) {
            size_t room = batch_bytes - buffer.size;
            /* The last one takes what is left: at least a small record's worth, at most one more than usual. */
            last = room < record_bytes(count, value) + record_bytes(count + 1, (size_t)value_min) + 8;
            if (last && !(value = filling_value(count, room)))
                die("%zu bytes cannot be filled exactly with such records; choose another --batch-bytes", batch_bytes);
        } else {
            last = count + 1 >= records;
        }
        put_record(&buffer, count, value);
    }
    store_u32(buffer.data + LENGTH_AT, (uint32_t)(buffer.size - 12));
    store_u32(buffer.data + LAST_OFFSET_DELTA_AT, (uint32_t)count - 1);
    store_u32(buffer.data + RECORDS_AT, (uint32_t)count);
    store_u32(buffer.data + CRC_AT, crc32c(buffer.data + ATTRIBUTES_AT, buffer.size - ATTRIBUTES_AT));
    return (struct batch){buffer.data, buffer.size, count};
}

struct batch load_batch(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file)
        die("cannot read %s", path);
    struct buffer buffer = {0};
    uint8_t block[65536];
    for (size_t got; (got = fread(block, 1, sizeof block, file)) > 0;)
        put_bytes(&buffer, block, got);
    fclose(file);
    int64_t offset = 0;
    if (check_batches(buffer.data, buffer.size, &offset, NULL) != buffer.size || buffer.size == 0)
        die("%s does not hold a whole record batch", path);
    if (12 + (size_t)load_u32(buffer.data + LENGTH_AT) != buffer.size)
        die("%s holds more than one record batch", path);
    return (struct batch){buffer.data, buffer.size, (int)offset};
}

size_t check_batches(const uint8_t *data, size_t size, int64_t *next_offset, const struct batch *uniform) {
    size_t at = 0;
    while (size - at >= BATCH_HEADER_BYTES) {
        const uint8_t *batch = data + at;
        size_t bytes = 12 + (size_t)load_u32(batch + LENGTH_AT);
        if (bytes < BATCH_HEADER_BYTES || batch[MAGIC_AT] != 2)
            die("at byte %zu of the records is no batch of magic 2", at);
        if (size - at < bytes)
            break;
        int64_t base_offset = (int64_t)load_u64(batch);
        int64_t last_offset_delta = (int32_t)load_u32(batch + LAST_OFFSET_DELTA_AT);
        if (at == 0 ? base_offset > *next_offset || base_offset + last_offset_delta < *next_offset : base_offset != *next_offset)
            die("a batch at offset %lld where %lld is due", (long long)base_offset, (long long)*next_offset);
        if (uniform && (bytes != uniform->size || memcmp(batch + CRC_AT, uniform->data + CRC_AT, 4) != 0))
            die("the batch at offset %lld is not the one that was sent", (long long)base_offset);
        if (crc32c(batch + ATTRIBUTES_AT, bytes - ATTRIBUTES_AT) != load_u32(batch + CRC_AT))
            die("the batch at offset %lld has a wrong CRC", (long long)base_offset);
        *next_offset = base_offset + last_offset_delta + 1;
        at += bytes;
    }
    return at;
}
