"""A Produce request that could not be answered at once: its records opened by a thread, a taken lock tried again, replicas or the
device waited for."""

from libc.stdint cimport int64_t, uint8_t

from odradek._ext.api.produce_items cimport ProduceItem, ProduceRequest
from odradek._ext.api.produce_responses cimport ProduceResponses
from odradek._ext.api.purgatory cimport Purgatory, Waiter
from odradek._ext.net.connection cimport Connection, Pending


cdef class ProduceDelays:
    """What requests that cannot be answered at once need of their worker."""
    cdef Purgatory room
    cdef ProduceResponses responses
    cdef object retry             # callable(DelayedProduce): call its `again` soon
    cdef object prepare           # callable(data, old, codec, level, limit, max_message_bytes) -> (error, fields, replacement, size)
    cdef int64_t max_opened_bytes  # that the compressed records of a request may open to


cdef class DelayedProduce(Pending):
    """A request that could not be answered at once; owns a copy of its frame."""
    cdef ProduceDelays delays
    cdef ProduceRequest request
    cdef ProduceItem* items
    cdef uint8_t* frame
    cdef list kept                    # batches that took the place of what was sent
    cdef list record_errors           # RecordErrors of refused batches; None if there are none
    cdef int opened_items             # items before this one need no thread to open or convert their records any more
    cdef int appended_items           # items before this one were offered to their logs
    cdef int64_t opened_bytes         # that the records of the request opened to so far
    cdef readonly bint large_next     # the records of the next item open to more than the append thread takes
    cdef readonly bint executed
    cdef readonly int tries           # at a taken lock
    cdef DelayedProduceWaiter waiter
    cdef readonly int64_t deadline_ms  # of the client, for the high watermark
    cdef readonly int64_t patience_ms  # until then a taken lock is waited for
    cdef int undecided                # items before this one are decided
    cdef take(self, ProduceDelays delays, ProduceRequest* request, ProduceItem* items, list record_errors, uint8_t* frame,
              int64_t size)
    cdef take_request(self, ProduceDelays delays, ProduceRequest* request, ProduceItem* items, list record_errors)
    cdef own_items(self, ProduceDelays delays, ProduceRequest* request, ProduceItem* items, list record_errors)
    cdef bint open_some(self) except -1
    cdef bint open_item(self, ProduceItem* item, int64_t limit) except -1
    cdef prepared(self, ProduceItem* item, details, bytes batch)
    cdef name_bad_records(self, ProduceItem* item, object records, bint separate, int64_t wall_ms)
    cdef bint awaits_flush(self) noexcept
    cdef bint only_flush(self) noexcept
    cdef int look(self) except -1
    cdef int look_at(self, int item) except -1
    cdef void arm(self, ProduceItem* item) noexcept
    cdef int wait_or_answer(self) except -1
    cdef int answer_now(self) except -1


cdef class DelayedProduceWaiter(Waiter):
    cdef DelayedProduce pending


# Whether a Produce of the connection may not be executed yet: it is owed an answer to something else, or a Produce before it is
# not appended.
cdef bint must_wait(Connection connection) noexcept
