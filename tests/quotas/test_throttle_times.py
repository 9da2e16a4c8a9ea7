"""The throttle time in encoded responses: at the place where the schemas of every served version have it."""

import pytest

from odradek._ext.net.connection import set_throttle_positions, with_throttle_time
from odradek.api.cluster.api_versions import supported
from odradek.api.table import BY_KEY, throttle_positions
from odradek.protocol import decode, encode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.registry import by_key
from odradek.protocol.schemas.header import response_header_version

NATIVE, API_VERSIONS = {0, 1}, 18
WAIT_MS = 0x01020304
SERVED = [
    (row.key, version)
    for row in BY_KEY.values()
    if row.key not in NATIVE and row.key < 128
    for version in range(row.min_version, row.max_version + 1)
]


def has_throttle_time(key, version):
    return any(
        item.attribute == "throttle_time_ms" and version in item.versions
        for item in by_key(key).response._structure.fields
    )


@pytest.mark.parametrize("key", sorted({key for key, _ in SERVED} - {API_VERSIONS}))
def test_the_throttle_time_is_stored_where_the_schema_has_it(key):
    set_throttle_positions(throttle_positions())
    for version in (version for other, version in SERVED if other == key):
        head = bytes(4 + response_header_version(key, version))
        plain = encode(by_key(key).response(), version)
        patched = with_throttle_time(head + plain, key, version, WAIT_MS)
        assert patched[: len(head)] == head and len(patched) == len(head) + len(plain)
        decoded, end = decode(by_key(key).response, version, patched, len(head))
        assert end == len(patched)
        expected = by_key(key).response()
        if has_throttle_time(key, version):
            expected.throttle_time_ms = WAIT_MS
        assert encode(decoded, version) == encode(expected, version), (key, version)


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("apis", [None, 1, 126, 127, 128, 500])
def test_api_versions_has_it_behind_its_list(version, apis):
    response = supported(ErrorCode.NONE, clustered=True)
    if apis is not None:
        response.api_keys = [response.api_keys[0]] * apis
    patched = with_throttle_time(bytes(4) + encode(response, version), API_VERSIONS, version, WAIT_MS)
    if version:
        response.throttle_time_ms = WAIT_MS
    assert patched == bytes(4) + encode(response, version)


def test_a_response_that_is_too_short_is_left_alone():
    set_throttle_positions(throttle_positions())
    assert with_throttle_time(b"\0" * 7, 3, 9, WAIT_MS) == b"\0" * 7
    assert with_throttle_time(b"\0" * 7, API_VERSIONS, 3, WAIT_MS) == b"\0" * 7
    assert with_throttle_time(b"abcdefgh", 999, 0, WAIT_MS) == b"abcdefgh"


@pytest.mark.parametrize("version", [5, 6, 99, 32767])
def test_the_error_for_a_version_of_api_versions_that_is_not_known_is_left_alone(version):
    """It is encoded in version 0; its correlation id is at the place that a newer version's length would give."""
    response = b"\1\2\3\4" + encode(supported(ErrorCode.UNSUPPORTED_VERSION, clustered=False), 0)
    assert with_throttle_time(response, API_VERSIONS, version, WAIT_MS) == response


@pytest.mark.parametrize(("key", "version"), [(20101, 0), (-1, 0), (3, 99), (3, -1)])
def test_a_position_for_which_there_is_no_room_is_refused(key, version):
    """It would be written into the memory behind the table."""
    with pytest.raises(ValueError, match="no room"):
        set_throttle_positions({(key, version): 4})
