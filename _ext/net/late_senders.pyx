"""Connections whose responses still come from files that were unlinked, and so keep the space of these files.

Used in a worker's loop, after something was removed. A segment that a response is sent from stays open until it is sent. A client
that does not read its response would keep the space for as long as it likes.
"""

from odradek._ext.net.connection cimport CLOSE_FILE, Connection, Pending
from odradek._ext.net.data_loop cimport DataLoop
from odradek._ext.net.output cimport OutNode, OutQueue


cdef extern from "<sys/stat.h>" nogil:
    struct stat_links "stat":
        unsigned long st_nlink
    int fstat(int fd, stat_links* out)


cdef bint sends_unlinked(const OutQueue* queue) noexcept nogil:
    """Whether a slice in the queue is of a file that has no name any more."""
    cdef const OutNode* node = queue.head
    cdef stat_links found
    while node != NULL:
        if node.fd >= 0 and fstat(node.fd, &found) == 0 and found.st_nlink == 0:
            return True
        node = node.next
    return False


cdef class LateSenders:
    """One a worker. patience_ms: for how long a connection may go on sending from a file after it was first seen to be unlinked."""
    cdef DataLoop data_loop
    cdef object patience_ms
    cdef dict since

    def __init__(self, DataLoop data_loop not None, patience_ms=5000):
        self.data_loop = data_loop
        self.patience_ms = patience_ms
        self.since = {}

    def look(self, now_ms):
        """Look at every connection; close those that were late senders for longer than the patience; how many late senders
        are left. now_ms: monotonic."""
        cdef Connection c
        cdef Pending pending
        cdef bint late
        seen, due = {}, []
        for c in self.data_loop.connections.values():
            late = sends_unlinked(&c.out)
            pending = c.pending_head
            while pending is not None and not late:
                late = sends_unlinked(&pending.answer) or sends_unlinked(&pending.after)
                pending = pending.next
            if late:
                seen[c.connection_id] = self.since.get(c.connection_id, now_ms)
                if now_ms - seen[c.connection_id] >= self.patience_ms:
                    due.append(c)
        for c in due:
            del seen[c.connection_id]
            self.data_loop.close_now(
                c, CLOSE_FILE,
                f"the client did not read its response for {self.patience_ms / 1000:g} s after the segment in it was deleted")
        self.since = seen
        return len(seen)
