"""What a Fetch asks for: the partitions of a session, or of one request without a session, and the request at hand.

Used in a worker's loop. Whoever fetches goes forward: what a request asks for behind what the one before was given counts as read.
"""

from libc.stdint cimport uint64_t

from broker._ext.metering cimport USAGE_RECORDS_OUT, put_position, usage_of


cdef class FetchPartition:
    pass


cdef int note_move(FetchPartition p, FetchPartition before) noexcept:
    """`p` asks for what `before` asked for in the last request of the same reader: how far it went on.

    What lies behind the end of what could be given was not read: the reader jumped there.
    """
    p.moved = before.moved
    if before.served and before.fetch_offset < p.fetch_offset <= before.served_limit:
        p.moved += p.fetch_offset - before.fetch_offset
    p.served = before.served and p.fetch_offset == before.fetch_offset
    p.served_limit = before.served_limit
    return 0


cdef class FetchContext(Waiter):
    cdef int put(self, FetchPartition p) except -1:
        """Add a partition, or take over what is asked of it now; newly asked ones go to the end."""
        cdef FetchPartition known
        if self.by_key is None:
            self.partitions.append(p)
            self.stale = True
            return 0
        key = (p.topic, p.partition)
        known = self.by_key.get(key)
        if known is None:
            self.by_key[key] = p
            self.partitions.append(p)
            self.stale = True
            return 0
        known.asked = True
        note_move(p, known)
        known.moved, known.served = p.moved, p.served
        known.fetch_offset = p.fetch_offset
        known.log_start_offset = p.log_start_offset
        known.max_bytes = p.max_bytes
        known.leader_epoch = p.leader_epoch
        known.last_fetched_epoch = p.last_fetched_epoch
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
                note_move(p, q)
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
