"""Burrow, which reads the broker's offsets topic itself, reports the lag of groups. It needs ZooKeeper for itself."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from odradek._ext.api.offset_commits import partition_for
from odradek.testing import Broker
from tests import toolchains
from tests.clients.killed_programs import running
from tests.ports import reserved
from tests.waiting import until
from tests.zookeeper import chroot

pytestmark = [pytest.mark.xdist_group("burrow"), pytest.mark.timeout(600), pytest.mark.java]

PARTITIONS, OFFSETS_PARTITIONS = 3, 4
LOADING = (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE)
SETTINGS = """
[general]
pidfile = "{directory}/burrow.pid"

[logging]
level = "warn"

[zookeeper]
servers = ["{zookeeper}"]
root-path = "{root}"

[client-profile.tests]
client-id = "burrow"
kafka-version = "2.0.0"

[cluster.odradek]
class-name = "kafka"
servers = ["{servers}"]
client-profile = "tests"
topic-refresh = 1
offset-refresh = 1

[consumer.odradek]
class-name = "kafka"
cluster = "odradek"
servers = ["{servers}"]
client-profile = "tests"
start-latest = false

[httpserver.default]
address = "127.0.0.1:{port}"

[storage.default]
class-name = "inmemory"
min-distance = 0
intervals = 3
"""
"""docs/operate/ecosystem.md has the same with comments."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    config = {"offsets.topic.num.partitions": OFFSETS_PARTITIONS}
    with Broker(config, {"orders": PARTITIONS}, directory=tmp_path / "broker") as started:
        yield started


class Burrow:
    """Burrow's API. :param log: a file with what it prints."""

    def __init__(self, port: int, log: Path) -> None:
        self._url = f"http://127.0.0.1:{port}/v3/kafka/odradek"
        self._log = log

    def ask(self, path: str) -> dict[str, Any]:
        """A response; empty as long as Burrow does not respond or does not know what it is asked for."""
        try:
            with urllib.request.urlopen(self._url + path, timeout=60) as response:
                found: dict[str, Any] = json.load(response)
                return found
        except (urllib.error.URLError, ConnectionError):
            return {}

    def until_lag(self, group: str, lags: list[int]) -> None:
        """Wait until the lag of a group is `lags`, in records, by partition."""

        def found() -> dict[int, int]:
            partitions = self.ask(f"/consumer/{group}/lag").get("status", {}).get("partitions", [])
            return {partition["partition"]: partition["current_lag"] for partition in partitions}

        until(lambda: found() == dict(enumerate(lags)), lambda: f"{group} lags by {lags}: {found()} {self.log()}")

    def log(self) -> str:
        return self._log.read_text()[-3000:]


def write(broker: Broker, count: int) -> None:
    """Write so many records to each partition."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    for number in range(count * PARTITIONS):
        producer.produce("orders", str(number), partition=number % PARTITIONS)
    assert producer.flush(90) == 0


def commit(broker: Broker, group: str, offsets: list[int]) -> None:
    """Commit offsets of a group, by partition."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group, "log_level": 0})
    places = [TopicPartition("orders", number, offset) for number, offset in enumerate(offsets)]

    def committed() -> bool:
        try:
            return all(place.error is None for place in consumer.commit(offsets=places, asynchronous=False) or [])
        except KafkaException as error:
            assert error.args[0].retriable() or error.args[0].code() in LOADING, error
            return False

    until(committed, f"the offsets of {group} are committed")
    consumer.close()


def test_the_lag_of_groups_is_found(broker: Broker, tmp_path: Path) -> None:
    command = toolchains.require_command("Burrow", "burrow")
    write(broker, 100)
    commit(broker, "billing", [10, 20, 100])
    with ExitStack() as stack:
        port = stack.enter_context(reserved())
        hosts, _, root = chroot().partition("/")
        settings = {"servers": broker.bootstrap_servers, "zookeeper": hosts, "root": f"/{root}"}
        (tmp_path / "burrow.toml").write_text(SETTINGS.format(directory=tmp_path, port=port, **settings))
        log = tmp_path / "burrow.log"
        stack.enter_context(running([command, f"--config-dir={tmp_path}"], log))
        burrow = Burrow(port, log)
        burrow.until_lag("billing", [90, 80, 0])
        write(broker, 50)
        commit(broker, "billing", [110, 150, 149])
        commit(broker, "shipping", [1, 2, 3])
        burrow.until_lag("billing", [40, 0, 1])
        burrow.until_lag("shipping", [149, 148, 147])
        assert burrow.ask("/topic/orders")["offsets"] == [150] * PARTITIONS
        # it begins to read one partition after the other, and ends if that fails: when it knows a group of each, it has begun
        groups = {partition_for(name, OFFSETS_PARTITIONS): name for name in map(str, range(16 * OFFSETS_PARTITIONS))}
        assert len(groups) == OFFSETS_PARTITIONS
        for group in groups.values():
            commit(broker, group, [1, 2, 3])
        for group in groups.values():
            burrow.until_lag(group, [149, 148, 147])
        broker.restart()
        commit(broker, "billing", [150, 150, 150])
        burrow.until_lag("billing", [0, 0, 0])
        assert sorted(burrow.ask("/consumer")["consumers"]) == sorted([*groups.values(), "billing", "shipping"])
