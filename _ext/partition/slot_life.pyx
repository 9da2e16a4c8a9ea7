"""The life of a slot under the control path: assigned to a partition, given a role, offline, deleted.

`slot_loading` fills a slot from its log. Called by the coordinator, the loaders and the cleaner, which wait for the slot's lock if
necessary; never from a worker's loop.
The rules are in ``broker/odradek/shm/README.md``, especially 3 and 8; the `intent` of a deletion is in the coordinator's
durable store.
"""

import os

from odradek._ext.partition.slots import SlotChanged

from libc.errno cimport ENOENT, errno
from libc.stdint cimport int32_t, int64_t, uint16_t, uint32_t, uint64_t, uint8_t
from libc.string cimport memcpy, memset

from odradek._ext.partition.append_files cimport directory_path, drop_files
from odradek._ext.partition.high_watermark cimport move_high_watermark
from odradek._ext.partition.log_writing cimport clear_recent
from odradek._ext.partition.producers cimport forget_producers, forget_transactions
from odradek._ext.partition.removed_files cimport note_removed_files
from odradek._ext.partition.slot_access cimport wait_slot
from odradek._ext.partition.slots cimport LOCK_PATIENCE_MS, busy, checked_slot, name_of, topic_of
from odradek._ext.shm.atomics cimport (
    clear_words,
    fence_release,
    fill_ids,
    fill_words,
    store_relaxed_32,
    store_relaxed_64,
    store_relaxed_8,
    store_relaxed_i32,
    store_relaxed_i64,
    store_release_32,
    store_release_64,
    store_release_i32,
    store_release_i64,
)
from odradek._ext.shm.clock cimport monotonic_ms
from odradek._ext.shm.faults cimport *
from odradek._ext.shm.layout cimport (
    CHANGE_RING,
    COORDINATOR,
    REPLICATOR,
    SERVING,
    STARTING,
    WORKER,
    Header,
    Process,
    region,
)
from odradek._ext.shm.locks cimport initialise_mutex, unlock
from odradek._ext.shm.partition_view cimport MAX_IN_SYNC
from odradek._ext.shm.slot cimport (
    EPOCH_KEPT,
    EPOCH_STORED,
    EPOCH_UNSTORED,
    IN_SYNC_COMMITTED,
    MAX_TOPIC_BYTES,
    ROLE_NONE,
    SLOT_DELETED,
    SLOT_FREE,
    SLOT_LOADING,
    SLOT_OFFLINE,
    SLOT_ONLINE,
    SLOT_REMOTE,
    TAIL_COMPLETE,
    Slot,
    SlotViews,
    TopicSettings,
    slot_at,
    state_now,
    views_at,
)
from odradek._ext.shm.waking cimport wake_after, wake_everyone, wake_process
from odradek._ext.storage.file_calls cimport file_rename
from odradek._ext.storage.log_dirs cimport note_device


# -- assignment --------------------------------------------------------------------------------------------------------


cdef bint keeps_slots(uint32_t kind) noexcept nogil:
    """Whether processes of this kind keep indexes of slots from one turn of their loop to the next, and confirm versions."""
    return kind == WORKER or kind == COORDINATOR or kind == REPLICATOR


cdef uint64_t oldest_confirmed() noexcept nogil:
    """The newest metadata version that every living process has confirmed that keeps indexes of slots."""
    cdef uint64_t oldest = region().header.metadata_version
    cdef int i
    cdef Process* p
    for i in range(region().header.process_count):
        p = &region().processes[i]
        if (p.state == STARTING or p.state == SERVING) and keeps_slots(p.kind) and p.confirmed_version < oldest:
            oldest = p.confirmed_version
    return oldest


cdef inline void begin_reuse(Slot* slot) noexcept nogil:
    """Change the incarnation before data are cleared. The caller changes it again when the slot is complete [R 8.3]."""
    store_relaxed_32(&slot.incarnation, slot.incarnation + 1)
    fence_release()     # a reader that sees cleared data also sees the change


cdef void clear(Slot* slot) noexcept nogil:
    """Clear all data of the former partition; keep the mutex, the incarnation and the sequence."""
    cdef char* start = <char*>slot.commits
    begin_reuse(slot)
    clear_words(start, sizeof(Slot) - (start - <char*>slot))
    memset(slot.topic_id, 0, 16)
    forget_transactions(slot)
    store_relaxed_i64(&slot.newest_abort_offset, -1)
    store_release_32(&slot.role, ROLE_NONE)
    store_release_i32(&slot.role_epoch, -1)
    store_relaxed_i64(&slot.leader_epoch_start, -1)
    if region().header.clustered:
        clear_words(views_at(slot), sizeof(SlotViews))
    clear_recent(slot)


