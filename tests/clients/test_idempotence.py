"""A burst of small batches with as many requests in flight as the client allows: every record is stored once, in order."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from tests.clients import contract
from tests.clients.conftest import Cluster
from tests.clients.contract import Record, Settings, Span
from tests.clients.programs.table import PROGRAMS, Program

pytestmark = [pytest.mark.xdist_group("clients"), pytest.mark.timeout(900)]

RECORDS = 20_000
PARTITIONS = 2
BATCH_BYTES = 2048


@pytest.mark.parametrize("writer", PROGRAMS, ids=lambda program: program.name)
def test_a_burst_of_an_idempotent_producer_arrives_once_and_in_order(cluster: Cluster, writer: Program) -> None:
    topic = f"burst-{writer.name}"
    command = writer.command()
    cluster.create_topics({topic: "none"}, PARTITIONS)
    start_ms = int(time.time() * 1000) - 3_600_000
    records = [
        Record(topic, partition, b"%d" % number, b"record %d of the burst " % number * 8, timestamp=start_ms + number)
        for partition in range(PARTITIONS)
        for number in range(RECORDS // PARTITIONS)
    ]
    settings = Settings(cluster.bootstrap_servers, idempotence=True, linger_ms=1, batch_bytes=BATCH_BYTES, in_flight=5)
    offsets = contract.write(command, settings, records)
    cluster.idempotent.add(topic)
    expected = list(range(RECORDS // PARTITIONS)) * PARTITIONS
    assert offsets in (expected, [None] * RECORDS)

    # read by the next client of the table, so that each reads one burst
    reader = PROGRAMS[(PROGRAMS.index(writer) + 1) % len(PROGRAMS)]
    spans = [Span(topic, partition, 0, RECORDS // PARTITIONS) for partition in range(PARTITIONS)]
    records_read = contract.read(reader.command(), Settings(cluster.bootstrap_servers), spans)
    for partition in range(PARTITIONS):
        sent = [record for record in records if record.partition == partition]
        assert len(records_read[topic, partition]) == len(sent)
        for offset, (read, record) in enumerate(zip(records_read[topic, partition], sent, strict=True)):
            timestamp = record.timestamp if writer.sets_timestamp else read.timestamp
            assert read == replace(record, offset=offset, timestamp=timestamp)
