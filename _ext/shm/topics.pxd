"""A process's directory of the topics in the shared table: it maps a name or an id to the slots of the partitions."""

from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, uint32_t, uint64_t

from odradek._ext.shm.partition_view cimport PartitionView


cdef enum:
    UNPUBLISHED_LEADER = -2       # the leader in the view of a partition that is not published yet, or is being deleted


cdef class Topic:
    cdef readonly str name
    cdef readonly bytes name_bytes
    cdef readonly bytes topic_id
    cdef readonly bint internal
    cdef readonly int count       # partitions known, numbered 0 to count - 1
    cdef uint32_t* slots          # slot + 1 of each partition; 0: not known to this process
    cdef uint32_t* incarnations
    cdef int room
    cdef uint32_t meter_number    # the topic's number in this process's meter page, see `find_topic`
    cdef uint64_t meter_since
    cdef uint32_t counted(self) noexcept

    cdef bint copy_view(self, int partition, PartitionView* out) noexcept
    cdef bint has(self, int partition) noexcept
    cdef int put(self, int partition, uint32_t slot, uint32_t incarnation) except -1


cdef struct SlotTopic:            # what a slot holds according to the changes that this process has applied
    PyObject* topic               # owned by `by_name` or `by_id` and by this reference; NULL: nothing
    int32_t partition
    uint32_t incarnation


cdef class TopicDirectory:
    cdef readonly dict by_name    # bytes -> Topic
    cdef readonly dict by_id      # bytes -> Topic
    cdef readonly uint64_t version
    cdef SlotTopic* of_slot
    cdef uint32_t room            # slots in `of_slot`

    cdef int look_at_all(self) except -1
    cdef int make_room(self, uint32_t slots) except -1
    cdef int refresh_slot(self, uint32_t index) except -1
    cdef int forget(self, uint32_t index) except -1
    cpdef bint refresh(self) except? 0
