"""Reading the meter pages of all processes. Runs in any process and does not disturb the writers.

An entry is valid once its `since` is stored; everything read after that is complete. `changes` of a page is odd while entries
are withdrawn. A reader that sees it odd, or sees it move, reads again, so that it counts no value twice (in its entry and in
`retired`) and misses none.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from odradek._ext.shm.atomics cimport copy_words, fence_acquire, load_acquire_64, load_relaxed_64, shared_u64
from odradek._ext.shm.meter_layout cimport (
    CLIENT_OTHER,
    FIRST_PRIVATE_KEY,
    LOGIN_OUTCOMES,
    METER_BUCKETS,
    METER_ERRORS,
    METER_KEYS,
    METER_KEY_NONE,
    METER_KEY_PRIVATE,
    METER_KEY_UNKNOWN,
    METER_LISTENERS,
    METER_PHASES,
    METER_VERSIONS,
    TOPIC_NONE,
    TOPIC_OTHER,
    USAGE_VALUES,
    MeterClient,
    MeterPage,
    MeterPosition,
    MeterSoftware,
    MeterTimes,
    MeterTopic,
    MeterUsage,
)
from odradek._ext.shm.metering cimport own_page
from odradek._ext.shm.metering import MECHANISMS, OUTCOMES
from odradek._ext.shm.probes import PROBE_WORDS
from odradek._ext.shm.layout cimport region
from odradek._ext.shm.meter_pages cimport meter_page
from odradek._ext.shm.probes cimport TURN_US

cdef extern from "<sched.h>" nogil:
    int sched_yield()

cdef enum:
    LOOKS = 64                    # attempts to read a page while entries are withdrawn, which takes some ten microseconds every ten seconds
    YIELDS = 10000                # of one attempt, to a process that withdraws entries

OTHER = "other"
RETIRED = "retired"


class PageInMotion(Exception):
    """Entries of the meter page were withdrawn during each attempt to read it."""


cdef MeterPage* page_at(int process) except NULL:
    if region().base == NULL or not 0 <= process < region().header.process_count:
        raise ValueError(f"process {process} of {0 if region().base == NULL else region().header.process_count}")
    return meter_page(process)


cdef uint64_t settled(MeterPage* page) noexcept nogil:
    """Wait until no entries are being withdrawn, or some milliseconds if the page's process does not run. Return `changes`."""
    cdef uint64_t changes = load_acquire_64(&page.changes)
    cdef int _look
    for _look in range(YIELDS):
        if changes & 1 == 0:
            break
        sched_yield()
        changes = load_acquire_64(&page.changes)
    return changes


cdef void copy_table(char* out, const char* table, uint64_t count, size_t size) noexcept nogil:
    """Copy the published entries. Entries that are not published become zero bytes, so that their `since` is 0."""
    cdef uint64_t i
    cdef shared_u64* since
    for i in range(count):
        since = <shared_u64*>(table + i * size)
        if load_acquire_64(since):
            copy_words(out + i * size, table + i * size, size)
        else:
            memset(out + i * size, 0, size)


cdef class Copy:
    """Consistent copies of a page's entries and of the names to which they refer."""
    cdef MeterUsage* usage
    cdef MeterPosition* positions
    cdef MeterClient* clients
    cdef MeterTopic* topics
    cdef uint64_t usage_count
    cdef uint64_t position_count
    cdef uint64_t client_count
    cdef uint64_t topic_count
    cdef uint64_t sequence
    cdef uint64_t[2 * USAGE_VALUES] retired

    def __dealloc__(self):
        self.drop()

    cdef void drop(self) noexcept:
        free(self.usage)
        free(self.positions)
        free(self.clients)
        free(self.topics)
        self.usage = NULL
        self.positions = NULL
        self.clients = NULL
        self.topics = NULL

    cdef int take(self, MeterPage* page, bint usage, bint positions) except -1:
        """Copy entries first and names after them, so that every name to which an entry refers is present."""
        cdef uint64_t before
        for _ in range(LOOKS):
            self.drop()
            before = settled(page)
            self.sequence = load_acquire_64(&page.retired_sequence)
            self.usage_count = load_acquire_64(&page.usage_used) if usage else 0
            self.position_count = load_acquire_64(&page.positions_used) if positions else 0
            self.usage = <MeterUsage*>malloc(self.usage_count * sizeof(MeterUsage) + 1)
            self.positions = <MeterPosition*>malloc(self.position_count * sizeof(MeterPosition) + 1)
            if self.usage == NULL or self.positions == NULL:
                raise MemoryError("no memory for a copy of a meter page")
            copy_table(<char*>self.usage, <char*>page.usage, self.usage_count, sizeof(MeterUsage))
            copy_table(<char*>self.positions, <char*>page.positions, self.position_count, sizeof(MeterPosition))
            copy_words(self.retired, &page.retired_odd[0] if self.sequence & 1 else &page.retired_even[0], sizeof(self.retired))
            self.client_count = load_acquire_64(&page.clients_used)
            self.topic_count = load_acquire_64(&page.topics_used) if usage else 0
            self.clients = <MeterClient*>malloc(self.client_count * sizeof(MeterClient) + 1)
            self.topics = <MeterTopic*>malloc(self.topic_count * sizeof(MeterTopic) + 1)
            if self.clients == NULL or self.topics == NULL:
                raise MemoryError("no memory for a copy of a meter page")
            copy_table(<char*>self.clients, <char*>page.clients, self.client_count, sizeof(MeterClient))
            copy_table(<char*>self.topics, <char*>page.topics, self.topic_count, sizeof(MeterTopic))
            fence_acquire()
            if before & 1 == 0 and load_relaxed_64(&page.changes) == before \
                    and load_relaxed_64(&page.retired_sequence) == self.sequence:
                return 0
        raise PageInMotion(f"a meter page changed during each of {LOOKS} attempts to read it")

    cdef tuple client(self, uint32_t number):
        cdef MeterClient* c
        if number == CLIENT_OTHER or number >= self.client_count or self.clients[number].since == 0:
            return OTHER, OTHER
        c = &self.clients[number]
        return (<char*>c.principal)[:c.principal_bytes].decode("utf-8", "replace"), \
            (<char*>c.client_id)[:c.client_bytes].decode("utf-8", "replace")

    cdef object topic(self, uint32_t number):
        if number == TOPIC_NONE:
            return None
        if number == TOPIC_OTHER or number >= self.topic_count or self.topics[number].since == 0:
            return OTHER
        return (<char*>self.topics[number].name)[:self.topics[number].name_bytes].decode("utf-8", "replace")


