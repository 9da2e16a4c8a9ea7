"""Checksums by software and the change of a batch's timestamp, for tests. This module has its own tables of the checksums."""

from libc.stdint cimport int64_t, uint32_t, uint8_t

from odradek._ext.protocol.byte_view cimport ByteView
from odradek._ext.records.crc32c cimport crc32c
from odradek._ext.records.record_batch cimport BatchInfo, parse_batch_header, set_max_timestamp


cdef extern from "records/crc32_hw.h" nogil:
    void crc32_prepare()
    uint32_t crc32_extend_software(uint32_t crc, const uint8_t* p, size_t n)

cdef extern from "records/crc32c_hw.h" nogil:
    void crc32c_prepare()
    uint32_t crc32c_extend_software(uint32_t crc, const uint8_t* p, size_t n)


def crc32_of_software(data, uint32_t crc=0) -> int:
    """The CRC-32 of the bytes that `crc` covers (0: none) followed by `data`, always computed by software."""
    cdef ByteView view = ByteView(data)
    return crc32_extend_software(crc, view.data, view.size) if view.size else crc


def crc32c_of_software(data, uint32_t crc=0) -> int:
    """The CRC-32C of the bytes that `crc` covers (0: none) followed by `data`, always computed by software."""
    cdef ByteView view = ByteView(data)
    return crc32c_extend_software(crc, view.data, view.size) if view.size else crc


def crc32c_of_broker(data, uint32_t crc=0) -> int:
    """The CRC-32C of the bytes that `crc` covers (0: none) followed by `data`, as the broker computes it on this machine."""
    cdef ByteView view = ByteView(data)
    return crc32c(crc, view.data, view.size) if view.size else crc


def restamp(batch, int64_t timestamp, bint log_append_time) -> None:
    """Set the largest timestamp (ms) and its type in `batch`, a whole valid batch, in place.

    Raises ValueError if `batch` does not contain a whole batch.
    """
    cdef ByteView view = ByteView(batch, writable=True)
    cdef BatchInfo info
    if view.size == 0 or parse_batch_header(view.data, view.size, &info) or info.size > view.size:
        raise ValueError("not a whole record batch")
    set_max_timestamp(view.data, &info, timestamp, log_append_time)


crc32_prepare()
crc32c_prepare()
