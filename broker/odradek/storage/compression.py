"""The four codecs of record batches, decompressed within a bound, so that a few bytes cannot become gigabytes.

Runs in append threads of workers (the libraries release the GIL), in look-ups by timestamp, and in tools. Stateless.
Gzip is zlib's, snappy comes raw or in the framing of Java's xerial library (what Kafka writes), lz4 in its frame
format, zstd in its own. Each library is loaded with the first batch that needs it: processes that meet none stay small.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import odradek._ext.records.record_batch as records
from odradek.storage import lz4_header

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")

CORRUPT_MESSAGE = 2
MESSAGE_TOO_LARGE = 10

XERIAL_MAGIC = b"\x82SNAPPY\x00"
XERIAL_HEADER_BYTES = 16
XERIAL_BLOCK_BYTES = 32 * 1024
# Raw snappy cannot shrink its input further than this (a copy of 64 bytes takes 3), so larger claims are lies.
SNAPPY_MAXIMAL_RATIO = 32
STEP_BYTES = 1 << 20
FIRST_GZIP_INPUT_BYTES = 256
LZ4_DEFAULT_LEVEL = 9  # stands for the fast compressor, as in Kafka
ZSTD_DEFAULT_LEVEL = 3


class CorruptCompressedDataError(ValueError):
    """The bytes are not what their codec says."""


class DecompressionLimitError(ValueError):
    """The data would decompress to more than the caller allows."""


def decompress(codec: int, data: bytes | memoryview, limit: int) -> bytes:
    """The decompressed form of a batch's records.

    codec: 0-4 as in a batch's attributes. data: everything behind the header. limit: the most bytes the result may
    have. Raises CorruptCompressedDataError, or DecompressionLimitError, having held no more than about `limit` bytes
    plus a step.
    """
    return DECOMPRESSORS[codec](data, limit)


def compress(codec: int, data: bytes, level: int | None = None) -> bytes:
    """`data` in the framing that Kafka's own clients write.

    level: as in Kafka's ``compression.<codec>.level``; None: the codec's default. Snappy has none.
    """
    return COMPRESSORS[codec](data, level)


def decompress_old(codec: int, data: bytes | memoryview, limit: int, magic: int) -> bytes:
    """As `decompress`, of the value of a compressed message of format v0 or v1 (`magic`).

    Producers of v0 put a wrong checksum into the header of lz4 frames (KAFKA-3160), so that there it is not looked at.
    """
    if codec == LZ4 and magic == 0:
        data = lz4_header.with_right_checksum(data)
    return decompress(codec, data, limit)


def compress_old(codec: int, data: bytes, magic: int) -> bytes:
    """As `compress`, for the value of a message of format v0 or v1: what readers of v0 expect of lz4 is wrong there."""
    packed = compress(codec, data)
    return lz4_header.with_checksum_of_format_0(packed) if codec == LZ4 and magic == 0 else packed


def open_batch(batch: bytes | memoryview, limit: int) -> tuple[int, dict[str, Any] | None, bytes]:
    """All checks of a batch from a client, its compressed records included.

    batch: at least one whole batch. limit: as for `decompress`. Returns Kafka's error code (0: sound), the fields of
    BatchInfo by name, as `odradek._ext.records.record_batch.check` does, and the records, not compressed. Raises
    DecompressionLimitError.
    """
    error, info = records.check(batch)
    if error or info is None:
        return error, info, b""
    payload = memoryview(batch)[records.RECORDS_AT : info["size"]]
    if info["codec"] == NONE:
        return error, info, bytes(payload)
    try:
        plain = decompress(info["codec"], payload, limit)
    except CorruptCompressedDataError:
        return CORRUPT_MESSAGE, info, b""
    return *records.check_decompressed(batch, plain), plain


def check_compressed(batch: bytes | memoryview, limit: int) -> tuple[int, dict[str, Any] | None]:
    """The error code and the fields that `open_batch` finds; MESSAGE_TOO_LARGE for records that open to more than `limit`."""
    try:
        return open_batch(batch, limit)[:2]
    except DecompressionLimitError:
        return MESSAGE_TOO_LARGE, None


def _plain(data: bytes | memoryview, limit: int) -> bytes:
    if len(data) > limit:
        raise DecompressionLimitError(f"{len(data)} bytes where {limit} are allowed")
    return bytes(data)


def _gunzip(data: bytes | memoryview, limit: int) -> bytes:
    """Gzip members, one after another, in time that is linear in their bytes.

    A decompressor copies what it was given and did not use. So each member is given a little at first, and more the longer it
    is: what is copied at its end is in proportion to the member, however much follows it.
    """
    view = memoryview(data)
    parts: list[bytes] = []
    at, left = 0, limit
    while at < len(view):
        member = zlib.decompressobj(wbits=31)
        given = FIRST_GZIP_INPUT_BYTES
        while not member.eof:
            piece = view[at : at + given]
            if not len(piece):
                raise CorruptCompressedDataError("gzip: ends in the middle")
            try:
                part = member.decompress(piece, left + 1)
            except zlib.error as error:
                raise CorruptCompressedDataError(f"gzip: {error}") from error
            left -= len(part)
            if left < 0:
                raise DecompressionLimitError(f"gzip: more than {limit} bytes")
            if part:
                parts.append(part)
            at += len(piece) - len(member.unused_data)
            given = min(given * 4, STEP_BYTES)
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
                raise DecompressionLimitError(f"lz4: more than {limit} bytes")
            parts.append(part)
            if not part and not frame.eof and frame.needs_input:
                raise CorruptCompressedDataError("lz4: ends in the middle")
    except RuntimeError as error:
        raise CorruptCompressedDataError(f"lz4: {error}") from error
    return b"".join(parts)


def _unzstd(data: bytes | memoryview, limit: int) -> bytes:
    """Frames one after another; the window is bounded too, so that a header of a few bytes cannot claim gigabytes."""
    import zstandard

    window = max(limit, 1 << 20)
    parts: list[bytes] = []
    left = limit
    try:
        with zstandard.ZstdDecompressor(max_window_size=1 << min(window.bit_length(), 27)).stream_reader(
            data, read_across_frames=True
        ) as stream:
            while part := stream.read(min(left + 1, STEP_BYTES)):
                left -= len(part)
                if left < 0:
                    raise DecompressionLimitError(f"zstd: more than {limit} bytes")
                parts.append(part)
    except zstandard.ZstdError as error:
        raise CorruptCompressedDataError(f"zstd: {error}") from error
    return b"".join(parts)


def _raw_snappy_length(data: bytes | memoryview) -> int:
    """The decompressed length that raw snappy states in front, as an unsigned varint of 32 bits."""
    value = 0
    for index, byte in enumerate(data[:5]):
        value |= (byte & 0x7F) << (7 * index)
        if not byte & 0x80:
            return value
    raise CorruptCompressedDataError("snappy: no length")


def _raw_unsnappy(data: bytes | memoryview, limit: int) -> bytes:
    import snappy

    length = _raw_snappy_length(data)
    if length > limit:
        raise DecompressionLimitError(f"snappy: {length} bytes where {limit} are allowed")
    if length > len(data) * SNAPPY_MAXIMAL_RATIO:
        raise CorruptCompressedDataError(f"snappy: {len(data)} bytes claim to hold {length}")
    try:
        return snappy.uncompress(bytes(data))
    except snappy.UncompressError as error:
        raise CorruptCompressedDataError(f"snappy: {error}") from error


def _unsnappy(data: bytes | memoryview, limit: int) -> bytes:
    view = memoryview(data)
    if bytes(view[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
        return _raw_unsnappy(view, limit)
    if len(view) < XERIAL_HEADER_BYTES:
        raise CorruptCompressedDataError("snappy: ends in its header")
    parts: list[bytes] = []
    at, left = XERIAL_HEADER_BYTES, limit
    while at < len(view):
        length = int.from_bytes(view[at : at + 4], "big", signed=True)
        at += 4
        if length < 0 or length > len(view) - at:
            raise CorruptCompressedDataError(
                f"snappy: a block of {length} bytes where {max(len(view) - at, 0)} are left"
            )
        part = _raw_unsnappy(view[at : at + length], left)
        parts.append(part)
        left -= len(part)
        at += length
    return b"".join(parts)


def _as_it_is(data: bytes, _level: int | None) -> bytes:
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
    return lz4.frame.compress(
        data, compression_level=0 if fast else level, content_checksum=False, block_linked=False, store_size=False
    )


def _zstd(data: bytes, level: int | None) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor(level=ZSTD_DEFAULT_LEVEL if level is None else level).compress(data)


DECOMPRESSORS: tuple[Callable[[bytes | memoryview, int], bytes], ...] = (_plain, _gunzip, _unsnappy, _unlz4, _unzstd)
COMPRESSORS: tuple[Callable[[bytes, int | None], bytes], ...] = (_as_it_is, _gzip, _snappy, _lz4, _zstd)
