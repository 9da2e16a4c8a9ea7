"""Producer state: find, check, apply, grow, evict, expire, restore and snapshot; see producers.pxd for the layout.

Nothing here takes the slot's mutex: the caller holds it. The arena's own mutex is a leaf: it is taken with the slot's mutex
held, for the choice of a run only, and nothing is taken under it.
"""

from libc.errno cimport EBUSY, ENOMEM, errno
from libc.stdint cimport INT64_MIN, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset
from posix.fcntl cimport O_CREAT, O_RDONLY, O_TRUNC, O_WRONLY
from posix.unistd cimport close

from broker._ext.atomics cimport cpu_pause, store_release_64
from broker._ext.crc32c cimport crc32c
from broker._ext.file_calls cimport file_open, file_rename, file_unlink
from broker._ext.faults cimport PRODUCER_BATCH_STORED, PRODUCER_MARKER_HALF_STORED, PRODUCER_RUN_FILLED, fault
from broker._ext.log_scan cimport read_at, write_at
from broker._ext.records cimport load16, load32, load64, store16, store32, store64
from broker._ext.shared cimport BATCHES_KEPT, Header, Slot, pthread_mutex_t, region


cdef extern from "<errno.h>" nogil:
    int EOWNERDEAD

cdef extern from "<sched.h>" nogil:
    int sched_yield()

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_mutexattr_t:
        pass
    int PTHREAD_PROCESS_SHARED
    int PTHREAD_MUTEX_ROBUST
    int pthread_mutexattr_init(pthread_mutexattr_t*)
    int pthread_mutexattr_setpshared(pthread_mutexattr_t*, int)
    int pthread_mutexattr_setrobust(pthread_mutexattr_t*, int)
    int pthread_mutex_init(pthread_mutex_t*, pthread_mutexattr_t*)
    int pthread_mutex_trylock(pthread_mutex_t*)
    int pthread_mutex_unlock(pthread_mutex_t*)
    int pthread_mutex_consistent(pthread_mutex_t*)


cdef enum:
    ENTRIES_PER_UNIT = 4
    UNIT_SHIFT = 2                # log2 of ENTRIES_PER_UNIT
    LARGEST_RUN_SHIFT = 20
    SNAPSHOT_ENTRY_BYTES = 46
    SNAPSHOT_VERSION = 1

cdef uint64_t TOMBSTONE = ~<uint64_t>0


def initialise_arena():
    """Prepare the arena's mutex; once, by the creator of the mapping."""
    cdef pthread_mutexattr_t attributes
    pthread_mutexattr_init(&attributes)
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED)
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST)
    pthread_mutex_init(&region().header.arena_mutex, &attributes)


# -- the ring word ------------------------------------------------------------------------------------------------

cdef inline uint64_t pack(int16_t epoch, int kept, int newest, int32_t coordinator_epoch) noexcept nogil:
    return (<uint64_t><uint16_t>epoch << 48) | (<uint64_t>kept << 40) | (<uint64_t>newest << 32) | <uint32_t>coordinator_epoch


cdef int16_t entry_epoch(ProducerEntry* entry) noexcept nogil:
    return <int16_t><uint16_t>(entry.ring >> 48)


cdef int entry_batches(ProducerEntry* entry) noexcept nogil:
    return <int>((entry.ring >> 40) & 0xFF)


cdef inline int newest_index(ProducerEntry* entry) noexcept nogil:
    return <int>((entry.ring >> 32) & 0xFF)


cdef inline int32_t coordinator_epoch_of(ProducerEntry* entry) noexcept nogil:
    return <int32_t><uint32_t>entry.ring


cdef ProducerBatch* newest_batch(ProducerEntry* entry) noexcept nogil:
    return batch_back(entry, 0)


