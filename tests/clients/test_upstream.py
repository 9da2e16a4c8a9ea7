"""Programs that other projects test transactions with, unchanged, while processes of the broker and of the programs are killed.

Kafka's copier of messages and its performance test, and franz-go's chain of transactional groups. test_streams.py has Kafka
Streams. `ODRADEK_TEST_PEER=kafka` puts Apache Kafka in the broker's place, as control; it is not killed.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests import toolchains
from tests.api.group_talk import GroupTalk
from tests.clients.killed_programs import (
    KINDS,
    PATIENCE_S,
    CommittedRecords,
    Programs,
    address,
    disturb,
    started_broker,
)
from tests.transactions.broker_under_test import UnderTest
from tests.waiting import until

pytestmark = [pytest.mark.xdist_group("upstream"), pytest.mark.timeout(1800), pytest.mark.java]

INPUT, OUTPUT = "input", "output"
PARTITIONS = 2
SEED = 20261124


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[UnderTest]:
    with started_broker(tmp_path / "broker") as started:
        yield started


# -- the copier --------------------------------------------------------------------------------------------------------


def fill(broker: UnderTest, count: int) -> list[list[str]]:
    """Write numbers to the input; those of each partition, in order."""
    with GroupTalk(*broker.direct) as wire:
        for topic in (INPUT, OUTPUT):
            wire.create(topic, PARTITIONS)
            wire.until_led(topic, PARTITIONS)
    producer = Producer({"bootstrap.servers": address(broker), "enable.idempotence": True})
    for number in range(count):
        producer.produce(INPUT, str(number), partition=number % PARTITIONS)
        producer.poll(0)
    assert producer.flush(90) == 0
    return [[str(number) for number in range(first, count, PARTITIONS)] for first in range(PARTITIONS)]


@dataclass(frozen=True)
class Mode:
    """How copiers work: so many of them, each with these options."""

    copiers: int
    options: tuple[str, ...]


ABORTS, SUBSCRIBED, FENCED = "--enable-random-aborts", "--group-mode", "--use-group-metadata"
MODES = {
    "assigned": Mode(PARTITIONS, (ABORTS,)),
    "assigned-without-aborts": Mode(PARTITIONS, ()),
    "assigned-with-metadata": Mode(PARTITIONS, (FENCED, ABORTS)),
    "group": Mode(PARTITIONS, (SUBSCRIBED, FENCED, ABORTS)),
    # Without the metadata nothing keeps an expelled member from committing: with another member, records could be copied twice.
    "group-of-one-without-metadata": Mode(1, (SUBSCRIBED, ABORTS)),
}


def copier(broker: UnderTest, version: str, number: int, *options: str) -> list[str]:
    """The command line of a copier of a release of Kafka."""
    return toolchains.java_command(
        "org.apache.kafka.tools.TransactionalMessageCopier", "--input-topic", INPUT, "--output-topic", OUTPUT,
        "--input-partition", str(number), "--broker-list", address(broker), "--transactional-id", f"copier-{number}",
        "--consumer-group", "copiers", "--transaction-size", "40", "--transaction-timeout", "10000",
        *options, version=version,
    )  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("version", [toolchains.KAFKA_VERSION, "3.9.1"], ids=["TV2", "TV1"])
def test_each_message_is_copied_once(broker: UnderTest, tmp_path: Path, version: str, mode: str) -> None:
    copy(broker, tmp_path, version, mode, 3000, 6)


def test_each_message_of_a_few_is_copied_once(broker: UnderTest, tmp_path: Path) -> None:
    copy(broker, tmp_path, toolchains.KAFKA_VERSION, "assigned", 600, 2)


def copy(broker: UnderTest, directory: Path, version: str, mode: str, count: int, disturbances: int) -> None:
    """Let copiers copy, disturb the broker and them in turn, and compare the output with the input."""
    expected = fill(broker, count)
    rng = random.Random(SEED)
    kinds = cycle(rng.sample(KINDS, len(KINDS)))
    commands = [copier(broker, version, number, *MODES[mode].options) for number in range(MODES[mode].copiers)]
    found = CommittedRecords(broker, OUTPUT, PARTITIONS)
    with ExitStack() as stack:
        programs = Programs(commands, directory, stack)
        for number in range(disturbances):
            wanted = count * number // (disturbances + 1)
            until(
                lambda wanted=wanted: (programs.look(), found.read())[1] > wanted,
                lambda: f"the copiers go on: {programs.logs()}",
                PATIENCE_S,
            )
            if number % 2:
                programs.kill(rng.randrange(len(commands)))
            else:
                print(disturb(broker, rng, next(kinds)))
        until(
            lambda: (programs.look(), found.read())[1] >= count,
            lambda: f"{sum(map(len, found.records))} of {count} are copied: {programs.logs()}",
            PATIENCE_S,
        )
    found.close()
    again = CommittedRecords(broker, OUTPUT, PARTITIONS)
    until(lambda: again.read() >= count, "the output is read again", PATIENCE_S)
    again.close()
    assert again.values() == found.values() == expected


# -- others ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [toolchains.KAFKA_VERSION, "3.9.1"], ids=["TV2", "TV1"])
def test_the_performance_test_with_transactions(broker: UnderTest, version: str) -> None:
    count = 4000
    with GroupTalk(*broker.direct) as wire:
        wire.create(OUTPUT, PARTITIONS)
        wire.until_led(OUTPUT, PARTITIONS)
    command = toolchains.java_command(
        "org.apache.kafka.tools.ProducerPerformance", "--topic", OUTPUT, "--num-records", str(count), "--record-size",
        "100", "--throughput", "-1", "--transactional-id", "performance", "--transaction-duration-ms", "20",
        "--producer-props", f"bootstrap.servers={address(broker)}", version=version,
    )  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0 and f"{count} records sent" in done.stdout, done.stdout + done.stderr
    found = CommittedRecords(broker, OUTPUT, PARTITIONS)
    until(lambda: found.read() >= count, "everything is read", PATIENCE_S)
    found.close()
    with GroupTalk(*broker.direct) as wire:
        markers = sum(wire.latest(OUTPUT, number) for number in range(PARTITIONS)) - count
    assert markers > 1


CHAINS = ("range", "cooperative-sticky", "range/848", "sticky/848", "cooperative-sticky/static", "sticky/848/static")
"""The groups of franz-go's test: classic ones, and those of KIP-848."""


@pytest.mark.golang
def test_franz_gos_chain_of_transactional_groups(broker: UnderTest) -> None:
    done = subprocess.run(
        [str(toolchains.franz_go_tests()), "-test.run", "^TestTxnEtl$", "-test.v", "-test.timeout", "20m"],
        env=os.environ | {"KGO_SEEDS": address(broker), "KGO_TEST_RF": "1", "KGO_TEST_RECORDS": "20000"},
        capture_output=True,
        text=True,
        timeout=1300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    passed = set(re.findall(r"--- PASS: TestTxnEtl/(\S+)", done.stdout))
    assert passed == set(CHAINS), done.stdout[-6000:]
