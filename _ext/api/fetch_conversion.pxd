"""Down-conversion for the versions of Fetch without record batches."""

from libc.stdint cimport int32_t

from odradek._ext.api.fetch_context cimport FetchContext
from odradek._ext.api.fetch_responses cimport FetchResponses
from odradek._ext.net.connection cimport Pending


cdef class FetchConversion:
    cdef FetchResponses responses
    cdef int32_t max_bytes            # fetch.max.bytes
    cdef object down_convert          # callable(parts, done): convert on a thread, then call done(result) in the loop

    # Converts the planned records; `converted` writes the response. The request must not be in the purgatory. Calls
    # plan_again(pending, wait) instead of writing a response, if the client needs none of the records of some partitions; `wait`: no
    # other partition has records for it, so it may wait.
    cdef int start(self, FetchContext context, Pending pending, plan_again) except -1
    cdef int converted(self, FetchContext context, Pending pending, list parts, object plan_again, object result) except -1
