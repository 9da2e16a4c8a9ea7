"""The meter pages of all processes in the shared mapping; meter_layout.pxd has the layout of a page."""

from libc.stdint cimport uint64_t

from odradek._ext.shm.meter_layout cimport MeterPage


# Bytes of one meter page in the mapping, rounded up to whole pages of memory.
cdef inline uint64_t meter_page_bytes() noexcept nogil:
    return (sizeof(MeterPage) + 4095) // 4096 * 4096


# The page of the process at place `process` of the process table.
cdef MeterPage* meter_page(int process) noexcept nogil

# Clear a dead process's gauges, open connections and readers; its counters stay [R 9].
cdef void clear_gauges(int process) noexcept nogil
