"""Publishes producer snapshots: those that rolls and the ordered stop wrote are synced and then renamed to their final names.

Runs in the cleaner and in the ordered stop. No slot's mutex is held during a sync; it is held for the renaming. The count of
truncations shows a truncation in between, which leaves all files to the next pass. The count of snapshot writes shows that the
newest snapshot was written again in between, which leaves that one to the next pass. No start needs a snapshot that is not in
place yet.
"""

import threading

from libc.errno cimport ENOENT, errno
from libc.stdint cimport int64_t, uint32_t, uint64_t, uint8_t
from libc.stdlib cimport free, malloc, strtoll
from libc.string cimport memset, strcmp
from posix.fcntl cimport O_RDONLY
from posix.unistd cimport close

from odradek._ext.partition.append_files cimport open_directory, read_directory
from odradek._ext.partition.producer_snapshots cimport check_snapshot, snapshot_paths
from odradek._ext.partition.slot_access cimport wait_slot
from odradek._ext.partition.slots cimport LOCK_PATIENCE_MS, name_of
from odradek._ext.shm.atomics cimport store_relaxed_i64
from odradek._ext.shm.c_library cimport syncfs
from odradek._ext.shm.faults cimport SNAPSHOT_RENAMED, SNAPSHOT_SYNCED, fault
from odradek._ext.shm.layout cimport MAX_LOG_DIRS, region
from odradek._ext.shm.locks cimport unlock
from odradek._ext.shm.slot cimport SLOT_ONLINE, Slot, slot_at
from odradek._ext.storage.directories cimport DIR, closedir, dirent, readdir
from odradek._ext.storage.file_calls cimport file_data_sync, file_error, file_open, file_rename, file_sync, file_unlink
from odradek._ext.storage.log_dirs cimport log_dir_failed, note_device

from odradek._ext.storage.log_dirs import SYNCFS_REPORTS_ERRORS


cdef enum:
    AT_ONCE = 16                  # snapshots of a log in one round; more of them take another round
    ALL_FROM = 64                 # from this number of logs in a directory on, its whole file system is synced
    BEAT_EVERY = 64               # logs


cdef struct Publishing:           # of one slot
    uint32_t index
    uint32_t incarnation
    uint64_t truncations
    uint64_t writes
    int64_t below                 # snapshots of offsets below this one are completely written
    int64_t[AT_ONCE] offsets
    uint8_t[AT_ONCE] sound
    int count
    int result                    # 0, or -errno
    bint device_failed
    bint renamed
    bint partial                  # some files could not be read


# -- the steps of one slot ---------------------------------------------------------------------------------------------

cdef bint begin(uint32_t index, Publishing* publishing) noexcept nogil:
    """Whether the slot has snapshots that are not in place. The mutex is taken to ensure that none of them is half written; if
    it is not available, the next pass tries again."""
    cdef Slot* slot = slot_at(index)
    if slot.pending_snapshot == 0 or slot.state != SLOT_ONLINE or region().header.log_dir_offline[slot.log_dir]:
        return False
    if wait_slot(index, slot, LOCK_PATIENCE_MS) != 0:
        return False
    memset(publishing, 0, sizeof(Publishing))
    publishing.index = index
    publishing.incarnation = slot.incarnation
    publishing.truncations = slot.truncations
    publishing.writes = slot.snapshot_writes
    publishing.below = slot.pending_snapshot if slot.state == SLOT_ONLINE else 0
    unlock(index, slot)
    return publishing.below > 0


cdef void find(Publishing* publishing) noexcept nogil:
    """Find the snapshots that are not in place, in the order of the directory."""
    cdef int error = 0
    cdef DIR* directory = read_directory(slot_at(publishing.index), &error)
    cdef dirent* entry
    cdef int64_t offset
    cdef char* end
    if directory == NULL:
        publishing.result = 0 if error == -ENOENT else error
        return
    while publishing.count < AT_ONCE:
        entry = readdir(directory)
        if entry == NULL:
            break
        offset = strtoll(entry.d_name, &end, 10)
        if end != entry.d_name and strcmp(end, b".snapshot.tmp") == 0 and offset < publishing.below:
            publishing.offsets[publishing.count] = offset
            publishing.count += 1
    closedir(directory)


