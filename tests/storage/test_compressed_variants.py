"""The check of compressed batches is Kafka's, codec by codec; or stricter, and then documented."""

import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from odradek._ext.records.zstd_frames import are_whole
from odradek.storage import compression, incoming
from odradek.storage.compression import DecompressionLimitError
from tests.storage import compressed_variants
from tests.storage.compressed_variants import (
    LARGE,
    LZ4,
    SMALL,
    VARIANTS,
    ZSTD,
    skippable,
    window_byte,
    zstd,
    zstd_by_hand,
)
from tests.storage.old_writer import message

INVALID_RECORD = 87
DECISION = Path(__file__).parents[2] / "docs/decisions/0022-what-one-request-may-cost.md"


@pytest.mark.parametrize("name", VARIANTS)
def test_a_batch_is_taken_with_its_records_or_refused_for_good(name):
    variant = VARIANTS[name]
    error, _, plain = compression.open_batch(variant.batch(), 1 << 21)
    assert error == (0 if variant.here else INVALID_RECORD)
    if variant.here:
        assert plain == (LARGE if variant.large else SMALL)


def test_everything_that_is_taken_can_be_read_by_java_and_the_stricter_checks_are_documented():
    assert [name for name, variant in VARIANTS.items() if variant.here and not variant.kafka] == []
    stricter = {name for name, variant in VARIANTS.items() if variant.kafka and not variant.here}
    documented = re.findall(r"^  - `((?:gzip|snappy|lz4|zstd): [^`]*)`", DECISION.read_text(), re.MULTILINE)
    assert stricter == set(documented)


@pytest.mark.parametrize("magic", [0, 1])
def test_linked_blocks_of_lz4_are_refused_in_old_formats_too(magic):
    content = message(0, bytes(100_000), magic=magic)
    for linked, error in ((False, 0), (True, INVALID_RECORD)):
        frame = compressed_variants.lz4_frame(content, block_linked=linked, block_size=4)
        wrapper = message(0, frame, magic=magic, attributes=LZ4)
        assert incoming.prepare(wrapper, True, incoming.AS_SENT, -1, 1 << 20, 1 << 20)[0] == error


def test_what_is_in_logs_is_read_although_clients_may_not_send_it():
    for name in ("lz4: linked blocks", "lz4: a dictionary", "zstd: without the last, empty block"):
        variant = VARIANTS[name]
        plain = compression.decompress(variant.codec, variant.payload, 1 << 20)
        assert plain == (LARGE if variant.large else SMALL)


def test_zstd_frames_are_whole_only_at_their_ends():
    frames = [
        zstd(write_checksum=True),
        skippable(3),
        zstd(b"x" * 300_000),
        skippable(0),
        zstd_by_hand(0, window_byte(20)),
    ]
    data = b"".join(frames)
    ends = {0}
    for frame in frames:
        ends.add(max(ends) + len(frame))
    for end in range(len(data) + 1):
        assert are_whole(data[:end]) == (end in ends), end
    assert not are_whole(
        zstd_by_hand(0, window_byte(20))[:6] + (5 << 3 | 3 << 1 | 1).to_bytes(3, "little") + bytes(5)
    ), "a reserved block"


MEASURED = """
import struct, sys
from odradek import codecs
from odradek.storage import compression

def peak_kib():
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1])

head = struct.pack("<IBB", 0xFD2FB528, 0, (27 - 10) << 3)
block, last = (bytes([*((131072 << 3 | 2 | end).to_bytes(3, "little")), 120]) for end in (0, 1))
compression.decompress(codecs.ZSTD, head + last, 2 << 20)
before = peak_kib()
for blocks in (1, 2, 15):
    for _ in range(20):
        assert len(compression.decompress(codecs.ZSTD, head + block * blocks + last, 2 << 20)) == (blocks + 1) << 17
try:
    compression.decompress(codecs.ZSTD, head + block * 1000 + last, 2 << 20)
except compression.DecompressionLimitError:
    print(peak_kib() - before)
"""


def test_a_window_takes_memory_only_for_the_content():
    """A new process reads a window of 128 MiB: the limit of 2 MiB bounds the memory. AddressSanitizer needs 31 MiB for it,
    because it keeps freed memory."""
    done = subprocess.run([sys.executable, "-c", MEASURED], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 48 << 10


def test_a_system_without_memory_for_a_window_is_no_error_of_the_batch(monkeypatch):
    import zstandard

    class NoMemory:
        def __init__(self, **_):
            raise zstandard.ZstdError("zstd decompress error: Allocation error : not enough memory")

    monkeypatch.setattr(zstandard, "ZstdDecompressor", NoMemory)
    with pytest.raises(MemoryError):
        compression.open_batch(VARIANTS["zstd"].batch(), 1 << 20)


def test_a_stated_window_larger_than_the_limit_does_not_hide_that_the_content_is_too_large():
    block = (131072 << 3 | 2).to_bytes(3, "little") + b"x"
    data = struct.pack("<IBB", 0xFD2FB528, 0, window_byte(27)) + block * 20
    with pytest.raises(DecompressionLimitError):
        compression.decompress(ZSTD, data, 1 << 20)
