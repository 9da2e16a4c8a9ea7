"""A delayed fetch: a Fetch that cannot be answered at once."""

from libc.stdint cimport int64_t, uint32_t

from odradek._ext.api.fetch_context cimport FetchContext, FetchPartition
from odradek._ext.api.fetch_conversion cimport FetchConversion
from odradek._ext.api.fetch_plan cimport FetchPlan
from odradek._ext.api.fetch_responses cimport FetchResponses
from odradek._ext.api.purgatory cimport Purgatory, Waiter
from odradek._ext.net.connection cimport Pending


cdef enum Stage:                      # of the current plan: what follows when all partitions are planned
    STAGE_FIRST_PLAN = 0              # answer; or, to wait, arm the slots and plan once more (STAGE_SECOND_PLAN)
    STAGE_SECOND_PLAN = 1             # answer, or park [R 6]
    STAGE_ANSWER = 2                  # answer with the records that are available


cdef enum Step:                       # result of a step of the plan
    STEP_MORE = 0                     # partitions are left to plan
    STEP_COLD = 1                     # look-ups need pages that are not in the page cache
    STEP_PARK = 2
    STEP_ANSWER = 3


cdef class DelayedFetch(Waiter):
    """A fetch session, or the last request of a connection without a session, with what it needs to wait. A request is being served
    while `pending` is set.

    A Waiter by inheritance: the purgatory stores and wakes Waiters, and calls these hooks of a parked one:

    - `moved`, when the slot of a partition moved, with that FetchPartition as target
    - `expired`, at the deadline of the request, when throttled replication may go on, and when the broker stops. `FetchHandler` calls it,
      too, when the client has closed its direction of the connection.
    - `touched`, when the slot of a partition moved between two requests of a follower's session
    - `failed`, if one of these raised an error. The callbacks `slice` and `warmed` call it for their own errors.
    """
    cdef FetchContext context         # the partitions, the current request and its plan
    cdef Pending pending              # the place of the current request's response; None: no request is being served
    cdef Purgatory purgatory
    cdef FetchPlan plan
    cdef FetchResponses responses
    cdef FetchConversion conversion
    cdef object slices                # callable(step): call step() in later turns of the loop while it returns True
    cdef object end_session           # callable(self): the session was refused, end it
    cdef list watched                 # slots at which the purgatory has an entry of this fetch; None: no slots
    cdef bint warming                 # a reader reads pages into the page cache for it
    cdef int stage
    cdef bint planning                # the plan is incomplete and continues in a later turn of the loop
    cdef bint sliced                  # it was passed to `slices`, which calls `slice`
    cdef int64_t measured_ms          # `last_used_ms` of the request for which `measure` was last called
    cdef int64_t measured_bytes       # its result

    cdef bint noting                  # positions that met a taken lock are noted in later turns of the loop

    cdef int begin_plan(self, int stage) except -1
    cdef bint plan_some(self) except -1
    cdef int follow_partition(self, FetchPartition p) except -1
    cdef int refresh_idle(self) except -1
    cdef int drop_forgotten(self) except -1
    cdef int note_later(self) except -1
    cdef int step(self) except -1
    cdef int next_step(self) except -1
    cdef int wait_for(self, int step) except -1
    cdef int64_t parked_until(self) except -1
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