cdef struct Leadership:
    int32_t leader_id
    int32_t leader_epoch
    int32_t partition_epoch
    int32_t replica_count
    int32_t in_sync_count
    int32_t[MAX_IN_SYNC] replicas
    int32_t[MAX_IN_SYNC] in_sync


cdef int take_leadership(Leadership* out, int leader_id, int leader_epoch, int partition_epoch, replicas, in_sync) except -1:
    """Convert Python values before a lock is taken. :raises ValueError: too many replicas."""
    cdef int i
    if len(replicas) > MAX_IN_SYNC or len(in_sync) > MAX_IN_SYNC:
        raise ValueError(f"a partition may have at most {MAX_IN_SYNC} replicas, not {len(replicas)} with {len(in_sync)} in sync")
    out.leader_id = leader_id
    out.leader_epoch = leader_epoch
    out.partition_epoch = partition_epoch
    for i, replica in enumerate(replicas):
        out.replicas[i] = replica
    for i, replica in enumerate(in_sync):
        out.in_sync[i] = replica
    out.replica_count = len(replicas)
    out.in_sync_count = len(in_sync)
    return 0


cdef void put_leadership(Slot* slot, const Leadership* source) noexcept nogil:
    store_relaxed_i32(&slot.leader_id, source.leader_id)
    store_relaxed_i32(&slot.leader_epoch, source.leader_epoch)
    store_relaxed_i32(&slot.partition_epoch, source.partition_epoch)
    fill_ids(slot.replicas, source.replicas, source.replica_count)
    fill_ids(slot.in_sync, source.in_sync, source.in_sync_count)
    fill_ids(slot.max_in_sync, source.in_sync, source.in_sync_count)
    store_relaxed_i32(&slot.replica_count, source.replica_count)
    store_relaxed_i32(&slot.in_sync_count, source.in_sync_count)
    store_relaxed_i32(&slot.max_in_sync_count, source.in_sync_count)


cdef TopicSettings changed_settings(TopicSettings settings, changes) except *:
    """Apply all changes, or none if one does not fit. :raises ValueError: an unknown setting."""
    cdef dict known = settings
    unknown = set(changes) - set(known)
    if unknown:
        raise ValueError(f"unknown topic settings: {', '.join(sorted(unknown))}")
    known.update(changes)
    return known


cdef int64_t free_slot() noexcept nogil:
    """The index of a slot that can be given to a partition; -1 if all are in use."""
    cdef uint64_t index, used = region().header.slots_used, confirmed
    cdef Slot* slot
    if used < region().header.max_slots:
        return <int64_t>used
    confirmed = oldest_confirmed()
    for index in range(used):
        slot = slot_at(<uint32_t>index)
        if slot.state == SLOT_FREE or (slot.state == SLOT_DELETED and slot.created_version < confirmed):
            return <int64_t>index
    return -1


cdef uint32_t take_free_slot(bytes name, bytes topic_id) except? 0xFFFFFFFF:
    """Find a free slot, and prepare its mutex. :raises ValueError: a wrong name or id, or no free slot."""
    cdef int64_t index
    if len(name) > MAX_TOPIC_BYTES or len(topic_id) != 16:
        raise ValueError(f"topic {name.decode()!r}: a name must have at most {MAX_TOPIC_BYTES} bytes, an id 16 bytes")
    index = free_slot()
    if index < 0:
        raise ValueError(f"all {region().header.max_slots} partition slots are in use: increase odradek.max.partitions")
    initialise_mutex(slot_at(<uint32_t>index))
    return <uint32_t>index


cdef void identify(Slot* slot, const char* name, uint16_t name_length, const char* topic_id, int partition, bint internal) noexcept nogil:
    """Clear the slot and write the identity of its new partition. The caller holds the slot's mutex."""
    clear(slot)
    memcpy(slot.topic, name, name_length)
    slot.topic_bytes = name_length
    memcpy(slot.topic_id, topic_id, 16)
    slot.partition = partition
    slot.internal = internal


