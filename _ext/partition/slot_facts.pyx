"""The state of a slot for Python: for requests of the control path, the passes of the cleaner, metrics and tests.

Any process, any thread. No lock is taken, unless a process died while it changed the slot's leader epochs.
"""

cimport cython
from libc.stdint cimport int64_t, uint32_t

from odradek._ext.partition.leader_epochs cimport EpochRing, copy_epochs
from odradek._ext.partition.slot_access cimport wait_slot
from odradek._ext.partition.slots cimport LOCK_PATIENCE_MS, busy, checked_slot, topic_of
from odradek._ext.shm.layout cimport region
from odradek._ext.shm.locks cimport unlock
from odradek._ext.shm.slot cimport ROLE_FOLLOWER, SLOT_ONLINE, Commit, Slot, read_commit, state_now


@cython.final
cdef class SlotFacts:
    """A partition as its slot describes it at one moment.

    The fields of the commit block are of one commit. The other fields are read one by one, without the slot's lock: each value was
    true during the call, but two of them may be from different moments. The generation is read before the rest: a list of the log's
    files that was made for this generation is not older than the other fields.
    """

    def __repr__(self) -> str:
        return f"<SlotFacts of {self.topic}-{self.partition}, offsets {self.log_start_offset} to {self.log_end_offset}>"


def describe(uint32_t index) -> SlotFacts:
    """Return the facts of a slot, also of a free or failed one. Raises IndexError if the table has no such slot."""
    cdef SlotFacts facts = SlotFacts.__new__(SlotFacts)
    cdef Slot* slot = checked_slot(index)
    facts.generation = slot.generation
    read_commit_block(facts, slot)
    read_slot(facts, index, slot)
    read_settings(facts, slot)
    return facts


def of_open_log(uint32_t index) -> SlotFacts | None:
    """Return the facts of a slot; None if it has no open log. Raises IndexError if the table has no such slot."""
    facts = describe(index)
    return facts if (<SlotFacts>facts).state == SLOT_ONLINE else None


cdef void read_commit_block(SlotFacts facts, Slot* slot) noexcept:
    cdef Commit commit
    read_commit(slot, &commit)
    facts.segment_base = commit.segment_base
    facts.size = commit.size
    facts.log_end_offset = commit.log_end_offset
    facts.index_entries = commit.index_entries
    facts.timeindex_entries = commit.timeindex_entries
    facts.txnindex_entries = commit.txnindex_entries
    facts.rolls = commit.rolls
    facts.high_watermark = commit.high_watermark
    facts.high_watermark_base = commit.high_watermark_base
    facts.high_watermark_position = commit.high_watermark_position
    facts.first_timestamp = commit.first_timestamp
    facts.max_timestamp = commit.max_timestamp
    facts.max_timestamp_offset = commit.max_timestamp_offset
    facts.indexed_position = commit.indexed_position
    facts.timeindexed_timestamp = commit.timeindexed_timestamp
    facts.timeindexed_offset = commit.timeindexed_offset
    facts.created_ms = commit.created_ms


cdef int copy_ring(uint32_t index, Slot* slot, EpochRing* ring) except -1:
    """Copy the slot's epochs. If the process that changed them died, this process completes the change.

    :raises SlotBusy: another thread holds the slot's lock for long.
    """
    cdef bint taken
    ring.count = 0
    if copy_epochs(slot, ring) or region().foreign:
        return 0
    with nogil:
        taken = wait_slot(index, slot, LOCK_PATIENCE_MS) == 0
        if taken:
            copy_epochs(slot, ring)
            unlock(index, slot)
    if not taken:
        raise busy(index)
    return 0


cdef int read_slot(SlotFacts facts, uint32_t index, Slot* slot) except -1:
    cdef EpochRing ring
    cdef int64_t i
    facts.topic = topic_of(slot)
    facts.partition = slot.partition
    facts.topic_id = bytes(slot.topic_id[:16])
    facts.state = state_now(slot)
    facts.role = slot.role
    facts.incarnation = slot.incarnation
    facts.leader_epoch = slot.leader_epoch
    facts.leader_epoch_start = slot.leader_epoch_start
    facts.leader_id = slot.leader_id
    facts.fetch_lag = slot.fetch_lag if slot.role == ROLE_FOLLOWER else -1
    facts.partition_epoch = slot.partition_epoch
    facts.begun_epoch = slot.begun_epoch
    facts.log_start_offset = slot.log_start_offset
    facts.last_stable_offset = slot.last_stable_offset
    facts.first_unstable_offset = slot.first_unstable_offset
    facts.unstable_base = slot.unstable_base
    facts.unstable_position = slot.unstable_position
    facts.unreplicated = [(slot.unreplicated_first[i], slot.unreplicated_last[i]) for i in range(2)]
    facts.newest_abort_offset = slot.newest_abort_offset
    facts.flushed_offset = slot.flushed_offset
    facts.recovery_point = slot.recovery_point
    facts.synced_base = slot.synced_base
    facts.synced_end = slot.synced_end
    facts.flushes = slot.flushes
    facts.producer_count = slot.producer_count
    facts.log_dir = slot.log_dir
    facts.lock_recoveries = slot.lock_recoveries
    facts.lock_busy = slot.lock_busy
    facts.applied_position = slot.applied_position
    facts.intent = slot.intent
    facts.truncations = slot.truncations
    facts.gap_limit = slot.gap_limit
    facts.internal = slot.internal != 0
    facts.epoch_count = slot.epoch_count
    copy_ring(index, slot, &ring)
    facts.epochs = [(ring.entries[i].epoch, ring.entries[i].start_offset) for i in range(ring.count)]
    facts.replicas = [slot.replicas[i] for i in range(slot.replica_count)]
    facts.in_sync = [slot.in_sync[i] for i in range(slot.in_sync_count)]
    return 0


cdef void read_settings(SlotFacts facts, Slot* slot) noexcept:
    facts.retention_ms = slot.settings.retention_ms
    facts.retention_bytes = slot.settings.retention_bytes
    facts.file_delete_delay_ms = slot.settings.file_delete_delay_ms
    facts.delete_retention_ms = slot.settings.delete_retention_ms
    facts.segment_bytes = slot.settings.segment_bytes
    facts.segment_ms = slot.settings.segment_ms
    facts.min_compaction_lag_ms = slot.settings.min_compaction_lag_ms
    facts.max_compaction_lag_ms = slot.settings.max_compaction_lag_ms
    facts.min_cleanable_dirty_millionths = slot.settings.min_cleanable_dirty_millionths
    facts.compact = slot.settings.compact != 0
    facts.delete = slot.settings.delete_ != 0
    facts.exact_retention = slot.settings.exact_retention != 0
