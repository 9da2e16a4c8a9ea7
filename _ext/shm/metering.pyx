"""Counting in this process's meter page. metering.pxd has the layout, docs/decisions/0016-metering.md has the reasons.

Runs in every process of the broker, in the thread of its loop; only this thread writes the page. A successor continues with the
page of a dead process: it frees what was created but not published, undoes a retirement that was not published and finishes one
that was. A call costs some nanoseconds. Only the indexes are allocated, once.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t, uint8_t
from libc.stdlib cimport calloc
from libc.string cimport memcmp, memcpy, memset
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

from odradek._ext.shm.atomics cimport fence, store_release_64
from odradek._ext.shm.layout cimport Region, region


cdef extern from *:
    """
    #include <time.h>
    static int64_t coarse_wall_ms(void) {
        struct timespec t;
        clock_gettime(CLOCK_REALTIME_COARSE, &t);
        return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
    }
    static int bucket_of(int64_t us) {
        return us <= 0 ? 0 : us >= (int64_t)1 << 30 ? 31 : 64 - __builtin_clzll((unsigned long long)us);
    }
    """
    int64_t coarse_wall_ms() noexcept nogil
    int bucket_of(int64_t us) noexcept nogil

PROBE_NAMES = (
    "parked_requests", "parked_fetches", "parked_produces", "parked_forwards", "queued_bytes", "connections_limit",
    "fetch_sessions", "fetch_session_partitions", "kept_bytes", "", "", "", "", "", "", "",
    "socket_bytes_in", "socket_bytes_out", "sendfile_bytes", "unsent_bytes", "unused_bytes_in", "frames", "bad_frames",
    "connections_accepted",
    "closed_eof", "closed_reset", "closed_idle", "closed_bad_frame", "closed_other_protocol", "closed_handler", "closed_file",
    "closed_error", "closed_asked",
    "turns", "turn_us", "cpu_us", "busy_us", "bytes_rejected", "produce_failed", "fetch_failed", "folded", "retired_entries",
    "forwarded_requests", "forwarded_bytes_in", "forwarded_bytes_out",
    "cleaner_passes", "segments_removed", "bytes_removed", "compactions", "connections_refused", "connections_full",
    "fetch_sessions_evicted", "late_requests", "forgotten_bytes",
)
if len(PROBE_NAMES) != PROBES:
    raise RuntimeError(f"{len(PROBE_NAMES)} names for {PROBES} probe words")

cdef enum:
    CLIENT_PLACES = 8192          # of the indexes: twice the size of their tables, powers of two
    TOPIC_PLACES = 16384
    USAGE_PLACES = 32768
    POSITION_PLACES = 32768
    RETIRE_PAUSE_MS = 10000       # minimum time between two searches for idle entries

cdef struct Index:                # open addressing; a place holds an entry's number + 1
    uint32_t* places
    uint32_t mask


cdef struct State:                # of this process; not shared
    Region* region
    MeterPage* page
    MeterPage* private_page
    Index clients
    Index topics
    Index usage
    Index positions
    uint32_t live_clients
    uint32_t live_topics
    uint32_t live_usage
    uint32_t live_positions
    uint32_t free_client          # no entry before it is free
    uint32_t free_topic
    uint32_t free_usage
    uint32_t free_position
    int64_t now_ms
    int64_t fixed_now_ms          # clock for tests; 0: none
    int64_t idle_ms
    int64_t next_retire_ms
    bint indexed                  # the indexes are not empty


cdef State state
memset(&state, 0, sizeof(State))
state.region = region()
state.idle_ms = 3600000


cdef uint32_t* new_places(uint32_t count) noexcept nogil:
    return <uint32_t*>calloc(count, sizeof(uint32_t))


state.private_page = <MeterPage*>calloc(1, sizeof(MeterPage))
state.clients = Index(new_places(CLIENT_PLACES), CLIENT_PLACES - 1)
state.topics = Index(new_places(TOPIC_PLACES), TOPIC_PLACES - 1)
state.usage = Index(new_places(USAGE_PLACES), USAGE_PLACES - 1)
state.positions = Index(new_places(POSITION_PLACES), POSITION_PLACES - 1)
if state.private_page == NULL or state.clients.places == NULL or state.topics.places == NULL or state.usage.places == NULL \
        or state.positions.places == NULL:
    raise MemoryError("no memory to count in")


cdef MeterPage* own_page() noexcept nogil:
    cdef MeterPage* page = <MeterPage*>state.region.meter
    if page == NULL:
        page = state.private_page
    if page != state.page or page.began_ms == 0:
        adopt(page)
    return page


cdef void turn_clock() noexcept nogil:
    state.now_ms = state.fixed_now_ms if state.fixed_now_ms else coarse_wall_ms()


cdef int64_t clock_us() noexcept nogil:
    cdef timespec t
    clock_gettime(CLOCK_MONOTONIC, &t)
    return <int64_t>t.tv_sec * 1000000 + t.tv_nsec // 1000


cdef void add(int probe, int64_t n) noexcept nogil:
    own_page().words[probe] += <uint64_t>n


cdef int api_index(int key) noexcept nogil:
    if 0 <= key < METER_KEY_TREE_OFFSETS:
        return key
    if key == 20102:
        return METER_KEY_TREE_OFFSETS
    return METER_KEY_EXPLAIN_GROUP if key == 20101 else METER_KEY_UNKNOWN


# -- the page's keys ------------------------------------------------------------------------------------------------

cdef inline uint32_t place_of(uint64_t key, uint32_t mask) noexcept nogil:
    return <uint32_t>((key * <uint64_t>0x9E3779B97F4A7C15) >> 40) & mask


cdef uint64_t hash_bytes(uint64_t seed, const uint8_t* data, int64_t n) noexcept nogil:
    cdef uint64_t h = seed ^ <uint64_t>0xCBF29CE484222325
    cdef int64_t i
    for i in range(n):
        h = (h ^ data[i]) * <uint64_t>0x100000001B3
    return h ^ (h >> 29)


cdef uint64_t client_hash(const uint8_t* principal, int64_t principal_bytes, const uint8_t* client_id, int64_t client_bytes) noexcept nogil:
    return hash_bytes(hash_bytes(<uint64_t>principal_bytes, principal, principal_bytes), client_id, client_bytes)


cdef inline void enter_index(Index* index, uint64_t key, uint32_t number) noexcept nogil:
    cdef uint32_t place = place_of(key, index.mask)
    while index.places[place]:
        place = (place + 1) & index.mask
    index.places[place] = number + 1
    state.indexed = True


cdef uint64_t new_since(MeterPage* page) noexcept nogil:
    """The wall clock, made unique: an entry with a `since` that a caller remembers is the same entry."""
    page.last_since = max(<uint64_t>max(state.now_ms, <int64_t>1), page.last_since + 1)
    return page.last_since


# -- taking a page over ---------------------------------------------------------------------------------------------

cdef void index_all(MeterPage* page) noexcept nogil:
    cdef uint32_t i
    cdef MeterClient* client
    if state.indexed:                       # otherwise they are untouched zero pages, which take no memory
        memset(state.clients.places, 0, CLIENT_PLACES * sizeof(uint32_t))
        memset(state.topics.places, 0, TOPIC_PLACES * sizeof(uint32_t))
        memset(state.usage.places, 0, USAGE_PLACES * sizeof(uint32_t))
        memset(state.positions.places, 0, POSITION_PLACES * sizeof(uint32_t))
    state.live_clients = state.live_topics = state.live_usage = state.live_positions = 0
    state.free_usage = state.free_position = 0
    state.free_client = CLIENT_OTHER + 1
    state.free_topic = TOPIC_OTHER + 1
    for i in range(<uint32_t>page.clients_used):
        client = &page.clients[i]
        if client.since:
            enter_index(&state.clients, client_hash(client.principal, client.principal_bytes, client.client_id, client.client_bytes), i)
            state.live_clients += 1
    for i in range(<uint32_t>page.topics_used):
        if page.topics[i].since:
            enter_index(&state.topics, hash_bytes(0, page.topics[i].name, page.topics[i].name_bytes), i)
            state.live_topics += 1
    for i in range(<uint32_t>page.usage_used):
        if page.usage[i].since:
            enter_index(&state.usage, page.usage[i].key, i)
            state.live_usage += 1
    for i in range(<uint32_t>page.positions_used):
        if page.positions[i].since:
            enter_index(&state.positions, page.positions[i].key, i)
            state.live_positions += 1


cdef void adopt(MeterPage* page) noexcept nogil:
    state.page = page
    turn_clock()
    if page.began_ms == 0:
        page.began_ms = new_since(page)
    take_back(page)
    index_all(page)
    state.next_retire_ms = 0


# -- retiring -------------------------------------------------------------------------------------------------------

cdef void take_back(MeterPage* page) noexcept nogil:
    """Free the usage entries whose values `retired` contains; unmark those of a retirement that was not published."""
    cdef uint32_t i
    cdef MeterUsage* entry
    store_release_64(&page.changes, page.changes + 1)
    fence()
    for i in range(<uint32_t>page.usage_used):
        entry = &page.usage[i]
        if entry.since and entry.retired_by:
            if entry.retired_by <= page.retired_sequence:
                store_release_64(&entry.since, 0)
            entry.retired_by = 0
    fence()
    store_release_64(&page.changes, page.changes + 1)


cdef void free_unused(MeterPage* page) noexcept nogil:
    """Free positions that are idle, and clients and topics that are idle and to which no entry refers."""
    cdef uint32_t i
    cdef uint64_t before = <uint64_t>max(state.now_ms - state.idle_ms, <int64_t>0)
    cdef uint8_t[METER_CLIENTS] client_used
    cdef uint8_t[METER_TOPICS] topic_used
    memset(client_used, 0, METER_CLIENTS)
    memset(topic_used, 0, METER_TOPICS)
    store_release_64(&page.changes, page.changes + 1)
    fence()
    for i in range(<uint32_t>page.usage_used):
        if page.usage[i].since:
            client_used[page.usage[i].key >> 32] = 1
            topic_used[(page.usage[i].key >> 8) & 0xFFFFFF] = 1
    for i in range(<uint32_t>page.positions_used):
        if page.positions[i].since and page.positions[i].at_ms < before:
            store_release_64(&page.positions[i].since, 0)
        elif page.positions[i].since:
            client_used[page.positions[i].key >> 32] = 1
    for i in range(<uint32_t>page.clients_used):
        if page.clients[i].since and not client_used[i] and page.clients[i].last_ms < before:
            store_release_64(&page.clients[i].since, 0)
    for i in range(<uint32_t>page.topics_used):
        if page.topics[i].since and not topic_used[i] and page.topics[i].last_ms < before:
            store_release_64(&page.topics[i].since, 0)
    fence()
    store_release_64(&page.changes, page.changes + 1)


cdef bint retire() noexcept nogil:
    """Free the entries that were idle for long and add their values to `retired`. Returns whether it looked for such entries.

    Entries of client `other` stay. A caller that remembers a client or a topic has just marked it as seen, so no number in use
    is freed.
    """
    cdef MeterPage* page = state.page
    cdef uint64_t* now_holds = &page.retired_odd[0] if page.retired_sequence & 1 else &page.retired_even[0]
    cdef uint64_t* following = &page.retired_even[0] if page.retired_sequence & 1 else &page.retired_odd[0]
    cdef uint64_t before = <uint64_t>max(state.now_ms - state.idle_ms, <int64_t>0)
    cdef uint32_t i
    cdef int v
    cdef MeterUsage* entry
    cdef bint retired_any = False
    if state.next_retire_ms - RETIRE_PAUSE_MS <= state.now_ms < state.next_retire_ms:
        return False                # runs nevertheless if the clock was set back
    state.next_retire_ms = state.now_ms + min(state.idle_ms, <int64_t>RETIRE_PAUSE_MS)
    memcpy(following, now_holds, 2 * USAGE_VALUES * 8)
    for i in range(<uint32_t>page.usage_used):
        entry = &page.usage[i]
        if entry.since and entry.last_ms < before and entry.key >> 32 != CLIENT_OTHER:
            entry.retired_by = page.retired_sequence + 1
            for v in range(USAGE_VALUES):
                following[v if (entry.key >> 8) & 0xFFFFFF == TOPIC_NONE else USAGE_VALUES + v] += entry.values[v]
            page.words[RETIRED_ENTRIES] += 1
            retired_any = True
    if retired_any:
        fence()
        store_release_64(&page.retired_sequence, page.retired_sequence + 1)
        take_back(page)
    free_unused(page)
    index_all(page)
    return True


# -- clients and topics ---------------------------------------------------------------------------------------------

cdef void find_client(const char* principal, int64_t principal_bytes, const uint8_t* client_id, int64_t client_bytes,
                      Client* out) noexcept nogil:
    cdef MeterPage* page = own_page()
    cdef MeterClient* entry
    cdef uint64_t key
    cdef uint32_t place, i
    principal_bytes = min(principal_bytes, <int64_t>PRINCIPAL_BYTES)
    client_bytes = min(max(client_bytes, <int64_t>0), <int64_t>CLIENT_ID_BYTES)
    key = client_hash(<const uint8_t*>principal, principal_bytes, client_id, client_bytes)
    place = place_of(key, state.clients.mask)
    while state.clients.places[place]:
        i = state.clients.places[place] - 1
        entry = &page.clients[i]
        if entry.principal_bytes == principal_bytes and entry.client_bytes == client_bytes \
                and memcmp(entry.principal, principal, principal_bytes) == 0 and memcmp(entry.client_id, client_id, client_bytes) == 0:
            entry.last_ms = <uint64_t>state.now_ms
            out.number = i
            out.since = entry.since
            return
        place = (place + 1) & state.clients.mask
    if state.live_clients >= METER_CLIENTS * 3 // 4:
        retire()
    i = state.free_client
    while i < METER_CLIENTS and page.clients[i].since:
        i += 1
    state.free_client = i
    if i == METER_CLIENTS:
        page.words[FOLDED] += 1
        out.number = CLIENT_OTHER
        out.since = 0
        return
    entry = &page.clients[i]
    page.clients_used = max(page.clients_used, <uint64_t>i + 1)
    entry.principal_bytes = <unsigned short>principal_bytes
    entry.client_bytes = <unsigned short>client_bytes
    memcpy(entry.principal, principal, principal_bytes)
    memcpy(entry.client_id, client_id, client_bytes)
    entry.last_ms = <uint64_t>state.now_ms
    store_release_64(&entry.since, new_since(page))
    enter_index(&state.clients, key, i)
    state.live_clients += 1
    out.number = i
    out.since = entry.since


cdef bint still_client(Client* client) noexcept nogil:
    cdef MeterClient* entry = &own_page().clients[client.number]
    if client.number and entry.since == client.since:
        entry.last_ms = <uint64_t>state.now_ms
        return True
    client.number = CLIENT_OTHER
    client.since = 0
    return False


cdef bint is_client(Client* client, const uint8_t* client_id, int64_t client_bytes) noexcept nogil:
    """Whether the entry still belongs to `client` and has this client id (the caller checks the principal)."""
    cdef MeterClient* entry = &own_page().clients[client.number]
    client_bytes = min(max(client_bytes, <int64_t>0), <int64_t>CLIENT_ID_BYTES)
    if client.number and entry.since == client.since and entry.client_bytes == client_bytes \
            and memcmp(entry.client_id, client_id, client_bytes) == 0:
        entry.last_ms = <uint64_t>state.now_ms
        return True
    return False


cdef uint32_t find_topic(const char* name, int64_t name_bytes, uint32_t* number, uint64_t* since) noexcept nogil:
    cdef MeterPage* page = own_page()
    cdef MeterTopic* entry = &page.topics[number[0]]
    cdef uint64_t key
    cdef uint32_t place, i
    if number[0] and entry.since == since[0]:
        entry.last_ms = <uint64_t>state.now_ms
        return number[0]
    name_bytes = min(name_bytes, <int64_t>TOPIC_BYTES)
    key = hash_bytes(0, <const uint8_t*>name, name_bytes)
    place = place_of(key, state.topics.mask)
    while state.topics.places[place]:
        i = state.topics.places[place] - 1
        entry = &page.topics[i]
        if entry.name_bytes == name_bytes and memcmp(entry.name, name, name_bytes) == 0:
            entry.last_ms = <uint64_t>state.now_ms
            number[0] = i
            since[0] = entry.since
            return i
        place = (place + 1) & state.topics.mask
    if state.live_topics >= METER_TOPICS * 3 // 4:
        retire()
    i = state.free_topic
    while i < METER_TOPICS and page.topics[i].since:
        i += 1
    state.free_topic = i
    if i == METER_TOPICS:
        page.words[FOLDED] += 1
        number[0] = 0
        return TOPIC_OTHER
    entry = &page.topics[i]
    page.topics_used = max(page.topics_used, <uint64_t>i + 1)
    entry.name_bytes = <unsigned short>name_bytes
    entry.largest_batch = 0
    memcpy(entry.name, name, name_bytes)
    entry.last_ms = <uint64_t>state.now_ms
    store_release_64(&entry.since, new_since(page))
    enter_index(&state.topics, key, i)
    state.live_topics += 1
    number[0] = i
    since[0] = entry.since
    return i


# -- usage ----------------------------------------------------------------------------------------------------------

cdef MeterUsage* usage_entry(uint64_t key) noexcept nogil:
    """The entry of a key, created if necessary; NULL if there is no room."""
    cdef MeterPage* page = state.page
    cdef MeterUsage* entry
    cdef uint32_t place = place_of(key, state.usage.mask), i
    cdef uint32_t room = METER_USAGE - METER_USAGE_OF_OTHER
    while state.usage.places[place]:
        entry = &page.usage[state.usage.places[place] - 1]
        if entry.key == key:
            entry.last_ms = <uint64_t>state.now_ms
            return entry
        place = (place + 1) & state.usage.mask
    if state.live_usage >= METER_USAGE * 3 // 4:
        retire()
    if key >> 32 == CLIENT_OTHER and (key >> 8 & 0xFFFFFF) <= TOPIC_OTHER:
        room = METER_USAGE              # reserved for the end of folding
    if state.live_usage >= room:
        return NULL
    i = state.free_usage
    while page.usage[i].since:
        i += 1
    state.free_usage = i
    entry = &page.usage[i]
    page.usage_used = max(page.usage_used, <uint64_t>i + 1)
    entry.key = key
    entry.last_ms = <uint64_t>state.now_ms
    entry.retired_by = 0
    memset(entry.values, 0, sizeof(entry.values))
    store_release_64(&entry.since, new_since(page))
    enter_index(&state.usage, key, i)
    state.live_usage += 1
    return entry


cdef MeterUsage* usage_of(uint32_t client, uint32_t topic, int api) noexcept nogil:
    cdef MeterPage* page = own_page()
    cdef MeterUsage* entry = usage_entry(<uint64_t>client << 32 | <uint64_t>topic << 8 | <uint64_t>api)
    if entry != NULL:
        return entry
    page.words[FOLDED] += 1
    if topic != TOPIC_NONE:
        topic = TOPIC_OTHER
        entry = usage_entry(<uint64_t>client << 32 | <uint64_t>topic << 8 | <uint64_t>api)
    if entry == NULL:
        entry = usage_entry(<uint64_t>CLIENT_OTHER << 32 | <uint64_t>topic << 8 | <uint64_t>api)
    return entry


# -- positions of readers -------------------------------------------------------------------------------------------

cdef MeterPosition* place_entry(MeterPage* page, ReaderPlace* place) noexcept nogil:
    """The entry that `place` refers to; NULL if there is none, or if the entry was freed meanwhile."""
    cdef MeterPosition* entry
    if place.number == 0:
        return NULL
    entry = &page.positions[place.number - 1]
    return entry if entry.since == place.since else NULL


cdef void put_position(uint32_t client, uint32_t slot, uint32_t incarnation, int64_t offset, ReaderPlace* place) noexcept nogil:
    cdef MeterPage* page = own_page()
    cdef MeterPosition* entry = place_entry(page, place)
    if entry == NULL or entry.key != (<uint64_t>client << 32 | slot) or entry.incarnation != incarnation:
        leave_position(place)
        entry = position_entry(page, client, slot, incarnation)
        if entry == NULL:
            return
        entry.readers += 1
        place.number = <uint32_t>(entry - &page.positions[0]) + 1
        place.since = entry.since
    entry.offset = offset
    entry.at_ms = <uint64_t>state.now_ms


cdef void leave_position(ReaderPlace* place) noexcept nogil:
    cdef MeterPosition* entry
    if place.number == 0:
        return
    entry = place_entry(own_page(), place)
    place.number = 0
    if entry != NULL and entry.readers:
        if entry.readers == 1:
            turn_clock()
            entry.at_ms = <uint64_t>state.now_ms
        entry.readers -= 1


cdef MeterPosition* position_entry(MeterPage* page, uint32_t client, uint32_t slot, uint32_t incarnation) noexcept nogil:
    """The entry of a client and a partition, created if necessary; NULL for client `other`, or if there is no room."""
    cdef MeterPosition* entry
    cdef uint64_t key = <uint64_t>client << 32 | slot
    cdef uint32_t place = place_of(key, state.positions.mask), i
    if client == CLIENT_OTHER:
        return NULL
    while state.positions.places[place]:
        entry = &page.positions[state.positions.places[place] - 1]
        if entry.key == key and entry.incarnation == incarnation:
            return entry
        place = (place + 1) & state.positions.mask
    if state.live_positions >= METER_POSITIONS * 3 // 4:
        retire()
    i = state.free_position
    while i < METER_POSITIONS and page.positions[i].since:
        i += 1
    state.free_position = i
    if i == METER_POSITIONS:
        page.words[FOLDED] += 1
        return NULL
    entry = &page.positions[i]
    page.positions_used = max(page.positions_used, <uint64_t>i + 1)
    entry.key = key
    entry.incarnation = incarnation
    entry.offset = 0
    entry.at_ms = 0               # until the caller stores the position, the entry counts as idle
    entry.readers = 0
    store_release_64(&entry.since, new_since(page))
    enter_index(&state.positions, key, i)
    state.live_positions += 1
    return entry


# -- batches --------------------------------------------------------------------------------------------------------

cdef void count_batch(uint32_t size) noexcept nogil:
    own_page().batch_sizes[bucket_of(<int64_t>size - 1)] += 1


cdef void count_stored(uint32_t topic, uint32_t size) noexcept nogil:
    cdef MeterPage* page = own_page()
    if size > page.topics[topic].largest_batch:
        page.topics[topic].largest_batch = size


# -- requests -------------------------------------------------------------------------------------------------------

cdef void count_request(int api, int version) noexcept nogil:
    own_page().requests[api * METER_VERSIONS + min(max(version, 0), METER_VERSIONS - 1)] += 1


cdef void count_error(int api, int code) noexcept nogil:
    own_page().errors[api * METER_ERRORS + min(max(code + 1, 0), METER_ERRORS - 1)] += 1


cdef inline void count_time(MeterTimes* times, uint64_t n, int64_t us) noexcept nogil:
    times.buckets[bucket_of(us)] += n
    times.sum_us += n * <uint64_t>max(us, <int64_t>0)


cdef void count_times(int api, uint64_t n, int64_t queue_us, int64_t local_us, int64_t remote_us, int64_t send_us) noexcept nogil:
    cdef MeterTimes* times = &own_page().times[api * METER_PHASES]
    count_time(&times[PHASE_QUEUE], n, queue_us)
    count_time(&times[PHASE_LOCAL], n, local_us)
    count_time(&times[PHASE_REMOTE], n, remote_us)
    count_time(&times[PHASE_SEND], n, send_us)
    count_time(&times[PHASE_TOTAL], n, queue_us + local_us + remote_us + send_us)


# -- software -------------------------------------------------------------------------------------------------------

cdef int software_opened(int listener, bytes name, bytes version) except -2:
    cdef MeterPage* page = own_page()
    cdef MeterSoftware* entry
    cdef int i, place = -1
    name = name[:SOFTWARE_BYTES]
    version = version[:SOFTWARE_BYTES]
    for i in range(<int>page.software_used):
        entry = &page.software[i]
        if entry.since and entry.listener == <uint32_t>listener and entry.lengths[0] == len(name) \
                and entry.lengths[1] == len(version) and memcmp(entry.name, <const char*>name, len(name)) == 0 \
                and memcmp(entry.version, <const char*>version, len(version)) == 0:
            entry.open += 1
            return i
        if place < 0 and entry.open == 0:
            place = i
    if page.software_used < METER_SOFTWARE:
        place = <int>page.software_used
        page.software_used += 1
    if place < 0:
        page.words[FOLDED] += 1
        if not 0 <= listener < METER_LISTENERS:
            return -1
        page.listeners[listener].other_software += 1
        return METER_SOFTWARE + listener
    entry = &page.software[place]
    store_release_64(&page.changes, page.changes + 1)
    store_release_64(&entry.since, 0)
    fence()
    entry.listener = <uint32_t>listener
    entry.lengths[0] = <uint8_t>len(name)
    entry.lengths[1] = <uint8_t>len(version)
    memcpy(entry.name, <const char*>name, len(name))
    memcpy(entry.version, <const char*>version, len(version))
    entry.open = 1
    store_release_64(&entry.since, new_since(page))
    store_release_64(&page.changes, page.changes + 1)
    return place


cdef void software_closed(int place) noexcept nogil:
    cdef MeterPage* page = own_page()
    if 0 <= place < METER_SOFTWARE and page.software[place].open:
        page.software[place].open -= 1
    elif place >= METER_SOFTWARE and page.listeners[place - METER_SOFTWARE].other_software:
        page.listeners[place - METER_SOFTWARE].other_software -= 1


# -- for the control path and for tests ----------------------------------------------------------------------------

def set_idle_ms(int64_t idle_ms):
    """Set the age after which an unused entry is retired once its table is three quarters full (metrics.usage.idle.ms)."""
    state.idle_ms = idle_ms


def count(str name, int64_t n=1):
    """Add `n` to one of this process's counters (see PROBE_NAMES). Raises ValueError for an unknown name."""
    own_page().words[PROBE_NAMES.index(name)] += <uint64_t>n


