"""Clients from before Kafka 0.11 and clients of today read what each other wrote, in every codec of the old formats.

The old ones speak Produce v0-v2, Fetch v0-v3 and ListOffsets v0-v1 and know message sets only. Headers have no place in
these, timestamps only from 0.10 on. Runs against the broker that all tests of this folder share.
"""

from __future__ import annotations

import functools
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from tests import toolchains
from tests.clients import contract, corpus
from tests.clients.conftest import Cluster
from tests.clients.contract import Record, Settings, Span
from tests.clients.programs import kcat_records
from tests.clients.programs.table import BY_NAME

pytestmark = [pytest.mark.xdist_group("clients"), pytest.mark.timeout(1800)]

CODECS = ("none", "gzip", "snappy", "lz4")


@dataclass(frozen=True)
class Client:
    """A client and the fields of a record that it can write and read."""

    name: str
    command: Callable[[], list[str]]
    writes: bool = True
    reads: bool = True
    writes_time: bool = True
    reads_time: bool = True
    can_write: Callable[[Record], bool] = lambda record: True


def _librdkafka(version: str) -> Client:
    command = [sys.executable, "-m", "tests.clients.programs.confluent_records", version]
    timed = version.startswith("0.10")
    return Client(f"librdkafka-{version}", lambda: command, writes_time=timed, reads_time=timed)


def _kcat(version: str) -> Client:
    def command() -> list[str]:
        toolchains.require_command("kcat", "kcat")
        return [sys.executable, "-m", "tests.clients.programs.kcat_records", version]

    timed = version.startswith("0.10")
    return Client(f"kcat-{version}", command, writes_time=False, reads_time=timed, can_write=kcat_records.can_write)


def _kafka_python(version: str) -> Client:
    timed = version.startswith("0.10")
    return Client(
        f"kafka-python-1.4.7-{version}",
        lambda: toolchains.old_kafka_python_command(version),
        writes_time=timed,
        reads_time=timed,
        can_write=lambda record: record.key is not None or record.value is not None,
    )


def _java(version: str) -> Client:
    timed = version.startswith("0.10")
    return Client(
        f"java-{version}",
        lambda: toolchains.old_java_command(version),
        reads=not version.startswith("0.8"),  # its consumer was only announced
        writes_time=timed,
        reads_time=timed,
    )


def _today(name: str) -> Client:
    program = BY_NAME[name]
    return Client(f"today-{name}", program.command, can_write=program.can_write)


CLIENTS = (
    *map(_librdkafka, ("0.8.2", "0.9.0", "0.10.0")),
    *map(_kcat, ("0.8.2", "0.10.0")),
    *map(_kafka_python, ("0.8.2", "0.9", "0.10")),
    *map(_java, ("0.8.2.2", "0.9.0.1", "0.10.2.2")),
    *map(_today, ("confluent-kafka", "java")),
)
WRITERS = pytest.mark.parametrize(
    "writer", [client for client in CLIENTS if client.writes], ids=lambda client: client.name
)
READERS = pytest.mark.parametrize(
    "reader", [client for client in CLIENTS if client.reads], ids=lambda client: client.name
)

Topics = dict[str, list[Record]]


@pytest.fixture(scope="session")
def old_written(cluster: Cluster) -> Callable[[Client], Topics]:
    """Return a function that has a client write the records, once, and returns them with their offsets, by topic."""
    return _once(lambda client: _write(cluster, client))


@pytest.fixture(scope="session")
def old_read(cluster: Cluster, old_written: Callable[[Client], Topics]) -> Callable[[Client], Topics]:
    """Return a function that has a client read, once, what all others wrote; the n-th partition from offset n on."""

    def read(client: Client) -> Topics:
        spans = []
        for writer in CLIENTS:
            if not writer.writes:
                continue
            try:
                topics = old_written(writer)
            except (AssertionError, pytest.skip.Exception):
                continue  # it fails in its own tests
            for topic, records in topics.items():
                counts = Counter(record.partition for record in records)
                spans += [Span(topic, partition, partition, counts[partition]) for partition in sorted(counts)]
        records_read = contract.read(client.command(), Settings(cluster.bootstrap_servers), spans)
        topics = {}
        for (topic, _), records in sorted(records_read.items()):
            topics.setdefault(topic, []).extend(records)
        return topics

    return _once(read)


def _once(exchange: Callable[[Client], Topics]) -> Callable[[Client], Topics]:
    @functools.cache
    def run(client: Client) -> Topics | BaseException:
        try:
            return exchange(client)
        except (Exception, pytest.skip.Exception) as error:
            return error

    def result(client: Client) -> Topics:
        outcome = run(client)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    return result


def _write(cluster: Cluster, client: Client) -> Topics:
    command = client.command()
    names = {codec: f"old-{client.name}-{codec}" for codec in CODECS}
    cluster.create_topics({name: codec for codec, name in names.items()})
    base = int(time.time() * 1000) - 3_600_000
    counts: Counter[tuple[str, int]] = Counter()
    written = []
    for codec, name in names.items():
        for record in corpus.records(name, codec, base):
            if not record.headers and client.can_write(record):
                timestamp = record.timestamp if client.writes_time else None
                offset = counts[name, record.partition]
                written.append(replace(record, timestamp=timestamp, offset=offset))
                counts[name, record.partition] += 1
    settings = Settings(cluster.bootstrap_servers, idempotence=False)
    unnumbered = [replace(record, offset=None) for record in written]
    for record, offset in zip(written, contract.write(command, settings, unnumbered), strict=True):
        assert offset in (None, record.offset), f"{client.name} received offset {offset} for {record}"
    topics: Topics = {name: [] for name in names.values()}
    for record in written:
        topics[record.topic].append(record.as_read())
    return topics


@WRITERS
def test_a_client_writes_every_codec(old_written: Callable[[Client], Topics], writer: Client) -> None:
    for records in old_written(writer).values():
        assert len(records) > 60
        assert {record.partition for record in records} == {0, 1, 2}


@READERS
@WRITERS
def test_a_client_reads_what_a_client_wrote(
    old_written: Callable[[Client], Topics], old_read: Callable[[Client], Topics], writer: Client, reader: Client
) -> None:
    timed = writer.writes_time and reader.reads_time
    for topic, records in old_written(writer).items():
        expected = [record for record in records if record.offset is not None and record.offset >= record.partition]
        records_read = old_read(reader)[topic]
        for actual, written in zip(records_read, expected, strict=False):
            if not timed:
                actual, written = replace(actual, timestamp=None), replace(written, timestamp=None)
            assert actual == written
        assert len(records_read) == len(expected)
