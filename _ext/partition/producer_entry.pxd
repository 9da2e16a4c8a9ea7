"""A partition's entry for one producer: its layout and the meaning of its words [R 2]. The slot's mutex protects it."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint16_t, uint32_t, uint64_t, uint8_t

from odradek._ext.shm.atomics cimport shared_i64, shared_u64
from odradek._ext.shm.hash_key cimport hash_key
from odradek._ext.shm.siphash cimport hash_bytes


cdef enum:
    BATCHES_KEPT = 5


cdef extern from *:
    """
    #define PLACE_UNKNOWN 0xFFFFFFFFu
    """
    uint32_t PLACE_UNKNOWN


cdef struct ProducerBatch:
    int64_t base_offset
    int64_t last_offset
    int64_t timestamp
    int32_t base_sequence
    int32_t last_sequence


cdef struct ProducerEntry:        # 256 bytes; the first 64 contain what a sequence check reads
    shared_u64 key                # producer id + 1; 0: free
    shared_u64 ring               # producer epoch << 48 | batches kept << 40 | index of the newest << 32 | coordinator epoch
    int64_t last_timestamp        # of records
    shared_i64 transaction_first_offset   # -1: none open
    uint64_t verification         # the mark: the coordinator has added the partition to a transaction of the producer; 0: none
    shared_i64 last_marker_offset
    int64_t heard_ms              # monotonic time at which the broker last heard of the producer
    uint32_t owner
    uint32_t open_following       # in the list of entries with an open transaction: the next place + 1; 0: none
    ProducerBatch[BATCHES_KEPT] batches
    int64_t queued_ms             # `heard_ms` when the entry was put at the end of its owner's list
    uint32_t following            # in the circular list of its owner's entries; in a free place: the next free place + 1
    uint32_t preceding
    uint32_t list_count           # number of entries in the list, in its first entry; 0 in the others
    uint32_t open_preceding       # in the list of open transactions: the preceding place + 1; 0: none
    # Of the open transaction's first batch, valid while `transaction_first_offset` is not -1:
    uint32_t first_delta          # `transaction_first_offset` less the base offset of its segment; PLACE_UNKNOWN if not known
    uint32_t first_position       # in the file of that segment


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


cdef inline bint is_known(ProducerEntry* entry) noexcept nogil:
    """Whether a batch or a marker of the producer was applied. If not, the entry has only a mark, and the log contains nothing of the
    producer: neither a snapshot nor DescribeProducers includes the entry."""
    return entry_epoch(entry) != -1


# -- the mark: 1 | version 2 << 1 | producer epoch << 16; in the other 46 bits: hash of the transactional id xor leader epoch << 32 -----
#
# The coordinator sets it when it has durably added the partition to a transaction of the producer with this epoch. It allows the first
# batch of that transaction, in a request with its transactional id [R 2.9]. It is not stored: after a restart, a load or an eviction, the
# worker asks the coordinator again.

cdef extern from *:
    """
    #define MARK_BITS_OF_ID 0xFFFFFFFF0000FFFCull
    """
    uint64_t MARK_BITS_OF_ID


cdef enum:
    MARK_SET = 1
    MARK_OF_VERSION_2 = 2


cdef inline uint64_t hash_of_id(const uint8_t* transactional_id, size_t n) noexcept nogil:
    """A hash for which no client can choose a transactional id."""
    return hash_bytes(hash_key(), transactional_id, n)


cdef inline uint64_t pack_mark(uint64_t id_hash, int16_t epoch, int32_t led_since, bint version_2) noexcept nogil:
    """For one id, marks of different leaderships differ. Two ids have the same mark with a probability of 2^-46."""
    cdef uint64_t mark = (id_hash ^ <uint64_t><uint32_t>led_since << 32) & MARK_BITS_OF_ID
    mark |= <uint64_t><uint16_t>epoch << 16 | MARK_SET
    return mark | MARK_OF_VERSION_2 if version_2 else mark


cdef inline bint has_mark(ProducerEntry* entry, uint64_t id_hash, int16_t epoch, int32_t led_since) noexcept nogil:
    """Whether the entry has a mark of this transactional id and of exactly this epoch, which was set in this leadership."""
    return (entry.verification | MARK_OF_VERSION_2) == pack_mark(id_hash, epoch, led_since, True)


cdef inline bint has_mark_of_epoch(ProducerEntry* entry, int16_t epoch) noexcept nogil:
    """Whether the entry has a mark of exactly this epoch, of any transactional id."""
    return entry.verification != 0 and <int16_t>(entry.verification >> 16) == epoch


cdef inline bint mark_of_version_2(ProducerEntry* entry) noexcept nogil:
    """Whether the marked transaction uses transaction.version 2."""
    return entry.verification & MARK_OF_VERSION_2 != 0


cdef inline void clear_mark(ProducerEntry* entry, int32_t before_epoch) noexcept nogil:
    """Clear the mark if its producer epoch is below `before_epoch`."""
    if entry.verification and <int16_t>(entry.verification >> 16) < before_epoch:
        entry.verification = 0
