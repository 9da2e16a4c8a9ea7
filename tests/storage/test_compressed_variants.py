"""The check of compressed batches is Kafka's, codec by codec; or stricter, and then documented."""

import re
import struct
import subprocess
import sys
from itertools import accumulate
from pathlib import Path

import pytest

from odradek._ext.records.zstd_frames import content_limit, filled
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
REPEATED_BYTE_HEAD = struct.pack("<IBB", 0xFD2FB528, 0, window_byte(27))
DECISION = Path(__file__).parents[2] / "docs/decisions/0022-what-one-request-may-cost.md"


def repeated_byte(times: int, last: bool = False) -> bytes:
    """A block of a zstd frame."""
    return (times << 3 | 2 | last).to_bytes(3, "little") + b"x"


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
    for name in ("lz4: linked blocks", "lz4: a dictionary"):
        variant = VARIANTS[name]
        plain = compression.decompress(variant.codec, variant.payload, 1 << 20)
        assert plain == (LARGE if variant.large else SMALL)


def test_zstd_frames_are_whole_only_at_their_ends_and_bound_their_content():
    frames = [
        zstd(write_checksum=True),
        skippable(3),
        zstd(b"x" * 300_000),
        skippable(0),
        zstd_by_hand(0, window_byte(20)),
    ]
    data = b"".join(frames)
    contents = [len(compression.decompress(ZSTD, frame, 1 << 20)) for frame in frames]
    ends = dict(zip(accumulate(map(len, frames), initial=0), accumulate(contents, initial=0), strict=True))
    for end in range(len(data) + 1):
        limit = content_limit(data[:end])
        assert (limit >= 0) == (end in ends), end
        assert limit < 0 or ends[end] <= limit <= ends[end] + (128 << 10) * len(frames)
    reserved = zstd_by_hand(0, window_byte(20))[:6] + (5 << 3 | 3 << 1 | 1).to_bytes(3, "little") + bytes(5)
    assert content_limit(reserved) == -1


def test_the_content_of_blocks_that_are_not_compressed_is_known():
    assert content_limit(zstd_by_hand(0, window_byte(20), content=bytes(777))) == 777
    assert content_limit(REPEATED_BYTE_HEAD + repeated_byte(131072) * 3 + repeated_byte(5, last=True)) == 3 * 131072 + 5


def test_bytes_are_filled_in_place():
    def fill(view):
        views.append(view)
        view[:3] = b"abc"
        return 3

    views = []
    assert filled(3, fill) == filled(1000, fill) == b"abc"
    assert filled(7, lambda view: 0) == b""
    with pytest.raises(ValueError, match="released"):
        views[0][0]
    for wrong in (-1, 4):
        with pytest.raises(ValueError, match="of 3 bytes"):
            filled(3, lambda view: wrong)  # noqa: B023
    with pytest.raises(ZeroDivisionError):
        filled(3, lambda view: 1 // 0)
    with pytest.raises(ValueError):
        filled(0, fill)


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


WITHOUT_MEMORY = """
import resource, sys
from odradek.storage import compression

data = bytes.fromhex(sys.argv[1])
compression.decompress(compression.ZSTD, bytes.fromhex(sys.argv[2]), 1 << 20)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20),) * 2)
try:
    compression.decompress(compression.ZSTD, data, 1 << 20)
except MemoryError as error:
    print(error)
"""


def test_a_system_without_memory_for_a_window_is_no_error_of_the_batch():
    """A new process with a limit of its memory: the library's own message decides."""
    frames = [zstd_by_hand(0, window_byte(27)).hex(), zstd().hex()]
    done = subprocess.run([sys.executable, "-c", WITHOUT_MEMORY, *frames], capture_output=True, text=True, check=True)
    assert "no memory to decompress" in done.stdout


def test_a_stated_window_larger_than_the_limit_does_not_hide_that_the_content_is_too_large():
    with pytest.raises(DecompressionLimitError):
        compression.decompress(
            ZSTD, REPEATED_BYTE_HEAD + repeated_byte(131072) * 20 + repeated_byte(1, last=True), 1 << 20
        )
