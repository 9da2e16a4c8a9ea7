"""The control path's verbs on slots; see slots.pxd. Called by the coordinator, the loaders, the cleaner and (tests) anyone.

Each takes the slot's lock itself, waiting for it if need be: none of them is called from a worker's loop. The `intent` of a
deletion is the coordinator's durable store; the rules are in ``broker/shm/README.md``.
"""

import os

from libc.errno cimport ENOENT, errno
from libc.stdint cimport INT64_MIN, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from broker._ext.append_files cimport directory_path, drop_files
from broker._ext.appends cimport (
    MAX_JOINED,
    AppendItem,
    AppendOutcome,
    AppendResult,
    advance_high_watermark,
    append_as_follower,
    append_as_leader,
    assign_epoch,
    note_failure,
    publish,
    roll_now,
    snapshot_producers,
    take_slot,
    truncate_to,
    wake_everyone,
    write_epoch_file,
)
from broker._ext.batch_builder cimport BatchBuilder
from broker._ext.atomics cimport fault_point, store_release_32, store_release_64
from broker._ext.faults cimport *
from broker._ext.file_calls cimport file_error, file_rename
from broker._ext.locks cimport LOCK_BUSY, SPINS_OF_THREAD, initialise_mutex, unlock
from broker._ext.log_dirs cimport is_full, note_device
from broker._ext.log_state cimport (
    EpochEntry,
    LoadedBatch,
    LoadedProducer,
    LogState,
)
from broker._ext.producers cimport (
    ARENA_READY,
    ProducerEntry,
    batch_back,
    entry_batches,
    entry_epoch,
    expire_producers,
    forget_producers,
    restore_batch,
    restore_producer,
    run_entries,
    run_start,
    settle_last_stable,
)
from broker._ext.records cimport ERROR_MESSAGE_TOO_LARGE, check_batch
from broker._ext.segments cimport LoadedLog
from broker._ext.shared cimport (
    CHANGE_RING,
    EPOCHS_KEPT,
    MAX_FOLLOWERS,
    MAX_IN_SYNC,
    MAX_TOPIC_BYTES,
    ROLE_FOLLOWER,
    ROLE_LEADER,
    ROLE_NONE,
    SERVING,
    SLOT_DELETED,
    SLOT_FREE,
    SLOT_LOADING,
    SLOT_OFFLINE,
    SLOT_ONLINE,
    STARTING,
    Commit,
    Header,
    Process,
    Slot,
    now_ms,
    read_commit,
    region,
    slot_at,
    state_now,
    wake_process,
)
from broker._ext.swapping cimport SWAP_UNDER_WAY


cdef extern from "<time.h>" nogil:
    struct timespec:
        long tv_sec
        long tv_nsec
    int nanosleep(const timespec* request, timespec* remaining)


class SlotBusy(Exception):
    """The slot's lock did not come free in time: its holder is stopped or stuck (the supervisor ends such a process)."""


class SlotChanged(Exception):
    """The slot holds another partition by now, or the role or epoch expected of it is not the one it has."""


APPEND_RESULTS = {
    0: "ok", -1: "busy", -2: "stale", -3: "not leader", -4: "fenced epoch", -5: "offline", -6: "i/o error", -7: "out of range",
}


cdef int wait_slot(uint32_t index, Slot* slot, int64_t timeout_ms) noexcept nogil:
    cdef int64_t until = now_ms() + timeout_ms
    cdef timespec pause
    pause.tv_sec = 0
    pause.tv_nsec = 200000
    while take_slot(index, slot, SPINS_OF_THREAD) == LOCK_BUSY:
        if now_ms() > until:
            return -1
        nanosleep(&pause, NULL)         # another process's lock: there is no event to wait for; bounded by the time-out
    return 0


cdef class Held:
    """The slot's lock as a context: with Held(index) as held: ... held.slot"""

    def __cinit__(self, uint32_t index):
        if index >= region().header.max_slots:
            raise IndexError(f"slot {index}: there are {region().header.max_slots}")
        self.index = index
        self.slot = slot_at(index)

    def __enter__(self):
        cdef int result
        with nogil:
            result = wait_slot(self.index, self.slot, 15000)
        if result != 0:
            raise SlotBusy(f"the lock of slot {self.index} did not come free in 15 s")
        return self

    def __exit__(self, *exc):
        unlock(self.index, self.slot)


