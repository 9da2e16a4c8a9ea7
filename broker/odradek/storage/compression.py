"""Compresses and decompresses in the codecs of record batches (`odradek.codecs`).

Decompression is bounded, so that a few bytes cannot become gigabytes.
Runs in append threads of workers (the libraries release the GIL), in look-ups by timestamp, and in tools. Stateless.
Formats: gzip; raw snappy or the framing of Java's xerial library (which Kafka writes); lz4 frames; zstd frames, with windows up
to 128 MiB, as in Kafka (docs/decisions/0059-zstd-by-cramjam.md). Each library is imported for the first batch that needs it,
which saves memory in processes that decompress nothing.

Batches of clients (`open_batch`, `decompress_produced`) are also checked for what Java's readers refuse although the libraries
here read it. The other functions read that, because logs may contain it. The differences from Kafka are listed in
``docs/decisions/0022-what-one-request-may-cost.md``.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import partial

import odradek._ext.records.record_batch as records
import odradek._ext.records.zstd_frames as zstd_frames
from odradek.codecs import GZIP, LZ4, NONE, SNAPPY, ZSTD
from odradek.storage import lz4_header

INVALID_RECORD = 87

XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER_BYTES = 16
XERIAL_BLOCK_BYTES = 32 * 1024
# The largest compression ratio of raw snappy (a copy of 64 bytes takes 3 bytes); larger stated sizes are false.
SNAPPY_MAXIMAL_RATIO = 32
STEP_BYTES = 1 << 20
FIRST_GZIP_INPUT_BYTES = 256
LZ4_DEFAULT_LEVEL = 9  # means the fast compressor, as in Kafka
ZSTD_DEFAULT_LEVEL = 3
ZSTD_NO_MEMORY = "Allocation error"  # in the text of ZSTD_error_memory_allocation
ZSTD_FULL = "failed to write whole buffer"  # the text of cramjam when the content is larger than the memory for it


class CorruptCompressedDataError(ValueError):
    """The data is not valid in its codec."""


class DecompressionLimitError(ValueError):
    """The decompressed data would exceed the caller's limit."""


def decompress(codec: int, data: bytes | memoryview, limit: int) -> bytes:
    """Decompress the records of a batch.

    codec: as in the attributes of a batch, which can name codecs that do not exist. data: the bytes after the header. limit:
    the largest size of the result, in bytes. Raises CorruptCompressedDataError or DecompressionLimitError; holds at most about
    twice `limit` bytes (the parts and the result, or the result and the window of zstd).
    Raises MemoryError if the system refuses the memory of a window.
    """
    decompressor = DECOMPRESSORS.get(codec)
    if decompressor is None:
        raise CorruptCompressedDataError(f"unknown compression {codec}")
    return decompressor(data, limit)


def compress(codec: int, data: bytes, level: int | None = None) -> bytes:
    """Compress `data` in the framing that Kafka's clients write.

    level: see ``compression.<codec>.level``; None: the codec's default. Snappy ignores it.
    """
    return COMPRESSORS[codec](data, level)


def decompress_old(codec: int, data: bytes | memoryview, limit: int, magic: int) -> bytes:
    """Decompress the value of a compressed message of format v0 or v1 (`magic`); see `decompress`.

    Producers of v0 write a wrong checksum into the header of lz4 frames (KAFKA-3160); it is ignored for v0.
    """
    if codec == LZ4 and magic == 0:
        data = lz4_header.with_right_checksum(data)
    return decompress(codec, data, limit)


def decompress_produced(codec: int, data: bytes | memoryview, limit: int, magic: int) -> bytes:
    """Like `decompress_old`, for a message from a client: CorruptCompressedDataError also for what Java's readers refuse."""
    check_readable(codec, data)
    return decompress_old(codec, data, limit, magic)


def check_readable(codec: int, data: bytes | memoryview) -> None:
    """Raise CorruptCompressedDataError for data that Java's readers refuse although `decompress` would return its content."""
    if codec == LZ4:
        refusal = lz4_header.refusal_of_java(data)
        if refusal:
            raise CorruptCompressedDataError(f"lz4: {refusal}")


