/* What every kind of load shares: options, sockets, blocking requests for setting up and checking, the measured window,
 * latencies. */
#ifndef SESSION_H
#define SESSION_H

#include <sys/types.h>

#include "wire.h"

struct options {
    const char *host, *topic, *batch_file, *out, *path, *kind;
    int port, partitions, connections, inflight, size, size_max, records, max_bytes, max_wait, sources, sample, groups, acks;
    int protocol, spread, batches, ids, hops;
    long batch_bytes, requests, bytes;
    double seconds, warmup, rate, pause, timeout;
    bool sync, transform, tls;
    const char *user;
    double login_rate;
};

/* How long is tried again what a broker is not yet ready for. */
#define PATIENCE_NS 60000000000ULL

struct latencies {
    uint32_t *ns;
    size_t count, room;
};

/* The measured window: what the clock and this process' own CPU say at its two ends. */
struct window {
    uint64_t began_ns, ended_ns, began_cpu_ns, ended_cpu_ns;
};

uint64_t now_ns(void);
uint64_t own_cpu_ns(void);

/* A connected socket with TCP_NODELAY. source 0 lets the kernel choose; n > 0 binds to 127.0.0.(1+n). With --user it has logged in; with
 * --tls it is the local end of a tunnel. */
int connect_to(const struct options *options, int source);
/* The same without either. */
int connect_to_plainly(const struct options *options, int source);
/* Throws away up to `size` received bytes; as recv with MSG_DONTWAIT. */
ssize_t discard(const struct options *options, int fd, size_t size);
/* The same, -1 if nobody listens. */
int try_connect(const struct options *options, int source);
void set_nonblocking(int fd);
void send_all(int fd, const uint8_t *data, size_t size);
/* Sends a request and returns its response after the size field, which stands in the four bytes before; the memory
 * stays valid until the next call. */
struct cursor ask(int fd, const struct buffer *request);
/* The same; false if the connection ended or did not answer in `SO_RCVTIMEO`. */
bool try_ask(int fd, const struct buffer *request, struct cursor *response);

struct topic find_topic(int fd, const char *name);
/* The first offset (EARLIEST) or the log end offset (LATEST) of partitions 0..partitions-1. */
void list_offsets(int fd, const char *topic, int partitions, int64_t timestamp, int64_t *offsets);
enum coordinator { OF_GROUPS = 0, OF_TRANSACTIONS = 1 };
/* Until the broker says that it coordinates the group, or the transactional id. */
void find_coordinator(int fd, const char *key, enum coordinator kind);
/* Before what is tried again. */
void pause_a_little(void);
struct batch batch_for(const struct options *options);

/* With --sync the caller of this program takes its own readings at both ends: prints "ready" and waits for a line,
 * later prints "done" and waits for another. */
void open_window(struct window *window, const struct options *options);
void close_window(struct window *window, const struct options *options);
double window_seconds(const struct window *window);
void print_window(const struct window *window);

void add_latency(struct latencies *latencies, uint64_t ns);
/* Prints p50_us, p99_us, max_us (as JSON members, with a comma in front). */
void print_latencies(struct latencies *latencies);

/* The kinds of load, each in its file. */
void run_produce(const struct options *options);
void run_fetch(const struct options *options);
void run_deliver(const struct options *options);
void run_longpoll(const struct options *options);
void run_logins(const struct options *options);
void run_idle(const struct options *options);
void run_wait(const struct options *options);
void run_commit(const struct options *options);
void run_groups(const struct options *options);
void run_transactions(const struct options *options);
void run_visible(const struct options *options);
void run_ids(const struct options *options);
void run_loaded(const struct options *options);
void run_rebalance(const struct options *options);
void run_fill(const struct options *options);
void run_batch(const struct options *options);
void run_floor(const struct options *options);
void run_hops(const struct options *options);

#endif
