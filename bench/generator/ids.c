/* `ids`: InitProducerId for each of --ids transactional ids, named TOPIC-0 and so on, on --conns connections with --inflight
 * requests each. An id that the coordinator cannot serve yet is asked for again. */
#include "producers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static bool read_init(int fd) {
    uint8_t size_field[4], response[4096];
    if (recv(fd, size_field, 4, MSG_WAITALL) != 4)
        die("the broker closed a connection");
    size_t size = load_u32(size_field);
    if (size > sizeof response || recv(fd, response, size, MSG_WAITALL) != (ssize_t)size)
        die("an answer to InitProducerId is not whole");
    struct cursor cursor = {response, response + size};
    take_i32(&cursor);
    skip_tags(&cursor);
    take_i32(&cursor);
    return take_i16(&cursor) == 0;
}

void run_ids(const struct options *options) {
    int *fds = calloc((size_t)options->connections, sizeof *fds), control = connect_to(options, 0);
    int *refused = calloc((size_t)options->ids, sizeof *refused), count = 0;
    char id[TRANSACTIONAL_ID_BYTES];
    struct buffer request = {0}, requests = {0};
    struct window window;
    if (!fds || !refused)
        die("out of memory");
    for (int i = 0; i < options->connections; i++)
        fds[i] = connect_to(options, 0);
    snprintf(id, sizeof id, "%s-0", options->topic);
    init_producer(control, id);
    open_window(&window, options);
    for (int next = 1; next < options->ids;) {
        int first = next, asked = first;
        for (int i = 0; i < options->connections && next < options->ids; i++) {
            requests.size = 0;
            for (int j = 0; j < options->inflight && next < options->ids; j++) {
                snprintf(id, sizeof id, "%s-%d", options->topic, next++);
                put_init_producer_id(&request, id);
                put_bytes(&requests, request.data, request.size);
            }
            send_all(fds[i], requests.data, requests.size);
        }
        for (int i = 0; asked < next; i++)
            for (int j = 0; j < options->inflight && asked < next; j++, asked++)
                if (!read_init(fds[i]))
                    refused[count++] = asked;
    }
    for (int i = 0; i < count; i++) {
        snprintf(id, sizeof id, "%s-%d", options->topic, refused[i]);
        init_producer(control, id);
    }
    close_window(&window, options);
    printf("{\"ids\": %d, \"repeated\": %d", options->ids, count);
    print_window(&window);
    printf("}\n");
}
