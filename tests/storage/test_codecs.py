"""The codecs have one table for Python and one for native code, and the two are equal."""

import ast
import re
from pathlib import Path

import pytest

import odradek
from odradek import codecs
from odradek._ext.records import record_batch
from odradek.codecs import CODECS
from odradek.config.key import OneOf, Range
from odradek.config.keys import broker, group, topic
from odradek.protocol.errors import ErrorCode
from odradek.storage import compression
from tests.wire import batch, with_crc

PACKAGE = Path(odradek.__file__).parent
NATIVE = PACKAGE / "_ext"  # also in the copy of a variant
TABLE = (NATIVE / "records/codecs.pxd").read_text()
BY_NAME = {codec.name.upper(): codec for codec in CODECS}


def body_of(function: str) -> str:
    return re.search(rf'int? {function}\(int codec\).*?"""\n    return (.*?)\n', TABLE, re.S).group(1)


def test_the_rows_are_in_the_order_of_the_numbers():
    assert [codec.number for codec in CODECS] == list(range(len(CODECS)))
    assert all(getattr(codecs, codec.name.upper()) == codec.number for codec in CODECS)
    assert list(codecs.COMPRESSION_TYPES.values()).count(codecs.AS_SENT) == 1
    assert sorted(codecs.COMPRESSION_TYPES.values()) == [*range(len(CODECS)), codecs.AS_SENT]


def test_native_code_has_the_same_numbers():
    numbers = {name: int(value, 0) for name, value in re.findall(r"^    CODEC_(\w+) = (\w+)", TABLE, re.M)}
    assert numbers.pop("MASK") >= len(CODECS)
    assert numbers.pop("AS_SENT") == codecs.AS_SENT
    assert numbers == {name: codec.number for name, codec in BY_NAME.items()}


@pytest.mark.parametrize("gate", ["first_produce", "first_fetch"])
def test_native_code_has_the_same_versions(gate):
    expected = {codec.name.upper(): getattr(codec, gate) for codec in CODECS if getattr(codec, gate)}
    found = re.findall(r"(\d+) if codec == CODEC_(\w+) else ", body_of(gate))
    assert {name: int(version) for version, name in found} == expected
    assert body_of(gate).endswith(" else 0")


def test_native_code_has_the_same_codecs_of_messages():
    assert body_of("is_codec") == f"codec <= CODEC_{CODECS[-1].name.upper()}"
    last = max(codec.number for codec in CODECS if codec.in_messages)
    assert body_of("is_codec_of_messages") == f"codec <= CODEC_{CODECS[last].name.upper()}"
    assert [codec.in_messages for codec in CODECS] == [codec.number <= last for codec in CODECS]


@pytest.mark.parametrize("number", range(8))
def test_a_batch_may_have_exactly_the_codecs_of_the_table(number):
    data = bytearray(batch(b"value"))
    data[22] |= number
    error, _ = record_batch.check(with_crc(data))
    assert (error == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE) == (number >= len(CODECS))
    packed = compression.COMPRESSORS[number](b"value", None) if number < len(CODECS) else b"value"
    if number < len(CODECS):
        assert compression.decompress(number, packed, 100) == b"value"
    else:
        with pytest.raises(compression.CorruptCompressedDataError):
            compression.decompress(number, packed, 100)


def test_keys_of_the_configuration_follow_the_table():
    keys = {key.name: key for keys in (broker.KEYS, topic.KEYS, group.KEYS) for key in keys}
    for table in (broker.KEYS, topic.KEYS):
        own = {key.name: key for key in table}
        assert own["compression.type"].allowed == OneOf(tuple(codecs.COMPRESSION_TYPES))
        leveled = {name.split(".")[1] for name in own if re.fullmatch(r"compression\.\w+\.level", name)}
        assert leveled == {codec.name for codec in CODECS} - {"none", "snappy"}, "snappy has no levels"
        assert own["compression.lz4.level"].default == compression.LZ4_DEFAULT_LEVEL
        assert own["compression.zstd.level"].default == compression.ZSTD_DEFAULT_LEVEL
    assert keys["offsets.topic.compression.codec"].allowed == Range(0, CODECS[-1].number)


def test_no_other_file_of_python_lists_the_codecs():
    names = {codec.name for codec in CODECS if codec.number != codecs.NONE}
    found = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.Tuple, ast.List, ast.Set, ast.Dict)):
                values = [*node.keys, *node.values] if isinstance(node, ast.Dict) else node.elts
                if len(names & {value.value for value in values if isinstance(value, ast.Constant)}) > 2:
                    found.add(path.relative_to(PACKAGE).as_posix())
            elif (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and all(name in node.value for name in names)
            ):
                found.add(path.relative_to(PACKAGE).as_posix())
    assert found == {"storage/compression.py"}, "which has their functions, and names their formats"


def test_no_other_file_of_native_code_knows_which_codecs_there_are():
    """Comparisons by order would have to be found for each new codec; numbers are defined once."""
    found = [
        f"{path.relative_to(NATIVE)}: {line.strip()}"
        for path in sorted(NATIVE.glob("*/*.p[yx][xd]"))
        if path.name != "codecs.pxd"
        for line in path.read_text().splitlines()
        if re.search(r"[<>]=? *CODEC_\w|\bCODEC_\w+ [<>]|\bCODEC_(GZIP|SNAPPY|LZ4|ZSTD) = |codec [<>]=? *\d", line)
    ]
    assert not found
