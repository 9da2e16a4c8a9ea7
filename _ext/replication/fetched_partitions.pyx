"""The partitions of a replica fetcher; see fetched_partitions.pxd."""

from libc.stdint cimport int32_t, int64_t, uint16_t, uint32_t, uint64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy, memset

from odradek._ext.partition.follower_append cimport FollowerPosition, follower_position
from odradek._ext.partition.slots cimport checked_slot
from odradek._ext.shm.layout cimport region
from odradek._ext.shm.replication_quota cimport is_in_sync
from odradek._ext.shm.slot cimport ROLE_FOLLOWER, SLOT_ONLINE, THROTTLED_FOLLOWER, Slot, slot_at


cdef enum:
    FIRST_ROOM = 16


cdef inline uint32_t hash_bytes(const uint8_t* data, int64_t size) noexcept nogil:
    """FNV-1a: the controller chooses the ids and names, not a client."""
    cdef uint32_t value = 2166136261u
    cdef int64_t i
    for i in range(size):
        value = (value ^ data[i]) * 16777619u
    return value


cdef inline uint32_t hash_partition(uint32_t topic, int32_t partition) noexcept nogil:
    cdef uint64_t mixed = (<uint64_t>topic << 32 | <uint32_t>partition) * <uint64_t>0x9E3779B97F4A7C15
    return <uint32_t>(mixed >> 32)


cdef inline bint has_id(const uint8_t* topic_id) noexcept nogil:
    cdef int i
    for i in range(16):
        if topic_id[i]:
            return True
    return False


cdef inline void note_throttle(FetchedPartition* fetched) noexcept nogil:
    """Take over from the slot whether the partition is listed as throttled, and whether this broker is in sync."""
    cdef Slot* slot = slot_at(fetched.slot)
    fetched.throttled = slot.settings.throttled & THROTTLED_FOLLOWER != 0
    if fetched.throttled:
        fetched.member = is_in_sync(slot, region().header.broker_id)


