"""Kafka's own tools for groups, unchanged, and what they leave in this broker: ConsumerGroupCommand, VerifiableProducer and
VerifiableConsumer, ConsoleConsumer with a group; DumpLogSegments over our `__consumer_offsets`. What the tools print is
compared with what they print against Kafka in test_tools_against_kafka."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.testing import Broker
from tests import toolchains
from tests.api.group_talk import GroupTalk
from tests.clients.dump_log_segments import dump, files_of
from tests.wire import batch

pytestmark = [pytest.mark.xdist_group("group-tools"), pytest.mark.timeout(600), pytest.mark.java]

GROUP_COMMAND = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONSOLE_CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
RECORDS = 40


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """With a topic "topic" of two partitions and 40 records in each."""
    config = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 3}
    with Broker(config, directory=tmp_path_factory.mktemp("group-tools")) as started:
        with GroupTalk(started.host, started.port) as wire:
            wire.create("topic", 2)
            for partition in range(2):
                for number in range(RECORDS):
                    assert wire.produce("topic", batch(b"%d" % number), partition).error_code == 0
            wire.until_coordinated("any")
        yield started


@pytest.fixture
def wire(broker: Broker) -> Iterator[GroupTalk]:
    with GroupTalk(broker.host, broker.port) as talk:
        yield talk


def run(main_class: str, *arguments: str) -> str:
    """Run one of Kafka's tools; what it printed."""
    return toolchains.run_java(main_class, *arguments, quiet=True)


def rows(output: str) -> list[list[str]]:
    """A table's lines as words, without its head."""
    lines = [line.split() for line in output.splitlines() if line.strip()]
    head = next(index for index, words in enumerate(lines) if words[0] == "GROUP")
    return lines[head + 1 :]


def test_the_group_command_resets_deletes_offsets_and_groups(broker: Broker, wire: GroupTalk) -> None:
    wire.commit("reset", {("topic", 0): 15, ("topic", 1): 40})
    at = ("--bootstrap-server", broker.bootstrap_servers, "--group", "reset")
    earliest = run(GROUP_COMMAND, *at, "--reset-offsets", "--topic", "topic:0", "--to-earliest", "--execute")
    assert ["reset", "topic", "0", "0"] in rows(earliest)
    assert wire.committed("reset") == {("topic", 0): 0, ("topic", 1): 40}
    run(GROUP_COMMAND, *at, "--reset-offsets", "--all-topics", "--shift-by", "-7", "--execute")
    assert wire.committed("reset") == {("topic", 0): 0, ("topic", 1): 33}
    run(GROUP_COMMAND, *at, "--delete-offsets", "--topic", "topic:1")
    assert wire.committed("reset") == {("topic", 0): 0}
    assert "successful" in run(GROUP_COMMAND, *at, "--delete")
    assert wire.committed("reset") == {}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_verifiable_producer_and_consumer(broker: Broker, wire: GroupTalk, protocol: str) -> None:
    topic = f"verified-{protocol}"
    wire.create(topic, 3)
    sent = run(
        "org.apache.kafka.tools.VerifiableProducer",
        "--bootstrap-server", broker.bootstrap_servers, "--topic", topic, "--max-messages", "300",
    )  # fmt: skip
    assert sum('"name":"producer_send_success"' in line for line in sent.splitlines()) == 300
    read = run(
        "org.apache.kafka.tools.VerifiableConsumer",
        "--bootstrap-server", broker.bootstrap_servers, "--topic", topic, "--group-id", topic, "--max-messages", "300",
        "--reset-policy", "earliest", "--group-protocol", protocol,
    )  # fmt: skip
    events = [json.loads(line) for line in read.splitlines() if line.startswith("{")]
    assert sum(event["count"] for event in events if event["name"] == "records_consumed") == 300
    assert all(event["success"] for event in events if event["name"] == "offsets_committed")
    assert sum(wire.committed(topic).values()) == 300


def test_the_console_consumer_reads_with_a_group_and_goes_on_where_it_was(broker: Broker, wire: GroupTalk) -> None:
    at = ("--bootstrap-server", broker.bootstrap_servers, "--topic", "topic", "--group", "console")
    first = run(CONSOLE_CONSUMER, *at, "--from-beginning", "--max-messages", "30", "--timeout-ms", "120000")
    assert sum(wire.committed("console").values()) == 30
    second = run(CONSOLE_CONSUMER, *at, "--max-messages", "50", "--timeout-ms", "120000")
    read = sorted(map(int, (first + second).split()))
    assert read == sorted([*range(RECORDS)] * 2)


def test_kafkas_dump_reads_our_offsets_topic(tmp_path: Path) -> None:
    with Broker(
        {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 1}, directory=tmp_path
    ) as broker:
        with GroupTalk(broker.host, broker.port) as wire:
            wire.create("topic", 3)
            wire.until_coordinated("dumped")
            wire.commit("dumped", {("topic", 1): (17, "a note")})
            wire.joined("dumped-classic")
            wire.beat("dumped-consumer", "M" * 22, 0)
            wire.beat("dumped-consumer", "M" * 22, -1)
            wire.delete_groups("dumped")
        data = broker.data_dir
    files = [file for file in files_of(data, ".log") if file.parent.name.startswith("__consumer_offsets")]
    dumps, complaints = dump(data, files, "--offsets-decoder")
    assert not complaints
    lines = [line for file_dump in dumps.values() for line in file_dump.lines]
    for part in ('"group":"dumped"', '"offset":17', '"metadata":"a note"', '"protocol":"range"', '"memberEpoch":1'):
        assert any(part in line for line in lines), (part, lines[:20])
    assert any(line.endswith("payload: <DELETE>") or "<DELETE>" in line for line in lines), lines[-5:]
