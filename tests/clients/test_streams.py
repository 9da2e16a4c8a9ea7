"""Kafka Streams at exactly_once_v2, while its instances and the processes of the broker are killed: an application of ours,
and Kafka's own smoke test, whose driver verifies all results.

`ODRADEK_TEST_PEER=kafka` puts Apache Kafka in the broker's place, as control; it is not killed.
"""

from __future__ import annotations

import random
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests import toolchains
from tests.api.group_talk import GroupTalk
from tests.clients.killed_programs import (
    PATIENCE_S,
    CommittedRecords,
    Programs,
    address,
    disturb,
    has_open_transaction,
    running,
    started_broker,
)
from tests.transactions.broker_under_test import UnderTest
from tests.waiting import until

pytestmark = [pytest.mark.xdist_group("streams"), pytest.mark.timeout(1800), pytest.mark.java]

SEED = 20261124
PARTITIONS = 3
OLDER_VERSION = "3.9.1"
"""Its producers use transaction version 1."""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[UnderTest]:
    with started_broker(tmp_path / "broker") as started:
        yield started


# -- counts of words ---------------------------------------------------------------------------------------------------

WORDS = [f"word-{number}" for number in range(40)]
LINES_AT_ONCE = 20
BACKLOG = 2000
"""While so many words are not counted yet, the application is at work. With much less it counts them all between two looks, and
its transactions are never seen."""


class Lines:
    """Writes lines of random words. ``words``: how often each was written."""

    def __init__(self, broker: UnderTest) -> None:
        self.words: Counter[str] = Counter()
        self._rng = random.Random(SEED)
        self._producer = Producer({"bootstrap.servers": address(broker), "enable.idempotence": True, "log_level": 0})

    def write(self) -> None:
        """Write some lines."""
        for _ in range(LINES_AT_ONCE):
            line = self._rng.choices(WORDS, k=4)
            self.words.update(line)
            self._producer.produce("lines", " ".join(line), partition=self._rng.randrange(PARTITIONS))
        self._producer.poll(0)

    def flush(self) -> None:
        assert self._producer.flush(PATIENCE_S) == 0


def count_words(broker: UnderTest, directory: Path, version: str, faults: list[Callable[[Programs], object]]) -> None:
    """Apply faults while words are counted, each in an open transaction; the counts must be as without faults.

    Each count of a word is written once, so that the committed counts of a word are 1, 2, 3 and so on, in this order.
    """
    with GroupTalk(*broker.direct) as wire:
        for topic in ("lines", "counts"):
            wire.create(topic, PARTITIONS)
            wire.until_led(topic, PARTITIONS)
    lines = Lines(broker)
    found = CommittedRecords(broker, "counts", PARTITIONS)
    command = toolchains.streams_command("WordCount", address(broker), str(directory / "state"), version=version)
    with ExitStack() as stack:
        application = Programs([command], directory, stack)
        for fault in faults:
            before = found.read()

            def counted(before: int = before) -> bool:
                application.look()
                count = found.read()
                while lines.words.total() - count < BACKLOG:
                    lines.write()
                return count > before and has_open_transaction(broker, "counts", PARTITIONS)

            until(counted, lambda: f"words are counted: {application.logs()}", PATIENCE_S)
            print(fault(application))
        lines.write()
        lines.flush()
        total = lines.words.total()
        until(
            lambda: (application.look(), found.read())[1] >= total,
            lambda: f"{found.read()} of {total} counts are committed: {application.logs()}",
            PATIENCE_S,
        )
    found.close()
    again = CommittedRecords(broker, "counts", PARTITIONS)
    until(lambda: again.read() >= total, "the counts are read again", PATIENCE_S)
    again.close()
    assert again.records == found.records
    counts: dict[str, list[int]] = {}
    for partition in found.records:
        for key, value in partition:
            assert key is not None
            counts.setdefault(key.decode(), []).append(int(value))
    assert counts == {word: [*range(1, written + 1)] for word, written in lines.words.items()}


def test_words_are_counted_once_although_the_application_is_killed(broker: UnderTest, tmp_path: Path) -> None:
    kill: Callable[[Programs], object] = lambda application: application.kill(0)  # noqa: E731
    count_words(broker, tmp_path, toolchains.KAFKA_VERSION, [kill, kill])