cdef void count_used(uint32_t index) noexcept nogil:
    """Raise the number of slots ever used, after the slot is complete."""
    if index >= region().header.slots_used:
        store_release_64(&region().header.slots_used, index + 1)


def allocate(str topic, bytes topic_id, int partition, *, int log_dir, replicas, in_sync, int leader_id, int leader_epoch,
             int partition_epoch, settings, bint internal=False, bint epoch_unstored=False) -> int:
    """Assign a free slot, in state LOADING, to a partition and return the slot's index. Only the one writer of the table calls
    this.

    :param epoch_unstored: the metadata store does not have this leader epoch yet; see `unstored_epochs`.
    :raises ValueError: a name longer than 249 bytes, an id that is not 16 bytes, too many replicas, or no free slot.
    """
    cdef bytes name = topic.encode()
    cdef const char* name_bytes = name
    cdef const char* id_bytes = topic_id
    cdef uint16_t name_length = <uint16_t>min(len(name), 0xFFFF)
    cdef uint32_t index
    cdef Slot* slot
    cdef Leadership leadership
    cdef TopicSettings new_settings
    cdef bint taken
    take_leadership(&leadership, leader_id, leader_epoch, partition_epoch, replicas, in_sync)
    memset(&new_settings, 0, sizeof(new_settings))
    new_settings = changed_settings(new_settings, settings)
    check_log_dir(log_dir)
    index = take_free_slot(name, topic_id)
    slot = slot_at(index)
    with nogil:
        taken = wait_slot(index, slot, LOCK_PATIENCE_MS) == 0
        if taken:
            identify(slot, name_bytes, name_length, id_bytes, partition, internal)
            store_relaxed_8(&slot.log_dir, <uint8_t>log_dir)
            store_relaxed_8(&slot.begun_epoch, EPOCH_UNSTORED if epoch_unstored else EPOCH_KEPT)
            put_leadership(slot, &leadership)
            fill_words(&slot.settings, &new_settings, sizeof(new_settings))
            store_release_32(&slot.incarnation, slot.incarnation + 1)
            store_release_32(&slot.state, SLOT_LOADING)
            unlock(index, slot)
    if not taken:
        raise busy(index)
    count_used(index)
    return index


cdef int check_log_dir(int log_dir) except -1:
    if log_dir < 0 or log_dir >= region().header.log_dir_count:
        raise ValueError(f"log directory {log_dir} of {region().header.log_dir_count}")
    return 0


# -- partitions of other brokers ---------------------------------------------------------------------------------------

def allocate_remote(str topic, bytes topic_id, int partition, *, bint internal=False) -> int:
    """Assign a free slot, in state REMOTE, to a partition without a replica in this broker, and return the slot's index. Publish its
    view before it is announced. Only the one writer of the table calls this.

    :raises ValueError: a name longer than 249 bytes, an id that is not 16 bytes, or no free slot.
    """
    cdef bytes name = topic.encode()
    cdef const char* name_bytes = name
    cdef const char* id_bytes = topic_id
    cdef uint16_t name_length = <uint16_t>min(len(name), 0xFFFF)
    cdef uint32_t index = take_free_slot(name, topic_id)
    cdef Slot* slot = slot_at(index)
    cdef bint taken
    with nogil:
        taken = wait_slot(index, slot, LOCK_PATIENCE_MS) == 0
        if taken:
            identify(slot, name_bytes, name_length, id_bytes, partition, internal)
            store_relaxed_i32(&slot.leader_id, -1)
            store_relaxed_i32(&slot.leader_epoch, -1)
            store_relaxed_i32(&slot.partition_epoch, -1)
            store_release_32(&slot.incarnation, slot.incarnation + 1)
            store_release_32(&slot.state, SLOT_REMOTE)
            unlock(index, slot)
    if not taken:
        raise busy(index)
    count_used(index)
    return index


