"""The client side of the protocol, and tools on top of client libraries; nothing here runs in the broker.

`wire` is one synchronous connection; `cluster` finds the broker that serves a request. The command `odradek` uses both to
talk to any Kafka broker; they import little, so that the command starts fast. `ParallelConsumer` and `ProcessingFailed` are
imported at their first use, so that the other modules need no client library.
"""

from typing import Any

__all__ = ["ParallelConsumer", "ProcessingFailed"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from odradek.clients import parallel_consumer

        return getattr(parallel_consumer, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
