/* `logins`: --conns threads that each connect, make a TLS handshake (--tls), log in (--user), have an ApiVersions answered, close the
 * connection, and begin again; --login-rate limits their number a second in all (0: no limit). A latency is that of a whole login. */
#include "secure.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct crew {
    const struct options *options;
    atomic_ulong done, begun;
    atomic_bool measured, ended;
    uint64_t began_ns;
    pthread_mutex_t lock;
    struct latencies latencies;
};

static void log_in_once(const struct options *options) {
    struct exchange exchange = {.fd = connect_to_plainly(options, 0)};
    if (options->tls)
        exchange.tls = light_connect(exchange.fd);
    if (options->user)
        log_in(&exchange, options->user);
    ask_versions(&exchange);
    if (exchange.tls)
        light_close(exchange.tls);
    else
        close(exchange.fd);
}

/* Before the next login may begin. */
static void keep_rate(struct crew *crew) {
    double rate = crew->options->login_rate;
    if (rate <= 0)
        return;
    uint64_t number = atomic_fetch_add(&crew->begun, 1), due = crew->began_ns + (uint64_t)((double)number / rate * 1e9);
    struct timespec until = {.tv_sec = (time_t)(due / 1000000000), .tv_nsec = (long)(due % 1000000000)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
}

static void *work(void *argument) {
    struct crew *crew = argument;
    while (!atomic_load(&crew->ended)) {
        keep_rate(crew);
        uint64_t began = now_ns();
        log_in_once(crew->options);
        if (atomic_load(&crew->measured)) {
            pthread_mutex_lock(&crew->lock);
            add_latency(&crew->latencies, now_ns() - began);
            pthread_mutex_unlock(&crew->lock);
            atomic_fetch_add(&crew->done, 1);
        }
    }
    return NULL;
}

static void pause_s(double seconds) {
    nanosleep(&(struct timespec){.tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)}, NULL);
}

void run_logins(const struct options *options) {
    struct crew crew = {.options = options, .began_ns = now_ns(), .lock = PTHREAD_MUTEX_INITIALIZER};
    pthread_t *threads = calloc((size_t)options->connections, sizeof *threads);
    if (!threads)
        die("out of memory");
    log_in_once(options); /* also computes the salted password */
    for (int i = 0; i < options->connections; i++)
        if (pthread_create(&threads[i], NULL, work, &crew))
            die("cannot start a thread");
    pause_s(options->warmup);
    struct window window;
    open_window(&window, options);
    atomic_store(&crew.measured, true);
    pause_s(options->seconds);
    atomic_store(&crew.measured, false);
    close_window(&window, options);
    unsigned long done = atomic_load(&crew.done);
    atomic_store(&crew.ended, true);
    for (int i = 0; i < options->connections; i++)
        pthread_join(threads[i], NULL);
    printf("{\"logins\": %lu", done);
    print_window(&window);
    print_latencies(&crew.latencies);
    printf("}\n");
}