cdef ProducerBatch* batch_back(ProducerEntry* entry, int back) noexcept nogil:
    """The batch `back` before the newest, NULL if it is not kept."""
    if back >= entry_batches(entry):
        return NULL
    return &entry.batches[(newest_index(entry) + BATCHES_KEPT - back) % BATCHES_KEPT]


# -- runs ---------------------------------------------------------------------------------------------------------

cdef inline int run_shift(Slot* slot) noexcept nogil:
    return <int>(slot.producer_run & 0xFF) - 1


cdef uint32_t run_entries(Slot* slot) noexcept nogil:
    return 0 if slot.producer_run == 0 else <uint32_t>1 << run_shift(slot)


cdef inline ProducerEntry* entries_at(uint64_t unit) noexcept nogil:
    return <ProducerEntry*>(region().arena + unit * ENTRIES_PER_UNIT * sizeof(ProducerEntry))


cdef ProducerEntry* run_start(Slot* slot) noexcept nogil:
    return NULL if slot.producer_run == 0 else entries_at(slot.producer_run >> 8)


cdef inline uint64_t hashed(int64_t producer_id) noexcept nogil:
    return (<uint64_t>producer_id * <uint64_t>0x9E3779B97F4A7C15) >> 32


cdef ProducerEntry* find_producer(Slot* slot, int64_t producer_id) noexcept nogil:
    cdef uint32_t entries = run_entries(slot), i
    cdef ProducerEntry* start = run_start(slot)
    cdef uint64_t key = <uint64_t>producer_id + 1
    if entries == 0:
        return NULL
    i = <uint32_t>hashed(producer_id) & (entries - 1)
    for _ in range(entries):
        if start[i].key == key:
            return &start[i]
        if start[i].key == 0:
            return NULL
        i = (i + 1) & (entries - 1)
    return NULL


cdef ProducerEntry* vacant(ProducerEntry* start, uint32_t entries, int64_t producer_id, bint* was_free) noexcept nogil:
    """The place for a producer that is not in the run; NULL if there is none."""
    cdef uint32_t i = <uint32_t>hashed(producer_id) & (entries - 1)
    for _ in range(entries):
        if start[i].key == 0 or start[i].key == TOMBSTONE:
            was_free[0] = start[i].key == 0
            return &start[i]
        i = (i + 1) & (entries - 1)
    return NULL


cdef ArenaResult allocate(uint32_t index, Slot* slot, int shift, uint64_t* unit_out) noexcept nogil:
    """Own a run of 2**shift entries; cleared. A run that a death leaves owned but unused is reclaimed by the cleaner."""
    cdef Header* header = region().header
    cdef uint64_t units = <uint64_t>1 << (shift - UNIT_SHIFT), unit, i, tried = 0
    cdef uint64_t owner = (<uint64_t>(index + 1) << 32) | slot.incarnation
    cdef uint64_t* owners = region().arena_owners
    cdef int result = pthread_mutex_trylock(&header.arena_mutex), spins = 2000
    while result == EBUSY and spins > 0:
        cpu_pause()
        spins -= 1
        result = pthread_mutex_trylock(&header.arena_mutex)
    if result == EBUSY:
        return ARENA_BUSY
    if result == EOWNERDEAD:
        pthread_mutex_consistent(&header.arena_mutex)
    unit = header.arena_hint // units * units
    while tried < header.arena_units:
        if unit + units > header.arena_units:
            unit = 0
        i = 0
        while i < units and owners[unit + i] == 0:
            i += 1
        if i == units:
            for i in range(units):
                owners[unit + i] = owner
            header.arena_hint = unit + units
            pthread_mutex_unlock(&header.arena_mutex)
            memset(entries_at(unit), 0, units * ENTRIES_PER_UNIT * sizeof(ProducerEntry))
            unit_out[0] = unit
            return ARENA_READY
        unit += units
        tried += units
    pthread_mutex_unlock(&header.arena_mutex)
    return ARENA_FULL


