"""TLS of one connection, by Python's `ssl.SSLObject`. See `tls.pxd` for the interface.

Handshakes use Python's two memory buffers. Then, if `openssl.available`, OpenSSL itself reads received records from where they are and
writes into the gathered ones (`native`); else Python's buffers stay in use.

Runs in a worker's event loop, except for the long steps of handshakes: while `busy` is set, a thread of the worker computes one, and the
loop does not touch the object.

The memory of OpenSSL's buffers does not shrink, so a connection feeds one record at a time and encrypts one record at a time: an idle
connection keeps at most about 40 KiB of them, whatever it transferred before.
"""

from time import time

from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.buffer cimport PyBUF_READ, PyBUF_WRITE
from libc.stdint cimport int64_t, uint8_t

from odradek._ext.net.openssl cimport (
    END_OF_RECORDS,
    Sealed,
    UNFINISHED_MESSAGE,
    WANTS_RECORDS,
    attach,
    available,
    detach,
    failure,
    limit_sessions,
    name_authorities,
    plain_left,
    read_plain,
    set_ticket_keys,
    write_end,
    write_plain,
)
from odradek._ext.net.output cimport drop_queue
from odradek._ext.shm.metering cimport clock_us


cdef enum:
    # content types of records
    CHANGE_CIPHER_SPEC = 20        # precedes the last message of a handshake, in one packet with it
    APPLICATION_DATA = 23          # the type that every encrypted record of TLS 1.3 shows

    SESSIONS_MOST = 1024           # sessions of TLS 1.2 that a listener keeps for resumptions by id; OpenSSL would keep 20,480 (24 MB)


cdef str UNFINISHED = "the client sent a part of a TLS message, so that no response can be sent"
cdef object ssl = None             # loaded with the first TlsListener: a broker without TLS does without its memory


def plain_reason(error) -> str:
    """The reason of an `ssl.SSLError` as text for a log line, without the place in OpenSSL's source."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate was not accepted: {error.verify_message}"
    reason = getattr(error, "reason", None)
    return str(error) if reason is None else text_of_reason(reason)


cdef object text_of_reason(str reason):
    """:param reason: as Python writes it, or as OpenSSL does."""
    key = reason.upper().replace(" ", "_").replace("SSL/TLS_ALERT_", "SSLV3_ALERT_")    # OpenSSL 3.2 and later, and before
    return _REASONS.get(key, reason.lower().replace("_", " "))


_REASONS = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client sent no certificate, which ssl.client.auth=required demands",
    "UNSUPPORTED_PROTOCOL": "the client offers no TLS version that ssl.enabled.protocols contains",
    "NO_SHARED_CIPHER": "the client offers no cipher suite that the listener accepts",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the client does not accept the broker's certificate (alert certificate_unknown)",
    "TLSV1_ALERT_UNKNOWN_CA": "the client does not trust the broker's certificate (alert unknown_ca)",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the client does not accept the broker's certificate (alert bad_certificate)",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the client does not accept the broker's certificate (alert certificate_expired)",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the peer requires a certificate",
}


cdef bint native_allowed = True


def allow_native(bint allowed) -> None:
    """Whether the listeners made from now on may use OpenSSL in the place of Python's buffers. Tests compare both."""
    global native_allowed
    native_allowed = allowed


cdef class TlsListener:
    """What all TLS connections of a listener share.

    :param context: an `ssl.SSLContext` for servers. :param authenticates: False if SASL follows the handshake.
    :param principal_of: (DER) -> the principal's name with its type, such as "User:CN=a"; raises ValueError to refuse the certificate.
        None: no client certificate is asked for.
    :param slow_key: whether the key is so large that the handshakes of other listeners must not wait for those with it.
    :param ticket_keys: 80 bytes, with which all workers encrypt session tickets. Python's layer has random ones in each worker instead.
    """

    def __init__(self, context, *, bint authenticates=True, principal_of=None, bint slow_key=False, bytes ticket_keys=None):
        global ssl
        import ssl as library
        ssl = library
        self.context = context
        self.authenticates = authenticates
        self.principal_of = principal_of
        self.asks_certificate = principal_of is not None
        self.slow_key = slow_key
        self.native = native_allowed and available(context)
        if self.native:
            limit_sessions(context, 0 if self.asks_certificate else SESSIONS_MOST)
            if ticket_keys is not None:
                set_ticket_keys(context, ticket_keys)
            if self.asks_certificate:
                name_authorities(context)


