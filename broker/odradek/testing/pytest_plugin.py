"""Fixtures for pytest, which loads them by their entry point if Odradek is installed. They run in the process of the test.

``odradek_broker``: a broker with default configuration for one test. ``odradek_broker_factory``: a function that starts
brokers with any configuration and topics; they end with the test. ``odradek_shared_broker``: one broker for the session, for
tests that each use different topics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from odradek.testing.broker_process import Broker

BrokerFactory = Callable[..., "Broker"]


@pytest.fixture
def odradek_broker_factory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerFactory]:
    """A function with the arguments of ``odradek.testing.Broker``, which starts a broker that ends with the test."""
    with ExitStack() as brokers:
        yield _factory(brokers, tmp_path_factory)


@pytest.fixture
def odradek_broker(odradek_broker_factory: BrokerFactory) -> Broker:
    """A running broker with default configuration, for one test."""
    return odradek_broker_factory()


@pytest.fixture(scope="session")
def odradek_shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A running broker for all tests of the session (of one worker of pytest-xdist)."""
    with ExitStack() as brokers:
        yield _factory(brokers, tmp_path_factory)()


def _factory(brokers: ExitStack, directories: pytest.TempPathFactory) -> BrokerFactory:
    def start(*arguments: Any, **options: Any) -> Broker:
        from odradek.testing.broker_process import Broker  # imported here, so that an unused plugin costs nothing

        options.setdefault("directory", directories.mktemp("odradek"))
        return brokers.enter_context(Broker(*arguments, **options))

    return start
