"""The way of a Fetch request: read it, plan what each partition gives, wait if it is too little, answer from the files.

Runs in a worker's loop. Sessions (KIP-227) belong to the worker; a client whose next connection goes to another worker is told
FETCH_SESSION_ID_NOT_FOUND and begins anew, as the protocol says.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp

from broker._ext.connection cimport FRAME_CLOSE, FRAME_DONE, FRAME_PENDING, Connection
from broker._ext.cursor cimport (
    Cursor,
    read_bytes,
    read_int32,
    read_int64,
    read_int8,
    read_length,
    read_string_length,
    read_uvarint,
    skip_tagged_fields,
)
from broker._ext.fetch_context cimport (
    FETCH,
    FETCH_SESSION_ID_NOT_FOUND,
    FETCH_SESSION_TOPIC_ID_ERROR,
    FIRST_BY_ID,
    FIRST_FLEXIBLE,
    FIRST_WITH_BATCHES,
    FIRST_WITH_MAX_BYTES,
    INVALID_FETCH_SESSION_EPOCH,
    NONE,
    FetchPartition,
    ask,
)
from broker._ext.fetch_conversion cimport FetchConversion
from broker._ext.fetch_places cimport FetchPlaces
from broker._ext.fetch_responses cimport FetchResponses
from broker._ext.fetch_waits cimport FetchWait
from broker._ext.metering cimport PARKED_FETCHES, USAGE_REQUESTS, usage_of
from broker._ext.records cimport load32
from broker._ext.shared cimport monotonic_ms
from broker._ext.topics cimport Topic, TopicDirectory
from broker._ext.waiting cimport WaitingRoom


cdef enum:
    NEWEST = 18
    MAX_PARTITIONS = 100000           # of one request, and of a session: more would take memory out of proportion
    EVICTABLE_AFTER_MS = 120000


cdef class Fetching:
    """One a worker. log_dirs: paths; ordinal: the worker's, part of its session ids; max_sessions:
    max.incremental.fetch.session.cache.slots; max_bytes: fetch.max.bytes; down_convert: as for FetchConversion.
    """

    def __init__(self, TopicDirectory topics, WaitingRoom room, log_dirs, int ordinal, int max_sessions, int32_t max_bytes,
                 down_convert):
        self.topics = topics
        self.room = room
        self.places = FetchPlaces(topics, log_dirs, max_bytes)
        self.responses = FetchResponses()
        self.conversion = FetchConversion(self.responses, max_bytes, down_convert)
        self.sessions = {}
        self.session_mark = ordinal
        self.next_session = 1
        self.max_sessions = max_sessions

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
        wait = self.begin(connection, session_id, epoch, version >= FIRST_BY_ID, &error)
        if error:
            self.responses.write_error(connection.data_loop, &connection.client, version, correlation_id, error)
            return FRAME_DONE
        self.asking = connection.client
        if not self.read_partitions(wait, version, body):
            if wait.by_key is not None:
                self.end_session(wait)
            connection.close_reason = f"a Fetch request of version {version} cannot be read at byte {body.ptr - frame} of {size}"
            return FRAME_CLOSE
        if wait.pending is not None:
            if not wait.pending.cancelled:
                self.places.plan(wait)
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
            if before.by_key is None:
                before.unwatch_all()
        self.places.plan(wait)
        if replica_id < 0 and wait.replica_id < 0:
            wait.count_positions()
        if wait.cold:
            wait.pending = connection.reserve()
            wait.warm()
            return FRAME_PENDING
        if wait.enough() or wait_ms <= 0:
            if version < FIRST_WITH_BATCHES and wait.planned_bytes:
                self.conversion.start(wait, connection.reserve())
                return FRAME_PENDING
            self.responses.write(connection.data_loop, wait)
            return FRAME_DONE
        wait.watch_all()
        wait.arm_all()
        self.places.plan(wait)                     # the second look, after the bits are set [R 6]
        if wait.cold:
            wait.pending = connection.reserve()
            wait.warm()
            return FRAME_PENDING
        if wait.enough():
            if version < FIRST_WITH_BATCHES and wait.planned_bytes:
                self.conversion.start(wait, connection.reserve())
                return FRAME_PENDING
            self.responses.write(connection.data_loop, wait)
            return FRAME_DONE
        wait.pending = connection.reserve()
        self.room.park(wait, wait.until_ms)
        return FRAME_PENDING

    cdef FetchWait begin(self, Connection connection, int32_t session_id, int32_t epoch, bint by_id, int16_t* error):
        """The session that the request belongs to, a new one, or none.

        Who fetches without a session asks for the same partitions over and over: what is known of them stays with the connection.
        """
        cdef FetchWait wait
        if epoch == 0 or epoch == -1:
            if session_id:
                wait = self.sessions.get(session_id)
                if wait is not None:
                    self.end_session(wait)
            if epoch == 0:
                return self.new_session()
            wait = connection.session
            if wait is not None and wait.by_key is None and wait.pending is None and not wait.warming and wait.partitions and \
                    (<FetchPartition>wait.partitions[0]).by_id == by_id:
                wait.names = 0
                return wait
            return self.new_wait()
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

    cdef FetchWait new_wait(self):
        cdef FetchWait wait = FetchWait.__new__(FetchWait)
        wait.room = self.room
        wait.places = self.places
        wait.responses = self.responses
        wait.conversion = self.conversion
        wait.gauge = PARKED_FETCHES
        wait.partitions = []
        return wait

    cdef FetchWait new_session(self):
        cdef FetchWait wait = self.new_wait()
        cdef FetchWait oldest = None
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
            self.places.plan(session)
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
            wait.partitions = []                # its entry among the deadlines may outlive it for long
            if wait.by_key is not None:
                wait.by_key = {}

    def sweep(self):
        """Close what is open of logs that changed since."""
        self.places.sweep()

    cdef int answer_parked(self, Connection connection) except -1:
        """Answer the fetch that the connection waits for, if there is one, with what there is now."""
        cdef FetchWait wait = connection.session
        if wait is not None and wait.pending is not None and wait.pending.connection is connection:
            wait.expired()
        return 0

    # -- reading the request ----------------------------------------------------------------------------------------

    cdef int read_partitions(self, FetchWait wait, int16_t version, Cursor* body) except -1:
        """The topics, the forgotten topics and the rest of the request; 0 if it cannot be read."""
        cdef bint flexible = version >= FIRST_FLEXIBLE, by_id = version >= FIRST_BY_ID
        cdef int64_t topics = read_length(body, flexible), partitions, length, room = MAX_PARTITIONS
        cdef const uint8_t* name
        cdef int32_t partition, max_bytes, leader_epoch, last_fetched_epoch
        cdef int64_t fetch_offset, log_start_offset
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
                leader_epoch = last_fetched_epoch = -1
                log_start_offset = -1
                partition = read_int32(body)
                if version >= 9:
                    leader_epoch = read_int32(body)
                fetch_offset = read_int64(body)
                if version >= 12:
                    last_fetched_epoch = read_int32(body)
                if version >= 5:
                    log_start_offset = read_int64(body)
                max_bytes = read_int32(body)
                if flexible:
                    skip_tagged_fields(body)
                if body.error:
                    return 0
                ask(wait.named(topic, by_id, partition), fetch_offset, log_start_offset, max_bytes, leader_epoch, last_fetched_epoch)
                if len(wait.partitions) > MAX_PARTITIONS:
                    return 0                    # a session that grows request by request
            if flexible:
                skip_tagged_fields(body)
        wait.all_named()
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
