"""The request context of a Fetch: the partitions of a session, or of a request without a session, and the current request.

Used in a worker's event loop. Records count as read by a client when its next request continues after them.
"""

from libc.stdint cimport int32_t, int64_t

from odradek._ext.protocol.api_versions cimport FETCH
from odradek._ext.shm.metering cimport USAGE_RECORDS_OUT, count_usage, leave_position, put_requested, still_client


cdef class FetchPartition:
    def __dealloc__(self):
        """Remove the client's position. May run on another thread than the loop's: all writers of positions hold the GIL."""
        leave_position(&self.progress.place)


cdef void count_progress(FetchPartition p, FetchPartition before, int64_t fetch_offset) noexcept:
    """Add to `p.progress.uncounted_records` the records of the reader's last response that were not counted with it because it was cut.

    The last response belonged to `before` (possibly `p` itself); the reader now requests `fetch_offset`. Records after the
    response's limit were not read: the reader skipped them.
    """
    p.progress.uncounted_records = before.progress.uncounted_records
    if before.progress.served and before.progress.end < fetch_offset <= before.progress.limit:
        p.progress.uncounted_records += fetch_offset - before.progress.end
    p.progress.served = before.progress.served and fetch_offset == before.request.fetch_offset
    p.progress.end = before.progress.end
    p.progress.limit = before.progress.limit


cdef void set_request(FetchPartition p, int64_t fetch_offset, int64_t log_start_offset, int32_t max_bytes, int32_t leader_epoch,
                      int32_t last_fetched_epoch) noexcept:
    """Store what a request asks of the partition, and note how far the reader has read since its last request."""
    count_progress(p, p, fetch_offset)
    p.unrecorded = True
    p.request.fetch_offset = fetch_offset
    p.request.log_start_offset = log_start_offset
    p.request.max_bytes = max_bytes
    p.request.leader_epoch = leader_epoch
    p.request.last_fetched_epoch = last_fetched_epoch


cdef inline FetchPartition new_partition(bytes topic, bint by_id, int32_t partition):
    cdef FetchPartition p = FetchPartition.__new__(FetchPartition)
    p.topic = topic
    p.by_id = by_id
    p.partition = partition
    p.expected.offset = -1
    return p


