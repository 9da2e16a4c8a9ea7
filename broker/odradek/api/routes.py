"""How a worker forwards what the coordinator serves: the table of APIs, as the native request path asks it."""

from odradek._ext.net.forwarding import Route
from odradek.api.answer_errors import error_position
from odradek.api.table import BY_KEY, Where

OFFSET_COMMIT = 8


def follows(key: int, version: int) -> bool:
    """Whether a request need not wait until those of its kind before it, of the same connection, are answered.

    So it is with commits to `__consumer_offsets`: they are appended, and answered, in the order in which they come.
    """
    return key == OFFSET_COMMIT and version > 0


ROUTES = {
    (row.key, version): Route(row.name, row.patience_s, error_position(row.key, version), follows(row.key, version))
    for row in BY_KEY.values()
    if row.where in (Where.COORDINATOR, Where.GROUPS)
    for version in range(row.min_version, row.max_version + 1)
}
"""By API key and version."""