def gauge(str name, int64_t value):
    """Set one of this process's gauges. Raises ValueError for an unknown name and for a counter."""
    cdef int probe = PROBE_NAMES.index(name)
    if probe >= METER_GAUGES:
        raise ValueError(f"{name} is a counter, not a gauge")
    own_page().words[probe] = <uint64_t>value


def count_loop_delay(int64_t us):
    """Count that a timer of the loop fired `us` microseconds late."""
    count_time(&own_page().loop_delay, 1, us)


def count_request_errors(int api_key, codes):
    """Count the error codes in responses of an API, one for each failed request or part of a request."""
    cdef int api = api_index(api_key)
    for code in codes:
        count_error(api, code)


def use_clock(int64_t wall_ms):
    """Use this wall-clock time for the dates of entries (tests); 0: use the clock again."""
    state.fixed_now_ms = wall_ms
    turn_clock()


def count_usage(bytes principal, bytes client_id, topic, int api_key, tuple values):
    """Add (requests, errors, bytes in, bytes out, records in, records out, throttle ms, connection ms) to a client's entry.

    :param topic: the topic's name as bytes; None: no topic. :param api_key: -1: belongs to no request.
    """
    cdef Client client
    cdef MeterUsage* entry
    cdef uint32_t number = 0
    cdef uint64_t since = 0
    cdef int i
    own_page()
    turn_clock()
    find_client(principal, len(principal), <const uint8_t*><const char*>client_id, len(client_id), &client)
    if topic is not None:
        number = find_topic(topic, len(topic), &number, &since)
    entry = usage_of(client.number, number, METER_KEY_NONE if api_key == -1 else api_index(api_key))
    for i in range(USAGE_VALUES):
        entry.values[i] += <uint64_t>values[i]


