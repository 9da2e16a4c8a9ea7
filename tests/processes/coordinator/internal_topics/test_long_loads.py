"""The load of a partition of an internal topic: other work of the loop is done between its steps."""

import asyncio
import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import odradek._ext.partition.slot_facts as slot_facts
import odradek._ext.partition.slots as slots
from odradek.processes.coordinator.internal_topics import coordinated_topic
from odradek.processes.coordinator.internal_topics.coordinated_topic import CoordinatedTopic

PARTITIONS, STEPS = 3, 5


class Log:
    """The log of a partition that this process coordinates."""

    closed = False

    def __init__(self, place):
        self.place = place

    def look(self):
        pass

    def close(self):
        self.closed = True


class Directory:
    """One topic, all of whose partitions this broker leads."""

    def get(self, name):
        return self

    def partitions(self):
        return [(number, number) for number in range(PARTITIONS)]


class State:
    """The state that is loaded. :ivar steps: partition and verb of each step."""

    def __init__(self):
        self.steps, self.began, self.resigned = [], [], []

    def begin(self, partition, log):
        self.began.append(partition)

    def replay(self, partition, batches) -> Iterator[None]:
        return self._steps(partition, "replay")

    def loaded(self, partition) -> Iterator[None]:
        return self._steps(partition, "loaded")

    def lead_on(self, partition, leader_epoch):
        pass

    def _steps(self, partition, verb):
        for _ in range(STEPS):
            self.steps.append((partition, verb))
            yield

    def resign(self, partition):
        self.resigned.append(partition)


@pytest.fixture
def state(monkeypatch):
    """Every step takes longer than a turn of the loop."""
    monkeypatch.setattr(coordinated_topic, "TURN_S", 0)
    monkeypatch.setattr(coordinated_topic, "read_records", lambda slot, log_dirs: iter([[], []]))
    monkeypatch.setattr(slots, "leadership", lambda slot: (1, 0))
    monkeypatch.setattr(slots, "present_epoch", lambda slot: 1)  # there is no shared memory here
    monkeypatch.setattr(slot_facts, "describe", lambda slot: type("Facts", (), {"log_end_offset": 7}))
    return State()


def topic_of(state):
    made = CoordinatedTopic("topic", logging.getLogger("test"), "things", [], ThreadPoolExecutor(1), Log, False)
    made.serve(state)
    return made


async def turns_of(topic, state):
    """The number of steps in each turn of the loop, until all partitions are loaded."""
    counts = []
    while topic.loading:
        before = len(state.steps)
        await asyncio.sleep(0)
        counts.append(len(state.steps) - before)
    return counts


def test_other_work_is_done_between_the_steps_of_all_loads(state):
    async def main():
        topic = topic_of(state)
        topic.follow(Directory())
        assert max(await turns_of(topic, state)) == 1
        topic.close()

    asyncio.run(main())
    assert len(state.steps) == PARTITIONS * 3 * STEPS
    for partition in range(PARTITIONS):
        verbs = [verb for number, verb in state.steps if number == partition]
        assert verbs == ["replay"] * 2 * STEPS + ["loaded"] * STEPS


def test_a_partition_that_is_resigned_during_a_step_is_not_loaded_further(state, monkeypatch):
    async def main():
        topic = topic_of(state)
        topic.follow(Directory())
        while not state.steps:
            await asyncio.sleep(0)
        monkeypatch.setattr(slots, "leadership", lambda slot: None)
        topic.follow(Directory())
        assert await turns_of(topic, state) == []
        done = len(state.steps)
        for _ in range(10):
            await asyncio.sleep(0)
        assert len(state.steps) == done
        monkeypatch.setattr(slots, "leadership", lambda slot: (1, 1))
        topic.follow(Directory())
        await turns_of(topic, state)
        assert len(state.steps) == done + PARTITIONS * 3 * STEPS
        topic.close()

    asyncio.run(main())
    assert sorted(state.resigned) == sorted([*range(PARTITIONS)] * 2)
