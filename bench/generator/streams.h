/* Connections that each send one prepared request again and again, a fixed number of them in flight, and read every answer. */
#ifndef STREAMS_H
#define STREAMS_H

#include "session.h"

struct stream {
    int fd, partition;
    struct buffer *request; /* its first 12 bytes are replaced in each request; streams may share it */
    uint64_t sent_bytes, completed, limit;
    uint64_t *began_ns; /* a ring, one place a request in flight */
    int64_t last_offset;
    size_t have;
    uint8_t in[8192];
};

struct streams {
    const struct options *options;
    struct stream *all; /* options->connections of them */
    struct latencies latencies;
    int epoll;
    /* One answer without its size field; dies if it is not what was to come. */
    void (*answered)(struct stream *stream, const uint8_t *payload, size_t size, uint32_t correlation_id);
};

/* Memory for the streams and their epoll descriptor; nothing is connected yet. */
struct streams make_streams(const struct options *options,
                            void (*answered)(struct stream *, const uint8_t *, size_t, uint32_t));
/* Connects a stream that has its request. */
void open_stream(struct streams *run, struct stream *stream);
/* Runs until every stream completed `requests` more, or, if `seconds` > 0, until these have passed and nothing is in
 * flight. How many were completed. */
uint64_t drive(struct streams *run, uint64_t requests, double seconds);

#endif
