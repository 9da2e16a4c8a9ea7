"""Members of several libraries in one group: every record is read and committed, whichever process is killed meanwhile.

The members are processes; what each read is in a file. Ended by process id, in order (SIGTERM) or not (SIGKILL); so is the
coordinator process of the broker.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Producer

from odradek.testing import Broker
from tests import toolchains
from tests.api.group_talk import GroupTalk
from tests.waiting import until

pytestmark = [pytest.mark.xdist_group("client-groups"), pytest.mark.timeout(1200)]

PARTITIONS = 6
PATIENCE_S = 300  # of some waits the end of a session is a part
SESSION_MS, HEARTBEAT_MS = 15_000, 2000
"""Of members of the newer protocol: the test waits until the broker notices the death of one."""
RANGE = "org.apache.kafka.clients.consumer.RangeAssignor"


class Member:
    """A consumer as a process; a name is a library's, with "+consumer" for the protocol of KIP-848."""

    def __init__(self, name: str, bootstrap_servers: str, group: str, topic: str, directory: Path) -> None:
        library, _, protocol = name.partition("+")
        self.name = name
        self._java = library == "java"
        self.output = directory / f"{group}-{name}-{time.monotonic_ns()}.out"
        if self._java:
            command = toolchains.java_command(
                "org.apache.kafka.tools.VerifiableConsumer",
                "--bootstrap-server", bootstrap_servers, "--topic", topic, "--group-id", group,
                "--reset-policy", "earliest", "--group-protocol", protocol or "classic",
                *(() if protocol else ("--session-timeout", "6000", "--assignment-strategy", RANGE)),
            )  # fmt: skip
        else:
            given = json.dumps(
                {"bootstrap_servers": bootstrap_servers, "group": group, "topic": topic, "protocol": protocol}
            )
            command = (
                [str(toolchains.go_program()), "member", given]
                if library == "franz-go"
                else [sys.executable, "-m", "tests.clients.programs.group_member", library, given]
            )
        with self.output.open("wb") as output, self.output.with_suffix(".err").open("wb") as errors:
            self.process = subprocess.Popen(command, stdout=output, stderr=errors, cwd=toolchains.REPOSITORY)

    def read(self) -> Iterator[tuple[int, int, int]]:
        """The records that it has read so far: partition, first and last offset."""
        for line in self.output.read_text().splitlines():
            try:
                event = json.loads(line)
            except ValueError:
                continue  # the line that it was writing when it was killed
            if not self._java:
                yield tuple(event)
            elif event.get("name") == "records_consumed":
                for part in event["partitions"]:
                    yield part["partition"], part["minOffset"], part["maxOffset"]

    def leave(self) -> None:
        """Stop the member in order."""
        self.process.terminate()
        self.process.wait(120)

    def kill(self) -> None:
        """Kill the member."""
        self.process.kill()
        self.process.wait(120)


class Room:
    """A broker with a topic, a group, and its members.

    :param servers: the addresses that clients are given; default: that of the broker.
    """

    def __init__(self, broker: Broker, group: str, directory: Path, stack: ExitStack, servers: str = "") -> None:
        self.broker, self.group, self.topic = broker, group, f"topic-of-{group}"
        self.servers = servers or broker.bootstrap_servers
        self._directory = directory
        self._producer = Producer({"bootstrap.servers": self.servers, "enable.idempotence": True})
        self.ends = dict.fromkeys(range(PARTITIONS), 0)
        self.members: list[Member] = []
        with GroupTalk(broker.host, broker.port) as wire:
            wire.create(self.topic, PARTITIONS)
        stack.callback(self.close)

    def close(self) -> None:
        for member in self.members:
            if member.process.poll() is None:
                member.kill()

    def enter(self, *names: str) -> list[Member]:
        """Let members join."""
        members = [Member(name, self.servers, self.group, self.topic, self._directory) for name in names]
        self.members += members
        return members

    def write(self, count: int) -> None:
        """Write more records to each partition."""
        failed: list[object] = []
        for number in range(count):
            for partition in self.ends:
                self._producer.produce(
                    self.topic,
                    str(number).encode(),
                    partition=partition,
                    on_delivery=lambda error, _: failed.append(error) if error else None,
                )
        assert self._producer.flush(120) == 0
        assert not failed, failed[0]
        for partition in self.ends:
            self.ends[partition] += count

    def unread(self) -> dict[int, int]:
        """The number of unread records of each partition."""
        read: dict[int, set[int]] = {partition: set() for partition in self.ends}
        for member in self.members:
            for partition, first, last in member.read():
                read[partition].update(range(first, last + 1))
        return {p: end - len(read[p]) for p, end in self.ends.items() if len(read[p]) < end}

    def all_read(self) -> None:
        """Wait until every record was read and committed."""
        until(
            lambda: not self.unread() and self.committed() == self.ends,
            lambda: f"not read: {self.unread()}, committed: {self.committed()} of {self.ends}\n{self.complaints()}",
            PATIENCE_S,
        )

    def coordinator_wire(self) -> GroupTalk:
        """A connection to the group's coordinator. Raises OSError."""
        return GroupTalk(self.broker.host, self.broker.port)

    def committed(self) -> dict[int, int]:
        """The committed offsets by partition; empty while no coordinator answers."""
        try:
            with self.coordinator_wire() as wire:
                answer = wire.fetch_offsets(self.group, None)
        except (OSError, EOFError):
            return {}
        return {part.partition_index: part.committed_offset for topic in answer.topics for part in topic.partitions}

    def complaints(self) -> str:
        """The last output of each member."""
        return "\n".join(
            f"{member.name} ({member.process.poll()}): {member.output.with_suffix('.err').read_text()[-600:]}"
            for member in self.members
        )

    def shares(self, members: list[Member]) -> None:
        """Wait until each of the members has read something, writing meanwhile."""
        before = {member: len(list(member.read())) for member in members}

        def all_have() -> bool:
            self.write(5)
            return all(len(list(member.read())) > before[member] for member in members)

        until(all_have, lambda: f"not all members get records\n{self.complaints()}", PATIENCE_S)

    def kill_coordinator(self) -> None:
        """Kill the coordinator process and wait for its successor."""
        (old,) = [process["pid"] for process in self.broker.processes() if process["kind"] == "coordinator"]
        os.kill(old, signal.SIGKILL)
        until(
            lambda: any(
                process["kind"] == "coordinator" and process["pid"] not in (0, None, old)
                for process in self.broker.processes()
            ),
            self.broker.log_tail,
        )


