"""Backups of a broker that clients write to. Each is restored, and compared with what the clients remember.

Retention deletes segments, and compaction replaces them, while the backups are made.
"""

from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Producer

from odradek.testing import Broker
from tests.backup import clients
from tests.backup.clients import COPIER, LEFT, PARTITIONS, PLAIN, READERS, RIGHT, TABLE
from tests.cli.command import Command
from tests.markers import wait_for_markers
from tests.waiting import until

CONFIG = {
    "log.initial.task.delay.ms": 1,
    "log.retention.check.interval.ms": 100,
    "log.cleaner.backoff.ms": 10,
    "log.segment.delete.delay.ms": 1,
    "offsets.topic.segment.bytes": 20_000,
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2,
    "transaction.state.log.segment.bytes": 20_000,
    "group.initial.rebalance.delay.ms": 0,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
TOPICS = {
    PLAIN: {"partitions": str(PARTITIONS), "segment.bytes": "40000", "retention.bytes": "400000"},
    TABLE: {
        "partitions": "1",
        "segment.bytes": "20000",
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": "0",
    },
    LEFT: {"partitions": "1", "segment.bytes": "20000"},
    RIGHT: {"partitions": str(PARTITIONS), "segment.bytes": "20000"},
    "empty": {"partitions": "3"},
}
BACKUPS = 2


@dataclass
class Load:
    """The clients of a broker."""

    plain: clients.Records
    table: clients.Records
    transactions: clients.Transactions
    reader: clients.Reader

    @property
    def all(self):
        return (self.plain, self.table, self.transactions, self.reader)

    def check(self):
        for writer in self.all:
            writer.check()
        return True


@dataclass
class Before:
    """What was acknowledged before a backup began."""

    plain_ends: dict[int, int]
    table_end: int
    committed: int
    reader: dict[int, int]


def ends(writer):
    found: dict[int, int] = {}
    for partition, offset in list(writer.written):
        found[partition] = max(found.get(partition, 0), offset + 1)
    return found


def settings(odradek: Command):
    """The metadata that a backup must keep."""
    return {
        "topics": odradek.json("topic", "list"),
        "configs": [odradek.json("config", "get", "-t", topic) for topic in TOPICS],
        "users": odradek.json("user", "list"),
        "acls": odradek.json("acl", "list"),
        "quotas": odradek.json("quota", "list"),
    }


@pytest.fixture(scope="module")
def backups(tmp_path_factory):
    """Backups under load: the load, the settings, and for each backup its directory and what was acknowledged before."""
    directory = tmp_path_factory.mktemp("running")
    made: list[tuple[Path, Before]] = []
    with Broker(CONFIG, TOPICS, directory=directory / "broker") as broker:
        odradek = Command(broker.bootstrap_servers)
        odradek("user", "add", "alice", "--password-file", "-", stdin="secret-of-alice\n")
        odradek("acl", "add", "-t", PLAIN, "--allow", "User:alice", "--operation", "read")
        odradek("quota", "set", "--user", "alice", "producer_byte_rate=123456")
        odradek("config", "set", "-t", "empty", "retention.ms=12345678")
        load = Load(
            clients.Records(broker.bootstrap_servers, PLAIN, PARTITIONS),
            clients.Records(broker.bootstrap_servers, TABLE, 1),
            clients.Transactions(broker.bootstrap_servers),
            clients.Reader(broker.bootstrap_servers, PLAIN),
        )
        for writer in load.all:
            writer.start()
        try:
            for number in range(BACKUPS):
                goal = 20 * (number + 1)
                until(lambda goal=goal: load.check() and len(load.transactions.committed) >= goal, "transactions go on")
                until(lambda: load.check() and len(load.reader.committed) == PARTITIONS, "the reader has committed")
                until(lambda: _is_compacted(broker, load), "the table was compacted")
                before = Before(
                    ends(load.plain), ends(load.table)[0], max(load.transactions.committed), dict(load.reader.committed)
                )
                target = directory / f"backup-{number}"
                base = ["--base", made[-1][0]] if made else []
                odradek("backup", "create", target, "--data-dir", broker.data_dir, *base)
                made.append((target, before))
        finally:
            for writer in load.all:
                writer.stop()
        facts = settings(odradek)
    return load, facts, made


def _is_compacted(broker, load):
    load.check()
    names = [path.name for path in (broker.data_dir / f"{TABLE}-0").glob("*.log")]
    checkpoint = broker.data_dir / "cleaner-offset-checkpoint"
    return len(names) > 1 and checkpoint.exists() and f"{TABLE} 0 " in checkpoint.read_text()


@pytest.fixture(scope="module", params=range(BACKUPS))
def restored(request, backups, tmp_path_factory):
    """A broker on a restored backup: the load, the settings of the original, what was acknowledged before, and the broker."""
    load, facts, made = backups
    backup, before = made[request.param]
    directory = tmp_path_factory.mktemp("restored")
    command = Command("")
    checked = command.json("backup", "verify", backup)
    assert checked["errors"] == []
    command("backup", "restore", backup, "--into", directory / "data")
    with Broker(CONFIG, directory=directory) as broker:
        # The producer's successor aborts the transaction that was open; without it, the broker would after its timeout.
        Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "copier"}).init_transactions(60)
        yield load, facts, before, broker


