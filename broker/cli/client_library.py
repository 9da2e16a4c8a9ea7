"""confluent-kafka for `produce` and `consume`: found or asked for, configured, its errors in one line."""

from collections.abc import Mapping
from typing import Any

from broker.cli.failure import fail

INSTALL = "pip install 'odradek[clients]'"


def library() -> Any:
    """The module. Ends the command with what to install if it is not there."""
    try:
        import confluent_kafka
    except ImportError:
        fail(f"this needs confluent-kafka; install it: {INSTALL}")
    return confluent_kafka


def client_config(servers: str, extra: Mapping[str, str]) -> dict[str, Any]:
    """What both kinds of client are given; `extra` are librdkafka's own settings and win."""
    return {"bootstrap.servers": servers, "client.id": "odradek", "log_level": 0} | dict(extra)


def in_words(error: Any) -> str:
    """A KafkaError in one line."""
    return f"{' '.join(str(error.str()).split()).rstrip('.')} ({error.name().lstrip('_')})"