cdef str topic_of(Slot* slot):
    return (<char*>slot.topic)[:slot.topic_bytes].decode()


# -- giving and taking --------------------------------------------------------------------------------------------

cdef uint64_t oldest_confirmed() noexcept nogil:
    """The newest metadata version that every living process has taken over."""
    cdef uint64_t oldest = region().header.metadata_version
    cdef int i
    cdef Process* p
    for i in range(region().header.process_count):
        p = &region().processes[i]
        if (p.state == STARTING or p.state == SERVING) and p.kind == 1 and p.confirmed_version < oldest:
            oldest = p.confirmed_version
    return oldest


def allocate(str topic, bytes topic_id, int partition, *, int log_dir, replicas, in_sync, int leader_id, int leader_epoch,
             int partition_epoch, settings, bint internal=False):
    """Give a free slot to a partition, state LOADING; the slot's index. By the one writer of the table only.

    :raises ValueError: a name longer than 249 bytes, an id that is not 16 bytes, too many replicas, or no free slot.
    """
    cdef bytes name = topic.encode()
    cdef uint32_t index = 0, used = <uint32_t>region().header.slots_used
    cdef Slot* slot = NULL
    cdef uint64_t confirmed = oldest_confirmed()
    cdef bint found = False
    if len(name) > MAX_TOPIC_BYTES or len(topic_id) != 16:
        raise ValueError(f"topic {topic!r}: a name has at most {MAX_TOPIC_BYTES} bytes, an id 16")
    if len(replicas) > MAX_IN_SYNC:
        raise ValueError(f"{topic}-{partition}: {len(replicas)} replicas, at most {MAX_IN_SYNC} are possible")
    if log_dir < 0 or log_dir >= region().header.log_dir_count:
        raise ValueError(f"log directory {log_dir} of {region().header.log_dir_count}")
    if used < region().header.max_slots:
        index = used
        found = True
    else:
        while index < used and not found:
            slot = slot_at(index)
            if slot.state == SLOT_FREE or (slot.state == SLOT_DELETED and slot.created_version < confirmed):
                found = True
            else:
                index += 1
    if not found:
        raise ValueError(f"all {region().header.max_slots} partition slots are in use: raise odradek.max.partitions")
    slot = slot_at(index)
    initialise_mutex(slot)
    with Held(index):
        clear(slot)
        memcpy(slot.topic, <const char*>name, len(name))
        slot.topic_bytes = <uint16_t>len(name)
        memcpy(slot.topic_id, <const char*>topic_id, 16)
        slot.partition = partition
        slot.log_dir = <uint8_t>log_dir
        slot.internal = internal
        put_leadership(slot, leader_id, leader_epoch, partition_epoch, replicas, in_sync)
        put_settings(slot, settings)
        store_release_32(&slot.incarnation, slot.incarnation + 1)
        store_release_32(&slot.state, SLOT_LOADING)
    if index >= used:
        store_release_64(&region().header.slots_used, index + 1)
    return index


cdef void clear(Slot* slot) noexcept nogil:
    """Everything of the former partition goes, but not the mutex, the incarnation and the sequence."""
    cdef char* start = <char*>slot.commits
    cdef int i
    memset(start, 0, sizeof(Slot) - (start - <char*>slot))
    memset(slot.topic_id, 0, 16)
    slot.first_unstable_offset = -1
    slot.role = ROLE_NONE
    for i in range(MAX_FOLLOWERS):
        slot.followers[i].broker_id = -1
    memset(slot.recent, 0xFF, sizeof(slot.recent))


cdef put_leadership(Slot* slot, int leader_id, int leader_epoch, int partition_epoch, replicas, in_sync):
    cdef int i
    if len(replicas) > MAX_IN_SYNC or len(in_sync) > MAX_IN_SYNC:
        raise ValueError(f"{topic_of(slot)}-{slot.partition}: {len(replicas)} replicas, at most {MAX_IN_SYNC} are possible")
    slot.leader_id = leader_id
    slot.leader_epoch = leader_epoch
    slot.partition_epoch = partition_epoch
    for i, replica in enumerate(replicas):
        slot.replicas[i] = replica
    slot.replica_count = len(replicas)
    for i, replica in enumerate(in_sync):
        slot.in_sync[i] = replica
        slot.max_in_sync[i] = replica
    slot.in_sync_count = slot.max_in_sync_count = len(in_sync)


