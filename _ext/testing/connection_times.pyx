"""Tests of limits of time set when a connection was last active, instead of waiting."""

from libc.stdint cimport int64_t

from odradek._ext.net.connection cimport Connection


def set_last_activity(Connection connection not None, int64_t at_ms) -> None:
    """Let the connection have sent or received its last byte at this time of CLOCK_MONOTONIC."""
    connection.last_activity_ms = at_ms
