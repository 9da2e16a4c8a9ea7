/* See session.h. */
#include "session.h"
#include "secure.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { FIND_COORDINATOR_VERSION = 3 };

static uint64_t clock_ns(clockid_t clock) {
    struct timespec at;
    clock_gettime(clock, &at);
    return (uint64_t)at.tv_sec * 1000000000 + (uint64_t)at.tv_nsec;
}

uint64_t now_ns(void) { return clock_ns(CLOCK_MONOTONIC); }
uint64_t own_cpu_ns(void) { return clock_ns(CLOCK_PROCESS_CPUTIME_ID); }

int try_connect(const struct options *options, int source) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)options->port)};
    if (inet_pton(AF_INET, options->host, &address.sin_addr) != 1)
        die("--host wants an IPv4 address, not %s", options->host);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    if (fd < 0)
        die("socket: %s", strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (source > 0) {
        struct sockaddr_in from = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK + (uint32_t)source)};
        setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
        if (bind(fd, (struct sockaddr *)&from, sizeof from))
            die("cannot bind to source address %d: %s", source, strerror(errno));
    }
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0)
        return fd;
    close(fd);
    return -1;
}

int connect_to_plainly(const struct options *options, int source) {
    int fd = try_connect(options, source);
    if (fd < 0)
        die("cannot connect to %s:%d: %s", options->host, options->port, strerror(errno));
    return fd;
}

int connect_to(const struct options *options, int source) {
    int fd = connect_to_plainly(options, source);
    if (options->tls)
        fd = tls_tunnel(fd);
    if (options->user)
        log_in(&(struct exchange){.fd = fd}, options->user);
    return fd;
}

ssize_t discard(const struct options *options, int fd, size_t size) {
    static uint8_t block[1 << 16];
    if (!options->tls)
        return recv(fd, NULL, size, MSG_TRUNC | MSG_DONTWAIT);
    return recv(fd, block, size < sizeof block ? size : sizeof block, MSG_DONTWAIT);
}

void set_nonblocking(int fd) {
    if (fcntl(fd, F_SETFL, O_NONBLOCK))
        die("fcntl: %s", strerror(errno));
}

