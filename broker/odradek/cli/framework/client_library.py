"""Imports and configures confluent-kafka for `produce`, `consume` and `demo`, and formats its errors as one line."""

import logging
import time
from collections.abc import Mapping
from typing import Any

from odradek.cli.framework.failure import fail
from odradek.cli.framework.interrupt import Interruption
from odradek.cli.framework.options import command_security
from odradek.clients.errors import INSTALL_LIBRARY

LONGEST_POLL_S = 0.1
"""Seconds. A signal does not interrupt a poll of librdkafka, so this is the longest delay of Ctrl-C."""
_QUIET = logging.Logger("librdkafka", logging.CRITICAL + 1)


def library() -> Any:
    """Return the module `confluent_kafka`. Ends the command with the installation command if it is not installed."""
    try:
        import confluent_kafka
    except ImportError:
        fail(f"this option needs confluent-kafka, which is not installed: {INSTALL_LIBRARY}")
    return confluent_kafka


def client_config(servers: str, extra: Mapping[str, str]) -> dict[str, Any]:
    """The configuration of a producer or consumer, with the security settings of --command-config.

    :param extra: librdkafka's settings; they override the others. Raises ClientError.
    """
    settings = {"bootstrap.servers": servers, "client.id": "odradek", "log_level": 0}
    if not extra.keys() & {"debug", "log_level"}:
        settings["logger"] = _QUIET  # what is left is a fatal error, which the command reports itself
    return settings | command_security().librdkafka() | dict(extra)


def flush(producer: Any, timeout_s: float, interruption: Interruption, after_signal_s: float = 0.0) -> int:
    """Wait until the broker has acknowledged or rejected all records; return the number without a result.

    :param timeout_s: the longest time to wait, in seconds.
    :param after_signal_s: the longest time to wait after a signal has arrived, in seconds.
    """
    began = time.monotonic()
    signalled: float | None = None
    while unanswered := len(producer):
        now = time.monotonic()
        if interruption.signalled and signalled is None:
            signalled = now
        left = began + timeout_s - now if signalled is None else signalled + after_signal_s - now
        if left <= 0:
            break
        producer.flush(min(LONGEST_POLL_S, left))
    return unanswered


def error_text(error: Any) -> str:
    """A KafkaError as one line."""
    return f"{' '.join(str(error.str()).split()).rstrip('.')} ({error.name().lstrip('_')})"
