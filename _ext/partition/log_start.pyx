"""Raise the log start offset, roll an expired segment, remove the oldest segments; see log_start.pxd.

Called by the coordinator (DeleteRecords) and the cleaner (retention), which wait for the slot's lock; never from a loop.
"""

from libc.errno cimport ENOENT, errno
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from posix.fcntl cimport O_RDONLY
from posix.time cimport nanosleep, timespec
from posix.unistd cimport close

from odradek._ext.partition.append_files cimport directory_path, open_in_slot
from odradek._ext.partition.producers cimport settle_last_stable
from odradek._ext.partition.removal cimport INTENT_REMOVE, finish_removal
from odradek._ext.partition.rolling cimport roll_now
from odradek._ext.partition.slot_access cimport (
    APPEND_BUSY,
    APPEND_IO_ERROR,
    APPEND_OK,
    APPEND_OUT_OF_RANGE,
    AppendResult,
    check_slot,
    note_failure,
    take_slot,
)
from odradek._ext.shm.atomics cimport store_release_64, store_release_i64
from odradek._ext.shm.clock cimport monotonic_ms, now_ms
from odradek._ext.shm.faults cimport *
from odradek._ext.shm.layout cimport region
from odradek._ext.shm.locks cimport LOCK_BUSY, SPINS_OF_THREAD, unlock
from odradek._ext.shm.slot cimport ROLE_NONE, SLOT_ONLINE, Commit, Slot, read_commit, slot_at
from odradek._ext.shm.waking cimport wake_after
from odradek._ext.storage.file_calls cimport file_error, file_rename
from odradek._ext.storage.log_state cimport FILE_LOG


cdef AppendResult advance_log_start(uint32_t index, uint32_t incarnation, uint32_t role, int32_t leader_epoch, int64_t offset,
                                    int spins, int64_t* log_start) noexcept nogil:
    cdef Slot* slot = slot_at(index)
    cdef Commit commit
    cdef AppendResult checked
    cdef bint moved = False
    log_start[0] = -1
    if take_slot(index, slot, spins) == LOCK_BUSY:
        return APPEND_BUSY
    checked = check_slot(slot, incarnation, leader_epoch, slot.role if role == ROLE_NONE else role)
    if checked == APPEND_OK:
        read_commit(slot, &commit)
        if offset == HIGH_WATERMARK:
            offset = commit.high_watermark
        if offset < 0 or offset > commit.high_watermark:
            checked = APPEND_OUT_OF_RANGE
        elif offset > slot.log_start_offset:
            store_release_i64(&slot.log_start_offset, offset)
            fault(REMOVE_LOG_START_STORED)
            settle_last_stable(slot, commit.high_watermark)
            store_release_64(&slot.generation, slot.generation + 1)
            moved = True
        log_start[0] = slot.log_start_offset
    unlock(index, slot)
    if moved:
        wake_after(index, slot, True, True)     # a reader that waits at a removed offset must notice that
    return checked


cdef AppendResult roll_behind(uint32_t index, uint32_t incarnation, int64_t base, int64_t end, int64_t wall_ms, int spins,
                              int* error_number) noexcept nogil:
    cdef Slot* slot = slot_at(index)
    cdef Commit commit
    cdef AppendResult checked
    cdef int result = 0
    error_number[0] = 0
    if take_slot(index, slot, spins) == LOCK_BUSY:
        return APPEND_BUSY
    checked = check_slot(slot, incarnation, -1, slot.role)
    if checked == APPEND_OK:
        read_commit(slot, &commit)
        if commit.segment_base != base or commit.log_end_offset != end or commit.high_watermark < end or commit.size == 0:
            checked = APPEND_OUT_OF_RANGE       # an append or a truncation came in between
        else:
            result = roll_now(index, slot, wall_ms)
            note_failure(slot, result)
    unlock(index, slot)
    error_number[0] = -result
    return checked if result == 0 else APPEND_IO_ERROR