cdef void sync(Publishing* publishing, bint each) noexcept nogil:
    """Check the snapshots, and sync each to the device (`each`; otherwise the caller syncs the file system)."""
    cdef Slot* slot = slot_at(publishing.index)
    cdef char[384] path
    cdef char[400] temporary
    cdef int i, fd, checked
    find(publishing)
    for i in range(publishing.count):
        snapshot_paths(slot, publishing.offsets[i], path, temporary)
        fd = file_open(region().header.log_dir_fds[slot.log_dir], temporary, O_RDONLY)
        if fd < 0:
            publishing.result = 0 if errno == ENOENT else -errno
            publishing.partial = True   # a file was removed: the next pass looks again
            publishing.count = i
            return
        checked = check_snapshot(fd)
        publishing.sound[i] = checked == 0
        if checked < 0:
            publishing.result = checked
        elif checked == 0 and each and file_data_sync(fd) != 0:
            publishing.result = -errno
            publishing.device_failed = True
        close(fd)
        if publishing.result != 0:
            return


cdef bint is_superseded(Slot* slot, Publishing* publishing, int number) noexcept nogil:
    """Whether the snapshot belongs to a segment that was removed meanwhile, and a newer snapshot exists."""
    return publishing.offsets[number] < slot.log_start_offset and publishing.offsets[number] + 1 < publishing.below


cdef bint is_written_again(Slot* slot, Publishing* publishing, int number) noexcept nogil:
    """Whether its content may differ from what was synced. Only the newest snapshot can be written again without a truncation,
    because a snapshot is written at the log's end."""
    return slot.snapshot_writes != publishing.writes and publishing.offsets[number] + 1 == publishing.below


cdef int settle(Publishing* publishing) noexcept nogil:
    """Rename the synced snapshots to their final names; remove those with a bad checksum, whose writers died. Returns 0, or
    -errno."""
    cdef Slot* slot = slot_at(publishing.index)
    cdef char[384] path
    cdef char[400] temporary
    cdef int directory = region().header.log_dir_fds[slot.log_dir], i, result
    if publishing.device_failed:
        log_dir_failed(slot.log_dir)
    if publishing.result != 0:
        note_device(slot.log_dir, publishing.result)
        return publishing.result
    if wait_slot(publishing.index, slot, LOCK_PATIENCE_MS) != 0:
        return 0                        # the next pass tries again
    if slot.incarnation == publishing.incarnation and slot.truncations == publishing.truncations and slot.state == SLOT_ONLINE:
        for i in range(publishing.count):
            if is_written_again(slot, publishing, i):
                continue                # left to the next pass
            snapshot_paths(slot, publishing.offsets[i], path, temporary)
            if publishing.sound[i] and not is_superseded(slot, publishing, i):
                result = file_rename(directory, temporary, path)
            else:
                result = file_unlink(directory, temporary)
            if result != 0 and errno != ENOENT:
                publishing.result = -errno
                note_device(slot.log_dir, publishing.result)
                break
            publishing.renamed = True
            fault(SNAPSHOT_RENAMED)
        if publishing.result == 0 and publishing.count < AT_ONCE and not publishing.partial \
                and slot.snapshot_writes == publishing.writes:
            store_relaxed_i64(&slot.pending_snapshot, 0)
    unlock(publishing.index, slot)
    return publishing.result


cdef void sync_name(Publishing* publishing) noexcept nogil:
    cdef Slot* slot = slot_at(publishing.index)
    cdef int fd
    if not publishing.renamed:
        return
    fd = open_directory(slot)
    if fd < 0:
        publishing.result = 0 if fd == -ENOENT else fd
        return
    if file_sync(fd) != 0:
        publishing.result = -errno
        log_dir_failed(slot.log_dir)
    close(fd)


# -- all slots ---------------------------------------------------------------------------------------------------------