cdef object key_of(int api):
    if api == METER_KEY_NONE:
        return -1
    if api >= METER_KEY_UNKNOWN:
        return -2
    return api if api < METER_KEY_PRIVATE else FIRST_PRIVATE_KEY + api - METER_KEY_PRIVATE


cdef tuple values_of(const uint64_t* values):
    return tuple([values[i] for i in range(USAGE_VALUES)])


def read_usage(int process) -> list[tuple[str, str, str | None, int, int, int, tuple[int, ...]]]:
    """[(principal, client id, topic or None, API key, since ms, last ms, values)], with the values in the order of USAGE_*.

    The API key is -1 for usage that belongs to no request, -2 for unknown API keys.
    """
    cdef MeterPage* page = page_at(process)
    cdef Copy copy = Copy()
    cdef MeterUsage* entry
    cdef dict names = {}
    cdef list usage = []
    cdef uint64_t i
    copy.take(page, True, False)
    for i in range(copy.usage_count):
        entry = &copy.usage[i]
        if entry.since == 0 or (entry.retired_by and entry.retired_by <= copy.sequence):
            continue
        number = entry.key >> 32
        client = names.get(number)
        if client is None:
            client = names[number] = copy.client(<uint32_t>number)
        usage.append((client[0], client[1], copy.topic((entry.key >> 8) & 0xFFFFFF), key_of(entry.key & 0xFF), entry.since,
                      entry.last_ms, values_of(<const uint64_t*>entry.values)))
    if copy.sequence:
        usage.append((OTHER, RETIRED, None, -1, page.began_ms, page.began_ms, values_of(copy.retired)))
        usage.append((OTHER, RETIRED, OTHER, -1, page.began_ms, page.began_ms, values_of(copy.retired + USAGE_VALUES)))
    return usage


def read_positions(int process) -> list[tuple[str, str, int, int, int, int, int, int]]:
    """A list of (principal, client id, slot, incarnation, offset, at ms, readers, back ms)."""
    cdef Copy copy = Copy()
    cdef MeterPosition* entry
    cdef list positions = []
    cdef uint64_t i
    copy.take(page_at(process), False, True)
    for i in range(copy.position_count):
        entry = &copy.positions[i]
        if entry.since:
            positions.append((*copy.client(entry.key >> 32), entry.key & 0xFFFFFFFF, entry.incarnation, entry.offset, entry.at_ms,
                              entry.readers, entry.back_ms))
    return positions


def read_counters(int process) -> dict[str, int]:
    cdef MeterPage* page = page_at(process)
    return {name: page.words[<int>word] for name, word in PROBE_WORDS.items()}