cdef AppendResult remove_segments_before(uint32_t index, uint32_t incarnation, int64_t keep, int spins,
                                         int* error_number) noexcept nogil:
    cdef Slot* slot = slot_at(index)
    cdef Commit commit
    cdef AppendResult checked
    cdef int result = 0, fd
    error_number[0] = 0
    if take_slot(index, slot, spins) == LOCK_BUSY:
        return APPEND_BUSY
    checked = check_slot(slot, incarnation, -1, slot.role)
    if checked == APPEND_OK:
        read_commit(slot, &commit)
        if keep > slot.log_start_offset or keep > commit.segment_base:
            checked = APPEND_OUT_OF_RANGE
        else:
            # If `keep` is the base of a segment, every earlier segment ends before it. A truncation or a compaction may have
            # changed that.
            fd = open_in_slot(slot, keep, FILE_LOG, O_RDONLY)
            if fd == -ENOENT:
                checked = APPEND_OUT_OF_RANGE
            elif fd < 0:
                result = fd
            else:
                close(fd)
    if checked == APPEND_OK and result == 0:
        slot.intent_arguments[0] = keep
        store_release_64(&slot.intent, INTENT_REMOVE)
        fault(REMOVE_INTENT_STORED)
        result = finish_removal(slot)
    note_failure(slot, result)
    unlock(index, slot)
    error_number[0] = -result
    return checked if result == 0 else APPEND_IO_ERROR


cdef AppendResult replace_epochs(uint32_t index, uint32_t incarnation, uint64_t generation, int32_t epoch_count, const char* fresh,
                                 int spins, int* error_number) noexcept nogil:
    """The slot's ring stays unchanged, because readers skip epochs that end before the log start offset."""
    cdef Slot* slot = slot_at(index)
    cdef AppendResult checked
    cdef char[384] directory
    cdef char[512] path
    cdef char[512] temporary
    cdef int result = 0
    error_number[0] = 0
    if take_slot(index, slot, spins) == LOCK_BUSY:
        return APPEND_BUSY
    checked = check_slot(slot, incarnation, -1, slot.role)
    if checked == APPEND_OK and (slot.generation != generation or slot.epoch_count != epoch_count):
        checked = APPEND_OUT_OF_RANGE           # the log was cut or an epoch began, and the new file does not contain that
    if checked == APPEND_OK:
        directory_path(slot, directory)
        snprintf(path, 512, "%s/leader-epoch-checkpoint", directory)
        snprintf(temporary, 512, "%s/%s", directory, fresh)
        if file_rename(region().header.log_dir_fds[slot.log_dir], temporary, path) != 0:
            result = -errno
            note_failure(slot, result)
    unlock(index, slot)
    error_number[0] = -result
    return checked if result == 0 else APPEND_IO_ERROR


# -- for the control path -----------------------------------------------------------------------------------------

cdef bint pause_until(int64_t until_ms) noexcept nogil:
    """Wait a little for another process's lock, which no event reports. Returns False once `until_ms` (CLOCK_MONOTONIC) has
    passed."""
    cdef timespec pause
    if monotonic_ms() > until_ms:
        return False
    pause.tv_sec = 0
    pause.tv_nsec = 200000
    nanosleep(&pause, NULL)
    return True


def advance(uint32_t index, int64_t offset, *, uint32_t incarnation, uint32_t role=ROLE_NONE, int leader_epoch=-1,
            int64_t timeout_ms=15000) -> tuple[AppendResult, int]:
    """Raise the log start offset. Returns (AppendResult, log start offset afterwards); the result is OK also if the offset
    was not lower.

    :param offset: the first offset that remains; -1 for the high watermark.
    :param role: the Role that the slot must have; ROLE_NONE for any.
    :param timeout_ms: how long to wait for the slot's lock.
    """
    cdef AppendResult result
    cdef int64_t until = monotonic_ms() + timeout_ms, log_start = -1
    with nogil:
        result = advance_log_start(index, incarnation, role, leader_epoch, offset, SPINS_OF_THREAD, &log_start)
        while result == APPEND_BUSY and pause_until(until):
            result = advance_log_start(index, incarnation, role, leader_epoch, offset, SPINS_OF_THREAD, &log_start)
    return result, log_start


