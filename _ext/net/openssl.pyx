"""OpenSSL below an `ssl.SSLObject`. See `openssl.pxd` for the interface.

**Two private details of Python** are used. In `_ssl._SSLSocket`, the head of the object is followed by a weak reference and the `SSL*`; in
`_ssl._SSLContext`, by the `SSL_CTX*`. Both are the same in CPython 3.11 to 3.14 (Modules/_ssl.c). `available` refuses other versions and
builds without the GIL, and checks that the `SSL*` of a connection belongs to the `SSL_CTX*` of its context.

Where it is not usable, Python's buffers do the same, and certificate requests name no authorities.

**Memory.** The SSL owns the BIO and frees it. The BIO points to `Records`, which the connection owns; `detach` makes it point to nothing.
"""

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy


cdef extern from *:
    """
    #include <dlfcn.h>
    #if defined(Py_GIL_DISABLED) || defined(PYPY_VERSION) || PY_VERSION_HEX < 0x030b0000 || PY_VERSION_HEX >= 0x030f0000
    #define KNOWN_LAYOUT 0
    #else
    #define KNOWN_LAYOUT 1
    #endif
    """
    bint KNOWN_LAYOUT
    int RTLD_NOW
    void* dlopen(const char* path, int mode)
    void* dlsym(void* handle, const char* name)


cdef enum:
    # openssl/ssl.h
    SSL_ERROR_WANT_READ = 2
    SSL_ERROR_ZERO_RETURN = 6
    # openssl/bio.h
    BIO_TYPE_SOURCE_SINK = 0x0400
    BIO_FLAGS_READ = 1
    BIO_FLAGS_RETRY = 15               # READ, WRITE, IO_SPECIAL and SHOULD_RETRY
    BIO_FLAGS_SHOULD_RETRY = 8
    BIO_CTRL_FLUSH = 11
    SSL_CTRL_SET_SESS_CACHE_SIZE = 42
    SSL_CTRL_SET_SESS_CACHE_MODE = 44
    SSL_CTRL_SET_TLSEXT_TICKET_KEYS = 59
    SSL_SESS_CACHE_OFF = 0

    LARGEST_CALL = 1 << 30             # OpenSSL counts with int
    LARGEST_NAMES = 60_000             # bytes of a request's names; the message has room for 65,535


ctypedef int (*Transfer)(void*, char*, int) noexcept nogil
ctypedef long (*Control)(void*, int, long, void*) noexcept nogil

# The functions of OpenSSL 1.1.0 and later that are used, with `void*` for SSL*, SSL_CTX*, BIO* and BIO_METHOD*.
cdef struct Library:
    unsigned long (*OpenSSL_version_num)() noexcept nogil
    int (*SSL_read)(void*, void*, int) noexcept nogil
    int (*SSL_write)(void*, const void*, int) noexcept nogil
    int (*SSL_pending)(void*) noexcept nogil
    long (*SSL_CTX_ctrl)(void*, int, long, void*) noexcept nogil
    int (*SSL_CTX_add_client_CA)(void*, void*) noexcept nogil
    void* (*d2i_X509)(void**, const unsigned char**, long) noexcept nogil
    void (*X509_free)(void*) noexcept nogil
    void* (*X509_get_subject_name)(void*) noexcept nogil
    int (*i2d_X509_NAME)(void*, unsigned char**) noexcept nogil
    int (*SSL_shutdown)(void*) noexcept nogil
    int (*SSL_get_error)(void*, int) noexcept nogil
    void* (*SSL_get_SSL_CTX)(void*) noexcept nogil
    void (*SSL_set_bio)(void*, void*, void*) noexcept nogil
    void (*ERR_clear_error)() noexcept nogil
    unsigned long (*ERR_peek_last_error)() noexcept nogil
    const char* (*ERR_reason_error_string)(unsigned long) noexcept nogil
    int (*BIO_get_new_index)() noexcept nogil
    void* (*BIO_meth_new)(int, const char*) noexcept nogil
    int (*BIO_meth_set_read)(void*, Transfer) noexcept nogil
    int (*BIO_meth_set_write)(void*, Transfer) noexcept nogil
    int (*BIO_meth_set_ctrl)(void*, Control) noexcept nogil
    void* (*BIO_new)(void*) noexcept nogil
    void (*BIO_set_init)(void*, int) noexcept nogil
    void (*BIO_set_data)(void*, void*) noexcept nogil
    void* (*BIO_get_data)(void*) noexcept nogil
    void (*BIO_set_flags)(void*, int) noexcept nogil
    void (*BIO_clear_flags)(void*, int) noexcept nogil

