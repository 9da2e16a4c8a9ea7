"""This broker says in each conversation what Apache Kafka 4.3 said; `recorded.py` lists what differs on purpose.

Rows that hold markers back need a second broker: `test_held_markers.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache

import pytest

from odradek.testing import Broker
from tests.transactions_against_kafka import exhausting, expiring, recorded
from tests.transactions_against_kafka.sides import CONFIG, Row, Side
from tests.transactions_against_kafka.table import EXHAUSTED, EXPIRING, TABLE

pytestmark = [pytest.mark.xdist_group("transactions-as-kafka"), pytest.mark.timeout(300)]
record = cache(recorded.read)


def cases() -> list[object]:
    """Each row with the name of its module, the highest level first."""
    rows = [(name, row) for name, rows in TABLE.items() for row in rows if not row.holds]
    rows.sort(key=lambda case: -case[1].level)
    return [pytest.param(name, row, id=f"{name}-{row.name}") for name, row in rows]


@pytest.fixture(scope="module")
def side(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    with ExitStack() as stack:
        broker = stack.enter_context(Broker(CONFIG, directory=tmp_path_factory.mktemp("odradek")))
        yield Side(broker.host, broker.port, broker, stack)


@pytest.fixture(scope="module")
def exhausted_side(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    with ExitStack() as stack:
        broker = stack.enter_context(Broker(CONFIG, directory=tmp_path_factory.mktemp("exhausted")))
        with ExitStack() as first:
            names = exhausting.prepare(Side(broker.host, broker.port, broker, first), EXHAUSTED)
        broker.kill()
        exhausting.exhaust(broker.data_dir, names)
        broker.start()
        yield Side(broker.host, broker.port, broker, stack)


@pytest.fixture(scope="module")
def expiring_side(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    with ExitStack() as stack:
        config = CONFIG | expiring.CONFIG
        broker = stack.enter_context(Broker(config, directory=tmp_path_factory.mktemp("expiring")))
        yield Side(broker.host, broker.port, broker, stack)


def check(side: Side, name: str, row: Row) -> None:
    found = recorded.differences(row, side.transcript_of(row), record(name)[row.name])
    assert not found, "\n".join(found)


@pytest.mark.parametrize(("name", "row"), cases())
def test_the_responses_are_kafkas(side: Side, name: str, row: Row) -> None:
    check(side, name, row)


@pytest.mark.parametrize("row", [row for row in EXHAUSTED if not row.holds], ids=lambda row: row.name)
def test_the_responses_are_kafkas_when_epochs_run_out(exhausted_side: Side, row: Row) -> None:
    check(exhausted_side, "exhausting", row)


@pytest.mark.parametrize("row", EXPIRING, ids=lambda row: row.name)
def test_the_responses_are_kafkas_when_ids_expire(expiring_side: Side, row: Row) -> None:
    check(expiring_side, "expiring", row)
