/* `floor`: what the kernel alone takes to move the same bytes, in this process' CPU time.
 * --kind pwrite: --bytes to the file --path, --size at a time. --kind sendfile: that many bytes of a file in the page
 * cache over a TCP connection of the loopback device, --size at a time, to a child that drops them. */
#include "session.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CACHED_BYTES = 64 << 20 };

static void write_file(int fd, long bytes, int size) {
    uint8_t *block = malloc((size_t)size);
    if (!block)
        die("out of memory");
    memset(block, 'x', (size_t)size);
    for (long at = 0; at < bytes; at += size)
        if (pwrite(fd, block, (size_t)size, at) != size)
            die("pwrite: %s", strerror(errno));
    free(block);
}

/* The sending end of a TCP connection whose other end a child reads and drops. */
static int drained_connection(pid_t *child) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0), from = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&address, length) || listen(listener, 1) ||
        getsockname(listener, (struct sockaddr *)&address, &length) || connect(from, (struct sockaddr *)&address, length))
        die("no connection to myself: %s", strerror(errno));
    int to = accept(listener, NULL, NULL);
    close(listener);
    *child = fork();
    if (*child < 0 || to < 0)
        die("fork or accept: %s", strerror(errno));
    if (*child == 0) {
        close(from);
        while (recv(to, NULL, CACHED_BYTES, MSG_TRUNC) > 0)
            ;
        _exit(0);
    }
    close(to);
    return from;
}

static void send_file(int file, long bytes, int size, int to) {
    for (long at = 0; at < bytes;) {
        off_t offset = at % CACHED_BYTES;
        size_t left = (size_t)(CACHED_BYTES - offset), wanted = (size_t)size < left ? (size_t)size : left;
        ssize_t sent = sendfile(to, file, &offset, wanted);
        if (sent <= 0)
            die("sendfile: %s", strerror(errno));
        at += sent;
    }
}

void run_floor(const struct options *options) {
    if (!options->path || !options->kind)
        die("floor needs --kind and --path");
    int file = open(options->path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (file < 0)
        die("cannot write %s", options->path);
    bool sends = strcmp(options->kind, "sendfile") == 0;
    if (!sends && strcmp(options->kind, "pwrite") != 0)
        die("--kind is pwrite or sendfile");
    pid_t child = 0;
    int to = -1;
    if (sends) {
        write_file(file, CACHED_BYTES, 1 << 20);
        to = drained_connection(&child);
    }
    struct window window;
    open_window(&window, options);
    if (sends)
        send_file(file, options->bytes, options->size, to);
    else
        write_file(file, options->bytes, options->size);
    close_window(&window, options);
    if (sends) {
        close(to);
        waitpid(child, NULL, 0);
    }
    unlink(options->path);
    printf("{\"bytes\": %ld", options->bytes);
    print_window(&window);
    printf("}\n");
}
