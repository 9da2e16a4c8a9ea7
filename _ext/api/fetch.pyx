"""The way of a Fetch request: read it, plan what each partition gives, wait if it is too little, answer from the files.

Runs in a worker's loop. The sessions are in `fetch_sessions.pyx`, what waits in `fetch_waits.pyx`.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t, uint8_t
from libc.string cimport memcmp

from odradek._ext.api.delayed_fetch cimport STAGE_FIRST_LOOK, STEP_ANSWER, DelayedFetch
from odradek._ext.api.fetch_context cimport (
    CONSUMER,
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
from odradek._ext.api.fetch_conversion cimport FetchConversion
from odradek._ext.api.fetch_plan cimport FetchPlan
from odradek._ext.api.fetch_responses cimport FetchResponses
from odradek._ext.api.fetch_sessions cimport FetchSessions
from odradek._ext.api.purgatory cimport Purgatory
from odradek._ext.net.connection cimport FRAME_CLOSE, FRAME_DONE, FRAME_PENDING, Connection, Pending
from odradek._ext.protocol.cursor cimport (
    CURSOR_TAGGED,
    Cursor,
    cursor_fail,
    cursor_init,
    read_bytes,
    read_int32,
    read_int64,
    read_int8,
    read_length,
    read_string_length,
    read_uvarint,
    skip_tagged_fields,
)
from odradek._ext.shm.layout cimport monotonic_ms
from odradek._ext.shm.metering cimport PARKED_FETCHES, USAGE_REQUESTS, usage_of
from odradek._ext.shm.topics cimport Topic, TopicDirectory


cdef enum:
    NEWEST = 18
    FIRST_WITH_SESSIONS = 7
    FIRST_WITH_REPLICA_STATE = 15     # before: replica_id is the first field of the request
    FULL_REQUEST = 0                  # session epochs that name all partitions: of a new session,
    LAST_REQUEST = -1                 # and without one
    TAG_REPLICA_STATE = 1


cdef void read_head(Cursor* body, int16_t version, FetchHead* head) noexcept:
    """What stands before the topics; and the defaults of what the version does not have."""
    head.replica_id = CONSUMER
    head.max_bytes = 0x7FFFFFFF
    head.read_committed = False
    head.session_id = 0
    head.epoch = LAST_REQUEST
    if version < FIRST_WITH_REPLICA_STATE:
        head.replica_id = read_int32(body)
    head.wait_ms = read_int32(body)
    head.min_bytes = read_int32(body)
    if version >= FIRST_WITH_MAX_BYTES:
        head.max_bytes = read_int32(body)
    if version >= FIRST_WITH_BATCHES:
        head.read_committed = read_int8(body) == 1
    if version >= FIRST_WITH_SESSIONS:
        head.session_id = read_int32(body)
        head.epoch = read_int32(body)


cdef class Fetching:
    """One a worker.

    :param log_dirs: paths.
    :param max_bytes: fetch.max.bytes.
    :param max_wait_ms: odradek.fetch.max.wait.ms: no request waits longer.
    :param max_partitions: of one request, and of one session.
    :param down_convert: as for FetchConversion.
    :param slices: (step): call `step()` in later turns of the loop, as long as it returns True.
    """

    def __init__(self, TopicDirectory topics, Purgatory room, log_dirs, FetchSessions sessions, down_convert, slices, *,
                 int32_t max_bytes, int64_t max_wait_ms, Py_ssize_t max_partitions):
        self.topics = topics
        self.room = room
        self.sessions = sessions
        self.slices = slices
        self.places = FetchPlan(topics, log_dirs, max_bytes)
        self.responses = FetchResponses()
        self.conversion = FetchConversion(self.responses, max_bytes, down_convert)
        self.max_bytes = max_bytes
        self.max_wait_ms = max_wait_ms
        self.max_partitions = max_partitions

    @property
    def looks(self):
        """How often a partition was looked at, for plans and after wake-ups."""
        return self.places.looks

    cdef int offer(self, Connection connection, int16_t version, int32_t correlation_id, Cursor* body, uint8_t* frame,
                   int64_t size) except -1:
        """One request; `body` stands behind the header. The connection owes nothing."""
        cdef DelayedFetch wait
        cdef FetchHead head
        cdef int16_t error = NONE
        if version < 0 or version > NEWEST:
            connection.close_reason = f"Fetch version {version} is not known; 0 to {NEWEST} are"
            return FRAME_CLOSE
        read_head(body, version, &head)
        if body.error:
            connection.close_reason = f"a Fetch request of version {version} is cut short at byte {body.ptr - frame} of {size}"
            return FRAME_CLOSE
        wait = self.begin(connection, &head, version >= FIRST_BY_ID, &error)
        if error:
            self.responses.write_error(connection.data_loop, &connection.client, version, correlation_id, error)
            return FRAME_DONE
        if wait.pending is not None:
            self.supersede(wait)
        self.asking = connection.client
        if not self.read_partitions(wait, version, body, &head):
            if wait.by_key is not None:
                self.sessions.end(wait)
            connection.close_reason = f"a Fetch request of version {version} cannot be read at byte {body.ptr - frame} of {size}"
            if self.too_many:
                connection.close_reason = f"a Fetch request names more than {self.max_partitions} partitions"
            return FRAME_CLOSE
        wait.client = connection.client
        wait.version = version
        wait.correlation_id = correlation_id
        wait.min_bytes = min(head.min_bytes, head.max_bytes, self.max_bytes)
        wait.max_bytes = head.max_bytes
        wait.replica_id = head.replica_id
        wait.read_committed = head.read_committed
        wait.last_used_ms = monotonic_ms()
        wait.until_ms = wait.last_used_ms + max(min(<int64_t>head.wait_ms, self.max_wait_ms), <int64_t>0)
        wait.reader = connection.data_loop.cold_reader
        wait.warm_rounds = 0
        if not self.settle_session(wait, &head):
            self.responses.write_error(connection.data_loop, &connection.client, version, correlation_id,
                                       FETCH_SESSION_ID_NOT_FOUND)
            return FRAME_DONE
        self.follow(connection, wait)
        return self.execute(connection, wait)

    cdef int execute(self, Connection connection, DelayedFetch wait) except -1:
        """Plan the request and answer it, or have it wait."""
        cdef int step
        wait.begin_plan(STAGE_FIRST_LOOK)
        step = wait.step()
        if step == STEP_ANSWER and (wait.version >= FIRST_WITH_BATCHES or not wait.planned_bytes):
            self.responses.write(connection.data_loop, wait)
            return FRAME_DONE
        wait.pending = connection.reserve()
        wait.wait_for(step)
        return FRAME_PENDING

    # -- sessions ---------------------------------------------------------------------------------------------------

    cdef DelayedFetch begin(self, Connection connection, FetchHead* head, bint by_id, int16_t* error):
        """What the request goes on with: its session, what its connection asked for last, or nothing yet.

        A client without a session asks for the same partitions over and over: what is known of them stays with the connection.
        """
        cdef DelayedFetch wait
        if head.epoch == FULL_REQUEST or head.epoch == LAST_REQUEST:
            if head.session_id:
                wait = self.sessions.find(head.session_id)
                if wait is not None:
                    self.sessions.end(wait)
            wait = connection.session
            if head.epoch == LAST_REQUEST and wait is not None and wait.by_key is None and wait.pending is None \
                    and wait.partitions and (<FetchPartition>wait.partitions[0]).by_id == by_id:
                return wait
            return self.new_wait()
        wait = self.sessions.find(head.session_id)
        if wait is None:
            error[0] = FETCH_SESSION_ID_NOT_FOUND
        elif wait.epoch != head.epoch:
            error[0] = INVALID_FETCH_SESSION_EPOCH
        elif wait.partitions and (<FetchPartition>wait.partitions[0]).by_id != by_id:
            error[0] = FETCH_SESSION_TOPIC_ID_ERROR         # names and ids must not meet in one response
        else:
            wait.epoch = 1 if head.epoch == 0x7FFFFFFF else head.epoch + 1
            wait.incremental = True
        return wait

    cdef DelayedFetch new_wait(self):
        cdef DelayedFetch wait = DelayedFetch.__new__(DelayedFetch)
        wait.room = self.room
        wait.places = self.places
        wait.responses = self.responses
        wait.conversion = self.conversion
        wait.slices = self.slices
        wait.gauge = PARKED_FETCHES
        wait.partitions = []
        return wait

    cdef int supersede(self, DelayedFetch wait) except -1:
        """Another request of the session arrived before the one that waits was answered: that one is refused (as in Kafka)."""
        cdef Pending pending = wait.pending
        wait.stop_waiting()
        if pending.cancelled:
            return 0
        pending.begin()
        try:
            self.responses.write_error(pending.connection.data_loop, &wait.client, wait.version, wait.correlation_id,
                                       INVALID_FETCH_SESSION_EPOCH)
        except BaseException:
            pending.abandon()
            raise
        return pending.finish()

    cdef bint settle_session(self, DelayedFetch wait, FetchHead* head) except -1:
        """Begin the session that was asked for, or go on with the one at hand. False if that has grown too large, and has ended."""
        if head.epoch == FULL_REQUEST:
            self.sessions.admit(wait)
        elif wait.by_key is not None and not self.sessions.used(wait):
            if wait.partitions:
                return False
            wait.session_id = 0             # nothing is left of it
        return True

    cdef int follow(self, Connection connection, DelayedFetch wait) except -1:
        """From now on `wait` is what the connection asked for last."""
        cdef DelayedFetch before = connection.session
        connection.session = wait
        if before is not None and before is not wait:
            wait.count_moves(before)
            if before.by_key is None or before.ended:
                before.unwatch_all()
        return 0

    def closed(self, Connection connection):
        """The connection is closed: its parked request and its session end."""
        cdef DelayedFetch wait = connection.session
        if wait is not None and (wait.pending is None or wait.pending.connection is connection):
            connection.session = None
            wait.stop_waiting()
            self.sessions.end(wait)
            wait.unwatch_all()
            wait.leave_positions()
            wait.partitions = []                # its entry among the deadlines may outlive it for long
            if wait.by_key is not None:
                wait.by_key = {}

    def sweep(self):
        """Close the files of logs that changed since they were opened."""
        self.places.sweep()

    cdef int answer_parked(self, Connection connection) except -1:
        """Answer the fetch that the connection waits for, if there is one, with what there is now."""
        cdef DelayedFetch wait = connection.session
        if wait is not None and wait.pending is not None and wait.pending.connection is connection:
            wait.expired()
        return 0

    # -- memory kept for a connection -------------------------------------------------------------------------------

    cdef int64_t kept_bytes(self, Connection connection) except -1:
        """About how much memory the partitions take that the connection asked for last, without a session or in one that has ended:
        sessions have bounds of their own."""
        cdef DelayedFetch wait = connection.session
        if wait is None or (wait.by_key is not None and not wait.ended):
            return 0
        if wait.measured_ms != wait.last_used_ms:
            wait.measured_bytes = wait.measure()
            wait.measured_ms = wait.last_used_ms
        return wait.measured_bytes

    cdef int64_t forget(self, Connection connection) except -1:
        """Drop that memory, unless the request still waits. The next fetch of the connection looks its partitions up again."""
        cdef DelayedFetch wait = connection.session
        cdef int64_t kept = self.kept_bytes(connection)
        if kept == 0 or wait.pending is not None:
            return 0
        wait.unwatch_all()
        wait.partitions = []                # its entry among the deadlines may outlive it for long
        if wait.by_key is not None:
            wait.by_key = {}
        connection.session = None
        return kept

    # -- reading the request ----------------------------------------------------------------------------------------

    cdef int read_partitions(self, DelayedFetch wait, int16_t version, Cursor* body, FetchHead* head) except -1:
        """The topics, the forgotten topics and the rest of the request; 0 if it cannot be read."""
        self.too_many = False
        wait.names = 0
        wait.request += 1
        if not self.read_topics(wait, version, body):
            return 0
        wait.all_named()
        if version >= FIRST_WITH_SESSIONS and not self.read_forgotten(wait, version, body):
            return 0
        return self.read_tail(version, body, head)

    cdef int read_topics(self, DelayedFetch wait, int16_t version, Cursor* body) except -1:
        """What is asked for; 0 if it cannot be read, or is too much."""
        cdef bint flexible = version >= FIRST_FLEXIBLE, by_id = version >= FIRST_BY_ID
        cdef int64_t topics = read_length(body, flexible), partitions, length, room = self.max_partitions
        cdef const uint8_t* name
        cdef int32_t partition, max_bytes, leader_epoch, last_fetched_epoch
        cdef int64_t fetch_offset, log_start_offset
        cdef bytes topic
        cdef Topic known
        if body.error:
            return 0
        if topics > room:
            self.too_many = True
            return 0
        for _ in range(topics):
            length = 16 if by_id else read_string_length(body, flexible)
            name = read_bytes(body, length)
            partitions = read_length(body, flexible)
            if body.error or name == NULL:
                return 0
            room -= max(partitions, <int64_t>0)
            if room < 0:
                self.too_many = True
                return 0
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
                if <Py_ssize_t>len(wait.partitions) > self.max_partitions:
                    self.too_many = True        # a session that grows request by request
                    return 0
            if flexible:
                skip_tagged_fields(body)
        return 1

    cdef int read_tail(self, int16_t version, Cursor* body, FetchHead* head) except -1:
        """The rack, and the tagged fields; 0 if they cannot be read."""
        cdef bint flexible = version >= FIRST_FLEXIBLE
        cdef int64_t length
        cdef uint32_t tags, tag, tag_bytes
        cdef const uint8_t* at
        cdef Cursor field
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
                if tag == TAG_REPLICA_STATE and version >= FIRST_WITH_REPLICA_STATE and at != NULL:
                    cursor_init(&field, at, tag_bytes)
                    head.replica_id = read_int32(&field)
                    read_int64(&field)          # the replica's epoch: no broker follows this one yet
                    if skip_tagged_fields(&field) or field.ptr != field.end:
                        cursor_fail(body, CURSOR_TAGGED, tag_bytes)
                tags -= 1
        return not body.error

    cdef bytes same_name(self, const uint8_t* name, int64_t length):
        """The bytes object of the topic named last, if it is the same: most requests name one topic over and over."""
        cdef bytes last = self.last_name
        if last is None or len(last) != length or memcmp(<const char*>last, name, length) != 0:
            last = (<const char*>name)[:length]
            self.last_name = last
        return last

    cdef int read_forgotten(self, DelayedFetch wait, int16_t version, Cursor* body) except -1:
        cdef bint flexible = version >= FIRST_FLEXIBLE
        cdef int64_t topics = read_length(body, flexible), partitions, length, room = self.max_partitions
        cdef const uint8_t* name
        cdef int32_t partition
        if body.error:
            return 0
        if topics > room:
            self.too_many = True
            return 0
        for _ in range(topics):
            length = 16 if version >= FIRST_BY_ID else read_string_length(body, flexible)
            name = read_bytes(body, length)
            partitions = read_length(body, flexible)
            if body.error or name == NULL:
                return 0
            room -= max(partitions, <int64_t>0)
            if room < 0:
                self.too_many = True
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
