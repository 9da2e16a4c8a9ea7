"""Connections with unsent responses from deleted files: such a response keeps the disk space of its file in use.

Used in a worker's event loop, after segments were deleted. A segment stays open until the responses that contain slices of it are
sent. A client that does not read its response could keep the space in use forever, so its connection is closed after some time.
"""

from posix.stat cimport fstat, struct_stat

from odradek._ext.net.connection cimport CLOSE_FILE, Connection, Pending
from odradek._ext.net.open_connections cimport OpenConnections
from odradek._ext.net.output cimport OutNode, OutQueue


cdef bint sends_unlinked(const OutQueue* queue) noexcept nogil:
    """Return whether the queue contains a slice of a deleted (unlinked) file."""
    cdef const OutNode* node = queue.head
    cdef struct_stat status
    while node != NULL:
        if node.fd >= 0 and fstat(node.fd, &status) == 0 and status.st_nlink == 0:
            return True
        node = node.next
    return False


cdef class LateSenders:
    """Finds and closes connections that send from deleted files. A worker has one.

    :param patience_ms: how long a connection may send from a deleted file, from when `look` first finds it, before it is closed.
    """
    cdef OpenConnections connections
    cdef object patience_ms
    cdef dict since

    def __init__(self, OpenConnections connections not None, patience_ms=5000):
        self.connections = connections
        self.patience_ms = patience_ms
        self.since = {}

    def look(self, now_ms) -> int:
        """Check every connection, and close those that have been late senders for `patience_ms`.

        :param now_ms: monotonic clock. :returns: the number of late senders that remain.
        """
        cdef Connection c
        cdef Pending pending
        cdef bint late
        seen, due = {}, []
        for c in self.connections.by_id.values():
            late = sends_unlinked(&c.output.queue)
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
            self.connections.close_now(
                c, CLOSE_FILE,
                f"the client did not read its response for {self.patience_ms / 1000:g} s after the segment in it was deleted")
        self.since = seen
        return len(seen)
