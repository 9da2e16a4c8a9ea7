"""The meter pages of all processes in the shared mapping; what one holds is in metering.pxd."""

from libc.stdint cimport uint64_t

from odradek._ext.shm.metering cimport MeterPage


# What one takes in the mapping: whole pages of memory.
cdef inline uint64_t meter_page_bytes() noexcept nogil:
    return (sizeof(MeterPage) + 4095) // 4096 * 4096


# The page of the process at place `process` of the process table.
cdef MeterPage* meter_page(int process) noexcept nogil

# Clear what a dead process had open or parked, the readers of its connections among them; its counts stay [R 9].
cdef void clear_gauges(int process) noexcept nogil
