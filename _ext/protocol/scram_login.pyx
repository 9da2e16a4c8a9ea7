"""The usual login with SCRAM: frames in, responses out. Runs in a worker, in the thread of its event loop.

The rules of a login are those of `odradek.security.sasl.exchange`. This module follows them for the frames that clients
usually send: ApiVersions, SaslHandshake 1, and two SaslAuthenticate with messages without options. For every other frame and
for every wrong proof, `frame` returns None. The caller then passes the same frames to an `Exchange`, which processes the rest of
the login.
"""

from binascii import a2b_base64, b2a_base64
from hmac import compare_digest, digest
from os import urandom

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int16_t, int32_t, int64_t, uint32_t, uint64_t, uint8_t
from libc.string cimport memchr, memcmp, memcpy

from odradek._ext.protocol.api_versions cimport API_VERSIONS
from odradek._ext.protocol.byte_order cimport store16, store32, store64
from odradek._ext.protocol.cursor cimport (
    Cursor,
    cursor_init,
    cursor_left,
    read_bytes,
    read_int8,
    read_int16,
    read_int32,
    read_uvarint,
)


cdef enum:
    SASL_HANDSHAKE = 17
    SASL_AUTHENTICATE = 36
    FLEXIBLE = 2                        # the version of SaslAuthenticate
    LONGEST_FRAME = 1024
    NONCE_BYTES = 24                    # as in odradek.security.sasl.scram

cpdef enum ScramResult:
    SCRAM_VERSIONS = 1                  # answer ApiVersions as usual, then call `versions_sent`
    SCRAM_QUESTION = 2                  # find the credential of `user`, then call `answered`


cdef bint is_printable(const uint8_t* at, int64_t size) noexcept:
    """Whether these bytes are printable characters of ASCII, without spaces and commas."""
    cdef int64_t i
    for i in range(size):
        if not 0x21 <= at[i] <= 0x7e or at[i] == c",":
            return False
    return size > 0


cdef bint read_head(Cursor* body, int key, int most_version, int16_t* version, int32_t* correlation_id) noexcept:
    """Read the header of a request with this key, at least version 1 (SaslHandshake) or 0, and a client id of ASCII."""
    cdef int64_t length, i
    cdef const uint8_t* client
    if read_int16(body) != key:
        return False
    version[0] = read_int16(body)
    correlation_id[0] = read_int32(body)
    length = read_int16(body)
    if body.error or not 0 <= version[0] <= most_version or length < -1:
        return False
    client = read_bytes(body, max(length, <int64_t>0))
    if body.error:
        return False
    for i in range(length):
        if client[i] >= 0x80:
            return False
    return not body.error


cdef class ScramListener:
    """The mechanisms and the SaslHandshake response of a listener, for all its logins.

    :param mechanisms: the names of the enabled mechanisms, in the order of the configuration.
    :param hashes: the hash function of each mechanism of SCRAM, by its name; :param hash_names: its name in `hashlib`.
    :param reserved_user: a name with which no client may log in.
    """
    cdef bytes handshake                # the response to SaslHandshake, after the correlation id
    cdef dict hashes, hash_names
    cdef str reserved_user

    def __init__(self, mechanisms, dict hashes not None, dict hash_names not None, str reserved_user not None):
        names = [name.encode() for name in mechanisms]
        listed = b"".join([len(name).to_bytes(2, "big") + name for name in names])
        self.handshake = b"\0\0" + len(names).to_bytes(4, "big") + listed
        self.hashes = {name: hashes[name] for name in mechanisms if name in hashes}
        self.hash_names = {name: hash_names[name] for name in self.hashes}
        self.reserved_user = reserved_user


