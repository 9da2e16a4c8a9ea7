"""The tables of this process's meter page; see meter_tables.pxd, and meter_layout.pxd for the layout.

Runs in the thread that counts (metering.pyx). A successor continues with the page of a dead process: it frees what was created
but not published, undoes a retirement that was not published and finishes one that was [R 9]. Only the indexes are allocated,
once.
"""

import os

from libc.stdint cimport int64_t, uint32_t, uint64_t, uint8_t
from libc.stdlib cimport calloc
from libc.string cimport memcpy, memset

from odradek._ext.shm.atomics cimport (
    copy_words,
    count_64,
    fence_release,
    fill_words,
    shared_u64,
    store_relaxed_64,
    store_release_64,
)
from odradek._ext.shm.layout cimport region
from odradek._ext.shm.meter_layout cimport (
    CLIENT_OTHER,
    METER_CLIENTS,
    METER_TOPICS,
    TOPIC_NONE,
    TOPIC_OTHER,
    USAGE_VALUES,
    MeterClient,
    MeterPage,
    MeterUsage,
)
from odradek._ext.shm.owners cimport PRODUCER_OWNERS
from odradek._ext.shm.probes cimport RETIRED_ENTRIES
from odradek._ext.shm.siphash cimport sip_begin, sip_bytes, sip_end


cdef enum:
    CLIENT_PLACES = 8192          # of the indexes: twice the size of their tables, powers of two
    TOPIC_PLACES = 16384
    USAGE_PLACES = 32768
    POSITION_PLACES = 32768
    RETIRE_PAUSE_MS = 10000       # minimum time between two searches for idle entries
    EVICT_PAUSE_MS = 1000         # minimum time between two evictions of clients
    EVICT_AGE_MS = 100            # clients that were used more recently are not evicted: a caller may remember their number
    LIVES_MS = 1000               # a client that was used for so long is alive: clients of open connections are used periodically
    UNUSED_MS = 10000             # clients that are alive are not evicted before they have been unused for so long
    UNFAIR_SHARES = 2             # an address with more than so many times the clients of another makes room for it


cdef MeterState state
memset(&state, 0, sizeof(MeterState))
state.region = region()
state.idle_ms = 3600000


cdef uint32_t* new_places(uint32_t count) noexcept nogil:
    return <uint32_t*>calloc(count, sizeof(uint32_t))


state.owners = <uint32_t*>calloc(METER_CLIENTS, sizeof(uint32_t))
state.clients_of = <uint32_t*>calloc(PRODUCER_OWNERS, sizeof(uint32_t))
state.private_page = <MeterPage*>calloc(1, sizeof(MeterPage))
state.clients = Index(new_places(CLIENT_PLACES), CLIENT_PLACES - 1)
state.topics = Index(new_places(TOPIC_PLACES), TOPIC_PLACES - 1)
state.usage = Index(new_places(USAGE_PLACES), USAGE_PLACES - 1)
state.positions = Index(new_places(POSITION_PLACES), POSITION_PLACES - 1)
if state.private_page == NULL or state.clients.places == NULL or state.topics.places == NULL or state.usage.places == NULL \
        or state.positions.places == NULL or state.owners == NULL or state.clients_of == NULL:
    raise MemoryError("no memory to count in")


cdef bytes key_bytes = os.urandom(sizeof(state.hash_key))
memcpy(state.hash_key, <const char*>key_bytes, sizeof(state.hash_key))


cdef MeterState* meter_state() noexcept nogil:
    return &state


# -- keys ------------------------------------------------------------------------------------------------

cdef uint64_t hash_bytes(uint64_t seed, const uint8_t* data, int64_t n) noexcept nogil:
    cdef uint64_t h = seed ^ <uint64_t>0xCBF29CE484222325
    cdef int64_t i
    for i in range(n):
        h = (h ^ data[i]) * <uint64_t>0x100000001B3
    return h ^ (h >> 29)


cdef uint64_t client_hash(const uint8_t* principal, int64_t principal_bytes, const uint8_t* client_id, int64_t client_bytes) noexcept nogil:
    cdef uint64_t[4] v
    sip_begin(v, state.hash_key)
    sip_bytes(v, principal, principal_bytes)
    sip_bytes(v, client_id, client_bytes)
    return sip_end(v)


