"""Execution of Fetch requests: read the request, plan each partition, wait if the records are too few, answer from the files.

Runs in a worker's event loop. `fetch_sessions.pyx` contains the sessions, `delayed_fetch.pyx` the delayed requests.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t, uint8_t
from libc.string cimport memcmp

from odradek._ext.api.access cimport AccessControl
from odradek._ext.api.delayed_fetch cimport STAGE_FIRST_PLAN, STEP_ANSWER, DelayedFetch
from odradek._ext.api.fetch_context cimport (
    CONSUMER,
    FIRST_BY_ID,
    FIRST_WITH_BATCHES,
    FIRST_WITH_MAX_BYTES,
    FIRST_WITH_RACK,
    FetchContext,
    FetchPartition,
    set_request,
)
from odradek._ext.api.fetch_conversion cimport FetchConversion
from odradek._ext.api.fetch_plan cimport FetchPlan
from odradek._ext.api.fetch_responses cimport FetchResponses
from odradek._ext.api.fetch_sessions cimport FetchSessions
from odradek._ext.api.purgatory cimport Purgatory
from odradek._ext.net.charging cimport charge_time, spend
from odradek._ext.net.connection cimport FRAME_CLOSE, FRAME_DONE, FRAME_PENDING, Connection, Pending
from odradek._ext.partition.high_watermark cimport is_alive
from odradek._ext.protocol.api_versions cimport FETCH, FETCH_FLEXIBLE, FETCH_NEWEST
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
from odradek._ext.protocol.kafka_errors cimport (
    FETCH_SESSION_ID_NOT_FOUND,
    FETCH_SESSION_TOPIC_ID_ERROR,
    INVALID_FETCH_SESSION_EPOCH,
    NO_ERROR,
)
from odradek._ext.shm.client_quotas cimport quota_burst
from odradek._ext.shm.clock cimport monotonic_ms
from odradek._ext.shm.layout cimport region
from odradek._ext.shm.metering cimport PARKED_FETCHES, USAGE_REQUESTS, count_usage
from odradek._ext.shm.topics cimport Topic, TopicDirectory


cdef enum:
    FIRST_WITH_SESSIONS = 7
    FIRST_WITH_REPLICA_STATE = 15     # before: replica_id is the first field of the request
    FULL_REQUEST = 0                  # session epoch of a request that names all partitions and begins a session
    LAST_REQUEST = -1                 # session epoch of a request that names all partitions, without a session
    TAG_REPLICA_STATE = 1


cdef void read_head(Cursor* body, int16_t version, FetchHead* head) noexcept:
    """Read the fields before the topics, and set defaults for the fields that the version does not have."""
    head.replica_id = CONSUMER
    head.replica_epoch = -1
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


cdef class FetchHandler:
    """Executes Fetch requests. A worker has one.

    :param log_dirs: paths.
    :param max_bytes: fetch.max.bytes.
    :param max_wait_ms: odradek.fetch.max.wait.ms, the limit of a request's max wait.
    :param max_partitions: limit of the partitions of a request, and of a session.
    :param down_convert: see FetchConversion.
    :param slices: (step): calls `step()` in later turns of the loop while it returns True.
    :param replicas: in a cluster, what is known about other brokers (`odradek.api.replicas.ReplicaView`); None: there are none.
    """

    def __init__(self, TopicDirectory topics, Purgatory room, log_dirs, FetchSessions sessions, down_convert, slices, *,
                 int32_t max_bytes, int64_t max_wait_ms, Py_ssize_t max_partitions, replicas=None):
        self.topics = topics
        self.purgatory = room
        self.sessions = sessions
        self.slices = slices
        self.replicas = replicas
        self.plan = FetchPlan(topics, log_dirs, max_bytes, replicas)
        self.responses = FetchResponses(replicas)
        self.conversion = FetchConversion(self.responses, max_bytes, down_convert)
        self.max_bytes = max_bytes
        self.max_wait_ms = max_wait_ms
        self.max_partitions = max_partitions
        self.brokers_listener = -1

    @property
    def looks(self) -> int:
        """How often a partition was examined, for plans and after wake-ups."""
        return self.plan.looks

    @property
    def aborted_look_ups(self) -> int:
        """How often a transaction index was searched."""
        return self.plan.aborted.look_ups

    @property
    def notes(self) -> int:
        """How often the position of a follower was noted."""
        return self.plan.replica_reads.notes

    cdef int offer(self, Connection connection, int16_t version, int32_t correlation_id, Cursor* body, uint8_t* frame,
                   int64_t size) except -1:
        """Execute a request. Return a FrameResult. The connection must have no pending response.

        :param body: cursor after the request's header.
        """
        cdef DelayedFetch fetch
        cdef FetchContext context
        cdef FetchHead head
        cdef int16_t error = NO_ERROR
        if version < 0 or version > FETCH_NEWEST:
            connection.close_reason = f"Fetch version {version} is not supported, supported are 0 to {FETCH_NEWEST}"
            return FRAME_CLOSE
        read_head(body, version, &head)
        if body.error:
            connection.close_reason = f"a Fetch request of version {version} is malformed at byte {body.ptr - frame} of {size}"
            return FRAME_CLOSE
        fetch = self.begin(connection, &head, version >= FIRST_BY_ID, &error)
        if error:
            self.refuse(connection, version, correlation_id, error)
            return FRAME_DONE
        if fetch.pending is not None:
            self.supersede(fetch)
        self.client = connection.metering.client
        context = fetch.context
        for unsent in context.listed:       # the previous request of a follower's session was not answered
            context.mark_dirty(unsent)
        context.listed = []
        if not self.read_partitions(context, version, body, &head):
            if context.by_key is not None:
                self.sessions.end(fetch)
            connection.close_reason = f"a Fetch request of version {version} is malformed at byte {body.ptr - frame} of {size}"
            if self.too_many:
                connection.close_reason = f"a Fetch request names more than {self.max_partitions} partitions"
            return FRAME_CLOSE
        if head.replica_id >= 0 and 0 <= self.brokers_listener != connection.listener_index:
            connection.close_reason = f"a Fetch request of broker {head.replica_id} on a listener for clients: brokers send it to the " \
                                      f"listener that inter.broker.listener.name names (odradek.inter.broker.listener.only)"
            if context.by_key is not None:
                self.sessions.end(fetch)
            return FRAME_CLOSE
        if context.selective and head.replica_id != context.session_of:
            self.sessions.end(fetch)
            self.refuse(connection, version, correlation_id, FETCH_SESSION_ID_NOT_FOUND)
            return FRAME_DONE
        self.begin_request(connection, context, version, correlation_id, &head)
        if not self.settle_session(fetch, &head):
            self.refuse(connection, version, correlation_id, FETCH_SESSION_ID_NOT_FOUND)
            return FRAME_DONE
        if context.selective and context.incremental:
            fetch.drop_forgotten()
            fetch.refresh_idle()
            context.begin_list()
        self.follow(connection, fetch)
        return self.execute(connection, fetch)

    cdef int refuse(self, Connection connection, int16_t version, int32_t correlation_id, int16_t error) except -1:
        """Answer a request whose session does not exist."""
        cdef int64_t wait_ms = 0
        if connection.quotas.limited and connection.quotas.request.key:
            wait_ms = charge_time(connection, &connection.quotas.request, spend(connection))
        return self.responses.write_error(connection.responses, &connection.metering.client, version, correlation_id, error, wait_ms)

    cdef int begin_request(self, Connection connection, FetchContext context, int16_t version, int32_t correlation_id,
                           FetchHead* head) except -1:
        """Store the fields of a request, except its partitions, in its context."""
        cdef AccessControl control = self.control
        context.client = connection.metering.client
        context.listener = connection.listener_index
        context.version = version
        context.correlation_id = correlation_id
        context.min_bytes = min(head.min_bytes, head.max_bytes, self.max_bytes)
        context.max_bytes = head.max_bytes
        context.replica_id = head.replica_id
        context.replica_epoch = head.replica_epoch
        context.replica_alive = head.replica_id >= 0 and (not region().header.clustered or is_alive(head.replica_id))
        context.replicates = context.replica_alive and region().header.clustered
        context.refused = False
        context.limited = connection.quotas.limited and not context.replicates
        if context.limited:
            self.limit_request(connection, context)
        context.rack = self.rack
        context.access = None if control is None else control.of_connection(connection)
        context.unnoted = []
        context.read_committed = head.read_committed
        context.last_used_ms = monotonic_ms()
        context.until_ms = context.last_used_ms + max(min(<int64_t>head.wait_ms, self.max_wait_ms), <int64_t>0)
        context.reader = connection.responses.cold_reader
        context.warm_rounds = 0
        context.rounds = 0
        return 0

    cdef int limit_request(self, Connection connection, FetchContext context) except -1:
        """Note the quotas of a request, and reduce its size to what they allow a client that fetched nothing before."""
        cdef double most
        context.byte_quota = connection.quotas.fetch
        context.time_quota = connection.quotas.request
        if context.byte_quota.key:
            most = quota_burst(&context.byte_quota)
            if most < context.max_bytes:
                context.max_bytes = <int32_t>most
            context.min_bytes = min(context.min_bytes, context.max_bytes)
        return 0

    cdef int execute(self, Connection connection, DelayedFetch fetch) except -1:
        """Plan the request, and answer or park it. Return a FrameResult."""
        cdef int step
        fetch.begin_plan(STAGE_FIRST_PLAN)
        step = fetch.step()
        if step == STEP_ANSWER and (fetch.context.version >= FIRST_WITH_BATCHES or not fetch.context.planned_bytes):
            self.responses.write(connection.responses, fetch.context, connection, spend(connection) if fetch.context.limited else 0)
            if fetch.context.refused:
                self.sessions.end(fetch)
            return FRAME_DONE
        fetch.pending = connection.reserve()
        fetch.wait_for(step)
        return FRAME_PENDING

    # -- sessions ---------------------------------------------------------------------------------------------------

    cdef DelayedFetch begin(self, Connection connection, FetchHead* head, bint by_id, int16_t* error):
        """Return the request context: the request's session, the context of the connection's last request, or a new one.

        A client without a session usually requests the same partitions repeatedly, so their resolved state is kept on the connection.
        """
        cdef DelayedFetch fetch
        if head.epoch == FULL_REQUEST or head.epoch == LAST_REQUEST:
            if head.session_id:
                fetch = self.sessions.find(head.session_id)
                if fetch is not None:
                    self.sessions.end(fetch)
            fetch = connection.session
            if head.epoch == LAST_REQUEST and fetch is not None and fetch.context.by_key is None and fetch.pending is None \
                    and fetch.context.partitions and (<FetchPartition>fetch.context.partitions[0]).by_id == by_id:
                return fetch
            return self.new_fetch()
        fetch = self.sessions.find(head.session_id)
        if fetch is None:
            error[0] = FETCH_SESSION_ID_NOT_FOUND
        elif fetch.context.epoch != head.epoch:
            error[0] = INVALID_FETCH_SESSION_EPOCH
        elif fetch.context.partitions and (<FetchPartition>fetch.context.partitions[0]).by_id != by_id:
            error[0] = FETCH_SESSION_TOPIC_ID_ERROR         # a response must not contain both topic names and topic ids
        else:
            fetch.context.epoch = 1 if head.epoch == 0x7FFFFFFF else head.epoch + 1
            fetch.context.incremental = True
        return fetch

    cdef DelayedFetch new_fetch(self):
        cdef DelayedFetch fetch = DelayedFetch.__new__(DelayedFetch)
        fetch.purgatory = self.purgatory
        fetch.plan = self.plan
        fetch.responses = self.responses
        fetch.conversion = self.conversion
        fetch.slices = self.slices
        fetch.end_session = self.sessions.end_refused
        fetch.gauge = PARKED_FETCHES
        return fetch

    cdef int supersede(self, DelayedFetch fetch) except -1:
        """A request of the session arrived while an earlier one is delayed: answer the earlier one with an error (as in Kafka)."""
        cdef FetchContext context = fetch.context
        cdef Pending pending = fetch.pending
        cdef int64_t wait_ms
        fetch.stop_waiting()
        if pending.cancelled:
            return 0
        wait_ms = pending.charge_time()
        pending.begin()
        try:
            self.responses.write_error(pending.connection.responses, &context.client, context.version, context.correlation_id,
                                       INVALID_FETCH_SESSION_EPOCH, wait_ms)
        except BaseException:
            pending.abandon()
            raise
        return pending.finish()

    cdef bint settle_session(self, DelayedFetch fetch, FetchHead* head) except -1:
        """Begin the requested session, or continue the current one. Return False if that has grown too large and was ended."""
        if head.epoch == FULL_REQUEST:
            if not (region().header.clustered and fetch.context.replica_alive and head.replica_id != region().header.broker_id
                    and self.sessions.admit_replica(fetch, head.replica_id)):
                self.sessions.admit(fetch)
        elif fetch.context.by_key is not None and not self.sessions.used(fetch):
            if fetch.context.partitions:
                return False
            fetch.context.session_id = 0     # the session has no partitions left, and has ended
        return True

    cdef int follow(self, Connection connection, DelayedFetch fetch) except -1:
        """Make `fetch` the connection's last request context."""
        cdef DelayedFetch before = connection.session
        connection.session = fetch
        if before is not None and before is not fetch:
            fetch.context.count_progress_since(before.context)
            if before.context.selective:            # a follower uses one session at a time; nothing else would end this one
                self.sessions.end(before)
            if before.context.by_key is None or before.context.ended:
                before.unwatch_all()
        return 0

    def closed(self, Connection connection) -> None:
        """The connection is closed: end its delayed request and its session."""
        cdef DelayedFetch fetch = connection.session
        if fetch is not None and (fetch.pending is None or fetch.pending.connection is connection):
            connection.session = None
            fetch.stop_waiting()
            self.sessions.end(fetch)
            fetch.unwatch_all()
            fetch.context.leave_positions()
            fetch.context.partitions = []        # the purgatory's heap may refer to the fetch for a long time
            if fetch.context.by_key is not None:
                fetch.context.by_key = {}

    def sweep(self) -> None:
        """Close the files of logs that changed since they were opened."""
        self.plan.sweep()

    def rights_changed(self, Connection connection not None) -> None:
        """The client may have lost a right: answer its delayed fetch now, if it may not read one of the partitions any more."""
        cdef DelayedFetch fetch = connection.session
        if fetch is None or not fetch.waiting or fetch.pending is None or fetch.context.access is None:
            return
        if self.plan.lost_rights(fetch.context):
            self.answer_parked(connection)

    cdef int answer_parked(self, Connection connection) except -1:
        """Answer the connection's delayed fetch, if it has one, with the records that are available now."""
        cdef DelayedFetch fetch = connection.session
        if fetch is not None and fetch.pending is not None and fetch.pending.connection is connection:
            fetch.expired()
        return 0

    cdef int hurry(self, Connection connection) except -1:
        """Another request follows the connection's waiting fetch. If this is a follower's, answer it now with the records that are
        available: the follower has new partitions to fetch."""
        cdef DelayedFetch fetch = connection.session
        if fetch is not None and fetch.waiting and fetch.context.selective and fetch.pending is not None \
                and fetch.pending.connection is connection:
            fetch.expired()
        return 0

    # -- memory kept for a connection -------------------------------------------------------------------------------

    cdef int64_t kept_bytes(self, Connection connection) except -1:
        """Return the approximate memory, in bytes, of the connection's last request context, if it has no session or its session has
        ended. Sessions are bounded by FetchSessions.
        """
        cdef DelayedFetch fetch = connection.session
        if fetch is None or (fetch.context.by_key is not None and not fetch.context.ended):
            return 0
        if fetch.measured_ms != fetch.context.last_used_ms:
            fetch.measured_bytes = fetch.measure()
            fetch.measured_ms = fetch.context.last_used_ms
        return fetch.measured_bytes

    cdef int64_t forget(self, Connection connection) except -1:
        """Drop the memory that `kept_bytes` counts, unless the request is delayed. Return the number of dropped bytes. The connection's
        next fetch looks its partitions up again.
        """
        cdef DelayedFetch fetch = connection.session
        cdef int64_t kept = self.kept_bytes(connection)
        if kept == 0 or fetch.pending is not None:
            return 0
        fetch.unwatch_all()
        fetch.context.partitions = []        # the purgatory's heap may refer to the fetch for a long time
        if fetch.context.by_key is not None:
            fetch.context.by_key = {}
        connection.session = None
        return kept

    # -- reading the request ----------------------------------------------------------------------------------------

    cdef int read_partitions(self, FetchContext context, int16_t version, Cursor* body, FetchHead* head) except -1:
        """Read the topics, the forgotten topics and the rest of the request. Return 0 if the request is malformed."""
        cdef bint clustered = region().header.clustered
        self.too_many = False
        self.clients_topics = not context.selective and not (clustered and head.replica_id >= 0)
        # Another broker begins a session like this, and is known by the end of the request.
        self.begun_topics = [] if clustered and head.epoch == FULL_REQUEST and version >= FIRST_WITH_REPLICA_STATE else None
        context.named_count = 0
        context.request += 1
        if not self.read_topics(context, version, body):
            return 0
        context.end_of_partitions()
        if version >= FIRST_WITH_SESSIONS and not self.read_forgotten(context, version, body):
            return 0
        if not self.read_tail(version, body, head):
            return 0
        if self.begun_topics is not None and head.replica_id < 0:
            for topic in self.begun_topics:
                self.count_topic(topic)
        return 1

    cdef int count_topic(self, Topic topic) except -1:
        count_usage(self.client.number, topic.counted(), FETCH, USAGE_REQUESTS, 1)
        return 0

    cdef int read_topics(self, FetchContext context, int16_t version, Cursor* body) except -1:
        """Read the requested topics. Return 0 if they are malformed, or name too many partitions."""
        cdef bint flexible = version >= FETCH_FLEXIBLE, by_id = version >= FIRST_BY_ID
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
            if known is not None and self.begun_topics is not None:
                self.begun_topics.append(known)
            elif known is not None and self.clients_topics:
                self.count_topic(known)
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
                set_request(context.next_partition(topic, by_id, partition), fetch_offset, log_start_offset, max_bytes, leader_epoch,
                            last_fetched_epoch)
                if <Py_ssize_t>len(context.partitions) > self.max_partitions:
                    self.too_many = True        # the session has grown request by request
                    return 0
            if flexible:
                skip_tagged_fields(body)
        return 1

    cdef int read_tail(self, int16_t version, Cursor* body, FetchHead* head) except -1:
        """Read the rack and the tagged fields. Return 0 if they are malformed."""
        cdef bint flexible = version >= FETCH_FLEXIBLE
        cdef int64_t length
        cdef uint32_t tags, tag, tag_bytes
        cdef const uint8_t* at
        cdef Cursor field
        self.rack = None
        if version >= FIRST_WITH_RACK:
            length = read_string_length(body, flexible)
            if length > 0:
                at = read_bytes(body, length)
                if at != NULL and self.replicas is not None and self.replicas.selects:
                    self.rack = (<const char*>at)[:length]
        if flexible:
            tags = read_uvarint(body)
            while tags > 0 and not body.error:
                tag = read_uvarint(body)
                tag_bytes = read_uvarint(body)
                at = read_bytes(body, tag_bytes)
                if tag == TAG_REPLICA_STATE and version >= FIRST_WITH_REPLICA_STATE and at != NULL:
                    cursor_init(&field, at, tag_bytes)
                    head.replica_id = read_int32(&field)
                    head.replica_epoch = read_int64(&field)
                    if skip_tagged_fields(&field) or field.ptr != field.end:
                        cursor_fail(body, CURSOR_TAGGED, tag_bytes)
                tags -= 1
        return not body.error

    cdef bytes same_name(self, const uint8_t* name, int64_t length):
        """Return the name as a bytes object; the previous one if it is equal, because most requests repeat one topic."""
        cdef bytes last = self.last_name
        if last is None or len(last) != length or memcmp(<const char*>last, name, length) != 0:
            last = (<const char*>name)[:length]
            self.last_name = last
        return last

    cdef int read_forgotten(self, FetchContext context, int16_t version, Cursor* body) except -1:
        cdef bint flexible = version >= FETCH_FLEXIBLE
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
                if context.by_key is not None and not body.error:
                    context.forget((topic, partition))
            if flexible:
                skip_tagged_fields(body)
        if topics > 0 and context.by_key is not None:
            context.drop_forgotten()
        return not body.error
