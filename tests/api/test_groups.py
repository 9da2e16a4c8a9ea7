"""Groups over the wire: cases that cannot be compared with Kafka, because Kafka no longer supports them or takes too long."""

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import delete_groups, list_groups, list_tree_offsets
from odradek.testing import Broker
from tests.api.group_talk import BUSY, GroupTalk
from tests.waiting import until
from tests.wire import NOBODY

pytestmark = pytest.mark.xdist_group("groups-wire")

CONFIG = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 3, "num.network.threads": 2}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(CONFIG, directory=tmp_path_factory.mktemp("groups")) as one:
        with GroupTalk(one.host, one.port) as wire:
            wire.create("topic", 3)
            wire.until_coordinated("first")
        yield one


@pytest.fixture
def wire(broker: Broker) -> Iterator[GroupTalk]:
    with GroupTalk(broker.host, broker.port) as one:
        yield one


def test_without_the_consumer_protocol_its_members_are_refused_and_classic_ones_served(tmp_path: Path) -> None:
    config = CONFIG | {"group.coordinator.rebalance.protocols": "classic"}
    with Broker(config, directory=tmp_path) as broker, GroupTalk(broker.host, broker.port) as wire:
        wire.create("topic", 1)
        wire.until_coordinated("g")
        refused = wire.beat("g", "m", 0)
        assert refused.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert "group.coordinator.rebalance.protocols" in refused.error_message
        assert wire.list_groups().groups == []
        wire.joined("g")
        described = wire.describe_consumer("g", "h").groups
        assert [(one.group_id, one.error_code) for one in described] == [
            ("g", ErrorCode.UNSUPPORTED_VERSION), ("h", ErrorCode.UNSUPPORTED_VERSION)
        ]  # fmt: skip
        assert wire.describe("g").groups[0].group_state == "Stable"


@pytest.mark.parametrize("version", range(2))
def test_offsets_of_the_oldest_versions(wire: GroupTalk, version: int) -> None:
    group = f"old-{version}"
    answer = wire.commit(group, {("topic", 0): 5, ("topic", 7): 1, ("gone", 0): 1}, version=version)
    codes = [[one.error_code for one in topic.partitions] for topic in answer.topics]
    assert codes == [[ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION], [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]]
    found = wire.fetch_offsets(group, {"topic": [0, 1]}, version=version)
    offsets = [(one.committed_offset, one.error_code) for one in found.topics[0].partitions]
    nothing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if version == 0 else ErrorCode.NONE
    assert offsets == [(5, ErrorCode.NONE), (-1, nothing)]


def test_offsets_of_version_0_are_not_those_of_the_coordinator(wire: GroupTalk) -> None:
    wire.commit("twofold", {("topic", 0): 5}, version=0)
    wire.commit("twofold", {("topic", 0): 9}, version=1)
    assert wire.fetch_offsets("twofold", {"topic": [0]}, version=0).topics[0].partitions[0].committed_offset == 5
    assert wire.committed("twofold") == {("topic", 0): 9}


def test_the_offsets_of_a_deleted_topic_do_not_serve_one_of_the_same_name(wire: GroupTalk) -> None:
    old = wire.create("reborn", 1)
    wire.commit("keeper", {("reborn", 0): 5, ("topic", 0): 6})
    wire.delete("reborn")
    new = wire.create("reborn", 1)
    assert new != old
    assert wire.fetch_offsets("keeper", {"reborn": [0]}).topics[0].partitions[0].committed_offset == -1
    assert wire.committed("keeper") == {("topic", 0): 6}
    by_id = wire.fetch_offsets("keeper", {new: [0], old: [0]}, version=10)
    codes = [(one.partitions[0].committed_offset, one.partitions[0].error_code) for one in by_id.topics]
    assert codes == [(-1, ErrorCode.NONE), (-1, ErrorCode.UNKNOWN_TOPIC_ID)]
    answer = wire.commit("keeper", {(old, 0): 7, (NOBODY, 0): 8, (new, 0): 9}, version=10)
    assert [one.partitions[0].error_code for one in answer.topics] == [
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.NONE,
    ]


def tree_of(wire: GroupTalk, *groups: str) -> dict[str, dict[str, dict[int, int]]]:
    """What the metadata tree has of these groups."""
    answer = wire.ask(list_tree_offsets.Request(group_ids=list(groups)), list_tree_offsets.API_KEY, 0)
    assert answer.error_code == ErrorCode.NONE
    return {
        group.group_id: {
            topic.name: {one.partition_index: one.committed_offset for one in topic.partitions}
            for topic in group.topics
        }
        for group in answer.groups
    }


