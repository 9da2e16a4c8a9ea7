"""Where each process's meter page is, and what the supervisor clears in the page of a dead process; see meter_pages.pxd."""

from libc.stdint cimport uint64_t

from odradek._ext.shm.atomics cimport clear_words, store_relaxed_32, store_relaxed_64
from odradek._ext.shm.layout cimport region
from odradek._ext.shm.meter_layout cimport METER_GAUGES, METER_LISTENERS, METER_POSITIONS, METER_SOFTWARE, MeterPage
from odradek._ext.shm.meter_tables cimport end_change


cdef MeterPage* meter_page(int process) noexcept nogil:
    return <MeterPage*>(region().base + region().header.meters_at + process * meter_page_bytes())


cdef void clear_gauges(int process) noexcept nogil:
    cdef MeterPage* page = meter_page(process)
    cdef int i
    clear_words(page.words, METER_GAUGES * 8)
    if page.changes & 1:            # it died while it withdrew entries: those that are left are valid
        end_change(page)
    for i in range(METER_LISTENERS):
        store_relaxed_64(&page.listeners[i].open, 0)
        store_relaxed_64(&page.listeners[i].other_software, 0)
    for i in range(METER_SOFTWARE):
        store_relaxed_64(&page.software[i].open, 0)
    for i in range(<int>min(page.positions_used, <uint64_t>METER_POSITIONS)):
        store_relaxed_32(&page.positions[i].readers, 0)
