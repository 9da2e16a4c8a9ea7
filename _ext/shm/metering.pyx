"""Counting in this process's meter page. meter_layout.pxd has the layout, docs/decisions/0016-metering.md has the reasons.

Runs in every process of the broker, in the thread of its loop; only this thread writes the page. A call costs some nanoseconds.
Nothing here allocates; the indexes of the tables are in meter_tables.pyx.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t, uint8_t
from libc.string cimport memcmp, memcpy, memset
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

from odradek._ext.shm.probes import PROBE_WORDS

from odradek._ext.shm.atomics cimport (
    count_32,
    count_64,
    store_relaxed_32,
    store_relaxed_64,
    store_relaxed_i64,
    store_release_64,
)
from odradek._ext.shm.meter_tables cimport (
    MeterState,
    adopt,
    begin_change,
    client_hash,
    end_change,
    enter_index,
    evict_clients,
    hash_bytes,
    meter_state,
    new_since,
    place_of,
    retire,
)


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

MECHANISMS = ("unknown", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")
OUTCOMES = {
    "succeeded": LOGIN_SUCCEEDED,
    "failed": LOGIN_FAILED,
    "renewed": RENEWAL_SUCCEEDED,
    "renewal_failed": RENEWAL_FAILED,
}
"""The outcomes of an authentication by their names."""

cdef enum:
    CLIENTS_OF_OTHERS = METER_CLIENTS // 8     # entries that an address with more clients than that does not use


cdef MeterState* state = meter_state()


cdef MeterPage* own_page() noexcept nogil:
    cdef MeterPage* page = <MeterPage*>state.region.meter
    if page == NULL:
        page = state.private_page
    if page != state.page or page.began_ms == 0:
        turn_clock()
        adopt(page)
    return page


cdef inline MeterPage* counted_page() noexcept nogil:
    """As `own_page`, without a call when the page is known: each request counts in it a dozen times."""
    cdef MeterPage* page = <MeterPage*>state.region.meter
    if page != NULL and page == state.page and page.began_ms:
        return page
    return own_page()


cdef void turn_clock() noexcept nogil:
    state.now_ms = state.fixed_now_ms if state.fixed_now_ms else coarse_wall_ms()


cdef int64_t clock_us() noexcept nogil:
    cdef timespec t
    clock_gettime(CLOCK_MONOTONIC, &t)
    return <int64_t>t.tv_sec * 1000000 + t.tv_nsec // 1000


cdef void add(int probe, int64_t n) noexcept nogil:
    count_64(&counted_page().words[probe], <uint64_t>n)


cdef int api_index(int key) noexcept nogil:
    if 0 <= key < METER_KEY_PRIVATE:
        return key
    if 0 <= key - FIRST_PRIVATE_KEY < METER_PRIVATE_KEYS:
        return METER_KEY_PRIVATE + key - FIRST_PRIVATE_KEY
    return METER_KEY_UNKNOWN


# -- clients and topics ---------------------------------------------------------------------------------------------

cdef uint32_t free_client(MeterPage* page) noexcept nogil:
    """A free entry for a client of `state.owner`; METER_CLIENTS if there is none. An address with many clients does not get the last ones:
    so the others find room while it invents client ids."""
    cdef uint32_t i = state.free_client
    while i < METER_CLIENTS and page.clients[i].since:
        i += 1
    state.free_client = i
    if state.owner and state.clients_of[state.owner] > CLIENTS_OF_OTHERS and state.live_clients >= METER_CLIENTS - CLIENTS_OF_OTHERS:
        return METER_CLIENTS
    return i


cdef void find_client(const char* principal, int64_t principal_bytes, const uint8_t* client_id, int64_t client_bytes,
                      Client* out) noexcept nogil:
    cdef MeterPage* page = counted_page()
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
            store_relaxed_64(&entry.last_ms, <uint64_t>state.now_ms)
            if state.owners[i] == 0 and state.owner != 0:     # created by a predecessor of this process
                state.clients_of[0] -= 1
                state.clients_of[state.owner] += 1
                state.owners[i] = state.owner
            out.number = i
            out.since = entry.since
            return
        place = (place + 1) & state.clients.mask
    if state.live_clients >= METER_CLIENTS * 3 // 4:
        retire()
    i = free_client(page)
    if i == METER_CLIENTS and evict_clients():
        i = free_client(page)
    if i == METER_CLIENTS:
        count_64(&page.words[<int>FOLDED], 1)
        out.number = CLIENT_OTHER
        out.since = 0
        return
    entry = &page.clients[i]
    store_relaxed_64(&page.clients_used, max(page.clients_used, <uint64_t>i + 1))
    entry.principal_bytes = <unsigned short>principal_bytes
    entry.client_bytes = <unsigned short>client_bytes
    memcpy(entry.principal, principal, principal_bytes)
    memcpy(entry.client_id, client_id, client_bytes)
    store_relaxed_64(&entry.last_ms, <uint64_t>state.now_ms)
    store_release_64(&entry.since, new_since(page))
    enter_index(&state.clients, key, i)
    state.live_clients += 1
    state.owners[i] = state.owner
    state.clients_of[state.owner] += 1
    out.number = i
    out.since = entry.since


cdef bint still_client(Client* client) noexcept nogil:
    cdef MeterClient* entry = &counted_page().clients[client.number]
    if client.number and entry.since == client.since:
        store_relaxed_64(&entry.last_ms, <uint64_t>state.now_ms)
        return True
    client.number = CLIENT_OTHER
    client.since = 0
    return False


cdef bint is_client(Client* client, const uint8_t* client_id, int64_t client_bytes) noexcept nogil:
    """Whether the entry still belongs to `client` and has this client id (the caller checks the principal)."""
    cdef MeterClient* entry = &counted_page().clients[client.number]
    client_bytes = min(max(client_bytes, <int64_t>0), <int64_t>CLIENT_ID_BYTES)
    if client.number and entry.since == client.since and entry.client_bytes == client_bytes \
            and memcmp(entry.client_id, client_id, client_bytes) == 0:
        store_relaxed_64(&entry.last_ms, <uint64_t>state.now_ms)
        return True
    return False


cdef uint32_t find_topic(const char* name, int64_t name_bytes, uint32_t* number, uint64_t* since) noexcept nogil:
    cdef MeterPage* page = counted_page()
    cdef MeterTopic* entry = &page.topics[number[0]]
    cdef uint64_t key
    cdef uint32_t place, i
    if number[0] and entry.since == since[0]:
        store_relaxed_64(&entry.last_ms, <uint64_t>state.now_ms)
        return number[0]
    name_bytes = min(name_bytes, <int64_t>TOPIC_BYTES)
    key = hash_bytes(0, <const uint8_t*>name, name_bytes)
    place = place_of(key, state.topics.mask)
    while state.topics.places[place]:
        i = state.topics.places[place] - 1
        entry = &page.topics[i]
        if entry.name_bytes == name_bytes and memcmp(entry.name, name, name_bytes) == 0:
            store_relaxed_64(&entry.last_ms, <uint64_t>state.now_ms)
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
        count_64(&page.words[<int>FOLDED], 1)
        number[0] = 0
        return TOPIC_OTHER
    entry = &page.topics[i]
    store_relaxed_64(&page.topics_used, max(page.topics_used, <uint64_t>i + 1))
    entry.name_bytes = <unsigned short>name_bytes
    store_relaxed_32(&entry.largest_batch, 0)
    memcpy(entry.name, name, name_bytes)
    store_relaxed_64(&entry.last_ms, <uint64_t>state.now_ms)
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
            store_relaxed_64(&entry.last_ms, <uint64_t>state.now_ms)
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
    store_relaxed_64(&page.usage_used, max(page.usage_used, <uint64_t>i + 1))
    store_relaxed_64(&entry.key, key)
    store_relaxed_64(&entry.last_ms, <uint64_t>state.now_ms)
    store_relaxed_64(&entry.retired_by, 0)
    memset(entry.values, 0, sizeof(entry.values))
    store_release_64(&entry.since, new_since(page))
    enter_index(&state.usage, key, i)
    state.live_usage += 1
    return entry


cdef MeterUsage* usage_of(uint32_t client, uint32_t topic, int api) noexcept nogil:
    cdef MeterPage* page = counted_page()
    cdef MeterUsage* entry = usage_entry(<uint64_t>client << 32 | <uint64_t>topic << 8 | <uint64_t>api)
    if entry != NULL:
        return entry
    count_64(&page.words[<int>FOLDED], 1)
    if topic != TOPIC_NONE:
        topic = TOPIC_OTHER
        entry = usage_entry(<uint64_t>client << 32 | <uint64_t>topic << 8 | <uint64_t>api)
    if entry == NULL:
        entry = usage_entry(<uint64_t>CLIENT_OTHER << 32 | <uint64_t>topic << 8 | <uint64_t>api)
    return entry


cdef void count_usage(uint32_t client, uint32_t topic, int api, int value, int64_t n) noexcept nogil:
    count_64(&usage_of(client, topic, api).values[value], <uint64_t>n)


# -- positions of readers -------------------------------------------------------------------------------------------

cdef MeterPosition* place_entry(MeterPage* page, ReaderPlace* place) noexcept nogil:
    """The entry that `place` refers to; NULL if there is none, or if the entry was freed meanwhile."""
    cdef MeterPosition* entry
    if place.number == 0:
        return NULL
    entry = &page.positions[place.number - 1]
    return entry if entry.since == place.since else NULL


cdef MeterPosition* put_position(uint32_t client, uint32_t slot, uint32_t incarnation, int64_t offset, ReaderPlace* place) noexcept nogil:
    cdef MeterPage* page = counted_page()
    cdef MeterPosition* entry = place_entry(page, place)
    if entry == NULL or entry.key != (<uint64_t>client << 32 | slot) or entry.incarnation != incarnation:
        leave_position(place)
        entry = position_entry(page, client, slot, incarnation)
        if entry == NULL:
            return NULL
        count_32(&entry.readers, 1)
        place.number = <uint32_t>(entry - &page.positions[0]) + 1
        place.since = entry.since
    store_relaxed_i64(&entry.offset, offset)
    store_relaxed_64(&entry.at_ms, <uint64_t>state.now_ms)
    return entry


cdef void put_requested(uint32_t client, uint32_t slot, uint32_t incarnation, int64_t offset, ReaderPlace* place) noexcept nogil:
    cdef MeterPosition* entry = put_position(client, slot, incarnation, offset, place)
    if entry == NULL:
        return
    if entry.readers != 1:            # several connections may read at different offsets: none is compared with another's
        store_relaxed_i64(&entry.requested, -1)
        return
    if offset < entry.requested:
        store_relaxed_64(&entry.back_ms, entry.at_ms)
    store_relaxed_i64(&entry.requested, offset)


cdef void leave_position(ReaderPlace* place) noexcept nogil:
    cdef MeterPosition* entry
    if place.number == 0:
        return
    entry = place_entry(counted_page(), place)
    place.number = 0
    if entry != NULL and entry.readers:
        if entry.readers == 1:
            turn_clock()
            store_relaxed_64(&entry.at_ms, <uint64_t>state.now_ms)
        count_32(&entry.readers, -1)


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
        count_64(&page.words[<int>FOLDED], 1)
        return NULL
    entry = &page.positions[i]
    store_relaxed_64(&page.positions_used, max(page.positions_used, <uint64_t>i + 1))
    store_relaxed_64(&entry.key, key)
    store_relaxed_32(&entry.incarnation, incarnation)
    store_relaxed_i64(&entry.offset, 0)
    store_relaxed_64(&entry.at_ms, 0)     # until the caller stores the position, the entry counts as idle
    store_relaxed_32(&entry.readers, 0)
    store_relaxed_i64(&entry.requested, -1)
    store_relaxed_64(&entry.back_ms, 0)
    store_release_64(&entry.since, new_since(page))
    enter_index(&state.positions, key, i)
    state.live_positions += 1
    return entry


# -- batches --------------------------------------------------------------------------------------------------------

cdef void count_batch(uint32_t size) noexcept nogil:
    count_64(&counted_page().batch_sizes[bucket_of(<int64_t>size - 1)], 1)


cdef void count_stored(uint32_t topic, uint32_t size) noexcept nogil:
    cdef MeterPage* page = counted_page()
    if size > page.topics[topic].largest_batch:
        store_relaxed_32(&page.topics[topic].largest_batch, size)


# -- requests -------------------------------------------------------------------------------------------------------

cdef void count_request(int api, int version) noexcept nogil:
    count_64(&counted_page().requests[api * METER_VERSIONS + min(max(version, 0), METER_VERSIONS - 1)], 1)


cdef void count_error(int api, int code) noexcept nogil:
    count_64(&counted_page().errors[api * METER_ERRORS + min(max(code + 1, 0), METER_ERRORS - 1)], 1)


cdef inline void count_time(MeterTimes* times, uint64_t n, int64_t us) noexcept nogil:
    count_64(&times.buckets[bucket_of(us)], n)
    count_64(&times.sum_us, n * <uint64_t>max(us, <int64_t>0))


cdef void count_times(int api, uint64_t n, int64_t queue_us, int64_t local_us, int64_t remote_us, int64_t send_us) noexcept nogil:
    cdef MeterTimes* times = &counted_page().times[api * METER_PHASES]
    count_time(&times[PHASE_QUEUE], n, queue_us)
    count_time(&times[PHASE_LOCAL], n, local_us)
    count_time(&times[PHASE_REMOTE], n, remote_us)
    count_time(&times[PHASE_SEND], n, send_us)
    count_time(&times[PHASE_TOTAL], n, queue_us + local_us + remote_us + send_us)


# -- software -------------------------------------------------------------------------------------------------------

cdef int software_opened(int listener, bytes name, bytes version) except -2:
    cdef MeterPage* page = counted_page()
    cdef MeterSoftware* entry
    cdef int i, place = -1
    name = name[:SOFTWARE_BYTES]
    version = version[:SOFTWARE_BYTES]
    for i in range(<int>page.software_used):
        entry = &page.software[i]
        if entry.since and entry.listener == <uint32_t>listener and entry.lengths[0] == len(name) \
                and entry.lengths[1] == len(version) and memcmp(entry.name, <const char*>name, len(name)) == 0 \
                and memcmp(entry.version, <const char*>version, len(version)) == 0:
            count_64(&entry.open, 1)
            return i
        if place < 0 and entry.open == 0:
            place = i
    if page.software_used < METER_SOFTWARE:
        place = <int>page.software_used
        count_64(&page.software_used, 1)
    if place < 0:
        count_64(&page.words[<int>FOLDED], 1)
        if not 0 <= listener < METER_LISTENERS:
            return -1
        count_64(&page.listeners[listener].other_software, 1)
        return METER_SOFTWARE + listener
    entry = &page.software[place]
    begin_change(page)
    store_release_64(&entry.since, 0)
    entry.listener = <uint32_t>listener
    entry.lengths[0] = <uint8_t>len(name)
    entry.lengths[1] = <uint8_t>len(version)
    memcpy(entry.name, <const char*>name, len(name))
    memcpy(entry.version, <const char*>version, len(version))
    store_relaxed_64(&entry.open, 1)
    store_release_64(&entry.since, new_since(page))
    end_change(page)
    return place


cdef void software_closed(int place) noexcept nogil:
    cdef MeterPage* page = counted_page()
    if 0 <= place < METER_SOFTWARE and page.software[place].open:
        count_64(&page.software[place].open, -1)
    elif place >= METER_SOFTWARE and page.listeners[place - METER_SOFTWARE].other_software:
        count_64(&page.listeners[place - METER_SOFTWARE].other_software, -1)


# -- for Python ----------------------------------------------------------------------------------------------------

def count_login(int listener, str mechanism not None, str outcome not None) -> None:
    """Count the end of an authentication of a client.

    :param listener: index of the listener. :param mechanism: one of MECHANISMS. :param outcome: one of OUTCOMES.
    """
    cdef int place = MECHANISMS.index(mechanism) * LOGIN_OUTCOMES + <int>OUTCOMES[outcome]
    if 0 <= listener < METER_LISTENERS:
        count_64(&counted_page().listeners[listener].logins[place], 1)


def count_expired(int listener) -> None:
    """Count a connection that was closed because it sent a request after the end of its session."""
    if 0 <= listener < METER_LISTENERS:
        count_64(&counted_page().listeners[listener].expired_killed, 1)


def set_idle_ms(int64_t idle_ms) -> None:
    """Set the age after which an unused entry is retired once its table is three quarters full (metrics.usage.idle.ms)."""
    state.idle_ms = idle_ms


def count(str name, int64_t n=1) -> None:
    """Add `n` to one of this process's counters (see Probe). Raises KeyError for an unknown name."""
    count_64(&counted_page().words[<int>PROBE_WORDS[name]], <uint64_t>n)