cdef void release(uint32_t index, Slot* slot, uint64_t run) noexcept nogil:
    """Give a run back that the slot no longer names."""
    cdef uint64_t unit = run >> 8, units, i
    if run == 0:
        return
    units = (<uint64_t>1 << ((run & 0xFF) - 1)) // ENTRIES_PER_UNIT
    for i in range(units):
        store_release_64(&region().arena_owners[unit + i], 0)


cdef ArenaResult move_to(uint32_t index, Slot* slot, int shift, int64_t expire_before_ms) noexcept nogil:
    """Copy the living producers into a new run of 2**shift entries, then swing the slot's word to it."""
    cdef uint64_t unit = 0, old = slot.producer_run
    cdef ProducerEntry* start = run_start(slot)
    cdef ProducerEntry* target
    cdef ProducerEntry* place
    cdef uint32_t entries = run_entries(slot), i, kept = 0
    cdef bint was_free
    cdef ArenaResult result = allocate(index, slot, shift, &unit)
    if result != ARENA_READY:
        return result
    target = entries_at(unit)
    for i in range(entries):
        if start[i].key == 0 or start[i].key == TOMBSTONE or expired(&start[i], expire_before_ms):
            continue
        place = vacant(target, <uint32_t>1 << shift, <int64_t>(start[i].key - 1), &was_free)
        memcpy(place, &start[i], sizeof(ProducerEntry))
        kept += 1
    fault(PRODUCER_RUN_FILLED)
    store_release_64(&slot.producer_run, (unit << 8) | <uint64_t>(shift + 1))
    slot.producer_count = kept
    release(index, slot, old)
    return ARENA_READY


cdef inline bint expired(ProducerEntry* entry, int64_t before_ms) noexcept nogil:
    return entry.last_timestamp < before_ms and entry.transaction_first_offset < 0


cdef bint evict_oldest(Slot* slot) noexcept nogil:
    cdef ProducerEntry* start = run_start(slot)
    cdef ProducerEntry* oldest = NULL
    cdef uint32_t i
    for i in range(run_entries(slot)):
        if start[i].key == 0 or start[i].key == TOMBSTONE or start[i].transaction_first_offset >= 0:
            continue
        if oldest == NULL or start[i].last_timestamp < oldest.last_timestamp:
            oldest = &start[i]
    if oldest == NULL:
        return False
    store_release_64(&oldest.key, TOMBSTONE)
    return True


cdef uint32_t vacancies(Slot* slot, uint32_t enough) noexcept nogil:
    """How many places of the run are free, counted up to `enough`."""
    cdef ProducerEntry* start = run_start(slot)
    cdef uint32_t i, found = 0
    for i in range(run_entries(slot)):
        if start[i].key == 0 or start[i].key == TOMBSTONE:
            found += 1
            if found == enough:
                break
    return found


cdef ArenaResult reserve_producer(uint32_t index, Slot* slot, int64_t producer_id, uint32_t pending) noexcept nogil:
    cdef uint32_t entries = run_entries(slot), wanted = slot.producer_count + pending + 1
    cdef ArenaResult result
    cdef int shift = UNIT_SHIFT
    if find_producer(slot, producer_id) != NULL:
        return ARENA_READY
    if entries and wanted <= entries - entries // 4:
        return ARENA_READY
    while (<uint32_t>1 << shift) - (<uint32_t>1 << shift) // 4 < wanted and shift < LARGEST_RUN_SHIFT:
        shift += 1
    if (<uint32_t>1 << shift) > entries:
        result = move_to(index, slot, shift, INT64_MIN)
        if result != ARENA_FULL or entries == 0:
            return result
    while vacancies(slot, pending + 1) < pending + 1:
        if not evict_oldest(slot):
            return ARENA_FULL
    return ARENA_READY


