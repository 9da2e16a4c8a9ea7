"""Processes that run a lane are killed, at chosen requests and at random moments, and others take the lane: in the end every
committed record of the source is once in the target, in order.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from confluent_kafka import Producer

from odradek.mirror.routes import Route
from odradek.testing import Broker
from tests.mirror.lane_program import FENCED
from tests.mirror.lanes import records_of, routes_of, running, wait_until_moved
from tests.toolchains import REPOSITORY

PARTITIONS = 3
RECORDS = 45
LONGEST_S = 0.8
POINTS = [
    f"{when} {api} {number}"
    for api, numbers in {
        "InitProducerId": (1,),
        "OffsetFetch": (1,),
        "AddPartitionsToTxn": (1, 2),
        "AddOffsetsToTxn": (1,),
        "Produce": (1, 2, 3),
        "TxnOffsetCommit": (1, 2),
        "EndTxn": (1, 2, 3),
        "Fetch": (2,),
    }.items()
    for number in numbers
    for when in ("before", "after")
]


class Lanes:
    """Processes with a lane each; see lane_program.py."""

    def __init__(self, program: subprocess.Popen[str]) -> None:
        self._program = program

    def _say(self, line: str) -> int:
        assert self._program.stdin is not None
        assert self._program.stdout is not None
        self._program.stdin.write(line + "\n")
        self._program.stdin.flush()
        return int(self._program.stdout.readline())

    def start(self, point: str = "-") -> int:
        return self._say(f"start {point}")

    def end(self, pid: int, after_s: float) -> str:
        """SIGKILL a process after this time, unless it ended; return how it ended."""
        descriptor = os.pidfd_open(pid)
        try:
            ended, _, _ = select.select([descriptor], [], [], after_s)
            if not ended:
                os.kill(pid, signal.SIGKILL)
        finally:
            os.close(descriptor)
        status = self._say(f"wait {pid}")
        if os.WIFSIGNALED(status):
            assert os.WTERMSIG(status) == signal.SIGKILL
            return "killed itself" if ended else "killed"
        assert os.WEXITSTATUS(status) == FENCED
        return "fenced"


@contextmanager
def lanes(source: str, target: str, routes: list[Route]) -> Iterator[Lanes]:
    text = json.dumps([[*route.source, route.source_topic_id.hex()] for route in routes])
    command = [sys.executable, "-m", "tests.mirror.lane_program", source, target, text]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY) as program:
        yield Lanes(program)


class Writers:
    """Writes records and transactions, some of them aborted, into the source."""

    def __init__(self, servers: str, chance: random.Random) -> None:
        self._plain = Producer({"bootstrap.servers": servers, "linger.ms": 0, "batch.num.messages": 5})
        self._bound = Producer({"bootstrap.servers": servers, "transactional.id": "w", "batch.num.messages": 5})
        self._bound.init_transactions()
        self._chance = chance
        self._number = 0

    def write(self) -> None:
        writer = self._chance.choice([self._plain, self._bound])
        if writer is self._bound:
            writer.begin_transaction()
        for _ in range(RECORDS):
            self._number += 1
            writer.produce("numbers", b"%d" % self._number, partition=self._number % PARTITIONS)
        writer.flush()
        if writer is self._bound:
            (writer.abort_transaction if self._chance.random() < 0.3 else writer.commit_transaction)()


def kill_rounds(count: int, seed: int, count_faults: Callable[[Counter[str]], None]) -> None:
    chance = random.Random(seed)
    ends: Counter[str] = Counter()
    with (
        Broker(topics={"numbers": PARTITIONS}) as source,
        Broker(topics={"a.numbers": PARTITIONS}) as target,
    ):
        servers = source.bootstrap_servers, target.bootstrap_servers
        routes = routes_of(servers[0], ["numbers"])
        writers = Writers(servers[0], chance)
        points = [POINTS[index % len(POINTS)] for index in range(count)]
        chance.shuffle(points)
        with lanes(*servers, routes) as processes:
            for index, point in enumerate(points):
                _round(processes, writers, chance, index % 4, point, ends)
        with running(*servers, routes) as (_, watcher):
            wait_until_moved(watcher, *servers, routes)
        assert not watcher.stops
        for route in routes:
            expected = [seen.value for seen in records_of(servers[0], route.source)]
            assert [seen.value for seen in records_of(servers[1], route.target)] == expected
            assert len(expected) > count * RECORDS / PARTITIONS / 4
    assert ends["killed"] + ends["killed itself"] >= count
    assert ends["killed itself"]  # how many reach their points before LONGEST_S depends on the machine
    count_faults(Counter({f"mirror lane {name}": number for name, number in ends.items()}))


def _round(
    processes: Lanes, writers: Writers, chance: random.Random, kind: int, point: str, ends: Counter[str]
) -> None:
    """Kinds 0, 1: a process kills itself at `point`. 2: it is killed at a random moment. 3: another one takes its lane."""
    writers.write()
    pid = processes.start(point if kind < 2 else "-")
    other = None
    if kind == 1:
        writers.write()
    if kind == 3:
        other = processes.start()
        writers.write()
    for process, longest_s in (
        (pid, LONGEST_S if kind < 2 else chance.uniform(0.005, 0.2)),
        *([(other, chance.uniform(0.005, 0.2))] if other is not None else []),
    ):
        ends[processes.end(process, longest_s)] += 1


def test_killed_lanes_are_taken_over(count_faults: Callable[[Counter[str]], None]) -> None:
    kill_rounds(12, 1, count_faults)


def test_killed_lanes_are_taken_over_a_hundred_times(
    count_faults: Callable[[Counter[str]], None],
) -> None:
    kill_rounds(100, 2, count_faults)
