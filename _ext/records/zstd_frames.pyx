"""The largest possible size of the content of a sequence of zstd frames, and the bytes object that receives the content.

Runs in the append threads of workers; pure functions over memory, linear in its bytes. The sizes in the headers bound the memory of a
decompression before it begins. Java's reader fails at a frame that ends too early, and so does `content_limit`. Format: RFC 8878.

    frame: magic u32, descriptor u8, window u8 (unless single segment), dictionary id, content size, blocks, checksum u32 (if flagged)
    block: header u24 (last block: bit 0; type: bits 1 and 2; size: the others), content
    skippable frame: magic u32 (16 values), size u32, content
"""

from cpython.buffer cimport PyBUF_WRITE
from cpython.memoryview cimport PyMemoryView_FromMemory
from cpython.object cimport PyObject
from cpython.ref cimport Py_XDECREF
from libc.stdint cimport int64_t, uint32_t, uint8_t

from odradek._ext.protocol.byte_view cimport ByteView

cdef extern from "Python.h":
    PyObject* new_bytes "PyBytes_FromStringAndSize"(const char*, Py_ssize_t) except NULL
    char* start_of_bytes "PyBytes_AS_STRING"(PyObject*)
    int _PyBytes_Resize(PyObject**, Py_ssize_t) except -1

cdef enum:
    BLOCK_OF_ONE_BYTE = 1               # a byte that is repeated as often as the size says
    RESERVED_BLOCK = 3
    LARGEST_BLOCK = 128 * 1024          # of content
    CHECKSUM_FLAG = 0x04
    SINGLE_SEGMENT_FLAG = 0x20

cdef uint32_t FRAME_MAGIC = 0xFD2FB528
cdef uint32_t SKIPPABLE_MAGIC = 0x184D2A50


cdef inline uint32_t little32(const uint8_t* p) noexcept nogil:
    return <uint32_t>p[0] | <uint32_t>p[1] << 8 | <uint32_t>p[2] << 16 | <uint32_t>p[3] << 24


cdef size_t frame_header_bytes(uint8_t descriptor) noexcept nogil:
    """The length of a frame's header, magic number included."""
    cdef size_t size = 5
    cdef int content_size_flag = descriptor >> 6, dictionary_flag = descriptor & 3
    if not descriptor & SINGLE_SEGMENT_FLAG:
        size += 1
    elif content_size_flag == 0:
        size += 1
    if content_size_flag:
        size += <size_t>1 << content_size_flag
    if dictionary_flag:
        size += <size_t>1 << (dictionary_flag - 1)
    return size


cdef int64_t most_content(const uint8_t* p, size_t n) noexcept nogil:
    """The largest possible content of the frames in p[0:n], in bytes; -1 if it is not a sequence of whole frames."""
    cdef size_t at = 0, size
    cdef int64_t content = 0
    cdef uint32_t magic, header
    cdef uint8_t descriptor, kind
    while at < n:
        if n - at < 8:
            return -1
        magic = little32(p + at)
        if magic & ~<uint32_t>0xF == SKIPPABLE_MAGIC:
            size = little32(p + at + 4)
            at += 8
            if size > n - at:
                return -1
            at += size
            continue
        if magic != FRAME_MAGIC:
            return -1
        descriptor = p[at + 4]
        size = frame_header_bytes(descriptor)
        if size > n - at:
            return -1
        at += size
        while True:
            if n - at < 3:
                return -1
            header = <uint32_t>p[at] | <uint32_t>p[at + 1] << 8 | <uint32_t>p[at + 2] << 16
            at += 3
            kind = header >> 1 & 3
            if kind == RESERVED_BLOCK:
                return -1
            content += header >> 3 if kind <= BLOCK_OF_ONE_BYTE else LARGEST_BLOCK
            size = 1 if kind == BLOCK_OF_ONE_BYTE else header >> 3
            if size > n - at:
                return -1
            at += size
            if header & 1:
                break
        if descriptor & CHECKSUM_FLAG:
            if n - at < 4:
                return -1
            at += 4
    return content


def content_limit(data) -> int:
    """The largest possible size of the content of `data`, in bytes; -1 if it is not a sequence of whole frames, skippable ones
    included. A compressed block counts as 128 KiB. The content is not checked."""
    cdef ByteView view = ByteView(data)
    cdef int64_t content
    if view.size == 0:
        return 0
    with nogil:
        content = most_content(view.data, view.size)
    return content


def filled(Py_ssize_t size, fill) -> bytes:
    """Return what `fill` writes, without a copy. It receives a writable view of `size` bytes, 1 or more, and returns how many it has
    written. The memory is not cleared before: only pages that `fill` writes to are used. The view ends with the call."""
    cdef PyObject* content
    if size < 1:
        raise ValueError(f"{size} bytes")
    content = new_bytes(NULL, size)
    cdef Py_ssize_t written
    try:
        view = PyMemoryView_FromMemory(start_of_bytes(content), size, PyBUF_WRITE)
        try:
            written = fill(view)
        finally:
            view.release()
        if not 0 <= written <= size:
            raise ValueError(f"{written} of {size} bytes are written")
        _PyBytes_Resize(&content, written)
        return <bytes>content
    finally:
        Py_XDECREF(content)
