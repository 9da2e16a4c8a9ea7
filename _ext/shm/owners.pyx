"""Owners of producers: a number made from a client's address; see owners.pxd.

The number is a keyed hash, so that no client can choose another client whose share of the memory it uses up. Of an IPv6 address
only the 64-bit network counts, because one host usually has all addresses of it.
"""

from libc.stdint cimport uint32_t, uint8_t
from libc.string cimport memcmp

from odradek._ext.shm.layout cimport PRODUCER_OWNERS, region
from odradek._ext.shm.siphash cimport hash_bytes


cdef extern from "<arpa/inet.h>" nogil:
    int inet_pton(int family, const char* text, void* address)

cdef extern from "<sys/socket.h>" nogil:
    int AF_INET, AF_INET6

cdef enum:
    NETWORK_BYTES = 8                  # of an IPv6 address

cdef const uint8_t* MAPPED = b"\0\0\0\0\0\0\0\0\0\0\xff\xff"      # before the IPv4 address that an IPv6 address stands for


cdef bytes network_of(str host):
    cdef bytes text
    cdef uint8_t[16] address
    host = host.strip("[]")
    text = host.partition("%")[0].encode("utf-8", "surrogateescape")
    if inet_pton(AF_INET, text, address) == 1:
        return (<char*>address)[:4]
    if inet_pton(AF_INET6, text, address) != 1:
        return host.encode("utf-8", "surrogateescape")
    if memcmp(address, MAPPED, 12) == 0:
        return (<char*>address)[12:16]
    return (<char*>address)[:NETWORK_BYTES]


cdef uint32_t owner_of(str peer) except? 0:
    cdef bytes network
    if region().header == NULL:
        return OWNER_NOBODY
    network = network_of(peer.rpartition(":")[0] or peer)
    return 1 + <uint32_t>(hash_bytes(region().header.hash_key, network, len(network)) % (PRODUCER_OWNERS - 1))


def number_of(str peer not None):
    """The owner of the producers that a connection from `peer` ("host:port") uses."""
    return owner_of(peer)
