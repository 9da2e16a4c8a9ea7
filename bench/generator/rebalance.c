/* `rebalance`: --conns members of one classic group, each on its own connection, all join anew at once, --groups times. A
 * round lasts from the first JoinGroup sent to the last SyncGroup answer received; a first one, in which the group comes to
 * be, is not measured. What a member subscribes to changes with each round, so that whoever joins first begins it. Checked: one generation for all, one leader, who is told all members; every member
 * gets the bytes that the leader assigned to it. */
#include "session.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { JOIN_GROUP_VERSION = 6, SYNC_GROUP_VERSION = 4, MEMBER_ID_REQUIRED = 79, MEMBER_ID_BYTES = 200 };
enum { LOADING = 14, NOT_COORDINATOR = 16, ILLEGAL_GENERATION = 22, UNKNOWN_MEMBER_ID = 25, REBALANCE_IN_PROGRESS = 27 };
/* Version, one topic, and user data of four bytes: the number of the round. */
static const char SUBSCRIPTION[] = "\0\0\0\0\0\1\0\1t\0\0\0\4";

struct member {
    int fd;
    char id[MEMBER_ID_BYTES];
    bool leads;
};

static void put_join(struct buffer *buffer, const char *group, const char *member_id, int round) {
    begin_request(buffer, JOIN_GROUP, JOIN_GROUP_VERSION, 0);
    put_compact_string(buffer, group);
    put_i32(buffer, 60000);
    put_i32(buffer, 60000);
    put_compact_string(buffer, member_id);
    put_uvarint(buffer, 0);
    put_compact_string(buffer, "consumer");
    put_uvarint(buffer, 2);
    put_compact_string(buffer, "range");
    put_uvarint(buffer, sizeof SUBSCRIPTION + 4);
    put_bytes(buffer, SUBSCRIPTION, sizeof SUBSCRIPTION - 1);
    put_i32(buffer, round);
    put_uvarint(buffer, 0);
    put_uvarint(buffer, 0);
    end_request(buffer);
}

static void begin_sync(struct buffer *buffer, const char *group, int32_t generation, const char *member_id) {
    begin_request(buffer, SYNC_GROUP, SYNC_GROUP_VERSION, 0);
    put_compact_string(buffer, group);
    put_i32(buffer, generation);
    put_compact_string(buffer, member_id);
    put_uvarint(buffer, 0);
}

static void take_text(struct cursor *cursor, char *text) {
    uint64_t size = take_uvarint(cursor);
    if (size == 0 || size > MEMBER_ID_BYTES)
        die("a member id of %llu bytes", (unsigned long long)size);
    memcpy(text, take(cursor, size - 1), size - 1);
    text[size - 1] = 0;
}

/* Reads one frame of a blocking socket. */
static struct cursor receive(int fd) {
    static const struct buffer nothing;
    return ask(fd, &nothing);
}

/* While the group comes to be, some of these are met by members that came late: they join again. */
static bool is_passing(int16_t error, bool gathering) {
    return error == LOADING || error == NOT_COORDINATOR || error == MEMBER_ID_REQUIRED ||
           (gathering && (error == ILLEGAL_GENERATION || error == UNKNOWN_MEMBER_ID || error == REBALANCE_IN_PROGRESS));
}

/* Reads a JoinGroup response: error, generation, and the member's id. The leader's assignments go to `sync`; while the
 * group is gathering, a leader that is not told of all members is to join again. */
