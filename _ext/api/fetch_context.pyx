"""What a Fetch asks for: the partitions of a session, or of one request without a session, and the request at hand.

Used in a worker's loop. Records count as read by a client when its next request asks for what lies behind them.
"""

from libc.stdint cimport int32_t, int64_t, uint64_t

from odradek._ext.shm.metering cimport USAGE_RECORDS_OUT, leave_position, put_position, usage_of


cdef class FetchPartition:
    def __dealloc__(self):
        """Nothing asks for it any more. With the GIL held, as whatever writes positions, also if this is not the loop's thread."""
        leave_position(&self.place)


cdef void went_on(FetchPartition p, FetchPartition before, int64_t fetch_offset) noexcept:
    """Add to `p.moved` the records of the reader's last response that could not be counted with it, because it was cut.

    The response was that to `before` (perhaps `p`); the reader now asks for `fetch_offset`. Records behind the end of what could
    be given were not read: the reader jumped over them.
    """
    p.moved = before.moved
    if before.served and before.served_end < fetch_offset <= before.served_limit:
        p.moved += fetch_offset - before.served_end
    p.served = before.served and fetch_offset == before.fetch_offset
    p.served_end = before.served_end
    p.served_limit = before.served_limit


cdef void ask(FetchPartition p, int64_t fetch_offset, int64_t log_start_offset, int32_t max_bytes, int32_t leader_epoch,
              int32_t last_fetched_epoch) noexcept:
    """Take over what a request asks of the partition, and how far the reader went since its last request."""
    went_on(p, p, fetch_offset)
    p.asked = True
    p.fetch_offset = fetch_offset
    p.log_start_offset = log_start_offset
    p.max_bytes = max_bytes
    p.leader_epoch = leader_epoch
    p.last_fetched_epoch = last_fetched_epoch


cdef inline FetchPartition new_partition(bytes topic, bint by_id, int32_t partition):
    cdef FetchPartition p = FetchPartition.__new__(FetchPartition)
    p.topic = topic
    p.by_id = by_id
    p.partition = partition
    p.place_offset = -1
    return p


cdef class FetchContext(Waiter):
    cdef FetchPartition named(self, bytes topic, bint by_id, int32_t partition):
        """The partition that the request names next: as the request before left it, or a new one. `all_named` follows the last.

        A partition that a request names twice is one partition, in the place of its first name, that is asked for as the last
        name says (as in Kafka).
        """
        cdef FetchPartition p
        if self.by_key is not None:
            p = self.by_key.get((topic, partition))
            if p is None:
                p = new_partition(topic, by_id, partition)
                self.by_key[(topic, partition)] = p
                self.partitions.append(p)
                self.stale = True
            return p
        if self.known is None and self.names < len(self.partitions):
            p = self.partitions[self.names]
            if p.partition == partition and (p.topic is topic or p.topic == topic):
                self.names += 1
                p.request = self.request
                return p
        return self.named_out_of_order(topic, by_id, partition)

    cdef FetchPartition named_out_of_order(self, bytes topic, bint by_id, int32_t partition):
        """As `named`, once the request names other partitions, or in another order, than the one before."""
        cdef FetchPartition p
        if self.known is None:
            self.know_all()
        p = self.known.get((topic, partition))
        if p is None:
            p = new_partition(topic, by_id, partition)
            self.known[(topic, partition)] = p
        elif p.request == self.request:
            return p
        p.request = self.request
        self.partitions.append(p)
        self.names += 1
        return p

    cdef int know_all(self) except -1:
        """Keep the partitions of the request before by their names, and of the list those that this request has named."""
        cdef FetchPartition p
        self.known = {(p.topic, p.partition): p for p in self.partitions}
        del self.partitions[self.names:]
        self.stale = True
        return 0

    cdef int all_named(self) except -1:
        """Partitions that a request without a session does not name are no longer asked for."""
        if self.by_key is None and self.names < len(self.partitions):
            del self.partitions[self.names:]
            self.stale = True
        self.known = None
        return 0

    cdef int become_session(self) except -1:
        """From now on requests name only what changes."""
        cdef FetchPartition p
        self.by_key = {(p.topic, p.partition): p for p in self.partitions}
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
        """Count how far the reader went since the connection's last request, which belonged to another session or to none."""
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
        """Note where the reader stands, and count what its last response gave. Follows a request's first plan, which finds the slots."""
        cdef FetchPartition p
        for p in self.partitions:
            if not p.asked:
                continue
            p.asked = False
            if p.counted is None or not p.slot:
                continue
            put_position(self.client.number, p.slot - 1, p.incarnation, p.fetch_offset, &p.place)
            if p.moved:
                usage_of(self.client.number, p.counted.counted(), FETCH).values[USAGE_RECORDS_OUT] += <uint64_t>p.moved
                p.moved = 0
        return 0

    cdef void leave_positions(self) noexcept:
        """The connection is closed: it reads none of the partitions any more, whoever still refers to them."""
        cdef FetchPartition p
        for p in self.partitions:
            leave_position(&p.place)

    cdef bint enough(self) noexcept:
        """Whether the request need not wait: what is planned, or what there is, reaches min_bytes, or a partition has an error."""
        return self.planned_error or self.planned_bytes >= self.min_bytes or self.ready_bytes >= self.min_bytes or not self.partitions

    cdef int go_on(self) except -1:
        raise NotImplementedError("a DelayedFetch goes on")
