"""Programs that other projects test transactions with, unchanged, while processes of the broker and of the programs are killed.

Kafka's copier of messages and its performance test, the smoke test of Kafka Streams, and franz-go's chain of transactional
groups. `ODRADEK_TEST_PEER=kafka` puts Apache Kafka in the broker's place, as control; it is not killed.
"""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

from tests import toolchains
from tests.api.group_talk import GroupTalk
from tests.faults import process_faults
from tests.transactions.broker_under_test import STARTERS, UnderTest
from tests.waiting import until

pytestmark = [pytest.mark.xdist_group("upstream"), pytest.mark.timeout(1800), pytest.mark.java]

PEER = os.environ.get("ODRADEK_TEST_PEER", "odradek")
INPUT, OUTPUT = "input", "output"
PARTITIONS = 2
SETTINGS: dict[str, str | int] = {"log.segment.bytes": 1 << 20, "num.partitions": 3}
PATIENCE_S = 240.0
SEED = 20261124


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[UnderTest]:
    with STARTERS[PEER](tmp_path / "broker", SETTINGS) as started:
        yield started


def address(broker: UnderTest) -> str:
    """The broker's own address: nothing is delayed here."""
    return f"{broker.server[0]}:{broker.server[1]}"


@contextmanager
def running(command: list[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A program whose output goes to a file, and which is killed at the end."""
    with log.open("ab") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


class Programs:
    """Programs that are killed and started again."""

    def __init__(self, commands: list[list[str]], directory: Path, stack: ExitStack) -> None:
        self._commands = commands
        self._directory = directory
        self._stack = stack
        self._processes = [self._start(number) for number in range(len(commands))]

    def _start(self, number: int) -> subprocess.Popen[bytes]:
        return self._stack.enter_context(running(self._commands[number], self.log(number)))

    def log(self, number: int) -> Path:
        """What a program printed."""
        return self._directory / f"program-{number}.log"

    def kill(self, number: int) -> None:
        """Kill a program (SIGKILL), and start it again."""
        self._processes[number].kill()
        self._processes[number].wait()
        self._processes[number] = self._start(number)

    def look(self) -> None:
        """Start programs again that have ended, as a service manager does."""
        for number, process in enumerate(self._processes):
            if process.poll() is not None:
                self._processes[number] = self._start(number)

    def logs(self) -> str:
        """The ends of what the programs printed."""
        return "\n".join(self.log(number).read_text()[-1500:] for number in range(len(self._commands)))


def disturb(broker: UnderTest, rng: random.Random) -> str:
    """Kill a process of the broker, or all of them."""
    if broker.broker is None:
        return "nothing"
    kind = rng.choice(["coordinator", "worker", "all"])
    if kind == "all":
        return process_faults.kill_group(broker.broker, rng)
    return process_faults.kill_one(broker.broker, rng, kind)


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


class CommittedValues:
    """Reads a topic at read_committed as it grows."""

    def __init__(self, broker: UnderTest, topic: str, partitions: int) -> None:
        self.values: list[list[str]] = [[] for _ in range(partitions)]
        self._consumer = Consumer(
            {
                "bootstrap.servers": address(broker),
                "group.id": "unused",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
                "error_cb": lambda error: None,
            }
        )
        self._consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)])

    def read(self) -> int:
        """Read on; the number of values so far."""
        for message in self._consumer.consume(1000, 0.1):
            error = message.error()
            if error is None:
                self.values[message.partition()].append(message.value().decode())
            else:
                assert error.code() != KafkaError.OFFSET_OUT_OF_RANGE, error
        return sum(map(len, self.values))

    def close(self) -> None:
        self._consumer.close()


def copier(broker: UnderTest, version: str, number: int, *options: str) -> list[str]:
    """The command line of a copier of a release of Kafka."""
    return toolchains.java_command(
        "org.apache.kafka.tools.TransactionalMessageCopier", "--input-topic", INPUT, "--output-topic", OUTPUT,
        "--input-partition", str(number), "--broker-list", address(broker), "--transactional-id", f"copier-{number}",
        "--consumer-group", "copiers", "--transaction-size", "40", "--transaction-timeout", "10000",
        "--enable-random-aborts", *options, version=version,
    )  # fmt: skip


MODES = {"assigned": (), "group": ("--group-mode", "--use-group-metadata")}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("version", [toolchains.KAFKA_VERSION, "3.9.1"], ids=["TV2", "TV1"])
def test_each_message_is_copied_once(broker: UnderTest, tmp_path: Path, version: str, mode: str) -> None:
    copy(broker, tmp_path, version, mode, 3000, 6)


def test_each_message_of_a_few_is_copied_once(broker: UnderTest, tmp_path: Path) -> None:
    copy(broker, tmp_path, toolchains.KAFKA_VERSION, "assigned", 600, 2)


def copy(broker: UnderTest, directory: Path, version: str, mode: str, count: int, disturbances: int) -> None:
    """Let two copiers copy, disturb them and the broker, and compare the output with the input."""
    expected = fill(broker, count)
    rng = random.Random(SEED)
    commands = [copier(broker, version, number, *MODES[mode]) for number in range(PARTITIONS)]
    found = CommittedValues(broker, OUTPUT, PARTITIONS)
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
                programs.kill(rng.randrange(PARTITIONS))
            else:
                print(disturb(broker, rng))
        until(
            lambda: (programs.look(), found.read())[1] >= count,
            lambda: f"{sum(map(len, found.values))} of {count} are copied: {programs.logs()}",
            PATIENCE_S,
        )
    found.close()
    again = CommittedValues(broker, OUTPUT, PARTITIONS)
    until(lambda: again.read() >= count, "the output is read again", PATIENCE_S)
    again.close()
    assert again.values == found.values == expected


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
    found = CommittedValues(broker, OUTPUT, PARTITIONS)
    until(lambda: found.read() >= count, "everything is read", PATIENCE_S)
    found.close()
    with GroupTalk(*broker.direct) as wire:
        markers = sum(wire.latest(OUTPUT, number) for number in range(PARTITIONS)) - count
    assert markers > 1


def test_the_smoke_test_of_kafka_streams(broker: UnderTest, tmp_path: Path) -> None:
    """Two processors at exactly_once_v2, which are killed, as is the broker; the driver verifies all results."""
    rng = random.Random(SEED)
    created = subprocess.run(
        toolchains.streams_command("Smoke", "create", address(broker), "3"), capture_output=True, text=True, timeout=120
    )
    assert created.returncode == 0, created.stderr
    commands = []
    for number in range(2):
        properties = tmp_path / f"streams-{number}.properties"
        properties.write_text(
            f"bootstrap.servers={address(broker)}\nprocessing.guarantee=exactly_once_v2\n"
            f"state.dir={tmp_path / f'state-{number}'}\nreplication.factor=1\nnum.stream.threads=2\n"
            "commit.interval.ms=200\nsession.timeout.ms=10000\nheartbeat.interval.ms=1000\n"
        )
        main_class = "org.apache.kafka.streams.tests.StreamsSmokeTest"
        commands.append(toolchains.streams_command(main_class, str(properties), "process"))
    driver_log = tmp_path / "driver.log"
    echo = CommittedValues(broker, "echo", 3)
    with ExitStack() as stack:
        programs = Programs(commands, tmp_path, stack)
        drive = toolchains.streams_command("Smoke", "drive", address(broker), "10", "500", "40")
        driver = stack.enter_context(running(drive, driver_log))
        before = 0
        for number in range(6):

            def further(before: int = before) -> bool:
                programs.look()
                return echo_count() > before + 300 or driver.poll() is not None

            def echo_count() -> int:
                return count_records(echo)

            until(further, lambda: f"the processors go on: {programs.logs()}", PATIENCE_S)
            if number % 2:
                programs.kill(number // 2 % 2)
            else:
                print(disturb(broker, rng))
            before = echo_count()
        until(lambda: (programs.look(), driver.poll())[1] is not None, "the driver ends", 900)
    echo.close()
    assert driver.returncode == 0, driver_log.read_text()[-6000:] + programs.logs()


def count_records(found: CommittedValues) -> int:
    """The number of records of a topic whose values are not text."""
    for message in found._consumer.consume(1000, 0.1):
        if message.error() is None:
            found.values[message.partition()].append("")
    return sum(map(len, found.values))


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


Disturbance = Callable[[UnderTest, random.Random], str]
