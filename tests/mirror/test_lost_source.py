"""`mirror switch --source-lost`: the source is killed and its data removed; the group continues in the target without loss."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from odradek.clients import groups, topics
from odradek.clients.cluster import Cluster
from odradek.clients.groups import CommittedOffset
from odradek.mirror.internal_topic import InternalTopic
from odradek.mirror.lost_source import LostSource, newest_checkpoints
from odradek.mirror.records import Checkpoint
from odradek.mirror.switch import SwitchError, SwitchFlow
from odradek.testing import Broker
from odradek.topic_partition import TopicPartition
from tests.cli.command import Command
from tests.mirror.clusters import Pair
from tests.mirror.commands import consume, worker
from tests.waiting import until

QUICK = {"group.initial.rebalance.delay.ms": 0}
LINES = """topics = orders
emit.checkpoints.interval.seconds = 1
refresh.groups.interval.seconds = 1
refresh.topics.interval.seconds = 1
"""
FLOW = SwitchFlow("a", "b", True, lambda topic: f"a.{topic}", lambda topic: topic.removeprefix("a."))
PARTITIONS = 3


def produce(servers: str, numbers: range) -> None:
    """Records in transactions of ten, over two of the three partitions, after an aborted one."""
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "t", "linger.ms": 0})
    producer.init_transactions(30)
    for first in range(numbers.start, numbers.stop, 10):
        producer.begin_transaction()
        producer.produce("orders", b"aborted", partition=0)
        producer.flush(30)
        producer.abort_transaction(30)
        producer.begin_transaction()
        for number in range(first, first + 10):
            producer.produce("orders", b"%d" % number, partition=number % 2)
        producer.commit_transaction(30)


def copied(servers: str) -> int:
    """The number of the highest committed offsets of the copy, summed."""
    with Cluster(servers) as cluster:
        view = cluster.metadata(["a.orders"]).topics
        partitions = view["a.orders"].partitions if "a.orders" in view else ()
        found = topics.list_offsets(cluster, partitions, topics.LATEST, committed_only=True)
        return sum(each.offset for each in found.values())


def checkpoints(servers: str) -> dict[TopicPartition, int]:
    """The source's offsets in the newest checkpoints of the group."""
    with Cluster(servers) as cluster:
        newest = newest_checkpoints(cluster, FLOW).get("billing", {})
    return {place: found.checkpoint.upstream for place, found in newest.items()}


def test_a_group_continues_without_loss_when_the_source_is_killed_with_its_data(tmp_path: Path) -> None:
    with Broker(QUICK) as target, Broker(QUICK, directory=tmp_path / "source") as source:
        b, command = target.bootstrap_servers, Command(target.bootstrap_servers)
        file = Pair(source, target).write(tmp_path / "mirror.properties", LINES)
        with Cluster(source.bootstrap_servers) as cluster:
            topics.create(cluster, "orders", PARTITIONS)
        produce(source.bootstrap_servers, range(100))
        with worker(file, tmp_path / "log"):
            read = consume(source.bootstrap_servers, "orders", "billing", 43)
            with Cluster(source.bootstrap_servers) as cluster:
                committed = groups.fetch_offsets(cluster, "billing")
            expected = {(f"a.{name}", number): found.offset for (name, number), found in committed.items()}
            until(lambda: checkpoints(b) == expected, lambda: f"checkpoints {expected}, not {checkpoints(b)}")
            before = copied(b)
            produce(source.bootstrap_servers, range(100, 160))
            until(lambda: copied(b) >= before + 60, "the copy has the records")
            source.kill()
            shutil.rmtree(source.data_dir)
        words = (
            "cannot reach 'a': ",
            "if the cluster is lost, --source-lost moves the group with the newest checkpoints in 'b'",
        )
        command.refused("mirror", "switch", "billing", file, words=words)
        (listed,) = command.json("mirror", "groups", file)["groups"]
        assert (listed["group"], listed["topics"], listed["members_in_target"]) == ("billing", ["a.orders"], False)
        assert "billing" in command("mirror", "groups", file)
        planned = command.json("mirror", "switch", "billing", file, "--source-lost", "--dry-run")
        assert planned["source_lost"] and not planned["committed"]
        with Cluster(b) as cluster:
            assert groups.fetch_offsets(cluster, "billing") == {}
        done = command.run("mirror", "switch", "billing", file, "--source-lost")
        assert done.returncode == 0, done
        assert (
            "group billing from a (lost) to b" in done.stdout and "are read twice, and none is skipped" in done.stdout
        )
        assert "'a' was not read: members of the group" in done.stderr
        missing = set(range(160)) - set(read)
        again = consume(b, "a.orders", "billing", planned["may_repeat"], "latest")  # all records from the offsets on
        assert missing <= set(again), sorted(missing - set(again))
        assert len(again) == len(set(again))
        assert len(set(again) & set(read)) <= planned["may_repeat"]


@pytest.fixture(scope="module")
def target() -> Iterator[Broker]:
    with Broker(QUICK) as broker:
        yield broker


def plan_of(
    target: Broker, topic: str, found: list[Checkpoint], records: int = 20, partitions: int = 1, **commits: int
) -> tuple[list[tuple[int, int, bool, str]], LostSource]:
    """(offset, repeats, kept, note) of each partition for checkpoints of the group `topic`, and what made it."""
    with Cluster(target.bootstrap_servers) as cluster:
        topics.create(cluster, topic, partitions)
        producer = Producer({"bootstrap.servers": target.bootstrap_servers})
        for number in range(records):
            producer.produce(topic, b"%d" % number, partition=0)
        producer.flush(30)
        InternalTopic(cluster, "a.checkpoints.internal", -1).write(each.encoded() for each in found)
        if commits:
            assert not groups.commit_offsets(cluster, topic, {(topic, 0): CommittedOffset(commits["before"])})
    moving = LostSource(topic, Cluster(target.bootstrap_servers), FLOW)
    plan = moving.plan(overwrite=bool(commits.get("overwrite")))
    return [(move.translated, move.repeats, move.kept, move.note) for move in plan.moves], moving