cdef ProducerEntry* entry_for(Slot* slot, int64_t producer_id, bint* made) noexcept nogil:
    """The producer's entry, or a fresh one whose key is not stored yet (made[0] is 1 then). Room was reserved before."""
    cdef ProducerEntry* entry = find_producer(slot, producer_id)
    cdef bint was_free = False
    made[0] = False
    if entry != NULL or slot.producer_run == 0:
        return entry
    entry = vacant(run_start(slot), run_entries(slot), producer_id, &was_free)
    if entry == NULL:
        return NULL
    memset(<char*>entry + sizeof(uint64_t), 0, sizeof(ProducerEntry) - sizeof(uint64_t))
    entry.ring = pack(-1, 0, 0, -1)
    entry.transaction_first_offset = -1
    entry.last_marker_offset = -1
    made[0] = True
    if was_free:
        slot.producer_count += 1
    return entry


# -- checks and updates -------------------------------------------------------------------------------------------

cdef ProducerCheck check_sequence(ProducerEntry* entry, int16_t epoch, int32_t base_sequence, int32_t last_sequence,
                                  ProducerBatch* duplicate_of) noexcept nogil:
    cdef ProducerBatch* batch
    cdef int back
    if entry == NULL or entry_epoch(entry) == -1:
        return PRODUCER_NEXT            # unknown producer: any sequence starts it (KIP-360)
    if epoch < entry_epoch(entry):
        return PRODUCER_FENCED
    if epoch > entry_epoch(entry):
        return PRODUCER_NEXT if base_sequence == 0 else PRODUCER_OUT_OF_ORDER
    for back in range(entry_batches(entry)):
        batch = batch_back(entry, back)
        if batch.base_sequence == base_sequence and batch.last_sequence == last_sequence:
            duplicate_of[0] = batch[0]
            return PRODUCER_DUPLICATE
    batch = newest_batch(entry)
    if batch == NULL:
        return PRODUCER_NEXT if base_sequence == 0 else PRODUCER_OUT_OF_ORDER
    if base_sequence == (0 if batch.last_sequence == 0x7FFFFFFF else batch.last_sequence + 1):
        return PRODUCER_NEXT
    return PRODUCER_OUT_OF_ORDER


cdef void put_batch(ProducerEntry* entry, int16_t epoch, int32_t coordinator_epoch, int32_t base_sequence,
                    int32_t last_sequence, int64_t base_offset, int64_t last_offset, int64_t timestamp) noexcept nogil:
    cdef int kept = 0 if entry_epoch(entry) != epoch else entry_batches(entry)
    cdef int newest = (newest_index(entry) + 1) % BATCHES_KEPT
    cdef ProducerBatch* batch = &entry.batches[newest]
    batch.base_sequence = base_sequence
    batch.last_sequence = last_sequence
    batch.base_offset = base_offset
    batch.last_offset = last_offset
    batch.timestamp = timestamp
    store_release_64(&entry.ring, pack(epoch, min(kept + 1, BATCHES_KEPT), newest, coordinator_epoch))


cdef void apply_batch(Slot* slot, int64_t producer_id, int16_t epoch, int32_t base_sequence, int64_t base_offset,
                      int64_t last_offset, int64_t timestamp, bint transactional) noexcept nogil:
    cdef bint made = False
    cdef int64_t last_sequence
    cdef ProducerBatch* newest
    cdef ProducerEntry* entry = entry_for(slot, producer_id, &made)
    if entry == NULL:
        return
    newest = newest_batch(entry)
    if not made and (epoch < entry_epoch(entry) or (newest != NULL and newest.last_offset >= last_offset)):
        return                          # a redo of what was applied before
    last_sequence = <int64_t>base_sequence + (last_offset - base_offset)
    if last_sequence > 0x7FFFFFFF:
        last_sequence -= 0x80000000LL
    if transactional and entry.transaction_first_offset < 0:
        entry.transaction_first_offset = base_offset
    entry.last_timestamp = timestamp
    put_batch(entry, epoch, coordinator_epoch_of(entry), base_sequence, <int32_t>last_sequence, base_offset, last_offset,
              timestamp)
    if made:
        store_release_64(&entry.key, <uint64_t>producer_id + 1)
    fault(PRODUCER_BATCH_STORED)
    slot.producers_changed = 1
    if transactional and (slot.first_unstable_offset < 0 or entry.transaction_first_offset < slot.first_unstable_offset):
        slot.first_unstable_offset = entry.transaction_first_offset


