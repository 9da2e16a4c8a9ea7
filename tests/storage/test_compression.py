"""Codecs: round trips, both framings of snappy, errors for damaged data, and the limit for decompression bombs."""

import gzip
import random
import tracemalloc
import zlib

import lz4.frame
import pytest
import snappy
import zstandard

from odradek import codecs
from odradek.storage import compression
from odradek.storage.batch import Record, build_batch
from odradek.storage.compression import CorruptCompressedDataError, DecompressionLimitError, compress, decompress

CODECS = pytest.mark.parametrize("codec", range(5), ids=codecs.NAMES)
PACKED = pytest.mark.parametrize("codec", range(1, 5), ids=codecs.NAMES[1:])
TEXT = b"".join(b"line %d of a log that repeats itself; " % number for number in range(5000))


@CODECS
@pytest.mark.parametrize(
    "data", [b"", b"x", TEXT, random.Random(1).randbytes(300_000)], ids=["empty", "one", "text", "noise"]
)
def test_round_trip(codec, data):
    assert decompress(codec, compress(codec, data), max(len(data), 1)) == data
    assert decompress(codec, memoryview(compress(codec, data)), 1 << 20) == data


@CODECS
def test_the_limit_is_exact(codec):
    packed = compress(codec, TEXT)
    assert decompress(codec, packed, len(TEXT)) == TEXT
    with pytest.raises(DecompressionLimitError):
        decompress(codec, packed, len(TEXT) - 1)


@PACKED
def test_every_truncation_is_an_error(codec):
    packed = compress(codec, TEXT[:3000])
    for end in range(len(packed)):
        try:
            short = decompress(codec, packed[:end], 1 << 20)
        except CorruptCompressedDataError:
            continue
        # A cut between two blocks of snappy's framing, or of nothing but a header, leaves a shorter sound stream.
        assert TEXT.startswith(short)
        assert len(short) < 3000


@PACKED
def test_damage_is_an_error_or_bounded(codec):
    source = random.Random(codec)
    packed = compress(codec, TEXT)
    for _ in range(300):
        damaged = bytearray(packed)
        damaged[source.randrange(len(damaged))] ^= 1 << source.randrange(8)
        try:
            assert len(decompress(codec, damaged, 1 << 20)) <= 1 << 20
        except (CorruptCompressedDataError, DecompressionLimitError):
            continue


def bombs():
    zeros = bytes(200 << 20)
    raw = zlib.compressobj(9, wbits=31)
    yield 1, raw.compress(zeros) + raw.flush()
    yield 3, lz4.frame.compress(zeros)
    yield 4, zstandard.ZstdCompressor(level=3).compress(zeros)
    yield 2, b"\xff\xff\xff\xff\x07" + bytes(1000)
    yield 2, compress(2, zeros[: 64 << 20])


def test_a_bomb_stops_at_the_limit():
    for codec, bomb in bombs():
        tracemalloc.start()
        with pytest.raises(DecompressionLimitError):
            decompress(codec, bomb, 1 << 20)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 8 << 20, codecs.NAMES[codec]


def test_raw_snappy_is_read_too():
    assert decompress(2, snappy.compress(TEXT), len(TEXT)) == TEXT


def test_several_members_and_frames_are_joined():
    assert decompress(1, compress(1, b"one ") + compress(1, b"two"), 100) == b"one two"
    assert decompress(4, compress(4, b"one ") + compress(4, b"two"), 100) == b"one two"


@PACKED
def test_a_compressed_batch_is_checked_inside(codec):
    sound = [Record(b"k", b"v" * 50, 1000 + number) for number in range(30)]
    error, info, _ = compression.open_batch(build_batch(sound, codec=codec), 1 << 20)
    assert (error, info["framed"], info["found_max_timestamp"], info["keyless"]) == (0, 1, 1029, 0)
    gaps = build_batch(sound, codec=codec, offset_deltas=[*range(29), 30], last_offset_delta=29)
    assert compression.open_batch(gaps, 1 << 20)[0] == 87
    with pytest.raises(compression.DecompressionLimitError):
        compression.open_batch(build_batch(sound, codec=codec), 500)
    wrong_codec = build_batch(sound, codec=0, attributes=codec)
    assert compression.open_batch(wrong_codec, 1 << 20)[0] in (2, 87)


class CountedMembers:
    """zlib that counts the input bytes of decompressors."""

    error = zlib.error

    def __init__(self):
        self.given = 0

    def decompressobj(self, **options):
        return CountedMember(self, zlib.decompressobj(**options))


class CountedMember:
    def __init__(self, counts, member):
        self._counts, self._member = counts, member

    def decompress(self, data, most):
        self._counts.given += len(data)
        return self._member.decompress(data, most)

    def __getattr__(self, name):
        return getattr(self._member, name)


@pytest.mark.parametrize("member_bytes", [0, 100, 5_000, 300_000])
def test_gzip_members_are_read_in_time_that_is_linear_in_their_bytes(monkeypatch, member_bytes):
    """A decompressor copies unused input: 50,000 empty members in a megabyte took seconds."""
    content = random.Random(1).randbytes(member_bytes)
    member = gzip.compress(content)
    counts = CountedMembers()
    monkeypatch.setattr(compression, "zlib", counts)
    many = max(4, 100_000 // len(member))
    assert compression.decompress(1, member * many, 1 << 30) == content * many
    assert counts.given <= many * (4 * len(member) + compression.FIRST_GZIP_INPUT_BYTES)


@pytest.mark.parametrize("cut", [1, 9, 17, 19])
def test_gzip_members_that_end_early_are_corrupt(cut):
    member = gzip.compress(b"content" * 100)
    for data in (member[:-cut], member * 3 + member[:-cut]):
        with pytest.raises(CorruptCompressedDataError, match="truncated"):
            compression.decompress(1, data, 1 << 20)


def test_what_follows_gzip_members_and_is_none_is_corrupt():
    with pytest.raises(CorruptCompressedDataError, match="gzip"):
        compression.decompress(1, gzip.compress(b"content") + b"\0" * 40, 1 << 20)
