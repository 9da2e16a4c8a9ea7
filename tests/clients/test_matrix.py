"""Every client reads what every client wrote, in every codec: keys, values, headers, timestamps, offsets, order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from tests.clients.conftest import Cluster, Topics
from tests.clients.contract import CODECS, Record
from tests.clients.programs.table import PROGRAMS, Program

pytestmark = [pytest.mark.xdist_group("clients"), pytest.mark.timeout(1800)]

_programs = pytest.mark.parametrize("writer", PROGRAMS, ids=lambda program: program.name)
_readers = pytest.mark.parametrize("reader", PROGRAMS, ids=lambda program: program.name)


@_programs
def test_a_client_writes_every_codec(cluster: Cluster, written: Callable[[Program], Topics], writer: Program) -> None:
    topics = written(writer)
    assert sorted(cluster.codecs[topic] for topic in topics) == sorted(CODECS)
    for records in topics.values():
        assert len(records) > 100
        assert {record.partition for record in records} == {0, 1, 2}


@_readers
@_programs
def test_a_client_reads_what_a_client_wrote(
    written: Callable[[Program], Topics], read_back: Callable[[Program], Topics], writer: Program, reader: Program
) -> None:
    for topic, records in written(writer).items():
        expected = [record for record in records if record.offset is not None and record.offset >= record.partition]
        _assert_same(read_back(reader)[topic], expected)


def _assert_same(actual: list[Record], expected: list[Record]) -> None:
    """Compare record by record: report the first difference, not megabytes."""
    for record, written in zip(actual, expected, strict=False):
        if record != written:
            pytest.fail(f"read    {_short(record)}\nwritten {_short(written)}", pytrace=False)
    counts = Counter(record.partition for record in actual), Counter(record.partition for record in expected)
    assert counts[0] == counts[1]


def _short(record: Record) -> str:
    text = repr(record)
    return text if len(text) < 1500 else f"{text[:700]} ... {text[-700:]}"