cdef put_settings(Slot* slot, settings):
    cdef dict known = slot.settings
    unknown = set(settings) - set(known)
    if unknown:
        raise ValueError(f"unknown topic settings: {', '.join(sorted(unknown))}")
    known.update(settings)
    known.pop("spare", None)
    slot.settings.segment_bytes = known["segment_bytes"]
    slot.settings.segment_ms = known["segment_ms"]
    slot.settings.segment_jitter_ms = known["segment_jitter_ms"]
    slot.settings.retention_ms = known["retention_ms"]
    slot.settings.retention_bytes = known["retention_bytes"]
    slot.settings.flush_messages = known["flush_messages"]
    slot.settings.flush_ms = known["flush_ms"]
    slot.settings.timestamp_before_max_ms = known["timestamp_before_max_ms"]
    slot.settings.timestamp_after_max_ms = known["timestamp_after_max_ms"]
    slot.settings.file_delete_delay_ms = known["file_delete_delay_ms"]
    slot.settings.delete_retention_ms = known["delete_retention_ms"]
    slot.settings.min_compaction_lag_ms = known["min_compaction_lag_ms"]
    slot.settings.max_compaction_lag_ms = known["max_compaction_lag_ms"]
    slot.settings.min_cleanable_dirty_millionths = known["min_cleanable_dirty_millionths"]
    slot.settings.index_interval_bytes = known["index_interval_bytes"]
    slot.settings.index_max_bytes = known["index_max_bytes"]
    slot.settings.max_message_bytes = known["max_message_bytes"]
    slot.settings.min_in_sync_replicas = known["min_in_sync_replicas"]
    slot.settings.log_append_time = known["log_append_time"]
    slot.settings.compact = known["compact"]
    slot.settings.delete_ = known["delete_"]
    slot.settings.compression = known["compression"]
    slot.settings.unclean_election = known["unclean_election"]
    slot.settings.compression_level = known["compression_level"]
    slot.settings.no_down_conversion = known["no_down_conversion"]


def configure(uint32_t index, settings):
    """Take over the settings of a topic's new configuration; in force for the next append of every process."""
    cdef Slot* slot = slot_at(index)
    with Held(index):
        put_settings(slot, settings)


def fill(uint32_t index, LoadedLog loaded, bint flushed, int64_t producers_before_ms=INT64_MIN):
    """Put a loaded log into its slot and the slot ONLINE, as leader if this broker leads the partition.

    :param flushed: whether all of the log is known to be on the device (it was closed in order).
    :param producers_before_ms: producers without open transaction last heard before this have expired; left out.
    :raises OSError: the leader-epoch checkpoint could not be written; the slot is OFFLINE then, or LOADING if only room was
        missing.
    """
    cdef Slot* slot = slot_at(index)
    cdef LogState* state = &loaded.state
    cdef Commit commit
    cdef int64_t i
    cdef int result = 0, k
    cdef EpochEntry* epochs = <EpochEntry*>state.epochs.items
    cdef LoadedProducer* producer
    cdef LoadedBatch* batch
    with Held(index):
        memset(&commit, 0, sizeof(commit))
        commit.segment_base = state.base_offset
        commit.size = state.size
        commit.log_end_offset = state.log_end_offset
        commit.index_entries = <int32_t>state.index_entries
        commit.timeindex_entries = <int32_t>state.timeindex_entries
        commit.txnindex_entries = <int32_t>state.txnindex_entries
        commit.first_timestamp = state.first_timestamp
        commit.max_timestamp = state.max_timestamp
        commit.max_timestamp_offset = state.offset_of_max_timestamp
        commit.indexed_position = state.last_index_position
        commit.timeindexed_timestamp = state.last_timeindex_timestamp
        commit.timeindexed_offset = -1
        commit.created_ms = now_ms()
        commit.high_watermark = state.log_end_offset if slot.in_sync_count <= 1 else state.log_start_offset
        commit.high_watermark_base = state.base_offset if slot.in_sync_count <= 1 else -1
        commit.high_watermark_position = state.size
        publish(slot, &commit)
        slot.log_start_offset = state.log_start_offset
        slot.applied_base = state.base_offset
        slot.applied_position = state.size
        slot.flushed_offset = state.log_end_offset if flushed else state.recovery_point
        slot.recovery_point = slot.flushed_offset
        slot.flushed_ms = now_ms()
        # Of a new log nothing is synced, not even its name; what a recovery wrote is not either.
        slot.synced_base = state.base_offset if flushed and state.size > 0 else -1
        slot.synced_end = slot.flushed_offset
        slot.epoch_count = 0
        for i in range(state.epochs.count):
            assign_epoch(slot, epochs[i].epoch, epochs[i].start_offset)
        forget_producers(slot)
        for i in range(state.producers.count):
            producer = <LoadedProducer*>state.producers.items + i
            if producer.last_timestamp < producers_before_ms and producer.current_txn_first_offset < 0:
                continue
            if restore_producer(index, slot, producer.producer_id, producer.producer_epoch, producer.coordinator_epoch,
                                producer.last_timestamp, producer.current_txn_first_offset) != ARENA_READY:
                continue        # full of open transactions: the oldest others were evicted already
            for k in range(producer.batch_count):
                batch = &producer.batches[k]
                restore_batch(slot, producer.producer_id, batch.base_sequence, batch.last_sequence, batch.base_offset,
                              batch.last_offset, batch.timestamp)
        slot.producers_changed = 0
        settle_last_stable(slot, commit.high_watermark)
        if slot.leader_id == region().header.broker_id:
            slot.role = ROLE_LEADER
            result = write_epoch_file(slot)
        else:
            slot.role = ROLE_FOLLOWER
        slot.generation += 1
        store_release_32(&slot.state, SLOT_ONLINE if result == 0 else SLOT_LOADING if is_full(result) else SLOT_OFFLINE)
        note_failure(slot, result)
        wake_everyone(index, slot)
    if result != 0:
        raise file_error(-result, f"{topic_of(slot)}-{slot.partition}/leader-epoch-checkpoint")