def test_the_newest_checkpoint_counts_and_repeats_are_counted_exactly(target: Broker) -> None:
    found = [Checkpoint("new", ("new", 0), 5, 9, ""), Checkpoint("new", ("new", 0), 15, 13, "note")]
    moves, moving = plan_of(target, "new", found)
    assert moves == [(13, 7, False, "")]
    plan = moving.plan(overwrite=False)
    assert moving.execute(plan) == 1
    with Cluster(target.bootstrap_servers) as cluster:
        committed = groups.fetch_offsets(cluster, "new")["new", 0]
    assert (committed.offset, committed.metadata) == (13, "note")
    assert moving.execute(moving.plan(overwrite=False)) == 0


def test_partitions_without_a_checkpoint_begin_at_the_start_of_the_copy(target: Broker) -> None:
    moves, moving = plan_of(target, "some", [Checkpoint("some", ("some", 1), 0, 0, "")], partitions=2)
    assert moves == [(0, 20, False, "no checkpoint: begins at the start of the copy"), (0, 0, False, "")]
    assert moving.execute(moving.plan(overwrite=False)) == 2


def test_a_larger_offset_in_the_target_is_kept_unless_it_is_overwritten(target: Broker) -> None:
    found = [Checkpoint("kept", ("kept", 0), 5, 9, "")]
    moves, moving = plan_of(target, "kept", found, before=18)
    assert moves == [(18, 2, True, "the group has committed a larger offset here, which is kept")]
    assert moving.execute(moving.plan(overwrite=False)) == 0
    assert moving.execute(moving.plan(overwrite=True)) == 1
    with Cluster(target.bootstrap_servers) as cluster:
        assert groups.fetch_offsets(cluster, "kept")["kept", 0].offset == 9


def test_a_committed_offset_behind_the_end_of_the_copy_is_not_kept(target: Broker) -> None:
    """The members would continue where `auto.offset.reset` says, which can skip records."""
    moves, moving = plan_of(target, "beyond", [Checkpoint("beyond", ("beyond", 0), 5, 9, "")], before=5000)
    assert moves == [(9, 11, False, "the committed offset 5000 is beyond the end 20, and is replaced")]
    assert moving.execute(moving.plan(overwrite=False)) == 1
    moves, _ = plan_of(target, "neither", [Checkpoint("neither", ("neither", 0), 900, 1000, "")], before=21)
    begins = "the checkpoint 1000 is beyond the end 20: begins at the start of the copy"
    assert moves == [(0, 20, False, f"{begins}; the committed offset 21 is beyond the end 20, and is replaced")]


def test_a_checkpoint_outside_of_the_copy_does_not_skip_records(target: Broker) -> None:
    moves, _ = plan_of(target, "former", [Checkpoint("former", ("former", 0), 900, 1000, "")])
    assert moves == [(0, 20, False, "the checkpoint 1000 is beyond the end 20: begins at the start of the copy")]
    plan_of(target, "cut", [Checkpoint("cut", ("cut", 0), 4, 4, "")])
    with Cluster(target.bootstrap_servers) as cluster:
        topics.delete_records(cluster, {("cut", 0): 10})
    (move,) = LostSource("cut", Cluster(target.bootstrap_servers), FLOW).plan(overwrite=False).moves
    assert (move.translated, move.repeats) == (10, 10)
    assert move.note == "the target has deleted the records from offset 4 to 9"


def test_groups_without_checkpoints_and_groups_with_members_are_refused(target: Broker) -> None:
    with Cluster(target.bootstrap_servers) as cluster:
        with pytest.raises(
            SwitchError, match=r"has no checkpoint in 'z.checkpoints.internal' of 'b', which has no checkpoint"
        ):
            LostSource("g", cluster, SwitchFlow("z", "b", True, str, str)).plan(overwrite=False)
        plan_of(target, "busy", [Checkpoint("busy", ("busy", 0), 4, 4, "")])
        with pytest.raises(
            SwitchError, match=r"group 'none' has no checkpoint in .*; groups with checkpoints are .*busy"
        ):
            LostSource("none", cluster, FLOW).plan(overwrite=False)
        member = Consumer({"bootstrap.servers": target.bootstrap_servers, "group.id": "busy"})
        member.subscribe(["busy"])
        until(lambda: member.poll(0.05) is None and member.assignment(), "the member joined")
        with pytest.raises(SwitchError, match="group 'busy' has members in 'b'; stop them first"):
            LostSource("busy", cluster, FLOW).plan(overwrite=False)
        assert LostSource("busy", cluster, FLOW).plan(overwrite=False, stopped=False).moves
        member.close()


def test_only_a_flow_to_the_other_cluster_has_checkpoints(target: Broker, tmp_path: Path) -> None:
    file = Pair(target, target).write(tmp_path / "mirror.properties")
    words = ("has no flow 'b->a', whose checkpoints --source-lost needs in 'a'; its flows are a->b",)
    command = Command(target.bootstrap_servers)
    command.refused("mirror", "switch", "g", file, "--source-lost", "--from", "b", "--to", "a", code=2, words=words)