cdef void enter_index(Index* index, uint64_t key, uint32_t number) noexcept nogil:
    cdef uint32_t place = place_of(key, index.mask)
    while index.places[place]:
        place = (place + 1) & index.mask
    index.places[place] = number + 1
    state.indexed = True


cdef uint64_t new_since(MeterPage* page) noexcept nogil:
    """The wall clock, made unique: an entry with a `since` that a caller remembers is the same entry."""
    store_relaxed_64(&page.last_since, max(<uint64_t>max(state.now_ms, <int64_t>1), page.last_since + 1))
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
        memset(state.clients_of, 0, PRODUCER_OWNERS * sizeof(uint32_t))
    state.live_clients = state.live_topics = state.live_usage = state.live_positions = 0
    state.free_usage = state.free_position = 0
    state.free_client = CLIENT_OTHER + 1
    state.free_topic = TOPIC_OTHER + 1
    for i in range(<uint32_t>page.clients_used):
        client = &page.clients[i]
        if client.since:
            enter_index(&state.clients, client_hash(client.principal, client.principal_bytes, client.client_id, client.client_bytes), i)
            state.live_clients += 1
            state.clients_of[state.owners[i]] += 1
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
    if page.began_ms == 0:
        store_relaxed_64(&page.began_ms, new_since(page))
    take_back(page)
    if state.indexed:
        memset(state.owners, 0, METER_CLIENTS * sizeof(uint32_t))
    index_all(page)
    state.next_retire_ms = state.next_eviction_ms = 0


# -- retiring -------------------------------------------------------------------------------------------------------

cdef void take_back(MeterPage* page) noexcept nogil:
    """Free the usage entries whose values `retired` contains; unmark those of a retirement that was not published."""
    cdef uint32_t i
    cdef MeterUsage* entry
    begin_change(page)
    for i in range(<uint32_t>page.usage_used):
        entry = &page.usage[i]
        if entry.since and entry.retired_by:
            if entry.retired_by <= page.retired_sequence:
                store_release_64(&entry.since, 0)
            else:
                store_relaxed_64(&entry.retired_by, 0)
    end_change(page)


cdef void free_unused(MeterPage* page, const uint8_t* evicted) noexcept nogil:
    """Free positions that are idle, and clients and topics that are idle and to which no entry refers.

    :param evicted: by client: whether it is freed, with its positions, although it is not idle; NULL: none.
    """
    cdef uint32_t i
    cdef uint64_t before = <uint64_t>max(state.now_ms - state.idle_ms, <int64_t>0)
    cdef uint8_t[METER_CLIENTS] client_used
    cdef uint8_t[METER_TOPICS] topic_used
    memset(client_used, 0, METER_CLIENTS)
    memset(topic_used, 0, METER_TOPICS)
    begin_change(page)
    for i in range(<uint32_t>page.usage_used):
        if page.usage[i].since:
            client_used[page.usage[i].key >> 32] = 1
            topic_used[(page.usage[i].key >> 8) & 0xFFFFFF] = 1
    for i in range(<uint32_t>page.positions_used):
        if page.positions[i].since and (
                page.positions[i].at_ms < before or (evicted != NULL and evicted[page.positions[i].key >> 32])):
            store_release_64(&page.positions[i].since, 0)
        elif page.positions[i].since:
            client_used[page.positions[i].key >> 32] = 1
    for i in range(<uint32_t>page.clients_used):
        if page.clients[i].since and not client_used[i] \
                and (page.clients[i].last_ms < before or (evicted != NULL and evicted[i])):
            store_release_64(&page.clients[i].since, 0)
    for i in range(<uint32_t>page.topics_used):
        if page.topics[i].since and not topic_used[i] and page.topics[i].last_ms < before:
            store_release_64(&page.topics[i].since, 0)
    end_change(page)


cdef bint retire() noexcept nogil:
    """Free the entries that were idle for long and add their values to `retired`. Returns whether it looked for such entries.

    Entries of client `other` stay. A caller that remembers a client or a topic has just marked it as seen, so no number in use
    is freed.
    """
    if state.next_retire_ms - RETIRE_PAUSE_MS <= state.now_ms < state.next_retire_ms:
        return False                # runs nevertheless if the clock was set back
    state.next_retire_ms = state.now_ms + min(state.idle_ms, <int64_t>RETIRE_PAUSE_MS)
    retire_entries(NULL)
    return True


