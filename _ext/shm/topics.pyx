"""Maps names and ids of topics to slots. Each process has its own directory and updates it from the table's ring of changes.

A slot may be assigned to another partition only after every worker has confirmed a version newer than its deletion. So what is
read here from a slot is valid until `confirm_version` is called for the version that was just applied [R 8].
"""

from odradek._ext.shm.views import View

from cpython.ref cimport PyObject, Py_DECREF, Py_INCREF
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memset

from odradek._ext.shm.atomics cimport fence_acquire, load_acquire_32, load_acquire_64, load_relaxed_64
from odradek._ext.shm.layout cimport CHANGE_RING, Header, region
from odradek._ext.shm.metering cimport find_topic
from odradek._ext.shm.partition_view cimport PartitionView
from odradek._ext.shm.slot cimport (
    ROLE_LEADER,
    SLOT_DELETED,
    SLOT_LOADING,
    SLOT_OFFLINE,
    SLOT_ONLINE,
    SLOT_REMOTE,
    Slot,
    slot_at,
    state_now,
)
from odradek._ext.shm.views cimport read_view, view_tuple


cdef class Topic:
    def __init__(self, str name, bytes topic_id, bint internal):
        self.name = name
        self.name_bytes = name.encode()
        self.topic_id = topic_id
        self.internal = internal

    def __dealloc__(self):
        free(self.slots)
        free(self.incarnations)

    cdef uint32_t counted(self) noexcept:
        """The number under which this process counts the topic in its meter page."""
        return find_topic(<const char*>self.name_bytes, len(self.name_bytes), &self.meter_number, &self.meter_since)

    cdef int put(self, int partition, uint32_t slot, uint32_t incarnation) except -1:
        cdef int room
        if partition >= self.room:
            room = max(partition + 1, self.room * 2, 4)
            self.slots = <uint32_t*>realloc(self.slots, room * sizeof(uint32_t))
            self.incarnations = <uint32_t*>realloc(self.incarnations, room * sizeof(uint32_t))
            if self.slots == NULL or self.incarnations == NULL:
                raise MemoryError(f"no memory for {room} partitions of {self.name}")
            memset(self.slots + self.room, 0, (room - self.room) * sizeof(uint32_t))
            memset(self.incarnations + self.room, 0, (room - self.room) * sizeof(uint32_t))
            self.room = room
        self.slots[partition] = slot + 1
        self.incarnations[partition] = incarnation
        if partition >= self.count:
            self.count = partition + 1
        return 0

    def slot(self, int partition) -> int:
        """The slot of a partition, -1 if the partition is not known."""
        if 0 <= partition < self.count and self.slots[partition]:
            return self.slots[partition] - 1
        return -1

    def partitions(self) -> list[tuple[int, int]]:
        """A list of (partition, slot) of the known partitions."""
        return [(i, self.slots[i] - 1) for i in range(self.count) if self.slots[i]]

    def describe(self, int partition) -> tuple[int, int, int, list[int], list[int], int] | None:
        """(slot state, leader id, leader epoch, replicas, in-sync replicas, partition epoch) from the slot, or None. What they say
        about the leader and the replicas is what the controller published."""
        cdef Slot* slot
        cdef PartitionView view
        cdef int i
        if not (0 <= partition < self.count) or self.slots[partition] == 0:
            return None
        slot = slot_at(self.slots[partition] - 1)
        if slot.incarnation != self.incarnations[partition]:
            return None
        read_view(slot, &view)
        return (
            state_now(slot), view.leader_id, view.leader_epoch,
            [view.replicas[i] for i in range(view.replica_count)],
            [view.in_sync[i] for i in range(view.in_sync_count)],
            view.partition_epoch,
        )

    def view(self, int partition) -> View | None:
        """What the controller published about a partition, as a View; None if the partition is not known, or not published, or being
        deleted. It is the same while this broker creates or deletes its replica of the partition."""
        cdef PartitionView view
        if not self.copy_view(partition, &view):
            return None
        return view_tuple(&view)

    cdef bint copy_view(self, int partition, PartitionView* out) noexcept:
        cdef Slot* slot
        if not (0 <= partition < self.count) or self.slots[partition] == 0:
            return False
        slot = slot_at(self.slots[partition] - 1)
        if load_acquire_32(&slot.state) == SLOT_DELETED:
            return False
        read_view(slot, out)
        return out.leader_id != UNPUBLISHED_LEADER

    def exists(self, int partition) -> bool:
        """Whether a partition exists: the controller has published it, or this broker leads it, which it may learn first. A log here
        without either was left behind by a former topic of the name, or by a reassignment. With an embedded store, every partition of
        the table exists."""
        return self.has(partition)

    cdef bint has(self, int partition) noexcept:
        cdef PartitionView view
        if self.copy_view(partition, &view):
            return True
        return 0 <= partition < self.count and self.slots[partition] and slot_at(self.slots[partition] - 1).role == ROLE_LEADER

    def existing_count(self) -> int:
        """The number of partitions up to the last one that exists, see `exists`; 0: none exists."""
        cdef int partition = self.count
        while partition > 0 and not self.has(partition - 1):
            partition -= 1
        return partition

    def has_leaders(self, int count) -> bool:
        """Whether the controller has published the first `count` partitions, each with a leader."""
        cdef PartitionView view
        cdef int partition
        for partition in range(count):
            if not self.copy_view(partition, &view) or view.leader_id < 0:
                return False
        return True

    def published_count(self) -> int:
        """The number of partitions, if the controller has published every one of them; otherwise 0.

        The requests of a controller name the local partitions of a new topic first, and the other ones later. So without this check
        the topic may seem to have fewer partitions than it has. With an embedded store, every partition of the table exists.
        """
        cdef PartitionView view
        cdef int partition
        if not region().header.clustered:
            return self.count
        for partition in range(self.count):
            if not self.copy_view(partition, &view):
                return 0
        return self.count

    def is_published(self) -> bool:
        """Whether the controller has published a partition of the topic: only then clients may see the topic."""
        cdef PartitionView view
        cdef int partition
        for partition in range(self.count):
            if self.copy_view(partition, &view):
                return True
        return False