def compress_old(codec: int, data: bytes, magic: int) -> bytes:
    """Compress the value of a message of format v0 or v1; lz4 frames in v0 get the wrong checksum that readers of v0 expect."""
    packed = compress(codec, data)
    return lz4_header.with_checksum_of_format_0(packed) if codec == LZ4 and magic == 0 else packed


def open_batch(batch: bytes | memoryview, limit: int) -> tuple[int, records.BatchInfo | None, bytes]:
    """Check a batch from a client, including its compressed records.

    batch: at least one whole batch. limit: see `decompress`. Returns Kafka's error code (0: valid), the fields of BatchInfo
    by name (see `odradek._ext.records.record_batch.check`), and the decompressed records. Raises DecompressionLimitError.
    Records that cannot be decompressed although the batch's CRC matches are an error of the sender: INVALID_RECORD, which
    producers report. They would send the same bytes again after CORRUPT_MESSAGE, until their timeout.
    """
    error, info = records.check(batch)
    if error or info is None:
        return error, info, b""
    payload = memoryview(batch)[records.RECORDS_AT : info["size"]]
    if info["codec"] == NONE:
        return error, info, bytes(payload)
    try:
        check_readable(info["codec"], payload)
        plain = decompress(info["codec"], payload, limit)
    except CorruptCompressedDataError:
        return INVALID_RECORD, info, b""
    return *records.check_decompressed(batch, plain), plain


def _plain(data: bytes | memoryview, limit: int) -> bytes:
    if len(data) > limit:
        raise DecompressionLimitError(f"{len(data)} bytes exceed the limit of {limit}")
    return bytes(data)


def _gunzip(data: bytes | memoryview, limit: int) -> bytes:
    """Decompress concatenated gzip members in linear time.

    At its end a decompressor copies its unused input. Each member therefore receives small pieces first, and larger ones as it
    grows: the copy is proportional to the member, however much data follows.
    """
    view = memoryview(data)
    parts: list[bytes] = []
    at, left = 0, limit
    while at < len(view):
        member = zlib.decompressobj(wbits=31)
        piece_bytes = FIRST_GZIP_INPUT_BYTES
        while not member.eof:
            piece = view[at : at + piece_bytes]
            if not len(piece):
                raise CorruptCompressedDataError("gzip: truncated data")
            try:
                part = member.decompress(piece, left + 1)
            except zlib.error as error:
                raise CorruptCompressedDataError(f"gzip: {error}") from error
            left -= len(part)
            if left < 0:
                raise DecompressionLimitError(f"gzip: the result exceeds the limit of {limit} bytes")
            if part:
                parts.append(part)
            at += len(piece) - len(member.unused_data)
            piece_bytes = min(piece_bytes * 4, STEP_BYTES)
    return b"".join(parts)


def _unlz4(data: bytes | memoryview, limit: int) -> bytes:
    import lz4.frame

    frame = lz4.frame.LZ4FrameDecompressor()
    parts: list[bytes] = []
    left = limit
    source: bytes | memoryview = data
    try:
        while not frame.eof:
            part = frame.decompress(source, max_length=min(left + 1, STEP_BYTES))
            source = b""
            left -= len(part)
            if left < 0:
                raise DecompressionLimitError(f"lz4: the result exceeds the limit of {limit} bytes")
            parts.append(part)
            if not part and not frame.eof and frame.needs_input:
                raise CorruptCompressedDataError("lz4: truncated data")
    except RuntimeError as error:
        raise CorruptCompressedDataError(f"lz4: {error}") from error
    return b"".join(parts)


def _unzstd(data: bytes | memoryview, limit: int) -> bytes:
    """Decompress concatenated zstd frames.

    The library writes directly into the result, which has at most `limit` bytes. It also allocates the window that a frame
    states, even if that is larger than `limit`. Of both, only pages to which content is written take memory.
    """
    import cramjam

    most = zstd_frames.content_limit(data)
    if most < 0:
        raise CorruptCompressedDataError("zstd: truncated frame, or data that is no frame")
    try:
        plain = zstd_frames.filled(max(min(most, limit), 1), partial(cramjam.zstd.decompress_into, data))
    except cramjam.DecompressionError as error:
        if ZSTD_NO_MEMORY in str(error):
            raise MemoryError(f"no memory to decompress {len(data)} bytes of zstd: {error}") from error
        if ZSTD_FULL not in str(error):
            raise CorruptCompressedDataError(f"zstd: {error}") from error
        plain = None
    if plain is None or len(plain) > limit:
        raise DecompressionLimitError(f"zstd: the result exceeds the limit of {limit} bytes")
    return plain


