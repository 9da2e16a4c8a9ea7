"""A Fetch that cannot be answered at once."""

from libc.stdint cimport int64_t, uint32_t

from odradek._ext.api.fetch_context cimport FetchContext
from odradek._ext.api.fetch_conversion cimport FetchConversion
from odradek._ext.api.fetch_plan cimport FetchPlan
from odradek._ext.api.fetch_responses cimport FetchResponses
from odradek._ext.api.purgatory cimport Purgatory


cdef enum Stage:                      # of the plan under way: what follows when all partitions are planned
    STAGE_FIRST_LOOK = 0              # answer, or wait: then the slots are armed first, and looked at once more
    STAGE_SECOND_LOOK = 1             # answer, or park [R 6]
    STAGE_ANSWER = 2                  # answer with what there is


cdef enum Step:                       # what a step of the plan comes to
    STEP_MORE = 0                     # there are partitions left to plan
    STEP_COLD = 1                     # pages of look-ups must be read first
    STEP_PARK = 2
    STEP_ANSWER = 3


cdef class DelayedFetch(FetchContext):
    cdef Purgatory room
    cdef FetchPlan places
    cdef FetchResponses responses
    cdef FetchConversion conversion
    cdef object slices                # callable(step): call step() in later turns of the loop while it returns True
    cdef list watched                 # slots at which the room knows it; None: at none
    cdef bint warming                 # a reader brings in pages
    cdef int stage
    cdef bint planning                # a plan is under way and goes on in a later turn of the loop
    cdef bint sliced                  # `slices` holds it
    cdef int64_t measured_ms          # `last_used_ms` of the request at which `measure` was asked last
    cdef int64_t measured_bytes       # what it said

    cdef int begin_plan(self, int stage) except -1
    cdef int step(self) except -1
    cdef int wait_for(self, int step) except -1
    cdef int64_t measure(self) noexcept
    cdef int warm(self) except -1
    cdef int read_some_cold(self, list jobs) except -1
    cdef int watch_all(self) except -1
    cdef int unwatch_all(self) except -1
    cdef void arm(self, uint32_t slot) noexcept
    cdef int arm_all(self) noexcept
    cdef int answer_soon(self) except -1
    cdef int stop_waiting(self) except -1
    cdef int answer(self) except -1
