"""Counting in this process's meter page. Its users take the names of the page's layout (meter_layout.pxd) from here."""

from libc.stdint cimport int64_t, uint32_t, uint64_t, uint8_t

from odradek._ext.shm.meter_layout cimport *
from odradek._ext.shm.probes cimport *


cdef struct ReaderPlace:          # a connection's note of the position entry in which its reading of a partition counts
    uint32_t number               # of the entry + 1; 0: none
    uint64_t since                # of that entry: if the entry's value differs now, it belongs to another key


cdef struct Client:               # a caller's note of a client's number
    uint32_t number
    uint64_t since                # of that client's entry: if the entry's value differs now, it belongs to another client


# Only the page's own thread calls these functions. Without a shared mapping they count in private memory of the process.
cdef MeterPage* own_page() noexcept nogil
cdef void add(int probe, int64_t n) noexcept nogil
cdef int api_index(int key) noexcept nogil
cdef int64_t clock_us() noexcept nogil
cdef void turn_clock() noexcept nogil      # read the wall clock for the dates of entries; once in a turn of the loop
cdef void find_client(const char* principal, int64_t principal_bytes, const uint8_t* client_id, int64_t client_bytes,
                      Client* out) noexcept nogil
# Whether the entry still belongs to `client`; if so, it is marked as seen now. Otherwise `client` becomes `other`.
cdef bint still_client(Client* client) noexcept nogil
cdef bint is_client(Client* client, const uint8_t* client_id, int64_t client_bytes) noexcept nogil
# Returns the topic's number. `number` and `since` hold the caller's note of it, or 0, and are updated.
cdef uint32_t find_topic(const char* name, int64_t name_bytes, uint32_t* number, uint64_t* since) noexcept nogil
# Returns the entry to count in, never NULL: without room it is the entry of (client, other), then of (other, other).
cdef MeterUsage* usage_of(uint32_t client, uint32_t topic, int api) noexcept nogil
# Add `n` to a value of that entry.
cdef void count_usage(uint32_t client, uint32_t topic, int api, int value, int64_t n) noexcept nogil
# Count a batch: a producer sent `size` bytes of records for one partition.
cdef void count_batch(uint32_t size) noexcept nogil
# Count `size` bytes of a producer's records that were appended to a partition of the topic with this number.
cdef void count_stored(uint32_t topic, uint32_t size) noexcept nogil
cdef void count_request(int api, int version) noexcept nogil
cdef void count_error(int api, int code) noexcept nogil
cdef void count_times(int api, uint64_t n, int64_t queue_us, int64_t local_us, int64_t remote_us, int64_t send_us) noexcept nogil
# Store the client's position. `place` counts as a reader of that entry until it is put elsewhere or leaves. Returns the entry, or NULL.
cdef MeterPosition* put_position(uint32_t client, uint32_t slot, uint32_t incarnation, int64_t offset, ReaderPlace* place) noexcept nogil
# Store the offset that the client requests as its position, and note the time if its only connection requested a later one before.
cdef void put_requested(uint32_t client, uint32_t slot, uint32_t incarnation, int64_t offset, ReaderPlace* place) noexcept nogil
cdef void leave_position(ReaderPlace* place) noexcept nogil
cdef int software_opened(int listener, bytes name, bytes version) except -2     # returns the place that `software_closed` takes
cdef void software_closed(int place) noexcept nogil