def groups_in_tree(wire: GroupTalk) -> list[str]:
    return [one.group_id for one in wire.ask(list_tree_offsets.Request(), list_tree_offsets.API_KEY, 0).groups]


def test_groups_in_the_tree_are_listed_with_their_offsets(wire: GroupTalk) -> None:
    wire.commit("listed-b", {("topic", 0): 5, ("topic", 2): 7}, version=0)
    wire.commit("listed-a", {("topic", 1): 6}, version=0)
    assert [name for name in groups_in_tree(wire) if name.startswith("listed-")] == ["listed-a", "listed-b"]
    assert tree_of(wire, "listed-b", "no-such", "/", "") == {"listed-b": {"topic": {0: 5, 2: 7}}}
    named = {one.group_id for one in wire.ask(list_groups.Request(), list_groups.API_KEY, 4).groups}
    assert not {"listed-a", "listed-b"} & named, "Kafka's tools would ask the coordinator for them"


def test_offsets_in_the_tree_are_deleted_with_their_topic(wire: GroupTalk) -> None:
    wire.create("felled", 2)
    wire.commit("woodsman", {("felled", 0): 5, ("felled", 1): 6, ("topic", 0): 7}, version=0)
    wire.commit("alone", {("felled", 0): 8}, version=0)
    wire.delete("felled")
    assert tree_of(wire, "woodsman", "alone") == {"woodsman": {"topic": {0: 7}}}
    until(lambda: "alone" not in groups_in_tree(wire), "a group without offsets is deleted from the tree")
    wire.create("felled", 2)
    (topic,) = wire.fetch_offsets("woodsman", {"felled": [0, 1]}, version=0).topics
    assert {one.error_code for one in topic.partitions} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_offsets_of_very_many_partitions_in_the_tree(wire: GroupTalk) -> None:
    """More than the controller reads or writes in one step."""
    wire.create("expanse", 600)
    offsets = {("expanse", partition): 1000 + partition for partition in range(600)}
    (topic,) = wire.commit("broad", offsets | {("expanse", 600): 1}, version=0).topics
    codes = [one.error_code for one in topic.partitions]
    assert codes == [ErrorCode.NONE] * 600 + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    (topic,) = wire.fetch_offsets("broad", {"expanse": list(range(600))}, version=0).topics
    assert {("expanse", one.partition_index): one.committed_offset for one in topic.partitions} == offsets
    assert tree_of(wire, "broad") == {"broad": {"expanse": {partition: at for (_, partition), at in offsets.items()}}}
    assert [one.error_code for one in wire.delete_groups("broad").results] == [ErrorCode.NONE]
    assert (tree_of(wire, "broad"), "broad" in groups_in_tree(wire)) == ({}, False)


def test_offsets_of_topics_that_cannot_be_in_the_tree_are_unknown(wire: GroupTalk) -> None:
    names = ["", ".", "..", "a/b", "topic"]
    wire.commit("curious", {("topic", 0): 5}, version=0)
    topics = wire.fetch_offsets("curious", {name: [0] for name in names}, version=0).topics
    assert [one.partitions[0].committed_offset for one in topics] == [-1, -1, -1, -1, 5]


def test_a_deleted_group_is_removed_from_the_tree_and_from_the_log(wire: GroupTalk) -> None:
    def delete(group: str) -> ErrorCode:
        answer = wire.ask(delete_groups.Request(groups_names=[group]), delete_groups.API_KEY, 2)
        return ErrorCode(answer.results[0].error_code)

    wire.commit("only-tree", {("topic", 0): 5}, version=0)
    assert delete("only-tree") is ErrorCode.NONE
    assert delete("only-tree") is ErrorCode.GROUP_ID_NOT_FOUND
    wire.commit("in-both", {("topic", 0): 5}, version=0)
    wire.commit("in-both", {("topic", 0): 6})
    assert delete("in-both") is ErrorCode.NONE
    assert (tree_of(wire, "in-both"), wire.committed("in-both")) == ({}, {})


def test_commits_in_flight_on_one_connection_are_answered_and_applied_in_order(wire: GroupTalk) -> None:
    from odradek.protocol.schemas import offset_commit

    make = offset_commit.Request
    for offset in range(200):
        place = make.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
        topic = make.OffsetCommitRequestTopic(name="topic", partitions=[place])
        request = make(group_id="in-flight", generation_id_or_member_epoch=-1, member_id="", topics=[topic])
        wire.send(request, offset_commit.API_KEY, 9)
    for _ in range(200):
        assert wire.receive().topics[0].partitions[0].error_code == ErrorCode.NONE
    assert wire.committed("in-flight") == {("topic", 0): 199}


