"""Produce requests: parsed in place, checked, appended jointly, answered in order."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from broker._ext.appends cimport AppendItem
from broker._ext.connection cimport Connection, Pending, ResponseOutput
from broker._ext.cursor cimport Cursor, WriteBuffer
from broker._ext.flushing cimport Flusher
from broker._ext.metering cimport Client
from broker._ext.topics cimport TopicDirectory
from broker._ext.waiting cimport Waiter, WaitingRoom


cdef enum Slow:
    SLOW_COMPRESSED = 1           # its records are to be opened and checked
    SLOW_OLD = 2                  # a message set of format v0 or v1, to be converted
    SLOW_RECOMPRESS = 3           # compression.type of the topic is another codec


cdef struct ProduceItem:          # one partition of one request
    AppendItem append
    uint32_t slot                 # slot + 1; 0: none
    uint32_t incarnation
    int32_t request
    int32_t partition
    const uint8_t* topic          # name without length, or 16 bytes of id
    int32_t topic_bytes
    int32_t topic_partitions      # > 0 on the first partition of a topic: how many follow, itself included
    int16_t error
    uint8_t appended
    uint8_t slow                  # Slow: why an append thread must have it first
    const char* message           # of the error, or NULL
    int64_t required_offset       # acks=all: answered when the high watermark is here
    int64_t flush_offset          # flush.messages: answered when this much is on the device; 0: no need
    int32_t leader_epoch
    int32_t sent_bytes            # of records, as they came
    uint32_t counted              # number of the topic in the meter page


cdef struct ProduceRequest:
    int32_t correlation_id
    int16_t version
    int16_t acks
    int32_t timeout_ms
    int32_t first
    int32_t count
    int32_t topics
    Client client


cdef class Producing:
    cdef TopicDirectory topics
    cdef WaitingRoom room
    cdef object offload           # callable(ProducePending): run its `work` on an append thread, then `worked` on the loop
    cdef object retry             # callable(ProducePending): call its `again` soon
    cdef object prepare           # callable(data, old, codec, level, limit, max_message_bytes) -> (error, fields, replacement)
    cdef ProduceItem* items
    cdef int item_room
    cdef int item_count
    cdef ProduceRequest* requests
    cdef int request_room
    cdef int request_count
    cdef Connection joined_by         # whose requests are in `requests`, None if there are none
    cdef readonly Flusher flusher
    cdef WriteBuffer response
    cdef bytes last_name          # name or id of the topic looked up last: most requests name one topic over and over
    cdef readonly int64_t records_in
    cdef readonly int64_t batches_in
    cdef readonly int64_t bytes_in

    cdef int offer(self, Connection connection, int16_t version, int32_t correlation_id, Cursor* body, uint8_t* frame,
                   int64_t size) except -1
    cdef int parse(self, int16_t version, int32_t correlation_id, Cursor* body) except -1
    cdef int look_up(self, ProduceItem* item, bint by_id) except -1
    cdef int check(self, ProduceItem* item, int16_t acks, int64_t wall_ms) noexcept
    cdef int execute(self, Connection connection) except -1
    cdef int forget(self, Connection connection) except -1
    cdef ProduceItem* new_item(self) except NULL
    cdef int ask_flush(self, ProduceRequest* request, ProduceItem* items) except -1
    cdef int count_arrival(self, ProduceRequest* request, ProduceItem* items, int64_t size) noexcept
    cdef int count_in(self, ProduceRequest* request, ProduceItem* items) noexcept
    cdef int count_answer(self, ProduceRequest* request, ProduceItem* items, int64_t size) noexcept
    cdef int write_response(self, ResponseOutput out, ProduceRequest* request, ProduceItem* items) except -1


cdef class ProducePending(Pending):
    """A request that could not be answered at once; owns a copy of its frame."""
    cdef Producing producing
    cdef ProduceRequest request
    cdef ProduceItem* items
    cdef uint8_t* frame
    cdef list kept                    # batches that took the place of what was sent
    cdef readonly bint executed
    cdef readonly int tries           # at a taken lock
    cdef ProduceWaiter waiter
    cdef readonly int64_t deadline_ms  # of the client, for the high watermark
    cdef readonly int64_t patience_ms  # until then a taken lock is waited for
    cdef int result
    cdef take(self, Producing producing, uint8_t* frame, int64_t size)
    cdef take_request(self, Producing producing, ProduceRequest* request)
    cdef own_items(self, Producing producing, ProduceRequest* request)
    cdef prepare(self, ProduceItem* item, int64_t wall_ms)
    cdef prepared(self, ProduceItem* item, found, int64_t wall_ms)
    cdef bint awaits_flush(self) noexcept
    cdef bint only_flush(self) noexcept
    cdef int look(self) except -1
    cdef int wait_or_answer(self) except -1
    cdef int answer_now(self) except -1


cdef class ProduceWaiter(Waiter):
    cdef ProducePending pending
