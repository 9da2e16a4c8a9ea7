"""The plan of a Fetch response: segment, position and length of the records of each partition, or the partition's error.

Used in a worker's event loop. A plan does not read the records: it finds them at the position where the last fetch ended, in the
slot's ring of recent batches, or through the offset index. One consistent copy of the commit block decides where reading ends.
A result is used only if the slot's generation did not change meanwhile.
"""

import os

from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t

from odradek._ext.api.aborted_transactions cimport AbortedTransactions
from odradek._ext.api.access cimport ACL_CLUSTER, ACL_CLUSTER_ACTION, ACL_READ, Access
from odradek._ext.api.cold_look_ups import ColdRead
from odradek._ext.api.fetch_context cimport (
    FIRST_WITH_BATCHES,
    FIRST_WITH_MAX_BYTES,
    WARM_ROUNDS,
    FetchContext,
    FetchPartition,
    answers_at_once,
    forget_result,
    reads_to_log_end,
    refuse_partition,
    storage_error,
    wants_aborted,
)
from odradek._ext.api.fetch_positions cimport (
    base_of_place,
    end_of_reading,
    first_batch_bytes,
    offset_behind,
    place_by_index,
    place_in_ring,
    remember_start,
    whole_batches,
)
from odradek._ext.api.replica_reads cimport (
    REFUSED,
    ReadErrors,
    ReplicaReads,
    has_follower,
    may_read_from_follower,
    read_offsets,
)
from odradek._ext.partition.slot_access cimport take_slot
from odradek._ext.partition.swapping cimport SWAP_UNDER_WAY
from odradek._ext.protocol.api_versions cimport FETCH
from odradek._ext.protocol.kafka_errors cimport (
    FENCED_LEADER_EPOCH,
    NOT_LEADER_OR_FOLLOWER,
    NO_ERROR,
    OFFSET_OUT_OF_RANGE,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_LEADER_EPOCH,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
    UNSUPPORTED_COMPRESSION_TYPE,
)
from odradek._ext.records.codecs cimport first_fetch
from odradek._ext.shm.atomics cimport load_acquire_64, load_acquire_i64
from odradek._ext.shm.locks cimport LOCK_BUSY, SPINS_OF_LOOP, unlock
from odradek._ext.shm.replication_quota cimport QUOTA_LEADER, quota_limited
from odradek._ext.shm.slot cimport (
    ROLE_FOLLOWER,
    ROLE_LEADER,
    SLOT_LOADING,
    SLOT_OFFLINE,
    SLOT_ONLINE,
    SLOT_REMOTE,
    Commit,
    Slot,
    slot_at,
    state_now,
)
from odradek._ext.shm.topics cimport Topic, TopicDirectory
from odradek._ext.storage.file_calls cimport file_bytes
from odradek._ext.storage.log_dirs cimport note_device
from odradek._ext.storage.page_cache cimport set_no_wait
from odradek._ext.storage.segment_list cimport OpenSegment, SegmentCache, SegmentList


cdef enum:
    LOOKS = 4                         # attempts at a partition whose files are being renamed
    ENTRIES_AT_ONCE = 1 << 15         # of transaction indexes: after so many a plan continues in a later turn of the loop


cdef inline int16_t unknown_partition_error(FetchPartition p) noexcept:
    """Return the error for an unknown partition, for the topic id or the topic name, as the client named the topic."""
    return UNKNOWN_TOPIC_ID if p.by_id else UNKNOWN_TOPIC_OR_PARTITION


cdef bint swap_over(uint32_t index, Slot* slot) noexcept nogil:
    """Return whether the swap of segments has ended. If the process that made it died, this call completes it."""
    if take_slot(index, slot, SPINS_OF_LOOP) == LOCK_BUSY:
        return False
    unlock(index, slot)
    return True


cdef bint may_replicate(FetchContext context) except -1:
    """Return whether a broker's request may read all partitions. Asked once for a plan, so that a denial is counted and noted once."""
    return context.replica_id < 0 or context.access is None or context.access.allows(
        ACL_CLUSTER_ACTION, ACL_CLUSTER, "kafka-cluster", FETCH)


