"""The begin and the end of every change of a slot; see slot_access.pxd.

Any process, any thread, without the GIL. The calling thread holds the slot's mutex, except for `take_slot` and `wait_slot`.
"""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from posix.time cimport nanosleep, timespec

from odradek._ext.partition.append_files cimport drop_files
from odradek._ext.partition.commits cimport current, new_generation
from odradek._ext.partition.leader_epochs cimport read_epochs
from odradek._ext.partition.log_writing cimport clear_recent
from odradek._ext.partition.redo cimport redo
from odradek._ext.partition.removal cimport INTENT_REMOVE, finish_removal
from odradek._ext.partition.segment_files cimport cut_leftover, unlink_segment
from odradek._ext.partition.swapping cimport INTENT_SWAP, finish_swap
from odradek._ext.partition.truncation cimport INTENT_RESTART, INTENT_TRUNCATE, finish_restart, finish_truncation
from odradek._ext.shm.atomics cimport count_64, store_relaxed_8, store_release_32, store_release_64
from odradek._ext.shm.clock cimport monotonic_ms
from odradek._ext.shm.faults cimport *
from odradek._ext.shm.layout cimport region
from odradek._ext.shm.locks cimport (
    LOCK_BUSY,
    LOCK_OWNER_DIED,
    LOCK_TAKEN,
    SPINS_OF_THREAD,
    LockResult,
    mark_consistent,
    try_lock,
    unlock,
)
from odradek._ext.shm.slot cimport (
    EPOCH_KEPT,
    EPOCH_STORED,
    ROLE_LEADER,
    ROLE_NONE,
    SLOT_LOADING,
    SLOT_OFFLINE,
    SLOT_ONLINE,
    SLOT_REMOTE,
    Commit,
    Slot,
    slot_at,
)
from odradek._ext.shm.waking cimport wake_everyone
from odradek._ext.storage.log_dirs cimport is_device_failure, is_full, note_device


cdef void note_failure(Slot* slot, int result) noexcept nogil:
    """A failed device takes its whole log directory out of use. A full device does not; the write may be retried."""
    note_device(slot.log_dir, result)
    if is_device_failure(result):
        store_release_32(&slot.state, SLOT_OFFLINE)


cdef void load_again(Slot* slot) noexcept nogil:
    if slot.begun_epoch == EPOCH_STORED:
        store_relaxed_8(&slot.begun_epoch, EPOCH_KEPT)         # clients were served in this epoch [R 3.5]
    store_release_32(&slot.state, SLOT_LOADING)


cdef void give_up(Slot* slot, int result) noexcept nogil:
    note_device(slot.log_dir, result)
    if is_full(result):
        store_release_64(&slot.intent, 0)     # loading finds the log in its partly cut state
        load_again(slot)
    else:
        store_release_32(&slot.state, SLOT_OFFLINE)


cdef AppendResult check_slot(Slot* slot, uint32_t incarnation, int32_t leader_epoch, uint32_t role) noexcept nogil:
    if slot.incarnation != incarnation:
        return APPEND_STALE
    if slot.state != SLOT_ONLINE:
        if slot.state == SLOT_LOADING or slot.state == SLOT_REMOTE:
            return APPEND_NOT_LEADER        # its log lacks disk space and will be loaded again; or other brokers have the replicas
        return APPEND_OFFLINE if slot.state == SLOT_OFFLINE else APPEND_STALE
    if region().header.log_dir_offline[slot.log_dir]:
        return APPEND_OFFLINE
    if slot.role != role:
        return APPEND_NOT_LEADER
    if leader_epoch >= 0 and slot.leader_epoch != leader_epoch \
            and (role != ROLE_LEADER or not slot.led_since <= leader_epoch < slot.leader_epoch):
        return APPEND_FENCED_EPOCH
    return APPEND_OK


cdef int recover(uint32_t index, Slot* slot) noexcept nogil:
    """Restore a slot whose holder died to its last commit. Returns 0, or -errno. A death at any point does no harm."""
    cdef Commit* commit = current(slot)
    cdef int result = 0
    count_64(&slot.lock_recoveries, 1)
    if slot.role_epoch < 0 and region().header.clustered:
        store_release_32(&slot.role, ROLE_NONE)           # an assignment was not completed; the controller repeats it [R 10]
    fault(RECOVER_STARTED)
    drop_files(index)
    if slot.state == SLOT_ONLINE:
        if slot.intent == INTENT_TRUNCATE:
            result = finish_truncation(index, slot)
            commit = current(slot)
        elif slot.intent == INTENT_RESTART:
            result = finish_restart(index, slot)
            commit = current(slot)
        elif slot.intent == INTENT_REMOVE:
            result = finish_removal(slot)
        elif slot.intent == INTENT_SWAP:
            result = finish_swap(slot)
        if result == 0:
            result = read_epochs(slot)
        if result == 0:
            if commit.log_end_offset != commit.segment_base:
                unlink_segment(slot, commit.log_end_offset)     # left by a roll that was not committed
            slot.uncut = 1
            result = cut_leftover(slot)
        fault(RECOVER_FILES_CUT)
        if result == 0:
            result = redo(index, slot)
        if slot.recent_sequence & 1:
            clear_recent(slot)
        new_generation(slot)            # the dead process may have published a roll without changing the generation
    fault(RECOVER_BEFORE_CONSISTENT)
    if result != 0:
        give_up(slot, result)
    return result


cdef LockResult take_slot(uint32_t index, Slot* slot, int spins) noexcept nogil:
    cdef LockResult taken = try_lock(index, slot, spins)
    if taken == LOCK_OWNER_DIED:
        recover(index, slot)
        mark_consistent(slot)           # also after a failure: the slot is offline then
        wake_everyone(index, slot)
        return LOCK_TAKEN
    return taken


cdef int wait_slot(uint32_t index, Slot* slot, int64_t timeout_ms) noexcept nogil:
    cdef int64_t until = monotonic_ms() + timeout_ms
    cdef timespec pause
    pause.tv_sec = 0
    pause.tv_nsec = 200000
    while take_slot(index, slot, SPINS_OF_THREAD) == LOCK_BUSY:
        if monotonic_ms() > until:
            return -1
        nanosleep(&pause, NULL)         # no event reports the release of another process's lock; limited by the time-out
    return 0


cdef void recover_dead_owners() noexcept nogil:
    cdef uint64_t i
    for i in range(region().header.slots_used):
        if take_slot(<uint32_t>i, slot_at(<uint32_t>i), 0) != LOCK_BUSY:
            unlock(<uint32_t>i, slot_at(<uint32_t>i))
