"""Down-conversion: Fetch versions 0 to 3 are answered with message sets. A thread of the worker converts the planned records, a few
batches at a time and no more than the response may hold; the response is written afterwards. Used in a worker's event loop.
"""

from libc.stdint cimport int32_t, int64_t

from odradek._ext.api.fetch_context cimport FIRST_WITH_MAX_BYTES, FIRST_WITH_V1, FetchContext, FetchPartition, storage_error
from odradek._ext.api.fetch_responses cimport FetchResponses
from odradek._ext.net.connection cimport CLOSE_ERROR, Pending
from odradek._ext.protocol.kafka_errors cimport KAFKA_STORAGE_ERROR
from odradek._ext.shm.slot cimport slot_at


cdef enum:
    MOST_ROUNDS = 16                  # so often a request is planned again because its client needs none of the planned records


cdef bint any_kept(FetchContext context) noexcept:
    """Return whether an earlier round has converted records."""
    cdef FetchPartition p
    if context.rounds:
        for p in context.partitions:
            if p.converted is not None:
                return True
    return False


cdef class FetchConversion:
    """Converts the records of responses in old formats. A worker has one.

    :param max_bytes: fetch.max.bytes.
    :param down_convert: (arguments, cancelled, done): runs `odradek.storage.down_conversion.conversion` with these arguments on a
        thread while cancelled() returns False, then calls done(its result, or the exception that it raised) in the loop.
    """

    def __init__(self, FetchResponses responses, int32_t max_bytes, down_convert):
        self.responses = responses
        self.max_bytes = max_bytes
        self.down_convert = down_convert

    cdef int start(self, FetchContext context, Pending pending, plan_again) except -1:
        """Convert the planned records; `converted` writes the response. The request must not be in the purgatory."""
        cdef FetchPartition p
        cdef list parts = [], converting = []
        cdef int magic = 1 if context.version >= FIRST_WITH_V1 else 0
        cdef bint each = context.version < FIRST_WITH_MAX_BYTES, kept = False
        cdef int64_t budget = min(context.max_bytes, self.max_bytes)
        for p in context.partitions:
            if context.rounds and p.converted is not None:
                budget -= p.planned.length
                kept = kept or p.planned.length > 0
            elif p.planned.length:
                # The first partition of a response (in the oldest versions every partition) contributes at least one batch.
                parts.append((p.segment, p.segment.log_fd, p.planned.position, p.planned.extent, p.request.fetch_offset,
                              p.planned.allowed, magic, each or not (parts or kept),
                              not slot_at(p.slot - 1).settings.no_down_conversion))
                converting.append(p)
                p.segment = None
        if not parts:
            return self.responses.answer(context, pending)
        self.down_convert((parts, max(budget, <int64_t>0)), lambda: pending.cancelled,
                          lambda result: self.converted(context, pending, converting, plan_again, result))
        return 0

    cdef int converted(self, FetchContext context, Pending pending, list parts, object plan_again, object result) except -1:
        """In the loop, after the conversion of `parts`: respond; or plan again if offsets without messages were passed in a partition.

        A client of the old formats knows only offsets of messages. If a partition's part of the response is empty although the log goes
        on, it requests the same offset again. So such a partition, and no other, is planned and converted again, at a larger offset,
        whatever the time of the request: usually until messages or the end of the log are found. The work is bounded by MOST_ROUNDS and by
        what a conversion reads (SCANNED_BUDGET of `odradek.storage.down_conversion`). After it the response may be empty, and the
        client's next request for this offset continues where this one ended.
        """
        cdef FetchPartition p
        cdef bint passed = False, wait = True
        if pending.cancelled:
            return 0
        if isinstance(result, BaseException):
            pending.connection.close_now(CLOSE_ERROR, f"cannot down-convert records for a Fetch: {type(result).__name__}: {result}")
            return 0
        try:
            for p, (error, data, next_offset) in zip(parts, result):
                p.planned.length = len(data)
                p.converted = data if data or error else None
                wait = wait and p.converted is None
                p.planned.end = p.planned.limit = next_offset
                p.found.error = storage_error(context.version) if error == KAFKA_STORAGE_ERROR else error
                if error:
                    p.found.high_watermark = p.found.last_stable_offset = p.found.log_start_offset = -1
                elif p.planned.length == 0 and <int64_t>next_offset > p.request.fetch_offset:
                    if p.request.fetch_offset != p.passed.next or p.found.generation != p.passed.generation:
                        p.passed.asked = p.request.fetch_offset         # not the continuation of an earlier round
                    p.passed.next = p.request.fetch_offset = next_offset
                    p.passed.generation = p.found.generation
                    passed = True
            if passed and context.rounds < MOST_ROUNDS:
                context.rounds += 1
                plan_again(pending, wait and not any_kept(context))
                return 0
            self.responses.answer(context, pending)
        except Exception as failure:
            pending.connection.close_now(CLOSE_ERROR, f"cannot answer a down-converted Fetch: {type(failure).__name__}: {failure}")
        return 0
