"""When the active segment ends, how it is closed, and how the next one begins; see rolling.pxd.

Runs with the slot's mutex held, allocates nothing and needs no GIL. The conditions are those of Kafka's LogSegment.shouldRoll.
"""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t, uint8_t
from libc.string cimport memcpy

from odradek._ext.partition.append_files cimport AppendFiles, index_file, release_files, take_files
from odradek._ext.partition.commits cimport current, new_generation, publish, set_applied
from odradek._ext.partition.producer_snapshots cimport snapshot_producers
from odradek._ext.partition.segment_files cimport create_file, cut_leftover, unlink_segment
from odradek._ext.records.record_batch cimport BatchInfo
from odradek._ext.shm.faults cimport *
from odradek._ext.shm.slot cimport Commit, Slot
from odradek._ext.storage.index_entries cimport OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, pack_time_entry
from odradek._ext.storage.log_scan cimport write_at
from odradek._ext.storage.log_state cimport FILE_INDEX, FILE_LOG, FILE_TIME_INDEX


cdef enum:
    LARGEST_RELATIVE_OFFSET = 0x7FFFFFFF    # in an index entry


cdef int64_t drawn_jitter(Slot* slot, int64_t segment_base) noexcept nogil:
    """A number in [0, segment.jitter.ms]: always the same for a segment, and different for segments that began at the same
    time."""
    cdef uint64_t mixed
    if slot.settings.segment_jitter_ms <= 0:
        return 0
    memcpy(&mixed, &slot.topic_id[8], sizeof(mixed))
    mixed ^= (<uint64_t>segment_base << 16) ^ <uint64_t>slot.partition
    mixed = (mixed ^ (mixed >> 29)) * <uint64_t>0xBF58476D1CE4E5B9
    return <int64_t>((mixed >> 8) % (<uint64_t>min(slot.settings.segment_jitter_ms, slot.settings.segment_ms) + 1))


cdef inline int64_t longest_ms(Slot* slot, int64_t segment_base) noexcept nogil:
    """How long a segment may be active. Compaction skips the active segment, so max.compaction.lag.ms is a limit as well."""
    cdef int64_t limit_ms = slot.settings.segment_ms - drawn_jitter(slot, segment_base)
    if slot.settings.compact and 0 < slot.settings.max_compaction_lag_ms < limit_ms:
        return slot.settings.max_compaction_lag_ms
    return limit_ms


cdef bint must_roll(Slot* slot, Commit* commit, BatchInfo* info, int64_t last_offset, int64_t wall_ms) noexcept nogil:
    cdef int64_t limit_ms = longest_ms(slot, commit.segment_base)
    cdef int64_t batch_timestamp = info.max_timestamp
    cdef int64_t index_limit = slot.settings.index_max_bytes // OFFSET_ENTRY_BYTES
    if commit.size == 0:
        return False
    if commit.size > slot.settings.segment_bytes - info.size:
        return True
    if commit.first_timestamp >= 0 and batch_timestamp >= 0:
        if batch_timestamp - commit.first_timestamp > limit_ms:
            return True
    elif wall_ms - commit.created_ms > limit_ms:
        return True
    if commit.index_entries >= index_limit or commit.timeindex_entries >= slot.settings.index_max_bytes // TIME_ENTRY_BYTES - 1:
        return True
    return last_offset - commit.segment_base > LARGEST_RELATIVE_OFFSET


cdef int write_time_entry(Slot* slot, AppendFiles* files, Commit* commit) noexcept nogil:
    """Write a time index entry for the largest timestamp so far, if that exceeds the last entry's. Returns 0, or -errno."""
    cdef uint8_t[TIME_ENTRY_BYTES] entry
    cdef int fd, result
    if commit.max_timestamp <= commit.timeindexed_timestamp or commit.max_timestamp < 0 \
            or commit.max_timestamp_offset - commit.segment_base > LARGEST_RELATIVE_OFFSET:
        return 0                        # the last condition: the first batch follows a gap wider than a relative offset
    fd = index_file(files, slot, FILE_TIME_INDEX)
    if fd < 0:
        return fd
    pack_time_entry(entry, commit.max_timestamp, commit.max_timestamp_offset - commit.segment_base)
    result = write_at(fd, entry, TIME_ENTRY_BYTES, <int64_t>commit.timeindex_entries * TIME_ENTRY_BYTES)
    if result != 0:
        slot.uncut = 1
    else:
        commit.timeindex_entries += 1
        commit.timeindexed_timestamp = commit.max_timestamp
        commit.timeindexed_offset = commit.max_timestamp_offset
    return result


cdef int put_time_entry(uint32_t index, Slot* slot, Commit* commit) noexcept nogil:
    """`write_time_entry` with the files of the active segment."""
    cdef int result = 0
    cdef AppendFiles* files = take_files(index, slot, commit.segment_base, &result)
    if files != NULL:
        result = write_time_entry(slot, files, commit)
        release_files(files)
    return result


cdef int end_segment(uint32_t index, Slot* slot) noexcept nogil:
    cdef Commit commit = current(slot)[0]
    cdef int32_t entries = commit.timeindex_entries
    cdef int result = cut_leftover(slot)
    if result != 0 or commit.max_timestamp <= commit.timeindexed_timestamp:
        return result
    result = put_time_entry(index, slot, &commit)
    if result == 0 and commit.timeindex_entries != entries:
        publish(slot, &commit)
    return result


cdef void start_segment(Commit* commit, int64_t base, int64_t wall_ms) noexcept nogil:
    commit.segment_base = base
    commit.size = 0
    commit.log_end_offset = base
    commit.index_entries = commit.timeindex_entries = commit.txnindex_entries = 0
    commit.first_timestamp = commit.max_timestamp = commit.max_timestamp_offset = -1
    commit.indexed_position = 0
    commit.timeindexed_timestamp = commit.timeindexed_offset = -1
    commit.created_ms = wall_ms
    commit.rolls += 1


cdef int roll_now(uint32_t index, Slot* slot, int64_t wall_ms) noexcept nogil:
    cdef Commit commit = current(slot)[0]
    cdef int result, i
    cdef int* kinds = [FILE_LOG, FILE_INDEX, FILE_TIME_INDEX]
    cdef int64_t base = commit.log_end_offset
    fault(ROLL_STARTED)
    if base == commit.segment_base:
        return 0                        # the active segment is empty
    result = cut_leftover(slot)         # only the active segment may have bytes after its end
    if result != 0:
        return result
    result = put_time_entry(index, slot, &commit)
    if result != 0:
        return result
    fault(ROLL_TIME_INDEX_WRITTEN)
    publish(slot, &commit)
    fault(ROLL_TIME_INDEX_COMMITTED)
    if slot.producer_run != 0:
        result = snapshot_producers(slot, base)
        if result != 0:
            return result
    fault(ROLL_SNAPSHOT_WRITTEN)
    for i in range(3):
        result = create_file(slot, base, kinds[i])
        if result != 0:
            unlink_segment(slot, base)
            return result
        if i == 0:
            fault(ROLL_LOG_CREATED)
    fault(ROLL_INDEXES_CREATED)
    if commit.high_watermark == base:
        commit.high_watermark_base = base
        commit.high_watermark_position = 0
    start_segment(&commit, base, wall_ms)
    publish(slot, &commit)
    fault(ROLL_COMMITTED)
    set_applied(slot, base, 0)
    new_generation(slot)
    return 0