cdef void apply_marker(Slot* slot, int64_t producer_id, int16_t epoch, int32_t coordinator_epoch, int64_t offset,
                       int64_t timestamp) noexcept nogil:
    cdef bint made = False
    cdef ProducerEntry* entry = entry_for(slot, producer_id, &made)
    if entry == NULL or (not made and entry.last_marker_offset >= offset):
        return
    entry.last_timestamp = timestamp
    entry.transaction_first_offset = -1
    if epoch != entry_epoch(entry):
        store_release_64(&entry.ring, pack(epoch, 0, newest_index(entry), coordinator_epoch))
    else:
        store_release_64(&entry.ring, pack(epoch, entry_batches(entry), newest_index(entry), coordinator_epoch))
    fault(PRODUCER_MARKER_HALF_STORED)
    store_release_64(<uint64_t*>&entry.last_marker_offset, <uint64_t>offset)    # last: a redo after a death goes by it
    if made:
        store_release_64(&entry.key, <uint64_t>producer_id + 1)
    slot.producers_changed = 1
    settle_first_unstable(slot)


cdef void settle_first_unstable(Slot* slot) noexcept nogil:
    slot.first_unstable_offset = first_unstable_without(slot, -1)   # no producer has the id -1


cdef int64_t first_unstable_without(Slot* slot, int64_t producer_id) noexcept nogil:
    cdef ProducerEntry* start = run_start(slot)
    cdef uint64_t key = <uint64_t>producer_id + 1
    cdef int64_t first = -1
    cdef uint32_t i
    for i in range(run_entries(slot)):
        if start[i].key == 0 or start[i].key == TOMBSTONE or start[i].key == key or start[i].transaction_first_offset < 0:
            continue
        if first < 0 or start[i].transaction_first_offset < first:
            first = start[i].transaction_first_offset
    return first


cdef void recount_producers(Slot* slot) noexcept nogil:
    cdef ProducerEntry* start = run_start(slot)
    cdef uint32_t i, used = 0
    for i in range(run_entries(slot)):
        used += start[i].key != 0
    slot.producer_count = used
    settle_first_unstable(slot)


cdef void settle_last_stable(Slot* slot, int64_t high_watermark) noexcept nogil:
    cdef int64_t stable = high_watermark
    if 0 <= slot.first_unstable_offset < stable:
        stable = max(slot.first_unstable_offset, slot.log_start_offset)     # of a transaction whose beginning was deleted
    store_release_64(<uint64_t*>&slot.last_stable_offset, <uint64_t>stable)


cdef ArenaResult restore_producer(uint32_t index, Slot* slot, int64_t producer_id, int16_t epoch, int32_t coordinator_epoch,
                                  int64_t timestamp, int64_t transaction_first_offset) noexcept nogil:
    cdef bint made = False
    cdef ProducerEntry* entry
    cdef ArenaResult result = reserve_producer(index, slot, producer_id, 0)
    if result != ARENA_READY:
        return result
    entry = entry_for(slot, producer_id, &made)
    if entry == NULL:
        return ARENA_FULL
    entry.last_timestamp = timestamp
    entry.transaction_first_offset = transaction_first_offset
    entry.ring = pack(epoch, 0, 0, coordinator_epoch)
    store_release_64(&entry.key, <uint64_t>producer_id + 1)
    if transaction_first_offset >= 0:
        settle_first_unstable(slot)
    return ARENA_READY


