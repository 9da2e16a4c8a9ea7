"""Owners of producers: the number of a client's address, and the counts by owner; see owners.pxd.

The number is a keyed hash, so that no client can choose whose share of the memory it uses up. Of an IPv6 address the network of 64
bits counts: one host usually has all addresses of it.
"""

import ipaddress

from libc.errno cimport ENOMEM
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from broker._ext.atomics cimport exchange_64, fetch_add_i32, load_acquire_64
from broker._ext.producer_runs cimport Run, open_run
from broker._ext.shared cimport PRODUCER_OWNERS, SLOT_DELETED, Slot, region, slot_at
from broker._ext.siphash cimport hash_bytes


cdef uint32_t owner_of(str peer) except? 0:
    cdef bytes address
    cdef const uint8_t* p
    cdef str host = peer.rpartition(":")[0].strip("[]") or peer
    if region().header == NULL:
        return OWNER_NOBODY
    try:
        found = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        address = host.encode("utf-8", "surrogateescape")
    else:
        mapped = getattr(found, "ipv4_mapped", None)
        address = (mapped or found).packed[:8]
    p = <const uint8_t*><const char*>address
    return 1 + <uint32_t>(hash_bytes(region().header.hash_key, p, <size_t>len(address)) % (PRODUCER_OWNERS - 1))


def number_of(str peer not None):
    """The owner of the producers that a connection from `peer` ("host:port") brings."""
    return owner_of(peer)


def producers_of(uint32_t owner):
    """How many producers an owner has, by the table of counts."""
    return region().owner_counts[owner % PRODUCER_OWNERS]


# -- counting again -----------------------------------------------------------------------------------------------------

cdef void count_slot(Slot* slot, int32_t* counts) noexcept nogil:
    """Without the slot's lock: what changes meanwhile may be counted or not."""
    cdef Run run
    cdef uint64_t word = load_acquire_64(&slot.producer_run)
    cdef uint32_t i
    if word == 0 or slot.state == SLOT_DELETED:
        return
    open_run(word, &run)
    for i in range(min(run.head.used, run.capacity)):
        if run.entries[i].key and run.entries[i].owner < PRODUCER_OWNERS:
            counts[run.entries[i].owner] += 1


cdef int count_all() noexcept nogil:
    """Bring the counts to what the entries say; what other processes add meanwhile stays. 0, or -ENOMEM."""
    cdef int32_t* seen = <int32_t*>malloc(PRODUCER_OWNERS * sizeof(int32_t))
    cdef int32_t* counts = <int32_t*>calloc(PRODUCER_OWNERS, sizeof(int32_t))
    cdef uint64_t i
    cdef int result = 0
    if seen == NULL or counts == NULL:
        result = -ENOMEM
    else:
        memcpy(seen, region().owner_counts, PRODUCER_OWNERS * sizeof(int32_t))
        for i in range(region().header.slots_used):
            count_slot(slot_at(<uint32_t>i), counts)
        for i in range(1, PRODUCER_OWNERS):
            if counts[i] != seen[i]:
                fetch_add_i32(&region().owner_counts[i], counts[i] - seen[i])
    free(seen)
    free(counts)
    return result


def count_again():
    """If a process died or a partition lost its producers since the last call: count the producers of each owner anew. Whether."""
    cdef int result
    if exchange_64(&region().header.owners_stale, 0) == 0:
        return False
    with nogil:
        result = count_all()
    if result != 0:
        region().header.owners_stale = 1
        raise MemoryError("no memory to count the producers of each client")
    return True
