"""Members are killed at random under load while others join and leave: no record is lost, no committed record is repeated."""

import json
import random
import signal
import subprocess
import sys
from collections import Counter

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from odradek.testing import Broker
from tests.waiting import until

pytestmark = pytest.mark.timeout(900)

PARTITIONS, RECORDS, KILLS = 4, 6000, 5
MAX_UNCOMMITTED = 60
GROUP, TOPIC = "killed", "load"
PACE = {"work_s": 0.004, "slow_s": 0.3, "slow_every": 50}
"""Slow records are usually overtaken by others, so that a kill finds unprocessed offsets below processed ones."""


class Record:
    """Follows the files that the members write."""

    def __init__(self, path):
        self.path = path
        path.touch()

    def lines(self):
        """(process, partition, offset) in the order of writing; a line is one system call, so none is cut."""
        return [tuple(map(int, line.split())) for line in self.path.read_text().splitlines()]

    def wait_for(self, condition, members):
        """Wait until the condition holds; fail if a member ended by itself."""
        while not condition(lines := self.lines()):
            for one in members:
                assert one.poll() is None, f"a member ended with {one.returncode}"
            pause = members[0]
            try:
                pause.wait(0.05)
            except subprocess.TimeoutExpired:
                continue
        return lines


def test_kills_at_random_lose_nothing_and_repeat_only_what_was_not_committed(tmp_path):
    chance = random.Random()
    seen = Record(tmp_path / "seen")
    settings = {"group.initial.rebalance.delay.ms": 0, "group.min.session.timeout.ms": 1000}
    with Broker(settings, {TOPIC: PARTITIONS}, directory=tmp_path / "broker") as broker:
        client = {"bootstrap.servers": broker.bootstrap_servers, "group.id": GROUP}
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for number in range(RECORDS):
            producer.produce(TOPIC, b"x", str(number % 200).encode(), partition=number % PARTITIONS)
            producer.poll(0)
        assert producer.flush(60) == 0

        def member(**more):
            options = {
                "workers": 4,
                "buffer_records": 50,
                "max_uncommitted": MAX_UNCOMMITTED,
                "commit_interval_s": 0.05,
            }
            config = {
                **client,
                # longer than a member may be kept from running: one that was taken for dead goes on with what it holds
                "session.timeout.ms": 60_000,
                **more,
                "partition.assignment.strategy": "cooperative-sticky",
            }
            arguments = {"config": config, "topic": TOPIC, "file": str(seen.path), "options": options, **PACE}
            process = subprocess.Popen([sys.executable, "-m", "tests.parallel.member", json.dumps(arguments)])
            started.append(process)
            return process

        def stays(name):
            """Restart a member before its session timeout."""
            return member(**{"group.instance.id": name})

        def leave(process):
            """Stop a member in order, however slowly it started."""
            until(lambda: (tmp_path / f"seen.{process.pid}").exists() or process.poll() is not None, "the member")
            process.send_signal(signal.SIGTERM)

        def committed():
            reader = Consumer(client)
            answers = reader.committed([TopicPartition(TOPIC, one) for one in range(PARTITIONS)], timeout=90)
            reader.close()
            return {one.partition: max(one.offset, 0) for one in answers}

        started, floors = [], []
        whole = dict.fromkeys(range(PARTITIONS), RECORDS // PARTITIONS)
        try:
            members = {name: stays(name) for name in ("one", "two")}
            for round_number in range(KILLS):
                # some rounds with a third member, which leaves in good order while the killed one comes back
                third = member() if round_number % 2 else None
                victim = members[name := chance.choice(sorted(members))]
                waits_for = third or victim
                before = len(seen.lines())
                seen.wait_for(
                    lambda lines, pid=waits_for.pid, before=before: (
                        any(line[0] == pid for line in lines[before:]) or len(set(lines)) >= RECORDS
                    ),
                    list(members.values()),
                )
                victim.send_signal(signal.SIGKILL)
                victim.wait()
                floor = committed()
                floors.append((floor, len(seen.lines())))  # what was committed was written before this length was read
                members[name] = stays(name)
                if third is not None:
                    leave(third)
                    assert third.wait(90) == 0
            lengths = [0]

            def through(lines):
                """All records are processed, or all are committed and no more will be processed: then some are lost."""
                lengths.append(len(lines))
                still = lengths[-1] == lengths[-2]
                return len({line[1:] for line in lines}) >= RECORDS or (still and committed() == whole)

            seen.wait_for(through, list(members.values()))
            for one in members.values():
                leave(one)
            assert [one.wait(90) for one in members.values()] == [0, 0]
            final = committed()
        finally:
            for one in started:
                if one.poll() is None:
                    one.kill()
                    one.wait()

    lines = seen.lines()
    times = Counter(line[1:] for line in lines)
    assert set(times) == {
        (partition, offset) for partition in range(PARTITIONS) for offset in range(RECORDS // PARTITIONS)
    }
    assert final == whole
    for floor, length in floors:
        again = [line for line in lines[length:] if line[2] < floor[line[1]]]
        assert not again, f"processed again though committed at {floor}: {again[:5]}"
    assert sum(times.values()) - RECORDS <= KILLS * PARTITIONS * MAX_UNCOMMITTED
