"""What Python sees of a partition: the facts of a slot at one moment."""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t, uint8_t


cdef class SlotFacts:
    # the commit block: all values are of one commit
    cdef readonly int64_t segment_base              # base offset of the active segment
    cdef readonly int64_t size                      # bytes of the active segment
    cdef readonly int64_t log_end_offset
    cdef readonly int32_t index_entries             # entries of the active segment's indexes
    cdef readonly int32_t timeindex_entries
    cdef readonly int32_t txnindex_entries
    cdef readonly int32_t rolls                     # rolls since the log was loaded
    cdef readonly int64_t high_watermark
    cdef readonly int64_t high_watermark_base       # segment that contains the high watermark, -1 if not known
    cdef readonly int64_t high_watermark_position   # bytes before it in that segment
    cdef readonly int64_t first_timestamp           # of the active segment's first batch, ms; -1 if the segment is empty
    cdef readonly int64_t max_timestamp             # of the active segment, ms; -1 if none
    cdef readonly int64_t max_timestamp_offset
    cdef readonly int64_t indexed_position          # end of the bytes that the last entry of the offset index covers
    cdef readonly int64_t timeindexed_timestamp     # of the last entry of the time index, -1 if none
    cdef readonly int64_t timeindexed_offset
    cdef readonly int64_t created_ms                # wall clock time at which the active segment was created

    # the rest of the slot, read value by value
    cdef readonly str topic
    cdef readonly int32_t partition
    cdef readonly bytes topic_id                    # 16 bytes
    cdef readonly uint32_t state                    # a `SlotState`
    cdef readonly uint32_t role                     # a `Role`
    cdef readonly uint32_t incarnation              # changes whenever the slot is given to another partition
    cdef readonly uint64_t generation               # changes with every change of the log's segments other than an append; read first
    cdef readonly int32_t leader_epoch
    cdef readonly int64_t leader_epoch_start        # log end offset when this broker became the leader in `leader_epoch`; -1: it is not
    cdef readonly int32_t leader_id
    cdef readonly int64_t fetch_lag                 # of a followed partition, see `Slot.fetch_lag`; -1: unknown, or not followed
    cdef readonly int32_t partition_epoch
    cdef readonly uint8_t begun_epoch               # a `BegunEpoch`
    cdef readonly int64_t log_start_offset
    cdef readonly int64_t last_stable_offset        # may be above the high watermark
    cdef readonly int64_t first_unstable_offset     # first offset of the oldest open transaction, -1 if none
    cdef readonly int64_t unstable_base             # segment with the batch that begins there, -1 if not known
    cdef readonly int64_t unstable_position         # of that batch in the segment's file
    cdef readonly list unreplicated                 # two of (smallest first offset, last marker): see `Slot.unreplicated_first`
    cdef readonly int64_t newest_abort_offset       # not below the last offset of any aborted transaction, -1 if there was none
    cdef readonly int64_t flushed_offset            # every record before it is on the device
    cdef readonly int64_t recovery_point            # the value last written to the checkpoint
    cdef readonly int64_t synced_base               # active segment when all files were last synced, -1 if not known
    cdef readonly int64_t synced_end                # log end offset at that time
    cdef readonly uint64_t flushes                  # how often `flushed_offset` was advanced
    cdef readonly uint32_t producer_count
    cdef readonly uint8_t log_dir                   # index of the log directory
    cdef readonly uint64_t lock_recoveries          # how often the lock was taken from a dead process
    cdef readonly uint64_t lock_busy                # how often the lock was not free in time
    cdef readonly int64_t applied_position          # end of the bytes of the active segment whose effects the slot's state contains
    cdef readonly uint64_t intent                   # the structural change in progress, 0 if none
    cdef readonly uint64_t truncations              # since the log was loaded
    cdef readonly int64_t gap_limit                 # below it offsets may be missing; INT64_MAX: not known yet
    cdef readonly bint internal
    cdef readonly int32_t epoch_count               # leader epochs since the log was created
    cdef readonly list epochs                       # (leader epoch, first offset) of the last EPOCHS_KEPT epochs
    cdef readonly list replicas                     # broker ids
    cdef readonly list in_sync                      # broker ids

    # settings of the topic
    cdef readonly int64_t retention_ms
    cdef readonly int64_t retention_bytes
    cdef readonly int64_t file_delete_delay_ms
    cdef readonly int64_t delete_retention_ms
    cdef readonly int64_t segment_bytes
    cdef readonly int64_t segment_ms
    cdef readonly int64_t min_compaction_lag_ms
    cdef readonly int64_t max_compaction_lag_ms
    cdef readonly int32_t min_cleanable_dirty_millionths  # of min.cleanable.dirty.ratio
    cdef readonly bint compact                      # cleanup.policy contains compact
    cdef readonly bint delete                       # cleanup.policy contains delete
    cdef readonly bint exact_retention              # odradek.retention.exact
