"""A connection, the places of its responses, and what writes them. All times are CLOCK_MONOTONIC milliseconds."""

from libc.stdint cimport int64_t, uint32_t, uint64_t, uint8_t

from odradek._ext.net.buffers cimport Buffer
from odradek._ext.net.output cimport OutQueue
from odradek._ext.shm.metering cimport Client


cpdef enum FrameResult:
    FRAME_DONE = 0                # answered by out_*, or needs no answer
    FRAME_JOINED = 1              # will be executed and answered in `flush`
    FRAME_PENDING = 2             # a Pending was attached
    FRAME_DEFER = 3               # not executed: offer it again when no Pending is left, or after `resume`
    FRAME_CLOSE = 4               # send what is owed, then close; connection.close_reason says why

cpdef enum CloseReason:
    CLOSE_EOF = 0                 # the peer is done
    CLOSE_RESET = 1               # the peer or the network broke it
    CLOSE_IDLE = 2
    CLOSE_BAD_FRAME = 3
    CLOSE_OTHER_PROTOCOL = 4      # HTTP or TLS on this port
    CLOSE_HANDLER = 5             # FRAME_CLOSE
    CLOSE_FILE = 6                # a slice could not be sent whole
    CLOSE_ERROR = 7               # an exception, named in the log
    CLOSE_ASKED = 8               # DataLoop.close, or the stop
    CLOSE_REASONS = 9

cdef enum Hold:                   # why a connection offers no frame
    HOLD_DEFER = 1
    HOLD_BACKPRESSURE = 2
    HOLD_THROTTLE = 4
    HOLD_STOPPING = 8
    HOLD_CLOSING = 16


cdef enum:
    OUT_ROOM = 128 * 1024         # bytes of responses that are gathered before anything grows
    CLIENT_ID_KEPT = 240          # bytes of a client id that are kept for log lines


cdef class Pending:
    """The place of one response that comes later. May be subclassed to carry what waits for it."""
    cdef readonly Connection connection
    cdef readonly bint done
    cdef readonly bint cancelled               # the connection is gone: answers are dropped
    cdef public object context                 # the handler's
    cdef bint follows                          # a forwarded request of a kind that need not wait for its like before it
    cdef bint unwanted                         # its response is not sent: a request before it got none
    cdef Pending next
    cdef OutQueue answer
    cdef OutQueue after                        # immediate responses that were written behind it
    cdef int64_t saved_base
    # metering: whose response to what it is, and when that arrived, was begun, came to wait, and was answered (us)
    cdef int api
    cdef Client client
    cdef int64_t received_us
    cdef int64_t began_us
    cdef int64_t attached_us
    cdef int64_t answered_us
    cdef int complete_framed(self, const uint8_t* data, int64_t length) except -1     # with its length in front
    # Between `begin` and `finish` (one at a time) `data_loop.out_*` write this answer, also amid another's turn.
    cdef int begin(self) except -1
    cdef int finish(self) except -1
    cdef int abandon(self) except -1           # drop what was written since `begin`; it is still to be answered
    cdef int answered(self) except -1
    cdef void count_answer(self) noexcept