cdef void clear_log(Slot* slot) noexcept nogil:
    """Clear what a REMOTE slot still contains of a log that this broker had; keep the identity and the view."""
    begin_reuse(slot)
    clear_words(slot.commits, <char*>&slot.leader_epoch - <char*>slot.commits)
    forget_transactions(slot)
    store_relaxed_i64(&slot.newest_abort_offset, -1)
    store_relaxed_i32(&slot.leader_id, -1)
    store_relaxed_i32(&slot.leader_epoch, -1)
    store_relaxed_i32(&slot.partition_epoch, -1)
    store_relaxed_i32(&slot.replica_count, 0)
    store_relaxed_i32(&slot.in_sync_count, 0)
    store_relaxed_i32(&slot.max_in_sync_count, 0)
    store_relaxed_i32(&slot.epoch_count, 0)
    slot.adding = slot.removing = slot.recovering = 0
    store_release_32(&slot.in_sync_state, IN_SYNC_COMMITTED)
    store_relaxed_32(&slot.in_sync_wanted, 0)
    store_relaxed_i32(&slot.proposed_count, 0)
    store_relaxed_i64(&slot.fetch_error, 0)
    store_relaxed_i64(&slot.fetch_lag, -1)
    store_release_i32(&slot.role_epoch, -1)
    store_relaxed_i64(&slot.leader_epoch_start, -1)
    store_relaxed_i64(&slot.pending_snapshot, 0)
    slot.producers_changed = 0
    store_release_64(&slot.intent, 0)
    store_relaxed_64(&slot.truncations, 0)
    store_release_i64(&slot.gap_limit, 0)
    store_relaxed_8(&slot.lost_tail, TAIL_COMPLETE)
    slot.uncut = 0
    store_relaxed_8(&slot.has_followers, 0)
    clear_recent(slot)


def begin_local(uint32_t index, int log_dir, settings) -> None:
    """Make a REMOTE slot LOADING, because this broker got a replica of its partition. Its view stays. Only the one writer of the table
    calls this; announce the slot afterwards, because its incarnation changes.

    :raises SlotChanged: the slot is not REMOTE.
    """
    cdef Slot* slot = checked_slot(index)
    cdef TopicSettings new_settings
    cdef bint taken, remote = False
    check_log_dir(log_dir)
    memset(&new_settings, 0, sizeof(new_settings))
    new_settings = changed_settings(new_settings, settings)
    with nogil:
        taken = wait_slot(index, slot, LOCK_PATIENCE_MS) == 0
        if taken:
            remote = slot.state == SLOT_REMOTE
            if remote:
                clear_log(slot)
                store_relaxed_8(&slot.log_dir, <uint8_t>log_dir)
                fill_words(&slot.settings, &new_settings, sizeof(new_settings))
                store_relaxed_8(&slot.begun_epoch, EPOCH_KEPT)
                store_release_32(&slot.incarnation, slot.incarnation + 1)
                store_release_32(&slot.state, SLOT_LOADING)
            unlock(index, slot)
    if not taken:
        raise busy(index)
    if not remote:
        raise SlotChanged(f"{name_of(slot)} is not a partition of other brokers only")


def go_remote(uint32_t index, uint32_t incarnation, renamed) -> None:
    """Take the log of a partition out of service: rename its directory to `renamed`, and make the slot REMOTE. Its view stays. May be
    repeated after a death at any point. Only the one writer of the table calls this; announce the slot afterwards, because its
    incarnation changes.

    :param renamed: None: the directory keeps its name, because its log directory cannot be written.
    :raises SlotChanged: another incarnation. :raises OSError: the directory could not be renamed; then nothing is changed.
    """
    cdef Slot* slot = checked_slot(index)
    cdef const char* target = NULL
    cdef int result = 0
    cdef bint taken
    if renamed is not None:
        target = renamed
    with nogil:
        taken = wait_slot(index, slot, LOCK_PATIENCE_MS) == 0
        if taken:
            if slot.incarnation != incarnation or slot.state in (SLOT_FREE, SLOT_DELETED):
                result = -1
            elif slot.state != SLOT_REMOTE:
                result = rename_and_leave(index, slot, target, SLOT_REMOTE)
            unlock(index, slot)
    if not taken:
        raise busy(index)
    if result < 0:
        raise SlotChanged(f"{name_of(slot)} is not the partition that was to be deleted")
    if result != 0:
        raise OSError(result, os.strerror(result), name_of(slot))


def drop_remote(uint32_t index) -> None:
    """Make a REMOTE slot DELETED, because its partition does not exist any more. Does nothing to other slots. Only the one writer of
    the table calls this; announce the slot afterwards."""
    cdef Slot* slot = checked_slot(index)
    cdef bint taken
    with nogil:
        taken = wait_slot(index, slot, LOCK_PATIENCE_MS) == 0
        if taken:
            if slot.state == SLOT_REMOTE:
                store_release_32(&slot.state, SLOT_DELETED)
                store_release_64(&slot.created_version, region().header.metadata_version + 1)
                wake_everyone(index, slot)
            unlock(index, slot)
    if not taken:
        raise busy(index)