def roll(uint32_t index, int64_t base, int64_t end, *, uint32_t incarnation, int64_t timeout_ms=15000) -> AppendResult:
    """Begin a new active segment if the current one still begins at `base`, ends at `end` and is committed. Returns the AppendResult.

    :raises OSError: the new segment could not be created.
    """
    cdef AppendResult result
    cdef int64_t until = monotonic_ms() + timeout_ms
    cdef int error_number = 0
    with nogil:
        result = roll_behind(index, incarnation, base, end, now_ms(), SPINS_OF_THREAD, &error_number)
        while result == APPEND_BUSY and pause_until(until):
            result = roll_behind(index, incarnation, base, end, now_ms(), SPINS_OF_THREAD, &error_number)
    if error_number:
        raise file_error(error_number, "a file of the log")
    return result


def remove_before(uint32_t index, int64_t keep, *, uint32_t incarnation, int64_t timeout_ms=15000) -> AppendResult:
    """Rename the files of all segments before the one at `keep`, which is not above the log start offset. Returns the AppendResult.

    :raises OSError: a file could not be renamed; the files before it are already renamed.
    """
    cdef AppendResult result
    cdef int64_t until = monotonic_ms() + timeout_ms
    cdef int error_number = 0
    with nogil:
        result = remove_segments_before(index, incarnation, keep, SPINS_OF_THREAD, &error_number)
        while result == APPEND_BUSY and pause_until(until):
            result = remove_segments_before(index, incarnation, keep, SPINS_OF_THREAD, &error_number)
    if error_number:
        raise file_error(error_number, "a file of the log")
    return result


def put_epochs(uint32_t index, bytes fresh not None, *, uint32_t incarnation, uint64_t generation, int epoch_count,
               int64_t timeout_ms=15000) -> AppendResult:
    """Make a file of the partition's directory its leader-epoch checkpoint, if the log is unchanged since `facts`. Returns the
    AppendResult.

    :param fresh: the file's name; its content is on the device.
    :raises OSError: the file could not be renamed; the former checkpoint remains.
    """
    cdef AppendResult result
    cdef int64_t until = monotonic_ms() + timeout_ms
    cdef int error_number = 0
    cdef const char* name = fresh
    with nogil:
        result = replace_epochs(index, incarnation, generation, epoch_count, name, SPINS_OF_THREAD, &error_number)
        while result == APPEND_BUSY and pause_until(until):
            result = replace_epochs(index, incarnation, generation, epoch_count, name, SPINS_OF_THREAD, &error_number)
    if error_number:
        raise file_error(error_number, "the leader-epoch checkpoint")
    return result


def settle_intent(uint32_t index) -> None:
    """If the slot's last holder died during a structural change, finish the change now instead of at the next append."""
    cdef Slot* slot = slot_at(index)
    cdef int64_t until = monotonic_ms() + 15000
    if slot.intent == 0:
        return
    with nogil:
        while take_slot(index, slot, SPINS_OF_THREAD) == LOCK_BUSY:
            if not pause_until(until):
                with gil:
                    return
        unlock(index, slot)


def generations() -> list[int]:
    """The generation of every slot ever assigned; -1 for a slot without an open log."""
    cdef uint64_t i
    return [<int64_t>slot_at(<uint32_t>i).generation if slot_at(<uint32_t>i).state == SLOT_ONLINE else -1
            for i in range(region().header.slots_used)]


def meet_fault(int point) -> None:
    """A fault point of a step that is written in Python (debug build; does nothing in a release build)."""
    fault(point)
