"""The command against a broker of ours that the tests of a worker share, each with topics and groups of its own."""

import itertools

import pytest

from odradek.testing import Broker
from tests.cli.command import Command

NEVER_MS = 86_400_000
_numbers = itertools.count()


@pytest.fixture(scope="session")
def cli_broker(tmp_path_factory):
    config = {
        "group.initial.rebalance.delay.ms": 0,
        "auto.create.topics.enable": "false",
        "log.initial.task.delay.ms": NEVER_MS,  # so that retention deletes nothing between two commands of a test
    }
    with Broker(config, directory=tmp_path_factory.mktemp("cli")) as broker:
        yield broker


@pytest.fixture
def odradek(cli_broker):
    """The command, with the broker in its environment."""
    return Command(cli_broker.bootstrap_servers)


@pytest.fixture
def name():
    """A name for topics and groups that no other test has."""
    return f"cli-{next(_numbers)}"
