"""A delayed produce: a Produce that cannot be answered at once, because a thread must decompress its records, a lock is taken, the
coordinator of its transaction must be asked, or it waits for replicas or for a sync.
"""

from libc.stdint cimport int64_t, uint64_t, uint8_t

from odradek._ext.api.access cimport AccessControl
from odradek._ext.api.produce_items cimport ProduceItem, ProduceRequest
from odradek._ext.api.produce_responses cimport ProduceResponses
from odradek._ext.api.purgatory cimport Purgatory, Waiter
from odradek._ext.api.refused_batches cimport RefusedBatches
from odradek._ext.net.buffers cimport Buffer, BufferPool
from odradek._ext.net.connection cimport Connection, Pending
from odradek._ext.shm.topics cimport TopicDirectory


cdef enum:
    LARGE_REQUEST = 2 * 1024 * 1024   # bytes above which a thread appends a request, so that the loop can serve others meanwhile
    MANY_ITEMS = 256                  # partitions above which a thread appends a request


cdef class ProduceDelays:
    """The services of the worker that delayed produces use."""
    cdef TopicDirectory topics
    cdef AccessControl control    # None: there is no authorizer
    cdef Purgatory purgatory
    cdef ProduceResponses responses
    cdef RefusedBatches refused
    cdef object offload           # callable(DelayedProduce): calls its `step` on the append thread, then its `worked`
    cdef object retry             # callable(DelayedProduce): calls its `again` soon
    cdef object ask               # callable(DelayedProduce, questions, deadline_ms): calls its `verified` later
    cdef dict asking              # connection id -> the DelayedProduce that waits for the answer to a question
    cdef object prepare           # callable(data, old, codec, level, limit, max_message_bytes) -> (error, fields, replacement, size)
    cdef int64_t max_opened_bytes  # limit of the decompressed size of a request's records (odradek.produce.max.decompressed.bytes)


cdef class DelayedProduce(Pending):
    """A delayed produce. It owns a copy of the parts of its frame that are still needed, or the receive buffer of the frame.

    A Pending by inheritance: a connection links the places of its responses through the Pendings themselves, and `must_wait` recognizes
    delayed produces among them by their class. With a Pending as a member, each Produce with compressed records would need one object
    more. It overrides no method of Pending, and Pending calls none of its methods. Its own callbacks are `step` and `open_large`, which
    the threads for appends call (`offload` of ProduceHandler), `worked`, which the loop calls after them, `again`, which
    `ProduceDelays.retry` calls, and `verified`, which `ProduceDelays.ask` calls. A DelayedProduceWaiter, as a member, waits in the
    purgatory for it.

    Order: of the requests of a connection that are not executed, only the first one appends, retries or asks; the others are linked
    by `behind` and have `waits_turn`. When a request is executed, `go_on` continues with the requests behind it.
    """
    cdef ProduceDelays delays
    cdef ProduceRequest request
    cdef uint64_t authorized_by       # the version of the ACLs by which its items were decided
    cdef ProduceItem* items
    cdef uint8_t* frame               # the bytes to which `request` and `items` point; NULL if `buffer` has them
    cdef Buffer buffer                # the receive buffer of the request, if it was taken over
    cdef BufferPool pool              # receives `buffer` back
    cdef list kept                    # batches that replace those of the frame; `items` point into them
    cdef list record_errors           # RecordErrors of refused batches; None if there are none
    cdef int prepared_items             # items before this index need no further decompression or conversion on a thread
    cdef int appended_items           # items before this index were passed to their logs
    cdef int64_t decompressed_bytes         # decompressed size of the request's records so far
    cdef readonly bint large_next     # the next item's records are too large, decompressed, for the append thread
    cdef readonly bint executed       # every item is appended or refused
    cdef readonly int tries           # attempts at a taken lock
    cdef bint waits_turn              # an earlier request of its connection is not executed
    cdef DelayedProduce behind        # the next request of its connection that waits for its turn
    cdef bint dropped                 # not executed, because the client has closed the connection
    cdef readonly int questions       # number of questions that were sent to the coordinator of its transaction
    cdef QuestionWaiter asker         # while it waits for an answer
    cdef int64_t asked_us             # time of the last question
    cdef DelayedProduceWaiter waiter
    cdef readonly int64_t deadline_ms  # of the client's timeout, for the high watermark
    cdef readonly int64_t patience_ms  # when items whose lock is taken are refused
    cdef int undecided                # items before this index are decided
    cdef adopt_frame(self, ProduceDelays delays, ProduceRequest* request, ProduceItem* items, list record_errors, uint8_t* frame,
                     int64_t size)
    cdef adopt_request(self, ProduceDelays delays, ProduceRequest* request, ProduceItem* items, list record_errors,
                       Connection connection)
    cdef own_items(self, ProduceDelays delays, ProduceRequest* request, ProduceItem* items, list record_errors)
    cdef bint next_step(self) except -1
    cdef bint prepare_some(self) except -1
    cdef bint prepare_item(self, ProduceItem* item, int64_t limit) except -1
    cdef prepared(self, ProduceItem* item, details, bytes batch)
    cdef name_bad_records(self, ProduceItem* item, object records, bint separate, int64_t wall_ms)
    cdef bint awaits_flush(self) noexcept
    cdef bint only_flush(self) noexcept
    cdef int check_all(self) except -1
    cdef int check_slot_of(self, int item) except -1
    cdef void arm(self, ProduceItem* item) noexcept
    cdef int note_refused(self) except -1
    cdef bint unappended(self) noexcept
    cdef int append_rest(self) except -1
    cdef int refuse_revoked(self) except -1
    cdef int settle(self) except -1
    cdef int go_on(self) except -1
    cdef int drop(self) except -1
    cdef int64_t question_deadline(self) noexcept
    cdef bint ask(self) except -1
    cdef int put_question(self, dict questions) except -1
    cdef int end_question(self) except -1
    cdef int refuse_unverified(self, const char* message) except -1
    cdef int unanswered(self, const char* message) except -1
    cdef int connection_closed(self) except -1
    cdef int answer_now(self) except -1


cdef class QuestionWaiter(Waiter):
    """Waits in the purgatory for the deadline of a question of a delayed produce; it watches no slot."""
    cdef DelayedProduce pending


cdef class DelayedProduceWaiter(Waiter):
    """The Waiter of a delayed produce; the target of a watched slot is the index of its first item.

    The purgatory calls `moved`, which checks the items of the slot, `expired`, which refuses what is undecided and answers, and `failed`.
    """
    cdef DelayedProduce pending


# Returns whether a Produce of the connection must not be executed yet: the connection has a pending response of another kind, or an
# earlier Produce is not appended.
cdef bint must_wait(Connection connection) noexcept