cdef class Round:
    """One pass over the snapshots of many slots. Each step handles all of them; steps that wait for a device run in a thread.
    """

    cdef Publishing* items
    cdef Py_ssize_t count
    cdef uint8_t[MAX_LOG_DIRS] whole      # log directories whose file systems are synced as a whole
    cdef readonly dict failed
    cdef object beat

    def __dealloc__(self):
        free(self.items)

    cdef int gather(self) except -1:
        cdef uint64_t used = region().header.slots_used, i
        cdef int[MAX_LOG_DIRS] logs
        cdef int directory
        cdef bint started
        memset(logs, 0, sizeof(logs))
        for i in range(used):
            self.count += slot_at(<uint32_t>i).pending_snapshot > 0
        self.items = <Publishing*>malloc(max(self.count, 1) * sizeof(Publishing))
        if self.items == NULL:
            raise MemoryError(f"no memory to publish the producer snapshots of {self.count} logs")
        used = <uint64_t>self.count
        self.count = 0
        for i in range(region().header.slots_used):
            if self.count == <Py_ssize_t>used:
                break
            with nogil:
                started = begin(<uint32_t>i, &self.items[self.count])
            if started:
                logs[slot_at(<uint32_t>i).log_dir] += 1
                self.count += 1
        for directory in range(MAX_LOG_DIRS):
            self.whole[directory] = SYNCFS_REPORTS_ERRORS and logs[directory] >= ALL_FROM
        return 0

    cdef bint is_whole(self, Py_ssize_t number) noexcept nogil:
        return self.whole[slot_at(self.items[number].index).log_dir] != 0

    cdef void sync_directories(self) noexcept nogil:
        cdef int directory, error
        cdef Py_ssize_t i
        for directory in range(MAX_LOG_DIRS):
            if not self.whole[directory]:
                continue
            error = errno if syncfs(region().header.log_dir_fds[directory]) != 0 else 0
            for i in range(self.count):
                if error and slot_at(self.items[i].index).log_dir == directory:
                    self.items[i].result = -error
                    self.items[i].device_failed = True

    def sync(self) -> None:
        """Sync the content of the snapshots to the device."""
        cdef Py_ssize_t i
        with nogil:
            for i in range(self.count):
                sync(&self.items[i], not self.is_whole(i))
            self.sync_directories()
            fault(SNAPSHOT_SYNCED)

    def sync_names(self) -> None:
        """Sync the directory entries of the renamed snapshots to the device."""
        cdef Py_ssize_t i
        with nogil:
            for i in range(self.count):
                if not self.is_whole(i):
                    sync_name(&self.items[i])
            self.sync_directories()

    def in_thread(self, step) -> None:
        """Run a step that waits for a device in a thread, and call `beat` every half second and at its end."""
        cdef bint running = True
        thread = threading.Thread(target=step, name="snapshots")
        try:
            thread.start()
        except RuntimeError:            # the system starts no thread: run without beats
            step()
            return
        while running:
            thread.join(0.5)
            running = thread.is_alive()
            if self.beat is not None:
                self.beat()

    def run(self) -> bool:
        """Publish all snapshots that are not in place. Returns whether there are more."""
        cdef Py_ssize_t i
        cdef bint more = False
        self.failed = {}
        self.gather()
        if self.count == 0:
            return False
        self.in_thread(self.sync)
        for i in range(self.count):
            with nogil:
                settle(&self.items[i])
            more |= self.items[i].count == AT_ONCE and self.items[i].renamed
            if i % BEAT_EVERY == 0 and self.beat is not None:
                self.beat()
        self.in_thread(self.sync_names)
        for i in range(self.count):
            self.note(&self.items[i])
        return more

    cdef note(self, Publishing* item):
        cdef Slot* slot = slot_at(item.index)
        if item.result != 0:
            self.failed[item.index] = file_error(-item.result, f"{name_of(slot)} producer snapshot")


def publish(beat=None) -> dict[int, OSError]:
    """Publish all producer snapshots that were written since the last call. Returns {slot: OSError} of those for which this
    failed.

    :param beat: called from time to time.
    """
    cdef Round round
    failed = {}
    more = True
    while more and not failed:
        round = Round()
        round.beat = beat
        more = round.run()
        failed = round.failed
    return failed


def pending() -> list[int]:
    """Slots in service with snapshots that are not in place, as a list."""
    cdef uint64_t i
    return [i for i in range(region().header.slots_used)
            if slot_at(<uint32_t>i).pending_snapshot > 0 and slot_at(<uint32_t>i).state == SLOT_ONLINE]
