"""Debezium's embedded engine writes the changes of a PostgreSQL table, with its offsets in a topic, and is killed.

It is at least once. Without the repetitions, which have the same position in the database's log, the changes of a row must be
those that were made, in their order.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from odradek.testing import Broker
from tests.clients.killed_programs import running
from tests.ecosystem.jars import java_command
from tests.ecosystem.postgres import Postgres
from tests.ecosystem.records import Reader
from tests.faults import process_faults
from tests.waiting import until

pytestmark = [pytest.mark.xdist_group("debezium"), pytest.mark.timeout(900), pytest.mark.java]

SEED = 20261127
ROWS = 300
PATIENCE_S = 180.0
TOPIC = "shop.public.orders"
SETTINGS = {
    "name": "shop",
    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
    "plugin.name": "pgoutput",
    "publication.autocreate.mode": "filtered",
    "slot.name": "odradek",
    "database.hostname": "127.0.0.1",
    "database.user": "postgres",
    "database.password": "postgres",
    "database.dbname": "postgres",
    "topic.prefix": "shop",
    "table.include.list": "public.orders",
    "converter.schemas.enable": "false",
    "offset.storage": "org.apache.kafka.connect.storage.KafkaOffsetBackingStore",
    "offset.storage.topic": "debezium-offsets",
    "offset.storage.partitions": "1",
    "offset.storage.replication.factor": "1",
    "offset.flush.interval.ms": "200",
}
"""docs/operate/ecosystem.md has the same with comments."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker({"num.network.threads": 2}, {TOPIC: 1}, directory=tmp_path / "broker") as started:
        yield started


class Table:
    """The table `orders`, and what was done to each of its rows. ``changes``: amounts by id; None where it was deleted."""

    def __init__(self, server: Postgres) -> None:
        self._server = server
        self._rng = random.Random(SEED)
        self.changes: dict[int, list[int | None]] = {}
        server.run("CREATE TABLE orders (id int PRIMARY KEY, amount int NOT NULL)")

    def change(self, count: int) -> None:
        """Insert, update and delete rows, each in a transaction of its own."""
        statements = []
        for _ in range(count):
            row, amount = self._rng.randrange(ROWS), self._rng.randrange(1000)
            changes = self.changes.setdefault(row, [])
            if not changes or changes[-1] is None:
                statements.append(f"INSERT INTO orders VALUES ({row}, {amount});")
                changes.append(amount)
            elif self._rng.random() < 0.2:
                statements.append(f"DELETE FROM orders WHERE id = {row};")
                changes.append(None)
            else:
                statements.append(f"UPDATE orders SET amount = {amount} WHERE id = {row};")
                changes.append(amount)
        self._server.run("\n".join(statements))

    def forget(self) -> None:
        """Keep only what a snapshot finds."""
        self.changes = {row: changes[-1:] for row, changes in self.changes.items() if changes[-1] is not None}


def written(reader: Reader) -> dict[int, list[int | None]]:
    """The changes in the topic, by row, without repetitions."""
    changes: dict[int, list[int | None]] = {}
    seen = set()
    for _, record in reader.records[0]:
        if record.value is None:  # what lets compaction drop a deleted row
            continue
        event = json.loads(record.value)
        row = json.loads(record.key or b"")["id"]
        position = (row, event["source"]["lsn"], event["op"])
        if position not in seen:
            seen.add(position)
            changes.setdefault(row, []).append(event["after"] and event["after"]["amount"])
    return changes


def test_all_changes_of_a_table_are_written_although_everything_is_killed(broker: Broker, tmp_path: Path) -> None:
    rng = random.Random(SEED)
    log = tmp_path / "debezium.log"
    with Postgres() as server, Reader(broker.bootstrap_servers, TOPIC) as reader, ExitStack() as engine:
        table = Table(server)
        table.change(500)
        table.forget()  # the engine begins with a snapshot
        settings = {**SETTINGS, "bootstrap.servers": broker.bootstrap_servers, "database.port": str(server.port)}
        properties = tmp_path / "debezium.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        command = java_command("debezium", "Changes", str(properties))

        def until_written() -> None:
            def complete() -> bool:
                reader.read()
                return written(reader) == table.changes

            until(complete, lambda: f"the changes are written: {log.read_text()[-3000:]}", PATIENCE_S)

        engine.enter_context(running(command, log))
        until_written()
        for kind in ("coordinator", "worker", "all"):
            table.change(500)
            until(lambda: reader.read() > ROWS, "changes are written", PATIENCE_S)
            engine.close()
            table.change(500)
            if kind == "all":
                print(process_faults.kill_group(broker, rng))
            else:
                print(process_faults.kill_one(broker, rng, kind))
            engine.enter_context(running(command, log))
            table.change(500)
            until_written()
        print(len(reader.records[0]), "records")
