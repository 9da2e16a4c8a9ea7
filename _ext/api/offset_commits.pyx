"""Parsing, storing and answering of OffsetCommit and TxnOffsetCommit requests; see `offset_commits.pxd`. Runs in the coordinator's event
loop; no lock.

The schemas (`offset_commit`, `txn_offset_commit` and `group_records` in `odradek.protocol.schemas`) and the Python handlers of both APIs
define the behaviour: what is read, checked, stored and answered; the tests compare this module with them. The handlers serve version 0 of
OffsetCommit and malformed requests, whose error messages the schemas make: for these, `read` and `read_transactional` return None.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT64_MAX, int16_t, int32_t, int64_t, uint32_t
from libc.stdlib cimport free, malloc, realloc

from odradek._ext.api.plain_requests cimport finished, header, text
from odradek._ext.protocol.api_versions cimport (
    OFFSET_COMMIT,
    OFFSET_COMMIT_FLEXIBLE,
    OFFSET_COMMIT_NEWEST,
    TXN_OFFSET_COMMIT,
    TXN_OFFSET_COMMIT_FLEXIBLE,
    TXN_OFFSET_COMMIT_NEWEST,
)
from odradek._ext.protocol.cursor cimport (
    CURSOR_OK,
    Cursor,
    WriteBuffer,
    buffer_free,
    buffer_init,
    cursor_left,
    read_bytes,
    read_int16,
    read_int32,
    read_int64,
    read_length,
    read_string_length,
    skip_tagged_fields,
    write_bytes,
    write_int16,
    write_int32,
    write_int64,
    write_int8,
    write_length,
    write_string_length,
)
from odradek._ext.protocol.decoder cimport MAX_ELEMENTS
from odradek._ext.protocol.kafka_errors cimport OFFSET_METADATA_TOO_LARGE, UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION
from odradek._ext.records.batch_builder cimport BatchBuilder
from odradek._ext.shm.metering cimport count_error
from odradek._ext.shm.topics cimport Topic, TopicDirectory


cdef enum:
    WITH_THROTTLE = 3
    WITH_LEADER_EPOCH = 6
    WITH_INSTANCE = 7
    WITH_TOPIC_ID = 10
    TRANSACTIONAL_WITH_LEADER_EPOCH = 2
    TRANSACTIONAL_WITH_MEMBER = 3
    TOPIC_ID_BYTES = 16
    LEAST_PARTITION_BYTES = 13          # index, offset and the length of the metadata
    LEAST_TOPIC_BYTES = 2
    KEY_VERSION = 1
    VALUE_VERSION = 3
    VALUE_VERSION_WITH_EXPIRY = 1
    RECORD_OVERHEAD = 40                # bytes of a record except the texts in its key and value
    NO_TIME = -1
    MOST_JOINED = 500                   # records of an append that may be in one batch with others
    MOST_JOINED_OF_COMMIT = 5000
    STEP = 10_000                       # entries: about a millisecond


@cython.final
@cython.freelist(4096)
cdef class CommittedOffset:
    """An offset that a group has committed.

    :param commit_timestamp_ms: wall clock. :param expire_timestamp_ms: set by an old client's retention time; -1: none.
    """

    def __init__(self, int64_t offset, int32_t leader_epoch=-1, str metadata not None="", int64_t commit_timestamp_ms=0,
                 int64_t expire_timestamp_ms=NO_TIME):
        self.offset = offset
        self.leader_epoch = leader_epoch
        self.metadata = metadata
        self.commit_timestamp_ms = commit_timestamp_ms
        self.expire_timestamp_ms = expire_timestamp_ms

    def fields(self) -> tuple[int, int, str, int, int]:
        """Return all fields, in the order of the constructor's arguments."""
        return self.offset, self.leader_epoch, self.metadata, self.commit_timestamp_ms, self.expire_timestamp_ms

    def __eq__(self, other) -> bool:
        return isinstance(other, CommittedOffset) and self.fields() == (<CommittedOffset>other).fields()

    def __hash__(self) -> int:
        return hash(self.fields())

    def __repr__(self) -> str:
        return f"CommittedOffset{self.fields()}"


