"""A process's meter page in the shared mapping: usage by client, topic and API, request times, counters and reader positions.

Only the page's process writes it, in one thread (a worker's loop), without locks: every word is stored whole [R 9]. Any process
may read it (`meter_reading.pyx`). An entry of a table is published by storing its `since` last, and withdrawn by clearing
`since` first. Tables are filled from their beginning. The owner finds the entry of a key through an index in its private
memory (`meter_tables.pyx`).
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint16_t, uint32_t, uint64_t, uint8_t

from odradek._ext.shm.atomics cimport shared_i64, shared_u32, shared_u64

cdef enum:
    METER_WORDS = 256
    FIRST_PRIVATE_KEY = 20101     # of this broker's own APIs
    METER_PRIVATE_KEYS = 3
    METER_KEY_PRIVATE = 93        # API keys 0 to 92 are before it; then those of this broker's own APIs
    METER_KEY_UNKNOWN = 96        # METER_KEY_PRIVATE + METER_PRIVATE_KEYS
    METER_KEYS = 97
    METER_KEY_NONE = 97           # in usage only: belongs to no request
    METER_VERSIONS = 32           # the last one counts all versions from there on
    METER_ERRORS = 160            # error code + 1; the last one counts all codes from there on
    METER_BUCKETS = 32            # bucket i: less than 2 ** i microseconds; the last one: everything longer
    METER_LISTENERS = 16
    METER_MECHANISMS = 8          # SASL mechanisms, in the order of MECHANISMS in metering.pyx
    METER_SOFTWARE = 256
    METER_CLIENTS = 4096
    METER_TOPICS = 8192
    METER_USAGE = 16384
    METER_USAGE_OF_OTHER = 256    # reserved for client `other` without a topic or with topic `other`, so that folding finds room
    METER_POSITIONS = 16384
    METER_GAUGES = 16             # the words before this one are gauges; they are cleared when their process dies
    CLIENT_OTHER = 0
    TOPIC_NONE = 0
    TOPIC_OTHER = 1
    PRINCIPAL_BYTES = 128
    CLIENT_ID_BYTES = 240
    TOPIC_BYTES = 256
    SOFTWARE_BYTES = 56

cdef enum:                        # parts of a request's time
    PHASE_QUEUE = 0
    PHASE_LOCAL = 1
    PHASE_REMOTE = 2
    PHASE_SEND = 3
    PHASE_TOTAL = 4
    METER_PHASES = 5

cdef enum:                        # what an entry of usage counts
    USAGE_REQUESTS = 0
    USAGE_ERRORS = 1
    USAGE_BYTES_IN = 2
    USAGE_BYTES_OUT = 3
    USAGE_RECORDS_IN = 4
    USAGE_RECORDS_OUT = 5
    USAGE_THROTTLE_MS = 6
    USAGE_CONNECTION_MS = 7
    USAGE_VALUES = 8


cdef enum:                        # outcome of an authentication
    LOGIN_SUCCEEDED = 0
    LOGIN_FAILED = 1
    RENEWAL_SUCCEEDED = 2         # of an authentication on a connection that had one before
    RENEWAL_FAILED = 3
    LOGIN_OUTCOMES = 4


cdef struct MeterTimes:
    shared_u64[METER_BUCKETS] buckets
    shared_u64 sum_us


cdef struct MeterListener:
    shared_u64 open
    shared_u64 accepted
    shared_u64 other_software     # open connections whose software has no place in the table
    shared_u64[METER_MECHANISMS * LOGIN_OUTCOMES] logins  # ended authentications: mechanism * LOGIN_OUTCOMES + outcome
    shared_u64 expired_killed     # connections that were closed because they sent a request after the end of their session


cdef struct MeterSoftware:
    shared_u64 since              # wall clock in ms, unique in a page; 0: free. Stored last, as in all tables
    shared_u64 open
    uint32_t listener
    uint8_t[2] lengths            # of name and version
    uint8_t[2] spare
    uint8_t[56] name
    uint8_t[56] version


cdef struct MeterClient:
    shared_u64 since
    shared_u64 last_ms
    uint16_t principal_bytes
    uint16_t client_bytes
    uint32_t spare
    uint8_t[128] principal
    uint8_t[240] client_id        # cut off if it is longer


cdef struct MeterTopic:
    shared_u64 since
    shared_u64 last_ms
    uint16_t name_bytes
    uint8_t[2] spare
    shared_u32 largest_batch      # appended for a producer, in bytes
    uint8_t[256] name


cdef struct MeterUsage:
    shared_u64 since
    shared_u64 key                # client << 32 | topic << 8 | API
    shared_u64 last_ms
    shared_u64 retired_by         # `retired_sequence` of the retirement that added up its values; 0: the entry is live
    shared_u64[USAGE_VALUES] values


cdef struct MeterPosition:
    shared_u64 since
    shared_u64 key                # client << 32 | slot
    shared_i64 offset             # after the last record that was sent, or the offset last requested if that request came later
    shared_u64 at_ms              # wall clock of that request or response, or of the last reader's leaving
    shared_u32 incarnation
    shared_u32 readers            # connections that read the partition as this client; cleared when their process dies
    shared_i64 requested          # offset of the last request
    shared_u64 back_ms            # wall clock of the last request for an offset before `requested`; 0: there was none


cdef struct MeterPage:
    shared_u64[METER_WORDS] words
    shared_u64 began_ms           # 0: nothing was counted here yet
    shared_u64 last_since
    shared_u64 changes            # changes before and after entries are withdrawn; a reader that sees it change reads again
    shared_u64 retired_sequence   # the low bit selects the valid block below; one store publishes the sums of a retirement
    shared_u64[2 * USAGE_VALUES] retired_even  # sums of entries without a topic, then of entries with one
    shared_u64[2 * USAGE_VALUES] retired_odd
    shared_u64 clients_used       # high-water marks of the tables
    shared_u64 topics_used
    shared_u64 usage_used
    shared_u64 positions_used
    shared_u64 software_used
    MeterListener[METER_LISTENERS] listeners
    MeterTimes loop_delay
    shared_u64[METER_BUCKETS] batch_sizes  # of batches from producers; bucket i: up to 2 ** i bytes, the last one: everything larger
    MeterTimes[METER_KEYS * METER_PHASES] times  # API * METER_PHASES + phase
    shared_u64[METER_KEYS * METER_VERSIONS] requests  # API * METER_VERSIONS + version
    shared_u64[METER_KEYS * METER_ERRORS] errors  # API * METER_ERRORS + code + 1
    MeterSoftware[METER_SOFTWARE] software
    MeterUsage[METER_USAGE] usage
    MeterPosition[METER_POSITIONS] positions
    MeterClient[METER_CLIENTS] clients
    MeterTopic[METER_TOPICS] topics
