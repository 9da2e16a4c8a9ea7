"""Clients close their connections while requests wait in a running broker: in its workers, in its coordinator, in threads.

Each client sends an ApiVersions request together with the request of the test. When it has the response to the first, its
worker has read the second, and has executed it, parked it or forwarded it. A coordinator that is stopped keeps forwarded
requests waiting.
"""

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from odradek.protocol.schemas import (
    api_versions,
    consumer_group_heartbeat,
    create_topics,
    delete_records,
    fetch,
    heartbeat,
    list_offsets,
    metadata,
    offset_commit,
    produce,
    sync_group,
)
from odradek.testing import Broker
from tests.api.group_talk import GroupTalk
from tests.cuts.cutting import CUTS
from tests.waiting import until
from tests.wire import batch, fetch_request, produce_request, values

CONFIG = {
    "num.network.threads": 2,
    "offsets.topic.num.partitions": 2,
    "group.initial.rebalance.delay.ms": 100,
    "group.min.session.timeout.ms": 100,
}
TOPICS = {"plain": 1, "synced": {"partitions": "1", "flush.messages": "1"}}
TIMES = {"session_timeout_ms": 300, "rebalance_timeout_ms": 300}
MINUTE_MS = 60_000

Send = Callable[[GroupTalk, str], None]
REQUESTS: dict[str, Send] = {}


def request(send: Send) -> Send:
    """Registers a function that sends a request, `name` being one that nobody else uses."""
    REQUESTS[send.__name__.replace("_", " ")] = send
    return send


def put(topic: str, acks: int, **fields: Any) -> Callable[[GroupTalk, str], None]:
    def send(wire: GroupTalk, name: str) -> None:
        wire.send(produce_request([(topic, [(0, batch(name.encode(), **fields))])], acks), produce.API_KEY, 9)
        if acks == 0:
            wire.forget_answer()

    return send


REQUESTS["produce, waiting for its sync"] = put("synced", -1)
REQUESTS["produce with one acknowledgement, waiting for its sync"] = put("synced", 1)
REQUESTS["produce without acknowledgement"] = put("synced", 0)
REQUESTS["produce in the append thread"] = put("plain", -1, codec=1)
REQUESTS["produce in the append thread, then waiting for its sync"] = put("synced", -1, codec=1)


@request
def fetch_waiting_for_records(wire: GroupTalk, name: str) -> None:
    wire.send(fetch_request([("plain", 0, 0)], min_bytes=1 << 30, wait_ms=MINUTE_MS), fetch.API_KEY, 12)


@request
def fetch_of_a_session_waiting_for_records(wire: GroupTalk, name: str) -> None:
    asked = fetch_request([("plain", 0, 0)], min_bytes=1 << 30, wait_ms=MINUTE_MS, session_epoch=0)
    wire.send(asked, fetch.API_KEY, 12)


@request
def fetch_of_an_old_format(wire: GroupTalk, name: str) -> None:
    wire.send(fetch_request([("plain", 0, 0)]), fetch.API_KEY, 2)


@request
def look_up_by_time(wire: GroupTalk, name: str) -> None:
    make = list_offsets.Request
    asked = [make.ListOffsetsPartition(partition_index=0, timestamp=1_000)]
    wire.send(
        make(replica_id=-1, topics=[make.ListOffsetsTopic(name="plain", partitions=asked)]), list_offsets.API_KEY, 7
    )


@request
def metadata_that_makes_a_topic(wire: GroupTalk, name: str) -> None:
    topics = [metadata.Request.MetadataRequestTopic(name=name)]
    wire.send(metadata.Request(topics=topics, allow_auto_topic_creation=True), metadata.API_KEY, 12)


@request
def create_topic(wire: GroupTalk, name: str) -> None:
    make = create_topics.Request
    topic = make.CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    wire.send(make(topics=[topic], timeout_ms=MINUTE_MS), create_topics.API_KEY, 7)


@request
def delete_some_records(wire: GroupTalk, name: str) -> None:
    make = delete_records.Request
    asked = make.DeleteRecordsTopic(
        name="synced", partitions=[make.DeleteRecordsPartition(partition_index=0, offset=0)]
    )
    wire.send(make(topics=[asked], timeout_ms=MINUTE_MS), delete_records.API_KEY, 2)


@request
def join_group(wire: GroupTalk, name: str) -> None:
    wire.send_join(name, "", 3, **TIMES)


@request
def sync_of_a_member_that_is_none(wire: GroupTalk, name: str) -> None:
    wire.send(sync_group.Request(group_id=name, generation_id=1, member_id="nobody"), sync_group.API_KEY, 3)