static bool try_send(int fd, const uint8_t *data, size_t size) {
    while (size) {
        ssize_t sent = send(fd, data, size, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return false;
        data += sent;
        size -= (size_t)sent;
    }
    return true;
}

void send_all(int fd, const uint8_t *data, size_t size) {
    if (!try_send(fd, data, size))
        die("send: %s", strerror(errno));
}

bool try_ask(int fd, const struct buffer *request, struct cursor *response) {
    static struct buffer answer;
    if (!try_send(fd, request->data, request->size))
        return false;
    uint8_t size_field[4];
    if (recv(fd, size_field, 4, MSG_WAITALL) != 4)
        return false;
    size_t size = 4 + (size_t)load_u32(size_field);
    if (size > 1u << 30)
        die("a response of %zu bytes", size);
    answer.size = 0;
    put_bytes(&answer, size_field, 4);
    while (answer.size < size) {
        uint8_t block[65536];
        size_t room = size - answer.size < sizeof block ? size - answer.size : sizeof block;
        ssize_t got = recv(fd, block, room, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        put_bytes(&answer, block, (size_t)got);
    }
    *response = (struct cursor){answer.data + 4, answer.data + size};
    return true;
}

struct cursor ask(int fd, const struct buffer *request) {
    struct cursor response;
    if (!try_ask(fd, request, &response))
        die("the broker closed the connection instead of answering API %d", request->data[5]);
    return response;
}

struct topic find_topic(int fd, const char *name) {
    struct topic topic = {.name = name};
    struct buffer request = {0};
    put_metadata(&request, name);
    struct cursor response = ask(fd, &request);
    take_i32(&response);
    skip_tags(&response);
    take_i32(&response);
    for (uint64_t brokers = take_uvarint(&response); brokers > 1; brokers--) {
        take_i32(&response);
        skip_compact_bytes(&response);
        take_i32(&response);
        skip_compact_bytes(&response);
        skip_tags(&response);
    }
    skip_compact_bytes(&response);
    take_i32(&response);
    if (take_uvarint(&response) != 2)
        die("Metadata came without the topic %s", name);
    int16_t error = take_i16(&response);
    if (error)
        die("Metadata of the topic %s: error %d", name, error);
    skip_compact_bytes(&response);
    memcpy(topic.id, take(&response, 16), 16);
    take_i8(&response);
    uint64_t partitions = take_uvarint(&response);
    topic.partitions = (int)partitions - 1;
    free(request.data);
    return topic;
}

void list_offsets(int fd, const char *topic, int partitions, int64_t timestamp, int64_t *offsets) {
    struct buffer request = {0};
    put_list_offsets(&request, topic, partitions, timestamp);
    struct cursor response = ask(fd, &request);
    take_i32(&response);
    skip_tags(&response);
    take_i32(&response);
    if (take_uvarint(&response) != 2)
        die("ListOffsets came without the topic %s", topic);
    skip_compact_bytes(&response);
    if (take_uvarint(&response) != (uint64_t)partitions + 1)
        die("ListOffsets came without all partitions of %s", topic);
    for (int i = 0; i < partitions; i++) {
        int32_t partition = take_i32(&response);
        int16_t error = take_i16(&response);
        if (error || partition < 0 || partition >= partitions)
            die("ListOffsets of %s-%d: error %d", topic, partition, error);
        take_i64(&response);
        offsets[partition] = take_i64(&response);
        take_i32(&response);
        skip_tags(&response);
    }
    free(request.data);
}

void pause_a_little(void) { nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL); }

void find_coordinator(int fd, const char *key, enum coordinator kind) {
    struct buffer request = {0};
    uint64_t until = now_ns() + PATIENCE_NS;
    begin_request(&request, FIND_COORDINATOR, FIND_COORDINATOR_VERSION, 0);
    put_compact_string(&request, key);
    put_i8(&request, (int8_t)kind);
    put_uvarint(&request, 0);
    end_request(&request);
    for (;;) {
        struct cursor response = ask(fd, &request);
        take_i32(&response);
        skip_tags(&response);
        take_i32(&response);
        int16_t error = take_i16(&response);
        if (!error)
            break;
        if (now_ns() > until)
            die("no coordinator of %s %s: error %d", kind == OF_GROUPS ? "the group" : "the transactional id", key, error);
        pause_a_little();
    }
    free(request.data);
}

struct batch batch_for(const struct options *options) {
    if (options->batch_file)
        return load_batch(options->batch_file);
    int size_max = options->size_max > options->size ? options->size_max : options->size;
    return make_batch(options->records, (size_t)options->batch_bytes, options->size, size_max);
}

static void tell_and_wait(const char *word) {
    printf("%s\n", word);
    fflush(stdout);
    for (int c; (c = getchar()) != '\n';)
        if (c == EOF)
            die("the caller went away");
}

void open_window(struct window *window, const struct options *options) {
    if (options->sync)
        tell_and_wait("ready");
    window->began_cpu_ns = own_cpu_ns();
    window->began_ns = now_ns();
}

void close_window(struct window *window, const struct options *options) {
    window->ended_ns = now_ns();
    window->ended_cpu_ns = own_cpu_ns();
    if (options->sync)
        tell_and_wait("done");
}

double window_seconds(const struct window *window) { return (double)(window->ended_ns - window->began_ns) / 1e9; }

void print_window(const struct window *window) {
    printf(", \"seconds\": %.6f, \"generator_cpu_seconds\": %.6f", window_seconds(window),
           (double)(window->ended_cpu_ns - window->began_cpu_ns) / 1e9);
}

void add_latency(struct latencies *latencies, uint64_t ns) {
    if (latencies->count == latencies->room) {
        latencies->room = latencies->room ? latencies->room * 2 : 1 << 20;
        latencies->ns = realloc(latencies->ns, latencies->room * sizeof *latencies->ns);
        if (!latencies->ns)
            die("out of memory");
    }
    latencies->ns[latencies->count++] = ns < UINT32_MAX ? (uint32_t)ns : UINT32_MAX;
}

static int compare(const void *a, const void *b) {
    uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;
    return left < right ? -1 : left > right;
}

void print_latencies(struct latencies *latencies) {
    if (!latencies->count)
        return;
    qsort(latencies->ns, latencies->count, sizeof *latencies->ns, compare);
    size_t last = latencies->count - 1;
    printf(", \"p50_us\": %.1f, \"p99_us\": %.1f, \"max_us\": %.1f", latencies->ns[last / 2] / 1e3, latencies->ns[last * 99 / 100] / 1e3,
           latencies->ns[last] / 1e3);
}
