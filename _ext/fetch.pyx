"""The way of a Fetch request: read it, plan what each partition gives, wait if it is too little, answer from the files.

Runs in a worker's loop. A plan reads nothing of the records: it finds segment, position and length, from the place where the
last fetch ended, from the slot's ring of recent batches, or through the offset index. Sessions (KIP-227) belong to the worker;
a client whose next connection goes to another worker is told FETCH_SESSION_ID_NOT_FOUND and begins anew, as the protocol says.

Versions 0 to 3 are answered with message sets: the plan is made as for others, a thread of the worker converts what it names,
batch by batch and no more than the response may hold, and the response is written when that is done.
"""

import logging
import os

from libc.errno cimport EAGAIN, EBADMSG, errno
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from broker._ext.appends cimport take_slot
from broker._ext.atomics cimport fence, load_acquire_32, load_acquire_64
from broker._ext.connection cimport (
    CLOSE_ERROR,
    FRAME_CLOSE,
    FRAME_DONE,
    FRAME_PENDING,
    Connection,
    DataLoop,
    Pending,
)
from broker._ext.cursor cimport (
    Cursor,
    WriteBuffer,
    buffer_free,
    buffer_init,
    read_bytes,
    read_int32,
    read_int64,
    read_int8,
    read_length,
    read_string_length,
    read_uvarint,
    skip_tagged_fields,
    write_bytes,
    write_int16,
    write_int32,
    write_int64,
    write_length,
    write_string_length,
    write_uvarint,
)
from broker._ext.log_dirs cimport note_device
from broker._ext.lookup cimport LOOKUP_BEYOND, LOOKUP_FOUND, FoundBatch, find_position
from broker._ext.metering cimport (
    FETCH_FAILED,
    PARKED_FETCHES,
    TOPIC_NONE,
    USAGE_BYTES_OUT,
    USAGE_ERRORS,
    USAGE_RECORDS_OUT,
    USAGE_REQUESTS,
    add,
    count_error,
    put_position,
    still_client,
    usage_of,
)
from broker._ext.page_cache cimport fault_in, read_some, set_no_wait
from broker._ext.locks cimport LOCK_BUSY, SPINS_OF_LOOP, unlock
from broker._ext.records cimport CODEC_ZSTD, load32, store32
from broker._ext.segment_list cimport OpenSegment, SegmentCache, SegmentList
from broker._ext.shared cimport (
    RECENT_KEPT,
    ROLE_LEADER,
    SLOT_LOADING,
    SLOT_OFFLINE,
    SLOT_ONLINE,
    Commit,
    RecentBatch,
    Slot,
    monotonic_ms,
    read_commit,
    slot_at,
    state_now,
)
from broker._ext.swapping cimport SWAP_UNDER_WAY
from broker._ext.topics cimport Topic, TopicDirectory
from broker._ext.waiting cimport Waiter, WaitingRoom


cdef extern from "<unistd.h>" nogil:
    int64_t lseek(int fd, int64_t offset, int whence)
    int SEEK_END

cdef extern from "<sys/stat.h>" nogil:
    struct stat_buffer "stat":
        int64_t st_size
    int fstat(int fd, stat_buffer* out)


LOG = logging.getLogger("broker.api.fetch")

cdef enum:
    FIRST_FLEXIBLE = 12
    FIRST_BY_ID = 13
    FIRST_WITH_BATCHES = 4            # before: message sets of format v0, from version 2 on of v1
    FIRST_WITH_V1 = 2
    FIRST_WITH_MAX_BYTES = 3          # before: the limits of the partitions hold, each for itself
    FIRST_WITH_STORAGE_ERROR = 6
    FIRST_WITH_ZSTD = 10
    NEWEST = 18
    BATCH_LENGTH_BYTES = 12
    REPORT_AGAIN_MS = 60000
    MAX_PARTITIONS = 100000           # of one request, and of a session: more would take memory out of proportion
    EVICTABLE_AFTER_MS = 120000
    WARM_ROUNDS = 8                   # then the loop waits for the disk: what is read is evicted faster than it is used
    HEADER_READ_BYTES = 4096
    LOOKS = 4                         # at a partition whose files change their names

cdef enum:
    FETCH = 1                         # the API's key
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    UNKNOWN_TOPIC_OR_PARTITION = 3
    NOT_LEADER_OR_FOLLOWER = 6
    UNSUPPORTED_VERSION = 35
    KAFKA_STORAGE_ERROR = 56
    UNSUPPORTED_COMPRESSION_TYPE = 76
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNKNOWN_TOPIC_ID = 100
    FETCH_SESSION_TOPIC_ID_ERROR = 106


class ColdRead(Exception):
    """A look-up met pages that are not in the page cache."""


def look_up_cold(list jobs):
    """On a reader's thread: the look-ups again, waiting for the disk, so that the loop finds their pages. Raises OSError."""
    cdef OpenSegment segment
    cdef FoundBatch found
    cdef int64_t entries, size, offset, base
    cdef int index_fd, log_fd, result
    for segment, index, count, bytes_, wanted in jobs:
        index_fd, entries, size, offset = index, count, bytes_, wanted
        log_fd, base = segment.log_fd, segment.base_offset
        with nogil:
            if offset < 0:
                result = fault_in(log_fd, size, HEADER_READ_BYTES)
            else:
                result = find_position(log_fd, index_fd, entries, base, size, offset, &found)
        if result < 0:
            raise OSError(-result, os.strerror(-result), f"segment {base}")


cdef inline int64_t file_bytes(int fd) noexcept nogil:
    cdef stat_buffer found
    return found.st_size if fstat(fd, &found) == 0 else -1


cdef class FetchPartition:
    pass


cdef inline int16_t storage_error(int16_t version) noexcept:
    """KAFKA_STORAGE_ERROR, or for clients that do not know it what makes them look for the leader and try again (as Kafka)."""
    return KAFKA_STORAGE_ERROR if version >= FIRST_WITH_STORAGE_ERROR else NOT_LEADER_OR_FOLLOWER


