/* Bytes on the wire: growing buffers, bounded cursors, CRC-32C, record batches v2, and the few requests that the load
 * generator sends. Nothing here knows a socket. Formats: the Kafka protocol guide, and the comment on record batches
 * in Kafka's documentation, section "Message Format".
 *
 * A response that does not decode ends the generator with a message: a benchmark of a broker that answers nonsense is
 * worth nothing. */
#ifndef WIRE_H
#define WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum api {
    PRODUCE = 0, FETCH = 1, LIST_OFFSETS = 2, METADATA = 3, OFFSET_COMMIT = 8, OFFSET_FETCH = 9, FIND_COORDINATOR = 10,
    JOIN_GROUP = 11, SYNC_GROUP = 14, API_VERSIONS = 18, INIT_PRODUCER_ID = 22, ADD_PARTITIONS_TO_TXN = 24,
    ADD_OFFSETS_TO_TXN = 25, END_TXN = 26, TXN_OFFSET_COMMIT = 28, DESCRIBE_TRANSACTIONS = 65
};
enum { PRODUCE_VERSION = 11, FETCH_VERSION = 13, LIST_OFFSETS_VERSION = 7, METADATA_VERSION = 12, API_VERSIONS_VERSION = 3 };
enum { LATEST = -1, EARLIEST = -2 };
enum isolation { READ_UNCOMMITTED = 0, READ_COMMITTED = 1 };
enum { BATCH_HEADER_BYTES = 61, REQUEST_PREFIX_BYTES = 12 }; /* the prefix: size, key, version, correlation id */

struct buffer {
    uint8_t *data;
    size_t size, room;
};

struct cursor {
    const uint8_t *at, *end;
};

/* One prepared record batch, as it is sent: base offset 0, no producer id. */
struct batch {
    uint8_t *data;
    size_t size;
    int records;
};

struct topic {
    const char *name;
    uint8_t id[16];
    int partitions;
};

_Noreturn void die(const char *format, ...) __attribute__((format(printf, 1, 2)));

void put_bytes(struct buffer *buffer, const void *bytes, size_t size);
void put_i8(struct buffer *buffer, int8_t value);
void put_i16(struct buffer *buffer, int16_t value);
void put_i32(struct buffer *buffer, int32_t value);
void put_i64(struct buffer *buffer, int64_t value);
void put_uvarint(struct buffer *buffer, uint64_t value);
void put_varint(struct buffer *buffer, int64_t value);
void put_compact_string(struct buffer *buffer, const char *text);

const uint8_t *take(struct cursor *cursor, size_t size);
int8_t take_i8(struct cursor *cursor);
int16_t take_i16(struct cursor *cursor);
int32_t take_i32(struct cursor *cursor);
int64_t take_i64(struct cursor *cursor);
uint64_t take_uvarint(struct cursor *cursor);
void skip_compact_bytes(struct cursor *cursor);
void skip_tags(struct cursor *cursor);

uint32_t load_u32(const uint8_t *at);
uint64_t load_u64(const uint8_t *at);
void store_u32(uint8_t *at, uint32_t value);

uint32_t crc32c(const uint8_t *data, size_t size);

/* Records without keys whose values have between value_min and value_max bytes of repeatable text (so that codecs find
 * something to do). With batch_bytes > 0 as many records as fill exactly that many bytes; else `records` of them. */
struct batch make_batch(int records, size_t batch_bytes, int value_min, int value_max);
struct batch load_batch(const char *path);

/* The whole batches at the front of `size` bytes of records: frames, CRCs, and contiguous offsets from *next_offset
 * (which may lie inside the first batch), which is moved on. Returns the bytes they fill; a cut off batch at the end
 * is not counted. If uniform is given, every batch must have its size and CRC. */
size_t check_batches(const uint8_t *data, size_t size, int64_t *next_offset, const struct batch *uniform);

void begin_request(struct buffer *buffer, enum api api, int version, int32_t correlation_id);
void end_request(struct buffer *buffer);
void put_produce(struct buffer *buffer, const char *topic, int first_partition, int partitions, const struct batch *batch, int acks);
/* Returns the position of the offset. */
size_t put_fetch(struct buffer *buffer, const struct topic *topic, int partition, int64_t offset, int max_wait_ms, int max_bytes,
                 enum isolation isolation);
void put_list_offsets(struct buffer *buffer, const char *topic, int partitions, int64_t timestamp);
void put_metadata(struct buffer *buffer, const char *topic);
void put_api_versions(struct buffer *buffer);

/* What a Fetch response tells of its one partition; records_at counts from the start of the frame's size field. */
struct fetched {
    int16_t error;
    int64_t high_watermark;
    size_t records_at, records_bytes;
};

/* Reads the head of a Fetch response frame of which `size` bytes are here. Returns false if too few are. */
bool read_fetch_head(const uint8_t *frame, size_t size, struct fetched *fetched);
/* Reads the Produce response frame of one partition (after the size field). Dies on an error code; the base offset. */
int64_t read_produce_response(const uint8_t *payload, size_t size, uint32_t correlation_id);

#endif
