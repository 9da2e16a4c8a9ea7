"""Where each process's meter page is, and what the supervisor clears in the page of a dead process; see meter_pages.pxd."""

from libc.stdint cimport uint64_t
from libc.string cimport memset

from odradek._ext.shm.layout cimport region
from odradek._ext.shm.meter_layout cimport METER_GAUGES, METER_LISTENERS, METER_POSITIONS, METER_SOFTWARE, MeterPage


cdef MeterPage* meter_page(int process) noexcept nogil:
    return <MeterPage*>(region().base + region().header.meters_at + process * meter_page_bytes())


cdef void clear_gauges(int process) noexcept nogil:
    cdef MeterPage* page = meter_page(process)
    cdef int i
    memset(page.words, 0, METER_GAUGES * 8)
    for i in range(METER_LISTENERS):
        page.listeners[i].open = 0
        page.listeners[i].other_software = 0
    for i in range(METER_SOFTWARE):
        page.software[i].open = 0
    for i in range(<int>min(page.positions_used, <uint64_t>METER_POSITIONS)):
        page.positions[i].readers = 0
