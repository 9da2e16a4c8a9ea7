"""Apache Kafka 4.3 still says what is recorded of it. With ODRADEK_RECORD=1 in the environment the record is written anew.

The order of rows is that of levels, because each change of transaction.version takes a moment.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.transactions_against_kafka import exhausting, expiring, recorded, tooling
from tests.transactions_against_kafka.sides import Rows, Side, kafka
from tests.transactions_against_kafka.table import EXHAUSTED, EXPIRING, TABLE, TOOLS

pytestmark = [pytest.mark.xdist_group("transactions-of-kafka"), pytest.mark.timeout(900), pytest.mark.java]


@pytest.fixture(scope="module")
def side(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    with kafka(tmp_path_factory.mktemp("kafka")) as side:
        yield side


def compare(side: Side, name: str, rows: Rows) -> None:
    transcripts = {row.name: side.transcript_of(row).lines for row in sorted(rows, key=lambda row: -row.level)}
    assert len(transcripts) == len(rows), "two rows have one name"
    if os.environ.get("ODRADEK_RECORD"):
        recorded.write(name, transcripts)
    known = recorded.read(name)
    assert known.keys() == transcripts.keys()
    assert transcripts == known


@pytest.mark.parametrize("name", TABLE)
def test_kafka_says_what_is_recorded(side: Side, name: str) -> None:
    compare(side, name, TABLE[name])


def test_kafka_says_what_is_recorded_of_exhausted_epochs(tmp_path: Path) -> None:
    with kafka(tmp_path) as side:
        names = exhausting.prepare(side, EXHAUSTED)
        side.process.kill()
    exhausting.exhaust(side.process.data_dir, names)
    with kafka(tmp_path) as side:
        compare(side, "exhausting", EXHAUSTED)


def test_kafka_says_what_is_recorded_of_ids_that_expire(tmp_path: Path) -> None:
    with kafka(tmp_path) as side:
        prepared = expiring.prepare(side, EXPIRING)
        side.process.kill()
    expiring.expire(side.process.data_dir, prepared)
    with kafka(tmp_path, config=expiring.CONFIG) as side:
        side.prepared = prepared
        compare(side, "expiring", EXPIRING)


def test_kafka_says_what_is_recorded_to_its_tools(tmp_path: Path) -> None:
    with kafka(tmp_path, config=tooling.CONFIG) as side:
        compare(side, "tooling", TOOLS)