cdef void restore_batch(Slot* slot, int64_t producer_id, int32_t base_sequence, int32_t last_sequence, int64_t base_offset,
                        int64_t last_offset, int64_t timestamp) noexcept nogil:
    cdef ProducerEntry* entry = find_producer(slot, producer_id)
    if entry != NULL:
        put_batch(entry, entry_epoch(entry), coordinator_epoch_of(entry), base_sequence, last_sequence, base_offset,
                  last_offset, timestamp)


cdef void forget_producers(Slot* slot) noexcept nogil:
    """Drop the whole state; its run is reclaimed by the cleaner."""
    store_release_64(&slot.producer_run, 0)
    slot.producer_count = 0
    slot.producers_changed = 1
    slot.first_unstable_offset = -1


cdef int expire_producers(uint32_t index, Slot* slot, int64_t before_ms) noexcept nogil:
    cdef ProducerEntry* start = run_start(slot)
    cdef uint32_t entries = run_entries(slot), i
    cdef int dead = 0, living = 0, shift = UNIT_SHIFT
    for i in range(entries):
        if start[i].key == 0 or start[i].key == TOMBSTONE:
            continue
        if expired(&start[i], before_ms):
            dead += 1
        else:
            living += 1
    if dead == 0:
        return 0
    if living == 0:
        release_all(index, slot)
        return dead
    while (<uint32_t>1 << shift) < <uint32_t>living * 2:
        shift += 1
    return dead if move_to(index, slot, shift, before_ms) == ARENA_READY else -1


cdef void release_all(uint32_t index, Slot* slot) noexcept nogil:
    cdef uint64_t old = slot.producer_run
    forget_producers(slot)
    release(index, slot, old)


# -- snapshot -----------------------------------------------------------------------------------------------------

cdef void encode_entry(ProducerEntry* entry, uint8_t* out) noexcept nogil:
    """One entry of Kafka's snapshot file: its newest batch only."""
    cdef ProducerBatch* newest = newest_batch(entry)
    store64(out, entry.key - 1)
    store16(out + 8, <uint16_t>entry_epoch(entry))
    store32(out + 10, <uint32_t>(newest.last_sequence if newest != NULL else -1))
    store64(out + 14, <uint64_t>(newest.last_offset if newest != NULL else -1))
    store32(out + 22, <uint32_t>(<int32_t>(newest.last_offset - newest.base_offset) if newest != NULL else 0))
    store64(out + 26, <uint64_t>entry.last_timestamp)
    store32(out + 34, <uint32_t>coordinator_epoch_of(entry))
    store64(out + 38, <uint64_t>entry.transaction_first_offset)


cdef int write_snapshot(Slot* slot, int directory_fd, const char* path, const char* temporary_path) noexcept nogil:
    """Write the producer snapshot in Kafka's format (version 1, CRC-32C) and rename it into place; 0, or -errno."""
    cdef uint8_t[64 * SNAPSHOT_ENTRY_BYTES] buffer
    cdef uint8_t[10] head
    cdef ProducerEntry* start = run_start(slot)
    cdef uint32_t i, count = 0, filled, crc
    cdef int fd, result = 0
    cdef int64_t at
    for i in range(run_entries(slot)):
        if start[i].key != 0 and start[i].key != TOMBSTONE:
            count += 1
    fd = file_open(directory_fd, temporary_path, O_WRONLY | O_CREAT | O_TRUNC)
    if fd < 0:
        return -errno
    store16(head, 1)
    store32(head + 6, count)
    crc = crc32c(0, head + 6, 4)
    filled = 0
    at = 10
    for i in range(run_entries(slot)):
        if start[i].key == 0 or start[i].key == TOMBSTONE:
            continue
        encode_entry(&start[i], buffer + filled * SNAPSHOT_ENTRY_BYTES)
        filled += 1
        if filled == 64:
            crc = crc32c(crc, buffer, filled * SNAPSHOT_ENTRY_BYTES)
            result = write_at(fd, buffer, filled * SNAPSHOT_ENTRY_BYTES, at)
            if result != 0:
                break
            at += filled * SNAPSHOT_ENTRY_BYTES
            filled = 0
    if result == 0 and filled:
        crc = crc32c(crc, buffer, filled * SNAPSHOT_ENTRY_BYTES)
        result = write_at(fd, buffer, filled * SNAPSHOT_ENTRY_BYTES, at)
    if result == 0:
        store32(head + 2, crc)
        result = write_at(fd, head, 10, 0)
    close(fd)
    if result == 0 and file_rename(directory_fd, temporary_path, path) != 0:
        result = -errno
    if result != 0:
        file_unlink(directory_fd, temporary_path)
    return result