def set_offline(uint32_t index):
    """The partition's log cannot be used: KAFKA_STORAGE_ERROR from now on."""
    cdef Slot* slot = slot_at(index)
    with Held(index):
        store_release_32(&slot.state, SLOT_OFFLINE)
        wake_everyone(index, slot)


def fail_log_dir(int log_dir):
    """Put every partition of a log directory that is out of use OFFLINE and wake who waits for it; how many they were."""
    cdef uint64_t i
    cdef Slot* slot
    cdef int count = 0
    for i in range(region().header.slots_used):
        slot = slot_at(<uint32_t>i)
        if slot.log_dir != log_dir or (slot.state != SLOT_ONLINE and slot.state != SLOT_LOADING):
            continue
        set_offline(<uint32_t>i)
        count += 1
    return count


def waiting_for_room():
    """Slots whose log could not be opened, or was left half way by a change, because the disk was full."""
    cdef uint64_t i
    return [i for i in range(region().header.slots_used) if state_now(slot_at(<uint32_t>i)) == SLOT_LOADING]


def set_role(uint32_t index, uint32_t incarnation, role, int leader_id, int leader_epoch, int partition_epoch, replicas,
             in_sync):
    """Make this broker leader or follower of the partition at a newer leader epoch, or change the in-sync set at the same one.

    :raises SlotChanged: another incarnation, or an older leader or partition epoch than the slot has.
    :raises OSError: the leader-epoch checkpoint could not be written; the slot is OFFLINE then.
    """
    cdef Slot* slot = slot_at(index)
    cdef Commit commit
    cdef int result = 0, i
    with Held(index):
        if slot.incarnation != incarnation or slot.state != SLOT_ONLINE:
            raise SlotChanged(f"slot {index} is not incarnation {incarnation} or not online")
        if leader_epoch < slot.leader_epoch or partition_epoch < slot.partition_epoch:
            raise SlotChanged(f"leader epoch {leader_epoch}, partition epoch {partition_epoch}: the slot has "
                              f"{slot.leader_epoch} and {slot.partition_epoch}")
        put_leadership(slot, leader_id, leader_epoch, partition_epoch, replicas, in_sync)
        slot.role = role
        for i in range(MAX_FOLLOWERS):
            slot.followers[i].broker_id = -1
        if role == ROLE_LEADER:
            result = write_epoch_file(slot)
            read_commit(slot, &commit)
            if result == 0 and slot.in_sync_count <= 1 and commit.high_watermark < commit.log_end_offset:
                commit.high_watermark = commit.log_end_offset
                commit.high_watermark_base = commit.segment_base
                commit.high_watermark_position = commit.size
                publish(slot, &commit)
                settle_last_stable(slot, commit.high_watermark)
        if result != 0:
            store_release_32(&slot.state, SLOT_LOADING if is_full(result) else SLOT_OFFLINE)
            note_failure(slot, result)
        wake_everyone(index, slot)
    if result != 0:
        raise file_error(-result, f"{topic_of(slot)}-{slot.partition}/leader-epoch-checkpoint")


