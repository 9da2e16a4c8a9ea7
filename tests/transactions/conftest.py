"""Fixtures of the coordinator without I/O; see `by_hand`."""

import pytest

from tests.transactions.by_hand import BILLS, ID, NONE, ORDERS, Process


@pytest.fixture
def process():
    return Process()


@pytest.fixture
def ongoing(process):
    """A process in which the id `t` has an ongoing transaction of two partitions."""
    assert process.init().answer == (NONE, ID, 0)
    assert process.add(ID, 0, ORDERS, BILLS).answer == (NONE, [NONE, NONE])
    return process
