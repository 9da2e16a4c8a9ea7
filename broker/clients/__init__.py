"""Client-side tools on top of client libraries; nothing here runs in the broker.

`ParallelConsumer` and `ProcessingFailed` are fetched when they are first named, so that the rest needs no client library.
"""

from typing import Any

__all__ = ["ParallelConsumer", "ProcessingFailed"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from broker.clients import parallel_consumer

        return getattr(parallel_consumer, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
