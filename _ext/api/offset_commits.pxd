"""OffsetCommit requests of versions 1 to 10 and TxnOffsetCommit requests: read in one pass, stored, answered. Most of the cost
of a commit is here."""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from odradek._ext.protocol.cursor cimport Cursor
from odradek._ext.records.batch_builder cimport BatchBuilder
from odradek._ext.shm.topics cimport Topic, TopicDirectory


cdef class CommittedOffset:
    cdef readonly int64_t offset
    cdef readonly int64_t commit_timestamp_ms
    cdef readonly int64_t expire_timestamp_ms
    cdef readonly str metadata
    cdef readonly int32_t leader_epoch


cdef struct Entry:                      # one partition of a request
    int64_t offset
    int64_t timestamp
    const uint8_t* note                 # the commit's metadata, in the request
    int32_t note_bytes
    int32_t partition
    int32_t leader_epoch
    int16_t error                       # 0: the offset must be stored


cdef struct Section:                    # one topic of a request
    const uint8_t* name                 # name or id
    int32_t name_bytes
    int32_t first                       # index of its first entry
    int32_t count


cdef class OffsetCommit:                # also of a TxnOffsetCommit
    cdef readonly int16_t version
    cdef int16_t api_key
    cdef bint compact                   # the encoding of the request's version, and which fields it has
    cdef bint by_id
    cdef bint with_leader_epoch
    cdef bint with_time
    cdef bint with_throttle
    cdef readonly int32_t correlation_id
    cdef readonly int32_t generation_id
    cdef readonly str group_id
    cdef readonly str member_id
    cdef readonly str instance_id       # None: not a static member
    cdef readonly str transactional_id  # None: not in a transaction
    cdef readonly int64_t producer_id
    cdef readonly int16_t producer_epoch
    cdef readonly int64_t expire_timestamp_ms
    cdef bytes frame                    # the pointers of entries and sections point into it
    cdef bytes group_bytes
    cdef readonly list topics           # the Topic of each section, None for an unknown topic
    cdef list notes                     # the metadata of each entry, as str
    cdef Entry* entries
    cdef Section* sections
    cdef int entry_count
    cdef int section_count
    cdef int stored                     # number of entries without error
    cdef readonly int known             # number of entries of existing partitions
    cdef int64_t record_bytes           # approximate size of its records
    cdef readonly int64_t metadata_size  # characters of the metadata of the offsets to be stored
    cdef readonly bint failed                    # the response contains an error for a partition

    cdef int read_topics(self, Cursor* c, TopicDirectory topics, int64_t longest_note, int64_t now_ms, int64_t max_elements) except -1
    cdef int read_entry(self, Cursor* c, Entry* entry, Topic topic, int64_t longest_note, int64_t now_ms) except -1
    # Put the records of at most `most` entries from entry `first` on into the builder, or their pairs into `pairs`.
    cdef int put_records(self, BatchBuilder builder, list pairs, int64_t timestamp, int first, int most) except -1
    cdef CommittedOffset committed(self, int number)