cdef inline int16_t gone(FetchPartition p) noexcept:
    """The error for a partition that is not there, in the words in which the client asked."""
    return UNKNOWN_TOPIC_ID if p.by_id else UNKNOWN_TOPIC_OR_PARTITION


cdef int note_move(FetchPartition p, FetchPartition before) noexcept:
    """`p` asks for what `before` asked for in the last request of the same reader: how far it went on.

    What lies behind the end of what could be given was not read: the reader jumped there.
    """
    p.moved = before.moved
    if before.served and before.fetch_offset < p.fetch_offset <= before.served_limit:
        p.moved += p.fetch_offset - before.fetch_offset
    p.served = before.served and p.fetch_offset == before.fetch_offset
    p.served_limit = before.served_limit
    return 0


cdef class FetchWait(Waiter):
    cdef int count_moves(self, FetchWait before) except -1:
        """Compare with the last request of the connection, where that was no session's."""
        cdef FetchPartition p, q
        cdef dict known = None
        cdef int i = 0
        for p in self.partitions:
            q = before.partitions[i] if i < len(before.partitions) else None
            if q is None or q.partition != p.partition or q.topic != p.topic:
                if known is None:
                    known = {((<FetchPartition>one).topic, (<FetchPartition>one).partition): one for one in before.partitions}
                q = known.get((p.topic, p.partition))
            if q is not None:
                note_move(p, q)
            i += 1
        return 0

    cdef int count_positions(self) except -1:
        """After the first plan of a request, which found the slots: where the reader stands, and what it went forward."""
        cdef FetchPartition p
        for p in self.partitions:
            if not p.asked:
                continue
            p.asked = False
            if p.counted is None or not p.slot:
                continue
            put_position(self.client.number, p.slot - 1, p.incarnation, p.fetch_offset)
            if p.moved:
                usage_of(self.client.number, p.counted.counted(), FETCH).values[USAGE_RECORDS_OUT] += <uint64_t>p.moved
                p.moved = 0
        return 0

    cdef int put(self, FetchPartition p) except -1:
        """Add a partition, or take over what is asked of it now; newly asked ones go to the end."""
        cdef FetchPartition known
        if self.by_key is None:
            self.partitions.append(p)
            self.stale = True
            return 0
        key = (p.topic, p.partition)
        known = self.by_key.get(key)
        if known is None:
            self.by_key[key] = p
            self.partitions.append(p)
            self.stale = True
            return 0
        known.asked = True
        note_move(p, known)
        known.moved, known.served = p.moved, p.served
        known.fetch_offset = p.fetch_offset
        known.log_start_offset = p.log_start_offset
        known.max_bytes = p.max_bytes
        known.leader_epoch = p.leader_epoch
        known.last_fetched_epoch = p.last_fetched_epoch
        return 0

    cdef int forget(self, tuple key) except -1:
        """Take a partition out; `drop_forgotten` follows."""
        cdef FetchPartition known = self.by_key.pop(key, None)
        if known is not None:
            known.forgotten = True
            self.stale = True
        return 0

    cdef int drop_forgotten(self) except -1:
        self.partitions = [p for p in self.partitions if not (<FetchPartition>p).forgotten]
        return 0

    cdef int watch_all(self) except -1:
        cdef FetchPartition p
        if self.stale or self.watched is None:
            self.unwatch_all()
            self.watched = []
            for p in self.partitions:
                if p.slot:
                    self.watched.append(p.slot - 1)
                    self.fetching.room.watch(p.slot - 1, self)
            self.stale = False
        return 0

    cdef int unwatch_all(self) except -1:
        if self.watched is not None:
            for slot in self.watched:
                self.fetching.room.unwatch(slot, self)
            self.watched = None
        return 0

    cdef int arm_all(self) noexcept:
        cdef FetchPartition p
        for p in self.partitions:
            if p.slot:
                if self.replica_id >= 0:
                    self.fetching.room.arm_log_end(p.slot - 1)
                else:
                    self.fetching.room.arm_committed(p.slot - 1)
        fence()
        return 0

    cdef int plan(self) except -1:
        """What every partition gives now."""
        cdef FetchPartition p
        cdef int64_t budget = min(self.max_bytes, self.fetching.max_bytes)
        cdef bint first = True
        self.planned_bytes = 0
        self.planned_error = False
        self.cold = []
        set_no_wait(self.reader is not None and self.warm_rounds < WARM_ROUNDS)
        try:
            for p in self.partitions:
                if self.version < FIRST_WITH_MAX_BYTES:
                    first = True
                self.fetching.plan_partition(p, self, &budget, &first)
                self.planned_bytes += p.length
                if p.error:
                    self.planned_error = True
        finally:
            set_no_wait(False)
        return 0

    cdef int warm(self) except -1:
        """Have the look-ups that met cold pages done by a reader; `warmed` goes on."""
        jobs, self.cold = self.cold, []
        self.warming = True
        self.warm_rounds += 1
        self.reader.call(lambda: look_up_cold(jobs), self.warmed)
        return 0

    def warmed(self, error):
        """In the loop. An error is not told here: the plan meets it again, and tells the client."""
        cdef Pending pending = self.pending
        self.warming = False
        if error is not None:
            self.warm_rounds = WARM_ROUNDS
        if pending is None or pending.cancelled:
            return
        try:
            self.go_on()
        except Exception as failure:  # the border of a parked request
            self.failed(failure)
        pending.connection.data_loop.flush_dirty()

    cdef int go_on(self) except -1:
        """The pending request once more from its plan on."""
        self.plan()
        if self.cold:
            return self.warm()
        if self.enough() or monotonic_ms() >= self.until_ms:
            return self.answer()
        self.watch_all()
        self.arm_all()
        self.plan()
        if self.cold:
            return self.warm()
        if self.enough():
            return self.answer()
        return self.fetching.room.park(self, self.until_ms)

    cdef bint enough(self) noexcept:
        return self.planned_error or self.planned_bytes >= self.min_bytes or not self.partitions

    cdef int moved(self) except -1:
        if self.pending is None or self.pending.cancelled:
            return self.stop_waiting()
        if self.warming:
            return 0                    # `warmed` arms and looks
        self.arm_all()
        self.plan()
        if self.stale and not self.enough():
            # A partition went to another slot: wait there.
            self.watch_all()
            self.arm_all()
            self.plan()
        if self.cold:
            return self.warm()
        if self.enough():
            self.answer()
        return 0

    cdef int failed(self, error) except -1:
        cdef Pending pending = self.pending
        self.stop_waiting()
        if pending is not None and not pending.cancelled:
            pending.connection.data_loop.close_now(pending.connection, CLOSE_ERROR, f"a parked Fetch failed: {error!r}")
        return 0

    cdef int expired(self) except -1:
        if self.pending is None or self.pending.cancelled:
            return self.stop_waiting()
        self.plan()
        return self.answer()

    cdef int stop_waiting(self) except -1:
        self.fetching.room.leave(self)
        self.pending = None
        if self.by_key is None:
            self.unwatch_all()
        return 0

    cdef int answer(self) except -1:
        """Answer the pending request with what is planned."""
        cdef Pending pending = self.pending
        self.stop_waiting()
        if self.version < FIRST_WITH_BATCHES and self.planned_bytes:
            return self.fetching.start_conversion(self, pending)
        pending.begin()
        try:
            self.fetching.write(pending.connection.data_loop, self)
        except BaseException:
            pending.abandon()
            raise
        pending.finish()
        return 0


