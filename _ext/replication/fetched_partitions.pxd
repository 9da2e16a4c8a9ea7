"""The partitions that one replica fetcher fetches from one leader, and which of them the leader's fetch session contains (KIP-227).

Used by the fetcher's thread only. Memory is allocated with the GIL, when a partition is added; everything else needs no GIL.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint16_t, uint32_t, uint8_t


cdef enum:
    NO_PLACE = 0xFFFFFFFF

cdef enum FetchEventKind:         # what the thread must decide about a partition
    EVENT_ROLE = 1                # the slot has another role, epoch or partition, or its log is not open
    EVENT_ERROR = 2               # first: Kafka's error code
    EVENT_DIVERGING = 3           # first: epoch of the leader, second: end offset
    EVENT_APPEND = 4              # first: AppendResult, second: offset at which the log is to begin, or errno


cdef enum DeviceWait:             # of a partition whose log end offset must not be reported to the leader yet
    DEVICE_READY = 0              # it may be reported
    DEVICE_NEW = 1                # records were appended since the last request: the next request waits for them a short time
    DEVICE_SLOW = 2               # requests do not contain the partition until its records are on the device


cdef struct FetchEvent:
    uint32_t place
    int kind
    int64_t first
    int64_t second


cdef struct FetchedTopic:
    uint8_t[16] topic_id          # zero: only the name is known
    uint32_t first                # place of the first of its partitions + 1; 0: the place is free
    uint32_t id_next              # place of the next topic with this hash of its id + 1
    uint32_t name_next
    uint32_t to_send              # partitions that the request being built contains
    uint16_t name_bytes
    uint8_t[254] name


cdef struct FetchedPartition:
    uint32_t slot
    uint32_t incarnation
    int32_t leader_epoch
    int32_t partition
    uint32_t topic                # place of its topic
    uint32_t next                 # place of the topic's next partition + 1
    uint32_t hash_next            # place of the next partition with this hash + 1
    uint8_t used                  # 0: the place is free
    uint8_t active                # it is to be fetched
    uint8_t dropped               # free its place when the leader's session does not contain it
    uint8_t in_session            # the leader's session contains it, by the requests sent so far
    uint8_t sent                  # the last request has its present position: its part of the response is valid
    uint8_t throttled             # the follower's throttle applies to it, if it is not in sync
    uint8_t member                # the in-sync replicas of its leader epoch contain this broker, as far as its slot says
    uint8_t held                  # the throttle keeps it out of requests for now
    uint8_t device                # DeviceWait
    int32_t last_epoch            # the position that was sent last
    int64_t fetch_offset
    int64_t log_start_offset
    int64_t fetch_from            # of an empty log, if it is above the log's end; -1: fetch from the log end
    int64_t leader_high_watermark  # of the last response; -1: none


cdef class FetchedPartitions:
    cdef FetchedTopic* topics
    cdef FetchedPartition* partitions
    cdef FetchEvent* events
    cdef uint32_t* buckets        # of the partitions: place + 1; followed by those of topics by id, and by name
    cdef uint32_t bucket_mask
    cdef uint32_t room            # of `topics`, `partitions` and `events`
    cdef uint32_t topics_used     # high-water marks
    cdef uint32_t partitions_used
    cdef uint32_t free_topic      # no place before it is free
    cdef uint32_t free_partition
    cdef uint32_t event_count
    cdef uint32_t active_count
    cdef uint32_t nameless        # number of topics without an id
    cdef uint32_t held_count      # active partitions that are held
    cdef uint32_t throttled_count  # active partitions that the throttle applies to and that are not held
    cdef bint awaits_device       # some partition may be one whose `device` is not DEVICE_READY
    cdef FetchedPartition* checked(self, uint32_t place) except NULL
    cdef int grow(self) except -1
    cdef int rehash(self) except -1
    cdef uint32_t find_topic_by_id(self, const uint8_t* topic_id) noexcept nogil
    cdef uint32_t find_topic_by_name(self, const uint8_t* name, int64_t name_bytes) noexcept nogil
    cdef uint32_t find(self, uint32_t topic, int32_t partition) noexcept nogil
    cdef void insert_topic(self, uint32_t place) noexcept nogil
    cdef void insert_partition(self, uint32_t place) noexcept nogil
    cdef uint32_t new_topic(self, const uint8_t* topic_id, const uint8_t* name, uint16_t name_bytes) except 0xFFFFFFFF
    cdef void release(self, uint32_t place) noexcept nogil
    cdef void release_topic(self, uint32_t place) noexcept nogil
    # Read the position of a partition from its slot. Returns False, with EVENT_ROLE, if it is no follower in its leader epoch.
    cdef bint refresh(self, FetchedPartition* fetched) noexcept nogil
    # Refresh every active partition, so that its next request has changes that others made: role, log start offset.
    cdef void refresh_all(self) noexcept nogil
    # Note that the thread must decide about a partition, which is not fetched until then.
    cdef void add_event(self, FetchedPartition* fetched, int kind, int64_t first, int64_t second) noexcept nogil
    # The leader's session is lost: the next request contains all partitions.
    cdef void forget_session(self) noexcept nogil