@pytest.mark.parametrize("version", [toolchains.KAFKA_VERSION, OLDER_VERSION], ids=["TV2", "TV1"])
def test_words_are_counted_once_although_everything_is_killed(broker: UnderTest, tmp_path: Path, version: str) -> None:
    rng = random.Random(SEED)
    count_words(
        broker,
        tmp_path,
        version,
        [
            lambda _: disturb(broker, rng, "coordinator"),
            lambda application: application.kill(0),
            lambda _: disturb(broker, rng, "worker"),
            lambda application: application.close(0),
            lambda _: disturb(broker, rng, "all"),
            lambda application: (disturb(broker, rng, "all"), application.kill(0)),
            lambda application: (application.kill(0), disturb(broker, rng, "coordinator")),
        ],
    )


# -- the smoke test ----------------------------------------------------------------------------------------------------

KEYS, RECORDS_OF_A_KEY, SECONDS = 10, 500, 30


def processors(broker: UnderTest, directory: Path, version: str) -> list[list[str]]:
    """The command lines of two instances of the application."""
    commands = []
    for number in range(2):
        properties = directory / f"streams-{number}.properties"
        properties.write_text(
            f"bootstrap.servers={address(broker)}\nprocessing.guarantee=exactly_once_v2\n"
            f"state.dir={directory / f'state-{number}'}\nreplication.factor=1\nnum.stream.threads=2\n"
            "commit.interval.ms=200\nsession.timeout.ms=6000\nheartbeat.interval.ms=1000\n"
        )
        main_class = "org.apache.kafka.streams.tests.StreamsSmokeTest"
        commands.append(toolchains.streams_command(main_class, str(properties), "process", version=version))
    return commands


@pytest.mark.parametrize("version", [toolchains.KAFKA_VERSION, OLDER_VERSION], ids=["TV2", "TV1"])
def test_the_smoke_test_of_kafka_streams(broker: UnderTest, tmp_path: Path, version: str) -> None:
    rng = random.Random(SEED)
    servers = address(broker)
    create = toolchains.streams_command("Smoke", "create", servers, str(PARTITIONS), version=version)
    subprocess.run(create, check=True, timeout=PATIENCE_S)
    drive = toolchains.streams_command(
        "Smoke", "drive", servers, str(KEYS), str(RECORDS_OF_A_KEY), str(SECONDS), version=version
    )
    driver_log = tmp_path / "driver.log"
    echo = CommittedRecords(broker, "echo", PARTITIONS)
    with ExitStack() as stack:
        programs = Programs(processors(broker, tmp_path, version), tmp_path, stack)
        driver = stack.enter_context(running(drive, driver_log, stdin=subprocess.PIPE))
        faults: list[Callable[[], object]] = [
            lambda: disturb(broker, rng, "coordinator"),
            lambda: programs.kill(0),
            lambda: disturb(broker, rng, "worker"),
            lambda: programs.close(1),
            lambda: disturb(broker, rng, "all"),
            lambda: programs.kill(1),
        ]
        for number, fault in enumerate(faults):
            wanted = KEYS * RECORDS_OF_A_KEY * number // len(faults)
            until(
                lambda wanted=wanted: (programs.look(), echo.read())[1] > wanted,
                lambda: f"the processors go on: {programs.logs()}",
                PATIENCE_S,
            )
            print(fault())
        assert driver.stdin is not None
        driver.stdin.close()
        until(
            lambda: (programs.look(), driver.poll())[1] is not None,
            lambda: f"the driver ends: {driver_log.read_text()[-3000:]} {programs.logs()}",
            900,
        )
        said = driver_log.read_text()
        assert driver.returncode == 0, said[-6000:] + programs.logs()
        # these it only prints
        assert "ALL-RECORDS-DELIVERED" in said and "SUCCESS" in said, said[-6000:]
        assert "PROCESSED-MORE-THAN-GENERATED" not in said, said[-6000:]
        assert all("FATAL" not in programs.log(number).read_text() for number in range(2)), programs.logs()
        echo.read()
    echo.close()
    assert sum(map(len, echo.records)) == KEYS * RECORDS_OF_A_KEY
