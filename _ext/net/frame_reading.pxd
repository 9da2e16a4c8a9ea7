"""Third layer of the data loop: receives the frames of connections. `FrameHandler`: executes them.

A FrameHandler may rely on this: frames of a connection are offered in the order of arrival, one at a time, in the
loop's thread. The responses that it writes with `data_loop.out_*`, and the answers of its Pendings, are sent in the
order in which they were written and reserved.
"""

from libc.stdint cimport int64_t, uint8_t

from odradek._ext.net.buffers cimport Buffer, BufferPool
from odradek._ext.net.connection cimport Connection
from odradek._ext.net.late_requests cimport Standstill
from odradek._ext.net.sending cimport ResponseSender


cdef enum:
    RECORDS_BYTES = 256 * 1024         # encrypted bytes received at once
    PEEK_BYTES = 4096                  # received after a large frame: likely the head of another large frame, read into its own buffer


cdef class FrameHandler:
    """Executes frames. A DataLoop has one. Subclasses must supply `frame`, and may override the other methods.

    FrameReader calls `frame`, `flush`, `half_closed` and `executes_late`; DataLoop `half_closed`; OpenConnections `closed`; KeptMemory
    `kept_bytes` and `forget`. Subclasses are RequestHandler in a worker, and PythonFrameHandler for tests and tools.
    """
    # Executes one complete frame, without its length field. `data` may be written to and stays valid until `flush` returns.
    # Returns a FrameResult. A handler that returned FRAME_JOINED executes the joined frames before it writes any other response.
    cdef int frame(self, Connection connection, uint8_t* data, int64_t size) except -1
    # Called after the last complete frame of a read, before the memory of any of its frames is used again.
    cdef int flush(self, Connection connection) except -1
    # The client sends no more but may still read: a good moment to answer its long polls.
    cdef int half_closed(self, Connection connection) except -1
    # The connection is closed. Called once; its Pendings are cancelled before.
    cdef int closed(self, Connection connection) except -1
    # Whether a frame is executed although it waited long and its client has ended the connection (late_requests.pxd).
    cdef bint executes_late(self, const uint8_t* data, int64_t size) noexcept
    # Returns the bytes that the handler keeps for a connection between its requests, or for a delayed request of it.
    cdef int64_t kept_bytes(self, Connection connection) except -1
    # Drops the part of these that the next request can rebuild. Returns the number of dropped bytes.
    cdef int64_t forget(self, Connection connection) except -1


cdef class FrameReader(ResponseSender):
    """Third layer of the data loop. It owns the receive buffers, the limits of requests and of queued responses, and the handler.

    DataLoop supplies these hooks: `end_turn`, called after the frames of a read were offered and at the end of the stream;
    `update_interest`, called at the end of the stream; and `continue_later`, called for a connection with unread records. OpenConnections
    supplies `authenticated`, called after a TLS handshake that is the whole authentication, and `fail`, called after an exception that no
    turn of the loop handles.
    DataLoop sets `unjudged`, and calls `readable`, `offer_held` and `release_holds`.
    """
    cdef readonly FrameHandler handler
    cdef readonly BufferPool pool
    cdef public int64_t max_request_bytes
    cdef public int max_pending
    cdef public int64_t max_queued_bytes
    cdef readonly int64_t bytes_in
    cdef readonly int64_t frames
    cdef readonly int64_t bad_frames
    cdef uint8_t* shared                       # receive buffer
    cdef int64_t shared_bytes
    cdef int64_t used_first                    # results of `offer`
    cdef int64_t used_second
    cdef int64_t turn_us                       # metering: when the turn began
    cdef Standstill standstill
    cdef Connection unjudged                   # its client has ended it: `judge_unread` when bytes of it are received; None: none
    # TLS
    # Computes the long steps of handshakes: called with (step, done, slow), the first two like those of JobThread.
    cdef public object handshake_thread
    cdef uint8_t* records                      # receive buffer for encrypted bytes; NULL until a listener uses TLS
    cdef const uint8_t* source                 # received bytes of the connection being read that are not fed to its TLS yet
    cdef const uint8_t* source_end
    cdef int stream_end                        # why nothing more can be received: STREAM_ENDED or an errno; 0: it can
    cdef int64_t records_left                  # encrypted bytes that may still be received in its turn
    cdef list unread                           # connections with received records that continue in the next turn
    cdef int readable(self, Connection c) except -1
    cdef int read_frames(self, Connection c) except -1
    # TLS: continues with the connection's unread records, then with what arrived.
    cdef int read_records(self, Connection c) except -1
    cdef int64_t receive_records(self, Connection c) except -1
    cdef int64_t decrypt(self, Connection c, uint8_t* first, int64_t first_n, uint8_t* second, int64_t second_n) except -1
    cdef int shake_hands(self, Connection c) except -1
    cdef int after_handshake(self, Connection c, int result) except -1
    cdef int delegate_handshake(self, Connection c) except -1
    cdef int continue_handshake(self, Connection c) except -1
    cdef int records_ended(self, Connection c) except -1
    cdef int keep_records(self, Connection c) except -1
    cdef int end_of_stream(self, Connection c) except -1
    cdef int offer(self, Connection c, uint8_t* first, int64_t first_n, uint8_t* second, int64_t second_n) except -1
    cdef int64_t offer_frames(self, Connection c, uint8_t* data, int64_t n) except -1
    cdef int after_part(self, Connection c, int64_t extra) except -1
    # Called while the frame that fills the buffer `part` is offered: moves the buffer to `to`, so that the frame outlives the offer
    # without a copy. The caller must give the buffer back to `pool`. `data` is in the frame; `size` is the number of bytes that the
    # caller needs. Returns False, and moves nothing, if `data` is not in `part`, or if `size` is less than a quarter of the buffer.
    cdef bint move_part(self, Connection c, const uint8_t* data, int64_t size, Buffer* to) noexcept
    cdef int offer_held(self, Connection c) except -1
    cdef void judge_unread(self, Connection c) noexcept
    cdef void judge_held(self, Connection c) noexcept
    cdef int keep(self, Connection c, uint8_t* data, int64_t n) except -1
    cdef bint refuse(self, Connection c, const uint8_t* data, int64_t size) except -1
    cdef void release_holds(self, Connection c) noexcept
    cdef bint queue_full(self, Connection c) noexcept
    cdef int end_turn(self, Connection c) except -1
    cdef int update_interest(self, Connection c, bint force) except -1
    cdef int continue_later(self, Connection c) except -1
    cdef int authenticated(self, Connection c) except -1
    cdef int fail(self, Connection c) except -1