def delete(uint32_t index, bytes renamed):
    """Take the partition out of service and rename its directory to `renamed`. May be repeated after a death at any point.

    Rename first: who finds the slot still online after a death renames again (nothing there: done) and goes on.
    """
    cdef Slot* slot = slot_at(index)
    cdef char[384] path
    cdef const char* target = renamed
    cdef int result = 0
    with Held(index):
        directory_path(slot, path)
        fault_point(region().header.fault, DELETE_INTENT_STORED)
        if file_rename(region().header.log_dir_fds[slot.log_dir], path, target) != 0:
            result = errno
            if result != ENOENT:
                note_device(slot.log_dir, -result)
        fault_point(region().header.fault, DELETE_RENAMED)
        if result == 0 or result == ENOENT:
            store_release_32(&slot.state, SLOT_DELETED)
            slot.created_version = region().header.metadata_version + 1
            slot.generation += 1
            fault_point(region().header.fault, DELETE_STATE_STORED)
            drop_files(index)
            wake_everyone(index, slot)
    if result != 0 and result != ENOENT:
        raise OSError(result, os.strerror(result), f"{topic_of(slot)}-{slot.partition}")


def announce(indexes):
    """Publish a metadata version for each of the slots that came, changed or went, and wake every process; the last version.

    Only the one writer of the table calls this. Dying in the middle leaves some unannounced: its successor announces all.
    """
    cdef Header* header = region().header
    cdef uint64_t version = header.metadata_version
    cdef int i
    for index in indexes:
        version += 1
        slot_at(<uint32_t>index).created_version = version      # [R 8]: not to be used again before all have passed it
        header.changes[version % CHANGE_RING] = <uint64_t>index + 1
        store_release_64(&header.metadata_version, version)
    fault_point(header.fault, DELETE_ANNOUNCED)
    for i in range(header.process_count):
        if region().processes[i].state == STARTING or region().processes[i].state == SERVING:
            wake_process(i)
    return version


# -- snapshots, producers -----------------------------------------------------------------------------------------

def snapshot(uint32_t index):
    """Write the producer snapshot at the log end if producers changed since the last one; whether one was written."""
    cdef Slot* slot = slot_at(index)
    cdef Commit commit
    cdef int result = 0
    with Held(index):
        if slot.state != SLOT_ONLINE or not slot.producers_changed:
            return False
        read_commit(slot, &commit)
        with nogil:
            result = snapshot_producers(slot, commit.log_end_offset)
        if result == 0:
            slot.producers_changed = 0
        note_failure(slot, result)
    if result != 0:
        raise file_error(-result, f"{topic_of(slot)}-{slot.partition} producer snapshot")
    return True


def expire(uint32_t index, int64_t before_ms):
    """Forget idempotent producers without open transaction not heard of since `before_ms`; how many."""
    cdef Slot* slot = slot_at(index)
    if slot.producer_run == 0:
        return 0
    with Held(index):
        return expire_producers(index, slot, before_ms)


