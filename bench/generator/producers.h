/* Transactional producers: their requests, and the fields in these requests that change with each transaction.
 *
 * Protocol 2 (transaction.version 2): Produce 12, TxnOffsetCommit 5, EndTxn 5; the broker adds partitions, and the epoch grows
 * with each transaction. Protocol 1: AddPartitionsToTxn 3, Produce 11, AddOffsetsToTxn 3, TxnOffsetCommit 3, EndTxn 4. */
#ifndef PRODUCERS_H
#define PRODUCERS_H

#include "session.h"

enum { COORDINATOR_LOAD_IN_PROGRESS = 14, CONCURRENT_TRANSACTIONS = 51 };
enum { TRANSACTIONAL_ID_BYTES = 300, RETRY_NS = 20000000 };

struct producer {
    int64_t id;
    int16_t epoch;
    int32_t sequence; /* of the next batch in each partition */
};

/* A request, and the positions of what changes in it. A position of 0 means that it has no such field. */
struct prepared {
    struct buffer bytes;
    size_t producer_at; /* producer id and epoch */
    size_t offset_at;   /* the offset that is committed or fetched */
    size_t batch_at;    /* the first batch; the others follow at the same distance */
    size_t batch_step;
    int batches;
};

/* The CRC of a batch as a function of the fields of its producer: CRCs of batches of equal length are affine in their bits. */
struct producer_crc {
    uint32_t without, change[14][256];
};

/* Makes the batch transactional; its producer fields are zero. */
struct producer_crc make_transactional(struct batch *batch);

/* Until this broker coordinates the id, and has given it a producer id and an epoch. */
struct producer init_producer(int fd, const char *transactional_id);
void put_init_producer_id(struct buffer *buffer, const char *transactional_id);

void prepare_add_partitions(struct prepared *request, const char *transactional_id, const char *topic, int first, int partitions);
void prepare_produce(struct prepared *request, int protocol, const char *transactional_id, const char *topic, int first, int partitions,
                     const struct batch *batch);
void prepare_add_offsets(struct prepared *request, const char *transactional_id, const char *group);
void prepare_offsets(struct prepared *request, int protocol, const char *transactional_id, const char *group, const char *topic,
                     int partition);
void prepare_end(struct prepared *request, int protocol, const char *transactional_id);
void prepare_fetch(struct prepared *request, const struct topic *topic, int partition, int max_wait, int max_bytes);

/* Before a request is sent: its fields. */
void set_producer(struct prepared *request, const struct producer *producer);
void set_offset(struct prepared *request, int64_t offset);
void set_batches(struct prepared *request, const struct producer *producer, const struct producer_crc *crc);

/* Whether clients repeat a request after this error; they wait RETRY_NS before. */
bool is_retried(int16_t error);

/* The responses, after the size field: the first error, 0 if there is none. They die if something is missing. */
int16_t read_added_partitions(struct cursor response, int partitions);
int16_t read_produced(struct cursor response, int partitions);
const char *message_of_produce(void); /* of the first error, or empty */
int16_t read_added_offsets(struct cursor response);
int16_t read_offsets(struct cursor response);
/* With protocol 2 also the producer id and the epoch of the next transaction, whose sequence is 0. */
int16_t read_end(struct cursor response, int protocol, struct producer *producer);

#endif