def _raw_snappy_length(data: bytes | memoryview) -> int:
    """The decompressed length at the start of raw snappy data, an unsigned 32-bit varint."""
    value = 0
    for index, byte in enumerate(data[:5]):
        value |= (byte & 0x7F) << (7 * index)
        if not byte & 0x80:
            return value
    raise CorruptCompressedDataError("snappy: the length at the start is not a 32-bit varint")


def _raw_unsnappy(data: bytes | memoryview, limit: int) -> bytes:
    import snappy

    length = _raw_snappy_length(data)
    if length > limit:
        raise DecompressionLimitError(f"snappy: the result of {length} bytes exceeds the limit of {limit}")
    if length > len(data) * SNAPPY_MAXIMAL_RATIO:
        raise CorruptCompressedDataError(f"snappy: {len(data)} bytes cannot decompress to {length}")
    try:
        plain: bytes = snappy.uncompress(bytes(data))
    except snappy.UncompressError as error:
        raise CorruptCompressedDataError(f"snappy: {error}") from error
    return plain


def _unsnappy(data: bytes | memoryview, limit: int) -> bytes:
    view = memoryview(data)
    if bytes(view[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
        return _raw_unsnappy(view, limit)
    if len(view) < XERIAL_HEADER_BYTES:
        raise CorruptCompressedDataError("snappy: truncated header")
    parts: list[bytes] = []
    at, left = XERIAL_HEADER_BYTES, limit
    while at < len(view):
        if view[at : at + len(XERIAL_MAGIC)] == XERIAL_MAGIC:  # another stream, as a length it would be negative
            at += XERIAL_HEADER_BYTES
            continue
        length = int.from_bytes(view[at : at + 4], "big", signed=True)
        at += 4
        if length < 0 or length > len(view) - at:
            raise CorruptCompressedDataError(
                f"snappy: block length {length}, but {max(len(view) - at, 0)} bytes are left"
            )
        part = _raw_unsnappy(view[at : at + length], left)
        parts.append(part)
        left -= len(part)
        at += length
    return b"".join(parts)


def _uncompressed(data: bytes, _level: int | None) -> bytes:
    return bytes(data)


def _snappy(data: bytes, _level: int | None) -> bytes:
    import snappy

    blocks = [XERIAL_MAGIC, (1).to_bytes(4, "big"), (1).to_bytes(4, "big")]
    for start in range(0, len(data), XERIAL_BLOCK_BYTES):
        block = snappy.compress(data[start : start + XERIAL_BLOCK_BYTES])
        blocks += [len(block).to_bytes(4, "big"), block]
    return b"".join(blocks)


def _gzip(data: bytes, level: int | None) -> bytes:
    stream = zlib.compressobj(zlib.Z_DEFAULT_COMPRESSION if level is None else level, wbits=31)
    return stream.compress(data) + stream.flush()


def _lz4(data: bytes, level: int | None) -> bytes:
    import lz4.frame

    fast = level is None or level == LZ4_DEFAULT_LEVEL
    packed: bytes = lz4.frame.compress(
        data, compression_level=0 if fast else level, content_checksum=False, block_linked=False, store_size=False
    )
    return packed


def _zstd(data: bytes, level: int | None) -> bytes:
    import cramjam

    return bytes(cramjam.zstd.compress(data, ZSTD_DEFAULT_LEVEL if level is None else level))


DECOMPRESSORS: dict[int, Callable[[bytes | memoryview, int], bytes]] = {
    NONE: _plain,
    GZIP: _gunzip,
    SNAPPY: _unsnappy,
    LZ4: _unlz4,
    ZSTD: _unzstd,
}
COMPRESSORS: dict[int, Callable[[bytes, int | None], bytes]] = {
    NONE: _uncompressed,
    GZIP: _gzip,
    SNAPPY: _snappy,
    LZ4: _lz4,
    ZSTD: _zstd,
}
