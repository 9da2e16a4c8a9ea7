"""Fetch requests: their sessions, and what is done with one."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from broker._ext.connection cimport Connection
from broker._ext.cursor cimport Cursor
from broker._ext.fetch_conversion cimport FetchConversion
from broker._ext.fetch_places cimport FetchPlaces
from broker._ext.fetch_responses cimport FetchResponses
from broker._ext.fetch_waits cimport FetchWait
from broker._ext.metering cimport Client
from broker._ext.topics cimport TopicDirectory
from broker._ext.waiting cimport WaitingRoom


cdef class Fetching:
    cdef TopicDirectory topics
    cdef WaitingRoom room
    cdef FetchPlaces places
    cdef FetchResponses responses
    cdef FetchConversion conversion
    cdef dict sessions                # id -> FetchWait
    cdef int32_t next_session
    cdef int32_t session_mark         # this worker's bits of its session ids
    cdef readonly int max_sessions
    cdef Client asking                # whose request is being read
    cdef object last_name

    cdef int offer(self, Connection connection, int16_t version, int32_t correlation_id, Cursor* body, uint8_t* frame,
                   int64_t size) except -1
    cdef FetchWait begin(self, Connection connection, int32_t session_id, int32_t epoch, bint by_id, int16_t* error)
    cdef FetchWait new_wait(self)
    cdef FetchWait new_session(self)
    cdef int end_session(self, FetchWait session) except -1
    cdef int answer_parked(self, Connection connection) except -1
    cdef int read_partitions(self, FetchWait wait, int16_t version, Cursor* body) except -1
    cdef int read_forgotten(self, FetchWait wait, int16_t version, Cursor* body) except -1
    cdef bytes same_name(self, const uint8_t* name, int64_t length)
