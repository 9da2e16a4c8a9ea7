"""Flink's Kafka connector as source and as sink at exactly once, while the job and the broker's processes are killed.

The job writes each word with the number of times that it has come so far, so that the committed numbers of a word are
1, 2, 3 and so on, in this order, if nothing is lost or doubled.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Producer

from odradek.testing import Broker
from tests.clients.killed_programs import running
from tests.ecosystem.jars import java_command
from tests.ecosystem.records import Reader
from tests.faults import process_faults
from tests.waiting import until

pytestmark = [pytest.mark.xdist_group("flink"), pytest.mark.timeout(900), pytest.mark.java]

SEED = 20261127
PARTITIONS = 2
WORDS = [f"word-{number}" for number in range(40)]
AT_ONCE = 2000
PATIENCE_S = 180.0
JVM = ("-Xmx512m", "--add-opens=java.base/java.lang=ALL-UNNAMED", "--add-opens=java.base/java.util=ALL-UNNAMED")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    topics = {"words": PARTITIONS, "totals": PARTITIONS}
    with Broker({"num.network.threads": 2}, topics, directory=tmp_path / "broker") as started:
        yield started


class Job:
    """The job, which continues from its last checkpoint when it is started again."""

    def __init__(self, broker: Broker, directory: Path, naming: str) -> None:
        self._arguments = (broker.bootstrap_servers, "words", "totals", str(directory / "checkpoints"), naming)
        self._checkpoints = directory / "checkpoints"
        self._log = directory / "flink.log"
        self._process = ExitStack()

    def __enter__(self) -> Job:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start the job from its last completed checkpoint, if there is one."""
        completed = sorted(self._checkpoints.glob("*/chk-*/_metadata"), key=lambda file: file.stat().st_mtime)
        arguments = (*self._arguments, *(str(file.parent) for file in completed[-1:]))
        self._process.enter_context(running(java_command("flink", "Totals", *arguments, options=JVM), self._log))

    def kill(self) -> None:
        """End the job by SIGKILL."""
        self._process.close()

    def log(self) -> str:
        """The end of what the job printed."""
        return self._log.read_text()[-4000:]


def write(broker: Broker, rng: random.Random, written: Counter[str]) -> None:
    """Write some words, and count them."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "enable.idempotence": True, "log_level": 0})
    words = rng.choices(WORDS, k=AT_ONCE)
    for word in words:
        producer.produce("words", word, partition=rng.randrange(PARTITIONS))
    assert producer.flush(PATIENCE_S) == 0
    written.update(words)


@pytest.mark.parametrize("naming", ["INCREMENTING", "POOLING"])
def test_words_are_counted_once_although_everything_is_killed(broker: Broker, tmp_path: Path, naming: str) -> None:
    rng = random.Random(SEED)
    written: Counter[str] = Counter()
    write(broker, rng, written)
    servers = broker.bootstrap_servers
    with Job(broker, tmp_path, naming) as job, Reader(servers, "totals", PARTITIONS) as reader:

        def until_counted(count: int) -> None:
            until(lambda: reader.read() >= count, lambda: f"{reader.read()} of {count}: {job.log()}", PATIENCE_S)

        for kind in ("coordinator", "worker", "all"):
            until_counted(1 + reader.read())
            write(broker, rng, written)
            job.kill()
            if kind == "all":
                print(process_faults.kill_group(broker, rng))
            else:
                print(process_faults.kill_one(broker, rng, kind))
            write(broker, rng, written)
            job.start()
            until_counted(written.total() - AT_ONCE // 2)
            # the job continues without help, as its restart-strategy says
            write(broker, rng, written)
            print(process_faults.kill_one(broker, rng, "worker"))
        until_counted(written.total())
    with Reader(servers, "totals", PARTITIONS) as again:
        again.until(written.total())
        counted: dict[str, list[int]] = {}
        for partition in again.values():
            for value in partition:
                word, count = value.split()
                counted.setdefault(word, []).append(int(count))
    assert counted == {word: [*range(1, count + 1)] for word, count in written.items()}