cdef Library openssl
cdef void* method = NULL               # of our BIOs; NULL: not available
cdef bint looked_for = False


# --- our BIO: reads what was received, writes into the gathered records -------------------------------------------------------------


cdef int read_received(void* bio, char* out, int room) noexcept nogil:
    cdef Records* records = <Records*>openssl.BIO_get_data(bio)
    cdef int64_t n
    openssl.BIO_clear_flags(bio, BIO_FLAGS_RETRY)
    if records == NULL or records.received_left == 0 or room <= 0:
        openssl.BIO_set_flags(bio, BIO_FLAGS_READ | BIO_FLAGS_SHOULD_RETRY)
        return -1
    n = min(<int64_t>room, records.received_left)
    memcpy(out, records.received, n)
    records.received += n
    records.received_left -= n
    return <int>n


cdef int write_sealed(void* bio, char* data, int n) noexcept nogil:
    cdef Records* records = <Records*>openssl.BIO_get_data(bio)
    cdef Sealed* sealed
    openssl.BIO_clear_flags(bio, BIO_FLAGS_RETRY)
    if records == NULL or records.sealed == NULL or n < 0:
        return -1
    sealed = records.sealed
    if n > sealed.room - sealed.length:
        return -1
    memcpy(sealed.data + sealed.length, data, n)
    sealed.length += n
    return n


cdef long control(void* bio, int command, long number, void* pointer) noexcept nogil:
    return command == BIO_CTRL_FLUSH


# --- the library ---------------------------------------------------------------------------------------------------------------------


cdef bint find(void* library, const char* name, void** function) noexcept:
    function[0] = dlsym(library, name)
    return function[0] != NULL


cdef void* open_library() except? NULL:
    """The module `_ssl` with the libraries that it is linked to, or the program if `_ssl` is a part of it. NULL: not found."""
    import _ssl
    path = getattr(_ssl, "__file__", None)
    if path is None:
        return dlopen(NULL, RTLD_NOW)
    encoded = str(path).encode("utf-8", "surrogateescape")
    return dlopen(encoded, RTLD_NOW)       # it is loaded already, and never closed


