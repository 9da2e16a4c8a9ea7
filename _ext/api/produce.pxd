"""Execution of Produce requests: parsed in place, checked, appended jointly, answered in order."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t, uint8_t

from odradek._ext.api.access cimport Access, AccessControl
from odradek._ext.api.delayed_produce cimport ProduceDelays
from odradek._ext.api.produce_items cimport ProduceItem, ProduceRequest
from odradek._ext.api.produce_responses cimport ProduceResponses
from odradek._ext.api.refused_batches cimport RefusedBatches
from odradek._ext.net.charging cimport JointCharge
from odradek._ext.net.connection cimport Connection
from odradek._ext.protocol.cursor cimport Cursor
from odradek._ext.shm.topics cimport Topic, TopicDirectory


cdef class ProduceHandler:
    cdef TopicDirectory topics
    cdef object offload           # callable(DelayedProduce)
    cdef readonly ProduceResponses responses
    cdef ProduceDelays delays
    cdef RefusedBatches refused
    cdef int64_t max_partitions   # limit of a request
    cdef bint too_many            # the last parsed request has more
    cdef public bint verify_transactions   # transaction.partition.verification.enable
    cdef AccessControl control    # None: there is no authorizer
    cdef Access access            # of the client whose request is being parsed
    cdef int64_t allowed          # decisions of this read that `execute` counts
    cdef bint topic_denied        # the client may not write to the topic of the item that was looked up last
    cdef ProduceItem* items
    cdef int item_room
    cdef int item_count
    cdef ProduceRequest* requests
    cdef int request_room
    cdef int request_count
    cdef list record_errors           # RecordErrors of refused batches of `requests`; None if there are none
    cdef Connection joined_by         # the connection whose requests are in `requests`; None if there are none
    cdef bytes last_name          # name or id of the topic that was looked up last: most requests repeat one topic

    cdef int offer(self, Connection connection, int16_t version, int32_t correlation_id, Cursor* body, uint8_t* frame,
                   int64_t size) except -1
    cdef int parse(self, int16_t version, int32_t correlation_id, Cursor* body) except -1
    cdef int parse_topics(self, int16_t version, int64_t topics, Cursor* body) except -1
    cdef bint denied(self, ProduceItem* item, Topic topic, bytes name) except -1
    cdef bint refused_transaction(self, Connection connection, ProduceRequest* request) except -1
    cdef int look_up(self, ProduceItem* item, bint by_id, bint deposed) except -1
    cdef int check(self, ProduceItem* item, int16_t acks, int64_t wall_ms) noexcept
    cdef int name_bad_records(self, ProduceItem* item, int64_t wall_ms) except -1
    cdef int execute(self, Connection connection) except -1
    cdef int charge_read(self, Connection connection, JointCharge* joint) noexcept
    cdef int forget(self, Connection connection) except -1
    cdef ProduceItem* new_item(self) except NULL
    cdef ProduceRequest* new_request(self) except NULL
    cdef int count_arrival(self, ProduceRequest* request, ProduceItem* items, int64_t size) noexcept
