"""Checking a whole segment against its own rules and its indexes, near the speed of the CRC.

Run by the processes of `odradek log verify` and `odradek adopt`, over files that they only read; nothing is shared and
no lock is held. A `SegmentCheck` walks through one segment with a buffer of its own and notes what is wrong; it goes on
behind a batch that is damaged, or at the next index entry where the framing itself is lost.
"""

from libc.errno cimport ENOMEM
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc

from odradek._ext.protocol.byte_view cimport ByteView
from odradek._ext.records.record_batch cimport AT_RECORDS, BATCH_HEADER_BYTES, CODEC_NONE, CODEC_ZSTD, BatchInfo, read_varint
from odradek._ext.storage.log_scan cimport SCAN_CORRUPT, SCAN_END, Scanner, scan_batch, scan_crc, scan_file, scan_window

# What a note is about; `odradek.storage.verify` has the sentences, and the meaning of `value`.
FRAMING, CRC, OFFSET_BACK, GAP, EPOCH_BACK, RECORDS, HEADER, RANGE = range(1, 9)
INDEX_POSITION, INDEX_OFFSET, TIME_OFFSET, TIME_STAMP = range(9, 13)
EPOCH = 100

cdef enum:
    PAIR_BYTES = 16                 # of an index as SegmentCheck takes it

cdef enum:
    NOTE_FRAMING = 1                # no batch where one should begin; value: where reading goes on, -1 if nowhere
    NOTE_CRC = 2
    NOTE_OFFSET_BACK = 3            # a base offset below what should come next; value: what should
    NOTE_GAP = 4                    # one above it; value: what should come next
    NOTE_EPOCH_BACK = 5             # value: the epoch before
    NOTE_RECORDS = 6                # the records do not fill the batch or are not as many as stated; value: found, or -1
    NOTE_HEADER = 7                 # a sound CRC over counts that cannot be; value: the record count
    NOTE_RANGE = 8                  # offsets that the segment's indexes cannot state; value: the last offset
    NOTE_INDEX_POSITION = 9         # an entry of the offset index points into or behind the batches; value: the entry
    NOTE_INDEX_OFFSET = 10          # an entry whose offset is before its batch; value: the entry
    NOTE_TIME_OFFSET = 11           # an entry of the time index whose offset is in no batch; value: the entry
    NOTE_TIME_STAMP = 12            # an entry that is not the largest timestamp so far; value: the entry
    NOTE_EPOCH = 100                # not an error: a leader epoch begins; value: the epoch
    MOST_NOTES = 256                # between two returns to Python
    NOTES_A_BATCH = 8               # at most, those of indexes not counted
    MOST_IN_MEMORY = 134217728      # of a larger batch the CRC is checked in pieces and the records are not counted


cdef struct Noted:
    int kind
    int64_t position
    int64_t offset
    int64_t value