def read_requests(int process) -> dict[tuple[int, int], int]:
    """{(API key, version): requests}; the last version counts all versions from there on."""
    cdef MeterPage* page = page_at(process)
    cdef int i
    return {(key_of(i // METER_VERSIONS), i % METER_VERSIONS): page.requests[i]
            for i in range(METER_KEYS * METER_VERSIONS) if page.requests[i]}


def read_errors(int process) -> dict[tuple[int, int], int]:
    """{(API key, error code): number of errors}."""
    cdef MeterPage* page = page_at(process)
    cdef int i
    return {(key_of(i // METER_ERRORS), i % METER_ERRORS - 1): page.errors[i]
            for i in range(METER_KEYS * METER_ERRORS) if page.errors[i]}


cdef tuple times_of(MeterTimes* times):
    return tuple([times.buckets[i] for i in range(METER_BUCKETS)]), times.sum_us


def read_times(int process) -> dict[tuple[int, int], tuple[tuple[int, ...], int]]:
    """{(API key, index of the phase): (buckets, sum of microseconds)}."""
    cdef MeterPage* page = page_at(process)
    cdef int i
    times = {}
    for i in range(METER_KEYS * METER_PHASES):
        buckets, total = times_of(&page.times[i])
        if any(buckets):
            times[key_of(i // METER_PHASES), i % METER_PHASES] = (buckets, total)
    return times


def read_loop_delay(int process) -> tuple[tuple[int, ...], int]:
    """(buckets, sum of microseconds) of the delays of the loop's timers."""
    return times_of(&page_at(process).loop_delay)


def read_batch_sizes(int process) -> tuple[int, ...]:
    """Number of batches from producers by size: i is for more than 2 ** (i - 1) and up to 2 ** i bytes, the last one for all
    larger ones."""
    cdef MeterPage* page = page_at(process)
    return tuple([page.batch_sizes[i] for i in range(METER_BUCKETS)])


def read_largest_batches(int process) -> dict[str, int]:
    """{topic: bytes of the largest batch that was appended for a producer}; OTHER for topics that have no place in the table.
    """
    cdef MeterPage* page = page_at(process)
    cdef MeterTopic entry
    cdef uint64_t before
    cdef uint64_t i
    for _ in range(LOOKS):
        before = settled(page)
        largest = {OTHER: page.topics[TOPIC_OTHER].largest_batch} if page.topics[TOPIC_OTHER].largest_batch else {}
        for i in range(load_acquire_64(&page.topics_used)):
            copy_table(<char*>&entry, <char*>&page.topics[i], 1, sizeof(MeterTopic))
            if entry.since and entry.largest_batch:
                largest[(<char*>entry.name)[:entry.name_bytes].decode("utf-8", "replace")] = entry.largest_batch
        fence_acquire()
        if before & 1 == 0 and load_relaxed_64(&page.changes) == before:
            return largest
    raise PageInMotion(f"a meter page changed during each of {LOOKS} attempts to read it")


def read_listeners(int process) -> dict[int, tuple[int, int]]:
    """{index of the listener: (open, accepted)} of the listeners that had a connection."""
    cdef MeterPage* page = page_at(process)
    cdef int i
    return {i: (page.listeners[i].open, page.listeners[i].accepted) for i in range(METER_LISTENERS) if page.listeners[i].accepted}


def read_logins(int process) -> dict[tuple[int, str, str], int]:
    """{(index of the listener, mechanism, outcome): number} of ended authentications, without those that are 0."""
    cdef MeterPage* page = page_at(process)
    cdef int i, mechanism, outcome
    cdef str name
    counts = {}
    for i in range(METER_LISTENERS):
        for mechanism in range(<int>len(MECHANISMS)):
            for name, outcome in OUTCOMES.items():
                if page.listeners[i].logins[mechanism * LOGIN_OUTCOMES + outcome]:
                    counts[i, MECHANISMS[mechanism], name] = (
                        page.listeners[i].logins[mechanism * LOGIN_OUTCOMES + outcome])
    return counts


def read_expired_killed(int process) -> dict[int, int]:
    """{index of the listener: connections closed because they sent a request after the end of their session}, without 0."""
    cdef MeterPage* page = page_at(process)
    cdef int i
    return {i: page.listeners[i].expired_killed for i in range(METER_LISTENERS) if page.listeners[i].expired_killed}


def read_software(int process) -> dict[tuple[str, str, int], int]:
    """{(name, version, index of the listener): open connections}; (OTHER, OTHER, ...) for software that has no place in the
    table.

    Clients that did not send their software are not included.
    """
    cdef MeterPage* page = page_at(process)
    cdef MeterSoftware entry
    cdef uint64_t before
    cdef uint64_t i
    for _ in range(LOOKS):
        before = settled(page)
        open_connections = {}
        for i in range(load_acquire_64(&page.software_used)):
            copy_table(<char*>&entry, <char*>&page.software[i], 1, sizeof(MeterSoftware))
            if entry.since and entry.open:
                name = (<char*>entry.name)[:entry.lengths[0]].decode("utf-8", "replace")
                version = (<char*>entry.version)[:entry.lengths[1]].decode("utf-8", "replace")
                open_connections[name, version, entry.listener] = open_connections.get((name, version, entry.listener), 0) + entry.open
        for i in range(METER_LISTENERS):
            if page.listeners[i].other_software:
                open_connections[OTHER, OTHER, i] = open_connections.get((OTHER, OTHER, i), 0) + page.listeners[i].other_software
        fence_acquire()
        if before & 1 == 0 and load_relaxed_64(&page.changes) == before:
            return open_connections
    raise PageInMotion(f"a meter page changed during each of {LOOKS} attempts to read it")


def own_turn_us() -> int:
    """Microseconds that this process's data loop has spent in its turns."""
    return own_page().words[<int>TURN_US]