cdef class FetchContext:
    def __cinit__(self):
        self.partitions = []
        self.listed = []
        self.dirty = []
        self.forgotten = []
        self.unnoted = []

    cdef FetchPartition next_partition(self, bytes topic, bint by_id, int32_t partition):
        """Return the next partition of the request: the previous request's FetchPartition, or a new one. The caller calls
        `end_of_partitions` after the last one.

        If a request names a partition twice, it counts once: in the place of the first mention, with the values of the last one (as
        in Kafka).
        """
        cdef FetchPartition p
        if self.by_key is not None:
            p = self.by_key.get((topic, partition))
            if p is None:
                p = new_partition(topic, by_id, partition)
                self.by_key[(topic, partition)] = p
                self.partitions.append(p)
                self.stale = True
            if self.selective:
                self.list_partition(p)
            return p
        if self.known is None and self.named_count < len(self.partitions):
            p = self.partitions[self.named_count]
            if p.partition == partition and (p.topic is topic or p.topic == topic):
                self.named_count += 1
                p.request.serial = self.request
                return p
        return self.next_partition_out_of_order(topic, by_id, partition)

    cdef FetchPartition next_partition_out_of_order(self, bytes topic, bint by_id, int32_t partition):
        """As `next_partition`, after the request deviated from the previous request's partitions or their order."""
        cdef FetchPartition p
        if self.known is None:
            self.index_partitions()
        p = self.known.get((topic, partition))
        if p is None:
            p = new_partition(topic, by_id, partition)
            self.known[(topic, partition)] = p
        elif p.request.serial == self.request:
            return p
        p.request.serial = self.request
        self.partitions.append(p)
        self.named_count += 1
        return p

    cdef int index_partitions(self) except -1:
        """Index the previous request's partitions in `known`, and shorten the list to those that this request has named so far."""
        cdef FetchPartition p
        self.known = {(p.topic, p.partition): p for p in self.partitions}
        del self.partitions[self.named_count:]
        self.stale = True
        return 0

    cdef int end_of_partitions(self) except -1:
        """Remove the previous request's partitions that this request does not name. Only without a session."""
        if self.by_key is None and self.named_count < len(self.partitions):
            del self.partitions[self.named_count:]
            self.stale = True
        self.known = None
        return 0

    cdef int become_session(self) except -1:
        """Become a session: later requests name only the partitions that change."""
        cdef FetchPartition p
        self.by_key = {(p.topic, p.partition): p for p in self.partitions}
        return 0

    cdef int forget(self, tuple key) except -1:
        """Remove a partition from the session. The caller calls `drop_forgotten` after the last one."""
        cdef FetchPartition known = self.by_key.pop(key, None)
        if known is not None:
            known.forgotten = True
            self.stale = True
            if self.selective:
                self.forgotten.append(known)
        return 0

    cdef int drop_forgotten(self) except -1:
        self.partitions = [p for p in self.partitions if not (<FetchPartition>p).forgotten]
        return 0

    # -- the session of a follower ------------------------------------------------------------------------------------

    cdef list planned_partitions(self):
        """Return the partitions that the plan of the current request covers."""
        return self.listed if self.selective else self.partitions

    cdef int list_partition(self, FetchPartition p) except -1:
        """Cover the partition with the plan of the current request."""
        if p.listed_for != self.request:
            p.listed_for = self.request
            self.listed.append(p)
        return 0

    cdef int mark_dirty(self, FetchPartition p) except -1:
        """Cover the partition with the next plan: it may have moved since its last look."""
        if not p.dirty and not p.forgotten:
            p.dirty = True
            self.dirty.append(p)
        return 0

    cdef int select(self, int32_t broker_id) except -1:
        """Become the session of a follower. The plan of the current request, the first one, covers all partitions."""
        cdef FetchPartition p
        self.selective = True
        self.session_of = broker_id
        self.refreshed_ms = self.last_used_ms
        for p in self.partitions:
            self.list_partition(p)
        return 0

    cdef int begin_list(self) except -1:
        """Complete the list of a request that was read: partitions that moved or had no room in the last response come first, then
        those that the request names. A request that is not incremental names all.
        """
        cdef FetchPartition p
        cdef list named = self.listed, moved = self.dirty
        self.listed = []
        self.dirty = []
        for p in moved:
            p.dirty = False
            if not p.forgotten and p.listed_for != self.request:
                self.list_partition(p)
        self.listed += [p for p in named if not (<FetchPartition>p).forgotten]
        return 0

    cdef int settle_listed(self) except -1:
        """The request was answered: partitions of which the follower does not know everything stay dirty."""
        cdef FetchPartition p
        for p in self.listed:
            if answers_at_once(p) or not p.sent.valid or p.request.fetch_offset < p.found.log_end_offset or not p.slot \
                    or p.sent.high_watermark != p.found.high_watermark or p.sent.log_start_offset != p.found.log_start_offset:
                self.mark_dirty(p)
        self.listed = []
        return 0

    cdef int count_progress_since(self, FetchContext before) except -1:
        """Note how far the reader has read since the connection's last request, which belonged to another session or to none."""
        cdef FetchPartition p, q
        cdef dict known = None
        cdef int i = 0
        for p in self.partitions:
            q = before.partitions[i] if i < len(before.partitions) else None
            if q is None or q.partition != p.partition or q.topic != p.topic:
                if known is None:
                    known = {((<FetchPartition>other).topic, (<FetchPartition>other).partition): other for other in before.partitions}
                q = known.get((p.topic, p.partition))
            if q is not None:
                count_progress(p, q, p.request.fetch_offset)
            i += 1
        return 0

    cdef int count_positions(self) except -1:
        """Record the reader's positions, and count the records of its last response. Called after a request's first plan, which finds
        the slots.
        """
        cdef FetchPartition p
        still_client(&self.client)
        for p in self.partitions:
            if not p.unrecorded:
                continue
            p.unrecorded = False
            if p.counted is None or not p.slot:
                continue
            put_requested(self.client.number, p.slot - 1, p.incarnation, p.request.fetch_offset, &p.progress.place)
            if p.progress.uncounted_records:
                count_usage(self.client.number, p.counted.counted(), FETCH, USAGE_RECORDS_OUT, p.progress.uncounted_records)
                p.progress.uncounted_records = 0
        return 0

    cdef void leave_positions(self) noexcept:
        """Remove the reader's positions: the connection is closed, but other objects may still refer to its partitions."""
        cdef FetchPartition p
        for p in self.partitions:
            leave_position(&p.progress.place)

    cdef bint enough(self) noexcept:
        """Return whether the request need not wait: planned or available bytes reach min_bytes, a partition must be answered at once,
        or it has no partitions.
        """
        return self.planned_at_once or self.planned_bytes >= self.min_bytes or self.ready_bytes >= self.min_bytes or not self.partitions

    cdef int drop_lists(self) except -1:
        """Free the lists of aborted transactions of a request that will wait: the plan before its response makes new ones."""
        cdef FetchPartition p
        if self.has_lists:
            for p in self.planned_partitions():
                p.aborted = None
            self.has_lists = False
        return 0