@request
def heartbeat_of_a_member_that_is_none(wire: GroupTalk, name: str) -> None:
    wire.send(heartbeat.Request(group_id=name, generation_id=1, member_id="nobody"), heartbeat.API_KEY, 3)


@request
def heartbeat_that_joins(wire: GroupTalk, name: str) -> None:
    asked = consumer_group_heartbeat.Request(
        group_id=name,
        member_id="",
        rebalance_timeout_ms=MINUTE_MS,
        subscribed_topic_names=["plain"],
        topic_partitions=[],
    )
    wire.send(asked, consumer_group_heartbeat.API_KEY, 0)


@request
def several_commits(wire: GroupTalk, name: str) -> None:
    make = offset_commit.Request
    for offset in range(3):
        place = make.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        asked = make(group_id=name, topics=[make.OffsetCommitRequestTopic(name="plain", partitions=[place])])
        wire.send(asked, offset_commit.API_KEY, 7)


@request
def a_join_with_commits_held_back(wire: GroupTalk, name: str) -> None:
    join_group(wire, name)
    several_commits(wire, name)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(CONFIG, TOPICS, directory=tmp_path_factory.mktemp("cuts")) as one:
        with GroupTalk(one.host, one.port) as wire:
            wire.until_coordinated("any")
        yield one


def begin(broker: Broker, send: Send, name: str) -> GroupTalk:
    """A connection whose worker has read the request."""
    wire = GroupTalk(broker.host, broker.port)
    asked = api_versions.Request(client_software_name="cuts", client_software_version="1")
    frames = [wire.frame(asked, api_versions.API_KEY, 3)]
    at_once = wire.socket
    wire.socket = Collecting(frames)
    send(wire, name)
    wire.socket = at_once
    at_once.sendall(b"".join(frames))
    wire.receive()
    return wire


class Collecting:
    """In the place of a socket: keeps what is sent."""

    def __init__(self, frames: list[bytes]) -> None:
        self.sendall = frames.append


def end(wires: list[tuple[str, GroupTalk]]) -> None:
    """Cut each in its way."""
    for cut, wire in wires:
        CUTS[cut](wire)


def gone(broker: Broker) -> bool:
    """Whether the workers know no connection any more."""
    return not sum(one["connections"] or 0 for one in broker.processes() if one["kind"] == "worker")


def works(broker: Broker, name: str) -> None:
    """All that was cut is possible for another client."""
    with GroupTalk(broker.host, broker.port) as wire:
        wire.create(name)
        assert wire.produce(name, batch(b"a")).error_code == 0
        assert values(wire.fetch(name, 0).records) == [b"a"]
        wire.commit(name, {(name, 0): 7}, generation_id_or_member_epoch=-1, member_id="")
        assert wire.produce("synced", batch(b"last")).error_code == 0


@contextlib.contextmanager
def standing_still(pid: int) -> Iterator[None]:
    """A process does nothing meanwhile."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def pids(broker: Broker) -> dict[int, str]:
    """The broker's processes and their kinds."""
    return {one["pid"]: one["kind"] for one in broker.processes()}


def test_connections_that_end_in_any_state_of_their_requests_disturb_nobody(broker):
    before = pids(broker)
    for number, send in enumerate(REQUESTS.values()):
        for cut in CUTS:
            wire = begin(broker, send, f"first-{number}-{cut}".replace(" ", "-"))
            CUTS[cut](wire)
            wire.socket.close()
    until(lambda: gone(broker), "all connections are gone")
    works(broker, "first-works")
    assert pids(broker) == before, broker.log_tail()


@pytest.mark.parametrize("killed", [False, True], ids=["goes on", "is killed"])
def test_connections_that_end_while_the_coordinator_stands_still_disturb_nobody(broker, killed):
    before = pids(broker)
    (coordinator,) = (pid for pid, kind in before.items() if kind == "coordinator")
    name = "killed" if killed else "stopped"
    with standing_still(coordinator):
        wires = [
            (cut, begin(broker, send, f"{name}-{number}-{cut}".replace(" ", "-")))
            for number, send in enumerate(REQUESTS.values())
            for cut in CUTS
        ]
        half = len(wires) // 2
        end(wires[:half])
        if killed:
            os.kill(coordinator, signal.SIGKILL)
    end(wires[half:])
    for _, wire in wires:
        wire.socket.close()
    until(lambda: gone(broker), "all connections are gone")
    with GroupTalk(broker.host, broker.port) as wire:
        wire.until_coordinated("any")
    works(broker, f"{name}-works")
    assert len(before.keys() - pids(broker).keys()) == killed, broker.log_tail()
    assert broker.status()["memory_faults"] == 0
