"""The primitive reads and writes of `_ext/protocol/cursor.pxd`: values, bounds and the sticky error, compared with Python."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import struct
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.toolchains import BUILD_DIRECTORY, REPOSITORY

SOURCE = Path(__file__).with_name("cursor_probe.pyx")
TRUNCATED, VARINT, LENGTH = 1, 2, 3
FIXED = {
    "int8": ">b",
    "int16": ">h",
    "uint16": ">H",
    "int32": ">i",
    "uint32": ">I",
    "int64": ">q",
    "uint64": ">Q",
    "float64": ">d",
}
VARINTS = {"uvarint": (32, False), "uvarlong": (64, False), "varint": (32, True), "varlong": (64, True)}
PLENTY = settings(max_examples=300, database=None)


@pytest.fixture(scope="module")
def probe() -> Any:
    """The probe module, compiled once for each version of its source and of the cursor's source."""
    digest = hashlib.sha256(
        SOURCE.read_bytes() + (REPOSITORY / "broker" / "odradek" / "_ext" / "protocol" / "cursor.pxd").read_bytes()
    ).hexdigest()[:12]
    library = BUILD_DIRECTORY / f"cursor_probe-{digest}" / "cursor_probe.so"
    if not library.exists():
        directory = library.with_name(f"unfinished-{os.getpid()}")
        directory.mkdir(parents=True)
        code = directory / "cursor_probe.c"
        subprocess.run(
            [sys.executable, "-m", "cython", "-3", "-I", "broker", str(SOURCE), "-o", str(code)],
            cwd=REPOSITORY,
            check=True,
        )
        compiler = os.environ.get("CC", "cc").split()
        include = sysconfig.get_paths()["include"]
        built = directory / library.name
        command = [*compiler, "-shared", "-fPIC", "-O1", f"-I{include}", str(code), "-o", str(built)]
        subprocess.run(command, check=True)
        built.replace(library)
    spec = importlib.util.spec_from_file_location("cursor_probe", library)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def varint(value: int, bits: int, zigzag: bool) -> bytes:
    """Encode a varint, by its definition."""
    number = (value << 1) ^ (value >> (bits - 1)) if zigzag else value
    out = bytearray()
    while True:
        out.append(number & 0x7F | (0x80 if number >> 7 else 0))
        number >>= 7
        if not number:
            return bytes(out)


@given(kind=st.sampled_from(sorted(FIXED)), data=st.binary(max_size=10))
@PLENTY
def test_fixed_values_are_big_endian_and_bounded(probe: Any, kind: str, data: bytes) -> None:
    size = struct.calcsize(FIXED[kind])
    value, position, error, refused = probe.read(kind, data)
    if len(data) < size:
        assert (value, position, error, refused) == (0, 0, TRUNCATED, size)
    else:
        assert struct.pack(FIXED[kind], value) == data[:size] or value != value
        assert (position, error) == (size, 0)
        if not kind.startswith("u"):
            assert probe.write([("int8", 1), (kind, value)])[1:] == data[:size] or value != value


@given(st.sampled_from(sorted(VARINTS)), st.integers(0, 64), st.integers(-1, 1), st.binary(max_size=2))
@PLENTY
def test_varints_come_back_and_are_refused_when_cut(probe: Any, kind: str, power: int, more: int, rest: bytes) -> None:
    bits, zigzag = VARINTS[kind]
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if zigzag else (0, (1 << bits) - 1)
    for value in {max(low, min(high, sign * (1 << power) + more)) for sign in (-1, 1)}:
        data = probe.write([(kind, value)])
        assert data == varint(value, bits, zigzag)
        assert probe.read(kind, data + rest) == (value, len(data), 0, 0)
        for size in range(len(data)):
            assert probe.read(kind, data[:size])[1:] == (0, TRUNCATED, size + 1)