cdef bint find_functions() except -1:
    cdef void* library = open_library()
    return (
        library != NULL
        and find(library, "OpenSSL_version_num", <void**>&openssl.OpenSSL_version_num)
        and find(library, "SSL_read", <void**>&openssl.SSL_read)
        and find(library, "SSL_write", <void**>&openssl.SSL_write)
        and find(library, "SSL_pending", <void**>&openssl.SSL_pending)
        and find(library, "SSL_CTX_ctrl", <void**>&openssl.SSL_CTX_ctrl)
        and find(library, "SSL_CTX_add_client_CA", <void**>&openssl.SSL_CTX_add_client_CA)
        and find(library, "d2i_X509", <void**>&openssl.d2i_X509)
        and find(library, "X509_free", <void**>&openssl.X509_free)
        and find(library, "X509_get_subject_name", <void**>&openssl.X509_get_subject_name)
        and find(library, "i2d_X509_NAME", <void**>&openssl.i2d_X509_NAME)
        and find(library, "SSL_shutdown", <void**>&openssl.SSL_shutdown)
        and find(library, "SSL_get_error", <void**>&openssl.SSL_get_error)
        and find(library, "SSL_get_SSL_CTX", <void**>&openssl.SSL_get_SSL_CTX)
        and find(library, "SSL_set_bio", <void**>&openssl.SSL_set_bio)
        and find(library, "ERR_clear_error", <void**>&openssl.ERR_clear_error)
        and find(library, "ERR_peek_last_error", <void**>&openssl.ERR_peek_last_error)
        and find(library, "ERR_reason_error_string", <void**>&openssl.ERR_reason_error_string)
        and find(library, "BIO_get_new_index", <void**>&openssl.BIO_get_new_index)
        and find(library, "BIO_meth_new", <void**>&openssl.BIO_meth_new)
        and find(library, "BIO_meth_set_read", <void**>&openssl.BIO_meth_set_read)
        and find(library, "BIO_meth_set_write", <void**>&openssl.BIO_meth_set_write)
        and find(library, "BIO_meth_set_ctrl", <void**>&openssl.BIO_meth_set_ctrl)
        and find(library, "BIO_new", <void**>&openssl.BIO_new)
        and find(library, "BIO_set_init", <void**>&openssl.BIO_set_init)
        and find(library, "BIO_set_data", <void**>&openssl.BIO_set_data)
        and find(library, "BIO_get_data", <void**>&openssl.BIO_get_data)
        and find(library, "BIO_set_flags", <void**>&openssl.BIO_set_flags)
        and find(library, "BIO_clear_flags", <void**>&openssl.BIO_clear_flags)
    )


cdef void* word_after_head(object thing, int number) noexcept:
    return (<void**>(<char*><PyObject*>thing + sizeof(PyObject)))[number]


cdef void* ssl_of(object library) except NULL:
    cdef object inner = library._sslobj
    if type(inner).__name__ != "_SSLSocket":
        raise RuntimeError(f"an SSLObject has a {type(inner).__name__}")
    return word_after_head(inner, 1)


cdef bint look_for(object context) except -1:
    """Find the functions, compare the layout with an own connection, and make the method of our BIOs."""
    global method
    cdef void* made
    cdef int kind
    import ssl                             # loaded with the first listener that uses TLS
    if not KNOWN_LAYOUT or not ssl.OPENSSL_VERSION.startswith("OpenSSL ") or not find_functions():
        return False
    if openssl.OpenSSL_version_num() != ssl.OPENSSL_VERSION_NUMBER:    # a second one, which something else has loaded
        return False
    probe = context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_side=True)
    if openssl.SSL_get_SSL_CTX(ssl_of(probe)) != word_after_head(context, 0):
        return False
    kind = openssl.BIO_get_new_index()
    made = openssl.BIO_meth_new(kind | BIO_TYPE_SOURCE_SINK, "odradek") if kind >= 0 else NULL
    if made == NULL:
        return False
    if not openssl.BIO_meth_set_read(made, read_received) or not openssl.BIO_meth_set_write(made, write_sealed) \
            or not openssl.BIO_meth_set_ctrl(made, control):
        return False
    method = made
    return True


cdef bint available(object context) except -1:
    global looked_for
    if not looked_for:
        look_for(context)
        looked_for = True
    return method != NULL


cdef int name_authorities(object context) except -1:
    cdef int64_t size = 0
    cdef list certificates = context.get_ca_certs(binary_form=True)
    for encoded in certificates:
        size += 2 + with_certificate(encoded, NULL)
    if size > LARGEST_NAMES:               # no names at all means: any authority
        return 0
    for encoded in certificates:
        with_certificate(encoded, word_after_head(context, 0))
    return 0


