"""Compressed records in all variants of their codecs, with what Kafka and this broker make of them.

`VARIANTS` is the table. `tests/storage/test_compressed_variants.py` compares it with this broker, and
`tests/api/test_against_kafka.py` with a real Kafka.
"""

import gzip
import random
import struct
from typing import NamedTuple

import lz4.frame
import snappy
import zstandard

from odradek._ext.records.messages_to_batch import replace_payload
from odradek.storage import compression, lz4_header
from odradek.storage.batch import Record, build_batch, read_batches

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
TIME = 1_700_000_000_000


class Variant(NamedTuple):
    """:param payload: the records, compressed. :param large: it contains `LARGE`, not `SMALL`."""

    codec: int
    payload: bytes
    kafka: bool
    here: bool
    large: bool = False

    def batch(self) -> bytes:
        return replace_payload(build_batch(LARGE_RECORDS if self.large else SMALL_RECORDS), self.payload, self.codec)


def records(count: int, size: int) -> list[Record]:
    source = random.Random(count)
    return [Record(b"k", source.randbytes(size // 2) * 2, TIME) for _ in range(count)]


SMALL_RECORDS, LARGE_RECORDS = records(10, 100), records(100, 2000)
SMALL, LARGE = (bytes(next(iter(read_batches(build_batch(one)))).payload) for one in (SMALL_RECORDS, LARGE_RECORDS))
HALF = len(SMALL) // 2


def packed(codec: int, data: bytes = SMALL) -> bytes:
    return compression.compress(codec, data)


def xerial(version: int = 1, compatible: int = 1) -> bytes:
    return compression.XERIAL_MAGIC + struct.pack(">ii", version, compatible)


def chunk(data: bytes) -> bytes:
    block = snappy.compress(data)
    return struct.pack(">i", len(block)) + block


def lz4_frame(data: bytes = SMALL, block_linked: bool = False, **options: object) -> bytes:
    return lz4.frame.compress(data, block_linked=block_linked, store_size=False, **options)  # type: ignore[arg-type]


def lz4_with(flags: int = 0, block_byte: int = 0, inserted: bytes = b"") -> bytes:
    """A frame with these bits set in its header, and the right checksum of it."""
    frame = bytearray(lz4_frame())
    frame[4] |= flags
    frame[5] |= block_byte
    frame[6:6] = inserted
    return lz4_header.with_right_checksum(bytes(frame))


def of_version_2(frame: bytes) -> bytes:
    return lz4_header.with_right_checksum(frame[:4] + bytes([frame[4] & 0x3F | 0x80]) + frame[5:])


def of_small_blocks(frame: bytes) -> bytes:
    """The frame says that its blocks have at most 64 KiB."""
    return lz4_header.with_right_checksum(frame[:5] + b"\x40" + frame[6:])


def with_file_name(member: bytes) -> bytes:
    return member[:3] + b"\x08" + member[4:10] + b"name\0" + member[10:]


def flipped(data: bytes, at: int) -> bytes:
    changed = bytearray(data)
    changed[at] ^= 1
    return bytes(changed)


def zstd(data: bytes = SMALL, **options: bool) -> bytes:
    return zstandard.ZstdCompressor(**options).compress(data)  # type: ignore[arg-type]


def zstd_stream(level: int, data: bytes = SMALL) -> bytes:
    """As Java's producer compresses: it does not tell the library the size, so the frame states the window of the level."""
    stream = zstandard.ZstdCompressor(level=level, write_content_size=False).compressobj()
    return stream.compress(data) + stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK) + stream.flush()


def zstd_by_hand(*header: int, content: bytes = SMALL) -> bytes:
    """A frame with these bytes after its magic number, and the content in a raw block."""
    return struct.pack("<I", 0xFD2FB528) + bytes(header) + (len(content) << 3 | 1).to_bytes(3, "little") + content


def window_byte(log: int, eighths: int = 0) -> int:
    return log - 10 << 3 | eighths


def zstd_with_size(size: int) -> bytes:
    return zstd_by_hand(0xA0, *size.to_bytes(4, "little"))


def skippable(size: int = 5) -> bytes:
    return struct.pack("<II", 0x184D2A50, size) + bytes(size)


VARIANTS = {
    "gzip": Variant(GZIP, packed(GZIP), True, True),
    "gzip: two members": Variant(GZIP, packed(GZIP, SMALL[:HALF]) + packed(GZIP, SMALL[HALF:]), True, True),
    "gzip: a file name": Variant(GZIP, with_file_name(gzip.compress(SMALL)), True, True),
    "gzip: other bytes after the member": Variant(GZIP, packed(GZIP) + b"garbage!", True, False),
    "gzip: zeros after the member": Variant(GZIP, packed(GZIP) + bytes(40), True, False),
    "gzip: a second member that is cut": Variant(GZIP, packed(GZIP) + packed(GZIP, b"")[:12], True, False),
    "gzip: cut in the checksum": Variant(GZIP, packed(GZIP)[:-3], False, False),
    "gzip: a wrong checksum": Variant(GZIP, flipped(packed(GZIP), -8), False, False),
    "gzip: a wrong size": Variant(GZIP, flipped(packed(GZIP), -4), False, False),
    "gzip: nothing": Variant(GZIP, b"", False, False),
    "snappy: raw": Variant(SNAPPY, snappy.compress(SMALL), True, True),
    "snappy: raw, and other bytes": Variant(SNAPPY, snappy.compress(SMALL) + b"gar", False, False),
    "snappy: xerial": Variant(SNAPPY, packed(SNAPPY), True, True),
    "snappy: xerial, other versions": Variant(SNAPPY, xerial(-1, 0) + chunk(SMALL), True, True),
    "snappy: two xerial streams": Variant(SNAPPY, xerial() + chunk(SMALL[:HALF]) + xerial() + chunk(SMALL[HALF:]), True, True),
    "snappy: an empty block": Variant(SNAPPY, xerial() + chunk(b"") + chunk(SMALL) + chunk(b""), True, True),
    "snappy: a part of a length at the end": Variant(SNAPPY, packed(SNAPPY) + b"\0\0", True, False),
    "snappy: a block of zero bytes": Variant(SNAPPY, packed(SNAPPY) + bytes(4), False, False),
    "snappy: a negative length": Variant(SNAPPY, packed(SNAPPY) + b"\xff\xff\xff\xff", False, False),
    "snappy: other bytes at the end": Variant(SNAPPY, packed(SNAPPY) + b"garbage!", False, False),
    "snappy: cut": Variant(SNAPPY, packed(SNAPPY)[:-5], False, False),
    "snappy: a header only": Variant(SNAPPY, xerial(), False, False),
    "snappy: a part of a header": Variant(SNAPPY, xerial()[:12], False, False),
    "snappy: nothing": Variant(SNAPPY, b"", False, False),
    "lz4": Variant(LZ4, packed(LZ4), True, True),
    "lz4: several independent blocks": Variant(LZ4, lz4_frame(LARGE, block_size=4), True, True, large=True),
    "lz4: linked blocks": Variant(LZ4, lz4_frame(LARGE, block_linked=True, block_size=4), False, False, large=True),
    "lz4: a content checksum": Variant(LZ4, lz4_frame(content_checksum=True), True, True),
    "lz4: a wrong content checksum": Variant(LZ4, flipped(lz4_frame(content_checksum=True), -1), True, False),
    "lz4: cut before the content checksum": Variant(LZ4, lz4_frame(content_checksum=True)[:-4], False, False),
    "lz4: block checksums": Variant(LZ4, lz4_frame(block_checksum=True), True, True),
    "lz4: a wrong block checksum": Variant(LZ4, flipped(lz4_frame(block_checksum=True), -5), False, False),
    "lz4: the content's size": Variant(LZ4, lz4_with(8, 0, len(SMALL).to_bytes(8, "little")), True, True),
    "lz4: a wrong size": Variant(LZ4, lz4_with(8, 0, bytes([7] + 7 * [0])), True, False),
    "lz4: a dictionary": Variant(LZ4, lz4_with(1, 0, bytes(4)), False, False),
    "lz4: a reserved flag": Variant(LZ4, lz4_with(2), False, False),
    "lz4: a reserved bit of the block size": Variant(LZ4, lz4_with(0, 1), False, False),
    "lz4: the high bit of the block size": Variant(LZ4, lz4_with(0, 0x80), False, False),
    "lz4: version 2": Variant(LZ4, of_version_2(lz4_frame()), False, False),
    "lz4: a wrong header checksum": Variant(LZ4, flipped(lz4_frame(), 6), False, False),
    "lz4: a header checksum of format 0": Variant(LZ4, lz4_header.with_checksum_of_format_0(lz4_frame()), False, False),
    "lz4: a block that is too large": Variant(LZ4, of_small_blocks(lz4_frame(LARGE, block_size=5)), False, False, large=True),
    "lz4: two frames": Variant(LZ4, lz4_frame(SMALL[:HALF]) + lz4_frame(SMALL[HALF:]), False, False),
    "lz4: other bytes after the frame": Variant(LZ4, lz4_frame() + b"garbage!", True, True),
    "lz4: a skippable frame first": Variant(LZ4, skippable() + lz4_frame(), False, False),
    "lz4: no end mark": Variant(LZ4, lz4_frame()[:-4], False, False),
    "lz4: a part of the end mark": Variant(LZ4, lz4_frame()[:-2], False, False),
    "lz4: nothing": Variant(LZ4, b"", False, False),
    "zstd": Variant(ZSTD, packed(ZSTD), True, True),
    **{f"zstd: a stream of level {level}": Variant(ZSTD, zstd_stream(level), True, True) for level in (1, 3, 17, 19)},
    "zstd: a window of 128 MiB": Variant(ZSTD, zstd_by_hand(0, window_byte(27)), True, True),
    "zstd: a window of 144 MiB": Variant(ZSTD, zstd_by_hand(0, window_byte(27, 1)), False, False),
    "zstd: a window smaller than a block": Variant(ZSTD, zstd_by_hand(0, window_byte(10)), False, False),
    "zstd: a checksum": Variant(ZSTD, zstd(write_checksum=True), True, True),
    "zstd: a wrong checksum": Variant(ZSTD, flipped(zstd(write_checksum=True), -1), False, False),
    "zstd: cut in the checksum": Variant(ZSTD, zstd(write_checksum=True)[:-2], False, False),
    "zstd: without the last, empty block": Variant(ZSTD, zstd_stream(3)[:-3], False, False),
    "zstd: a part of the last, empty block": Variant(ZSTD, zstd_stream(3)[:-1], False, False),
    "zstd: two frames": Variant(ZSTD, zstd(SMALL[:HALF]) + zstd(SMALL[HALF:]), True, True),
    "zstd: an empty frame at the end": Variant(ZSTD, zstd() + zstd(b""), True, True),
    "zstd: skippable frames": Variant(ZSTD, skippable(0) + skippable() + zstd() + skippable(), True, True),
    "zstd: a skippable frame that is cut": Variant(ZSTD, zstd() + skippable()[:-2], True, False),
    "zstd: other bytes after the frame": Variant(ZSTD, zstd() + b"garbage!", False, False),
    "zstd: a few other bytes after the frame": Variant(ZSTD, zstd() + b"ga", False, False),
    "zstd: the content's size": Variant(ZSTD, zstd_with_size(len(SMALL)), True, True),
    "zstd: too large a size": Variant(ZSTD, zstd_with_size(len(SMALL) + 5), False, False),
    "zstd: too small a size": Variant(ZSTD, zstd_with_size(len(SMALL) - 5), False, False),
    "zstd: a size of 8 GiB": Variant(ZSTD, zstd_by_hand(0xE0, *(1 << 33).to_bytes(8, "little")), False, False),
    "zstd: a dictionary": Variant(ZSTD, zstd_by_hand(3, window_byte(20), 77, 0, 0, 0), False, False),
    "zstd: a reserved bit": Variant(ZSTD, zstd_by_hand(8, window_byte(20)), False, False),
    "zstd: an unused bit": Variant(ZSTD, zstd_by_hand(16, window_byte(20)), True, True),
    "zstd: nothing": Variant(ZSTD, b"", False, False),
}  # fmt: skip
