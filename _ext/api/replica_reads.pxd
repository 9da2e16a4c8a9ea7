"""What a Fetch has to do with replicas: the reads of followers, and consumers that may read from followers (KIP-392)."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t, uint64_t

from odradek._ext.api.fetch_context cimport DEBUGGING_CONSUMER, FIRST_WITH_RACK, FetchContext, FetchPartition
from odradek._ext.shm.atomics cimport load_acquire_i64
from odradek._ext.shm.partition_view cimport MAX_IN_SYNC
from odradek._ext.shm.slot cimport Commit, Slot, read_commit


cdef enum:
    REFUSED = 2                       # result of a check of a partition: it has an error, or needs no records


cdef inline bint has_follower(Slot* slot, int32_t broker_id) noexcept nogil:
    """Return whether another broker is assigned a replica of the partition that this broker leads."""
    cdef int i
    for i in range(min(slot.replica_count, <int32_t>MAX_IN_SYNC)):
        if slot.replicas[i] == broker_id:
            return broker_id != slot.leader_id
    return False


cdef inline bint may_read_from_follower(FetchContext context) noexcept:
    """Return whether the reader is not a follower, and knows that it may be directed to a follower (KIP-392)."""
    return context.replica_id == DEBUGGING_CONSUMER or (context.replica_id < 0 and context.version >= FIRST_WITH_RACK)


cdef inline void read_offsets(FetchPartition p, Slot* slot, Commit* commit) noexcept:
    """Read the commit block and the offsets that the response contains.

    The last stable offset is read first: the commit block then covers the entries of the transaction index that allowed it.
    """
    p.found.log_start_offset = slot.log_start_offset
    p.found.last_stable_offset = load_acquire_i64(&slot.last_stable_offset)
    read_commit(slot, commit)
    p.found.high_watermark = commit.high_watermark
    p.found.log_end_offset = commit.log_end_offset
    if p.found.last_stable_offset > p.found.high_watermark:
        p.found.last_stable_offset = p.found.high_watermark


cdef class ReadErrors:
    cdef dict reported                # slot -> when its read error was last logged, ms

    cdef int report(self, uint32_t known, Slot* slot, failure) except -1


cdef class ReplicaReads:
    cdef object replicas              # ReplicaView in a cluster; None
    cdef ReadErrors errors
    cdef readonly int64_t notes       # how often the position of a follower was noted

    cdef int check(self, FetchPartition p, FetchContext context, Slot* slot, Commit* commit, bint planning) except -1
    cdef int diverge(self, FetchPartition p, FetchContext context, Slot* slot) except -1
    cdef int note(self, FetchPartition p, FetchContext context, Slot* slot) except -1
    cdef bint refresh(self, FetchPartition p, FetchContext context) except -1
    cdef bint throttle(self, FetchPartition p, FetchContext context, Slot* slot) except -1
    cdef int prefer(self, FetchPartition p, FetchContext context, Slot* slot) except -1
    cdef int name_leader(self, FetchPartition p, FetchContext context, Slot* slot) except -1