cdef class ScramLogin:
    """The login of one connection; see the module.

    :ivar frames: those that were processed. :ivar mechanism: None before SaslHandshake. :ivar user: None before SCRAM_QUESTION.
    :ivar nonce: the server's part of the nonce; "": not chosen yet. :ivar done: the client has proven that it is `user`, and the
    last response says so.
    """
    cdef ScramListener listener
    cdef readonly list frames
    cdef readonly str mechanism, user, nonce
    cdef readonly bint done
    cdef object credential
    cdef bytes bare, client_nonce, whole_nonce, server_first
    cdef int32_t correlation_id
    cdef int16_t version
    cdef readonly bint versions_answered

    def __init__(self, ScramListener listener not None):
        self.listener = listener
        self.frames = []
        self.nonce = ""

    def frame(self, bytes frame not None, int64_t lifetime_ms=0) -> bytes | int | None:
        """Process a frame. Return its response, a ScramResult, or None: an `Exchange` must process the rest of the login.

        :param lifetime_ms: of a session that begins; 0: unlimited.
        """
        cdef object result = None
        if PyBytes_GET_SIZE(frame) <= LONGEST_FRAME and not self.done:
            if self.mechanism is None:
                result = self.request(frame)
            elif self.bare is None:
                result = self.first(frame)
            elif self.server_first is not None:
                result = self.last(frame, lifetime_ms)
        if result is not None:
            self.frames.append(frame)
        return result

    def versions_sent(self) -> None:
        """The ApiVersions request was answered without an error: SaslHandshake must follow."""
        self.versions_answered = True

    cdef object request(self, bytes frame):
        cdef Cursor body
        cdef int16_t version
        cdef int32_t correlation_id
        cdef int64_t length
        cdef const uint8_t* name
        cdef bytes response
        cdef uint8_t* out
        cursor_init(&body, PyBytes_AS_STRING(frame), PyBytes_GET_SIZE(frame))
        if cursor_left(&body) >= 8 and not self.frames and read_int16(&body) == API_VERSIONS:
            return SCRAM_VERSIONS
        if self.frames and not self.versions_answered:
            return None
        cursor_init(&body, PyBytes_AS_STRING(frame), PyBytes_GET_SIZE(frame))
        if not read_head(&body, SASL_HANDSHAKE, 1, &version, &correlation_id) or version != 1:
            return None
        length = read_int16(&body)
        name = read_bytes(&body, length)
        if body.error or cursor_left(&body):
            return None
        mechanism = (<const char*>name)[:length].decode("latin-1")
        if mechanism not in self.listener.hashes:
            return None
        self.mechanism = mechanism
        response = PyBytes_FromStringAndSize(NULL, 4 + PyBytes_GET_SIZE(self.listener.handshake))
        out = <uint8_t*>PyBytes_AS_STRING(response)
        store32(out, <uint32_t>correlation_id)
        memcpy(out + 4, PyBytes_AS_STRING(self.listener.handshake), PyBytes_GET_SIZE(self.listener.handshake))
        return response

    cdef const uint8_t* token(self, bytes frame, int64_t* size) noexcept:
        """The token of a SaslAuthenticate request; NULL: it is another request, or is malformed."""
        cdef Cursor body
        cdef int16_t version
        cdef int32_t correlation_id
        cdef const uint8_t* token
        cursor_init(&body, PyBytes_AS_STRING(frame), PyBytes_GET_SIZE(frame))
        if not read_head(&body, SASL_AUTHENTICATE, FLEXIBLE, &version, &correlation_id):
            return NULL
        if version == FLEXIBLE:
            if read_int8(&body) != 0:           # tagged fields of the header
                return NULL
            size[0] = <int64_t>read_uvarint(&body) - 1
        else:
            size[0] = read_int32(&body)
        token = read_bytes(&body, size[0])
        if version == FLEXIBLE and read_int8(&body) != 0:
            return NULL
        if body.error or cursor_left(&body):
            return NULL
        self.version = version
        self.correlation_id = correlation_id
        return token

    cdef bytes respond(self, bytes token, int64_t lifetime_ms):
        """A response to SaslAuthenticate without an error."""
        cdef int64_t size = PyBytes_GET_SIZE(token)
        cdef int64_t others = 12 if self.version == 0 else 20 if self.version == 1 else 18 if size < 0x7f else 19
        cdef bytes response = PyBytes_FromStringAndSize(NULL, others + size)
        cdef uint8_t* out = <uint8_t*>PyBytes_AS_STRING(response)
        store32(out, <uint32_t>self.correlation_id)
        out += 4
        if self.version == FLEXIBLE:
            out[0] = 0                          # tagged fields of the header
            store16(out + 1, 0)                 # error code
            out[3] = 1                          # error message: empty
            out += 4
            if size < 0x7f:
                out[0] = <uint8_t>(size + 1)
                out += 1
            else:
                out[0] = <uint8_t>(size + 1) | 0x80
                out[1] = <uint8_t>((size + 1) >> 7)
                out += 2
        else:
            store32(out, 0)                     # error code, and an empty error message
            store32(out + 4, <uint32_t>size)
            out += 8
        memcpy(out, PyBytes_AS_STRING(token), size)
        out += size
        if self.version:
            store64(out, <uint64_t>lifetime_ms)
            if self.version == FLEXIBLE:
                out[8] = 0                      # tagged fields
        return response

    cdef object first(self, bytes frame):
        """``n,,n=USER,r=NONCE``."""
        cdef int64_t size, nonce_size
        cdef const uint8_t* at = self.token(frame, &size)
        cdef const uint8_t* comma
        cdef const uint8_t* end
        if at == NULL or size < 5 or memcmp(at, b"n,,n=", 5):
            return None
        end = at + size
        comma = <const uint8_t*>memchr(at + 5, c",", size - 5)
        if comma == NULL or comma == at + 5 or memchr(at + 5, c"=", comma - at - 5) != NULL:
            return None
        nonce_size = end - comma - 3
        if nonce_size <= 0 or memcmp(comma, b",r=", 3) or not is_printable(comma + 3, nonce_size):
            return None
        try:
            user = (<const char*>at)[5:comma - at].decode("utf-8")
        except UnicodeDecodeError:
            return None
        if user == self.listener.reserved_user:
            return None
        self.user = user
        self.client_nonce = (<const char*>comma)[3:3 + nonce_size]
        self.bare = (<const char*>at)[3:size]
        return SCRAM_QUESTION

    def answered(self, credential, str nonce=None) -> bytes:
        """The response to the client's first message.

        :param credential: a ScramCredential of a user, or a made-up one. :param nonce: a test's; None: a random one.
        """
        self.credential = credential
        self.nonce = nonce or b2a_base64(urandom(NONCE_BYTES), newline=False).decode()
        self.whole_nonce = self.client_nonce + self.nonce.encode()
        self.server_first = b"r=%b,s=%b,i=%d" % (
            self.whole_nonce, b2a_base64(credential.salt, newline=False), credential.iterations)
        return self.respond(self.server_first, 0)

    cdef object last(self, bytes frame, int64_t lifetime_ms):
        """``c=biws,r=NONCE,p=PROOF``."""
        cdef int64_t size, i, proof_size
        cdef const uint8_t* at = self.token(frame, &size)
        cdef bytes without_proof, proof, signature, client_key, server_signature, message
        cdef uint8_t* key
        cdef const uint8_t* proven
        if at == NULL:
            return None
        without_proof = b"c=biws,r=" + self.whole_nonce
        i = PyBytes_GET_SIZE(without_proof)
        if size < i + 3 or memcmp(at, PyBytes_AS_STRING(without_proof), i) or memcmp(at + i, b",p=", 3):
            return None
        try:
            proof = a2b_base64((<const char*>at)[i + 3:size], strict_mode=True)
        except ValueError:
            return None
        message = self.bare + b"," + self.server_first + b"," + without_proof
        hash_name = self.listener.hash_names[self.mechanism]
        credential = self.credential
        stored_key = credential.stored_key
        signature = digest(stored_key, message, hash_name)
        proof_size = PyBytes_GET_SIZE(signature)
        if PyBytes_GET_SIZE(proof) != proof_size:
            return None
        client_key = PyBytes_FromStringAndSize(PyBytes_AS_STRING(signature), proof_size)
        key = <uint8_t*>PyBytes_AS_STRING(client_key)
        proven = <const uint8_t*>PyBytes_AS_STRING(proof)
        for i in range(proof_size):
            key[i] ^= proven[i]
        matches = compare_digest(self.listener.hashes[self.mechanism](client_key).digest(), stored_key)
        server_signature = digest(credential.server_key, message, hash_name)
        if not matches or not credential.known or credential.expires_ms:
            return None
        self.done = True
        return self.respond(b"v=" + b2a_base64(server_signature, newline=False), lifetime_ms)