cdef class Tls:
    def __init__(self, TlsListener listener not None):
        self.listener = listener

    def __dealloc__(self):
        drop_queue(&self.sealed)

    @property
    def is_native(self) -> bool:
        """Whether OpenSSL itself reads and writes the records."""
        return self.native != NULL

    cdef int open(self, Sealed* sealed) except -1:
        self.records.sealed = sealed
        self.incoming = ssl.MemoryBIO()
        self.outgoing = ssl.MemoryBIO()
        self.library = self.listener.context.wrap_bio(self.incoming, self.outgoing, server_side=True)
        self.feed_record = self.incoming.write
        self.take_sealed = self.outgoing.read
        self.decrypt = self.library.read
        self.encrypt = self.library.write
        return 0

    cdef int64_t feed(self, const uint8_t* data, int64_t n) except -1:
        cdef int64_t taken = 0, more
        while self.head_bytes < 5 and taken < n:
            self.head[self.head_bytes] = data[taken]
            self.head_bytes += 1
            taken += 1
            if self.head_bytes == 5:
                self.record_left = (<int64_t>self.head[3]) << 8 | self.head[4]
        if self.head_bytes == 5:
            more = min(n - taken, self.record_left)
            taken += more
            self.record_left -= more
            if self.record_left == 0:
                self.ready = True
                self.head_bytes = 0
        if self.native == NULL:
            self.feed_record(PyMemoryView_FromMemory(<char*>data, taken, PyBUF_READ))
            return taken
        self.records.received = data
        self.records.received_left = taken
        if not self.ready:
            self.absorb()
        return taken

    cdef int absorb(self) except -1:
        """Let OpenSSL take over a part of a record, because its memory is used again."""
        cdef uint8_t nothing
        cdef int64_t result = read_plain(self.native, &nothing, 1)
        if result == WANTS_RECORDS and self.records.received_left == 0:
            return 0
        if result > 0 or result == WANTS_RECORDS:
            raise RuntimeError(f"TLS read {result} bytes of a part of a record, and left {self.records.received_left}")
        return self.stop(result)

    cdef TlsResult stop(self, int64_t result) except *:
        """The stream of records has ended, in order or by an error."""
        if result == END_OF_RECORDS:
            self.ended = True
            return TLS_END
        self.error = text_of_reason(failure())
        return TLS_FAILED

    cdef bint may_wait(self) noexcept:
        cdef bint first = not self.waited
        if self.head[0] != CHANGE_CIPHER_SPEC or not first:
            return False
        self.waited = True
        self.ready = False
        return True

    cdef bint step_is_short(self) noexcept:
        return self.head[0] == APPLICATION_DATA and not self.listener.asks_certificate

    cpdef TlsResult compute_handshake(self) except *:
        cdef int64_t began = clock_us()
        try:
            return self.handshake()
        finally:
            self.step_us = clock_us() - began

    cdef TlsResult handshake(self) except *:
        self.ready = False
        try:
            self.library.do_handshake()
        except ssl.SSLWantReadError:
            return TLS_WANTS
        except (ssl.SSLError, OSError) as error:
            self.error = plain_reason(error)
            return TLS_FAILED
        self.established = True
        if self.listener.native and self.incoming.pending == 0:
            self.native = attach(self.library, &self.records)
            self.incoming = self.feed_record = self.decrypt = self.encrypt = None
        return TLS_OK

    cdef TlsResult read(self, uint8_t* out, int64_t room, int64_t* got) except *:
        if self.native != NULL:
            return self.read_native(out, room, got)
        got[0] = 0
        try:
            got[0] = self.decrypt(room, PyMemoryView_FromMemory(<char*>out, room, PyBUF_WRITE))
        except ssl.SSLWantReadError:
            return self.count_control()
        except ssl.SSLZeroReturnError:
            self.ended = True
            return TLS_END
        except (ssl.SSLError, OSError) as error:
            self.error = plain_reason(error)
            return TLS_FAILED
        if got[0] == 0:
            self.ended = True
            return TLS_END
        self.controls = 0
        if got[0] < room or self.library.pending() == 0:
            self.ready = False
        return TLS_OK

    cdef TlsResult read_native(self, uint8_t* out, int64_t room, int64_t* got) except *:
        cdef int64_t n = read_plain(self.native, out, room)
        got[0] = max(n, <int64_t>0)
        if n == WANTS_RECORDS:
            return self.count_control()
        if n < 0:
            return self.stop(n)
        self.controls = 0
        if n < room or plain_left(self.native) == 0:
            self.ready = False
        return TLS_OK

    cdef TlsResult count_control(self) except *:
        """A record had no application data."""
        self.ready = False
        self.controls += 1
        if self.controls <= CONTROLS_MOST:
            return TLS_WANTS
        self.error = f"the client sent more than {CONTROLS_MOST} records without application data one after the other"
        return TLS_FAILED

    cdef int control_handled(self, bint waiting) except -1:
        self.unsent_controls = self.unsent_controls + 1 if waiting else 0
        if self.unsent_controls > CONTROLS_MOST and self.error is None:
            self.error = f"the client sent more than {CONTROLS_MOST} records without application data and did not read the answers"
        return 0

    cdef int write(self, const uint8_t* data, int64_t n) except -1:
        cdef int64_t written
        if self.native != NULL:
            written = write_plain(self.native, data, n)
            if written == UNFINISHED_MESSAGE:
                self.error = UNFINISHED
            elif written != n:
                self.error = text_of_reason(failure())
            return 0
        while n > 0:                   # a call writes one record; clients may ask for smaller ones (max_fragment_length)
            try:
                written = self.encrypt(PyMemoryView_FromMemory(<char*>data, n, PyBUF_READ))
            except ssl.SSLWantReadError:
                self.error = UNFINISHED
                return 0
            except (ssl.SSLError, OSError) as error:
                self.error = plain_reason(error)
                return 0
            data += written
            n -= written
        return 0

    cdef bytes take(self):
        cdef bytes records
        if self.take_sealed is None:
            return None
        records = self.take_sealed()
        if self.native != NULL:        # these were the last ones of the handshake
            self.outgoing = self.take_sealed = None
        return records

    cdef bint pending(self) noexcept:
        return self.ready or self.unread.data != NULL

    cdef bytes shutdown(self):
        cdef uint8_t[256] record
        cdef Sealed alone
        cdef bytes before
        if self.native != NULL:        # the gathered records may be those of another connection
            before = self.take() or b""
            alone.data, alone.length, alone.room = record, 0, sizeof(record)
            self.records.sealed = &alone
            write_end(self.native)
            self.records.sealed = NULL
            return before + record[:alone.length]
        try:
            self.library.unwrap()
        except ssl.SSLError:           # the peer's own close_notify has not arrived: nobody waits for it
            return self.take()
        return self.take()

    cdef object peer(self):
        return self.library.getpeercert(True)

    cdef bint expired(self) except -1:
        return ssl.cert_time_to_seconds(self.library.getpeercert()["notAfter"]) < time()

    cdef void drop(self) noexcept:
        drop_queue(&self.sealed)
        detach(&self.records)
        self.native = NULL
        self.library = self.incoming = self.outgoing = None
        self.feed_record = self.take_sealed = self.decrypt = self.encrypt = None
