/* A load generator at the level of the wire: one process, one thread, epoll. With --tls, a second thread encrypts. It knows just enough of
 * Kafka's protocol to send prepared bytes and to be sure of what comes back. Results are one line of JSON. */
#include "session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    void (*run)(const struct options *);
    bool needs_topic;
    const char *says;
} loads[] = {
    {"produce", run_produce, true, "the same batch again and again"},
    {"fetch", run_fetch, true, "a log of one repeated batch, again and again"},
    {"deliver", run_deliver, true, "from a Produce to the Fetch that waits for it"},
    {"longpoll", run_longpoll, true, "many waiting consumers, few records"},
    {"commit", run_commit, true, "offsets of a group a connection"},
    {"groups", run_groups, true, "offsets of many groups, once each"},
    {"transactions", run_transactions, true, "transactions, one in flight on each connection"},
    {"visible", run_visible, true, "from an EndTxn to the Fetch of committed records that waits for it"},
    {"ids", run_ids, true, "a producer id for each of many transactional ids, named TOPIC-0 and so on"},
    {"loaded", run_loaded, true, "until a broker answers, and until its coordinator knows these transactional ids"},
    {"rebalance", run_rebalance, true, "a group of many members, joining anew"},
    {"logins", run_logins, false, "connect, TLS handshake (--tls), login (--user), close, again"},
    {"idle", run_idle, false, "connections that do nothing"},
    {"wait", run_wait, false, "until a broker listens, answers, serves all partitions"},
    {"fill", run_fill, true, "one batch into each partition"},
    {"batch", run_batch, false, "write the batch to --out"},
    {"floor", run_floor, false, "bare pwrite or sendfile"},
    {"hops", run_hops, false, "bare wake-ups: a message on a connection, through processes, to another connection"},
};

enum type { TEXT, INT, LONG, SECONDS, FLAG };
static struct options options = {
    .host = "127.0.0.1",
    .port = 9092,
    .partitions = 1,
    .connections = 1,
    .inflight = 1,
    .acks = 1,
    .size = 100,
    .records = 1,
    .max_bytes = 1 << 20,
    .max_wait = 500,
    .sample = 32,
    .groups = 1,
    .protocol = 2,
    .spread = 1,
    .batches = 1,
    .ids = 1,
    .hops = 2,
    .bytes = 1 << 30,
    .seconds = 5,
    .rate = 100,
    .pause = 0.001,
    .timeout = 120,
};
static const struct {
    const char *name;
    enum type type;
    void *value;
    const char *says;
} known[] = {
    {"host", TEXT, &options.host, "IPv4 address of the broker"},
    {"port", INT, &options.port, ""},
    {"topic", TEXT, &options.topic, "its name; wait takes several with commas between"},
    {"partitions", INT, &options.partitions, "partitions 0 to N-1 are used"},
    {"conns", INT, &options.connections, "connections"},
    {"inflight", INT, &options.inflight, "produce: requests in flight on each connection"},
    {"acks", INT, &options.acks, "produce: 1, or -1 for all in-sync replicas"},
    {"size", INT, &options.size, "bytes of a record's value (floor: of a call)"},
    {"size-max", INT, &options.size_max, "values of --size to this many bytes"},
    {"records", INT, &options.records, "records in a batch"},
    {"batch-bytes", LONG, &options.batch_bytes, "instead of --records: fill a batch to exactly this size"},
    {"batch-file", TEXT, &options.batch_file, "instead of all these: a file that holds the batch"},
    {"seconds", SECONDS, &options.seconds, "length of the measurement"},
    {"warmup", SECONDS, &options.warmup, "before it, the same unmeasured: seconds (fetch: times --bytes)"},
    {"requests", LONG, &options.requests, "produce: this many instead of --seconds"},
    {"bytes", LONG, &options.bytes, "fetch, floor: until this many were moved"},
    {"max-bytes", INT, &options.max_bytes, "fetch: of a response"},
    {"max-wait", INT, &options.max_wait, "fetch, longpoll: ms that a Fetch may wait"},
    {"sample", INT, &options.sample, "fetch: every how manieth response is checked whole"},
    {"rate", SECONDS, &options.rate, "longpoll: records a second in all"},
    {"pause", SECONDS, &options.pause, "deliver, visible, hops: between two records"},
    {"hops", INT, &options.hops, "hops: processes between the two connections"},
    {"groups", INT, &options.groups, "groups: how many; rebalance: how often"},
    {"protocol", INT, &options.protocol, "transactions, visible: transaction.version of the client, 1 or 2"},
    {"spread", INT, &options.spread, "transactions: partitions that each transaction writes to"},
    {"batches", INT, &options.batches, "transactions: Produce requests in each transaction"},
    {"transform", FLAG, &options.transform, "transactions: fetch a record before, and commit its offset"},
    {"ids", INT, &options.ids, "ids, loaded: transactional ids"},
    {"sources", INT, &options.sources, "idle: how many source addresses to connect from"},
    {"timeout", SECONDS, &options.timeout, "wait: when to give up"},
    {"out", TEXT, &options.out, "batch: the file to write"},
    {"path", TEXT, &options.path, "floor: the file to write, removed afterwards"},
    {"kind", TEXT, &options.kind, "floor: pwrite or sendfile"},
    {"tls", FLAG, &options.tls, "TLS 1.3 with AES-256-GCM; certificates are not checked"},
    {"user", TEXT, &options.user, "USER:PASSWORD for a login with SCRAM-SHA-512"},
    {"login-rate", SECONDS, &options.login_rate, "logins: how many a second in all; 0: as many as possible"},
    {"sync", FLAG, &options.sync, "print ready and done, and wait for a line after each"},
};

