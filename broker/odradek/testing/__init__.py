"""A real broker for tests, in a fraction of a second: a context manager and pytest fixtures. No Docker, no Java.

Imported when asked for: the command uses what is small here (`status`, `process_tree`) and must answer at once.
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
