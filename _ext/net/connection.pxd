"""A connection, the places of its responses, and the output in which its loop gathers them.

All times are CLOCK_MONOTONIC milliseconds, unless the name ends in `_us`.
"""

from libc.stdint cimport int16_t, int64_t, uint32_t, uint64_t, uint8_t

from odradek._ext.net.buffers cimport Buffer, BufferPool
from odradek._ext.net.output cimport OutQueue
from odradek._ext.shm.client_quotas cimport QuotaUse
from odradek._ext.net.tls cimport Tls
from odradek._ext.shm.meter_layout cimport METER_KEYS
from odradek._ext.shm.metering cimport Client


cpdef enum FrameResult:
    FRAME_DONE = 0                # answered by out_*, or needs no answer
    FRAME_JOINED = 1              # will be executed and answered in `flush`
    FRAME_PENDING = 2             # a Pending was attached
    FRAME_DEFER = 3               # not executed: offer the frame again when no Pending is left, or after `resume`
    FRAME_CLOSE = 4               # send the responses of earlier requests, then close; connection.close_reason says why

cpdef enum CloseReason:
    CLOSE_EOF = 0                 # the client closed the connection
    CLOSE_RESET = 1               # the client or the network reset it
    CLOSE_IDLE = 2
    CLOSE_BAD_FRAME = 3
    CLOSE_OTHER_PROTOCOL = 4      # HTTP or TLS on this port
    CLOSE_HANDLER = 5             # FRAME_CLOSE
    CLOSE_FILE = 6                # a file slice could not be sent whole
    CLOSE_ERROR = 7               # an exception, logged with its traceback
    CLOSE_ASKED = 8               # Connection.close, a limit of connections, or the stop of the broker
    CLOSE_AUTHENTICATION = 9      # the TLS handshake or the login failed, or took too long

cdef enum Hold:                   # reasons (bits) why no frame of a connection is offered to the handler
    HOLD_DEFER = 1                # a frame was deferred (FRAME_DEFER)
    HOLD_BACKPRESSURE = 2         # too many responses are queued
    HOLD_THROTTLE = 4             # a quota was exceeded
    HOLD_STOPPING = 8             # the broker stops
    HOLD_CLOSING = 16             # closes once the queued responses are sent
    HOLD_HANDSHAKE = 32           # a thread computes the TLS handshake


cdef enum:
    OUT_ROOM = 128 * 1024         # initial size, in bytes, of the buffer in which responses are gathered
    CLIENT_ID_KEPT = 240          # bytes of a client id that are kept for log lines


cdef class Pending:
    """The place, in a connection's order of responses, of one response that is made later.

    `Connection.attach` links it; `ResponseSender` sends its answer and unlinks it; `OpenConnections` cancels it. DelayedProduce is a
    subclass (delayed_produce.pxd); a DelayedFetch has a Pending as a member.
    """
    cdef readonly Connection connection
    cdef readonly bint done
    cdef readonly bint cancelled               # the connection is closed: answers are dropped
    cdef public object context                 # for the handler's use
    cdef bint follows                          # a forwarded request that need not wait for earlier requests of its kind (Route)
    cdef bint unwanted                         # the response is not sent: an earlier late request was skipped, so the order is broken
    cdef Pending next
    cdef OutQueue answer
    cdef OutQueue after                        # immediate responses that were written after this place was reserved
    cdef int64_t saved_base
    # metering: API and client of the request; when it was received, began to be executed, began to wait, and was answered (us)
    cdef int api
    cdef Client client
    cdef int64_t received_us
    cdef int64_t began_us
    cdef int64_t attached_us
    cdef int64_t answered_us
    # the quota for request time; its key 0: none applies, or a handler charges the request itself (charging.pxd)
    cdef QuotaUse time_quota
    cdef int64_t least_wait_ms                 # throttle time that the response already contains
    cdef int64_t spent_us                      # time of this process that was spent on the request so far
    cdef int16_t api_key
    cdef int16_t api_version
    cdef int64_t charge_time(self) except -1
    cdef int complete_framed(self, const uint8_t* data, int64_t length) except -1     # answer with `data`, after its length field
    # Between `begin` and `finish` `ResponseOutput.out_*` write this answer, also during the turn of another connection. One Pending
    # at a time.
    cdef int begin(self) except -1
    cdef int finish(self) except -1
    cdef int abandon(self) except -1           # drop the bytes written since `begin`; the answer is still to be made
    cdef int answered(self) except -1
    cdef void count_answer(self) noexcept


