"""What a Fetch has to do with replicas: the reads of followers, and consumers that may read from followers (KIP-392).

Used in a worker's event loop, by `FetchPlan`. A follower's request says up to where its log agrees with this broker's and ends: that
position moves the high watermark. A consumer in the rack of an in-sync follower is directed to that follower.
"""

import logging

from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t

from odradek._ext.api.fetch_context cimport (
    CONSUMER,
    FIRST_WITH_ENDPOINTS,
    FetchContext,
    FetchPartition,
    forget_result,
    refuse_partition,
    storage_error,
)
from odradek._ext.partition.followers cimport LOCK_BUSY_RESULT, note_follower_fetch
from odradek._ext.partition.leader_epochs cimport EPOCH_IN_FILE, EPOCH_UNDEFINED, end_offset_for
from odradek._ext.protocol.kafka_errors cimport FENCED_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER, NO_ERROR, OFFSET_OUT_OF_RANGE
from odradek._ext.shm.atomics cimport fence_acquire, load_acquire_8, load_acquire_32
from odradek._ext.shm.clock cimport coarse_ms, monotonic_ms
from odradek._ext.shm.locks cimport SPINS_OF_LOOP
from odradek._ext.shm.partition_view cimport MAX_IN_SYNC
from odradek._ext.shm.replication_quota cimport QUOTA_LEADER, is_in_sync, quota_room
from odradek._ext.shm.slot cimport (
    MAX_FOLLOWERS,
    ROLE_LEADER,
    SLOT_ONLINE,
    THROTTLED_LEADER,
    Commit,
    Follower,
    Slot,
    followers_at,
    read_commit,
    slot_at,
    state_now,
)


LOG = logging.getLogger("odradek.requests")

cdef enum:
    REPORT_AGAIN_MS = 60000


cdef list in_sync_followers(Slot* slot, int64_t offset):
    """Return (log end offset, time at which it was caught up in ms, broker id) of the in-sync followers whose log contains `offset`.

    Reads the entries without the lock: a choice by values of different moments is as good as one by older values.
    """
    cdef list found = []
    cdef Follower* follower
    cdef int i, k
    if not load_acquire_8(&slot.has_followers):
        return found
    for i in range(MAX_FOLLOWERS):
        follower = &followers_at(slot)[i]
        if follower.broker_id < 0 or follower.log_end_offset < offset or not 0 <= follower.log_start_offset <= offset:
            continue
        for k in range(min(slot.in_sync_count, <int32_t>MAX_IN_SYNC)):
            if slot.in_sync[k] == follower.broker_id:
                found.append((follower.log_end_offset, follower.caught_up_ms, follower.broker_id))
                break
    return found


cdef class ReadErrors:
    """Logs that partitions cannot be read."""

    def __init__(self):
        self.reported = {}

    cdef int report(self, uint32_t known, Slot* slot, failure) except -1:
        """Log that a partition cannot be read, at most once a minute per partition."""
        cdef int64_t now = monotonic_ms()
        before = self.reported.get(known)
        if before is None or now - before >= REPORT_AGAIN_MS:
            self.reported[known] = now
            name = (<char*>slot.topic)[:slot.topic_bytes].decode()
            LOG.error("cannot read partition %s-%d, Fetch requests for it fail: %s", name, slot.partition, failure)
        return 0