static int16_t read_join(struct cursor *response, struct member *member, const char *group, int members, bool gathering,
                         int32_t *generation, struct buffer *sync) {
    char leader[MEMBER_ID_BYTES], id[MEMBER_ID_BYTES];
    take_i32(response);
    skip_tags(response);
    take_i32(response);
    int16_t error = take_i16(response);
    int32_t told = take_i32(response);
    skip_compact_bytes(response);
    take_text(response, leader);
    take_text(response, member->id);
    if (error)
        return error;
    if (*generation && *generation != told && !gathering)
        die("members of generations %d and %d in one round", *generation, told);
    *generation = told;
    member->leads = strcmp(leader, member->id) == 0;
    begin_sync(sync, group, told, member->id);
    uint64_t count = take_uvarint(response) - 1;
    if (gathering && member->leads && count != (uint64_t)members)
        return REBALANCE_IN_PROGRESS;
    if (count != (member->leads ? (uint64_t)members : 0))
        die("a member was told of %llu of %d members", (unsigned long long)count, members);
    put_uvarint(sync, count + 1);
    for (uint64_t i = 0; i < count; i++) {
        take_text(response, id);
        skip_compact_bytes(response);
        skip_compact_bytes(response);
        skip_tags(response);
        put_compact_string(sync, id);
        put_compact_string(sync, id); /* what a member is assigned is its own name */
        put_uvarint(sync, 0);
    }
    put_uvarint(sync, 0);
    end_request(sync);
    return 0;
}

/* False if the member is to join again. */
static bool check_sync(struct cursor *response, const struct member *member, bool gathering) {
    take_i32(response);
    skip_tags(response);
    take_i32(response);
    int16_t error = take_i16(response);
    if (is_passing(error, gathering))
        return false;
    uint64_t size = take_uvarint(response);
    if (error || size != strlen(member->id) + 1 || memcmp(take(response, size - 1), member->id, size - 1))
        die("a SyncGroup was answered with error %d or another's assignment", error);
    return true;
}

/* All members join, then all synchronise; those that are given an id first join again with it. */
static void join_all(struct member *members, int count, const char *group, int round) {
    struct buffer request = {0}, *syncs = calloc((size_t)count, sizeof *syncs);
    struct pollfd *polls = calloc((size_t)count, sizeof *polls);
    bool *synced = calloc((size_t)count, sizeof *synced);
    int32_t generation = 0;
    bool gathering = round == 0;
    if (!syncs || !polls || !synced)
        die("out of memory");
    for (int i = 0; i < count; i++) {
        put_join(&request, group, members[i].id, round);
        send_all(members[i].fd, request.data, request.size);
        polls[i] = (struct pollfd){.fd = members[i].fd, .events = POLLIN};
    }
    for (int left = count; left;) {
        if (poll(polls, (nfds_t)count, 60000) < 1)
            die("no answer within a minute, %d members wait", left);
        for (int i = 0; i < count; i++) {
            if (!(polls[i].revents & POLLIN))
                continue;
            struct cursor response = receive(members[i].fd);
            if (synced[i] && check_sync(&response, &members[i], gathering)) {
                polls[i].fd = -1;
                left--;
                continue;
            }
            int16_t error = REBALANCE_IN_PROGRESS;
            if (!synced[i])
                error = read_join(&response, &members[i], group, count, gathering, &generation, &syncs[i]);
            synced[i] = false;
            if (error == LOADING || error == NOT_COORDINATOR)
                pause_a_little();
            if (is_passing(error, gathering)) {
                put_join(&request, group, members[i].id, round);
                send_all(members[i].fd, request.data, request.size);
                continue;
            }
            if (error)
                die("a JoinGroup was answered with error %d", error);
            send_all(members[i].fd, syncs[i].data, syncs[i].size);
            synced[i] = true;
        }
    }
    for (int i = 0; i < count; i++)
        free(syncs[i].data);
    free(request.data);
    free(syncs);
    free(polls);
    free(synced);
}

void run_rebalance(const struct options *options) {
    struct member *members = calloc((size_t)options->connections, sizeof *members);
    struct latencies latencies = {0};
    struct window window;
    if (!members)
        die("out of memory");
    for (int i = 0; i < options->connections; i++)
        members[i].fd = connect_to(options, 0);
    find_coordinator(members[0].fd, options->topic, OF_GROUPS);
    join_all(members, options->connections, options->topic, 0);
    open_window(&window, options);
    for (int i = 0; i < options->groups; i++) {
        uint64_t began = now_ns();
        join_all(members, options->connections, options->topic, i + 1);
        add_latency(&latencies, now_ns() - began);
    }
    close_window(&window, options);
    printf("{\"members\": %d, \"rebalances\": %d", options->connections, options->groups);
    print_window(&window);
    print_latencies(&latencies);
    printf("}\n");
}