cdef class TopicDirectory:
    """The topics by name and by id. Empty until `refresh`, which applies the changes announced since the last call."""

    def __init__(self):
        self.by_name = {}
        self.by_id = {}
        self.version = 0

    def __dealloc__(self):
        cdef uint32_t index
        for index in range(self.room):
            if self.of_slot[index].topic != NULL:
                Py_DECREF(<Topic>self.of_slot[index].topic)
        free(self.of_slot)

    def get(self, str name) -> Topic | None:
        """The topic with that name, or None."""
        return self.by_name.get(name.encode())

    cpdef bint refresh(self) except? 0:
        """Apply the changes announced since the last call. Returns whether there were any."""
        cdef Header* header = region().header
        cdef uint64_t newest = load_acquire_64(&header.metadata_version), version, changed
        if newest == self.version:
            return False
        if self.version == 0 or newest - self.version >= CHANGE_RING // 2:
            self.look_at_all()
            self.version = newest
            return True
        version = self.version + 1
        while version <= newest:
            changed = load_relaxed_64(&header.changes[version % CHANGE_RING])
            if changed:
                self.refresh_slot(<uint32_t>(changed - 1))
            version += 1
        fence_acquire()
        version = load_acquire_64(&header.metadata_version)
        if version - self.version >= CHANGE_RING // 2:    # the ring entries may have been overwritten before they were read
            self.look_at_all()
            newest = version
        self.version = newest
        return True

    cdef int look_at_all(self) except -1:
        cdef uint32_t index
        cdef bint none_announced = load_acquire_64(&region().header.metadata_version) == 1   # the slots are those of the loaders
        self.make_room(<uint32_t>region().header.slots_used)
        for index in range(<uint32_t>region().header.slots_used):
            if none_announced or slot_at(index).created_version != 0:   # else a change is under way; its end announces it [R 8.2]
                self.refresh_slot(index)
        return 0

    cdef int make_room(self, uint32_t slots) except -1:
        cdef uint32_t room = max(slots, self.room * 2, 64)
        cdef SlotTopic* slot_topic
        if slots <= self.room:
            return 0
        slot_topic = <SlotTopic*>realloc(self.of_slot, room * sizeof(SlotTopic))
        if slot_topic == NULL:
            raise MemoryError(f"no memory for the topics of {room} slots")
        memset(slot_topic + self.room, 0, (room - self.room) * sizeof(SlotTopic))
        self.of_slot = slot_topic
        self.room = room
        return 0

    cdef int refresh_slot(self, uint32_t index) except -1:
        cdef Slot* slot = slot_at(index)
        cdef uint32_t state = load_acquire_32(&slot.state)
        cdef uint32_t incarnation = slot.incarnation
        cdef bint present = state in (SLOT_ONLINE, SLOT_OFFLINE, SLOT_LOADING, SLOT_REMOTE)
        cdef SlotTopic* slot_topic
        cdef Topic topic
        self.make_room(index + 1)
        slot_topic = &self.of_slot[index]
        if slot_topic.topic != NULL and (slot_topic.incarnation != incarnation or not present):
            self.forget(index)
        if not present or slot_topic.topic != NULL:
            return 0
        name = (<char*>slot.topic)[:slot.topic_bytes]
        topic_id = (<char*>slot.topic_id)[:16]
        topic = self.by_name.get(name)
        if topic is None or topic.topic_id != topic_id:
            topic = Topic(name.decode(), topic_id, slot.internal != 0)
            self.by_name[name] = topic
            self.by_id[topic_id] = topic
        topic.put(slot.partition, index, incarnation)
        Py_INCREF(topic)
        slot_topic.topic = <PyObject*>topic
        slot_topic.partition = slot.partition
        slot_topic.incarnation = incarnation
        return 0

    cdef int forget(self, uint32_t index) except -1:
        cdef SlotTopic* slot_topic = &self.of_slot[index]
        cdef Topic topic = <Topic>slot_topic.topic
        cdef int partition = slot_topic.partition
        slot_topic.topic = NULL
        Py_DECREF(topic)  # the variable `topic` keeps a reference until the end
        if topic.slots[partition] == index + 1:
            topic.slots[partition] = 0
        while topic.count and topic.slots[topic.count - 1] == 0:
            topic.count -= 1
        if topic.count == 0:
            if self.by_name.get(topic.name_bytes) is topic:
                del self.by_name[topic.name_bytes]
            if self.by_id.get(topic.topic_id) is topic:
                del self.by_id[topic.topic_id]
        return 0