cdef class ReplicaReads:
    """See the module. A member of a FetchPlan.

    :param replicas: in a cluster, what is known about other brokers (`odradek.api.replicas.ReplicaView`); None: there are none.
    """

    def __init__(self, replicas, ReadErrors errors):
        self.replicas = replicas
        self.errors = errors

    cdef int check(self, FetchPartition p, FetchContext context, Slot* slot, Commit* commit, bint planning) except -1:
        """Compare the replica's log with this broker's, note its position, and choose the replica from which a consumer should read.
        Return 0, REFUSED if the partition contributes no records, or 1 if it must be examined again.
        """
        cdef int32_t epoch = slot.leader_epoch
        cdef uint32_t role = slot.role
        cdef bint diverges = p.request.last_fetched_epoch >= 0 and self.diverge(p, context, slot)
        # What was read belongs to one log only if the role did not change meanwhile: a reader that believed that the logs diverge at an
        # offset of another log would lose records.
        fence_acquire()
        if load_acquire_32(&slot.role) != role or slot.leader_epoch != epoch:
            forget_result(p)
            return 1
        if diverges:
            return REFUSED
        if context.replica_id < 0:
            return self.prefer(p, context, slot) if planning and context.rack is not None else 0
        if planning and p.noted_for != context.request and p.request.fetch_offset <= commit.log_end_offset:
            if self.note(p, context, slot):
                return REFUSED
            read_offsets(p, slot, commit)       # the note may have moved the high watermark
            fence_acquire()
            return load_acquire_32(&slot.role) != role or slot.leader_epoch != epoch
        return 0

    cdef int diverge(self, FetchPartition p, FetchContext context, Slot* slot) except -1:
        """Compare the epoch of the reader's last record with this log. Return whether the partition contributes no records: its epoch
        is unknown here, or the logs diverge before the fetch offset. The reader must truncate its log then, and its position is not
        noted.
        """
        cdef int32_t found_epoch = -1
        cdef int64_t end_offset = -1
        cdef int found = end_offset_for(slot, p.request.last_fetched_epoch, &found_epoch, &end_offset)
        if found == EPOCH_IN_FILE:      # a reader that was away for many leader epochs; the file is small
            if self.replicas is None:
                found = EPOCH_UNDEFINED
            else:
                try:
                    found_epoch, end_offset = self.replicas.end_offset_for(p.slot - 1, p.request.last_fetched_epoch)
                except OSError as failure:
                    self.errors.report(p.slot, slot, failure)
                    refuse_partition(p, storage_error(context.version))
                    return True
        if found == EPOCH_UNDEFINED or found_epoch < 0:
            refuse_partition(p, OFFSET_OUT_OF_RANGE)
            return True
        if found_epoch >= p.request.last_fetched_epoch and end_offset >= p.request.fetch_offset:
            return False
        p.found.diverging_epoch = found_epoch
        p.found.diverging_end = end_offset
        p.found.included = True
        return True

    cdef int note(self, FetchPartition p, FetchContext context, Slot* slot) except -1:
        """Note the follower's position, once for a request. Return whether it was refused; the partition has the error then."""
        cdef int32_t epoch = p.request.leader_epoch if p.request.leader_epoch >= 0 else slot.leader_epoch
        cdef int16_t error
        self.notes += 1
        with nogil:
            error = note_follower_fetch(p.slot - 1, p.incarnation, epoch, context.replica_id, context.replica_epoch, p.request.fetch_offset,
                                        p.request.log_start_offset, context.last_used_ms, SPINS_OF_LOOP)
        if error == LOCK_BUSY_RESULT:
            context.unnoted.append(p)
            return False
        p.noted_for = context.request
        if not error:
            return False
        refuse_partition(p, error)
        self.name_leader(p, context, slot)
        return True

    cdef bint refresh(self, FetchPartition p, FetchContext context) except -1:
        """Note that a follower whose session has nothing new for this partition still has all of its records. Return False if the
        partition must be planned instead, because it moved.
        """
        cdef Slot* slot = slot_at(p.slot - 1)
        cdef int64_t log_end = p.request.fetch_offset
        cdef int32_t epoch = slot.leader_epoch
        cdef int16_t error
        cdef Commit commit
        if slot.incarnation != p.incarnation or state_now(slot) != SLOT_ONLINE or \
                (p.request.leader_epoch >= 0 and p.request.leader_epoch != epoch):
            return False
        read_commit(slot, &commit)
        if commit.log_end_offset != log_end or commit.high_watermark != p.sent.high_watermark or \
                slot.log_start_offset != p.sent.log_start_offset:
            return False
        self.notes += 1
        with nogil:
            error = note_follower_fetch(p.slot - 1, p.incarnation, epoch, context.replica_id, context.replica_epoch, log_end,
                                        p.request.log_start_offset, context.last_used_ms, SPINS_OF_LOOP)
        return error == NO_ERROR

    cdef bint throttle(self, FetchPartition p, FetchContext context, Slot* slot) except -1:
        """Determine whether the follower's replica is throttled (KIP-73): it is listed, and the follower is not in sync. Return whether
        the limit is reached, so that the partition contributes no records for now.

        In-sync replicas are never throttled, because they would leave the in-sync set and hold up the high watermark.
        """
        p.throttled = slot.settings.throttled & THROTTLED_LEADER and not is_in_sync(slot, context.replica_id)
        if not p.throttled:
            return False
        if context.throttle_room < 0:
            context.throttle_room = quota_room(QUOTA_LEADER, coarse_ms())
        if context.throttle_room > 0:
            return False
        context.throttled = True
        return True

    cdef int prefer(self, FetchPartition p, FetchContext context, Slot* slot) except -1:
        """If a follower in the consumer's rack has the requested records, name it instead of sending records. Return REFUSED, or 0."""
        cdef int32_t preferred
        cdef list candidates
        if slot.role != ROLE_LEADER or slot.replica_count < 2 or context.replica_id != CONSUMER:
            return 0
        candidates = in_sync_followers(slot, p.request.fetch_offset)
        preferred = self.replicas.preferred(candidates, context.rack, context.listener) if candidates else -1
        if preferred < 0:
            return 0
        p.found.preferred_replica = preferred
        p.found.included = True
        return REFUSED

    cdef int name_leader(self, FetchPartition p, FetchContext context, Slot* slot) except -1:
        """After an error that makes the client look up the leader: note the leader that this broker knows, for the response."""
        if self.replicas is None or context.version < FIRST_WITH_ENDPOINTS or slot.incarnation != p.incarnation:
            return 0
        if p.found.error == NOT_LEADER_OR_FOLLOWER or p.found.error == FENCED_LEADER_EPOCH:
            p.found.current_leader, p.found.current_leader_epoch = self.replicas.leader_of(p.slot - 1)
        return 0
