"""The broker that all tests of this folder share, and what the clients wrote to it.

One broker per session, in small segments with dense indexes, so that a few megabytes make many of both.
`ODRADEK_TEST_PEER=kafka` puts Apache Kafka in its place, as control. All tests carry one xdist group: one worker runs
them against one broker, and those that need the broker stopped come last.
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.clients import contract, corpus
from tests.clients.contract import Record, Settings, Span
from tests.clients.kafka_peer import Peer
from tests.clients.programs.table import BY_NAME, PROGRAMS, Program

CONFIG: dict[str, str | int] = {
    "num.network.threads": 2,
    "log.segment.bytes": 1024 * 1024,
    "log.index.interval.bytes": 512,
    "log.index.size.max.bytes": 1024 * 1024,
    "auto.create.topics.enable": "true",
    "num.partitions": 2,
}

#: The corpus of one program goes to a topic per codec.
Topics = dict[str, list[Record]]


class Broker(Protocol):
    """What the tests know of a broker under test."""

    @property
    def bootstrap_servers(self) -> str:
        """`host:port`."""

    @property
    def data_dir(self) -> Path:
        """The directory that holds a directory per partition."""


@dataclass
class Cluster:
    """The broker under test.

    Args:
        broker: the running broker.
        stack: what stops it.
        codecs: the codec of every topic that a test wrote with one codec only.
        idempotent: the topics that only idempotent producers wrote to.
    """

    broker: Broker
    stack: contextlib.ExitStack
    codecs: dict[str, str] = field(default_factory=dict)
    idempotent: set[str] = field(default_factory=set)

    @property
    def bootstrap_servers(self) -> str:
        """`host:port`."""
        return self.broker.bootstrap_servers

    @property
    def data_dir(self) -> Path:
        """The directory that holds a directory per partition."""
        return Path(self.broker.data_dir)

    @functools.cached_property
    def admin(self) -> AdminClient:
        """An admin client, silent about the broker's end."""
        return AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})

    def create_topics(self, codecs: dict[str, str], partitions: int = corpus.PARTITIONS) -> None:
        """Create a topic per key of `codecs` and remember the codec that it is to be written with."""
        futures = self.admin.create_topics([NewTopic(topic, partitions, 1) for topic in codecs], operation_timeout=90)
        for future in futures.values():
            future.result(90)
        self.codecs |= codecs

    def stop(self) -> None:
        """Stop the broker in order, and let go of its client: its port may be another broker's next. Later calls do nothing."""
        self.__dict__.pop("admin", None)
        self.stack.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put this folder's tests that stop the broker behind all others."""
    here = f"{Path(__file__).parent}{os.sep}"
    positions = [index for index, item in enumerate(items) if str(item.path).startswith(here)]
    ours = [items[index] for index in positions]
    ours.sort(key=lambda item: "stopped_cluster" in getattr(item, "fixturenames", ()))
    for index, item in zip(positions, ours, strict=True):
        items[index] = item


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The broker under test, running."""
    with contextlib.ExitStack() as stack:
        if os.environ.get("ODRADEK_TEST_PEER") == "kafka":
            broker: Broker = stack.enter_context(Peer(tmp_path_factory.mktemp("kafka"), CONFIG))
        else:
            from odradek.testing import Broker as Odradek

            broker = stack.enter_context(Odradek(config=CONFIG, directory=tmp_path_factory.mktemp("odradek")))
        yield Cluster(broker, stack)


@pytest.fixture(scope="session")
def stopped_cluster(cluster: Cluster) -> Cluster:
    """The broker under test after an ordered stop, its files still there."""
    cluster.stop()
    return cluster


@pytest.fixture(scope="session")
def written(cluster: Cluster) -> Callable[[Program], Topics]:
    """Return a function that has a program write its corpus, once, and returns what readers must find, by topic."""
    return _once(lambda program: _write_corpus(cluster, program))


@pytest.fixture(scope="session")
def read_back(cluster: Cluster, written: Callable[[Program], Topics]) -> Callable[[Program], Topics]:
    """Return a function that has a program read, once, what all programs wrote, and returns it by topic.

    The n-th partition is read from offset n on: also a start inside of a batch is served by the batch.
    """

    def read(program: Program) -> Topics:
        spans = []
        for writer in PROGRAMS:
            # a writer that failed fails in its own tests
            with contextlib.suppress(AssertionError, pytest.skip.Exception):
                for topic, records in written(writer).items():
                    counts = Counter(record.partition for record in records)
                    spans += [Span(topic, partition, partition, counts[partition]) for partition in sorted(counts)]
        records_read = contract.read(program.command(), Settings(cluster.bootstrap_servers), spans)
        topics: Topics = {}
        for (topic, _), records in sorted(records_read.items()):
            topics.setdefault(topic, []).extend(records)
        return topics

    return _once(read)


def _once(exchange: Callable[[Program], Topics]) -> Callable[[Program], Topics]:
    """Return a function that runs `exchange` once per program and from then on returns, or raises, the same again."""
    done: dict[str, Topics] = {}
    failed: dict[str, BaseException] = {}

    def run(program: Program) -> Topics:
        if program.name in failed:
            raise failed[program.name]
        if program.name not in done:
            try:
                done[program.name] = exchange(program)
            except BaseException as error:
                failed[program.name] = error
                raise
        return done[program.name]

    return run


def _write_corpus(cluster: Cluster, program: Program) -> Topics:
    command = program.command()
    names = {codec: f"corpus-{program.name}-{codec}" for codec in program.codecs}
    cluster.create_topics({name: codec for codec, name in names.items()})
    start_ms = int(time.time() * 1000)
    topics: Topics = {}
    for codec, name in names.items():
        topics[name] = [
            record if program.sets_timestamp else replace(record, timestamp=None)
            for record in corpus.records(name, codec, start_ms - 3_600_000)
            if program.can_write(record)
        ]
    records = [record for each in topics.values() for record in each]
    expected = _numbered(records)
    settings = Settings(cluster.bootstrap_servers, idempotence=program.idempotent_corpus)
    for record, offset in zip(expected, contract.write(command, settings, records), strict=True):
        assert offset in (None, record.offset), f"{program.name} received offset {offset} for {record}"
    if not program.sets_timestamp:
        expected = _with_timestamps(cluster, expected, start_ms)
    if program.idempotent_corpus:
        cluster.idempotent |= topics.keys()
    by_topic: Topics = {name: [] for name in topics}
    for record in expected:
        by_topic[record.topic].append(record.as_read())
    return by_topic


def _numbered(records: list[Record]) -> list[Record]:
    """Return the records with the offsets that they get in new partitions with one writer."""
    counts: dict[tuple[str, int], int] = {}
    numbered = []
    for record in records:
        offset = counts.get((record.topic, record.partition), 0)
        counts[record.topic, record.partition] = offset + 1
        numbered.append(replace(record, offset=offset))
    return numbered


def _with_timestamps(cluster: Cluster, records: list[Record], start_ms: int) -> list[Record]:
    """Return the records with the timestamps that one client reads, which must lie between `start_ms` and now."""
    spans = {
        (record.topic, record.partition): Span(record.topic, record.partition, 0, record.offset + 1)
        for record in records
    }
    command = BY_NAME["confluent-kafka"].command()
    records_read = contract.read(command, Settings(cluster.bootstrap_servers), list(spans.values()))
    timestamps = {
        (record.topic, record.partition, record.offset): record.timestamp
        for records in records_read.values()
        for record in records
    }
    now_ms = int(time.time() * 1000)
    for partition, timestamp in timestamps.items():
        assert timestamp is not None and start_ms <= timestamp <= now_ms, f"{partition} has timestamp {timestamp}"
    return [replace(each, timestamp=timestamps[each.topic, each.partition, each.offset]) for each in records]