def gauge(str name, int64_t value) -> None:
    """Set one of this process's gauges. Raises KeyError for an unknown name, ValueError for a counter."""
    cdef int probe = PROBE_WORDS[name]
    if probe >= METER_GAUGES:
        raise ValueError(f"{name} is a counter, not a gauge")
    store_relaxed_64(&counted_page().words[probe], <uint64_t>value)


def count_loop_delay(int64_t us) -> None:
    """Count that a timer of the loop fired `us` microseconds late."""
    count_time(&counted_page().loop_delay, 1, us)


def count_request_errors(int api_key, codes) -> None:
    """Count the error codes in responses of an API, one for each failed request or part of a request."""
    cdef int api = api_index(api_key)
    for code in codes:
        count_error(api, code)


def count_failed_request(context not None, int api_key) -> None:
    """Count the error of a request that was already counted as a request.

    :param context: context of the request's connection, with its `principal` and `client_id`.
    """
    cdef bytes principal = context.principal.encode(), client_id = (context.client_id or "").encode()
    cdef Client client
    turn_clock()
    find_client(principal, len(principal), <const uint8_t*><const char*>client_id, len(client_id), &client)
    count_usage(client.number, TOPIC_NONE, METER_KEY_NONE if api_key == -1 else api_index(api_key), USAGE_ERRORS, 1)
