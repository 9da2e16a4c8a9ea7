"""The words of the armed fault point, and the names of the fault points for Python; see faults.pxd."""

from odradek._ext.shm.atomics cimport shared_u64
from odradek._ext.shm.layout cimport region


cdef shared_u64* armed_fault() noexcept nogil:
    return region().header.fault