def test_records_are_those_that_were_acknowledged(restored):
    load, _, before, broker = restored
    found = clients.read_all(broker.bootstrap_servers, PLAIN, PARTITIONS)
    for partition in range(PARTITIONS):
        low, high = clients.watermarks(broker.bootstrap_servers, PLAIN, partition)
        assert high >= before.plain_ends[partition]
        assert high > low
        assert [offset for where, offset in sorted(found) if where == partition] == list(range(low, high))
    assert found == {place: load.plain.written[place] for place in found}


def test_a_compacted_topic_has_the_last_value_of_each_key(restored):
    load, _, before, broker = restored
    _, high = clients.watermarks(broker.bootstrap_servers, TABLE, 0)
    assert high >= before.table_end
    found = clients.read_all(broker.bootstrap_servers, TABLE, 1)
    assert found == {place: load.table.written[place] for place in found}
    expected = {key: offset for (_, offset), (key, _) in sorted(load.table.written.items()) if offset < high}
    assert {key: offset for (_, offset), (key, _) in sorted(found.items())} == expected


def test_a_transaction_is_there_as_a_whole_or_not_at_all(restored):
    load, _, before, broker = restored
    servers = broker.bootstrap_servers
    left = sorted(int(value) for _, value in clients.read_all(servers, LEFT, 1).values())
    right = sorted(int(value) for _, value in clients.read_all(servers, RIGHT, PARTITIONS).values())
    assert left == right
    assert left == [number for number in load.transactions.tried if number <= left[-1]]
    assert left[-1] >= before.committed
    assert clients.committed_offsets(servers, COPIER, PLAIN, PARTITIONS) == {0: left[-1] + 1}


def test_committed_offsets_are_within_the_logs(restored):
    _, _, before, broker = restored
    servers = broker.bootstrap_servers
    committed = clients.committed_offsets(servers, READERS, PLAIN, PARTITIONS)
    for partition in range(PARTITIONS):
        _, high = clients.watermarks(servers, PLAIN, partition)
        assert before.reader[partition] <= committed[partition] <= high


def test_settings_are_those_of_the_original(restored):
    _, facts, _, broker = restored
    assert settings(Command(broker.bootstrap_servers)) == facts


def test_clients_go_on(restored):
    _, _, _, broker = restored
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "copier"})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(LEFT, b"1000000", partition=0)
    producer.produce("empty", b"1000000", partition=1)
    producer.commit_transaction()
    for topic in (LEFT, "empty"):
        wait_for_markers(broker.bootstrap_servers, topic)
    found = clients.read_all(broker.bootstrap_servers, LEFT, 1)
    assert found[max(found)] == (None, b"1000000")
    assert len(clients.read_all(broker.bootstrap_servers, "empty", 3)) == 1


def test_a_backup_links_unchanged_segments_to_its_base(backups):
    _, _, made = backups
    (first, _), (second, _) = made[:2]
    shared = [
        path
        for path in second.rglob("*.log")
        if (old := first / path.relative_to(second)).exists() and old.samefile(path)
    ]
    assert shared
