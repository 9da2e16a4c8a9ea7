"""This broker says in each conversation what Apache Kafka 4.3 said; `recorded.py` lists what differs on purpose.

Rows that hold markers back need a second broker: `test_held_markers.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache
from typing import Any

import pytest

from odradek.testing import Broker
from tests.transactions_against_kafka import exhausting, expiring, recorded, tooling
from tests.transactions_against_kafka.sides import CONFIG, Row, Rows, Side, odradek
from tests.transactions_against_kafka.table import EXHAUSTED, EXPIRING, TABLE, TOOLS

pytestmark = [pytest.mark.xdist_group("transactions-as-kafka"), pytest.mark.timeout(300)]
record = cache(recorded.read)


def cases() -> list[Any]:
    """Each row with the name of its module, the highest level first."""
    rows = [(name, row) for name, rows in TABLE.items() for row in rows if not row.holds]
    rows.sort(key=lambda case: -case[1].level)
    return [pytest.param(name, row, id=f"{name}-{row.name}") for name, row in rows]


def of(rows: Rows) -> Any:
    """A parameter for each row that holds no markers."""
    return pytest.mark.parametrize("row", [row for row in rows if not row.holds], ids=lambda row: row.name)


@pytest.fixture(scope="module")
def side(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    with odradek(tmp_path_factory.mktemp("odradek")) as side:
        yield side


@pytest.fixture(scope="module")
def exhausted_side(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    with ExitStack() as stack:
        broker = stack.enter_context(Broker(CONFIG, directory=tmp_path_factory.mktemp("exhausted")))
        with Side.of(broker) as first:
            names = exhausting.prepare(first, EXHAUSTED)
        broker.kill()
        exhausting.exhaust(broker.data_dir, names)
        broker.start()
        yield stack.enter_context(Side.of(broker))


@pytest.fixture(scope="module")
def expiring_side(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    with ExitStack() as stack:
        config = CONFIG | expiring.CONFIG
        broker = stack.enter_context(Broker(config, directory=tmp_path_factory.mktemp("expiring")))
        with Side.of(broker) as first:
            prepared = expiring.prepare(first, EXPIRING)
        broker.kill()
        expiring.expire(broker.data_dir, prepared)
        broker.start()
        side = stack.enter_context(Side.of(broker))
        side.prepared = prepared
        yield side


@pytest.fixture(scope="module")
def tooling_side(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    with odradek(tmp_path_factory.mktemp("tooling"), tooling.CONFIG) as side:
        yield side


def check(side: Side, name: str, row: Row) -> None:
    found = recorded.differences(row, side.transcript_of(row), record(name)[row.name])
    assert not found, "\n".join(found)


@pytest.mark.parametrize(("name", "row"), cases())
def test_the_responses_are_kafkas(side: Side, name: str, row: Row) -> None:
    check(side, name, row)


@of(EXHAUSTED)
def test_the_responses_are_kafkas_when_epochs_run_out(exhausted_side: Side, row: Row) -> None:
    check(exhausted_side, "exhausting", row)


@of(EXPIRING)
def test_the_responses_are_kafkas_when_ids_expire(expiring_side: Side, row: Row) -> None:
    check(expiring_side, "expiring", row)


@pytest.mark.java
@of(TOOLS)
def test_kafkas_tools_print_what_they_print_of_kafka(tooling_side: Side, row: Row) -> None:
    check(tooling_side, "tooling", row)
