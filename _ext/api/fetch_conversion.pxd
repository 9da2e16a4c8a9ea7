"""Conversion for the versions of Fetch that know no record batches."""

from libc.stdint cimport int32_t

from odradek._ext.api.fetch_context cimport FetchContext
from odradek._ext.api.fetch_responses cimport FetchResponses
from odradek._ext.net.connection cimport Pending


cdef class FetchConversion:
    cdef FetchResponses responses
    cdef int32_t max_bytes            # fetch.max.bytes
    cdef object down_convert          # callable(parts, done): convert on a thread, then call done(result) in the loop

    # Have what the plan names converted; the response follows in `converted`. The wait is not in the room.
    cdef int start(self, FetchContext wait, Pending pending) except -1
    cdef int converted(self, FetchContext wait, Pending pending, list parts, object result) except -1