def configure(uint32_t index, settings) -> None:
    """Apply a topic's new configuration to a slot; every process uses it from its next append on. Only the one writer of the
    table calls this, so that no other change comes between reading and storing the settings."""
    cdef Slot* slot = checked_slot(index)
    cdef TopicSettings new_settings = changed_settings(slot.settings, settings)
    cdef bint taken, moved = False
    with nogil:
        taken = wait_slot(index, slot, LOCK_PATIENCE_MS) == 0
        if taken:
            fill_words(&slot.settings, &new_settings, sizeof(new_settings))
            if slot.state == SLOT_ONLINE:
                moved = move_high_watermark(slot, monotonic_ms())
            unlock(index, slot)
        if moved:
            wake_after(index, slot, False, True)
    if not taken:
        raise busy(index)


# -- role and state ---------------------------------------------------------------------------------------------------

def set_offline(uint32_t index) -> None:
    """Set the slot OFFLINE because its log cannot be used: requests fail with KAFKA_STORAGE_ERROR from now on."""
    cdef Slot* slot = checked_slot(index)
    cdef bint taken
    with nogil:
        taken = wait_slot(index, slot, LOCK_PATIENCE_MS) == 0
        if taken:
            store_release_32(&slot.state, SLOT_OFFLINE)
            wake_everyone(index, slot)
            unlock(index, slot)
    if not taken:
        raise busy(index)


def fail_log_dir(int log_dir) -> int:
    """Set every partition of a failed log directory OFFLINE and wake the processes that wait for it. Returns the number of its
    partitions, with those that were OFFLINE already."""
    cdef uint64_t i
    cdef Slot* slot
    cdef int count = 0
    for i in range(region().header.slots_used):
        slot = slot_at(<uint32_t>i)
        if slot.log_dir != log_dir:
            continue
        if slot.state == SLOT_ONLINE or slot.state == SLOT_LOADING:
            set_offline(<uint32_t>i)
        elif slot.state == SLOT_OFFLINE:
            wake_everyone(<uint32_t>i, slot)    # where the failure was found, only those who wait for that operation are woken
        count += slot.state == SLOT_OFFLINE
    return count


def waiting_for_room() -> list[int]:
    """Slots whose log could not be opened, or was left half way through a change, because the disk was full."""
    cdef uint64_t i
    return [i for i in range(region().header.slots_used) if state_now(slot_at(<uint32_t>i)) == SLOT_LOADING]


# -- leader epochs that a start began ----------------------------------------------------------------------------------


def unstored_epochs() -> list[tuple[int, str, int, int]]:
    """[(slot, topic, partition, leader epoch)] of the leaders whose epoch is newer than the one in the metadata store."""
    cdef uint64_t i
    cdef Slot* slot
    epochs = []
    for i in range(region().header.slots_used):
        slot = slot_at(<uint32_t>i)
        if slot.begun_epoch == EPOCH_UNSTORED and slot.state != SLOT_FREE and slot.state != SLOT_DELETED:
            epochs.append((i, topic_of(slot), slot.partition, slot.leader_epoch))
    return epochs


def epochs_stored(stored) -> None:
    """Mark leader epochs as stored in the metadata store: [(slot, leader epoch)]. Only the first loader calls this. If a slot
    has a newer epoch by now, the coordinator stores that."""
    cdef Slot* slot
    cdef uint32_t index
    cdef int32_t epoch
    cdef bint taken
    for index, epoch in stored:
        slot = checked_slot(index)
        with nogil:
            taken = wait_slot(index, slot, LOCK_PATIENCE_MS) == 0
            if taken:
                if slot.leader_epoch == epoch:
                    store_relaxed_8(&slot.begun_epoch, EPOCH_STORED)
                unlock(index, slot)
        if not taken:
            raise busy(index)


def mark_epoch(uint32_t index, int leader_epoch) -> None:
    """Set the leader epoch in which the log of a LOADING slot must be led, and which is not in the metadata store yet. Only the
    one writer of the table calls this."""
    cdef Slot* slot = checked_slot(index)
    cdef int32_t epoch = leader_epoch
    cdef bint taken
    with nogil:
        taken = wait_slot(index, slot, LOCK_PATIENCE_MS) == 0
        if taken:
            if slot.state == SLOT_LOADING and epoch > slot.leader_epoch:
                store_relaxed_i32(&slot.leader_epoch, epoch)
                store_relaxed_8(&slot.begun_epoch, EPOCH_UNSTORED)
            unlock(index, slot)
    if not taken:
        raise busy(index)


