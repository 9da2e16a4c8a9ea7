"""The rules of a Produce request with transactional batches, and its errors after a question to the coordinator of the transaction.

Plain functions on items and requests (produce_items.pxd); no state, no locks.
"""

from libc.stdint cimport int16_t

from odradek._ext.api.produce_items cimport ProduceItem, ProduceRequest


cdef enum:
    PRODUCE_ADDS_PARTITIONS = 12  # the first version that adds partitions to the transaction; earlier ones only have them verified


# Returns whether the item's batch is transactional; the batch need not have been checked before.
cdef bint is_transactional(ProduceItem* item) noexcept nogil

# Applies the rules of a request that contains a transactional batch: refuses all its items if it has no transactional id, or batches
# of several producers. `verify`: the value of transaction.partition.verification.enable; if it is False, batches of versions before
# PRODUCE_ADDS_PARTITIONS are trusted. Returns whether the items were refused.
cdef bint check_transactional(ProduceRequest* request, ProduceItem* items, bint verify) noexcept nogil

# Refuses the unverified item items[at], and the later items of its slot and transaction. `code`: the error code of the coordinator. The
# error code for the client depends on its version of Produce (KIP-890).
cdef void refuse_by_coordinator(ProduceItem* items, int at, int code, int16_t version) noexcept nogil

# Refuses the same items if there is no answer of the coordinator: the client may send the batches again. `message`: the reason.
cdef void refuse_unanswered(ProduceItem* items, int at, const char* message) noexcept nogil
