"""The constants of native code are those of the Python tables, which the tests compare with Kafka's definitions."""

import re
from pathlib import Path

import odradek
from odradek.api.table import APIS
from odradek.protocol.errors import ErrorCode
from odradek.protocol.registry import ALL_KEYS, by_key

PROTOCOL = Path(odradek.__file__).parent / "_ext/protocol"


def constants(name: str) -> dict[str, int]:
    """The enum members that a `.pxd` file defines."""
    return {
        key: int(value) for key, value in re.findall(r"(?m)^    ([A-Z][A-Z_]+) = (\d+)", (PROTOCOL / name).read_text())
    }


def test_error_codes_have_the_numbers_of_their_names() -> None:
    errors = constants("kafka_errors.pxd")
    assert errors.pop("NO_ERROR") == ErrorCode.NONE
    assert errors == {name: int(ErrorCode[name]) for name in errors}


def test_keys_newest_and_flexible_versions_are_those_of_the_tables() -> None:
    newest = {row.key: row.max_version for row in APIS}
    expected = {}
    for key in ALL_KEYS:
        name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", by_key(key).name).upper()
        expected |= {name: key, f"{name}_NEWEST": newest.get(key), f"{name}_FLEXIBLE": by_key(key).flexible_since}
    found = constants("api_versions.pxd")
    assert "PRODUCE_NEWEST" in found
    assert found == {name: expected[name] for name in found}
