"""Workers are killed at random moments in front of a target that is slow, cuts connections, loses answers or is killed: each
round copies more, and in the end every record of the source is once in the copy, in order.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition

from odradek.clients.cluster import Cluster
from odradek.clients.errors import ClientError
from odradek.clients.groups import fetch_offsets
from odradek.protocol.schemas import produce
from odradek.testing import Broker
from tests.frame_relay import FORWARD, Fate, Frame, FrameRelay, Rule
from tests.mirror.clusters import Pair, relayed
from tests.mirror.commands import WorkerProcess
from tests.mirror.lanes import GROUP, records_of
from tests.waiting import until

PARTITIONS, BATCHES = 3, 1000
TRANSACTION_MS = 5000
LONGEST_MORE_S = 1.5
TARGET = {
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1000,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200,
}
KEYS = f"""
topics = numbers
odradek.mirror.lanes = 2
odradek.mirror.session.timeout.ms = 1500
odradek.mirror.request.timeout.ms = 3000
odradek.mirror.transaction.timeout.ms = {TRANSACTION_MS}
emit.offset-syncs.enabled = false
emit.checkpoints.enabled = false
"""


class Round(NamedTuple):
    """:param progress_s: from the worker's start to the first committed position that is new. :param records: copied in it."""

    kind: str
    progress_s: float
    records: int


USUAL = Fate(delay_s=0.005)
FAULTS = {
    "slow": (1.0, Fate(delay_s=0.03)),
    "stalls": (0.005, Fate(delay_s=2.0)),
    "cuts": (0.01, USUAL._replace(cut=True)),
    "lost requests": (0.003, Fate(lost=True, cut=True)),
    "lost answers": (0.002, USUAL._replace(answer_lost=True)),
    "killed target": (0.0, USUAL),
}
"""By kind of round: the part of the Produce requests that meet something else than USUAL."""


def rule(kind: str, chance: random.Random) -> Rule:
    part, fate = FAULTS[kind]

    def decide(frame: Frame) -> Fate:
        if frame.api_key != produce.API_KEY:
            return FORWARD
        return fate if chance.random() < part else USUAL

    return decide


class Scene(NamedTuple):
    source: Broker
    target: Broker
    relay: FrameRelay
    file: str
    directory: Path


@contextmanager
def scene(directory: Path) -> Iterator[Scene]:
    with ExitStack() as stack:
        source = stack.enter_context(Broker({"group.initial.rebalance.delay.ms": 0}, {"numbers": PARTITIONS}))
        target, relay = stack.enter_context(relayed(TARGET))
        file = Pair(source, target).write(directory / "mirror.properties", KEYS)
        yield Scene(source, target, relay, file, directory)


def write(servers: str, first: int, count: int) -> None:
    """Batches of one record each."""
    made = Producer({"bootstrap.servers": servers, "linger.ms": 0, "batch.num.messages": 1})
    for number in range(first, first + count):
        made.produce("numbers", b"%d" % number, partition=number % PARTITIONS)
        if not number % 1000:
            assert made.flush(60) == 0
    assert made.flush(60) == 0


def copied(servers: str) -> int:
    """The number of copied records: the sum of the positions, as the source has no gaps. -1: the target does not answer."""
    try:
        with Cluster(servers, timeout_s=5) as cluster:
            return sum(position.offset for position in fetch_offsets(cluster, GROUP).values())
    except ClientError:
        return -1


def copied_at_last(servers: str) -> int:
    """As `copied`, when the target answers."""
    return until(lambda: copied(servers) + 1, "the target answers") - 1


def one_round(scene: Scene, kind: str, number: int, chance: random.Random) -> Round:
    servers = scene.target.bootstrap_servers
    before = copied_at_last(servers)
    log = scene.directory / f"log{number}"
    worker = WorkerProcess(scene.file, log)

    def progress() -> bool:
        nonlocal worker
        if worker.ended:  # as documented, if the target was away at its start; its unit starts it again
            assert kind == "killed target" and "starts the flows" not in worker.log, worker.log
            worker = WorkerProcess(scene.file, log)
        return copied(servers) > before

    try:
        began = time.monotonic()
        if kind == "killed target":
            time.sleep(chance.uniform(0, 4))  # a random moment
            scene.target.kill_group()
            scene.target.start()
        until(progress, lambda: f"round {number}, {kind}: progress; {worker.log}", 120)
        progress_s = time.monotonic() - began
        time.sleep(chance.uniform(0, LONGEST_MORE_S))  # a random moment
    finally:
        worker.kill()
    return Round(kind, progress_s, copied_at_last(servers) - before)


def written(servers: str) -> int:
    """All records of the copy, with those of aborted transactions."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "all", "isolation.level": "read_uncommitted"})
    try:
        places = [TopicPartition("a.numbers", number, 0) for number in range(PARTITIONS)]
        ends = {place.partition: consumer.get_watermark_offsets(place, 30)[1] for place in places}
        consumer.assign(places)
        count = 0

        def all_read() -> bool:
            nonlocal count
            count += sum(message.error() is None for message in consumer.consume(1000, 0.2))
            positions = {place.partition: place.offset for place in consumer.position(places)}
            return all(positions[number] >= end for number, end in ends.items())

        until(all_read, "everything is read")
        return count
    finally:
        consumer.close()


def rounds(count: int, seed: int, directory: Path) -> tuple[list[Round], int]:
    """The rounds, and how many records of aborted transactions are in the copy."""
    chance = random.Random(seed)
    kinds = [list(FAULTS)[index % len(FAULTS)] for index in range(count)]
    chance.shuffle(kinds)
    done, total = [], 0
    with scene(directory) as place:
        for number, kind in enumerate(kinds):
            place.relay.rule = rule(kind, chance)
            write(place.source.bootstrap_servers, total, BATCHES)
            total += BATCHES
            done.append(one_round(place, kind, number, chance))
            print(done[-1], flush=True)
        place.relay.heal()
        servers = place.target.bootstrap_servers
        worker = WorkerProcess(place.file, directory / "last")
        try:
            until(lambda: copied(servers) == total, lambda: f"all is copied; {worker.log}", 300)
        finally:
            worker.stop()
        for number in range(PARTITIONS):
            values = [int(seen.value or b"") for seen in records_of(servers, ("a.numbers", number))]
            assert values == list(range(number, total, PARTITIONS))
        aborted = written(servers) - total
        print(f"{count} rounds, {total} records, {aborted} of aborted transactions in the copy", flush=True)
    return done, aborted


def test_thirty_workers_copy_something_each_before_they_are_killed(
    tmp_path: Path, count_faults: Callable[[Counter[str]], None]
) -> None:
    done, aborted = rounds(30, 4, tmp_path)
    assert all(each.records > 0 for each in done)
    # A killed worker leaves at most a transaction of each lane, with what was sent in 0.1 s and what was in flight.
    assert aborted < 2 * 500 * len(done)
    count_faults(Counter(f"mirror worker killed, target {each.kind}" for each in done))