cdef struct ConnectionInput:
    # Received bytes that are not executed yet. Bytes, unless the name ends in `_us`. `FrameReader` and `RequestReceiver` write it;
    # `OpenConnections` releases the buffers of a closed connection.
    Buffer part                                # the received part of a frame, from its length field; complete at `part_bytes`
    int64_t part_bytes
    int64_t part_since_ms                      # when the connection began to keep a part of this frame
    Buffer held                                # received bytes that are not offered while a hold lasts
    uint8_t[4] size_bytes                      # 1 to 3 received bytes of a length field
    int size_have                              # how many of them
    bint large                                 # the last frame was large: little is received beside the part of the next one
    int64_t received_us                        # when the bytes being processed were read
    int64_t unused_bytes                       # received bytes of frames that are not executed yet, for metrics


cdef struct FrameOffers:
    # How frames are offered to the handler. `FrameReader` writes it; others set and clear holds.
    int hold                                   # bits of Hold; 0: frames are offered
    bint greeted                               # the first frame was accepted by the handler
    int64_t most_bytes                         # the maximum size of a frame; less before a login. `limit_frames` sets it
    int64_t configured_bytes                   # socket.request.max.bytes: the maximum after a login
    bint offered                               # frames were accepted since the last `flush` of the handler
    bint joined                                # one of them was FRAME_JOINED
    bint resumed                               # offer the deferred frame again
    bint late                                  # half-closed, and the unread requests waited too long to be executed (late_requests.pxd)
    int skipped                                # number of requests that were not executed because they were late


cdef struct ConnectionOutput:
    # Unsent responses. `ResponseOutput` and `Pending` add to it, `ResponseSender` sends from it; `OpenConnections` drops it at the close.
    OutQueue queue                             # responses before those of the Pendings
    int64_t waiting_bytes                      # bytes of spans in the Pendings' queues
    bint blocked                               # the socket is full, EPOLLOUT is awaited
    bint cold                                  # the cold reader reads a file's pages for it
    int64_t sealed_bytes                       # encrypted bytes that wait for the socket (Tls.sealed)
    int64_t sent_bytes                         # bytes of responses that the socket took since the connection began


cdef struct ConnectionKept:
    # The memory kept for the connection and the progress of its client, at the last check. `KeptMemory` writes it.
    int64_t bytes                              # kept memory; of a connection that is active, only what its client delays
    bint idle                                  # the connection has neither sent nor received a byte for a second
    int64_t frame_ms                           # `part_since_ms` of the incomplete frame whose progress is measured
    int64_t mark_ms                            # when the measurement of its progress began
    int64_t mark_bytes                         # bytes of it that were received at that time
    int64_t arriving                           # bytes of it per second, in the last complete measurement; -1: none
    int64_t unread_ms                          # since when the responses have been queued that are measured; 0: none are queued
    int64_t unread_bytes                       # how many bytes of responses were queued at that time
    int64_t unread_mark                        # `sent_bytes` at that time


cdef struct LoopState:
    # What the loop knows of the socket, and has to do at the end of the turn.
    uint32_t interest                          # epoll events that are registered; `SocketEvents` writes it
    int closing                                # 1 + CloseReason: closes as soon as all responses are sent; 0: stays open
    bint eof                                   # nothing more can be received; `RequestReceiver.end_of_stream` sets it
    bint peer_finished                         # half-closed by the client; the socket may hold unread bytes. `DataLoop` sets it, too
    bint dirty                                 # in the loop's `dirty`; `ResponseOutput.mark_dirty` sets it


