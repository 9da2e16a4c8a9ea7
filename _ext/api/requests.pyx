"""Reads a request's header and passes the request to ProduceHandler, FetchHandler, the coordinator or Python.

Runs in a worker's event loop.
"""

from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport INT64_MAX, int16_t, int32_t, int64_t, uint16_t, uint32_t, uint64_t, uint8_t
from libc.string cimport memcpy

from odradek._ext.api.fetch cimport FetchHandler
from odradek._ext.api.produce cimport ProduceHandler
from odradek._ext.api.purgatory cimport Purgatory
from odradek._ext.net.charging cimport Charges, charge_time, spend
from odradek._ext.net.connection cimport FRAME_CLOSE, FRAME_DEFER, FRAME_DONE, FRAME_PENDING, Connection
from odradek._ext.net.forwarding cimport ForwardTable, Route
from odradek._ext.net.late_requests cimport is_unawaited
from odradek._ext.protocol.api_versions cimport CONTROLLED_SHUTDOWN, FETCH, FETCH_FLEXIBLE, PRODUCE, PRODUCE_FLEXIBLE, WRITE_TXN_MARKERS
from odradek._ext.protocol.byte_order cimport store32
from odradek._ext.protocol.cursor cimport (
    Cursor,
    cursor_init,
    read_bytes,
    read_int16,
    read_int32,
    read_string_length,
    skip_tagged_fields,
)
from odradek._ext.shm.atomics cimport load_acquire_64, store_relaxed_64, store_relaxed_i16, store_relaxed_i32, store_release_64
from odradek._ext.shm.layout cimport Process, region
from odradek._ext.shm.metering cimport METER_KEY_UNKNOWN, TOPIC_NONE, USAGE_BYTES_OUT, api_index, count_usage, still_client
from odradek._ext.shm.waking cimport wake_own_loop

from odradek._ext.net.connection import with_throttle_time


cdef inline int32_t route_number(int16_t key, int16_t version) noexcept:
    return <int32_t>key * 65536 + <uint16_t>version


