/* `idle`: opens --connections connections, has an ApiVersions answered on each, and keeps them open between the two ends
 * of the window. They come from --sources addresses 127.0.0.2, 127.0.0.3, ... (0: from the default one). At the end all
 * must still answer. */
#include "session.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

static void ask_api_versions(int fd) {
    struct buffer request = {0};
    put_api_versions(&request);
    struct cursor response = ask(fd, &request);
    take_i32(&response);
    int16_t error = take_i16(&response);
    if (error)
        die("ApiVersions was answered with error %d", error);
    free(request.data);
}

void run_idle(const struct options *options) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_max < (rlim_t)options->connections + 32)
        die("needs a limit of %d open files", options->connections + 32);
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit))
        die("cannot raise the limit of open files");
    int *fds = calloc((size_t)options->connections, sizeof *fds);
    if (!fds)
        die("out of memory");
    uint64_t began = now_ns();
    for (int i = 0; i < options->connections; i++) {
        fds[i] = connect_to(options, options->sources ? 1 + i % options->sources : 0);
        ask_api_versions(fds[i]);
    }
    double opening = (double)(now_ns() - began) / 1e9;
    struct window window;
    open_window(&window, options);
    close_window(&window, options);
    for (int i = 0; i < options->connections; i++)
        ask_api_versions(fds[i]);
    printf("{\"connections\": %d, \"opening_seconds\": %.6f", options->connections, opening);
    print_window(&window);
    printf("}\n");
}