def partition_for(str group_id not None, int partitions) -> int:
    """Return the partition of `__consumer_offsets` for a group: the absolute value of Java's hash of the id, modulo `partitions`."""
    cdef uint32_t number = 0
    cdef Py_UCS4 char
    cdef int32_t hashed
    for char in group_id:
        if char > 0xFFFF:
            number = 31 * number + (0xD800 + ((<uint32_t>char - 0x10000) >> 10))
            number = 31 * number + (0xDC00 + ((<uint32_t>char - 0x10000) & 0x3FF))
        else:
            number = 31 * number + <uint32_t>char
    hashed = <int32_t>number
    if hashed < 0:
        hashed = 0 if number == 0x80000000 else -hashed
    return hashed % partitions


def join(list queue not None, BatchBuilder builder not None, int most_records, int64_t most_bytes, int64_t timestamp) -> int:
    """Add appends from the front of a queue to a batch, at least one. Return their number. Raises what adding the first one raises.

    :param queue: tuples whose first item is a list of records or an OffsetCommit. :param most_records: of a batch of several appends.
    :param most_bytes: approximate limit of the batch.
    """
    cdef Py_ssize_t taken = 0, count, size_before
    cdef int64_t size
    cdef int count_before
    cdef OffsetCommit commit
    for append in queue:
        records = (<tuple>append)[0]
        commit = <OffsetCommit>records if isinstance(records, OffsetCommit) else None
        if commit is not None:
            count, size = commit.stored, commit.record_bytes
        else:
            count = len(records)
            if taken and count > MOST_JOINED:
                break
            size = sum([len(key) + len(value or b"") for key, value in records])
        if taken and (builder.count + count > most_records or builder.out.size + size > most_bytes):
            break
        size_before, count_before = builder.out.size, builder.count
        try:
            if commit is not None:
                commit.put_records(builder, None, timestamp, 0, commit.entry_count)
            else:
                for key, value in records:
                    builder.add(key, value, timestamp)
        except Exception:                   # leave the append in the queue; the next call meets it first, and raises its error
            if taken == 0:
                raise
            builder.out.size, builder.count, builder.out.error = size_before, count_before, 0
            break
        taken += 1
    return taken


def is_long(records) -> bool:
    """Whether an append has so many records that its batch is built in steps, and has no records of other appends."""
    return len(records) > (MOST_JOINED_OF_COMMIT if isinstance(records, OffsetCommit) else MOST_JOINED)


def in_steps(records, BatchBuilder builder not None, int64_t timestamp, int64_t most_bytes, int step=STEP) -> Iterator[None]:
    """A generator that adds the records of a long append to an empty batch, and yields after each step.

    :param most_bytes: the records after a batch of this size are left out. :param step: entries of an OffsetCommit in a step; of
        other records, which Python may make one by one, fewer.
    """
    cdef int first
    if isinstance(records, OffsetCommit):
        for first in range(0, (<OffsetCommit>records).entry_count, step):
            (<OffsetCommit>records).put_records(builder, None, timestamp, first, step)
            if builder.out.size > most_bytes:
                return
            yield
        return
    for number, (key, value) in enumerate(records, 1):
        builder.add(key, value, timestamp)
        if builder.out.size > most_bytes:
            return
        if number % MOST_JOINED == 0:
            yield


def read(
    bytes frame not None, TopicDirectory topics, int64_t longest_note, int64_t now_ms, int64_t max_elements=MAX_ELEMENTS,
) -> OffsetCommit | None:
    """Return an OffsetCommit for a request with its header; None for a request that this module leaves to the schemas.

    :param longest_note: maximum number of characters of a partition's metadata. :param now_ms: wall clock. :param max_elements: limit
        of topics and partitions together; a request with more is left to the schemas.
    """
    cdef OffsetCommit commit
    cdef Cursor c
    cdef int64_t retention_ms = -1
    commit = OffsetCommit.__new__(OffsetCommit)
    commit.frame = frame
    try:
        commit.version = <int16_t>header(&c, frame, OFFSET_COMMIT, OFFSET_COMMIT_NEWEST, OFFSET_COMMIT_FLEXIBLE, &commit.correlation_id)
        if commit.version < 1:
            return None
        commit.api_key = OFFSET_COMMIT
        commit.compact = commit.version >= OFFSET_COMMIT_FLEXIBLE
        commit.by_id = commit.version >= WITH_TOPIC_ID
        commit.with_leader_epoch = commit.version >= WITH_LEADER_EPOCH
        commit.with_time = commit.version == 1
        commit.with_throttle = commit.version >= WITH_THROTTLE
        commit.group_id = text(&c, commit.compact, False)
        commit.generation_id = read_int32(&c)
        commit.member_id = text(&c, commit.compact, False)
        if commit.version >= WITH_INSTANCE:
            commit.instance_id = text(&c, commit.compact, True)
        if 2 <= commit.version <= 4:
            retention_ms = read_int64(&c)
        if c.error != CURSOR_OK:
            return None
        commit.group_bytes = commit.group_id.encode()
        commit.expire_timestamp_ms = now_ms + min(retention_ms, INT64_MAX - now_ms) if retention_ms >= 0 else NO_TIME
        commit.read_topics(&c, topics, longest_note, now_ms, max_elements)
    except UnicodeDecodeError:
        return None
    return commit if c.error == CURSOR_OK else None


