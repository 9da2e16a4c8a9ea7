"""Checks a whole segment against the rules of its format and against its indexes, at nearly the speed of the CRC.

The processes of `odradek log verify` and `odradek adopt` run this on files that they only read; nothing is shared and no lock
is held. A `SegmentCheck` walks through one segment with a private buffer and notes errors. It continues after a damaged batch,
or at the next index entry if the framing is lost.
"""

from libc.errno cimport ENOMEM
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc

from odradek._ext.protocol.byte_view cimport ByteView
from odradek._ext.records.codecs cimport CODEC_NONE, is_codec
from odradek._ext.records.record_batch cimport AT_RECORDS, BATCH_HEADER_BYTES, BatchInfo, read_varint
from odradek._ext.storage.log_scan cimport SCAN_CORRUPT, SCAN_END, Scanner, scan_batch, scan_crc, scan_file, scan_window

# The subjects of notes; `odradek.storage.verify` has the texts and the meaning of `value`.
FRAMING = 1
CRC = 2
OFFSET_BACK = 3
GAP = 4
EPOCH_BACK = 5
RECORDS = 6
HEADER = 7
RANGE = 8
INDEX_POSITION = 9
INDEX_OFFSET = 10
TIME_OFFSET = 11
TIME_STAMP = 12
EPOCH = 100

cdef enum:
    PAIR_BYTES = 16                 # of an index as SegmentCheck takes it

cdef enum:
    NOTE_FRAMING = 1                # no batch where one should begin; value: where reading continues, -1 if nowhere
    NOTE_CRC = 2
    NOTE_OFFSET_BACK = 3            # a base offset below the expected one; value: the expected offset
    NOTE_GAP = 4                    # a base offset above the expected one; value: the expected offset
    NOTE_EPOCH_BACK = 5             # value: the previous epoch
    NOTE_RECORDS = 6                # the records do not fill the batch or have another number than stated; value: their number, or -1
    NOTE_HEADER = 7                 # a valid CRC but impossible counts; value: the record count
    NOTE_RANGE = 8                  # offsets that do not fit in the segment's indexes; value: the last offset
    NOTE_INDEX_POSITION = 9         # an entry of the offset index points into or after the batches; value: the entry
    NOTE_INDEX_OFFSET = 10          # an entry whose offset is before its batch; value: the entry
    NOTE_TIME_OFFSET = 11           # an entry of the time index whose offset is in no batch; value: the entry
    NOTE_TIME_STAMP = 12            # an entry that is not the largest timestamp so far; value: the entry
    NOTE_EPOCH = 100                # not an error: a leader epoch begins; value: the epoch
    MOST_NOTES = 256                # between two returns to Python
    NOTES_A_BATCH = 8               # maximum, without those about index entries
    MOST_IN_MEMORY = 134217728      # larger batches: the CRC is checked in pieces and the records are not counted


cdef struct Note:
    int kind
    int64_t position
    int64_t offset
    int64_t value


