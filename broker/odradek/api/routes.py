"""The routes of requests that workers forward to the coordinator: the table of APIs in the form that the native path needs."""

from odradek._ext.net.forwarding import Route
from odradek.api.api import FORWARDED
from odradek.api.table import served_rows


def routes_of(clustered: bool) -> dict[tuple[int, int], Route]:
    """The routes by API key and version, of a broker in a cluster or of a single broker."""
    return {
        (row.key, version): Route(
            row.name,
            row.patience_s,
            row.error[version - row.min_version],
            row.pipelined_from is not None and version >= row.pipelined_from,
            row.of_brokers,
        )
        for row in served_rows(clustered).values()
        if row.place in FORWARDED
        for version in range(row.min_version, row.max_version + 1)
    }


ROUTES = routes_of(clustered=False)
"""The routes of a single broker."""