def read_transactional(bytes frame not None, TopicDirectory topics, int64_t longest_note, int64_t now_ms,
                       int64_t max_elements=MAX_ELEMENTS) -> OffsetCommit | None:
    """Return an OffsetCommit for a TxnOffsetCommit request with its header; None for a request that is left to the schema. See `read`."""
    cdef OffsetCommit commit
    cdef Cursor c
    commit = OffsetCommit.__new__(OffsetCommit)
    commit.frame = frame
    try:
        commit.version = <int16_t>header(&c, frame, TXN_OFFSET_COMMIT, TXN_OFFSET_COMMIT_NEWEST, TXN_OFFSET_COMMIT_FLEXIBLE,
                                         &commit.correlation_id)
        if commit.version < 0:
            return None
        commit.api_key = TXN_OFFSET_COMMIT
        commit.compact = commit.version >= TXN_OFFSET_COMMIT_FLEXIBLE
        commit.with_leader_epoch = commit.version >= TRANSACTIONAL_WITH_LEADER_EPOCH
        commit.with_throttle = True
        commit.transactional_id = text(&c, commit.compact, False)
        commit.group_id = text(&c, commit.compact, False)
        commit.producer_id = read_int64(&c)
        commit.producer_epoch = read_int16(&c)
        commit.generation_id = -1
        commit.member_id = ""
        if commit.version >= TRANSACTIONAL_WITH_MEMBER:
            commit.generation_id = read_int32(&c)
            commit.member_id = text(&c, commit.compact, False)
            commit.instance_id = text(&c, commit.compact, True)
        if c.error != CURSOR_OK:
            return None
        commit.group_bytes = commit.group_id.encode()
        commit.expire_timestamp_ms = NO_TIME
        commit.read_topics(&c, topics, longest_note, now_ms, max_elements)
    except UnicodeDecodeError:
        return None
    return commit if c.error == CURSOR_OK else None


