"""Fixtures: a broker that the tests of a worker share, and the command connected to it. Each test has its own name."""

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
    """The command, with the shared broker in its environment."""
    return Command(cli_broker.bootstrap_servers)


@pytest.fixture
def name():
    """A name for topics and groups, unique to the test."""
    return f"cli-{next(_numbers)}"