def reclaim_arena():
    """Give back runs of the arena that no slot names any more (of a death between two stores); units given back."""
    cdef uint64_t unit, owner, run
    cdef uint32_t index
    cdef Slot* slot
    cdef int given = 0
    for unit in range(region().header.arena_units):
        owner = region().arena_owners[unit]
        if owner == 0:
            continue
        index = <uint32_t>((owner >> 32) - 1)
        slot = slot_at(index)
        with Held(index):
            run = slot.producer_run
            if region().arena_owners[unit] != owner:
                continue
            if slot.incarnation == <uint32_t>owner and slot.state != SLOT_DELETED and run and \
                    (run >> 8) <= unit < (run >> 8) + max(1, (<uint64_t>1 << ((run & 0xFF) - 1)) // 4):
                continue
            store_release_64(&region().arena_owners[unit], 0)
            given += 1
    return given


def arena_units_used():
    cdef uint64_t unit
    cdef int used = 0
    for unit in range(region().header.arena_units):
        used += region().arena_owners[unit] != 0
    return used


# -- reading ------------------------------------------------------------------------------------------------------

def describe(uint32_t index):
    """A slot's state as a dict, for the control path, the status and tests."""
    cdef Slot* slot = slot_at(index)
    cdef Commit commit
    read_commit(slot, &commit)
    values = dict(commit)
    values.update(
        topic=topic_of(slot), partition=slot.partition, topic_id=bytes(slot.topic_id[:16]), state=state_now(slot), role=slot.role,
        incarnation=slot.incarnation, generation=slot.generation, leader_epoch=slot.leader_epoch, leader_id=slot.leader_id,
        partition_epoch=slot.partition_epoch, log_start_offset=slot.log_start_offset,
        last_stable_offset=slot.last_stable_offset, flushed_offset=slot.flushed_offset, recovery_point=slot.recovery_point,
        synced_base=slot.synced_base, synced_end=slot.synced_end, flushes=slot.flushes,
        producer_count=slot.producer_count, log_dir=slot.log_dir, lock_recoveries=slot.lock_recoveries,
        lock_busy=slot.lock_busy, applied_position=slot.applied_position, first_unstable_offset=slot.first_unstable_offset,
        internal=bool(slot.internal), intent=slot.intent, truncations=slot.truncations, compact=bool(slot.settings.compact),
        epochs=[(slot.epochs[i % EPOCHS_KEPT].epoch, slot.epochs[i % EPOCHS_KEPT].start_offset)
                for i in range(max(0, slot.epoch_count - EPOCHS_KEPT), slot.epoch_count)],
        replicas=[slot.replicas[i] for i in range(slot.replica_count)],
        in_sync=[slot.in_sync[i] for i in range(slot.in_sync_count)],
    )
    return values


def producers(uint32_t index):
    """Producer state: {producer id: (epoch, [(base sequence, last sequence, base offset, last offset)] newest first)}."""
    cdef Slot* slot = slot_at(index)
    cdef ProducerEntry* start
    cdef uint32_t i
    found = {}
    with Held(index):
        start = run_start(slot)
        for i in range(run_entries(slot)):
            if start[i].key == 0 or start[i].key == ~<uint64_t>0:
                continue
            found[start[i].key - 1] = (
                entry_epoch(&start[i]),
                [(batch_back(&start[i], k).base_sequence, batch_back(&start[i], k).last_sequence,
                  batch_back(&start[i], k).base_offset, batch_back(&start[i], k).last_offset)
                 for k in range(entry_batches(&start[i]))],
            )
    return found


def active_producers(uint32_t index):
    """What DescribeProducers tells of each: dicts of producer_id, epoch, last_sequence, last_timestamp (ms), coordinator_epoch
    and txn_start_offset, -1 for what is not known."""
    cdef Slot* slot = slot_at(index)
    cdef ProducerEntry* start
    cdef uint32_t i
    found = []
    with Held(index):
        start = run_start(slot)
        for i in range(run_entries(slot)):
            if start[i].key == 0 or start[i].key == ~<uint64_t>0:
                continue
            found.append({
                "producer_id": start[i].key - 1,
                "epoch": entry_epoch(&start[i]),
                "last_sequence": batch_back(&start[i], 0).last_sequence if entry_batches(&start[i]) else -1,
                "last_timestamp": start[i].last_timestamp,
                "coordinator_epoch": <int32_t><uint32_t>start[i].ring,
                "txn_start_offset": start[i].transaction_first_offset,
            })
    return found


def high_watermark(uint32_t index):
    """The first offset that not all in-sync replicas are known to have."""
    cdef Commit commit
    read_commit(slot_at(index), &commit)
    return commit.high_watermark


def state_of(uint32_t index):
    """The slot's SlotState; OFFLINE also where its log directory is."""
    return state_now(slot_at(index))


def incarnation_of(uint32_t index):
    return slot_at(index).incarnation


def log_dir_of(uint32_t index):
    return slot_at(index).log_dir


def set_recovery_point(uint32_t index, int64_t offset):
    slot_at(index).recovery_point = offset


# -- for tests and tools: the data path's verbs ---------------------------------------------------------------------

def append(uint32_t index, batches, *, incarnation=None, int leader_epoch=-1, wall_ms=None):
    """Append record batches (bytes-like, each one whole v2 batch) as leader: [(error, base offset, duplicate)] in order.

    :raises SlotChanged: with the reason when none of them could be judged.
    """
    cdef AppendItem[MAX_JOINED] items
    cdef AppendOutcome outcome
    cdef int n = len(batches), i, checked
    cdef AppendResult result
    cdef uint32_t wanted = slot_at(index).incarnation if incarnation is None else incarnation
    cdef int64_t now = now_ms() if wall_ms is None else wall_ms
    cdef const unsigned char[::1] view
    copies = [bytearray(batch) for batch in batches]
    if n > MAX_JOINED:
        raise ValueError(f"{n} batches, at most {MAX_JOINED} at once")
    for i in range(n):
        memset(&items[i], 0, sizeof(AppendItem))
        view = copies[i]
        items[i].data = <uint8_t*>&view[0]
        checked = check_batch(items[i].data, len(copies[i]), False, &items[i].info)
        if checked != 0:
            raise ValueError(f"batch {i} is refused by the checks: error {checked}")
    with nogil:
        result = append_as_leader(index, wanted, leader_epoch, items, n, now, SPINS_OF_THREAD, &outcome)
    if result != 0:
        raise SlotChanged(APPEND_RESULTS[<int>result])
    return [(items[i].error, items[i].base_offset, bool(items[i].duplicate)) for i in range(n)]


def append_built(uint32_t index, BatchBuilder builder not None, incarnation, int leader_epoch, int codec, compress, int64_t max_bytes):
    """Append what was built, as leader, as one batch: (error, base offset).

    :param compress: as of `BatchBuilder.finish`. :param max_bytes: a larger batch is MESSAGE_TOO_LARGE.
    :raises SlotChanged: with the reason when it could not be judged: nothing was written.
    """
    cdef AppendItem item
    cdef AppendOutcome outcome
    cdef AppendResult result
    cdef uint32_t wanted = incarnation
    cdef int64_t now = now_ms()
    cdef int checked
    builder.seal(codec, compress)
    if builder.out.size > max_bytes:
        return ERROR_MESSAGE_TOO_LARGE, -1
    memset(&item, 0, sizeof(AppendItem))
    item.data = builder.out.data
    checked = check_batch(item.data, builder.out.size, False, &item.info)
    if checked != 0:
        raise ValueError(f"a batch that was built is refused by the checks: error {checked}")
    with nogil:
        result = append_as_leader(index, wanted, leader_epoch, &item, 1, now, SPINS_OF_THREAD, &outcome)
    if result != 0:
        raise SlotChanged(APPEND_RESULTS[<int>result])
    return item.error, item.base_offset


def follow(uint32_t index, data, int64_t leader_high_watermark, *, int leader_epoch=-1, int64_t leader_log_start_offset=0):
    """Append what a leader sent, as a follower; the log end offset afterwards. :raises SlotChanged: with the reason."""
    cdef AppendOutcome outcome
    cdef AppendResult result
    cdef unsigned char[::1] view
    cdef int64_t size = len(data), now = now_ms()
    cdef uint8_t* start = NULL
    cdef uint32_t wanted = slot_at(index).incarnation
    copy = bytearray(data)
    if size:
        view = copy
        start = &view[0]
    with nogil:
        result = append_as_follower(index, wanted, leader_epoch, start, size, leader_high_watermark, leader_log_start_offset,
                                    now, SPINS_OF_THREAD, &outcome)
    if result != 0:
        raise SlotChanged(APPEND_RESULTS[<int>result])
    return outcome.log_end_offset


def truncate(uint32_t index, int64_t offset, *, int leader_epoch=-1):
    """Cut the log to end at `offset`, as a follower. :raises SlotChanged: with the reason."""
    cdef AppendResult result
    cdef uint32_t wanted = slot_at(index).incarnation
    cdef int64_t now = now_ms()
    with nogil:
        result = truncate_to(index, wanted, leader_epoch, offset, now, SPINS_OF_THREAD)
    if result != 0:
        raise SlotChanged(APPEND_RESULTS[<int>result])


def raise_high_watermark(uint32_t index, int64_t offset, *, int leader_epoch=-1):
    """Advance the high watermark. :raises SlotChanged: with the reason."""
    cdef AppendResult result
    cdef uint32_t wanted = slot_at(index).incarnation
    with nogil:
        result = advance_high_watermark(index, wanted, leader_epoch, offset, SPINS_OF_THREAD)
    if result != 0:
        raise SlotChanged(APPEND_RESULTS[<int>result])


def roll(uint32_t index):
    """Begin a new active segment, if the present one is not empty."""
    cdef int result
    with Held(index):
        result = roll_now(index, slot_at(index), now_ms())
        note_failure(slot_at(index), result)
    if result != 0:
        raise file_error(-result, f"{topic_of(slot_at(index))}-{slot_at(index).partition}")


def lock_and_hold(uint32_t index):
    """Take the slot's lock and keep it (a fault for tests: the process is then stopped or killed)."""
    Held(index).__enter__()


def swap_under_way(uint32_t index):
    """Whether files of the log change their names at this moment [R 4]: what is opened may not belong together."""
    return (slot_at(index).generation & SWAP_UNDER_WAY) != 0


def settle_swap(uint32_t index):
    """Wait for the end of a swap; finish it, if its author died. :raises SlotBusy: it does not end."""
    with Held(index):
        pass


def compaction_facts(uint32_t index):
    """What compaction goes by, as a dict of one moment; None if the slot holds no open log."""
    cdef Slot* slot = slot_at(index)
    cdef Commit commit
    cdef uint64_t generation = slot.generation      # before the rest: what is listed by it is no older
    if slot.state != SLOT_ONLINE:
        return None
    read_commit(slot, &commit)
    return {
        "topic": topic_of(slot),
        "partition": slot.partition,
        "log_dir": slot.log_dir,
        "incarnation": slot.incarnation,
        "generation": generation,
        "log_start_offset": slot.log_start_offset,
        "last_stable_offset": min(slot.last_stable_offset, commit.high_watermark),
        "log_end_offset": commit.log_end_offset,
        "segment_base": commit.segment_base,
        "min_compaction_lag_ms": slot.settings.min_compaction_lag_ms,
        "max_compaction_lag_ms": slot.settings.max_compaction_lag_ms,
        "min_cleanable_dirty_millionths": slot.settings.min_cleanable_dirty_millionths,
        "compact": bool(slot.settings.compact),
        "delete": bool(slot.settings.delete_),
    }


def in_use():
    """[(topic, partition, slot)] of every slot that holds a partition, announced or not."""
    cdef uint64_t i
    cdef Slot* slot
    found = []
    for i in range(region().header.slots_used):
        slot = slot_at(<uint32_t>i)
        if slot.state != SLOT_FREE and slot.state != SLOT_DELETED:
            found.append((topic_of(slot), slot.partition, i))
    return found


def checkpoint_offsets():
    """[(slot, (topic, partition, log directory, recovery point, log start offset, high watermark))] of every log in use.

    The recovery point is what is on the device. It stays in the segment that was active when all files were synced last:
    the indexes of the segments behind are only as good as the rebuilding that a recovery from there does.
    """
    cdef uint64_t i
    cdef Slot* slot
    cdef Commit commit
    cdef int64_t point, synced_base
    found = []
    for i in range(region().header.slots_used):
        slot = slot_at(<uint32_t>i)
        if slot.state == SLOT_ONLINE:
            synced_base = slot.synced_base      # before the rest: it only grows but for truncations, which wait for the device
            point = slot.flushed_offset
            read_commit(slot, &commit)
            if 0 <= synced_base < commit.segment_base:
                point = max(min(point, synced_base), slot.log_start_offset)
            found.append((i, (topic_of(slot), slot.partition, slot.log_dir, point, slot.log_start_offset,
                              commit.high_watermark)))
    return found


def not_online():
    """[(topic, partition, log directory)] of the logs that have a slot but say nothing of themselves: not loaded, or failed."""
    cdef uint64_t i
    cdef Slot* slot
    found = []
    for i in range(region().header.slots_used):
        slot = slot_at(<uint32_t>i)
        if slot.state == SLOT_LOADING or slot.state == SLOT_OFFLINE:
            found.append((topic_of(slot), slot.partition, slot.log_dir))
    return found