cdef class FetchedPartitions:
    """Partitions by their places, which stay the same until they are dropped."""

    def __dealloc__(self):
        free(self.topics)
        free(self.partitions)
        free(self.events)
        free(self.buckets)

    # -- for Python -------------------------------------------------------------------------------------------------

    def add(self, uint32_t slot, uint32_t incarnation, int leader_epoch, str topic not None, bytes topic_id not None, int partition) -> int:
        """Add the partition of a slot, inactive. Returns its place.

        :raises ValueError: the partition is already present, or an argument is invalid. :raises MemoryError: no memory.
        """
        cdef bytes name = topic.encode()
        cdef uint32_t topic_place, place
        cdef FetchedPartition* fetched
        if len(topic_id) != 16 or not 0 < len(name) <= 249 or partition < 0:
            raise ValueError(f"invalid partition: {topic}-{partition}, topic id {topic_id.hex()}")
        checked_slot(slot)
        if self.partitions_used == self.room or self.topics_used == self.room:
            self.grow()
        topic_place = self.new_topic(topic_id, name, <uint16_t>len(name))
        place = self.find(topic_place, partition)
        if place != NO_PLACE:
            if not self.partitions[place].dropped:
                raise ValueError(f"{topic}-{partition} is already fetched")
        else:
            place = self.free_partition
            while place < self.partitions_used and self.partitions[place].used:
                place += 1
            self.free_partition = place + 1
            self.partitions_used = max(self.partitions_used, place + 1)
            memset(&self.partitions[place], 0, sizeof(FetchedPartition))
            self.partitions[place].topic = topic_place
            self.partitions[place].partition = partition
            self.partitions[place].used = True
            self.partitions[place].next = self.topics[topic_place].first
            self.topics[topic_place].first = place + 1
            self.insert_partition(place)
        fetched = &self.partitions[place]
        fetched.slot = slot
        fetched.incarnation = incarnation
        fetched.leader_epoch = leader_epoch
        fetched.dropped = fetched.sent = fetched.held = False
        fetched.device = DEVICE_READY
        fetched.leader_high_watermark = -1
        return place

    def drop(self, uint32_t place) -> None:
        """Remove a partition. The leader's session forgets it with the next request."""
        cdef FetchedPartition* fetched = self.checked(place)
        if fetched.active:
            fetched.active = False
            self.active_count -= 1
        fetched.dropped = True
        fetched.sent = False
        if not fetched.in_session:
            self.release(place)

    def activate(self, uint32_t place, int64_t from_offset=-1) -> bool:
        """Fetch the partition from its present log end, or an empty log from `from_offset`, if that is above its end. Returns False
        if the slot is no follower in the partition's leader epoch, or its log is not open."""
        cdef FetchedPartition* fetched = self.checked(place)
        cdef uint32_t events = self.event_count
        fetched.fetch_from = from_offset
        if not fetched.active:
            fetched.active = True
            self.active_count += 1
        fetched.device = DEVICE_READY       # `refresh` notes a wait that this connection knows of
        if not self.refresh(fetched):
            self.event_count = events       # the caller receives the result here
            return False
        fetched.sent = False
        return True

    def deactivate(self, uint32_t place) -> None:
        """Do not fetch the partition until `activate`. Its part of a response that is under way is ignored."""
        cdef FetchedPartition* fetched = self.checked(place)
        if fetched.active:
            fetched.active = False
            self.active_count -= 1
        fetched.sent = False

    def take_events(self) -> list[tuple[int, int, int, int]]:
        """[(place, kind, first, second)]: what the thread must decide since the last call. The partitions are inactive."""
        cdef uint32_t i
        events = [
            (self.events[i].place, self.events[i].kind, self.events[i].first, self.events[i].second)
            for i in range(self.event_count)
        ]
        self.event_count = 0
        return events

    @property
    def max_lag(self) -> int:
        """The largest number of committed records of the leader that a log does not have. May be called by any thread."""
        cdef uint32_t i
        cdef FetchedPartition* fetched
        cdef int64_t lag = 0
        for i in range(self.partitions_used):
            fetched = &self.partitions[i]
            if fetched.used and not fetched.dropped:
                lag = max(lag, fetched.leader_high_watermark - fetched.fetch_offset)
        return lag

    # -- places -----------------------------------------------------------------------------------------------------

    cdef FetchedPartition* checked(self, uint32_t place) except NULL:
        if place >= self.partitions_used or not self.partitions[place].used:
            raise IndexError(f"place {place} has no partition")
        return &self.partitions[place]

    cdef int grow(self) except -1:
        cdef uint32_t room = max(<uint32_t>FIRST_ROOM, self.room * 2)
        cdef void* memory
        memory = realloc(self.topics, room * sizeof(FetchedTopic))
        if memory == NULL:
            raise MemoryError(f"no memory for {room} partitions to fetch")
        self.topics = <FetchedTopic*>memory
        memory = realloc(self.partitions, room * sizeof(FetchedPartition))
        if memory == NULL:
            raise MemoryError(f"no memory for {room} partitions to fetch")
        self.partitions = <FetchedPartition*>memory
        memory = realloc(self.events, room * sizeof(FetchEvent))
        if memory == NULL:
            raise MemoryError(f"no memory for {room} partitions to fetch")
        self.events = <FetchEvent*>memory
        memory = realloc(self.buckets, <size_t>room * 3 * sizeof(uint32_t))
        if memory == NULL:
            raise MemoryError(f"no memory for {room} partitions to fetch")
        self.buckets = <uint32_t*>memory
        self.room = room
        self.bucket_mask = room - 1          # the room is a power of two
        return self.rehash()

    cdef int rehash(self) except -1:
        cdef uint32_t place
        memset(self.buckets, 0, <size_t>self.room * 3 * sizeof(uint32_t))
        for place in range(self.topics_used):
            if self.topics[place].first:
                self.insert_topic(place)
        for place in range(self.partitions_used):
            if self.partitions[place].used:
                self.insert_partition(place)
        return 0

    cdef void insert_topic(self, uint32_t place) noexcept nogil:
        cdef FetchedTopic* topic = &self.topics[place]
        cdef uint32_t* by_id = &self.buckets[self.room + (hash_bytes(topic.topic_id, 16) & self.bucket_mask)]
        cdef uint32_t* by_name = &self.buckets[2 * self.room + (hash_bytes(topic.name, topic.name_bytes) & self.bucket_mask)]
        topic.id_next = by_id[0]
        by_id[0] = place + 1
        topic.name_next = by_name[0]
        by_name[0] = place + 1

    cdef void insert_partition(self, uint32_t place) noexcept nogil:
        cdef FetchedPartition* fetched = &self.partitions[place]
        cdef uint32_t* bucket = &self.buckets[hash_partition(fetched.topic, fetched.partition) & self.bucket_mask]
        fetched.hash_next = bucket[0]
        bucket[0] = place + 1

    cdef uint32_t find_topic_by_id(self, const uint8_t* topic_id) noexcept nogil:
        cdef uint32_t at
        if self.room == 0:
            return NO_PLACE
        at = self.buckets[self.room + (hash_bytes(topic_id, 16) & self.bucket_mask)]
        while at and memcmp(self.topics[at - 1].topic_id, topic_id, 16) != 0:
            at = self.topics[at - 1].id_next
        return at - 1

    cdef uint32_t find_topic_by_name(self, const uint8_t* name, int64_t name_bytes) noexcept nogil:
        cdef uint32_t at
        if self.room == 0:
            return NO_PLACE
        at = self.buckets[2 * self.room + (hash_bytes(name, name_bytes) & self.bucket_mask)]
        while at and (self.topics[at - 1].name_bytes != name_bytes
                      or memcmp(self.topics[at - 1].name, name, <size_t>name_bytes) != 0):
            at = self.topics[at - 1].name_next
        return at - 1

    cdef uint32_t find(self, uint32_t topic, int32_t partition) noexcept nogil:
        cdef uint32_t at = self.buckets[hash_partition(topic, partition) & self.bucket_mask]
        while at and (self.partitions[at - 1].topic != topic or self.partitions[at - 1].partition != partition):
            at = self.partitions[at - 1].hash_next
        return at - 1

    cdef uint32_t new_topic(self, const uint8_t* topic_id, const uint8_t* name, uint16_t name_bytes) except 0xFFFFFFFF:
        """The place of a topic, which is added if it is not present: a topic that was created again has another id."""
        cdef uint32_t place = self.find_topic_by_name(name, name_bytes)
        while place != NO_PLACE and memcmp(self.topics[place].topic_id, topic_id, 16) != 0:
            place = self.topics[place].name_next - 1
            while place != NO_PLACE and (self.topics[place].name_bytes != name_bytes
                                         or memcmp(self.topics[place].name, name, name_bytes) != 0):
                place = self.topics[place].name_next - 1
        if place != NO_PLACE:
            return place
        place = self.free_topic
        while place < self.topics_used and self.topics[place].first:
            place += 1
        self.free_topic = place + 1
        self.topics_used = max(self.topics_used, place + 1)
        memset(&self.topics[place], 0, sizeof(FetchedTopic))
        memcpy(self.topics[place].topic_id, topic_id, 16)
        memcpy(self.topics[place].name, name, name_bytes)
        self.topics[place].name_bytes = name_bytes
        if not has_id(topic_id):
            self.nameless += 1
        self.insert_topic(place)
        return place

    cdef void release(self, uint32_t place) noexcept nogil:
        """Free the place of a partition, and of its topic if this was the last one."""
        cdef FetchedPartition* fetched = &self.partitions[place]
        cdef uint32_t topic = fetched.topic
        cdef uint32_t* at = &self.buckets[hash_partition(topic, fetched.partition) & self.bucket_mask]
        while at[0] != place + 1:
            at = &self.partitions[at[0] - 1].hash_next
        at[0] = fetched.hash_next
        at = &self.topics[topic].first
        while at[0] != place + 1:
            at = &self.partitions[at[0] - 1].next
        at[0] = fetched.next
        fetched.used = False
        self.free_partition = min(self.free_partition, place)
        if self.topics[topic].first == 0:
            self.release_topic(topic)

    cdef void release_topic(self, uint32_t place) noexcept nogil:
        cdef FetchedTopic* topic = &self.topics[place]
        cdef uint32_t* at = &self.buckets[self.room + (hash_bytes(topic.topic_id, 16) & self.bucket_mask)]
        while at[0] != place + 1:
            at = &self.topics[at[0] - 1].id_next
        at[0] = topic.id_next
        at = &self.buckets[2 * self.room + (hash_bytes(topic.name, topic.name_bytes) & self.bucket_mask)]
        while at[0] != place + 1:
            at = &self.topics[at[0] - 1].name_next
        at[0] = topic.name_next
        self.free_topic = min(self.free_topic, place)
        if not has_id(topic.topic_id):
            self.nameless -= 1

    # -- without the GIL --------------------------------------------------------------------------------------------

    cdef bint refresh(self, FetchedPartition* fetched) noexcept nogil:
        cdef FollowerPosition position
        if not follower_position(slot_at(fetched.slot), &position) or position.incarnation != fetched.incarnation \
                or position.leader_epoch != fetched.leader_epoch or position.role != ROLE_FOLLOWER \
                or position.state != SLOT_ONLINE:
            self.add_event(fetched, EVENT_ROLE, 0, 0)
            return False
        note_throttle(fetched)
        if position.log_end_offset == position.log_start_offset:
            position.log_end_offset = max(position.log_end_offset, fetched.fetch_from)
        if position.log_end_offset != fetched.fetch_offset or position.log_start_offset != fetched.log_start_offset \
                or position.last_epoch != fetched.last_epoch:
            fetched.sent = False
        fetched.fetch_offset = position.log_end_offset
        fetched.log_start_offset = position.log_start_offset
        fetched.last_epoch = position.last_epoch
        if position.on_device:
            fetched.device = DEVICE_READY
        elif fetched.device == DEVICE_READY:
            fetched.device = DEVICE_NEW
            self.awaits_device = True
        return True

    cdef void refresh_all(self) noexcept nogil:
        cdef uint32_t place
        for place in range(self.partitions_used):
            if self.partitions[place].used and self.partitions[place].active:
                self.refresh(&self.partitions[place])

    cdef void add_event(self, FetchedPartition* fetched, int kind, int64_t first, int64_t second) noexcept nogil:
        cdef FetchEvent* event
        if not fetched.active or self.event_count == self.room:
            return
        fetched.active = False
        fetched.sent = False
        self.active_count -= 1
        event = &self.events[self.event_count]
        event.place = <uint32_t>(fetched - self.partitions)
        event.kind = kind
        event.first = first
        event.second = second
        self.event_count += 1

    cdef void forget_session(self) noexcept nogil:
        cdef uint32_t place
        for place in range(self.partitions_used):
            if not self.partitions[place].used:
                continue
            self.partitions[place].in_session = False
            self.partitions[place].sent = False
            if self.partitions[place].dropped:
                self.release(place)