@cython.final
cdef class OffsetCommit:
    """A request, parsed and checked partition by partition. Iterating over it yields the records (key, value) of the stored offsets."""

    def __cinit__(self):
        self.entries = NULL
        self.sections = NULL

    def __dealloc__(self):
        free(self.entries)
        free(self.sections)

    cdef int read_topics(self, Cursor* c, TopicDirectory topics, int64_t longest_note, int64_t now_ms,
                         int64_t max_elements) except -1:
        cdef bint compact = self.compact
        cdef int64_t count = read_length(c, compact), length, i, room = 0
        cdef Section* section
        cdef Entry* grown
        cdef Topic topic
        self.topics = []
        self.notes = []
        if c.error != CURSOR_OK:
            return 0
        if count < 0 or count > cursor_left(c) // LEAST_TOPIC_BYTES or count > max_elements:
            c.error = -1
            return 0
        self.sections = <Section*>malloc(max(count, 1) * sizeof(Section))
        if self.sections == NULL:
            raise MemoryError(f"no memory for {count} topics")
        for i in range(count):
            section = &self.sections[i]
            if self.by_id:
                length = TOPIC_ID_BYTES
            else:
                length = read_string_length(c, compact)
            section.name = read_bytes(c, length)
            if section.name == NULL:
                return 0
            name = PyBytes_FromStringAndSize(<const char*>section.name, length)
            section.name_bytes = <int32_t>length
            if self.by_id:
                topic = topics.by_id.get(name)
            else:
                topic = topics.by_name.get(name)
                if topic is None:
                    name.decode()           # raises UnicodeDecodeError: the request is malformed
            self.topics.append(topic)
            length = read_length(c, compact)
            if c.error != CURSOR_OK:
                return 0
            if length < 0 or length > cursor_left(c) // LEAST_PARTITION_BYTES or count + self.entry_count + length > max_elements:
                c.error = -1
                return 0
            section.first = self.entry_count
            section.count = <int32_t>length
            if self.entry_count + length > room:
                room = max(self.entry_count + length, 2 * room)
                grown = <Entry*>realloc(self.entries, room * sizeof(Entry))
                if grown == NULL:
                    raise MemoryError(f"no memory for {length} partitions")
                self.entries = grown
            for _ in range(length):
                self.read_entry(c, &self.entries[self.entry_count], topic, longest_note, now_ms)
                if c.error != CURSOR_OK:
                    return 0
                self.entry_count += 1
            if compact:
                skip_tagged_fields(c)
            self.section_count += 1
        if compact:
            skip_tagged_fields(c)
        return 0

    cdef int read_entry(self, Cursor* c, Entry* entry, Topic topic, int64_t longest_note, int64_t now_ms) except -1:
        cdef bint compact = self.compact
        cdef int64_t length
        cdef str note = ""
        entry.partition = read_int32(c)
        entry.offset = read_int64(c)
        entry.leader_epoch = read_int32(c) if self.with_leader_epoch else -1
        entry.timestamp = read_int64(c) if self.with_time else NO_TIME
        if entry.timestamp == NO_TIME:
            entry.timestamp = now_ms
        length = max(read_string_length(c, compact), <int64_t>0)
        entry.note = read_bytes(c, length)
        entry.note_bytes = <int32_t>length
        if compact:
            skip_tagged_fields(c)
        if c.error != CURSOR_OK:
            return 0
        if length:
            note = PyUnicode_DecodeUTF8(<const char*>entry.note, length, NULL)
        entry.error = 0
        if topic is None:
            entry.error = UNKNOWN_TOPIC_ID if self.by_id else UNKNOWN_TOPIC_OR_PARTITION
        elif not topic.has(entry.partition):
            entry.error = UNKNOWN_TOPIC_OR_PARTITION
        elif length > longest_note and len(note) > longest_note:
            self.known += 1
            entry.error = OFFSET_METADATA_TOO_LARGE
        else:
            self.known += 1
            self.stored += 1
            self.record_bytes += RECORD_OVERHEAD + len(self.group_bytes) + len(topic.name_bytes) + length
            self.metadata_size += len(note)
        self.notes.append(note)
        return 0

    @property
    def knows_epochs(self) -> bool:
        """Whether the request's version has the error codes of KIP-848."""
        return self.version >= 9

    @property
    def size(self) -> int:
        """Approximate size of its records in bytes."""
        return self.record_bytes

    def __len__(self) -> int:
        return self.stored

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        cdef list pairs = []
        self.put_records(None, pairs, 0, 0, self.entry_count)
        return iter(pairs)

    def items(self) -> list[tuple[tuple[str, int], CommittedOffset]]:
        """Return ((topic, partition), CommittedOffset) of the offsets to be stored, in order."""
        cdef list offsets = []
        cdef Topic topic
        cdef Section* section
        cdef int i, k
        for i in range(self.section_count):
            section = &self.sections[i]
            topic = self.topics[i]
            for k in range(section.first, section.first + section.count):
                if self.entries[k].error == 0:
                    offsets.append(((topic.name, self.entries[k].partition), self.committed(k)))
        return offsets

    cdef CommittedOffset committed(self, int number):
        cdef CommittedOffset committed = CommittedOffset.__new__(CommittedOffset)
        committed.offset = self.entries[number].offset
        committed.leader_epoch = self.entries[number].leader_epoch
        committed.commit_timestamp_ms = self.entries[number].timestamp
        committed.expire_timestamp_ms = self.expire_timestamp_ms
        committed.metadata = <str>self.notes[number]
        return committed

    def put_into(self, dict offsets not None) -> None:
        """Store the offsets in `offsets`: {topic: {partition: CommittedOffset}}."""
        cdef dict partitions
        cdef Topic topic
        cdef Section* section
        cdef int i, k
        for i in range(self.section_count):
            section = &self.sections[i]
            topic = self.topics[i]
            partitions = None
            for k in range(section.first, section.first + section.count):
                if self.entries[k].error:
                    continue
                if partitions is None:
                    partitions = offsets.get(topic.name)
                    if partitions is None:
                        partitions = offsets[topic.name] = {}
                partitions[self.entries[k].partition] = self.committed(k)

    cdef int put_records(self, BatchBuilder builder, list pairs, int64_t timestamp, int first, int most) except -1:
        cdef WriteBuffer out
        cdef Topic topic
        cdef Section* section
        cdef Entry* entry
        cdef Py_ssize_t head, key
        cdef int i, k, end = min(first + most, self.entry_count)
        cdef bint expires = self.expire_timestamp_ms != NO_TIME
        buffer_init(&out)
        try:
            for i in range(self.section_count):
                section = &self.sections[i]
                if section.first >= end or section.first + section.count <= first:
                    continue
                topic = self.topics[i]
                if topic is None:
                    continue
                out.size = 0
                write_int16(&out, KEY_VERSION)
                write_string_length(&out, <int32_t>len(self.group_bytes), False)
                write_bytes(&out, <const char*>self.group_bytes, len(self.group_bytes))
                write_string_length(&out, <int32_t>len(topic.name_bytes), False)
                write_bytes(&out, <const char*>topic.name_bytes, len(topic.name_bytes))
                head = out.size
                for k in range(max(section.first, first), min(section.first + section.count, end)):
                    entry = &self.entries[k]
                    if entry.error:
                        continue
                    out.size = head
                    write_int32(&out, entry.partition)
                    key = out.size
                    write_int16(&out, VALUE_VERSION_WITH_EXPIRY if expires else VALUE_VERSION)
                    write_int64(&out, entry.offset)
                    if not expires:
                        write_int32(&out, entry.leader_epoch)
                    write_string_length(&out, entry.note_bytes, False)
                    write_bytes(&out, entry.note, entry.note_bytes)
                    write_int64(&out, entry.timestamp)
                    if expires:
                        write_int64(&out, self.expire_timestamp_ms)
                    if out.error:
                        raise MemoryError("no memory for the records of a commit")
                    if builder is not None:
                        builder.put(out.data, key, out.data + key, out.size - key, timestamp)
                    else:
                        pairs.append((
                            PyBytes_FromStringAndSize(<char*>out.data, key),
                            PyBytes_FromStringAndSize(<char*>out.data + key, out.size - key),
                        ))
        finally:
            buffer_free(&out)
        return 0

    def response(self, int16_t outcome) -> bytes:
        """Return the response with its header: `outcome` for the partitions without an error, the error of each other partition.

        In a transaction, an outcome that is an error replaces OFFSET_METADATA_TOO_LARGE: Kafka checks the group first.
        """
        cdef bint compact = self.compact
        cdef WriteBuffer out
        cdef Section* section
        cdef int16_t error
        cdef int i, k
        buffer_init(&out)
        try:
            write_int32(&out, self.correlation_id)
            if compact:
                write_int8(&out, 0)
            if self.with_throttle:
                write_int32(&out, 0)
            write_length(&out, self.section_count, compact)
            for i in range(self.section_count):
                section = &self.sections[i]
                if not self.by_id:
                    write_string_length(&out, section.name_bytes, compact)
                write_bytes(&out, section.name, section.name_bytes)
                write_length(&out, section.count, compact)
                for k in range(section.first, section.first + section.count):
                    error = self.entries[k].error or outcome
                    if outcome and error == OFFSET_METADATA_TOO_LARGE and self.api_key == TXN_OFFSET_COMMIT:
                        error = outcome
                    write_int32(&out, self.entries[k].partition)
                    write_int16(&out, error)
                    if error:
                        self.failed = True
                        count_error(self.api_key, error)
                    if compact:
                        write_int8(&out, 0)
                if compact:
                    write_int8(&out, 0)
            if compact:
                write_int8(&out, 0)
            return finished(&out)
        finally:
            buffer_free(&out)
