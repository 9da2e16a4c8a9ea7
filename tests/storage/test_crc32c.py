"""CRC-32C equals PyPI's implementation at any length and alignment, by instruction and in software."""

import random

import crc32c as oracle
import pytest

from odradek._ext.testing import record_probe

BOTH = pytest.mark.parametrize("checksum", [record_probe.crc32c_of_broker, record_probe.crc32c_of_software])


@BOTH
def test_known_answers(checksum):
    assert checksum(b"") == 0
    assert checksum(b"123456789") == 0xE3069283
    assert checksum(bytes(32)) == 0x8A9136AA
    assert checksum(b"\xff" * 32) == 0x62A8AB43


@BOTH
def test_equals_the_oracle_at_random_lengths_and_alignments(checksum):
    source = random.Random(7)
    data = memoryview(source.randbytes(200_000))
    edges = [1, 7, 8, 9, 767, 768, 769, 12287, 12288, 12289, 13056, 100_000]
    for length in edges + [source.randrange(30_000) for _ in range(200)]:
        start = source.randrange(64)
        piece = data[start : start + length]
        assert checksum(piece) == oracle.crc32c(bytes(piece)), (start, length)


@BOTH
def test_continues_from_a_checksum(checksum):
    data = random.Random(8).randbytes(50_000)
    for cut in (0, 1, 13, 769, 12_288, 49_999, 50_000):
        assert checksum(data[cut:], checksum(data[:cut])) == oracle.crc32c(data)
