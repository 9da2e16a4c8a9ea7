"""Fixtures for pytest, which loads them by their entry point if Odradek is installed. They run in the process of the test.

``odradek_broker``: a broker with default configuration for one test. ``odradek_broker_factory``: a function that starts
brokers with any configuration and topics; they end with the test. ``odradek_shared_broker``: one broker for the session, for
tests that each use different topics. The report of a test that fails contains what its brokers logged during the test.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from odradek.testing.broker_process import Broker

BrokerFactory = Callable[..., "Broker"]
_OF_TEST, _OF_SESSION = pytest.StashKey["list[Broker]"](), pytest.StashKey["list[Broker]"]()
_LOGGED_BEFORE = pytest.StashKey["dict[Broker, int]"]()
"""The sizes of the logs of the session's brokers when a test began."""


@pytest.fixture
def odradek_broker_factory(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerFactory]:
    """A function with the arguments of ``odradek.testing.Broker``, which starts a broker that ends with the test."""
    with ExitStack() as brokers:
        yield _factory(brokers, tmp_path_factory, request.node.stash.setdefault(_OF_TEST, []))


@pytest.fixture
def odradek_broker(odradek_broker_factory: BrokerFactory) -> Broker:
    """A running broker with default configuration, for one test."""
    return odradek_broker_factory()


@pytest.fixture(scope="session")
def odradek_shared_broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A running broker for all tests of the session (of one worker of pytest-xdist)."""
    with ExitStack() as brokers:
        yield _factory(brokers, tmp_path_factory, request.session.stash.setdefault(_OF_SESSION, []))()


def _factory(brokers: ExitStack, directories: pytest.TempPathFactory, started: list[Broker]) -> BrokerFactory:
    def start(*arguments: Any, **options: Any) -> Broker:
        from odradek.testing.broker_process import Broker  # imported here, so that an unused plugin costs nothing

        options.setdefault("directory", directories.mktemp("odradek"))
        broker = brokers.enter_context(Broker(*arguments, **options))
        started.append(broker)
        return broker

    return start


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Note where the logs of the session's brokers end before the test."""
    shared = item.session.stash.get(_OF_SESSION, None) or []
    item.stash[_LOGGED_BEFORE] = {broker: broker.log_bytes for broker in shared}


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    """Add to the report of a failed test what its brokers have logged; ``--show-capture=no`` hides it."""
    report = (yield).get_result()
    if not report.failed:
        return
    own: list[Broker] = item.stash.get(_OF_TEST, [])
    shared: list[Broker] = item.session.stash.get(_OF_SESSION, [])
    uses_shared = "odradek_shared_broker" in getattr(item, "fixturenames", ())
    before = item.stash.get(_LOGGED_BEFORE, {})
    for broker in (*own, *(shared if uses_shared else ())):
        logged = broker.log_tail(before.get(broker, 0))
        if logged:
            report.sections.append((f"Log of the broker at {broker.bootstrap_servers}: {broker.log_file}", logged))
