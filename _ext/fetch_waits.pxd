"""A Fetch that waits."""

from broker._ext.fetch_context cimport FetchContext
from broker._ext.fetch_conversion cimport FetchConversion
from broker._ext.fetch_places cimport FetchPlaces
from broker._ext.fetch_responses cimport FetchResponses
from broker._ext.waiting cimport WaitingRoom


cdef class FetchWait(FetchContext):
    cdef WaitingRoom room
    cdef FetchPlaces places
    cdef FetchResponses responses
    cdef FetchConversion conversion
    cdef list watched                 # slots at which the room knows it
    cdef bint warming

    cdef int warm(self) except -1
    cdef int watch_all(self) except -1
    cdef int unwatch_all(self) except -1
    cdef int arm_all(self) noexcept
    cdef int stop_waiting(self) except -1
    cdef int answer(self) except -1
