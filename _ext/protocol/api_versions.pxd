"""Keys and versions of the APIs that native code serves; `odradek.api.table` has the table of all APIs."""


cdef enum ApiKey:
    PRODUCE = 0
    FETCH = 1
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    API_VERSIONS = 18
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    CONSUMER_GROUP_HEARTBEAT = 68


# The newest version that is served, and the first with flexible encoding.
cdef enum:
    PRODUCE_NEWEST = 13
    PRODUCE_FLEXIBLE = 9
    FETCH_NEWEST = 18
    FETCH_FLEXIBLE = 12
    OFFSET_COMMIT_NEWEST = 10
    OFFSET_COMMIT_FLEXIBLE = 8
    TXN_OFFSET_COMMIT_NEWEST = 5
    TXN_OFFSET_COMMIT_FLEXIBLE = 3
    API_VERSIONS_NEWEST = 4
    JOIN_GROUP_NEWEST = 9
    JOIN_GROUP_FLEXIBLE = 6
    HEARTBEAT_NEWEST = 4
    HEARTBEAT_FLEXIBLE = 4
    LEAVE_GROUP_FLEXIBLE = 4
    SYNC_GROUP_NEWEST = 5
    SYNC_GROUP_FLEXIBLE = 4
