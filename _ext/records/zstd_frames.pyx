"""Whether compressed data consists of whole zstd frames.

Runs in the append threads of workers, without the GIL; a pure function over memory, linear in its bytes. The zstd library returns the
records of a frame that ends too early without an error; Java's reader fails at such a frame. Format: RFC 8878.

    frame: magic u32, descriptor u8, window u8 (unless single segment), dictionary id, content size, blocks, checksum u32 (if flagged)
    block: header u24 (last block: bit 0; type: bits 1 and 2; size: the others), content
    skippable frame: magic u32 (16 values), size u32, content
"""

from libc.stdint cimport uint32_t, uint8_t

from odradek._ext.protocol.byte_view cimport ByteView

cdef enum:
    BLOCK_OF_ONE_BYTE = 1               # a byte that is repeated
    RESERVED_BLOCK = 3
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


cdef bint whole_frames(const uint8_t* p, size_t n) noexcept nogil:
    """Return whether p[0:n] is a sequence of whole frames; true for no bytes."""
    cdef size_t at = 0, size
    cdef uint32_t magic, header
    cdef uint8_t descriptor
    while at < n:
        if n - at < 8:
            return False
        magic = little32(p + at)
        if magic & ~<uint32_t>0xF == SKIPPABLE_MAGIC:
            size = little32(p + at + 4)
            at += 8
            if size > n - at:
                return False
            at += size
            continue
        if magic != FRAME_MAGIC:
            return False
        descriptor = p[at + 4]
        size = frame_header_bytes(descriptor)
        if size > n - at:
            return False
        at += size
        while True:
            if n - at < 3:
                return False
            header = <uint32_t>p[at] | <uint32_t>p[at + 1] << 8 | <uint32_t>p[at + 2] << 16
            at += 3
            if (header >> 1 & 3) == RESERVED_BLOCK:
                return False
            size = 1 if (header >> 1 & 3) == BLOCK_OF_ONE_BYTE else header >> 3
            if size > n - at:
                return False
            at += size
            if header & 1:
                break
        if descriptor & CHECKSUM_FLAG:
            if n - at < 4:
                return False
            at += 4
    return True


def are_whole(data) -> bool:
    """Return whether `data` is a sequence of whole frames, skippable ones included; true for no bytes. The content is not checked."""
    cdef ByteView view = ByteView(data)
    cdef bint whole
    if view.size == 0:
        return True
    with nogil:
        whole = whole_frames(view.data, view.size)
    return whole
