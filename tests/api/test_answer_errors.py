"""Which error code an encoded response carries, as the counting of forwarded requests reads it."""

import pytest
from broker._ext.encoder import encode

from broker.api.answer_errors import top_level_error
from broker.api.dispatch import frame_response
from broker.api.table import BY_KEY
from broker.protocol.registry import by_key

KNOWN = (11, 12, 13, 14, 16, 22, 47, 68)


@pytest.mark.parametrize("key", KNOWN)
def test_the_error_code_is_found_in_every_version(key: int) -> None:
    row = BY_KEY[key]
    for version in range(row.min_version, row.max_version + 1):
        for code in (0, 27, -1):
            response = by_key(key).response(error_code=code)
            assert top_level_error(key, version, frame_response(row, version, 7, response)) == code
            assert len(encode(response, version)) >= 2


def test_of_others_nothing_is_known() -> None:
    assert top_level_error(19, 5, b"\0" * 40) == 0