def test_a_commit_larger_than_a_batch_is_refused_and_the_next_one_accepted(wire: GroupTalk) -> None:
    wire.create("wide", 300)
    places = {("wide", partition): (1, "n" * 4000) for partition in range(300)}
    answer = wire.commit("huge", places)
    assert {one.error_code for topic in answer.topics for one in topic.partitions} == {
        ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    }
    assert wire.committed("huge") == {}
    assert wire.commit("huge", {("wide", 0): 2}).topics[0].partitions[0].error_code == ErrorCode.NONE
    assert wire.committed("huge") == {("wide", 0): 2}


def test_a_member_whose_connection_breaks_while_it_joins_comes_back(broker: Broker, wire: GroupTalk) -> None:
    me, generation = wire.joined("broken")
    with GroupTalk(broker.host, broker.port) as other:
        other.send_join("broken", version=3)
        while wire.heartbeat("broken", me, generation).error_code == ErrorCode.NONE:
            pass  # until the other's join has come
    answer = wire.join("broken", me)
    assert answer.error_code == ErrorCode.NONE, answer
    assert len(answer.members) == 2, "who went away may come back within its session"
    assert wire.sync("broken", me, answer.generation_id, assignments={me: b"all"}).assignment == b"all"


def test_every_group_request_without_a_coordinator_gets_an_error(tmp_path: Path) -> None:
    with Broker(CONFIG, directory=tmp_path) as broker, GroupTalk(broker.host, broker.port) as wire:
        wire.create("topic", 1)
        nobody = ErrorCode.NOT_COORDINATOR
        wire.send_join("g")
        assert wire.receive().error_code == nobody
        assert wire.sync("g", "m", 1).error_code == nobody
        assert wire.heartbeat("g", "m", 1).error_code == nobody
        assert wire.leave("g", ("m", None)).error_code == nobody
        assert wire.commit("g", {("topic", 0): 1}).topics[0].partitions[0].error_code == nobody
        assert wire.fetch_offsets("g", None).error_code == nobody
        assert wire.fetch_offsets("g", {"topic": [0]}, version=1).topics[0].partitions[0].error_code == nobody
        assert wire.delete_offsets("g", "topic", 0).error_code == nobody
        assert wire.describe("g").groups[0].error_code == nobody
        assert wire.list_groups().groups == []
        assert wire.delete_groups("g").results[0].error_code == nobody
        assert wire.beat("g", "m" * 22, 0).error_code == nobody
        assert wire.describe_consumer("g").groups[0].error_code == nobody
        wire.until_coordinated("g")
        assert wire.joined("g")[1] == 1


def test_a_group_continues_after_its_coordinator_was_killed(tmp_path: Path) -> None:
    with Broker(CONFIG, directory=tmp_path) as broker, ExitStack() as stack:

        def connect() -> GroupTalk:
            return stack.enter_context(GroupTalk(broker.host, broker.port))

        wire = connect()
        wire.create("topic", 3)
        wire.until_coordinated("g")
        me, generation = wire.joined("g")
        modern = wire.beat("modern", "m" * 22, 0)
        held = {"member_id": me, "generation_id_or_member_epoch": generation}
        wire.commit("g", {("topic", 0): 5}, **held)
        (pid,) = [one["pid"] for one in broker.processes() if one["kind"] == "coordinator"]
        os.kill(pid, signal.SIGKILL)
        while True:
            try:
                wire = connect()
                errors = {wire.fetch_offsets(group, None).error_code for group in ("g", "modern")}
            except (OSError, EOFError):
                continue  # a request that was on its way costs its connection
            if errors == {ErrorCode.NONE}:  # each partition of the offsets topic has its own time for being loaded
                break
            assert errors <= {ErrorCode.NONE, *BUSY}
        assert wire.heartbeat("g", me, generation).error_code == ErrorCode.NONE
        assert wire.committed("g") == {("topic", 0): 5}
        assert wire.commit("g", {("topic", 0): 6}, **held).topics[0].partitions[0].error_code == ErrorCode.NONE
        again = wire.beat("modern", "m" * 22, modern.member_epoch)
        assert (again.error_code, again.member_epoch) == (ErrorCode.NONE, modern.member_epoch)
        assert wire.sync("g", me, generation).error_code == ErrorCode.NONE
