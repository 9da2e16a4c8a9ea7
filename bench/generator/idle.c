/* `idle`: opens --connections connections, has an ApiVersions answered on each, and keeps them open between the two ends
 * of the window. They come from --sources addresses 127.0.0.2, 127.0.0.3, ... (0: from the default one). At the end all
 * must still answer. */
#include "secure.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

void run_idle(const struct options *options) {
    struct rlimit limit;
    int files = options->connections + 32;
    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_max < (rlim_t)files)
        die("needs a limit of %d open files", files);
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit))
        die("cannot raise the limit of open files");
    struct exchange *all = calloc((size_t)options->connections, sizeof *all);
    if (!all)
        die("out of memory");
    uint64_t began = now_ns();
    for (int i = 0; i < options->connections; i++) {
        all[i].fd = connect_to_plainly(options, options->sources ? 1 + i % options->sources : 0);
        if (options->tls)
            all[i].tls = light_connect(all[i].fd);
        ask_versions(&all[i]);
    }
    double opening = (double)(now_ns() - began) / 1e9;
    struct window window;
    open_window(&window, options);
    close_window(&window, options);
    for (int i = 0; i < options->connections; i++)
        ask_versions(&all[i]);
    printf("{\"connections\": %d, \"opening_seconds\": %.6f", options->connections, opening);
    print_window(&window);
    printf("}\n");
}
