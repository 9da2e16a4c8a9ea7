"""Counting in this process's meter page. Its users take the names of the page's layout (meter_layout.pxd) from here."""

from libc.stdint cimport int64_t, uint32_t, uint64_t, uint8_t

from odradek._ext.shm.meter_layout cimport *


cpdef enum Probe:                 # index of a word; Python names the words as here, in lower case
    PARKED_OTHER = 0
    PARKED_FETCHES = 1
    PARKED_PRODUCES = 2
    PARKED_FORWARDS = 3
    QUEUED_BYTES = 4
    CONNECTIONS_LIMIT = 5         # written by the supervisor: max.connections
    FETCH_SESSIONS = 6
    FETCH_SESSION_PARTITIONS = 7  # of all fetch sessions
    KEPT_BYTES = 8                # kept for connections between their requests
    REPLICA_MAX_LAG = 9           # of all followed partitions, in records
    REPLICA_FAILED = 10           # followed partitions that are not fetched until they have a new leader epoch
    SESSION_STATE = 11            # of the session in ZooKeeper, see `odradek.metadata.session.CODES`; written by the coordinator
    SESSION_SINCE_MS = 12         # monotonic time at which the session came into this state
    ACLS = 13                     # the number of ACLs; written by the coordinator
    DELEGATION_TOKENS = 14        # the number of delegation tokens that have not expired; written by the coordinator
    SOCKET_BYTES_IN = 16          # from here on all words are counters
    SOCKET_BYTES_OUT = 17
    SENDFILE_BYTES = 18
    UNSENT_BYTES = 19             # of responses, dropped because their connection closed
    UNUSED_BYTES_IN = 20          # read, but never executed: garbage, incomplete frames, what waited when the connection closed
    FRAMES = 21
    BAD_FRAMES = 22
    CONNECTIONS_ACCEPTED = 23
    TLS_HANDSHAKES = 24           # completed
    TLS_HANDSHAKE_US = 25         # of computing them, also of those that failed
    TLS_RESUMED = 26              # completed handshakes that resumed a session
    FAILED_AUTHENTICATIONS = 27   # connections whose TLS handshake or login failed
    UNAUTHENTICATED_CLOSED = 28   # connections that were closed because too many had not authenticated yet, or took too long
    TLS_RELOADS = 29              # of key stores at run time, and failures of them; written by the coordinator
    TLS_RELOAD_FAILURES = 30
    TLS_1_2 = 31                  # completed handshakes with TLS 1.2; the others have TLS 1.3
    FAILED_PEER_LOGINS = 32       # connections to other brokers whose TLS handshake or login failed
    TURNS = 33
    TURN_US = 34
    CPU_US = 35
    BUSY_US = 36
    BYTES_REJECTED = 37           # of records in produce requests that were refused
    PRODUCE_FAILED = 38           # partitions of produce requests that got an error
    FETCH_FAILED = 39
    FOLDED = 40                   # how often an entry had to be counted under `other`
    RETIRED_ENTRIES = 41
    FORWARDED_REQUESTS = 42       # written by the coordinator: workers' requests that it executed
    FORWARDED_BYTES_IN = 43
    FORWARDED_BYTES_OUT = 44
    CLEANER_PASSES = 45
    SEGMENTS_REMOVED = 46
    BYTES_REMOVED = 47
    COMPACTIONS = 48
    CONNECTIONS_REFUSED = 49      # counted by the supervisor: the address had too many connections
    CONNECTIONS_FULL = 50         # counted by the supervisor: how often max.connections was reached
    FETCH_SESSIONS_EVICTED = 51
    LATE_REQUESTS = 52            # not executed: their clients had closed the connection long before the broker read them
    FORGOTTEN_BYTES = 53          # kept for connections, then freed because too much was kept
    REPLICATION_BYTES_IN = 54     # of records that were appended to logs of followers
    IN_SYNC_SHRINKS = 55          # committed changes of in-sync replicas; written by the coordinator
    IN_SYNC_EXPANSIONS = 56
    REPLICATION_BYTES_OUT = 57    # of records that were sent to followers
    IN_SYNC_FAILED = 58           # proposed in-sync replicas that the controller did not accept; written by the coordinator, as are
    UNCLEAN_ELECTIONS = 59        # those below. 59 to 61 are of this broker as the controller
    ELECTION_EVENTS = 60          # changes of the live brokers, after which leaders are elected
    ELECTION_US = 61
    SESSIONS_EXPIRED = 62
    SESSION_DISCONNECTS = 63
    VERIFICATIONS = 64            # questions of Produce requests to coordinators of transactions that were answered, or got no answer
    VERIFICATION_FAILURES = 65    # partitions of such questions that were refused
    VERIFICATION_US = 66          # from a question to its answer
    TRANSACTIONS_COMMITTED = 67   # completed transactions; written by the coordinator, as are those below
    TRANSACTIONS_ABORTED = 68
    TRANSACTION_COMPLETION_US = 69    # from the durable decision to the completion, summed over these transactions
    TRANSACTIONS_TIMED_OUT = 70   # aborted by the coordinator after their timeout
    TRANSACTIONS_FENCED = 71      # aborted by the coordinator because a new producer took the transactional id over
    TRANSACTION_MARKERS = 72      # markers that were sent to partitions, also repeatedly
    TRANSACTION_MARKER_FAILURES = 73  # of these, those that must be sent again
    TRANSACTIONAL_IDS_EXPIRED = 74
    AUTHORIZATIONS_ALLOWED = 75   # operations of clients that the authorizer allowed
    AUTHORIZATIONS_DENIED = 76
    CLOSED_EOF = 77               # connections, by CloseReason, from here on in its order
    CLOSED_RESET = 78
    CLOSED_IDLE = 79
    CLOSED_BAD_FRAME = 80
    CLOSED_OTHER_PROTOCOL = 81
    CLOSED_HANDLER = 82
    CLOSED_FILE = 83
    CLOSED_ERROR = 84
    CLOSED_ASKED = 85
    CLOSED_AUTHENTICATION = 86
    TOKENS_CREATED = 87           # delegation tokens; written by the coordinator, as are those below
    TOKENS_RENEWED = 88
    TOKENS_EXPIRED = 89           # removed: by a request, or because they had expired


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