def count_failed_request(context not None, int api_key):
    """Count the error of a request that was already counted as a request.

    :param context: context of the request's connection, with its `principal` and `client_id`.
    """
    cdef tuple values = (0, 1, 0, 0, 0, 0, 0, 0)
    count_usage(context.principal.encode(), (context.client_id or "").encode(), None, api_key, values)


def put_reader_position(bytes principal, bytes client_id, uint32_t slot, uint32_t incarnation, int64_t offset, bint ended=False):
    """Store a reader's position in a partition. :param ended: the reader's connection is closed."""
    cdef Client client
    cdef ReaderPlace place
    memset(&place, 0, sizeof(ReaderPlace))
    own_page()
    turn_clock()
    find_client(principal, len(principal), <const uint8_t*><const char*>client_id, len(client_id), &client)
    put_position(client.number, slot, incarnation, offset, &place)
    if ended:
        leave_position(&place)


def tables():
    """{name of a table: (entries in use, maximum entries)}."""
    own_page()
    return {
        "clients": (state.live_clients, METER_CLIENTS - 1),
        "topics": (state.live_topics, METER_TOPICS - 2),
        "usage": (state.live_usage, METER_USAGE),
        "positions": (state.live_positions, METER_POSITIONS),
    }


def forget_indexes():
    """Read the page again as a successor of this process does: only from the page's content (tests)."""
    state.page = NULL
