/* `wait`: watches a broker come up, from outside. Prints three readings of the monotonic clock: when its port took a
 * connection, when it answered a Metadata request and named itself in it, and when it answered ListOffsets without error
 * for partitions 0..partitions-1 of every topic in --topic (comma between names). Gives up after --timeout seconds.
 * `loaded`: the first two of these, and when it described a thousand transactional ids, so that all partitions of
 * `__transaction_state` must be loaded; after this reading all --ids ids are described. */
#include "session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { COORDINATOR_LOAD_IN_PROGRESS = 14, NOT_COORDINATOR = 16, DESCRIBED = 1000 };
enum { TOPICS = 1000, EMPTY_METADATA_BYTES = 4 + 1 + 4 + 1 };

static uint64_t deadline;

/* Between two attempts: there is no event to wait for from outside of the broker. */
static void pause_ms(long ms) {
    if (now_ns() > deadline)
        die("gave up: the broker does not answer");
    struct timespec pause = {0, ms * 1000000};
    nanosleep(&pause, NULL);
}

static int connect_when_up(const struct options *options) {
    int fd;
    while ((fd = try_connect(options, 0)) < 0)
        pause_ms(1);
    struct timeval patience = {5, 0};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    return fd;
}

static bool knows_itself(int fd) {
    struct buffer request = {0};
    struct cursor response;
    put_metadata(&request, NULL);
    bool answered = try_ask(fd, &request, &response);
    free(request.data);
    if (!answered || response.end - response.at < EMPTY_METADATA_BYTES)
        return false;
    take_i32(&response);
    skip_tags(&response);
    take_i32(&response);
    return take_uvarint(&response) > 1;
}

/* True if all partitions of the topic answer without error; *connected is false if the connection ended meanwhile. */
static bool all_answer(int fd, const char *topic, int partitions, bool *connected) {
    struct buffer request = {0};
    struct cursor response;
    put_list_offsets(&request, topic, partitions, LATEST);
    *connected = try_ask(fd, &request, &response);
    free(request.data);
    if (!*connected)
        return false;
    take_i32(&response);
    skip_tags(&response);
    take_i32(&response);
    if (take_uvarint(&response) != 2)
        return false;
    skip_compact_bytes(&response);
    if (take_uvarint(&response) != (uint64_t)partitions + 1)
        return false;
    bool all = true;
    for (int i = 0; i < partitions; i++) {
        take_i32(&response);
        all &= take_i16(&response) == 0;
        take_i64(&response);
        all &= take_i64(&response) >= 0;
        take_i32(&response);
        skip_tags(&response);
    }
    return all;
}

/* A connection to a broker that names itself in Metadata. */
static int connect_when_answering(const struct options *options, uint64_t *listening, uint64_t *answered) {
    int fd = connect_when_up(options);
    *listening = now_ns();
    while (!knows_itself(fd)) {
        pause_ms(2);
        close(fd);
        fd = connect_when_up(options);
    }
    *answered = now_ns();
    return fd;
}

/* Whether the coordinator describes these ids, which must exist; false while it loads some of them. */
static bool are_described(int fd, const struct options *options, int first, int count) {
    struct buffer request = {0};
    begin_request(&request, DESCRIBE_TRANSACTIONS, 0, 0);
    put_uvarint(&request, (uint64_t)count + 1);
    for (int number = first; number < first + count; number++) {
        char id[300];
        snprintf(id, sizeof id, "%s-%d", options->topic, number);
        put_compact_string(&request, id);
    }
    put_uvarint(&request, 0);
    end_request(&request);
    struct cursor response = ask(fd, &request);
    free(request.data);
    take_i32(&response);
    skip_tags(&response);
    take_i32(&response);
    if (take_uvarint(&response) != (uint64_t)count + 1)
        die("DescribeTransactions was answered without all ids");
    for (int i = 0; i < count; i++) {
        int16_t error = take_i16(&response);
        if (error >= COORDINATOR_LOAD_IN_PROGRESS && error <= NOT_COORDINATOR)
            return false;
        if (error)
            die("the transactional id %s-%d was answered with error %d", options->topic, first + i, error);
        skip_compact_bytes(&response);
        skip_compact_bytes(&response);
        take(&response, 4 + 8 + 8 + 2); /* timeout, start, producer id, epoch */
        if (take_uvarint(&response) != 1)
            die("the transactional id %s-%d has partitions", options->topic, first + i);
        skip_tags(&response);
    }
    return true;
}

void run_loaded(const struct options *options) {
    uint64_t listening, answered;
    deadline = now_ns() + (uint64_t)(options->timeout * 1e9);
    int fd = connect_when_answering(options, &listening, &answered);
    while (!are_described(fd, options, 0, options->ids < DESCRIBED ? options->ids : DESCRIBED))
        pause_ms(1);
    uint64_t loaded = now_ns();
    for (int first = 0; first < options->ids; first += DESCRIBED)
        if (!are_described(fd, options, first, options->ids - first < DESCRIBED ? options->ids - first : DESCRIBED))
            die("the transactional ids from %s-%d on are not loaded, but earlier ones are", options->topic, first);
    printf("{\"listening_ns\": %llu, \"answered_ns\": %llu, \"loaded_ns\": %llu}\n", (unsigned long long)listening,
           (unsigned long long)answered, (unsigned long long)loaded);
}

void run_wait(const struct options *options) {
    deadline = now_ns() + (uint64_t)(options->timeout * 1e9);
    uint64_t listening, answered;
    int fd = connect_when_answering(options, &listening, &answered);
    char *names = strdup(options->topic ? options->topic : ""), *topics[TOPICS];
    int count = 0;
    for (char *name = strtok(names, ","); name && count < TOPICS; name = strtok(NULL, ","))
        topics[count++] = name;
    for (int i = 0; i < count;) {
        bool connected;
        if (all_answer(fd, topics[i], options->partitions, &connected)) {
            i++;
            continue;
        }
        pause_ms(10);
        if (!connected) {
            close(fd);
            fd = connect_when_up(options);
        }
    }
    printf("{\"listening_ns\": %llu, \"answered_ns\": %llu, \"partitions_ns\": %llu}\n", (unsigned long long)listening,
           (unsigned long long)answered, (unsigned long long)now_ns());
}
