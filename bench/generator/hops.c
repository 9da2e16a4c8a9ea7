/* `hops`: the time that the kernel alone needs to bring a record to a consumer that waits. A message on a TCP connection of the loopback
 * device wakes a process, which wakes the next one with an eventfd, and so on; the last of --hops processes sends on another connection,
 * on which this process waits. --pause seconds pass before each message. A Produce to a long poll on another worker has 2 hops, an EndTxn 3
 * (worker, coordinator, worker). */
#include "session.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MOST_HOPS = 8, MESSAGE_BYTES = 256 };

/* Both ends of a TCP connection. */
static void connect_ends(int ends[2]) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    ends[0] = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&address, length) || listen(listener, 1) ||
        getsockname(listener, (struct sockaddr *)&address, &length) || connect(ends[0], (struct sockaddr *)&address, length) ||
        (ends[1] = accept(listener, NULL, NULL)) < 0)
        die("no connection to myself: %s", strerror(errno));
    close(listener);
}

static void wait_for(int fd) {
    struct pollfd waiting = {fd, POLLIN, 0};
    if (poll(&waiting, 1, -1) <= 0)
        die("poll: %s", strerror(errno));
}

/* Pass on what arrives until the process that forked this one ends. The first and the last descriptors are sockets, the others eventfds. */
static void pass_on(int from, bool first, int to, bool last) {
    static uint8_t message[MESSAGE_BYTES];
    uint64_t one = 1;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) {
        wait_for(from);
        if (read(from, message, first ? sizeof message : sizeof one) <= 0)
            _exit(0);
        if (write(to, last ? message : (uint8_t *)&one, last ? sizeof message : sizeof one) < 0)
            _exit(1);
    }
}

void run_hops(const struct options *options) {
    int in[2], out[2], between[MOST_HOPS];
    if (options->hops < 1 || options->hops > MOST_HOPS)
        die("--hops is 1 to %d", MOST_HOPS);
    connect_ends(in);
    connect_ends(out);
    for (int i = 0; i < options->hops; i++) {
        bool first = i == 0, last = i == options->hops - 1;
        if (!last && (between[i] = eventfd(0, 0)) < 0)
            die("eventfd: %s", strerror(errno));
        int child = fork();
        if (child < 0)
            die("fork: %s", strerror(errno));
        if (child == 0)
            pass_on(first ? in[1] : between[i - 1], first, last ? out[1] : between[i], last);
    }
    uint8_t message[MESSAGE_BYTES] = {0};
    struct latencies latencies = {0};
    struct window window;
    struct timespec pause = {0, (long)(options->pause * 1e9)};
    uint64_t warm_until = now_ns() + (uint64_t)(options->warmup * 1e9);
    uint64_t until = warm_until + (uint64_t)(options->seconds * 1e9);
    open_window(&window, options);
    while (now_ns() < until) {
        nanosleep(&pause, NULL); /* until all processes sleep, as those of a broker that waits for work */
        uint64_t began = now_ns();
        send_all(in[0], message, sizeof message);
        wait_for(out[0]);
        if (recv(out[0], message, sizeof message, MSG_WAITALL) != sizeof message)
            die("a message was cut");
        if (began >= warm_until)
            add_latency(&latencies, now_ns() - began);
    }
    close_window(&window, options);
    printf("{\"messages\": %zu", latencies.count);
    print_window(&window);
    print_latencies(&latencies);
    printf("}\n");
}