cdef struct ConnectionMetering:
    # What is counted for the connection. `Connection` writes it, in `counted_client`, `count_time` and `runs`.
    Client client                              # metering entry of the last request's client id
    int64_t counted_ms                         # the connection's time is counted up to here
    int software                               # index in the page's table of client software, -1: none


cdef struct ConnectionQuotas:
    # The quotas of the last request's client (charging.pxd). `Charges` writes it, and `spend` writes `mark_us`.
    bint limited                               # a quota applies to the request that is being executed
    uint64_t version                           # of the limits for which the uses were looked up; 0: never
    uint64_t client                            # keyed hash of the client id for which they were looked up
    Client counted                             # its metering entry
    bint fresh                                 # they were just looked up, for a connection that is younger than the limits
    int64_t mark_us                            # until then the time of this process is charged
    int16_t api_key
    int16_t api_version
    QuotaUse produce
    QuotaUse fetch
    QuotaUse request                           # key 0: also if the request is exempt
    QuotaUse request_of_client                 # of the client, whether or not the request is exempt


cdef class Connection:
    # identity: set by DataLoop.begin
    cdef readonly object data_loop             # the DataLoop, which lives as long as its connections; argument of the hooks
    cdef readonly ResponseOutput responses     # that of the loop: handlers write to it
    cdef BufferPool pool                       # of receive buffers
    cdef readonly int fd                       # -1: closed, set by OpenConnections.close_now
    cdef readonly int64_t connection_id
    cdef readonly int listener_index
    cdef readonly str peer                     # the client's address and port
    cdef readonly uint32_t owner               # of the producers that this connection creates: hash of the client's address (owners.pxd)
    # the client, as its requests describe it: set by the handler and by `counted_client`
    cdef public object principal               # "User:alice"; None: "User:ANONYMOUS"
    cdef public bint by_token                  # the client logged in with a delegation token; `principal` is set again when this changes
    cdef public object gate                    # receives every frame until the client has logged in; None: frames are executed
    cdef public object access                  # the handler's: what the principal may do (api/access.pxd); None: not looked up
    cdef object access_principal               # the principal for which `access` was looked up
    cdef public object client_software_name
    cdef public object client_software_version
    cdef readonly bytes client_id              # of the last request, None without one; its first CLIENT_ID_KEPT bytes
    cdef object cached_context                 # CachedContext: the client as it was last described to the coordinator; None: never
    cdef readonly Tls tls                      # None: the listener is not encrypted
    cdef object counted_principal              # the principal for which `metering.client` was looked up
    cdef object quota_principal                # the principal for which `quotas` was looked up
    # state of the handler
    cdef public object session                 # the handler's state of this connection
    cdef public object close_reason            # set before FRAME_CLOSE
    # places of responses that are made later, in order: `attach` adds them, `ResponseSender` removes those that are completed
    cdef Pending pending_head
    cdef Pending pending_tail
    cdef readonly int pending_count
    # times, for limits
    cdef readonly int64_t last_activity_ms     # when bytes were last received or sent from the queue
    cdef readonly int64_t throttled_until_ms
    cdef int64_t opened_ms                     # when DataLoop received it
    cdef ConnectionKept kept                   # see kept_memory.pxd
    cdef ConnectionInput input
    cdef FrameOffers frames
    cdef ConnectionOutput output
    cdef LoopState state
    cdef ConnectionMetering metering
    cdef ConnectionQuotas quotas
    cdef int throttle_for(self, int64_t wait_ms) except -1
    cdef int counted_client(self, const uint8_t* client_id, int64_t length) except -1
    cdef int keep_client_id(self, const uint8_t* client_id, int64_t length) except -1
    cdef int count_frame(self, int api, int version, int64_t size) except -1
    cdef int count_time(self, int64_t now_ms) except -1
    cpdef Pending reserve(self)
    cdef int attach(self, Pending pending) except -1
    # Reads no more, and closes the connection at the end of the turn in which all its responses are sent.
    cdef int begin_close(self, int reason, object text) except -1
    # Closes the connection and drops its unsent responses. Does nothing if it is closed already.
    cdef int close_now(self, int reason, object text) except -1
    # Sends the answers of completed Pendings, of all connections of the loop. Every callback that completes Pendings calls it at its
    # end. Within a turn, thus in a FrameHandler's methods, it does nothing: the end of the turn sends them.
    cdef int flush_dirty(self) except -1
    # Called while the frame that fills the buffer `input.part` is executed: moves the buffer to `to`, so that the frame outlives its
    # execution without a copy. The caller must give the buffer back to `pool`. `data` is in the frame; `size` is the number of bytes that
    # the caller needs. Returns False, and moves nothing, if `data` is not in `part`, or if `size` is less than a quarter of the buffer.
    cdef bint move_part(self, const uint8_t* data, int64_t size, Buffer* to) noexcept


