"""The broker that wire tests share, one for each module, and connections to it."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from odradek.testing import Broker
from tests.wire import Wire

_numbers = itertools.count()


@pytest.fixture(scope="module")
def wire_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Two workers, so that what one appends wakes who waits in the other."""
    config = {
        "num.network.threads": 2,
        "log.index.interval.bytes": 64,
        "auto.create.topics.enable": "true",
        "group.consumer.max.assignment.interval.ms": 3_600_000,
    }
    with Broker(config, directory=tmp_path_factory.mktemp("wire")) as broker:
        yield broker


@pytest.fixture
def connect(wire_broker: Broker) -> Iterator[Callable[[], Wire]]:
    """Opens connections, which end with the test."""
    with ExitStack() as open_ones:
        yield lambda: open_ones.enter_context(Wire(wire_broker.host, wire_broker.port))


@pytest.fixture
def wire(connect: Callable[[], Wire]) -> Wire:
    """A connection."""
    return connect()


@pytest.fixture
def name() -> str:
    """A topic's name that no other test has."""
    return f"topic-{next(_numbers)}"