cdef bint swap_over(uint32_t index, Slot* slot) noexcept nogil:
    """Whether the swap that was under way has ended; if its author died, it is finished now."""
    if take_slot(index, slot, SPINS_OF_LOOP) == LOCK_BUSY:
        return False
    unlock(index, slot)
    return True


cdef class Fetching:
    """One a worker. log_dirs: paths; ordinal: the worker's, part of its session ids; max_sessions:
    max.incremental.fetch.session.cache.slots; max_bytes: fetch.max.bytes.

    down_convert(parts, done): on a thread, convert what the parts name, then call done(result) in the loop; part and result
    are those of `broker.storage.down_conversion.convert`, or the result is the exception it raised.
    """

    def __init__(self, TopicDirectory topics, WaitingRoom room, log_dirs, int ordinal, int max_sessions, int32_t max_bytes,
                 down_convert):
        self.topics = topics
        self.room = room
        self.cache = SegmentCache()
        self.reported = {}
        self.log_dirs = [os.fsencode(path) for path in log_dirs]
        self.segment_lists = {}
        self.sessions = {}
        self.session_mark = ordinal
        self.next_session = 1
        self.max_sessions = max_sessions
        self.max_bytes = max_bytes
        self.down_convert = down_convert
        buffer_init(&self.response)

    def __dealloc__(self):
        buffer_free(&self.response)

    # -- reading the request ----------------------------------------------------------------------------------------

    cdef int offer(self, Connection connection, int16_t version, int32_t correlation_id, Cursor* body, uint8_t* frame,
                   int64_t size) except -1:
        """One request; `body` stands behind the header. The connection owes nothing."""
        cdef FetchWait wait, before
        cdef int16_t error = NONE
        cdef int32_t replica_id = -1, wait_ms, min_bytes, max_bytes = 0x7FFFFFFF, session_id = 0, epoch = -1
        cdef bint read_committed = False
        if version < 0 or version > NEWEST:
            connection.close_reason = f"Fetch version {version} is not known; 0 to {NEWEST} are"
            return FRAME_CLOSE
        if version <= 14:
            replica_id = read_int32(body)
        wait_ms = read_int32(body)
        min_bytes = read_int32(body)
        if version >= FIRST_WITH_MAX_BYTES:
            max_bytes = read_int32(body)
        if version >= FIRST_WITH_BATCHES:
            read_committed = read_int8(body) == 1
        if version >= 7:
            session_id = read_int32(body)
            epoch = read_int32(body)
        if body.error:
            connection.close_reason = f"a Fetch request of version {version} is cut short at byte {body.ptr - frame} of {size}"
            return FRAME_CLOSE
        wait = self.begin(session_id, epoch, version >= FIRST_BY_ID, &error)
        if error:
            self.write_error(connection.data_loop, &connection.client, version, correlation_id, error)
            return FRAME_DONE
        self.asking = connection.client
        if not self.read_partitions(wait, version, body):
            if wait.by_key is not None:
                self.end_session(wait)
            connection.close_reason = f"a Fetch request of version {version} cannot be read at byte {body.ptr - frame} of {size}"
            return FRAME_CLOSE
        if wait.pending is not None:
            if not wait.pending.cancelled:
                wait.plan()
                wait.answer()           # another connection goes on with this session
            else:
                wait.stop_waiting()
        wait.client = connection.client
        wait.version = version
        wait.correlation_id = correlation_id
        wait.min_bytes = min_bytes
        wait.max_bytes = max_bytes
        wait.replica_id = replica_id
        wait.read_committed = read_committed
        wait.last_used_ms = monotonic_ms()
        wait.until_ms = wait.last_used_ms + max(wait_ms, 0)
        wait.reader = connection.data_loop.cold_reader
        wait.warm_rounds = 0
        before = connection.session
        connection.session = wait
        if before is not None and before is not wait:
            wait.count_moves(before)
        wait.plan()
        if replica_id < 0 and wait.replica_id < 0:
            wait.count_positions()
        if wait.cold:
            wait.pending = connection.reserve()
            wait.warm()
            return FRAME_PENDING
        if wait.enough() or wait_ms <= 0:
            if version < FIRST_WITH_BATCHES and wait.planned_bytes:
                self.start_conversion(wait, connection.reserve())
                return FRAME_PENDING
            self.write(connection.data_loop, wait)
            return FRAME_DONE
        wait.watch_all()
        wait.arm_all()
        wait.plan()                     # the second look, after the bits are set [R 6]
        if wait.cold:
            wait.pending = connection.reserve()
            wait.warm()
            return FRAME_PENDING
        if wait.enough():
            if wait.by_key is None:
                wait.unwatch_all()
            if version < FIRST_WITH_BATCHES and wait.planned_bytes:
                self.start_conversion(wait, connection.reserve())
                return FRAME_PENDING
            self.write(connection.data_loop, wait)
            return FRAME_DONE
        wait.pending = connection.reserve()
        self.room.park(wait, wait.until_ms)
        return FRAME_PENDING

    cdef FetchWait begin(self, int32_t session_id, int32_t epoch, bint by_id, int16_t* error):
        """The session that the request belongs to, a new one, or none."""
        cdef FetchWait wait
        if epoch == 0 or epoch == -1:
            if session_id:
                wait = self.sessions.get(session_id)
                if wait is not None:
                    self.end_session(wait)
            if epoch == 0:
                return self.new_session()
            wait = FetchWait.__new__(FetchWait)
            wait.fetching = self
            wait.gauge = PARKED_FETCHES
            wait.partitions = []
            return wait
        wait = self.sessions.get(session_id)
        if wait is None:
            error[0] = FETCH_SESSION_ID_NOT_FOUND
        elif wait.epoch != epoch:
            error[0] = INVALID_FETCH_SESSION_EPOCH
        elif wait.partitions and (<FetchPartition>wait.partitions[0]).by_id != by_id:
            error[0] = FETCH_SESSION_TOPIC_ID_ERROR         # names and ids must not meet in one response
        else:
            wait.epoch = 1 if epoch == 0x7FFFFFFF else epoch + 1
            wait.incremental = True
        return wait

    cdef FetchWait new_session(self):
        cdef FetchWait wait = FetchWait.__new__(FetchWait)
        cdef FetchWait oldest = None
        wait.fetching = self
        wait.gauge = PARKED_FETCHES
        wait.partitions = []
        if len(self.sessions) >= self.max_sessions:
            for other in self.sessions.values():
                if oldest is None or (<FetchWait>other).last_used_ms < oldest.last_used_ms:
                    oldest = other
            if oldest is None or oldest.pending is not None or monotonic_ms() - oldest.last_used_ms < EVICTABLE_AFTER_MS:
                return wait                     # full: the client fetches without a session
            self.end_session(oldest)
        wait.by_key = {}
        wait.epoch = 1
        wait.session_id = (self.next_session << 8) | self.session_mark
        self.next_session = 1 if self.next_session == 0x7FFFFF - 1 else self.next_session + 1
        while wait.session_id in self.sessions:
            wait.session_id = (self.next_session << 8) | self.session_mark
            self.next_session += 1
        self.sessions[wait.session_id] = wait
        return wait

    cdef int end_session(self, FetchWait session) except -1:
        self.sessions.pop(session.session_id, None)
        if session.pending is not None and not session.pending.cancelled:
            session.plan()
            session.answer()
        self.room.leave(session)
        session.unwatch_all()
        return 0

    def closed(self, Connection connection):
        """The connection is gone: so are its parked request and its session."""
        cdef FetchWait wait = connection.session
        if wait is not None and (wait.pending is None or wait.pending.connection is connection):
            connection.session = None
            wait.stop_waiting()
            self.end_session(wait)

    def sweep(self):
        """Close what is open of logs that changed since (a file that was removed takes room on the disk until then). What is
        being sent stays open for its sender."""
        cdef Slot* at
        cdef SegmentList segments
        for slot, (incarnation, segments) in list(self.segment_lists.items()):
            at = slot_at(<uint32_t>slot)
            if incarnation != at.incarnation or at.state != SLOT_ONLINE:
                segments.close()
                del self.segment_lists[slot]
            elif segments.generation != <int64_t>load_acquire_64(&at.generation):
                segments.close()

    cdef int answer_parked(self, Connection connection) except -1:
        """Answer the fetch that the connection waits for, if there is one, with what there is now."""
        cdef FetchWait wait = connection.session
        if wait is not None and wait.pending is not None and wait.pending.connection is connection:
            wait.expired()
        return 0

    @property
    def session_count(self):
        return len(self.sessions)

    cdef int read_partitions(self, FetchWait wait, int16_t version, Cursor* body) except -1:
        """The topics, the forgotten topics and the rest of the request; 0 if it cannot be read."""
        cdef bint flexible = version >= FIRST_FLEXIBLE, by_id = version >= FIRST_BY_ID
        cdef int64_t topics = read_length(body, flexible), partitions, length, room = MAX_PARTITIONS
        cdef const uint8_t* name
        cdef FetchPartition p
        cdef bytes topic
        cdef uint32_t tags, tag, tag_bytes
        cdef Topic known
        cdef const uint8_t* at
        if body.error or topics > body.end - body.ptr:
            return 0
        for _ in range(topics):
            length = 16 if by_id else read_string_length(body, flexible)
            name = read_bytes(body, length)
            partitions = read_length(body, flexible)
            if body.error or name == NULL or partitions > room:
                return 0
            room -= max(partitions, <int64_t>0)
            topic = self.same_name(name, length)
            known = (self.topics.by_id if by_id else self.topics.by_name).get(topic)
            if known is not None:
                usage_of(self.asking.number, known.counted(), FETCH).values[USAGE_REQUESTS] += 1
            for _ in range(partitions):
                p = FetchPartition.__new__(FetchPartition)
                p.topic = topic
                p.by_id = by_id
                p.asked = True
                p.place_offset = -1
                p.leader_epoch = p.last_fetched_epoch = -1
                p.log_start_offset = -1
                p.partition = read_int32(body)
                if version >= 9:
                    p.leader_epoch = read_int32(body)
                p.fetch_offset = read_int64(body)
                if version >= 12:
                    p.last_fetched_epoch = read_int32(body)
                if version >= 5:
                    p.log_start_offset = read_int64(body)
                p.max_bytes = read_int32(body)
                if flexible:
                    skip_tagged_fields(body)
                if body.error:
                    return 0
                wait.put(p)
                if len(wait.partitions) > MAX_PARTITIONS:
                    return 0                    # a session that grows request by request
            if flexible:
                skip_tagged_fields(body)
        if version >= 7 and not self.read_forgotten(wait, version, body):
            return 0
        if version >= 11:
            length = read_string_length(body, flexible)
            if length > 0:
                read_bytes(body, length)
        if flexible:
            tags = read_uvarint(body)
            while tags > 0 and not body.error:
                tag = read_uvarint(body)
                tag_bytes = read_uvarint(body)
                at = read_bytes(body, tag_bytes)
                if tag == 1 and version >= 15 and at != NULL and tag_bytes >= 4:
                    wait.replica_id = <int32_t>load32(at)
                tags -= 1
        return not body.error

    cdef bytes same_name(self, const uint8_t* name, int64_t length):
        """The bytes object of the topic named last, if it is the same: most requests name one topic over and over."""
        cdef bytes last = self.last_name
        if last is None or len(last) != length or memcmp(<const char*>last, name, length) != 0:
            last = (<const char*>name)[:length]
            self.last_name = last
        return last

    cdef int read_forgotten(self, FetchWait wait, int16_t version, Cursor* body) except -1:
        cdef bint flexible = version >= FIRST_FLEXIBLE
        cdef int64_t topics = read_length(body, flexible), partitions, length
        cdef const uint8_t* name
        cdef int32_t partition
        if body.error or topics > body.end - body.ptr:
            return 0
        for _ in range(topics):
            length = 16 if version >= FIRST_BY_ID else read_string_length(body, flexible)
            name = read_bytes(body, length)
            partitions = read_length(body, flexible)
            if body.error or name == NULL or partitions > body.end - body.ptr:
                return 0
            topic = (<const char*>name)[:length]
            for _ in range(partitions):
                partition = read_int32(body)
                if wait.by_key is not None and not body.error:
                    wait.forget((topic, partition))
            if flexible:
                skip_tagged_fields(body)
        if topics > 0 and wait.by_key is not None:
            wait.drop_forgotten()
        return not body.error

    # -- planning ---------------------------------------------------------------------------------------------------

    cdef int resolve(self, FetchPartition p) except -1:
        """Find the slot; Kafka's error code, or 0. Looks it up again when the slot went to another partition."""
        cdef Topic topic
        if p.slot and slot_at(p.slot - 1).incarnation == p.incarnation:
            return NONE
        topic = (self.topics.by_id if p.by_id else self.topics.by_name).get(p.topic)
        if topic is None:
            p.slot = 0
            return UNKNOWN_TOPIC_ID if p.by_id else UNKNOWN_TOPIC_OR_PARTITION
        if not 0 <= p.partition < topic.count or topic.slots[p.partition] == 0:
            p.slot = 0
            return UNKNOWN_TOPIC_OR_PARTITION
        p.slot = topic.slots[p.partition]
        p.incarnation = topic.incarnations[p.partition]
        p.counted = topic
        p.place_offset = -1
        return NONE

    cdef int plan_partition(self, FetchPartition p, FetchWait wait, int64_t* budget, bint* first) except -1:
        """Find out what the partition gives: an error, or where its records lie and how many bytes of them.

        If its files change names meanwhile (a swap after compaction, a roll), it is looked at anew; a partition that does not
        come to rest, or in which a swap is under way, gives nothing for the moment: the swap's end wakes who waits.
        """
        for _ in range(LOOKS):
            if self.look_at(p, wait, budget, first) == 0:
                return 0
        p.segment = None
        p.place_offset = -1
        return 0

    cdef int look_at(self, FetchPartition p, FetchWait wait, int64_t* budget, bint* first) except -1:
        """As `plan_partition`; 1 if the slot's generation moved while it looked, and nothing of it counts."""
        cdef Slot* slot
        cdef Commit commit
        cdef uint32_t before = p.slot, state
        cdef int64_t limit, available = 0, allowed, whole
        p.length = 0
        p.segment = None
        p.converted = None
        p.high_watermark = p.last_stable_offset = p.now_log_start = -1
        p.error = self.resolve(p)
        if p.slot != before:
            wait.stale = True
        if not p.error:
            slot = slot_at(p.slot - 1)
            state = state_now(slot)
            if state != SLOT_ONLINE:
                p.error = storage_error(wait.version) if state == SLOT_OFFLINE else gone(p)
                if state == SLOT_LOADING:
                    p.error = NOT_LEADER_OR_FOLLOWER
            elif slot.role != ROLE_LEADER:
                p.error = NOT_LEADER_OR_FOLLOWER
            elif p.leader_epoch >= 0 and p.leader_epoch != slot.leader_epoch:
                p.error = FENCED_LEADER_EPOCH if p.leader_epoch < slot.leader_epoch else UNKNOWN_LEADER_EPOCH
            elif wait.version < FIRST_WITH_ZSTD and slot.settings.compression == CODEC_ZSTD:
                p.error = UNSUPPORTED_COMPRESSION_TYPE
        if p.error:
            p.wanted = True
            return 0
        # The generation from before the commit: a place found in this commit must not pass for one of a log cut meanwhile.
        p.generation = load_acquire_64(&slot.generation)
        p.now_log_start = slot.log_start_offset
        p.last_stable_offset = slot.last_stable_offset
        read_commit(slot, &commit)
        p.high_watermark = commit.high_watermark
        if p.last_stable_offset > p.high_watermark:
            p.last_stable_offset = p.high_watermark
        limit = commit.high_watermark
        if wait.replica_id >= 0:
            limit = commit.log_end_offset
        elif wait.read_committed:
            limit = p.last_stable_offset
        p.limit = limit
        if p.fetch_offset > commit.log_end_offset or p.fetch_offset < p.now_log_start:
            p.error = OFFSET_OUT_OF_RANGE
            p.high_watermark = p.last_stable_offset = p.now_log_start = -1      # as Kafka tells with this error
            p.wanted = True
            return 0
        p.wanted = not wait.incremental or not p.told or p.told_high_watermark != p.high_watermark or \
            p.told_log_start != p.now_log_start
        if p.fetch_offset >= limit:
            if p.fetch_offset == commit.log_end_offset:
                p.place_offset = p.fetch_offset
                p.place_base = commit.segment_base
                p.place_position = commit.size
                p.place_generation = p.generation
            return 0
        allowed = min(<int64_t>p.max_bytes, budget[0])
        if allowed <= 0 and not first[0]:
            return 0
        if p.generation & SWAP_UNDER_WAY:
            return 1 if swap_over(p.slot - 1, slot) else 0
        try:
            self.locate(p, slot, &commit, limit, &available, wait)
            p.extent = available
            p.allowed = allowed
            if available > allowed:
                # The first batch of a response is given whole, however large; others only if they fit.
                p.place_offset = -1
                whole = self.first_batch_bytes(p, wait)
                if whole > allowed:
                    available = min(available, whole) if first[0] else 0
                else:
                    available = allowed
        except ColdRead:
            p.place_offset = -1
            p.segment = None
            return 0
        except OSError as failure:
            if slot.incarnation == p.incarnation and slot.state == SLOT_ONLINE:
                if load_acquire_64(&slot.generation) != p.generation:
                    return 1
                p.high_watermark = p.last_stable_offset = p.now_log_start = -1
                # The log start offset moves before a file goes, so a file that has gone meanwhile is told by it.
                if p.fetch_offset < slot.log_start_offset:
                    p.error = OFFSET_OUT_OF_RANGE
                else:
                    p.error = storage_error(wait.version)
                    if failure.errno is not None:
                        note_device(slot.log_dir, -<int>failure.errno)
                    self.report(p.slot, slot, failure)
            else:
                p.error = gone(p)
            p.wanted = True
            return 0
        if load_acquire_64(&slot.generation) != p.generation:
            return 1                    # place, index and log may be of different segments
        p.length = available
        if available > 0:
            p.wanted = True
            first[0] = False
            budget[0] -= available
        return 0

    cdef int report(self, uint32_t known, Slot* slot, failure) except -1:
        """Say what cannot be read; of one partition once a minute."""
        cdef int64_t now = monotonic_ms()
        before = self.reported.get(known)
        if before is None or now - before >= REPORT_AGAIN_MS:
            self.reported[known] = now
            name = (<char*>slot.topic)[:slot.topic_bytes].decode()
            LOG.error("partition %s-%d cannot be read: %s", name, slot.partition, failure)
        return 0

    cdef int cold_look_up(self, FetchWait wait, OpenSegment segment, int index_fd, int64_t entries, int64_t size,
                          int64_t offset) except -1:
        """Note what a reader is to look up; without an offset, the batch header at position `size`. Raises ColdRead."""
        wait.cold.append((segment, index_fd, entries, size, offset))
        raise ColdRead

    cdef int64_t first_batch_bytes(self, FetchPartition p, FetchWait wait) except -1:
        cdef uint8_t[BATCH_LENGTH_BYTES] head
        cdef int64_t n = read_some(p.segment.log_fd, head, BATCH_LENGTH_BYTES, p.position)
        if n < 0 and errno == EAGAIN:
            self.cold_look_up(wait, p.segment, -1, 0, p.position, -1)
        if n != BATCH_LENGTH_BYTES:
            raise OSError(errno if n < 0 else EBADMSG, f"no batch at position {p.position} of segment {p.segment.base_offset}")
        return <int64_t>load32(head + 8) + BATCH_LENGTH_BYTES

    cdef SegmentList segments_of(self, uint32_t slot, Slot* at):
        """This process's list of the slot's segments, as new as the slot's generation."""
        cdef SegmentList segments
        known = self.segment_lists.get(slot)
        if known is None or known[0] != at.incarnation:
            name = (<char*>at.topic)[:at.topic_bytes]
            segments = SegmentList(b"%s/%s-%d" % (self.log_dirs[at.log_dir], name, at.partition), self.cache)
            self.segment_lists[slot] = (at.incarnation, segments)
        else:
            segments = known[1]
        segments.refresh(<int64_t>load_acquire_64(&at.generation))
        return segments

    cdef bint place_in_ring(self, FetchPartition p, Slot* slot, Commit* commit) noexcept:
        """Find the batch among the newest few, which the slot itself knows."""
        cdef RecentBatch[RECENT_KEPT] recent
        cdef uint32_t before
        cdef int i
        for _ in range(3):
            before = load_acquire_32(&slot.recent_sequence)
            if before & 1:
                continue
            memcpy(recent, slot.recent, sizeof(recent))
            fence()
            if load_acquire_32(&slot.recent_sequence) != before:
                continue
            for i in range(RECENT_KEPT):
                if recent[i].segment_base == commit.segment_base and \
                        recent[i].base_offset <= p.fetch_offset <= recent[i].last_offset and \
                        recent[i].position < commit.size:
                    p.position = recent[i].position
                    return True
            return False
        return False

    cdef int locate(self, FetchPartition p, Slot* slot, Commit* commit, int64_t limit_offset, int64_t* available,
                    FetchWait wait) except -1:
        """Segment and position of the batch that holds the fetch offset, and how many bytes from there may be read."""
        cdef SegmentList segments
        cdef OpenSegment segment
        cdef FoundBatch found
        cdef int64_t base, size, entries, end, end_base, end_position
        cdef int result, index_fd
        segments = self.segments_of(p.slot - 1, slot)
        base = -1
        if p.place_offset == p.fetch_offset and p.place_generation == p.generation:
            base = p.place_base
            p.position = p.place_position
            if base != commit.segment_base:
                segment = segments.segment(base)
                if p.position >= file_bytes(segment.log_fd):
                    base = -1           # the segment was closed exactly there: the batch begins the next one
        if base < 0 and p.fetch_offset >= commit.segment_base and self.place_in_ring(p, slot, commit):
            base = commit.segment_base
        if base < 0:
            base = segments.floor(p.fetch_offset)
            if base > commit.segment_base:
                base = commit.segment_base
            while True:
                if base < 0:
                    raise OSError(EBADMSG, "no segment holds the offset")
                segment = segments.segment(base)
                if base == commit.segment_base:
                    size = commit.size
                    entries = commit.index_entries
                    index_fd = segment.index()
                else:
                    size = file_bytes(segment.log_fd)
                    index_fd = segment.index()
                    entries = file_bytes(index_fd) // 8
                with nogil:
                    result = find_position(segment.log_fd, index_fd, entries, base, size, p.fetch_offset, &found)
                if result == LOOKUP_FOUND:
                    p.position = found.position
                    break
                if result == -EAGAIN:
                    self.cold_look_up(wait, segment, index_fd, entries, size, p.fetch_offset)
                if result != LOOKUP_BEYOND:
                    raise OSError(-result if result < 0 else EBADMSG, f"offset {p.fetch_offset} in segment {base}")
                base = segments.following(base)     # compacted away at the segment's end
        segment = segments.segment(base)
        p.segment = segment
        # Where reading must end: the position of the limit, from the same snapshot of the slot [R 4].
        if limit_offset == commit.log_end_offset:
            end_base = commit.segment_base
            end_position = commit.size
        elif limit_offset == commit.high_watermark and commit.high_watermark_base >= 0:
            end_base = commit.high_watermark_base
            end_position = commit.high_watermark_position
        else:
            end_base = segments.floor(limit_offset)
            if end_base == base or end_base == commit.segment_base:
                end_position = self.position_of(segments, end_base, commit, limit_offset, wait)
            else:
                end_position = 0
        if base == end_base:
            end = end_position
        elif base < end_base:
            end = file_bytes(segment.log_fd)
        else:
            end = p.position
        available[0] = max(end - p.position, <int64_t>0)
        # The next fetch begins there, if this one is answered whole.
        p.place_offset = limit_offset if base == end_base else -1
        p.place_position = end_position
        p.place_generation = p.generation
        p.place_base = base
        return 0

    cdef int64_t position_of(self, SegmentList segments, int64_t base, Commit* commit, int64_t offset, FetchWait wait) except -1:
        """Position of the first batch at or behind `offset` in a segment; its end if there is none."""
        cdef OpenSegment segment = segments.segment(base)
        cdef FoundBatch found
        cdef int64_t size = commit.size if base == commit.segment_base else file_bytes(segment.log_fd)
        cdef int64_t entries = commit.index_entries if base == commit.segment_base else file_bytes(segment.index()) // 8
        cdef int index_fd = segment.index(), result
        with nogil:
            result = find_position(segment.log_fd, index_fd, entries, base, size, offset, &found)
        if result == LOOKUP_FOUND:
            return found.position
        if result == -EAGAIN:
            self.cold_look_up(wait, segment, index_fd, entries, size, offset)
        if result == LOOKUP_BEYOND:
            return size
        raise OSError(-result if result < 0 else EBADMSG, f"offset {offset} in segment {base}")

    # -- old formats ------------------------------------------------------------------------------------------------

    cdef int start_conversion(self, FetchWait wait, Pending pending) except -1:
        """Have what the plan names converted; the response follows in `converted`. The wait is not in the room."""
        cdef FetchPartition p
        cdef list parts = [], given = []
        cdef int magic = 1 if wait.version >= FIRST_WITH_V1 else 0
        cdef bint each = wait.version < FIRST_WITH_MAX_BYTES
        cdef int64_t budget = min(wait.max_bytes, self.max_bytes)
        for p in wait.partitions:
            if p.length:
                # The first of a response, and in the oldest versions each, gives one batch at least.
                parts.append((p.segment, p.segment.log_fd, p.position, p.extent, p.fetch_offset, p.allowed, magic,
                              each or not parts, not slot_at(p.slot - 1).settings.no_down_conversion))
                given.append(p)
                p.segment = None
        self.down_convert((parts, budget), lambda result: self.converted(wait, pending, given, result))
        return 0

    cdef int converted(self, FetchWait wait, Pending pending, list parts, object result) except -1:
        """In the loop, after the conversion of `parts`: the response, or a wait for more if it was all markers."""
        cdef FetchPartition p
        cdef bint something = wait.planned_error
        if pending.cancelled:
            return 0
        if isinstance(result, BaseException):
            pending.connection.data_loop.close_now(pending.connection, CLOSE_ERROR, f"a Fetch could not be converted: {result!r}")
            return 0
        for p, (error, data, next_offset) in zip(parts, result):
            p.length = len(data)
            p.converted = data
            p.error = storage_error(wait.version) if error == KAFKA_STORAGE_ERROR else error
            if error:
                p.high_watermark = p.last_stable_offset = p.now_log_start = -1
            if error or p.length:
                something = True
            else:
                p.fetch_offset = max(p.fetch_offset, <int64_t>next_offset)     # there is nothing for this reader before it
        if not something and monotonic_ms() < wait.until_ms:
            wait.pending = pending
            return wait.go_on()
        pending.begin()
        try:
            self.write(pending.connection.data_loop, wait)
        except BaseException:
            pending.abandon()
            raise
        pending.finish()
        return 0

    # -- answering --------------------------------------------------------------------------------------------------

    cdef int write(self, DataLoop out, FetchWait wait) except -1:
        """The response to the wait's request from its plan. Everything but the records is put together first, because the
        length stands in front."""
        cdef WriteBuffer* b = &self.response
        cdef int16_t version = wait.version
        cdef bint flexible = version >= FIRST_FLEXIBLE, by_id = version >= FIRST_BY_ID
        cdef FetchPartition p
        cdef list cuts = []
        cdef list served = []
        cdef bytes topic = None
        cdef int64_t total = 0, at = 0
        cdef Py_ssize_t n = len(wait.partitions), i, k
        cdef int32_t topics = 0, run
        b.size = 0
        write_int32(b, 0)
        write_int32(b, wait.correlation_id)
        if flexible:
            write_uvarint(b, 0)
        if version >= 1:
            write_int32(b, 0)                                 # throttle time
        if version >= 7:
            write_int16(b, NONE)
            write_int32(b, wait.session_id)
        included = [q for q in wait.partitions if (<FetchPartition>q).wanted]
        for p in included:
            if p.topic is not topic and p.topic != topic:
                topic = p.topic
                topics += 1
        write_length(b, topics, flexible)
        i = 0
        n = len(included)
        while i < n:
            p = included[i]
            topic = p.topic
            run = 1
            while i + run < n and (<FetchPartition>included[i + run]).topic == topic:
                run += 1
            if by_id:
                write_bytes(b, <const char*>topic, 16)
            else:
                write_string_length(b, <int32_t>len(topic), flexible)
                write_bytes(b, <const char*>topic, len(topic))
            write_length(b, run, flexible)
            for k in range(run):
                p = included[i + k]
                write_int32(b, p.partition)
                write_int16(b, p.error)
                write_int64(b, p.high_watermark)
                if version >= FIRST_WITH_BATCHES:
                    write_int64(b, p.last_stable_offset)
                if version >= 5:
                    write_int64(b, p.now_log_start)
                if version < FIRST_WITH_BATCHES:
                    pass
                elif wait.read_committed and not p.error or p.error in (UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID):
                    write_length(b, 0, flexible)              # aborted transactions
                else:
                    write_length(b, -1, flexible)
                if version >= 11:
                    write_int32(b, -1)                        # preferred read replica
                write_length(b, <int32_t>p.length, flexible)
                if p.length:
                    cuts.append((b.size, p))
                    total += p.length
                if flexible:
                    write_uvarint(b, 0)
                if not p.error:
                    p.told = True
                    p.told_high_watermark = p.high_watermark
                    p.told_log_start = p.now_log_start
                else:
                    p.told = False
            if flexible:
                write_uvarint(b, 0)
            i += run
        if flexible:
            write_uvarint(b, 0)
        if b.error:
            raise MemoryError("no memory for a fetch response")
        store32(b.data, <uint32_t>(b.size - 4 + total))
        self.count_served(wait, included, cuts)
        for cut, p in cuts:
            out.out_bytes(b.data + at, <int64_t>cut - at)
            at = cut
            if p.converted is None:
                out.out_file(p.segment, p.segment.log_fd, p.position, p.length)
            else:
                out.write(p.converted)
                p.converted = None
            p.segment = None
            if wait.by_key is not None:
                served.append(p)
        out.out_bytes(b.data + at, b.size - at)
        self.bytes_out += total
        self.responses += 1
        if served and len(wait.partitions) > 1 and len(served) < len(wait.partitions):
            # Those that gave records go to the end: the next response begins with the others.
            gave = set(served)
            wait.partitions = [q for q in wait.partitions if q not in gave] + served
        return 0

    cdef int count_served(self, FetchWait wait, list included, list cuts) except -1:
        """A response: the records are their topics', the rest, which is in the buffer, is nobody's."""
        cdef FetchPartition p
        cdef uint32_t client
        cdef int64_t rest = self.response.size
        cdef bint refused = False
        cdef uint64_t* values
        still_client(&wait.client)
        client = wait.client.number
        for _, p in cuts:
            p.served = True
            p.served_limit = p.limit
            if p.counted is None:
                rest += p.length
            else:
                usage_of(client, p.counted.counted(), FETCH).values[USAGE_BYTES_OUT] += <uint64_t>p.length
        for p in included:
            if p.error:
                count_error(FETCH, p.error)
                add(FETCH_FAILED, 1)
                refused = True
                if p.counted is not None:
                    usage_of(client, p.counted.counted(), FETCH).values[USAGE_ERRORS] += 1
        values = usage_of(client, TOPIC_NONE, FETCH).values
        values[USAGE_BYTES_OUT] += <uint64_t>rest
        values[USAGE_ERRORS] += refused
        return 0

    cdef int write_error(self, DataLoop out, Client* client, int16_t version, int32_t correlation_id, int16_t error) except -1:
        """A response that only says what is wrong with the session."""
        cdef WriteBuffer* b = &self.response
        cdef bint flexible = version >= FIRST_FLEXIBLE
        b.size = 0
        write_int32(b, 0)
        write_int32(b, correlation_id)
        if flexible:
            write_uvarint(b, 0)
        write_int32(b, 0)
        write_int16(b, error)
        write_int32(b, 0)
        write_length(b, 0, flexible)
        if flexible:
            write_uvarint(b, 0)
        if b.error:
            raise MemoryError("no memory for a fetch response")
        store32(b.data, <uint32_t>(b.size - 4))
        out.out_bytes(b.data, b.size)
        count_error(FETCH, error)
        usage_of(client.number, TOPIC_NONE, FETCH).values[USAGE_ERRORS] += 1
        usage_of(client.number, TOPIC_NONE, FETCH).values[USAGE_BYTES_OUT] += <uint64_t>b.size
        return 0
