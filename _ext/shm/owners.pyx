"""Owners of producers: a number made from a client's address; see owners.pxd.

The number is a keyed hash, so that no client can choose another client whose share of the memory it uses up. Of an IPv6 address
only the 64-bit network counts, because one host usually has all addresses of it.
"""

import ipaddress

from libc.stdint cimport uint32_t, uint8_t

from odradek._ext.shm.layout cimport PRODUCER_OWNERS, region
from odradek._ext.shm.siphash cimport hash_bytes


cdef uint32_t owner_of(str peer) except? 0:
    cdef bytes address
    cdef const uint8_t* p
    cdef str host = peer.rpartition(":")[0].strip("[]") or peer
    if region().header == NULL:
        return OWNER_NOBODY
    try:
        ip_address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        address = host.encode("utf-8", "surrogateescape")
    else:
        mapped = getattr(ip_address, "ipv4_mapped", None)
        address = (mapped or ip_address).packed[:8]
    p = <const uint8_t*><const char*>address
    return 1 + <uint32_t>(hash_bytes(region().header.hash_key, p, <size_t>len(address)) % (PRODUCER_OWNERS - 1))


def number_of(str peer not None):
    """The owner of the producers that a connection from `peer` ("host:port") uses."""
    return owner_of(peer)