cdef class Connection:
    cdef readonly ResponseOutput data_loop     # the DataLoop
    cdef readonly int fd                       # -1: closed
    cdef readonly int64_t connection_id
    cdef readonly int listener_index
    cdef readonly str peer
    cdef readonly uint32_t owner               # of the producers that this connection brings, by the peer's address
    cdef public object principal
    cdef public object client_software_name
    cdef public object client_software_version
    cdef public object session                 # the handler's state of this connection
    cdef object told                           # to the coordinator: who its client is
    cdef public object close_reason            # set before FRAME_CLOSE
    cdef readonly int pending_count
    cdef readonly int64_t last_activity_ms
    cdef readonly int64_t throttled_until_ms
    cdef Pending pending_head
    cdef Pending pending_tail
    cdef int64_t waiting_bytes                 # spans in Pendings
    cdef OutQueue out
    cdef Buffer part                           # part of a frame, its length in front; `part_bytes` when complete
    cdef int64_t part_bytes
    cdef Buffer held                           # bytes not offered while a hold lasts
    cdef uint8_t[4] size_bytes                 # 1-3 bytes of a length
    cdef int size_have
    cdef uint32_t interest
    cdef int hold
    cdef int closing                           # 1 + CloseReason once it closes as soon as nothing is owed
    cdef bint greeted                          # offered its first frame
    cdef bint offered                          # frames since the last `flush` of the handler
    cdef bint joined
    cdef bint large                            # its last frame was large
    cdef bint blocked                          # the socket is full, EPOLLOUT is awaited
    cdef bint cold                             # a ColdReader is at work for it
    cdef bint eof
    cdef bint peer_finished                    # half-closed; there may be bytes to read yet
    cdef bint late                             # and what there is has waited too long to be executed (late_requests.pxd)
    cdef int skipped                           # requests that were not executed for that
    cdef int64_t kept_bytes                    # that are kept for it while it is idle, as the last look found it (kept_memory.pxd)
    cdef bint resumed
    cdef bint dirty
    # metering
    cdef readonly bytes client_id              # of the last request, None without one; its first CLIENT_ID_KEPT bytes
    cdef Client client                         # of the last request
    cdef object counted_principal              # under which `client` is that
    cdef int64_t received_us                   # when the bytes at hand were read
    cdef int64_t unused_bytes                  # read, and of no frame that was executed yet
    cdef int64_t counted_ms                    # its time up to here is counted
    cdef int software                          # place in the page's table, -1: none
    cdef int counted_client(self, const uint8_t* client_id, int64_t length) except -1
    cdef int keep_client_id(self, const uint8_t* client_id, int64_t length) except -1
    cdef int count_frame(self, int api, int version, int64_t size) except -1
    cdef int count_time(self, int64_t now_ms) except -1
    cpdef Pending reserve(self)
    cdef int attach(self, Pending pending) except -1


cdef class ResponseOutput:
    cdef readonly int64_t now_ms               # when this turn began
    cdef uint8_t* out                          # responses of the connection at hand
    cdef int64_t out_room
    cdef int64_t out_length
    cdef int64_t out_base                      # bytes before it leave before the first Pending
    cdef Connection current
    cdef Pending target
    cdef list dirty                            # connections whose turn is to be ended
    cdef list throttled
    cdef uint8_t[2048] slice                   # the small slice of a file that was read last for a Pending, until the turn's end:
    cdef object slice_owner                    # most who wait for the same partition wait for the same records
    cdef int64_t slice_position
    cdef int64_t slice_length
    # metering
    cdef int api                               # of the frame at hand
    cdef int64_t clock                         # as read last
    cdef int64_t began_us                      # when the executing of the read at hand began
    cdef int64_t executed_us
    cdef uint32_t[97] turn_counts              # requests of the read at hand that are executed, by API
    cdef int[97] turn_apis
    cdef int turn_kinds
    cdef void executed(self, int api) noexcept
    cdef void not_executed(self, int api) noexcept
    cdef void settle_times(self, Connection c) noexcept

    # --- for handlers: write responses of the connection at hand (in frame, flush), or of the Pending begun ---
    cdef uint8_t* out_reserve(self, int64_t length) except NULL
    cdef void out_commit(self, int64_t length) noexcept
    cdef int out_bytes(self, const uint8_t* data, int64_t length) except -1
    # A slice of the open file `fd`; `owner` is held until it is sent.
    cdef int out_file(self, object owner, int fd, int64_t position, int64_t length) except -1
    # Send what Pendings were completed with. Called at the end of every callback that completes any, except in a
    # FrameHandler's methods, where it does nothing: the turn's end does it.
    cpdef int flush_dirty(self) except -1
    cdef int begin_close(self, Connection c, int reason, object text) except -1
    cdef int close_now(self, Connection c, int reason, object text) except -1

    cdef OutQueue* out_queue(self) noexcept
    cdef int spill(self) except -1
    cdef void mark_dirty(self, Connection c)