@pytest.fixture
def room(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Room]:
    """A separate broker for each test, because the test kills its coordinator."""
    with ExitStack() as stack:
        config = {
            "group.initial.rebalance.delay.ms": 200,
            "group.consumer.session.timeout.ms": SESSION_MS,
            "group.consumer.min.session.timeout.ms": SESSION_MS,
            "group.consumer.heartbeat.interval.ms": HEARTBEAT_MS,
            "group.consumer.min.heartbeat.interval.ms": HEARTBEAT_MS,
            "offsets.topic.num.partitions": 5,
        }
        broker = stack.enter_context(Broker(config, directory=tmp_path / "broker"))
        yield Room(broker, "mixed", tmp_path, stack)


def life(room: Room, first: list[str], second: list[str]) -> None:
    """Join, share, leave, kill, lose the coordinator, join again."""
    room.write(20)
    early = room.enter(*first)
    room.shares(early)
    late = room.enter(*second)
    room.shares(early + late)
    early[0].leave()
    room.shares(early[1:] + late)
    late[-1].kill()
    room.kill_coordinator()
    stay = early[1:] + late[:-1]
    room.shares([*stay, *room.enter(first[0])])
    room.all_read()


def test_python_libraries_share_a_group_by_the_range_assignor(room: Room) -> None:
    life(room, ["confluent-kafka", "kafka-python"], ["aiokafka", "confluent-kafka"])


@pytest.mark.java
def test_java_and_python_share_a_classic_group(room: Room) -> None:
    life(room, ["java", "kafka-python"], ["confluent-kafka", "aiokafka"])


@pytest.mark.golang
def test_go_and_python_share_a_classic_group(room: Room) -> None:
    life(room, ["franz-go", "kafka-python"], ["confluent-kafka", "franz-go"])


@pytest.mark.java
@pytest.mark.golang
def test_members_of_all_libraries_share_a_classic_group(room: Room) -> None:
    life(room, ["java", "franz-go", "kafka-python"], ["aiokafka", "confluent-kafka", "franz-go"])


@pytest.mark.java
def test_java_and_confluent_share_a_group_of_the_newer_protocol(room: Room) -> None:
    life(room, ["java+consumer", "confluent-kafka+consumer"], ["confluent-kafka+consumer"])


@pytest.mark.java
def test_members_of_both_protocols_share_a_group(room: Room) -> None:
    life(room, ["confluent-kafka", "kafka-python"], ["java+consumer", "confluent-kafka+consumer"])


def test_no_committed_offset_is_lost_when_the_coordinator_dies_amid_commits(room: Room) -> None:
    """Acknowledged commits survive, and a reader without a group continues all the time."""
    room.write(1)
    acknowledged: dict[str, int] = {}
    groups = [f"committer-{number}" for number in range(10)]
    with GroupTalk(room.broker.host, room.broker.port) as wire:
        for group in groups:
            wire.until_coordinated(group)
    for offset in range(1, 6):
        for group in groups:
            _commit(room, group, offset, acknowledged)
        room.kill_coordinator()
        room.write(1)  # produce goes on without a coordinator
        with GroupTalk(room.broker.host, room.broker.port) as wire:
            assert wire.fetch(room.topic, 0).error_code == 0
    for group in groups:
        with GroupTalk(room.broker.host, room.broker.port) as wire:
            wire.until_coordinated(group)
            assert wire.committed(group)[room.topic, 0] >= acknowledged[group]


def _commit(room: Room, group: str, offset: int, acknowledged: dict[str, int]) -> None:
    """Commit until it is acknowledged, because a coordinator may just be ending or starting."""

    def done() -> bool:
        try:
            with GroupTalk(room.broker.host, room.broker.port) as wire:
                (topic,) = wire.commit(group, {(room.topic, 0): offset}).topics
        except (OSError, EOFError):
            return False
        if topic.partitions[0].error_code == 0:
            acknowledged[group] = offset
        return acknowledged.get(group) == offset

    until(done, lambda: f"{group} could not commit {offset}: {room.broker.log_tail()}")
