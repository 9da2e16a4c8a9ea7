"""Apache Kafka 4.3 still says what is recorded of it. With ODRADEK_RECORD=1 in the environment the record is written anew.

The order of rows is that of levels, because each change of transaction.version takes a moment.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.transactions_against_kafka import exhausting, recorded, state_log
from tests.transactions_against_kafka.sides import CONFIG, Rows, Side, kafka
from tests.transactions_against_kafka.table import EXHAUSTED, EXHAUSTED_NAME, TABLE

pytestmark = [pytest.mark.xdist_group("transactions-of-kafka"), pytest.mark.timeout(900), pytest.mark.java]


@pytest.fixture(scope="module")
def side(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Side]:
    with kafka(tmp_path_factory.mktemp("kafka")) as side:
        yield side


@pytest.fixture
def exhausted_side(tmp_path: Path) -> Iterator[Side]:
    with kafka(tmp_path) as side:
        names = exhausting.prepare(side, EXHAUSTED)
        side.process.kill()
    for name in names:
        state_log.change(side.process.data_dir, int(CONFIG["transaction.state.log.num.partitions"]), name, producer_epoch=exhausting.BEFORE)  # fmt: skip
    with kafka(tmp_path) as side:
        yield side


def compare(side: Side, name: str, rows: Rows) -> None:
    ordered = sorted(rows, key=lambda row: -row.level)
    transcripts = {row.name: side.transcript_of(row) for row in ordered}
    assert len(transcripts) == len(rows), "two rows have one name"
    if os.environ.get("ODRADEK_RECORD"):
        recorded.write(name, {row: transcript.lines for row, transcript in transcripts.items()})
    known = recorded.read(name)
    assert known.keys() == transcripts.keys()
    found = {row: transcript.lines for row, transcript in transcripts.items()}
    assert found == known


@pytest.mark.parametrize("name", TABLE)
def test_kafka_says_what_is_recorded(side: Side, name: str) -> None:
    compare(side, name, TABLE[name])


def test_kafka_says_what_is_recorded_of_exhausted_epochs(exhausted_side: Side) -> None:
    compare(exhausted_side, EXHAUSTED_NAME, EXHAUSTED)