cdef class SegmentCheck:
    """One segment's walk.

    :param descriptor: of the log file. :param size: its bytes that count. :param base_offset: of its name.
    :param gap_limit: offsets below it may be missing, as in a compacted log.
    :param index: the offset index as pairs of int64 (absolute offset, position). :param times: the time index as pairs of int64
        (timestamp in ms, absolute offset). Both have a contiguous buffer.

    Attributes, which grow from step to step: ``position`` (where reading is), ``next_offset``, ``first_offset`` (-1: no batch
    yet), ``batches``, ``records`` (as stated; a compressed wrapper of an old format counts as one), ``max_timestamp``,
    ``formats`` (bit n: format vn was seen), ``codecs`` (bit n: codec n was seen), ``gaps_end`` (the offset behind the last gap, 0
    without one), ``finished``.
    """

    cdef Scanner scanner
    cdef uint8_t* memory
    cdef BatchInfo info
    cdef ByteView index           # kept for as long as the pairs are read
    cdef ByteView times
    cdef const int64_t* index_pairs
    cdef const int64_t* times_pairs
    cdef Py_ssize_t index_count   # pairs
    cdef Py_ssize_t times_count
    cdef Py_ssize_t index_at
    cdef Py_ssize_t times_at
    cdef int64_t base_offset
    cdef int64_t gap_limit
    cdef int32_t epoch
    cdef Noted notes[MOST_NOTES]
    cdef int noted
    cdef readonly int64_t position
    cdef readonly int64_t next_offset
    cdef readonly int64_t first_offset
    cdef readonly int64_t batches
    cdef readonly int64_t records
    cdef readonly int64_t max_timestamp
    cdef readonly int formats
    cdef readonly int codecs
    cdef readonly int64_t gaps_end
    cdef readonly bint finished

    def __cinit__(
        self,
        int descriptor,
        int64_t size,
        int64_t base_offset,
        int64_t gap_limit,
        index,
        times,
        Py_ssize_t buffer_bytes=1048576,
    ):
        if buffer_bytes < BATCH_HEADER_BYTES or size < 0:
            raise ValueError(f"a buffer of {buffer_bytes} bytes for {size}")
        self.index = ByteView(index)
        self.times = ByteView(times)
        if self.index.size % PAIR_BYTES or self.times.size % PAIR_BYTES:
            raise ValueError("index and times must be pairs of 64-bit integers")
        self.memory = <uint8_t*>malloc(buffer_bytes)
        if self.memory == NULL:
            raise MemoryError()
        scan_file(&self.scanner, descriptor, size, self.memory, buffer_bytes)
        self.index_pairs = <const int64_t*>self.index.data
        self.index_count = self.index.size // PAIR_BYTES
        self.times_pairs = <const int64_t*>self.times.data
        self.times_count = self.times.size // PAIR_BYTES
        self.base_offset = base_offset
        self.next_offset = base_offset
        self.gap_limit = gap_limit
        self.epoch = -1
        self.max_timestamp = -1
        self.first_offset = -1

    def __dealloc__(self):
        free(self.memory)

    def step(self, int64_t bytes_to_read):
        """Go on for about so many bytes, or until many notes were made: the notes [(kind, position, offset, value)].

        Raises OSError.
        """
        cdef int error
        cdef int i
        self.noted = 0
        with nogil:
            error = self.walk(self.position + bytes_to_read)
        if error:
            raise OSError(-error, "the segment cannot be read")
        return [(self.notes[i].kind, self.notes[i].position, self.notes[i].offset, self.notes[i].value)
                for i in range(self.noted)]

    cdef void note(self, int kind, int64_t offset, int64_t value) noexcept nogil:
        self.notes[self.noted] = Noted(kind, self.position, offset, value)
        self.noted += 1

    cdef int walk(self, int64_t until) noexcept nogil:
        """0 or -errno."""
        cdef int found
        while not self.finished and self.position < until and self.noted < MOST_NOTES - NOTES_A_BATCH:
            if self.stale_entries(self.position):
                return 0
            found = scan_batch(&self.scanner, self.position, &self.info)
            if found < 0:
                return found
            if found == SCAN_END:
                self.end()
            elif found == SCAN_CORRUPT:
                self.resume()
            else:
                if <size_t>self.info.size > self.scanner.capacity and self.info.size <= MOST_IN_MEMORY:
                    if self.grow():
                        return -ENOMEM
                found = scan_crc(&self.scanner, self.position, &self.info)
                if found < 0:
                    return found
                found = self.batch(found == 1)
                if found:
                    return found
        if self.position >= self.scanner.size and self.noted < MOST_NOTES - NOTES_A_BATCH:
            self.end()
        return 0

    cdef int grow(self) noexcept nogil:
        cdef uint8_t* memory = <uint8_t*>malloc(<size_t>self.info.size)
        if memory == NULL:
            return -1
        free(self.memory)
        self.memory = memory
        scan_file(&self.scanner, self.scanner.descriptor, self.scanner.size, memory, <size_t>self.info.size)
        return 0

    cdef bint stale_entries(self, int64_t position) noexcept nogil:
        """Notes entries of the offset index that point before `position`; True when there is no room for more notes."""
        while self.index_at < self.index_count and self.index_pairs[2 * self.index_at + 1] < position:
            if self.noted >= MOST_NOTES - NOTES_A_BATCH:
                return True
            self.note(NOTE_INDEX_POSITION, self.index_pairs[2 * self.index_at], self.index_at)
            self.index_at += 1
        return False

    cdef void end(self) noexcept nogil:
        """What is left in the indexes points behind the last batch."""
        while self.index_at < self.index_count or self.times_at < self.times_count:
            if self.noted >= MOST_NOTES - 1:
                return
            if self.index_at < self.index_count:
                self.note(NOTE_INDEX_POSITION, self.index_pairs[2 * self.index_at], self.index_at)
                self.index_at += 1
            if self.times_at < self.times_count:
                self.note(NOTE_TIME_OFFSET, self.times_pairs[2 * self.times_at + 1], self.times_at)
                self.times_at += 1
        self.finished = True

    cdef void resume(self) noexcept nogil:
        """No batch here: on with the next one that the offset index knows; if there is none, that was all."""
        cdef int64_t target = -1
        while self.index_at < self.index_count:
            target = self.index_pairs[2 * self.index_at + 1]
            if target > self.position and target < self.scanner.size:
                break
            self.index_at += 1
            target = -1
        self.note(NOTE_FRAMING, self.next_offset, target)
        if target < 0:
            self.times_at = self.times_count
            self.finished = True
            return
        self.position = target
        self.next_offset = -1       # not known until the next batch says it

    cdef int batch(self, bint sound) noexcept nogil:
        """The batch at `position`, whose CRC matches if it is `sound`; -errno if it cannot be read."""
        cdef BatchInfo* info = &self.info
        cdef int64_t last = info.base_offset + info.last_offset_delta
        cdef int found
        if not sound:
            self.note(NOTE_CRC, info.base_offset, 0)
        elif info.magic == 2 and (
            info.record_count < 0 or <int64_t>info.record_count > <int64_t>info.last_offset_delta + 1 or info.codec > CODEC_ZSTD
        ):
            self.note(NOTE_HEADER, info.base_offset, info.record_count)
        elif info.magic == 2 and info.codec == CODEC_NONE:
            found = self.count_records()
            if found:
                return found
        if sound or (info.base_offset == self.next_offset and last >= info.base_offset):
            self.offsets(last)
        self.entries(last)
        self.batches += 1
        self.records += info.record_count if info.record_count >= 0 else 1
        self.formats |= 1 << info.magic
        self.codecs |= 1 << info.codec
        self.position += info.size
        return 0

    cdef void offsets(self, int64_t last) noexcept nogil:
        cdef BatchInfo* info = &self.info
        if self.next_offset < 0:
            self.gaps_end = info.base_offset        # behind a lost stretch
        elif info.base_offset < self.next_offset:
            self.note(NOTE_OFFSET_BACK, info.base_offset, self.next_offset)
        elif info.base_offset > self.next_offset and info.record_count >= 0:
            if info.base_offset > self.gap_limit:
                self.note(NOTE_GAP, info.base_offset, self.next_offset)
            self.gaps_end = info.base_offset
        if info.base_offset < self.base_offset or last - self.base_offset > INT32_MAX:
            self.note(NOTE_RANGE, info.base_offset, last)
        if info.partition_leader_epoch < self.epoch and info.magic == 2:
            self.note(NOTE_EPOCH_BACK, info.base_offset, self.epoch)
        elif info.partition_leader_epoch > self.epoch:
            self.note(NOTE_EPOCH, info.base_offset, info.partition_leader_epoch)
            self.epoch = info.partition_leader_epoch
        if self.first_offset < 0:
            self.first_offset = info.base_offset
        self.next_offset = last + 1

    cdef void entries(self, int64_t last) noexcept nogil:
        """The indexes' entries that this batch must bear out."""
        if self.info.max_timestamp > self.max_timestamp:
            self.max_timestamp = self.info.max_timestamp
        if self.index_at < self.index_count and self.index_pairs[2 * self.index_at + 1] == self.position:
            if self.index_pairs[2 * self.index_at] < self.info.base_offset:
                self.note(NOTE_INDEX_OFFSET, self.index_pairs[2 * self.index_at], self.index_at)
            self.index_at += 1
        while self.times_at < self.times_count and self.times_pairs[2 * self.times_at + 1] <= last:
            if self.noted >= MOST_NOTES:
                return
            if self.times_pairs[2 * self.times_at + 1] < self.info.base_offset:
                self.note(NOTE_TIME_OFFSET, self.times_pairs[2 * self.times_at + 1], self.times_at)
            elif self.times_pairs[2 * self.times_at] != self.max_timestamp:
                self.note(NOTE_TIME_STAMP, self.times_pairs[2 * self.times_at + 1], self.times_at)
            self.times_at += 1

    cdef int count_records(self) noexcept nogil:
        """Whether the records' lengths fill the batch and are as many as stated; 0 or -errno."""
        cdef int error
        cdef int64_t found = 0
        cdef int32_t length = 0
        cdef const uint8_t* p
        cdef const uint8_t* end
        if <size_t>self.info.size > self.scanner.capacity:
            return 0
        p = scan_window(&self.scanner, self.position, <size_t>self.info.size, &error)
        if p == NULL:
            return error
        end = p + self.info.size
        p += AT_RECORDS
        while p < end:
            if p[0] < 0x80:         # a record of less than 64 bytes
                length = p[0] >> 1 if p[0] & 1 == 0 else -1
                p += 1
            elif read_varint(&p, end, &length):
                length = -1
            if length < 6 or length > end - p:
                self.note(NOTE_RECORDS, self.info.base_offset, -1)
                return 0
            p += length
            found += 1
        if found != self.info.record_count:
            self.note(NOTE_RECORDS, self.info.base_offset, found)
        return 0
