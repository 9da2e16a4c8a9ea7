"""Execution of Fetch requests."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from odradek._ext.api.access cimport AccessControl
from odradek._ext.api.delayed_fetch cimport DelayedFetch
from odradek._ext.api.fetch_context cimport FetchContext
from odradek._ext.api.fetch_conversion cimport FetchConversion
from odradek._ext.api.fetch_plan cimport FetchPlan
from odradek._ext.api.fetch_responses cimport FetchResponses
from odradek._ext.api.fetch_sessions cimport FetchSessions
from odradek._ext.api.purgatory cimport Purgatory
from odradek._ext.net.connection cimport Connection
from odradek._ext.protocol.cursor cimport Cursor
from odradek._ext.shm.metering cimport Client
from odradek._ext.shm.topics cimport Topic, TopicDirectory


cdef struct FetchHead:                # the fields of a request except its partitions
    int32_t replica_id
    int64_t replica_epoch
    int32_t wait_ms
    int32_t min_bytes
    int32_t max_bytes
    bint read_committed
    int32_t session_id
    int32_t epoch


cdef class FetchHandler:
    cdef TopicDirectory topics
    cdef public AccessControl control   # None: there is no authorizer
    cdef Purgatory purgatory
    cdef readonly FetchSessions sessions
    cdef FetchPlan plan
    cdef FetchResponses responses
    cdef FetchConversion conversion
    cdef object slices
    cdef int32_t max_bytes
    cdef int64_t max_wait_ms
    cdef Py_ssize_t max_partitions
    cdef int brokers_listener           # index of the only listener for Fetch requests of followers; -1: any listener
    cdef Client client                # metering entry of the client whose request is being read
    cdef object replicas              # ReplicaView in a cluster; None
    cdef bytes rack                   # of the client whose request is being read; None without a replica selector
    cdef object last_name             # of the topic that was read last
    cdef bint clients_topics          # the current request is of a client, as far as is known: its topics are counted at once
    cdef list begun_topics            # topics of the current request, which are counted if it is of a client; None: it is known
    cdef bint too_many                # the current request names more partitions than are allowed

    cdef int offer(self, Connection connection, int16_t version, int32_t correlation_id, Cursor* body, uint8_t* frame,
                   int64_t size) except -1
    cdef int limit_request(self, Connection connection, FetchContext context) except -1
    cdef int execute(self, Connection connection, DelayedFetch fetch) except -1
    cdef DelayedFetch begin(self, Connection connection, FetchHead* head, bint by_id, int16_t* error)
    cdef DelayedFetch new_fetch(self)
    cdef int refuse(self, Connection connection, int16_t version, int32_t correlation_id, int16_t error) except -1
    cdef int begin_request(self, Connection connection, FetchContext context, int16_t version, int32_t correlation_id,
                           FetchHead* head) except -1
    cdef int supersede(self, DelayedFetch fetch) except -1
    cdef bint settle_session(self, DelayedFetch fetch, FetchHead* head) except -1
    cdef int follow(self, Connection connection, DelayedFetch fetch) except -1
    cdef int answer_parked(self, Connection connection) except -1
    cdef int hurry(self, Connection connection) except -1
    cdef int64_t kept_bytes(self, Connection connection) except -1
    cdef int64_t forget(self, Connection connection) except -1
    cdef int read_partitions(self, FetchContext context, int16_t version, Cursor* body, FetchHead* head) except -1
    cdef int count_topic(self, Topic topic) except -1
    cdef int read_topics(self, FetchContext context, int16_t version, Cursor* body) except -1
    cdef int read_tail(self, int16_t version, Cursor* body, FetchHead* head) except -1
    cdef int read_forgotten(self, FetchContext context, int16_t version, Cursor* body) except -1
    cdef bytes same_name(self, const uint8_t* name, int64_t length)
