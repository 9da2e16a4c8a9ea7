"""A partition's entry for one producer: its layout and the meaning of its words [R 2]. The slot's mutex protects it."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t, uint64_t, uint8_t

from odradek._ext.shm.layout cimport BATCHES_KEPT


cdef struct ProducerBatch:
    int64_t base_offset
    int64_t last_offset
    int64_t timestamp
    int32_t base_sequence
    int32_t last_sequence


cdef struct ProducerEntry:        # 256 bytes; the first 64 contain what a sequence check reads
    uint64_t key                  # producer id + 1; 0: free
    uint64_t ring                 # producer epoch << 48 | batches kept << 40 | index of the newest << 32 | coordinator epoch
    int64_t last_timestamp        # of records
    int64_t transaction_first_offset    # -1: none open
    uint64_t verification         # KIP-890: sequence and epoch for which a verification is in progress
    int64_t last_marker_offset
    int64_t heard_ms              # monotonic time at which the broker last heard of the producer
    uint32_t owner
    uint32_t spare
    ProducerBatch[BATCHES_KEPT] batches
    int64_t queued_ms             # `heard_ms` when the entry was put at the end of its owner's list
    uint32_t following            # in the circular list of its owner's entries; in a free place: the next free place + 1
    uint32_t preceding
    uint32_t list_count           # number of entries in the list, in its first entry; 0 in the others
    uint8_t[12] padding


# -- the ring word: producer epoch << 48 | batches kept << 40 | index of the newest << 32 | coordinator epoch -----------------------

cdef inline int16_t entry_epoch(ProducerEntry* entry) noexcept nogil:
    return <int16_t>(entry.ring >> 48)


cdef inline int entry_batches(ProducerEntry* entry) noexcept nogil:
    return <int>((entry.ring >> 40) & 0xFF)


cdef inline int newest_index(ProducerEntry* entry) noexcept nogil:
    return <int>((entry.ring >> 32) & 0xFF)


cdef inline int32_t coordinator_epoch_of(ProducerEntry* entry) noexcept nogil:
    return <int32_t><uint32_t>entry.ring


cdef inline ProducerBatch* batch_back(ProducerEntry* entry, int back) noexcept nogil:
    """The batch `back` places before the newest; NULL if it is not kept."""
    if back >= entry_batches(entry):
        return NULL
    return &entry.batches[(newest_index(entry) + BATCHES_KEPT - back) % BATCHES_KEPT]


cdef inline ProducerBatch* newest_batch(ProducerEntry* entry) noexcept nogil:
    return batch_back(entry, 0)