cdef class SegmentCheck:
    """One pass over a segment.

    :param descriptor: of the log file. :param size: number of its bytes to check. :param base_offset: from its name.
    :param gap_limit: offsets below it may be missing, as in a compacted log.
    :param index: the offset index as pairs (absolute offset, position). :param times: the time index as pairs (timestamp in ms,
    absolute offset).

    Attributes, which change from step to step: ``position`` (of the next read), ``next_offset``, ``first_offset`` (-1: no batch
    yet), ``batches``, ``records`` (from the headers; a compressed wrapper of an old format counts as one), ``max_timestamp``,
    ``formats`` (bit n: format vn was seen), ``codecs`` (bit n: codec n was seen), ``gaps_end`` (the offset after the last gap,
    0 without a gap), ``finished``.
    """

    cdef Scanner scanner
    cdef uint8_t* memory
    cdef BatchInfo info
    cdef ByteView index           # held while the pairs are read
    cdef ByteView times
    cdef const int64_t* index_pairs
    cdef const int64_t* times_pairs
    cdef Py_ssize_t index_count   # number of pairs
    cdef Py_ssize_t times_count
    cdef Py_ssize_t index_at
    cdef Py_ssize_t times_at
    cdef int64_t base_offset
    cdef int64_t gap_limit
    cdef int32_t epoch
    cdef Note notes[MOST_NOTES]
    cdef int note_count
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
            raise ValueError(f"a buffer of {buffer_bytes} bytes for a segment of {size} bytes")
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

    def step(self, int64_t bytes_to_read) -> list[tuple[int, int, int, int]]:
        """Check about this many bytes, or until many notes exist. Returns the notes: [(kind, position, offset, value)].

        Raises OSError.
        """
        cdef int error
        cdef int i
        self.note_count = 0
        with nogil:
            error = self.walk(self.position + bytes_to_read)
        if error:
            raise OSError(-error, "the segment cannot be read")
        return [(self.notes[i].kind, self.notes[i].position, self.notes[i].offset, self.notes[i].value)
                for i in range(self.note_count)]

    cdef void note(self, int kind, int64_t offset, int64_t value) noexcept nogil:
        self.notes[self.note_count] = Note(kind, self.position, offset, value)
        self.note_count += 1

    cdef int walk(self, int64_t until) noexcept nogil:
        """Returns 0, or -errno."""
        cdef int result
        while not self.finished and self.position < until and self.note_count < MOST_NOTES - NOTES_A_BATCH:
            if self.stale_entries(self.position):
                return 0
            result = scan_batch(&self.scanner, self.position, &self.info)
            if result < 0:
                return result
            if result == SCAN_END:
                self.end()
            elif result == SCAN_CORRUPT:
                self.resume()
            else:
                if <size_t>self.info.size > self.scanner.capacity and self.info.size <= MOST_IN_MEMORY:
                    if self.grow():
                        return -ENOMEM
                result = scan_crc(&self.scanner, self.position, &self.info)
                if result < 0:
                    return result
                result = self.batch(result == 1)
                if result:
                    return result
        if self.position >= self.scanner.size and self.note_count < MOST_NOTES - NOTES_A_BATCH:
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
        """Note entries of the offset index that point before `position`. Returns True if there is no room for more notes."""
        while self.index_at < self.index_count and self.index_pairs[2 * self.index_at + 1] < position:
            if self.note_count >= MOST_NOTES - NOTES_A_BATCH:
                return True
            self.note(NOTE_INDEX_POSITION, self.index_pairs[2 * self.index_at], self.index_at)
            self.index_at += 1
        return False

    cdef void end(self) noexcept nogil:
        """Note the remaining entries of the indexes: they point after the last batch."""
        while self.index_at < self.index_count or self.times_at < self.times_count:
            if self.note_count >= MOST_NOTES - 1:
                return
            if self.index_at < self.index_count:
                self.note(NOTE_INDEX_POSITION, self.index_pairs[2 * self.index_at], self.index_at)
                self.index_at += 1
            if self.times_at < self.times_count:
                self.note(NOTE_TIME_OFFSET, self.times_pairs[2 * self.times_at + 1], self.times_at)
                self.times_at += 1
        self.finished = True

    cdef void resume(self) noexcept nogil:
        """There is no batch here: continue at the next batch in the offset index; without one the check is finished."""
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
        self.next_offset = -1       # not known before the next batch

    cdef int batch(self, bint sound) noexcept nogil:
        """Check the batch at `position`; `sound`: its CRC matches. Returns -errno if it cannot be read."""
        cdef BatchInfo* info = &self.info
        cdef int64_t last = info.base_offset + info.last_offset_delta
        cdef int error
        if not sound:
            self.note(NOTE_CRC, info.base_offset, 0)
        elif info.magic == 2 and (
            info.record_count < 0 or <int64_t>info.record_count > <int64_t>info.last_offset_delta + 1 or not is_codec(info.codec)
        ):
            self.note(NOTE_HEADER, info.base_offset, info.record_count)
        elif info.magic == 2 and info.codec == CODEC_NONE:
            error = self.count_records()
            if error:
                return error
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
            self.gaps_end = info.base_offset        # after a lost stretch
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
        """Check the index entries that refer to this batch."""
        if self.info.max_timestamp > self.max_timestamp:
            self.max_timestamp = self.info.max_timestamp
        if self.index_at < self.index_count and self.index_pairs[2 * self.index_at + 1] == self.position:
            if self.index_pairs[2 * self.index_at] < self.info.base_offset:
                self.note(NOTE_INDEX_OFFSET, self.index_pairs[2 * self.index_at], self.index_at)
            self.index_at += 1
        while self.times_at < self.times_count and self.times_pairs[2 * self.times_at + 1] <= last:
            if self.note_count >= MOST_NOTES:
                return
            if self.times_pairs[2 * self.times_at + 1] < self.info.base_offset:
                self.note(NOTE_TIME_OFFSET, self.times_pairs[2 * self.times_at + 1], self.times_at)
            elif self.times_pairs[2 * self.times_at] != self.max_timestamp:
                self.note(NOTE_TIME_STAMP, self.times_pairs[2 * self.times_at + 1], self.times_at)
            self.times_at += 1

    cdef int count_records(self) noexcept nogil:
        """Check that the records' lengths fill the batch and that their number matches the header. Returns 0, or -errno."""
        cdef int error
        cdef int64_t count = 0
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
            count += 1
        if count != self.info.record_count:
            self.note(NOTE_RECORDS, self.info.base_offset, count)
        return 0
