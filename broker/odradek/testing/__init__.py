"""A real broker for tests, which starts in a fraction of a second: a context manager and pytest fixtures. No Docker, no Java.

`Broker` and `BrokerError` are imported on first use, because the command imports the small modules `status` and
`process_tree` of this package, and must start fast.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from odradek.testing.broker_process import Broker, BrokerError

__all__ = ["Broker", "BrokerError"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from odradek.testing import broker_process

        return getattr(broker_process, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
