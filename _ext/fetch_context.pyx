"""What a Fetch asks for: the partitions of a session, or of one request without a session, and the request at hand.

Used in a worker's loop. Whoever fetches goes forward: what a request asks for behind what the one before was given counts as read.
"""

from libc.stdint cimport int32_t, int64_t, uint64_t

from broker._ext.metering cimport USAGE_RECORDS_OUT, put_position, usage_of


cdef class FetchPartition:
    pass


cdef void went_on(FetchPartition p, FetchPartition before, int64_t fetch_offset) noexcept:
    """`p` is asked for from `fetch_offset` on by the reader that asked for `before` last: how far it went, `p` itself included.

    What lies behind the end of what could be given was not read: the reader jumped there.
    """
    p.moved = before.moved
    if before.served and before.fetch_offset < fetch_offset <= before.served_limit:
        p.moved += fetch_offset - before.fetch_offset
    p.served = before.served and fetch_offset == before.fetch_offset
    p.served_limit = before.served_limit


cdef void ask(FetchPartition p, int64_t fetch_offset, int64_t log_start_offset, int32_t max_bytes, int32_t leader_epoch,
              int32_t last_fetched_epoch) noexcept:
    """A request asks for the partition from `fetch_offset` on: how far the reader went since the last one, and what it asks."""
    went_on(p, p, fetch_offset)
    p.asked = True
    p.fetch_offset = fetch_offset
    p.log_start_offset = log_start_offset
    p.max_bytes = max_bytes
    p.leader_epoch = leader_epoch
    p.last_fetched_epoch = last_fetched_epoch


cdef class FetchContext(Waiter):
    cdef FetchPartition named(self, bytes topic, bint by_id, int32_t partition):
        """The partition that the request names next, as the last request left it, or a new one. `all_named` follows the last."""
        cdef FetchPartition p = None
        if self.by_key is not None:
            p = self.by_key.get((topic, partition))
            if p is not None:
                return p
        elif self.names < len(self.partitions):
            p = self.partitions[self.names]
            if p.partition == partition and (p.topic is topic or p.topic == topic):
                self.names += 1
                return p
            p = None
            self.unnamed = {}
            self.cut()
        if self.unnamed is not None:
            p = self.unnamed.pop((topic, partition), None)
        if p is None:
            p = FetchPartition.__new__(FetchPartition)
            p.topic = topic
            p.by_id = by_id
            p.partition = partition
            p.place_offset = -1
        if self.by_key is not None:
            self.by_key[(topic, partition)] = p
        self.partitions.append(p)
        self.names += 1
        self.stale = True
        return p

    cdef int all_named(self) except -1:
        """What a request without a session does not name is not asked for any more."""
        if self.by_key is None and self.names < len(self.partitions):
            self.cut()
        self.unnamed = None
        return 0

    cdef int cut(self) except -1:
        """From here on the request names others, or in another order, than the last one."""
        cdef FetchPartition p
        if self.unnamed is not None:
            for p in self.partitions[self.names:]:
                self.unnamed[(p.topic, p.partition)] = p
        del self.partitions[self.names:]
        self.stale = True
        return 0

    cdef int forget(self, tuple key) except -1:
        """Take a partition out; `drop_forgotten` follows."""
        cdef FetchPartition known = self.by_key.pop(key, None)
        if known is not None:
            known.forgotten = True
            self.stale = True
        return 0

    cdef int drop_forgotten(self) except -1:
        self.partitions = [p for p in self.partitions if not (<FetchPartition>p).forgotten]
        return 0

    cdef int count_moves(self, FetchContext before) except -1:
        """Compare with the last request of the connection, where that was no session's."""
        cdef FetchPartition p, q
        cdef dict known = None
        cdef int i = 0
        for p in self.partitions:
            q = before.partitions[i] if i < len(before.partitions) else None
            if q is None or q.partition != p.partition or q.topic != p.topic:
                if known is None:
                    known = {((<FetchPartition>one).topic, (<FetchPartition>one).partition): one for one in before.partitions}
                q = known.get((p.topic, p.partition))
            if q is not None:
                went_on(p, q, p.fetch_offset)
            i += 1
        return 0

    cdef int count_positions(self) except -1:
        """After the first plan of a request, which found the slots: where the reader stands, and what it went forward."""
        cdef FetchPartition p
        for p in self.partitions:
            if not p.asked:
                continue
            p.asked = False
            if p.counted is None or not p.slot:
                continue
            put_position(self.client.number, p.slot - 1, p.incarnation, p.fetch_offset)
            if p.moved:
                usage_of(self.client.number, p.counted.counted(), FETCH).values[USAGE_RECORDS_OUT] += <uint64_t>p.moved
                p.moved = 0
        return 0

    cdef bint enough(self) noexcept:
        return self.planned_error or self.planned_bytes >= self.min_bytes or not self.partitions

    cdef int go_on(self) except -1:
        raise NotImplementedError("a FetchWait goes on")
