"""The log that a pass of compaction works on: its segments, its active producers, its batches one after another.

A base class of `Compactor`; inheritance is used because all steps of a pass share its state. Used by one thread of the cleaner.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t, uint64_t, uint8_t
from libc.stdlib cimport free

from odradek._ext.compaction.compaction_transactions cimport Transactions
from odradek._ext.records.record_batch cimport BatchInfo
from odradek._ext.shm.layout cimport Slot
from odradek._ext.storage.log_state cimport Array


cdef enum:                        # result of a step
    STEP_DONE = 0
    STEP_CODEC = 1                # the batch at `used` is compressed
    STEP_MAP_FULL = 2
    STEP_CORRUPT = 3

cdef enum:                        # reason why a pass ends without an error
    ABORTED_BUSY = 1
    ABORTED_DELETED = 2
    ABORTED_TRUNCATED = 3
    ABORTED_SOURCE = 4


cdef struct LastOfProducer:       # the batch or marker that preserves an active producer's state
    int64_t producer_id
    int64_t last_offset           # -1: none, a marker contains its epoch
    int16_t epoch


cdef inline void clear_array(Array* array) noexcept nogil:
    array.count = 0


cdef inline void free_array(Array* array) noexcept nogil:
    free(array.items)
    array.items = NULL
    array.count = array.room = 0


cdef int by_producer(const void* left, const void* right) noexcept nogil


cdef class CompactedLog:
    cdef uint8_t* buffer
    cdef size_t buffer_bytes      # current size; it grows for a larger batch
    cdef size_t usual_bytes
    cdef object decompress, open_old, swap_lock
    cdef int stop                 # set by another thread
    cdef int reading              # descriptor that `fill` last read; valid while `pace` is called
    cdef uint32_t slot, incarnation
    cdef uint64_t truncations
    cdef int directory
    cdef int32_t index_interval_bytes
    cdef int64_t delete_retention_ms
    cdef int64_t next_offset, segment_end      # the limits of a batch's offsets
    cdef Transactions transactions
    cdef Array producers          # of LastOfProducer, by id
    cdef BatchInfo batch

    cdef int lock(self) noexcept nogil
    cdef int open_log(self) except -1
    cdef int close_log(self) except -1
    cdef int open_file(self, int64_t base_offset, int kind) except -1
    cdef bytes read_index(self, int64_t base_offset, int kind)
    cdef int read_producers(self) except -1
    cdef int copy_producers(self, Slot* slot) noexcept nogil
    cdef int64_t fill(self, int descriptor, int64_t position, int64_t size) except -1
    cdef int grow(self, int64_t base_offset, int64_t position, int64_t size, int64_t length) except -1
    cdef int next_batch(self, const uint8_t* p, size_t n) noexcept nogil
    cdef bytes open_batch(self, const uint8_t* batch, int64_t base, int64_t position)
    cdef list opened(self, const uint8_t* message, int64_t base, int64_t position)