def put_epoch(uint32_t index, int leader_epoch, int partition_epoch) -> None:
    """Store a leader epoch that the metadata store now has, in a node of this version, in the slot, unless it is older than the
    slot's. Only the one writer of the table calls this."""
    cdef Slot* slot = checked_slot(index)
    cdef int32_t new_leader_epoch = leader_epoch, new_partition_epoch = partition_epoch
    cdef bint taken
    with nogil:
        taken = wait_slot(index, slot, LOCK_PATIENCE_MS) == 0
        if taken:
            if new_leader_epoch >= slot.leader_epoch:
                store_relaxed_i32(&slot.leader_epoch, new_leader_epoch)
                store_relaxed_i32(&slot.partition_epoch, new_partition_epoch)
                store_relaxed_8(&slot.begun_epoch, EPOCH_STORED)
            unlock(index, slot)
    if not taken:
        raise busy(index)


# -- deletion, announcement --------------------------------------------------------------------------------------------

def delete(uint32_t index, bytes renamed) -> None:
    """Take the partition out of service and rename its directory to `renamed`. May be repeated after a death at any point.

    The directory is renamed first: after a death, a process that finds the slot still online renames again (a missing directory
    counts as done) and continues.
    """
    cdef Slot* slot = checked_slot(index)
    cdef const char* target = renamed
    cdef int result = 0
    cdef bint taken
    with nogil:
        taken = wait_slot(index, slot, LOCK_PATIENCE_MS) == 0
        if taken:
            result = rename_and_leave(index, slot, target, SLOT_DELETED)
            unlock(index, slot)
    if not taken:
        raise busy(index)
    if result != 0:
        raise OSError(result, os.strerror(result), name_of(slot))


cdef int rename_and_leave(uint32_t index, Slot* slot, const char* target, uint32_t state) noexcept nogil:
    """Rename the directory, unless `target` is NULL, then take the log out of service; `state` is the slot's new one. The caller holds
    the slot's mutex. Returns 0, or errno."""
    cdef char[384] path
    cdef int result = 0
    directory_path(slot, path)
    fault(DELETE_INTENT_STORED)
    if target != NULL and file_rename(region().header.log_dir_fds[slot.log_dir], path, target) != 0:
        result = errno
    if result != 0 and result != ENOENT:
        note_device(slot.log_dir, -result)
        return result
    fault(DELETE_RENAMED)
    store_release_32(&slot.role, ROLE_NONE)
    store_release_32(&slot.state, state)
    if state == SLOT_REMOTE:
        store_release_32(&slot.incarnation, slot.incarnation + 1)
    store_release_64(&slot.created_version, region().header.metadata_version + 1)
    store_release_64(&slot.generation, slot.generation + 1)
    note_removed_files()
    fault(DELETE_STATE_STORED)
    forget_producers(slot)
    store_relaxed_i64(&slot.pending_snapshot, 0)
    drop_files(index)
    wake_everyone(index, slot)
    return 0


def announce(indexes) -> int:
    """Publish a metadata version for each slot that was added, changed or removed, and wake every process. Returns the last
    version.

    All versions are published at once, so that no process sees a new topic with only some of its partitions. Only the one
    writer of the table calls this. If it dies before, the changes stay unannounced and its successor announces all slots.

    :param indexes: a list.
    """
    cdef Header* header = region().header
    cdef uint64_t version = header.metadata_version
    cdef bint few = len(indexes) < CHANGE_RING // 2     # otherwise a directory that far behind reads all slots, whatever is in the ring
    cdef int i
    fence_release()     # a reader that sees a replaced entry of the ring also sees the versions that were published before
    for index in indexes:
        version += 1
        # [R 8]: not reusable before every worker has passed it
        store_relaxed_64(&slot_at(<uint32_t>index).created_version, version)
        if few:
            store_relaxed_64(&header.changes[version % CHANGE_RING], <uint64_t>index + 1)
    store_release_64(&header.metadata_version, version)
    fault(DELETE_ANNOUNCED)
    for i in range(header.process_count):
        if region().processes[i].state == STARTING or region().processes[i].state == SERVING:
            wake_process(i)
    return version