cdef int restore_entry(uint32_t index, Slot* slot, const uint8_t* entry) noexcept nogil:
    """One entry of a snapshot; 0, or -ENOMEM when the arena is full of open transactions."""
    cdef int64_t producer_id = <int64_t>load64(entry), last_offset = <int64_t>load64(entry + 14)
    cdef int64_t timestamp = <int64_t>load64(entry + 26)
    cdef int32_t last_sequence = <int32_t>load32(entry + 10), delta = <int32_t>load32(entry + 22)
    cdef int16_t epoch = <int16_t>load16(entry + 8)
    cdef int32_t coordinator_epoch = <int32_t>load32(entry + 34)
    cdef int64_t first_offset = <int64_t>load64(entry + 38)
    cdef ArenaResult result = restore_producer(index, slot, producer_id, epoch, coordinator_epoch, timestamp, first_offset)
    while result == ARENA_BUSY:
        sched_yield()
        result = restore_producer(index, slot, producer_id, epoch, coordinator_epoch, timestamp, first_offset)
    if result != ARENA_READY:
        return -ENOMEM
    if last_offset >= 0:
        restore_batch(slot, producer_id, -1 if last_sequence < 0 else <int32_t>((<int64_t>last_sequence - delta) & 0x7FFFFFFF),
                      last_sequence, last_offset - delta, last_offset, timestamp)
    return 0


cdef int read_snapshot(uint32_t index, Slot* slot, int directory_fd, const char* path) noexcept nogil:
    """Add the producers of a snapshot file, which is read twice: its checksum first. 0, 1 if it is corrupt, or -errno."""
    cdef uint8_t[64 * SNAPSHOT_ENTRY_BYTES] buffer
    cdef uint8_t[10] head
    cdef int64_t count = 0, got, at, left
    cdef uint32_t crc
    cdef int fd = file_open(directory_fd, path, O_RDONLY), result = 1, checked, number
    if fd < 0:
        return -errno
    got = read_at(fd, head, sizeof(head), 0)
    for checked in range(2):
        if got < 0:
            break
        count = <int32_t>load32(head + 6)
        if got != sizeof(head) or load16(head) != SNAPSHOT_VERSION or count < 0:
            break
        crc = crc32c(0, head + 6, 4)
        at = sizeof(head)
        left = count
        result = 0
        while result == 0 and left > 0:
            number = 64 if left > 64 else <int>left
            got = read_at(fd, buffer, <size_t>number * SNAPSHOT_ENTRY_BYTES, at)
            if got != number * SNAPSHOT_ENTRY_BYTES:
                result = <int>got if got < 0 else 1
                break
            crc = crc32c(crc, buffer, <size_t>got)
            at += got
            left -= number
            while checked == 1 and result == 0 and number > 0:
                number -= 1
                result = restore_entry(index, slot, buffer + number * SNAPSHOT_ENTRY_BYTES)
        if result == 0 and crc != load32(head + 2):
            result = 1
        if result != 0:
            break
        got = sizeof(head)
    close(fd)
    return <int>got if got < 0 else result
