"""Fetch responses at read_committed: those of a real Kafka, and those of this broker after it adopted the directory."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from odradek.protocol.schemas import fetch
from odradek.storage.batch import read_batches
from odradek.testing import Broker
from tests.adopt.kafka_writes import KAFKA_CONFIG, LONGEST_TRANSACTION_MS
from tests.api.transactional_log import filtered
from tests.clients.kafka_peer import Peer
from tests.markers import wait_for_markers
from tests.wire import Wire, fetch_request, whole

pytestmark = [pytest.mark.java, pytest.mark.timeout(900)]

TOPIC, TIMEOUT_S = "mixed", 60
PRODUCERS, ROUNDS = 4, 60
VERSIONS = (4, 11, 12)


def write(servers: str) -> None:
    """Interleaved transactions, a third of them aborted, one over many segments; the last one stays open."""
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result()
    chance = random.Random(7)
    producers = [
        Producer(
            {
                "bootstrap.servers": servers,
                "transactional.id": f"p{number}",
                "transaction.timeout.ms": LONGEST_TRANSACTION_MS,
                "linger.ms": 0,
            }
        )
        for number in range(PRODUCERS)
    ]
    plain = Producer({"bootstrap.servers": servers})
    for producer in producers:
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
    for number in range(ROUNDS):
        for index, producer in enumerate(producers):
            for _ in range(chance.randrange(1, 4)):
                producer.produce(TOPIC, b"%d-%d" % (index, number) * chance.randrange(1, 4000))
            producer.flush(TIMEOUT_S)
        plain.produce(TOPIC, b"plain" * 20)
        plain.flush(TIMEOUT_S)
        for index, producer in enumerate(producers):
            if (index or number == ROUNDS // 2) and chance.random() < 0.6:  # producer 0 has two long transactions
                if chance.random() < 0.5 or not index:
                    producer.abort_transaction(TIMEOUT_S)
                else:
                    producer.commit_transaction(TIMEOUT_S)
                producer.begin_transaction()
    for producer in producers[:-1]:
        producer.produce(TOPIC, b"last")
        producer.abort_transaction(TIMEOUT_S)
    wait_for_markers(servers, TOPIC, left_open=1)


def answers(wire: Wire, offsets: list[int], limits: list[int]) -> dict[tuple[int, int, int, int], tuple]:
    """By isolation level, version, offset and limit: error, high watermark, last stable offset, records, list or None."""
    found = {}
    for isolation in (0, 1):
        for version in VERSIONS:
            for offset in offsets:
                for limit in limits:
                    request = fetch_request([(TOPIC, 0, offset)], isolation_level=isolation, partition_max_bytes=limit)
                    (told,) = wire.ask(request, fetch.API_KEY, version).responses[0].partitions
                    listed = told.aborted_transactions
                    found[isolation, version, offset, limit] = (
                        told.error_code,
                        told.high_watermark,
                        told.last_stable_offset,
                        bytes(told.records or b""),
                        None if listed is None else [(one.producer_id, one.first_offset) for one in listed],
                        [] if not told.records else filtered(whole(told.records), listed, offset),
                    )
    return found


def without_epochs(records: bytes) -> list[bytes]:
    """The batches, from their first field that does not depend on the leader."""
    return [bytes(batch)[16:] for batch in read_batches(whole(records))]


@pytest.mark.parametrize("end", ["clean", "kill"])
def test_both_brokers_answer_alike(tmp_path, end):
    kafka = Peer(tmp_path / "kafka", KAFKA_CONFIG)
    with kafka:
        write(kafka.bootstrap_servers)
        host, port = kafka.bootstrap_servers.split(":")
        with Wire(host, int(port)) as wire:
            log_end = wire.log_end(TOPIC, 0)
            offsets = [*range(0, log_end, 23), log_end]
            limits = [1, 30_000, 1 << 20]
            theirs = answers(wire, offsets, limits)
            latest = {level: wire.offset_at(TOPIC, -1, isolation_level=level).offset for level in (0, 1)}
            largest = {level: wire.offset_at(TOPIC, -3, isolation_level=level).offset for level in (0, 1)}
        if end == "kill":
            kafka.kill()
    assert sum(len(one[4] or []) for one in theirs.values()) > 100
    adopted = subprocess.run(
        [sys.executable, "-m", "odradek.cli.main", "adopt", "--yes", str(kafka.data_dir)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert adopted.returncode == 0, adopted
    with Broker({"log.dirs": kafka.data_dir}, directory=tmp_path / "ours") as ours, Wire.to(ours) as wire:
        mine = answers(wire, offsets, limits)
        assert {level: wire.offset_at(TOPIC, -1, isolation_level=level).offset for level in (0, 1)} == latest
        assert {level: wire.offset_at(TOPIC, -3, isolation_level=level).offset for level in (0, 1)} == largest
    exact = 0
    for place, (error, watermark, stable, records, listed, readable) in theirs.items():
        our_error, our_watermark, our_stable, our_records, our_listed, our_readable = mine[place]
        assert (our_error, our_watermark, our_stable) == (error, watermark, stable), place
        assert (our_listed is None) == (listed is None), place
        assert our_readable == readable, place
        assert without_epochs(our_records) == without_epochs(records), place
        if records:  # Kafka also lists transactions for no records
            assert set(our_listed or []) <= set(listed or []), place
            assert len(set(our_listed or [])) == len(our_listed or []), place
            exact += our_listed == listed
    assert exact > len(theirs) // 2