static void usage(void) {
    puts("gen LOAD [--option value ...]\n\nloads:");
    for (size_t i = 0; i < sizeof loads / sizeof *loads; i++)
        printf("  %-12s %s\n", loads[i].name, loads[i].says);
    puts("\noptions:");
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        printf("  --%-12s %s\n", known[i].name, known[i].says);
}

static void set(size_t number, const char *text) {
    char *end = "";
    switch (known[number].type) {
    case TEXT: *(const char **)known[number].value = text; break;
    case INT: *(int *)known[number].value = (int)strtol(text, &end, 10); break;
    case LONG: *(long *)known[number].value = strtol(text, &end, 10); break;
    case SECONDS: *(double *)known[number].value = strtod(text, &end); break;
    case FLAG: break;
    }
    if (*end || !*text)
        die("--%s does not take %s", known[number].name, text);
}

static void parse(int count, char **arguments) {
    for (int i = 0; i < count; i++) {
        size_t number = 0, all = sizeof known / sizeof *known;
        while (number < all && (strncmp(arguments[i], "--", 2) || strcmp(arguments[i] + 2, known[number].name)))
            number++;
        if (number == all)
            die("unknown option %s", arguments[i]);
        if (known[number].type == FLAG)
            *(bool *)known[number].value = true;
        else if (++i == count)
            die("--%s needs a value", known[number].name);
        else
            set(number, arguments[i]);
    }
    if (options.connections < 1 || options.partitions < 1 || options.inflight < 1 || options.sample < 1 || options.rate <= 0 ||
        options.size < 1 || options.spread < 1 || options.spread > options.partitions || options.batches < 1 || options.ids < 1 ||
        (options.protocol != 1 && options.protocol != 2) || (options.requests && options.requests < options.connections))
        die("an option is too small, or not possible");
}

int main(int count, char **arguments) {
    if (count < 2 || strcmp(arguments[1], "--help") == 0) {
        usage();
        return count < 2 ? 2 : 0;
    }
    parse(count - 2, arguments + 2);
    for (size_t i = 0; i < sizeof loads / sizeof *loads; i++) {
        if (strcmp(arguments[1], loads[i].name))
            continue;
        if (loads[i].needs_topic && !options.topic)
            die("%s needs --topic", loads[i].name);
        loads[i].run(&options);
        return 0;
    }
    die("no load named %s", arguments[1]);
}
