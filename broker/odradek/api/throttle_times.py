"""Where responses contain their throttle time.

A worker stores the throttle time in an encoded response, because it is known only when the response is complete, and because
the coordinator encodes some responses (`with_throttle_time`, `Pending.complete_framed`). Native code writes that of Produce and
Fetch, and finds that of ApiVersions, which follows a list. The table is written down, because the schemas of all APIs would
take memory in each
worker; a test compares it with the schemas.
"""

from odradek.api.table import BY_KEY

# fmt: off
_FIRST_AND_FLEXIBLE = {
    2: (2, 6), 3: (3, 9), 8: (3, 8), 9: (3, 6), 10: (1, 3), 11: (2, 6), 12: (1, 4), 13: (1, 4), 14: (1, 4),
    15: (1, 5), 16: (1, 3), 19: (2, 5), 20: (1, 4), 21: (0, 2), 22: (0, 2), 23: (2, 4), 24: (0, 3),
    25: (0, 3), 26: (0, 3), 28: (0, 3), 29: (0, 2), 30: (0, 2), 31: (0, 2), 32: (0, 4), 33: (0, 2),
    34: (0, 2), 35: (0, 2), 37: (0, 2), 42: (0, 2), 43: (0, 2), 44: (0, 1), 45: (0, 0), 46: (0, 0),
    48: (0, 1), 49: (0, 1), 50: (0, 0), 51: (0, 0), 56: (0, 0), 57: (0, 0), 60: (0, 0), 61: (0, 0), 65: (0, 0),
    66: (0, 0), 67: (0, 0), 68: (0, 0), 69: (0, 0), 74: (0, 0), 75: (0, 0),
}
# fmt: on
"""By API key: the first version whose response contains the throttle time, as its first field, and the first flexible
version."""
CORRELATION_BYTES, TAGS_BYTES, THROTTLE_BYTES = 4, 1, 4
_LAST_AND_FLEXIBLE = {38: (0, 2), 39: (0, 2), 40: (0, 2), 41: (0, 2)}
"""The same for the APIs of delegation tokens, whose responses contain it as their last field."""
_AT_OTHER_PLACES = {(47, 0): 6}
"""Of OffsetDelete it follows the error code."""


def throttle_positions() -> dict[tuple[int, int], int]:
    """The position of the throttle time in the responses of all served versions, by (API key, version): bytes from the
    beginning of the response's header; negative: from the end. Responses without it, and those that native code handles, are
    omitted."""
    last = {
        (key, version): -THROTTLE_BYTES - (TAGS_BYTES if version >= flexible else 0)
        for key, (first, flexible) in _LAST_AND_FLEXIBLE.items()
        for version in range(first, BY_KEY[key].max_version + 1)
    }
    return (
        _AT_OTHER_PLACES
        | last
        | {
            (key, version): CORRELATION_BYTES + (TAGS_BYTES if version >= flexible else 0)
            for key, (first, flexible) in _FIRST_AND_FLEXIBLE.items()
            for version in range(first, BY_KEY[key].max_version + 1)
        }
    )
