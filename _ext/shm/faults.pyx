"""The words of the armed fault point, and the names of the fault points for Python; see faults.pxd."""

from libc.stdint cimport uint64_t

from odradek._ext.shm.layout cimport region


cdef uint64_t* armed_fault() noexcept nogil:
    return region().header.fault
