"""Owners of producers: a number made from a client's address; see owners.pxd.

The number is a keyed hash, so that no client can choose another client whose share of the memory it uses up. Of an IPv6 address
only the 64-bit network counts, because one host usually has all addresses of it.
"""

from libc.stdint cimport uint32_t, uint8_t
from libc.string cimport memcmp, memset

from odradek._ext.shm.layout cimport region
from odradek._ext.shm.siphash cimport hash_bytes


cdef extern from "<arpa/inet.h>" nogil:
    int inet_pton(int family, const char* text, void* address)
    const char* inet_ntop(int family, const void* address, char* text, uint32_t size)

cdef extern from "<sys/socket.h>" nogil:
    int AF_INET, AF_INET6

cdef enum:
    NETWORK_BYTES = 8                  # of an IPv6 address
    TEXT_BYTES = 46                    # of the longest address as text, INET6_ADDRSTRLEN

cdef const uint8_t* MAPPED = b"\0\0\0\0\0\0\0\0\0\0\xff\xff"      # before the IPv4 address that an IPv6 address stands for


cdef str text_of(int family, const void* address):
    cdef char[TEXT_BYTES] text
    inet_ntop(family, address, text, TEXT_BYTES)
    return (<bytes>text).decode("ascii")


cpdef str network_of(str host):
    """An IPv4 address, or the 64-bit network of an IPv6 address, which may be in brackets, as text; another text as it is."""
    cdef bytes text
    cdef uint8_t[16] address
    host = host.strip("[]")
    text = host.partition("%")[0].encode("utf-8", "surrogateescape")
    if inet_pton(AF_INET, text, address) == 1:
        return text_of(AF_INET, address)
    if inet_pton(AF_INET6, text, address) != 1:
        return host
    if memcmp(address, MAPPED, 12) == 0:
        return text_of(AF_INET, &address[12])
    memset(&address[NETWORK_BYTES], 0, 16 - NETWORK_BYTES)
    return text_of(AF_INET6, address) + "/64"


cdef uint32_t owner_of(str peer) except? 0:
    cdef bytes network
    if region().header == NULL:
        return OWNER_NOBODY
    network = network_of(peer.rpartition(":")[0] or peer).encode("utf-8", "surrogateescape")
    return 1 + <uint32_t>(hash_bytes(region().header.hash_key, network, len(network)) % (PRODUCER_OWNERS - 1))


def number_of(str peer not None) -> int:
    """The owner of the producers that a connection from `peer` ("host:port") uses."""
    return owner_of(peer)
