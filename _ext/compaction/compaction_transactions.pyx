"""The transactions at the current position of a pass; see compaction_transactions.pxd. No GIL, no lock: only the pass uses this
memory."""

from libc.errno cimport ENOMEM
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, qsort
from libc.string cimport memset

from odradek._ext.protocol.byte_order cimport load16
from odradek._ext.records.record_batch cimport AT_RECORDS, BatchInfo, read_varint, read_varlong
from odradek._ext.storage.index_entries cimport AbortedEntry
from odradek._ext.storage.log_state cimport Array, append_item


cdef enum:
    CONTROL_ABORT = 0
    CONTROL_COMMIT = 1


cdef void init_transactions(Transactions* state) noexcept nogil:
    memset(state, 0, sizeof(Transactions))
    state.aborted.item_bytes = sizeof(AbortedEntry)
    state.open_aborted.item_bytes = sizeof(OpenAborted)
    state.open_committed.item_bytes = sizeof(int64_t)


cdef void free_transactions(Transactions* state) noexcept nogil:
    free(state.aborted.items)
    free(state.open_aborted.items)
    free(state.open_committed.items)


cdef int by_first_offset(const void* left, const void* right) noexcept nogil:
    cdef int64_t a = (<const AbortedEntry*>left).first_offset, b = (<const AbortedEntry*>right).first_offset
    return -1 if a < b else a > b


cdef void sort_aborted(Transactions* state) noexcept nogil:
    if state.aborted.count:
        qsort(state.aborted.items, <size_t>state.aborted.count, sizeof(AbortedEntry), &by_first_offset)


cdef void start_transactions(Transactions* state) noexcept nogil:
    state.next = 0
    state.open_aborted.count = 0
    state.open_committed.count = 0


cdef int64_t find_aborted(Transactions* state, int64_t producer_id) noexcept nogil:
    cdef OpenAborted* items = <OpenAborted*>state.open_aborted.items
    cdef int64_t i
    for i in range(state.open_aborted.count):
        if items[i].entry.producer_id == producer_id:
            return i
    return -1


cdef int enter_aborted(Transactions* state, int64_t offset) noexcept nogil:
    """Add the aborted transactions that began at `offset` or before to the open ones. Returns 0, or -ENOMEM."""
    cdef AbortedEntry* items = <AbortedEntry*>state.aborted.items
    cdef OpenAborted* entered
    while state.next < state.aborted.count and items[state.next].first_offset <= offset:
        if find_aborted(state, items[state.next].producer_id) < 0:
            entered = <OpenAborted*>append_item(&state.open_aborted)
            if entered == NULL:
                return -ENOMEM
            entered.entry = items[state.next]
            entered.seen = False
        state.next += 1
    return 0


cdef int read_control_type(const uint8_t* batch, const BatchInfo* info) noexcept nogil:
    """The type of a control batch's record: 0 abort, 1 commit, others; -1 if there is no readable record."""
    cdef const uint8_t* p = batch + AT_RECORDS
    cdef const uint8_t* end = batch + info.size
    cdef int32_t n = 0
    cdef int64_t wide = 0
    if read_varint(&p, end, &n) != 0 or end - p < 1:
        return -1
    p += 1
    if read_varlong(&p, end, &wide) != 0 or read_varint(&p, end, &n) != 0 or read_varint(&p, end, &n) != 0:
        return -1
    if n < 4 or end - p < n:
        return -1
    return load16(p + 2)


cdef int track_marker(Transactions* state, const uint8_t* batch, const BatchInfo* info, Array* kept, bint* idle) noexcept nogil:
    cdef OpenAborted* aborted = <OpenAborted*>state.open_aborted.items
    cdef int64_t* committed = <int64_t*>state.open_committed.items
    cdef AbortedEntry* entry
    cdef int64_t at
    cdef int kind
    cdef int error = enter_aborted(state, info.base_offset + info.last_offset_delta)
    if error:
        return error
    aborted = <OpenAborted*>state.open_aborted.items
    idle[0] = True
    if info.record_count == 0:
        return 0                        # emptied by an earlier pass
    kind = read_control_type(batch, info)
    if kind == CONTROL_ABORT:
        at = find_aborted(state, info.producer_id)
        if at >= 0:
            idle[0] = not aborted[at].seen
            if aborted[at].seen and kept != NULL:
                entry = <AbortedEntry*>append_item(kept)
                if entry == NULL:
                    return -ENOMEM
                entry[0] = aborted[at].entry
            state.open_aborted.count -= 1
            aborted[at] = aborted[state.open_aborted.count]
    elif kind == CONTROL_COMMIT:
        for at in range(state.open_committed.count):
            if committed[at] == info.producer_id:
                idle[0] = False
                state.open_committed.count -= 1
                committed[at] = committed[state.open_committed.count]
                break
    else:
        idle[0] = False                 # not a marker of a transaction
    return 0


cdef int track_batch(Transactions* state, const BatchInfo* info, bint* aborted) noexcept nogil:
    cdef int64_t* committed
    cdef int64_t at
    cdef int error = enter_aborted(state, info.base_offset + info.last_offset_delta)
    aborted[0] = False
    if error or not info.transactional:
        return error
    at = find_aborted(state, info.producer_id)
    if at >= 0:
        (<OpenAborted*>state.open_aborted.items)[at].seen = True
        aborted[0] = True
        return 0
    committed = <int64_t*>state.open_committed.items
    for at in range(state.open_committed.count):
        if committed[at] == info.producer_id:
            return 0
    committed = <int64_t*>append_item(&state.open_committed)
    if committed == NULL:
        return -ENOMEM
    committed[0] = info.producer_id
    return 0
