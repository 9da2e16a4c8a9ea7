"""The map of keys to newest offsets: its hash against an independent SipHash and a published vector, its spread, its bounds."""

import random
import struct

import pytest

from odradek._ext.testing.offset_map_probe import Offsets, digest

MASK = (1 << 64) - 1
KEY = bytes(range(16))
KEY0, KEY1 = struct.unpack("<2Q", KEY)


def sip_hash_128(key: bytes, data: bytes, rounds: int, last_rounds: int) -> bytes:
    """SipHash-c-d with 128 bits of output, as its authors' paper and README have it."""
    key0, key1 = struct.unpack("<2Q", key)
    a, b = key0 ^ 0x736F6D6570736575, key1 ^ 0x646F72616E646F6D ^ 0xEE
    c, d = key0 ^ 0x6C7967656E657261, key1 ^ 0x7465646279746573

    def turn(x: int, bits: int) -> int:
        return ((x << bits) | (x >> (64 - bits))) & MASK

    def mix(count: int) -> None:
        nonlocal a, b, c, d
        for _ in range(count):
            a, c = (a + b) & MASK, (c + d) & MASK
            b, d = turn(b, 13) ^ a, turn(d, 16) ^ c
            a = turn(a, 32)
            c, a = (c + b) & MASK, (a + d) & MASK
            b, d = turn(b, 17) ^ c, turn(d, 21) ^ a
            c = turn(c, 32)

    padded = data + bytes(7 - len(data) % 8) + bytes([len(data) & 0xFF])
    for (word,) in struct.iter_unpack("<Q", padded):
        d ^= word
        mix(rounds)
        a ^= word
    c ^= 0xEE
    mix(last_rounds)
    low = a ^ b ^ c ^ d
    b ^= 0xDD
    mix(last_rounds)
    return struct.pack("<2Q", low, a ^ b ^ c ^ d)


def test_the_oracle_yields_the_published_vectors_of_siphash_2_4_128() -> None:
    """The first three of `vectors_sip128` of the reference implementation: key 00..0f, input 00, 01, ..."""
    for n, published in enumerate(
        ("a3817f04ba25a8e66df67214c7550293", "da87c1d86b99af44347659119b22fc45", "8177228da4a45dc7fca38bdef60affe4")
    ):
        assert sip_hash_128(KEY, bytes(range(n)), 2, 4).hex() == published


def test_the_hash_yields_the_published_vector_of_siphash_1_3_128() -> None:
    assert digest(KEY0, KEY1, b"") == bytes([231, 126, 188, 178, 39, 136, 165, 190, 253, 98, 219, 106, 221, 48, 48, 1])


def test_the_hash_is_siphash_1_3_128_at_every_length() -> None:
    draw = random.Random(13)
    for n in (*range(70), 255, 256, 257, 1000):
        key, data = draw.randbytes(16), draw.randbytes(n)
        assert digest(*struct.unpack("<2Q", key), data) == sip_hash_128(key, data, 1, 3), n


@pytest.mark.parametrize("shape", ["{}", "user-{:012d}", "{:08x}" + "x" * 100])
def test_the_hash_spreads_keys_that_are_alike(shape: str) -> None:
    """Each of 128 bits is set in half of the hashes, and buckets are filled as by chance (6 standard deviations)."""
    count, buckets = 20_000, 256
    digests = [digest(1, 2, shape.format(i).encode()) for i in range(count)]
    assert len(set(digests)) == count
    numbers = [int.from_bytes(one, "little") for one in digests]
    for bit in range(128):
        ones = sum(number >> bit & 1 for number in numbers)
        assert abs(ones - count / 2) < 6 * (count / 4) ** 0.5, f"bit {bit}: {ones}"
    filled = [0] * buckets
    for number in numbers:
        filled[(number & MASK) * buckets >> 64] += 1  # the map's places come from the lower word's upper bits
    chi_square = sum((one - count / buckets) ** 2 for one in filled) / (count / buckets)
    assert abs(chi_square - (buckets - 1)) < 6 * (2 * (buckets - 1)) ** 0.5, chi_square


def test_one_bit_of_the_input_changes_half_of_the_hash() -> None:
    draw = random.Random(3)
    changed = total = 0
    for _ in range(200):
        data = bytearray(draw.randbytes(20))
        before = int.from_bytes(digest(5, 6, bytes(data)), "little")
        data[draw.randrange(20)] ^= 1 << draw.randrange(8)
        changed += (before ^ int.from_bytes(digest(5, 6, bytes(data)), "little")).bit_count()
        total += 128
    assert abs(changed - total / 2) < 6 * (total / 4) ** 0.5


@pytest.mark.parametrize("load_factor", [0.5, 0.9, 0.999])
def test_the_map_holds_what_a_dict_holds_until_it_is_full(load_factor: float) -> None:
    draw = random.Random(7)
    offsets = Offsets(24 * 5000, load_factor, 1 << 40)
    expected: dict[bytes, int] = {}
    full = False
    for offset in range(40_000):
        key = b"" if offset == 9 else str(draw.randrange(20_000)).encode()
        if not offsets.put(key, offset):
            full = True
            break
        expected[key] = offset
    assert full
    assert len(offsets) == len(expected) == int(5000 * load_factor)
    assert {key: offsets.get(key) for key in expected} == expected
    absent = [key for key in (str(i).encode() for i in range(20_000, 30_000)) if offsets.get(key) != -1]
    assert absent == []


def test_a_map_for_few_keys_takes_that_many() -> None:
    offsets = Offsets(1 << 20, 0.75, 10)
    assert all(offsets.put(bytes([i]), i) for i in range(10))
    assert [offsets.get(bytes([i])) for i in range(11)] == [*range(10), -1]
