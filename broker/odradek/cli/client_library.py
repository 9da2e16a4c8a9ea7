"""confluent-kafka for `produce` and `consume`: found or asked for, configured, its errors in one line."""

import time
from collections.abc import Mapping
from typing import Any

from odradek.cli.failure import fail
from odradek.cli.interrupt import Interruption
from odradek.clients.errors import INSTALL_LIBRARY

LONGEST_POLL_S = 0.1
"""A poll of librdkafka runs to its end whatever signals come; this is how long Ctrl-C may have to wait."""


def library() -> Any:
    """The module. Ends the command with what to install if it is not there."""
    try:
        import confluent_kafka
    except ImportError:
        fail(f"this needs confluent-kafka: {INSTALL_LIBRARY}")
    return confluent_kafka


def client_config(servers: str, extra: Mapping[str, str]) -> dict[str, Any]:
    """What both kinds of client are given; `extra` are librdkafka's own settings and win."""
    return {"bootstrap.servers": servers, "client.id": "odradek", "log_level": 0} | dict(extra)


def flush(producer: Any, timeout_s: float, interruption: Interruption, after_signal_s: float = 0.0) -> int:
    """Wait until all records are answered or the time is over; how many are not answered.

    :param after_signal_s: the time once a signal has come.
    """
    began = time.monotonic()
    signalled: float | None = None
    while unanswered := len(producer):
        now = time.monotonic()
        if interruption.wanted and signalled is None:
            signalled = now
        left = began + timeout_s - now if signalled is None else signalled + after_signal_s - now
        if left <= 0:
            break
        producer.flush(min(LONGEST_POLL_S, left))
    return unanswered


def in_words(error: Any) -> str:
    """A KafkaError in one line."""
    return f"{' '.join(str(error.str()).split()).rstrip('.')} ({error.name().lstrip('_')})"
