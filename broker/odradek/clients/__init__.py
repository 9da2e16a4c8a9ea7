"""The client side of the protocol, and tools on top of client libraries; nothing here runs in the broker.

`wire` is one synchronous connection, `cluster` finds who answers a request: the command speaks with them to any Kafka broker,
and imports next to nothing.
`ParallelConsumer` and `ProcessingFailed` are fetched when they are first named, so that the rest needs no client library.
"""

from typing import Any

__all__ = ["ParallelConsumer", "ProcessingFailed"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from odradek.clients import parallel_consumer

        return getattr(parallel_consumer, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