cdef class RequestHandler(FrameHandler):
    """The FrameHandler of a worker.

    :param dispatch: (connection, api_key, api_version, correlation_id, client_id, frame): executes every request that is neither
        Produce, Fetch nor forwarded; frame is a copy, with its header. It returns the response with its header and without its length;
        None if it attached a Pending; False if the connection must be closed, with the reason in `connection.close_reason`.
    :param forward_table: forwards the requests that the coordinator serves, unchanged.
    :param routes: the requests to forward: {(API key, version): Route}.
    :param max_bytes: size limit of a request other than Produce.
    :param brokers_listener: index of the only listener on which requests of brokers are accepted; -1: on each.
    """

    def __init__(self, ProduceHandler produce_handler, FetchHandler fetch_handler, Purgatory purgatory, dispatch,
                 ForwardTable forward_table=None, routes=(), int64_t max_bytes=INT64_MAX, int brokers_listener=-1):
        self.max_bytes = max_bytes
        self.brokers_listener = fetch_handler.brokers_listener = brokers_listener
        self.produce_handler = produce_handler
        self.fetch_handler = fetch_handler
        self.purgatory = purgatory
        self.dispatch = dispatch
        self.forward_table = forward_table
        self.routes = {route_number(key, version): route for (key, version), route in dict(routes).items()}

    cdef int note_request(self, Connection connection, int16_t key, int16_t version, int32_t correlation_id, const uint8_t* client,
                          int64_t length) except -1:
        """Note the request in the process table, so that the supervisor can name a request that crashes the process [R 7]."""
        cdef Process* p = &region().processes[region().self]
        cdef Py_ssize_t peer_bytes
        cdef const char* peer = PyUnicode_AsUTF8AndSize(connection.peer, &peer_bytes)   # ASCII text is stored in this form: no copy
        store_relaxed_i16(&p.request_key, key)
        store_relaxed_i16(&p.request_version, version)
        store_relaxed_i32(&p.request_correlation, correlation_id)
        length = min(max(length, <int64_t>0), <int64_t>63)
        if length:
            memcpy(p.request_client, client, length)
        p.request_client[length] = 0
        peer_bytes = min(peer_bytes, <Py_ssize_t>63)
        memcpy(p.request_peer, peer, peer_bytes)
        p.request_peer[peer_bytes] = 0
        store_release_64(&p.request_sequence, p.request_sequence + 1)
        return 0

    cdef int frame(self, Connection connection, uint8_t* data, int64_t size) except -1:
        cdef Cursor body
        cdef int16_t key, version
        cdef int32_t correlation_id
        cdef int64_t length
        cdef int result
        cdef Route route
        cdef Charges charges
        cdef const uint8_t* client = data   # never NULL, also if the request has no client id
        # Now that the request is read: its client may have created the topic through another worker [R 8.4].
        if load_acquire_64(&region().header.metadata_version) != self.produce_handler.topics.version:
            self.produce_handler.topics.refresh()
        if connection.gate is not None:
            return self.offer_to_gate(connection, data, size)
        cursor_init(&body, data, size)
        key = read_int16(&body)
        version = read_int16(&body)
        correlation_id = read_int32(&body)
        if key == CONTROLLED_SHUTDOWN and version == 0:
            length = -1
        else:
            length = read_string_length(&body, False)
            if length > 0:
                client = read_bytes(&body, length)
        if body.error:
            connection.close_reason = f"a request header (API key {key}, version {version}) is malformed"
            self.produce_handler.execute(connection)
            connection.responses.api = METER_KEY_UNKNOWN
            still_client(&connection.metering.client)
            connection.count_frame(METER_KEY_UNKNOWN, 0, size + 4)
            return FRAME_CLOSE
        connection.counted_client(client, length)
        connection.responses.api = api_index(key)
        self.note_request(connection, key, version, correlation_id, client, length)
        if key == PRODUCE:
            charges = self.charges
            if charges is not None:
                charges.note(connection, key, version, False, client, length)
                if connection.quotas.limited and connection.quotas.fresh and charges.holds(connection, True):
                    return FRAME_DEFER
            if version >= PRODUCE_FLEXIBLE:
                skip_tagged_fields(&body)
            result = self.produce_handler.offer(connection, version, correlation_id, &body, data, size)
            if result == FRAME_CLOSE:
                connection.count_frame(PRODUCE, version, size + 4)
            self.produce_requests += result != FRAME_DEFER        # a deferred frame is offered again, and counted then
            return result
        self.produce_handler.execute(connection)
        if size > self.max_bytes:
            connection.close_reason = f"a request of API key {key} has {size} bytes, allowed are at most {self.max_bytes} for " \
                                      f"requests other than Produce"
            connection.count_frame(connection.responses.api, version, size + 4)
            return FRAME_CLOSE
        route = <Route>self.routes.get(route_number(key, version))
        if connection.pending_tail is not None and not (route is not None and route.follows and connection.pending_tail.follows):
            self.fetch_handler.hurry(connection)
            if connection.pending_tail is not None:
                return FRAME_DEFER
        charges = self.charges
        if charges is not None:
            charges.note(connection, key, version, key == WRITE_TXN_MARKERS or (route is not None and route.of_brokers), client, length)
            if connection.quotas.limited and connection.quotas.fresh and charges.holds(connection, False):
                return FRAME_DEFER
        if key == FETCH:
            if version >= FETCH_FLEXIBLE:
                skip_tagged_fields(&body)
            self.fetch_requests += 1
            connection.count_frame(FETCH, version, size + 4)
            return self.fetch_handler.offer(connection, version, correlation_id, &body, data, size)
        self.other_requests += 1
        connection.count_frame(connection.responses.api, version, size + 4)
        if route is not None and route.of_brokers and 0 <= self.brokers_listener != connection.listener_index:
            connection.close_reason = f"a {route.name} request on a listener for clients: brokers send it to the listener that " \
                                      f"inter.broker.listener.name names (odradek.inter.broker.listener.only)"
            return FRAME_CLOSE
        if route is not None:
            return self.forward_table.forward(connection, route, client, length, data, size)
        return self.run_other(connection, key, version, correlation_id, None if length < 0 else (<const char*>client)[:length],
                              (<const char*>data)[:size])

    cdef int offer_to_gate(self, Connection connection, uint8_t* data, int64_t size) except -1:
        """Pass a frame to the gate of a connection whose client has not logged in, behind all its earlier requests.

        The gate's `frame(connection, frame)` returns what `dispatch` returns. If its `raw` is true, the frame has no request header.
        """
        cdef Cursor head
        cdef int16_t key = -1, version = 0
        cdef int32_t correlation_id = 0
        cdef int64_t length = -1
        cdef const uint8_t* client = data
        cdef bint raw = connection.gate.raw
        self.produce_handler.execute(connection)
        if connection.pending_tail is not None:
            self.fetch_handler.hurry(connection)
            if connection.pending_tail is not None:
                return FRAME_DEFER
        if not raw:
            cursor_init(&head, data, size)
            key = read_int16(&head)
            version = read_int16(&head)
            correlation_id = read_int32(&head)
            length = read_string_length(&head, False)
            if length > 0:
                client = read_bytes(&head, length)
            if head.error:
                key, version, correlation_id, length, client = -1, 0, 0, -1, data
            connection.keep_client_id(client, length)
        connection.responses.api = METER_KEY_UNKNOWN if key < 0 else api_index(key)
        self.note_request(connection, key, version, correlation_id, client, length)
        still_client(&connection.metering.client)
        connection.count_frame(connection.responses.api, version if version >= 0 else 0, size + 4)
        self.other_requests += 1
        return self.respond(connection, key, version, connection.gate.frame(connection, (<const char*>data)[:size]))

    cdef int run_other(self, Connection connection, int16_t key, int16_t version, int32_t correlation_id, client_id, bytes frame) except -1:
        return self.respond(connection, key, version, self.dispatch(connection, key, version, correlation_id, client_id, frame))

    cdef int respond(self, Connection connection, int16_t key, int16_t version, response) except -1:
        """Write the response to the request that is being executed, if there is one already. Returns the FrameResult."""
        cdef uint8_t[4] head
        cdef int64_t wait_ms
        if response is None:
            return FRAME_PENDING
        if response is False:
            return FRAME_CLOSE
        if connection.quotas.limited and connection.quotas.request.key:
            wait_ms = charge_time(connection, &connection.quotas.request, spend(connection))
            if wait_ms:
                response = with_throttle_time(response, key, version, wait_ms)
        store32(head, <uint32_t>len(response))
        count_usage(connection.metering.client.number, TOPIC_NONE, api_index(key), USAGE_BYTES_OUT, len(response) + 4)
        connection.responses.out_bytes(head, 4)
        connection.responses.write(response)
        return FRAME_DONE

    cdef int flush(self, Connection connection) except -1:
        self.produce_handler.execute(connection)
        store_relaxed_64(&region().processes[region().self].request_sequence, 0)
        if region().self_wake:
            self.purgatory.serve_ready()
        return 0

    cdef int half_closed(self, Connection connection) except -1:
        """The client sends no more but may still read: answer its delayed fetch with the records that are available."""
        if self.forward_table is not None:
            self.forward_table.hang_up(<uint64_t>connection.connection_id)
        return self.fetch_handler.answer_parked(connection)

    cdef int64_t kept_bytes(self, Connection connection) except -1:
        return self.fetch_handler.kept_bytes(connection)

    cdef int64_t forget(self, Connection connection) except -1:
        return self.fetch_handler.forget(connection)

    cdef bint executes_late(self, const uint8_t* data, int64_t size) noexcept:
        return is_unawaited(data, size)

    cdef int closed(self, Connection connection) except -1:
        if region().self_wake:
            wake_own_loop()             # for waiters on what it appended: no `flush` follows, and they must not run during the close
        self.produce_handler.forget(connection)
        self.fetch_handler.closed(connection)
        return 0
