"""Versions 0 to 3 are answered with message sets: a thread of the worker converts what the plan names, a few batches at a time and no
more than the response may hold, and the response is written when that is done. Used in a worker's loop.
"""

from libc.stdint cimport int32_t, int64_t

from odradek._ext.api.fetch_context cimport (
    FIRST_WITH_MAX_BYTES,
    FIRST_WITH_V1,
    KAFKA_STORAGE_ERROR,
    FetchContext,
    FetchPartition,
    storage_error,
)
from odradek._ext.api.fetch_responses cimport FetchResponses
from odradek._ext.net.connection cimport CLOSE_ERROR, Pending
from odradek._ext.shm.layout cimport monotonic_ms, slot_at


cdef class FetchConversion:
    """One a worker.

    :param max_bytes: fetch.max.bytes.
    :param down_convert: (arguments, cancelled, done): on a thread, run `odradek.storage.down_conversion.conversion` with these
        arguments, as long as cancelled() returns False, then call done(its result, or the exception it raised) in the loop.
    """

    def __init__(self, FetchResponses responses, int32_t max_bytes, down_convert):
        self.responses = responses
        self.max_bytes = max_bytes
        self.down_convert = down_convert

    cdef int start(self, FetchContext wait, Pending pending) except -1:
        """Have what the plan names converted; the response follows in `converted`. The wait is not in the room."""
        cdef FetchPartition p
        cdef list parts = [], given = []
        cdef int magic = 1 if wait.version >= FIRST_WITH_V1 else 0
        cdef bint each = wait.version < FIRST_WITH_MAX_BYTES
        cdef int64_t budget = min(wait.max_bytes, self.max_bytes)
        for p in wait.partitions:
            if p.length:
                # The first of a response, and in the oldest versions each, gives one batch at least.
                parts.append((p.segment, p.segment.log_fd, p.position, p.extent, p.fetch_offset, p.allowed, magic,
                              each or not parts, not slot_at(p.slot - 1).settings.no_down_conversion))
                given.append(p)
                p.segment = None
        self.down_convert((parts, budget), lambda: pending.cancelled, lambda result: self.converted(wait, pending, given, result))
        return 0

    cdef int converted(self, FetchContext wait, Pending pending, list parts, object result) except -1:
        """In the loop, after the conversion of `parts`: the response, or a wait for more if it was all markers."""
        cdef FetchPartition p
        cdef bint something = wait.planned_error
        if pending.cancelled:
            return 0
        if isinstance(result, BaseException):
            pending.connection.data_loop.close_now(pending.connection, CLOSE_ERROR,
                                                   f"a Fetch could not be converted: {type(result).__name__}: {result}")
            return 0
        try:
            for p, (error, data, next_offset) in zip(parts, result):
                p.length = len(data)
                p.converted = data
                p.given_end = p.limit = next_offset
                p.error = storage_error(wait.version) if error == KAFKA_STORAGE_ERROR else error
                if error:
                    p.high_watermark = p.last_stable_offset = p.now_log_start = -1
                if error or p.length:
                    something = True
                else:
                    p.fetch_offset = max(p.fetch_offset, <int64_t>next_offset)     # there is nothing for this reader before it
            if not something and monotonic_ms() < wait.until_ms:
                wait.pending = pending
                return wait.go_on()
            self.responses.give(wait, pending)
        except Exception as failure:
            pending.connection.data_loop.close_now(pending.connection, CLOSE_ERROR,
                                                   f"a converted Fetch failed: {type(failure).__name__}: {failure}")
        return 0