@pytest.mark.parametrize("kind", sorted(VARINTS))
def test_varints_of_too_many_bits_are_refused(probe: Any, kind: str) -> None:
    bits, zigzag = VARINTS[kind]
    longest = varint((1 << bits) - 1, 70, False)
    assert probe.read(kind, longest)[1:3] == (len(longest), 0)
    for oversized in (varint(1 << bits, 70, False), b"\x80" * len(longest) + b"\x00", b"\xff" * 20):
        assert probe.read(kind, oversized)[1:] == (0, VARINT, bits)
    assert probe.read(kind, b"\x80\x00") == (0, 2, 0, 0), "padding within the type's bits is harmless"
    assert zigzag == (probe.read(kind, b"\x01")[0] == -1)


@pytest.mark.parametrize(
    ("kind", "data", "result"),
    [
        ("length", b"\xff\xff\xff\xff", (-1, 4, 0, 0)),
        ("length", b"\x7f\xff\xff\xff", (0x7FFFFFFF, 4, 0, 0)),
        ("length", b"\xff\xff\xff\xfe", (-1, 0, LENGTH, -2)),
        ("length", b"\0\0\0", (0, 0, TRUNCATED, 4)),
        ("compact length", b"\x00", (-1, 1, 0, 0)),
        ("compact length", b"\xff\xff\xff\xff\x0f", (0xFFFFFFFE, 5, 0, 0)),
        ("string length", b"\xff\xff", (-1, 2, 0, 0)),
        ("string length", b"\x00\x02ab", (2, 2, 0, 0)),
        ("string length", b"\x00\x03ab", (-1, 0, TRUNCATED, 3)),
        ("string length", b"\xff\xfe", (-1, 0, LENGTH, -2)),
        ("compact string length", b"\x00", (-1, 1, 0, 0)),
        ("compact string length", b"\x03ab", (2, 1, 0, 0)),
        ("compact string length", b"\x04ab", (-1, 0, TRUNCATED, 3)),
        ("compact string length", b"\x80\x80\x02" + bytes(0x7FFF), (0x7FFF, 3, 0, 0)),
        ("compact string length", b"\x81\x80\x02" + bytes(0x8000), (-1, 0, LENGTH, 0x8000)),
        ("uuid", bytes(range(16)), (bytes(range(16)), 16, 0, 0)),
        ("uuid", bytes(15), (None, 0, TRUNCATED, 16)),
        ("tagged fields", b"\x00", (0, 1, 0, 0)),
        ("tagged fields", b"\x02\x00\x02ab\x07\x00rest", (0, 7, 0, 0)),
        ("tagged fields", b"\x01\x00\x03ab", (TRUNCATED, 3, TRUNCATED, 3)),
        ("tagged fields", b"\xff\xff\xff\xff\x0f", (TRUNCATED, 5, TRUNCATED, 1)),
    ],
)
def test_lengths_and_sections_are_checked(probe: Any, kind: str, data: bytes, result: tuple) -> None:
    assert probe.read(kind, data) == result
    if result[2] == 0 and kind.endswith("length") and result[0] < 2**31:
        assert probe.write([(kind, result[0])]) == data[: result[1]]


def test_bytes_are_read_in_place_and_the_first_error_stays(probe: Any) -> None:
    assert probe.read("bytes", b"abcdef", 2, 3) == (b"cde", 5, 0, 0)
    assert probe.read("bytes", b"abcdef", 2, 4, 0) == (b"", 6, 0, 0)
    assert probe.read("bytes", b"abcdef", 2, 5, 99, -1) == (None, 2, TRUNCATED, 5)
    assert probe.read("bytes", b"abcdef", -1, 7) == (None, 0, LENGTH, -1)
    assert probe.read("bytes", b"abcdef", 2**62) == (None, 0, TRUNCATED, 2**62)


def test_a_buffer_grows_and_keeps_its_content(probe: Any) -> None:
    parts = [bytes([i % 256]) * i for i in range(300)]
    assert probe.write([("bytes", part) for part in parts]) == b"".join(parts)
    assert probe.write([("bytes", b"")]) == b""


def test_a_buffer_beyond_its_limit_has_an_error_and_is_not_changed(probe: Any) -> None:
    assert probe.write_too_much() == (True, 1, 4)
