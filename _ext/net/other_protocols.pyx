"""What a client speaks that does not speak Kafka's protocol: recognised by the first bytes of its connection, for the log."""

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcmp


cdef object other_protocol(const uint8_t* data):
    """Return a message if the first four bytes of a connection belong to another protocol; None if they may be Kafka's."""
    if data[0] == 0x16 and data[1] == 0x03:
        return "the client speaks TLS, but this listener expects plaintext"
    for method in (b"GET ", b"POST", b"HEAD", b"PUT ", b"OPTI", b"CONN", b"DELE", b"PATC", b"PRI "):
        if memcmp(data, <char*><bytes>method, 4) == 0:
            return "the client speaks HTTP, but this is a Kafka listener"
    return proxy_header(data, 4)


cdef object proxy_header(const uint8_t* data, int64_t n):
    """Return a message if the first bytes of a connection begin a header of the PROXY protocol, version 1 or 2. One byte may begin
    others too."""
    for beginning in (b"PROX", b"\r\n\r\n"):
        if n > 1 and memcmp(data, <char*><bytes>beginning, <size_t>min(n, <int64_t>4)) == 0:
            return (
                "a load balancer sends a header of the PROXY protocol, which the broker does not read: "
                "turn it off there (haproxy: remove send-proxy)"
            )
    return None


cdef object not_tls(const uint8_t* data, int64_t n):
    """Return why the first bytes of a connection are not TLS."""
    header = proxy_header(data, n)
    if header is not None:
        return header
    if n >= 4 and other_protocol(data) is not None:
        return "the client speaks HTTP without TLS, but this is a TLS listener of Kafka's protocol"
    return "the client speaks plaintext, but this listener expects TLS (security.protocol=SSL or SASL_SSL in the client's configuration)"