cdef class ResponseOutput:
    """The responses of the present turn, and what is noted for its end: the buffer in which responses are gathered, the clocks, the
    counts, the dirty and the throttled connections. A loop has one; its parts and its connections share it.
    """
    # The hooks: the only calls from a part of the loop to a later one (data_loop.pxd). `Connection.close_now` and
    # `Connection.flush_dirty` make them, for ResponseSender and for handlers. DataLoop sets them; `loop` is the `data_loop` of the
    # connection.
    cdef int (*close_hook)(object loop, Connection c, int reason, object text) except -1
    cdef int (*flush_hook)(object loop) except -1
    cdef readonly int64_t now_ms               # when this turn began
    cdef public object cold_reader             # called like page_cache.ColdReader; None: the loop itself waits for cold pages
    cdef uint8_t* out                          # gathered responses of `current` or `target`
    cdef int64_t out_room
    cdef int64_t out_length
    cdef int64_t out_base                      # bytes before it are sent before the first Pending
    cdef Connection current                    # the connection whose frames are being executed; None: none
    cdef Pending target                        # the Pending between `begin` and `finish`; None: none
    cdef list dirty                            # connections whose turn must be ended (`Turns.end_turn`)
    cdef dict throttled                        # by id: connections with HOLD_THROTTLE
    cdef list throttle_ends                    # heap of (end of a throttle time, connection id); may contain obsolete entries
    cdef public object on_throttle             # called with the end of a throttle time in ms; None: the loop's user calls release_throttled
    cdef uint8_t[2048] slice                   # the small file slice that was last read for a Pending, until the turn ends:
    cdef object slice_owner                    # most delayed fetches of one partition wait for the same records
    cdef int64_t slice_position
    cdef int64_t slice_length
    # metering
    cdef int api                               # of the frame being executed
    cdef int64_t turn_us                       # when the turn began
    cdef int64_t clock                         # the last reading, us
    cdef int64_t began_us                      # when the execution of the current read's requests began
    cdef int64_t executed_us                   # when it ended
    cdef uint32_t[METER_KEYS] turn_counts              # executed requests of the current read, by API
    cdef int[METER_KEYS] turn_apis                     # the APIs with a count in turn_counts
    cdef int turn_kinds                        # how many entries of turn_apis are used
    cdef void executed(self, int api) noexcept
    cdef void not_executed(self, int api) noexcept
    cdef void settle_times(self, Connection c) noexcept

    # --- for handlers: write responses of `current` (in frame and flush), or of the Pending between begin and finish ---
    cdef uint8_t* out_reserve(self, int64_t length) except NULL
    cdef void out_commit(self, int64_t length) noexcept
    cdef int out_bytes(self, const uint8_t* data, int64_t length) except -1
    # Writes a slice of the open file `fd`; `owner` is held until the slice is sent.
    cdef int out_file(self, object owner, int fd, int64_t position, int64_t length) except -1

    cdef OutQueue* out_queue(self) noexcept
    cdef int spill(self) except -1
    cdef int shrink(self) except -1
    cdef void mark_dirty(self, Connection c)
