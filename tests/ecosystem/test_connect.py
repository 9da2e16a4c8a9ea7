"""Kafka Connect in distributed mode with its file connectors: what it copies, where it continues, and what it stores in topics.

The connectors copy a file into a topic of one partition and the topic into a file, so that files and topics are compared
line by line, in order.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from odradek.testing import Broker
from tests.ecosystem.connect_worker import ConnectWorker, Refused
from tests.ecosystem.records import Reader
from tests.faults import process_faults
from tests.waiting import until

pytestmark = [pytest.mark.xdist_group("connect"), pytest.mark.timeout(900), pytest.mark.java]

SEED = 20261127
LINE_BYTES, BATCH = 128, 16
"""The file source reads 1024 characters at once. Lines beyond its `batch.size` stay in its memory until the file grows again,
with any broker; here a batch ends where such a part of the file ends."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker({"num.network.threads": 2}, {"lines": 1, "others": 1}, directory=tmp_path / "broker") as started:
        yield started


def append(file: Path, count: int) -> None:
    """Append so many lines; each names its file and its number."""
    with file.open("a") as lines:
        first = len(file.read_text().splitlines())
        names = (f"{file.name} {number}" for number in range(first, first + count))
        lines.writelines(f"{name:.<{LINE_BYTES - 1}}\n" for name in names)


def source(file: Path, topic: str) -> dict[str, str]:
    """A connector that follows a file. `BATCH` lines are a transaction."""
    return {"connector.class": "FileStreamSource", "file": str(file), "topic": topic, "batch.size": str(BATCH)}


def sink(file: Path, topic: str) -> dict[str, str]:
    """A connector that appends the values of a topic to a file."""
    return {"connector.class": "FileStreamSink", "file": str(file), "topics": topic}


def until_equal(copy: Path, text: str, worker: ConnectWorker) -> None:
    """Wait until a file, which only grows, has a text."""

    def equal() -> bool:
        found = copy.read_text() if copy.exists() else ""
        assert text.startswith(found), f"{copy} has {found[-200:]!r} at its end"
        return found == text

    until(equal, lambda: f"{copy} is complete: {copy.read_text()[-100:] if copy.exists() else None} {worker.log()}")


def test_a_worker_goes_on_exactly_where_it_was(broker: Broker, tmp_path: Path) -> None:
    lines, copy = tmp_path / "lines", tmp_path / "copy"
    append(lines, 1000)
    with ConnectWorker(tmp_path / "worker", broker.bootstrap_servers) as worker:
        worker.until_ready()
        with pytest.raises(Refused, match="Must configure one of topics"):
            worker.ask_patiently("PUT", "/connectors/sink/config", {"connector.class": "FileStreamSink"})
        worker.configure("source", source(lines, "lines"))
        worker.configure("sink", sink(copy, "lines"))
        until_equal(copy, lines.read_text(), worker)
        worker.stop()
        broker.restart()
        append(lines, 500)
        worker.start()
        until_equal(copy, lines.read_text(), worker)
        until_offset(worker, "sink", 1500)
        kept = admin(broker)
        for topic, partitions in (("connect-configs", 1), ("connect-offsets", 25), ("connect-status", 5)):
            assert len(kept.list_topics(topic).topics[topic].partitions) == partitions
            assert setting(kept, topic, "cleanup.policy") == "compact"
        # the sink's offsets are those of a group, which the worker changes
        worker.ask("PUT", "/connectors/sink/stop")
        worker.until_state("sink", "STOPPED")
        place = {"kafka_topic": "lines", "kafka_partition": 0}
        change = {"offsets": [{"partition": place, "offset": {"kafka_offset": 1400}}]}
        worker.ask_patiently("PATCH", "/connectors/sink/offsets", change)
        worker.ask("PUT", "/connectors/sink/resume")
        last = "".join(lines.read_text().splitlines(keepends=True)[1400:])
        until_equal(copy, lines.read_text() + last, worker)
        # the source's are records of a compacted topic, which become tombstones
        worker.ask("PUT", "/connectors/source/stop")
        worker.until_state("source", "STOPPED")
        worker.ask_patiently("DELETE", "/connectors/source/offsets")
        assert worker.ask_patiently("GET", "/connectors/source/offsets") == {"offsets": []}
        worker.ask("PUT", "/connectors/source/resume")
        until_equal(copy, lines.read_text() + last + lines.read_text(), worker)
        worker.ask("DELETE", "/connectors/sink")
        assert worker.ask_patiently("GET", "/connectors") == ["source"]
    with Reader(broker.bootstrap_servers, "lines") as reader:
        reader.until(3000)
        assert reader.values() == [lines.read_text().splitlines() * 2]


def until_offset(worker: ConnectWorker, connector: str, offset: int) -> None:
    """Wait until a sink has committed the offset of its only partition."""

    def committed() -> bool:
        offsets = worker.ask("GET", f"/connectors/{connector}/offsets")["offsets"]
        return [each["offset"]["kafka_offset"] for each in offsets] == [offset]

    until(committed, f"{connector} commits {offset}")


def admin(broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})


def setting(client: AdminClient, topic: str, key: str) -> str:
    """The value of a topic's setting."""
    (future,) = client.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    value = future.result(60)[key].value
    assert isinstance(value, str)
    return value


def test_every_line_is_there_once_although_workers_and_the_broker_are_killed(broker: Broker, tmp_path: Path) -> None:
    """Two workers share two sources at exactly once, and a sink at least once."""
    rng = random.Random(SEED)
    files = {topic: tmp_path / topic for topic in ("lines", "others")}
    copy = tmp_path / "copy"
    settings: dict[str, str | int] = {"exactly.once.source.support": "enabled", "offset.storage.partitions": 2}
    workers = [ConnectWorker(tmp_path / f"worker-{n}", broker.bootstrap_servers, settings) for n in range(2)]
    with workers[0], workers[1], Reader(broker.bootstrap_servers, "lines") as reader:
        for worker in workers:
            worker.until_ready()
        for topic, file in files.items():
            append(file, 3200)
            workers[0].configure(topic, source(file, topic))
        workers[0].configure("sink", sink(copy, "lines"))
        assert {owner(workers[0], topic) for topic in files} == {worker.name for worker in workers}
        # one after the other: who has the task, who has it then, and the broker's processes
        for victim in range(2):
            (killed,) = [worker for worker in workers if worker.name == owner(workers[victim], "lines")]
            count = reader.read()
            killed.kill()
            for file in files.values():
                append(file, 1600)
            print("killed", killed.name, "at", count, process_faults.kill_one(broker, rng, "coordinator"))
            reader.until(count + 800)
            print(process_faults.kill_one(broker, rng, "worker"))
            killed.start()
            killed.until_ready()
        for topic, file in files.items():
            with Reader(broker.bootstrap_servers, topic) as again:
                again.until(6400)
                assert again.values() == [file.read_text().splitlines()], topic
        expected = set(files["lines"].read_text().splitlines())
        until(lambda: set(copy.read_text().splitlines()) >= expected, lambda: f"the sink is complete: {worker.log()}")
        assert set(copy.read_text().splitlines()) == expected


def owner(worker: ConnectWorker, connector: str) -> str:
    """The name of the worker that runs the only task of a connector."""
    (task,) = worker.until_state(connector, "RUNNING")["tasks"]
    return str(task["worker_id"])
