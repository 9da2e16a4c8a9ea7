"""The routes of requests that workers forward to the coordinator: the table of APIs in the form that the native path needs."""

from odradek._ext.net.forwarding import Route
from odradek.api.answer_errors import error_position
from odradek.api.table import Where, served_rows

OFFSET_COMMIT = 8


def follows(key: int, version: int) -> bool:
    """Whether a request may be forwarded before earlier requests of its kind, of the same connection, are answered.

    This holds for commits to `__consumer_offsets`, because they are appended and answered in the order of arrival.
    """
    return key == OFFSET_COMMIT and version > 0


FORWARDED = (Where.COORDINATOR, Where.CONTROLLER, Where.REPLICAS, Where.GROUPS, Where.TRANSACTIONS)


def routes_of(clustered: bool) -> dict[tuple[int, int], Route]:
    """The routes by API key and version, of a broker in a cluster or of a single broker."""
    return {
        (row.key, version): Route(
            row.name,
            row.patience_s,
            error_position(row.key, version),
            follows(row.key, version),
            row.of_brokers,
        )
        for row in served_rows(clustered).values()
        if row.where in FORWARDED
        for version in range(row.min_version, row.max_version + 1)
    }


ROUTES = routes_of(clustered=False)
"""The routes of a single broker."""
