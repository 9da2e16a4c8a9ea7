"""Logs of an old broker, in messages v0 and v1: today's clients read every record, and Kafka's tool reports no errors.

The log is planted in the directory of a topic of a stopped broker, without indexes or checkpoints, as after a crash.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import kafka
import pytest

from odradek.storage.batch import Record, build_batch
from odradek.testing import Broker
from tests.clients.dump_log_segments import dump, files_of
from tests.storage.old_writer import message, wrapper

pytestmark = [pytest.mark.xdist_group("clients"), pytest.mark.timeout(600)]

START = 1_400_000_000_000
GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
RUN = 20
TORN = 17


def old_log() -> tuple[list[bytes], list[tuple[int, bytes, int]]]:
    """Messages and batches of all formats and codecs; [(offset, value, timestamp)] of all records."""
    sets: list[bytes] = []
    records: list[tuple[int, bytes, int]] = []
    for magic, codec in [
        (0, 0), (0, GZIP), (0, SNAPPY), (1, 0), (1, GZIP), (1, SNAPPY), (1, LZ4), (2, 0), (2, ZSTD), (1, GZIP), (2, 0),
    ]:  # fmt: skip
        for _ in range(RUN):
            first = len(records)
            values = [b"%d in %d by %d " % (first + n, magic, codec) + bytes(30) for n in range(3)]
            times = [START + first + n if magic else -1 for n in range(3)]
            if magic == 2:
                made = [Record(b"k", value, at) for value, at in zip(values, times, strict=True)]
                sets.append(build_batch(made, base_offset=first, codec=codec, partition_leader_epoch=0))
            elif codec:
                pairs = [(b"k", value) for value in values]
                sets.append(wrapper(first, pairs, codec=codec, magic=magic, timestamps=times))
            else:
                sets += [message(first + n, values[n], magic=magic, key=b"k", timestamp=times[n]) for n in range(3)]
            records += [(first + n, values[n], times[n]) for n in range(3)]
    return sets, records


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, list[tuple[int, bytes, int]]]]:
    sets, records = old_log()
    with Broker({"log.retention.ms": -1}, topics={"old": 1}, directory=tmp_path_factory.mktemp("old-logs")) as broker:
        broker.stop()
        plant(broker.data_dir / "old-0", sets)
        (broker.data_dir / ".kafka_cleanshutdown").unlink()
        broker.start()
        yield broker, records


def plant(directory: Path, sets: list[bytes]) -> None:
    """Three segments, and a torn message after the last."""
    for path in directory.iterdir():
        if path.name != "partition.metadata":
            path.unlink()
    third = len(sets) // 3
    for start, stop in ((0, third), (third, 2 * third), (2 * third, len(sets))):
        base = 0 if start == 0 else last_offset(sets[start - 1]) + 1
        torn = message(10**6, bytes(100))[:TORN] if stop == len(sets) else b""
        (directory / f"{base:020d}.log").write_bytes(b"".join(sets[start:stop]) + torn)


def last_offset(data: bytes) -> int:
    delta = int.from_bytes(data[23:27], "big") if data[16] == 2 else 0
    return int.from_bytes(data[:8], "big") + delta


def test_librdkafka_reads_every_record(planted: tuple[Broker, list[tuple[int, bytes, int]]]) -> None:
    broker, records = planted
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "g",
            "check.crcs": True,
            "max.partition.fetch.bytes": 8000,
        }
    )
    consumer.assign([confluent_kafka.TopicPartition("old", 0, 0)])
    messages = []
    while len(messages) < len(records):
        message = consumer.poll(90)
        assert message is not None and message.error() is None, message and message.error()
        kind, timestamp = message.timestamp()
        messages.append((message.offset(), message.value(), timestamp if kind else -1))
    assert messages == records
    for target in (0, START, START + 250, START + records[-1][0]):
        expected = next(offset for offset, _, at in records if at >= target)
        places = [confluent_kafka.TopicPartition("old", 0, target)]
        assert consumer.offsets_for_times(places, timeout=90)[0].offset == expected
    consumer.close()


def test_kafka_python_reads_from_any_offset(planted: tuple[Broker, list[tuple[int, bytes, int]]]) -> None:
    broker, records = planted
    partition = kafka.TopicPartition("old", 0)
    consumer = kafka.KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, consumer_timeout_ms=90_000)
    consumer.assign([partition])
    for start in (0, 61, 200, 333, len(records) - 2):
        consumer.seek(partition, start)
        for offset, value, _ in records[start:]:
            record = next(consumer)
            assert (record.offset, record.value) == (offset, value)
    consumer.close()


def test_the_status_reports_the_truncated_bytes(planted: tuple[Broker, list[tuple[int, bytes, int]]]) -> None:
    broker, _ = planted
    loading = broker.status()["loading"]
    assert (loading["done"], loading["total"], loading["truncated_bytes"], loading["truncated_logs"]) == (1, 1, TORN, 1)
    assert loading["bytes_recovered"] == loading["bytes_to_recover"] > 0
    assert f"{TORN} bytes did not hold a sound batch" in broker.log_file.read_text()


@pytest.mark.java
def test_kafkas_tool_finds_log_and_indexes_sound(
    planted: tuple[Broker, list[tuple[int, bytes, int]]], tmp_path: Path
) -> None:
    broker, records = planted
    copy = tmp_path / "data"
    shutil.copytree(broker.data_dir / "old-0", copy / "old-0")
    dumps, complaints = dump(copy, files_of(copy, ".log"), "--deep-iteration")
    assert not complaints
    assert len(dumps) == 3
    text = [line for file_dump in dumps.values() for line in file_dump.lines]
    assert sum("| offset: " in line for line in text) == len(records)
    for suffix in (".index", ".timeindex"):
        dumps, complaints = dump(copy, files_of(copy, suffix), "--index-sanity-check")
        assert not complaints
        assert len(dumps) == 3