cdef void retire_entries(const uint8_t* evicted) noexcept nogil:
    """Free the entries that were idle for long, and those of evicted clients, and add their values to `retired`.

    :param evicted: by client: whether it is evicted; NULL: none.
    """
    cdef MeterPage* page = state.page
    cdef shared_u64* now_holds = &page.retired_odd[0] if page.retired_sequence & 1 else &page.retired_even[0]
    cdef shared_u64* following = &page.retired_even[0] if page.retired_sequence & 1 else &page.retired_odd[0]
    cdef uint64_t[2 * USAGE_VALUES] sums
    cdef uint64_t before = <uint64_t>max(state.now_ms - state.idle_ms, <int64_t>0)
    cdef uint32_t i
    cdef int v
    cdef MeterUsage* entry
    cdef bint retired_any = False
    copy_words(sums, now_holds, sizeof(sums))
    for i in range(<uint32_t>page.usage_used):
        entry = &page.usage[i]
        if entry.since and entry.key >> 32 != CLIENT_OTHER and (
                entry.last_ms < before or (evicted != NULL and evicted[entry.key >> 32])):
            store_relaxed_64(&entry.retired_by, page.retired_sequence + 1)
            for v in range(USAGE_VALUES):
                sums[v if (entry.key >> 8) & 0xFFFFFF == TOPIC_NONE else USAGE_VALUES + v] += entry.values[v]
            count_64(&page.words[<int>RETIRED_ENTRIES], 1)
            retired_any = True
    if retired_any:
        fence_release()     # a reader that sees the new sums being stored sees that the former ones were replaced before
        fill_words(following, sums, sizeof(sums))
        store_release_64(&page.retired_sequence, page.retired_sequence + 1)
        take_back(page)
    free_unused(page, evicted)
    index_all(page)


# -- evicting clients -----------------------------------------------------------------------------------------------

cdef bint may_evict(MeterPage* page, uint32_t client, uint32_t owner, uint64_t until_ms) noexcept nogil:
    """Whether a client of an address is not in use, and was last used before `until_ms`."""
    cdef MeterClient* entry = &page.clients[client]
    if entry.since == 0 or state.owners[client] != owner or entry.last_ms > until_ms:
        return False
    return entry.last_ms + (EVICT_AGE_MS if entry.last_ms < entry.since + LIVES_MS else UNUSED_MS) <= <uint64_t>state.now_ms


cdef bint evict_clients() noexcept nogil:
    """Free half of the clients of the address that has most of them, those that were not used for the longest time, but none in use.

    That address is the one for which an entry is needed, or it has more than UNFAIR_SHARES times as many clients. So whoever invents
    client ids loses its own entries, and hides no client of another address; and clients that are alive behind one address, however
    many they are, keep their entries. Those that find no room are counted as `other`.
    """
    cdef MeterPage* page = state.page
    cdef uint8_t[METER_CLIENTS] evicted
    cdef uint32_t i, wanted, found = 0, owner = state.owner
    cdef uint64_t first_ms = 0, last_ms = <uint64_t>max(state.now_ms - EVICT_AGE_MS, <int64_t>0), middle_ms
    if state.next_eviction_ms - EVICT_PAUSE_MS <= state.now_ms < state.next_eviction_ms:
        return False                # runs nevertheless if the clock was set back
    state.next_eviction_ms = state.now_ms + EVICT_PAUSE_MS
    for i in range(<uint32_t>page.clients_used):
        if page.clients[i].since and state.clients_of[state.owners[i]] > state.clients_of[owner]:
            owner = state.owners[i]
    if owner != state.owner and state.clients_of[owner] <= UNFAIR_SHARES * (state.clients_of[state.owner] + 1):
        return False
    wanted = (state.clients_of[owner] + 1) // 2
    while first_ms < last_ms:       # the time until which `wanted` of them were last used
        middle_ms = first_ms + (last_ms - first_ms) // 2
        found = 0
        for i in range(<uint32_t>page.clients_used):
            found += may_evict(page, i, owner, middle_ms)
        if found >= wanted:
            last_ms = middle_ms
        else:
            first_ms = middle_ms + 1
    memset(evicted, 0, METER_CLIENTS)
    found = 0
    for i in range(CLIENT_OTHER + 1, <uint32_t>page.clients_used):
        if found < wanted and may_evict(page, i, owner, last_ms):
            evicted[i] = 1
            found += 1
    if found:
        retire_entries(evicted)
    return found > 0