cdef void limit_sessions(object context, long most) noexcept:
    if most == 0:
        openssl.SSL_CTX_ctrl(word_after_head(context, 0), SSL_CTRL_SET_SESS_CACHE_MODE, SSL_SESS_CACHE_OFF, NULL)
    else:                                  # 0 would be no limit
        openssl.SSL_CTX_ctrl(word_after_head(context, 0), SSL_CTRL_SET_SESS_CACHE_SIZE, most, NULL)


cdef int set_ticket_keys(object context, bytes keys) except -1:
    if openssl.SSL_CTX_ctrl(word_after_head(context, 0), SSL_CTRL_SET_TLSEXT_TICKET_KEYS, len(keys), <char*>keys) != 1:
        raise ValueError(f"OpenSSL does not take {len(keys)} bytes as the keys of session tickets")
    return 0


cdef int64_t with_certificate(bytes encoded, void* context) except -1:
    """Add the subject of a certificate (DER) to the names of a SSL_CTX. Returns its length. :param context: NULL: add it to none."""
    cdef const unsigned char* data = encoded
    cdef void* certificate = openssl.d2i_X509(NULL, &data, len(encoded))
    cdef int64_t size = -1
    if certificate != NULL and (context == NULL or openssl.SSL_CTX_add_client_CA(context, certificate)):
        size = openssl.i2d_X509_NAME(openssl.X509_get_subject_name(certificate), NULL)
    openssl.X509_free(certificate)         # the context has copied the name
    if size < 0:
        raise ValueError(f"a certificate of the trust store cannot be named: {failure()}")
    return size


# --- a connection ----------------------------------------------------------------------------------------------------------------------


cdef void* attach(object library, Records* records) except NULL:
    cdef void* connection = ssl_of(library)
    cdef void* bio = openssl.BIO_new(method)
    if bio == NULL:
        raise MemoryError("no memory for a TLS connection")
    openssl.BIO_set_data(bio, records)
    openssl.BIO_set_init(bio, 1)
    records.bio = bio
    openssl.SSL_set_bio(connection, bio, bio)      # frees those that it had, and takes over ours
    return connection


cdef void detach(Records* records) noexcept:
    if records.bio != NULL:
        openssl.BIO_set_data(records.bio, NULL)
        records.bio = NULL


cdef int64_t read_plain(void* connection, uint8_t* out, int64_t room) noexcept:
    cdef int n, reason
    openssl.ERR_clear_error()
    n = openssl.SSL_read(connection, out, <int>min(room, <int64_t>LARGEST_CALL))
    if n > 0:
        return n
    reason = openssl.SSL_get_error(connection, n)
    if reason == SSL_ERROR_WANT_READ:
        return WANTS_RECORDS
    return END_OF_RECORDS if reason == SSL_ERROR_ZERO_RETURN else RECORDS_FAILED


cdef int64_t plain_left(void* connection) noexcept:
    return openssl.SSL_pending(connection)


cdef int64_t write_plain(void* connection, const uint8_t* data, int64_t n) noexcept:
    cdef int64_t done = 0
    cdef int written, reason
    openssl.ERR_clear_error()
    while done < n:                                # a call may write only one record
        written = openssl.SSL_write(connection, data + done, <int>min(n - done, <int64_t>LARGEST_CALL))
        if written <= 0:
            reason = openssl.SSL_get_error(connection, written)
            return UNFINISHED_MESSAGE if reason == SSL_ERROR_WANT_READ else RECORDS_FAILED
        done += written
    return n


cdef void write_end(void* connection) noexcept:
    openssl.SSL_shutdown(connection)               # its result says whether the peer's own has arrived: nobody waits for it
    openssl.ERR_clear_error()                      # else an SSLObject of this thread would report an error of this connection


cdef object failure():
    cdef unsigned long code = openssl.ERR_peek_last_error()
    cdef const char* reason = openssl.ERR_reason_error_string(code) if code else NULL
    openssl.ERR_clear_error()
    return "unknown error" if reason == NULL else reason.decode("ascii", "replace")