cdef class FetchPlan:
    """Makes the plans of Fetch responses, and owns the open segments for them. A worker has one.

    :param log_dirs: paths. :param max_bytes: fetch.max.bytes.
    :param replicas: in a cluster, what is known about other brokers (`odradek.api.replicas.ReplicaView`); None: there are none.
    """

    def __init__(self, TopicDirectory topics, log_dirs, int32_t max_bytes, replicas=None):
        self.errors = ReadErrors()
        self.replica_reads = ReplicaReads(replicas, self.errors)
        self.clustered = replicas is not None
        self.topics = topics
        self.cache = SegmentCache()
        self.aborted = AbortedTransactions()
        self.log_dirs = [os.fsencode(path) for path in log_dirs]
        self.segment_lists = {}
        self.max_bytes = max_bytes

    cdef int begin_plan(self, FetchContext context) except -1:
        """Discard the request's last plan; `plan_some` makes the next one."""
        context.planned_bytes = 0
        context.ready_bytes = 0
        context.planned_at_once = False
        context.cold = []
        context.plan_at = 0
        context.plan_budget = min(context.max_bytes, self.max_bytes)
        context.plan_first = True
        context.throttled = False
        context.throttle_room = -1
        context.may_replicate = may_replicate(context)
        return 0

    cdef bint plan_some(self, FetchContext context, Py_ssize_t count) except -1:
        """Plan the next `count` partitions of the request, or less if they need much work. Return whether all are planned."""
        cdef FetchPartition p
        cdef list partitions = context.planned_partitions()
        cdef Py_ssize_t end = min(context.plan_at + count, <Py_ssize_t>len(partitions))
        context.entries_read = 0
        set_no_wait(context.reader is not None and context.warm_rounds < WARM_ROUNDS)
        try:
            while context.plan_at < end and context.entries_read < ENTRIES_AT_ONCE:
                p = partitions[context.plan_at]
                context.plan_at += 1
                if context.version < FIRST_WITH_MAX_BYTES:
                    context.plan_first = True
                if context.rounds and p.converted is not None:      # an earlier round of this request has converted its records
                    context.plan_budget -= p.planned.length
                    context.plan_first = context.plan_first and p.planned.length == 0
                else:
                    self.examine(p, context, True)
                context.planned_bytes += p.planned.length
                context.ready_bytes += p.found.ready_bytes
                if answers_at_once(p):
                    context.planned_at_once = True
        finally:
            set_no_wait(False)
        return context.plan_at == len(partitions)

    cdef int measure(self, FetchPartition p, FetchContext context) except -1:
        """Update the available bytes of a partition whose slot moved; the plan of the other partitions stays."""
        context.ready_bytes -= p.found.ready_bytes
        set_no_wait(context.reader is not None and context.warm_rounds < WARM_ROUNDS)
        try:
            self.examine(p, context, False)
        finally:
            set_no_wait(False)
        context.ready_bytes += p.found.ready_bytes
        if answers_at_once(p):
            context.planned_at_once = True
        return 0

    cdef int resolve(self, FetchPartition p) except -1:
        """Find the partition's slot. Return Kafka's error code, or 0.

        Looks the slot up again if it was reused for another partition, or is not online: the topic may have been recreated, in
        another slot.
        """
        cdef Topic topic
        cdef Slot* slot
        if p.slot:
            slot = slot_at(p.slot - 1)
            if slot.incarnation == p.incarnation and slot.state == SLOT_ONLINE:
                return NO_ERROR
        topic = (self.topics.by_id if p.by_id else self.topics.by_name).get(p.topic)
        if topic is None:
            p.slot, p.counted = 0, None
            return UNKNOWN_TOPIC_ID if p.by_id else UNKNOWN_TOPIC_OR_PARTITION
        if not 0 <= p.partition < topic.count or topic.slots[p.partition] == 0:
            p.slot, p.counted = 0, None
            return UNKNOWN_TOPIC_OR_PARTITION
        p.slot = topic.slots[p.partition]
        p.incarnation = topic.incarnations[p.partition]
        p.counted = topic
        p.expected.offset = p.passed.asked = -1
        return NO_ERROR

    cdef int examine(self, FetchPartition p, FetchContext context, bint planning) except -1:
        """Determine the partition's error, or its available bytes and, if `planning`, the location of the response's records.

        If its files are renamed meanwhile (a swap after compaction, a roll), the partition is examined again. A partition whose files
        keep changing, or in which a swap is in progress, contributes no records for now: the end of the swap wakes the waiters.
        """
        cdef int64_t asked = p.request.fetch_offset
        for _ in range(LOOKS):
            self.looks += 1
            p.request.fetch_offset = asked
            if self.examine_once(p, context, planning) == 0:
                return 0
        p.segment = None
        p.expected.offset = -1
        p.found.ready_bytes = 0
        return 0

    cdef int examine_once(self, FetchPartition p, FetchContext context, bint planning) except -1:
        """As `examine`, once. Return 1 if the slot's generation changed meanwhile: the results are invalid then."""
        cdef Slot* slot
        cdef Commit commit
        cdef uint32_t before = p.slot
        cdef int checked
        p.planned.length = p.found.ready_bytes = 0
        p.segment = None
        p.converted = None
        p.aborted = None
        p.throttled = False
        forget_result(p)
        p.found.error = self.resolve(p)
        if p.slot != before:
            context.stale = True
        if context.access is not None and self.denied(p, context):
            return refuse_partition(p, TOPIC_AUTHORIZATION_FAILED)
        if not p.found.error:
            slot = slot_at(p.slot - 1)
            p.found.error = self.refusal(p, context, slot)
        if p.found.error:
            if self.clustered and p.slot:
                self.replica_reads.name_leader(p, context, slot_at(p.slot - 1))
            p.found.included = True
            return 0
        # Read the generation before the commit block: a position found with this commit must not count as valid in a log that was
        # truncated meanwhile.
        p.found.generation = load_acquire_64(&slot.generation)
        if context.version < FIRST_WITH_BATCHES and p.passed.asked == p.request.fetch_offset and p.passed.generation == p.found.generation:
            p.request.fetch_offset = p.passed.next
        read_offsets(p, slot, &commit)
        if p.request.fetch_offset < p.found.log_start_offset:
            return refuse_partition(p, OFFSET_OUT_OF_RANGE)
        if context.replica_id >= 0 or self.clustered:
            checked = self.replica_reads.check(p, context, slot, &commit, planning)
            if checked:
                return 0 if checked == REFUSED else checked
        if p.request.fetch_offset > commit.log_end_offset:
            if slot.role != ROLE_FOLLOWER:
                return refuse_partition(p, OFFSET_OUT_OF_RANGE)
            # This follower may have lost its tail: only the leader knows whether the offset exists. A consumer that received
            # OFFSET_OUT_OF_RANGE would set its position back, or skip records.
            refuse_partition(p, NOT_LEADER_OR_FOLLOWER)
            return self.replica_reads.name_leader(p, context, slot)
        p.planned.limit = commit.high_watermark
        if reads_to_log_end(context.replica_id):
            p.planned.limit = commit.log_end_offset
        elif context.read_committed:
            p.planned.limit = p.found.last_stable_offset
        p.found.included = not context.incremental or not p.sent.valid or p.sent.high_watermark != p.found.high_watermark or \
            p.sent.log_start_offset != p.found.log_start_offset
        if p.request.fetch_offset >= p.planned.limit:
            if p.request.fetch_offset == commit.log_end_offset:
                p.expected.offset = p.request.fetch_offset
                p.expected.base = commit.segment_base
                p.expected.position = commit.size
                p.expected.generation = p.found.generation
            return 0
        if context.replica_id >= 0 and quota_limited(QUOTA_LEADER) and self.replica_reads.throttle(p, context, slot):
            return 0
        return self.locate_records(p, context, slot, &commit, planning)

    cdef bint denied(self, FetchPartition p, FetchContext context) except -1:
        """Return whether the client may not read the topic, or, as `begin_plan` found, not replicate. `resolve` was called just before.

        A topic that the client named by an unknown id has the error of `resolve`.
        """
        cdef Topic topic = p.counted
        cdef Access access = context.access
        if context.replica_id >= 0:
            return not context.may_replicate
        if topic is None:
            topic = (self.topics.by_id if p.by_id else self.topics.by_name).get(p.topic)
        if topic is None and p.by_id:
            return False
        return not access.may_use_topic(ACL_READ, p.topic if topic is None else topic.name_bytes, FETCH)

    cdef bint lost_rights(self, FetchContext context) except -1:
        """Return whether the client may not read one of the partitions any more, or not replicate."""
        cdef FetchPartition p
        if context.replica_id >= 0:
            return not may_replicate(context)
        for p in context.partitions:
            if self.denied(p, context):
                return True
        return False

    cdef int16_t refusal(self, FetchPartition p, FetchContext context, Slot* slot) except -1:
        """Return Kafka's error code if this request must not read the slot; else 0."""
        cdef uint32_t state = state_now(slot)
        if state == SLOT_OFFLINE:
            return storage_error(context.version)
        if state == SLOT_LOADING or state == SLOT_REMOTE:
            return NOT_LEADER_OR_FOLLOWER
        if state != SLOT_ONLINE:
            return unknown_partition_error(p)
        if slot.role and p.request.leader_epoch >= 0 and p.request.leader_epoch != slot.leader_epoch:
            return FENCED_LEADER_EPOCH if p.request.leader_epoch < slot.leader_epoch else UNKNOWN_LEADER_EPOCH
        if slot.role != ROLE_LEADER and not (slot.role == ROLE_FOLLOWER and may_read_from_follower(context)):
            return NOT_LEADER_OR_FOLLOWER
        if context.replica_id >= 0 and not has_follower(slot, context.replica_id):
            # A follower that is not registered, for example while it has no session in ZooKeeper, still replicates (as in Kafka).
            # With an epoch the broker retries, since it may become a replica soon; without one it looks up the leader (as in Kafka).
            return UNKNOWN_LEADER_EPOCH if p.request.leader_epoch >= 0 else NOT_LEADER_OR_FOLLOWER
        if context.version < first_fetch(slot.settings.compression):
            return UNSUPPORTED_COMPRESSION_TYPE
        return NO_ERROR

    cdef int locate_records(self, FetchPartition p, FetchContext context, Slot* slot, Commit* commit, bint planning) except -1:
        """Determine the available bytes from the fetch offset on and, if `planning`, those that the response contains. Returns as
        `examine_once`.
        """
        cdef int64_t available = 0, allowed = min(<int64_t>p.request.max_bytes, context.plan_budget), room = allowed, whole
        cdef int64_t upper              # no record of the response has this offset or a larger one
        cdef bint cut = False
        if p.throttled:
            room = min(room, context.throttle_room)
        if planning and allowed <= 0 and not context.plan_first:
            return 0
        if p.found.generation & SWAP_UNDER_WAY:
            return 1 if swap_over(p.slot - 1, slot) else 0
        try:
            self.locate(p, slot, commit, p.planned.limit, &available, context)
            p.found.ready_bytes = max(min(available, <int64_t>p.request.max_bytes), <int64_t>0)
            p.planned.extent = available
            p.planned.allowed = allowed
            upper = p.planned.end
            if not planning or available > room:
                remember_start(p)       # the next fetch may begin at this offset again
            if planning and available > room:
                # The first batch of a response is sent whole, however large it is; further batches only if they fit. The throttle of
                # replication permits one batch that is larger than its room.
                whole = first_batch_bytes(p, context)
                if whole > room:
                    available = min(available, whole) if context.plan_first or whole <= allowed else 0
                    upper = p.planned.limit = p.planned.end
                else:
                    available = whole_batches(p, whole, room) if p.throttled else room
                    cut = True
            if planning and available > 0 and wants_aborted(context) and \
                    p.request.fetch_offset <= load_acquire_i64(&slot.newest_abort_offset):
                if cut:
                    upper = offset_behind(p, commit, p.planned.position + available, upper, context)
                self.aborted.list_for(p, context, self.segments_of(p.slot - 1, slot), commit, upper)
        except ColdRead:
            p.aborted = None
            p.expected.offset = -1
            p.segment = None
            p.found.ready_bytes = 0
            return 0
        except OSError as failure:
            p.segment = None
            p.found.ready_bytes = 0
            p.found.error = self.unreadable(p, context, slot, failure)
            if not p.found.error:
                return 1
            p.found.included = True
            return 0
        if load_acquire_64(&slot.generation) != p.found.generation:
            return 1                    # position, index and log may belong to different segments
        if not planning:
            p.segment = None
            return 0
        p.planned.length = available
        if available > 0:
            p.found.included = True
            context.plan_first = False
            context.plan_budget -= available
            if p.throttled:
                context.throttle_room = max(context.throttle_room - available, <int64_t>0)
        else:
            p.segment = None
        return 0

    cdef int16_t unreadable(self, FetchPartition p, FetchContext context, Slot* slot, error) except -1:
        """Return Kafka's error code for a partition whose files raised `error`; 0 if its files changed meanwhile: examine it again."""
        if slot.incarnation != p.incarnation or slot.state != SLOT_ONLINE:
            return unknown_partition_error(p)
        if load_acquire_64(&slot.generation) != p.found.generation:
            return NO_ERROR
        p.found.high_watermark = p.found.last_stable_offset = p.found.log_start_offset = -1
        # The log start offset is raised before a file is deleted, so it shows that the file was deleted meanwhile.
        if p.request.fetch_offset < slot.log_start_offset:
            return OFFSET_OUT_OF_RANGE
        if error.errno is not None:
            note_device(slot.log_dir, -<int>error.errno)
        self.errors.report(p.slot, slot, error)
        return storage_error(context.version)

    cdef SegmentList segments_of(self, uint32_t slot, Slot* at):
        """Return this process's list of the slot's segments, refreshed if the slot's generation has changed."""
        cdef SegmentList segments
        known = self.segment_lists.get(slot)
        if known is None or known[0] != at.incarnation:
            if known is not None:
                segments = known[1]
                segments.close()            # these belong to the slot's previous partition
            name = (<char*>at.topic)[:at.topic_bytes]
            segments = SegmentList(b"%s/%s-%d" % (self.log_dirs[at.log_dir], name, at.partition), self.cache)
            self.segment_lists[slot] = (at.incarnation, segments)
        else:
            segments = known[1]
        segments.refresh(<int64_t>load_acquire_64(&at.generation))
        return segments

    cdef int locate(self, FetchPartition p, Slot* slot, Commit* commit, int64_t limit_offset, int64_t* available,
                    FetchContext context) except -1:
        """Find segment and position of the batch that contains the fetch offset, and the number of bytes that may be read from there."""
        cdef SegmentList segments = self.segments_of(p.slot - 1, slot)
        cdef OpenSegment segment
        cdef int64_t end, end_base, end_position = 0
        cdef int64_t base = base_of_place(p, segments, commit)
        if segments.closed_before < 0:
            segments.closed_before = commit.segment_base        # the commit was read before the directory was listed
        if base < 0 and p.request.fetch_offset >= commit.segment_base and place_in_ring(p, slot, commit):
            base = commit.segment_base
        if base < 0:
            base = place_by_index(p, segments, commit, context)
        segment = segments.segment(base)
        p.segment = segment
        end_base = end_of_reading(base, segments, slot, commit, limit_offset, &end_position, context)
        if base == end_base:
            end = end_position
        elif base < end_base:
            end = file_bytes(segment.log_fd)
        else:
            end = p.planned.position
        available[0] = max(end - p.planned.position, <int64_t>0)
        # The next fetch begins at the limit if this one is answered completely.
        p.planned.end = limit_offset if base >= end_base else segments.following(base)
        p.planned.limit = p.planned.end
        p.expected.offset = limit_offset if base == end_base else -1
        p.expected.position = end_position
        p.expected.generation = p.found.generation
        p.expected.base = base
        return 0

    cdef int sweep(self) except -1:
        """Close the open segments of logs that changed since: a deleted file takes disk space while it is open. A segment from which a
        response is being sent stays open until it is sent.
        """
        cdef Slot* at
        cdef SegmentList segments
        for slot, (incarnation, segments) in list(self.segment_lists.items()):
            at = slot_at(<uint32_t>slot)
            if incarnation != at.incarnation or at.state != SLOT_ONLINE:
                segments.close()
                del self.segment_lists[slot]
            elif segments.generation != <int64_t>load_acquire_64(&at.generation):
                segments.close()
        return 0
