"""A real broker for tests, in a fraction of a second: a context manager and pytest fixtures. No Docker, no Java."""

from broker.testing.broker_process import Broker, BrokerError

__all__ = ["Broker", "BrokerError"]
