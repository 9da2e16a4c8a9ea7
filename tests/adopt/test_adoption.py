"""Adoption without a real Kafka: ZooKeeper mode, several directories, obstacles, crashes, errors of the command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from odradek.config.broker_config import load
from odradek.metadata import adoption, znodes
from odradek.metadata.cluster import may_have_lost_cache
from odradek.metadata.kraft_log import ClusterMetadataError, read_cluster
from odradek.metadata.sqlite import FILE_NAME, SqliteStore
from odradek.storage.batch import Record, build_batch
from odradek.storage.checkpoints import read_gap_limit, write_offset_checkpoint
from odradek.storage.file_names import GAPS_CHECKPOINT
from odradek.storage.log_directory import (
    MetaProperties,
    encode_uuid,
    lock_directory,
    write_meta_properties,
    write_partition_metadata,
)
from odradek.storage.verify import list_directory, verify
from odradek.testing import Broker
from tests.adopt import kraft_writer
from tests.adopt.kafka_writes import fingerprint
from tests.storage.log_writer import LogWriter

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qk"
IDS = {name: uuid.UUID(int=number + 1000) for number, name in enumerate("abcdef")}


def odradek(*arguments, **options):
    command = [sys.executable, "-m", "odradek.cli.main", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **options)


def make_log(path: Path, topic: str, partition: int, *, bases=(0, 1, 2), epoch=3, producer_id=-1) -> None:
    writer = LogWriter(path / f"{topic}-{partition}")
    for number, base in enumerate(bases):
        writer.append(
            build_batch(
                [Record(b"k", b"v", 9)],
                base_offset=base,
                partition_leader_epoch=epoch,
                producer_id=producer_id,
                producer_epoch=0 if producer_id >= 0 else -1,
                base_sequence=number if producer_id >= 0 else -1,
            )
        )
    writer.close()
    if topic in IDS:
        write_partition_metadata(writer.directory, IDS[topic])


def make_zookeeper(path: Path, node=5, cluster=CLUSTER) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    write_meta_properties(path, MetaProperties(0, node, cluster))
    (path / ".kafka_cleanshutdown").touch()
    return path


def make_kraft(path: Path, records, node=1, cluster=CLUSTER) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    write_meta_properties(path, MetaProperties(1, node, cluster, uuid.UUID(int=77)))
    (path / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":1}')
    if records is not None:
        kraft_writer.write_log(path / "__cluster_metadata-0", records)
    return path


def found_in(*paths, settings=()):
    files = [list_directory(path) for path in paths]
    found = adoption.survey(files, load(None, [f"log.dirs={','.join(map(str, paths))}", *settings]))
    adoption.judge(found, verify(files, processes=1, gaps=found.compacted))
    return found


def store_of(path: Path):
    return SqliteStore(path / FILE_NAME)


# -- ZooKeeper mode --------------------------------------------------------------------------------------------------


def test_of_zookeeper_mode_topics_come_from_names_and_keep_everything(tmp_path):
    path = make_zookeeper(tmp_path / "data")
    for partition in range(3):
        make_log(path, "a", partition)
    make_log(path, "b", 0, bases=(0, 5, 9))
    make_log(path, "__consumer_offsets", 0)
    write_offset_checkpoint(path / "cleaner-offset-checkpoint", {("b", 0): 5})
    before = fingerprint(path)
    found = found_in(path)
    assert fingerprint(path) == before
    assert (found.mode, found.node_id, found.cluster_id, found.obstacles) == ("ZooKeeper", 5, CLUSTER, [])
    assert {name: len(topic.partitions) for name, topic in found.topics.items()} == {
        "a": 3,
        "b": 1,
        "__consumer_offsets": 1,
    }
    assert found.topics["a"].topic_id == IDS["a"] and found.topics["a"].configs == adoption.KEEP
    assert found.topics["b"].configs == {"cleanup.policy": "compact"}
    assert found.topics["__consumer_offsets"].configs["cleanup.policy"] == "compact"
    adoption.carry_out(found)
    store = store_of(path)
    state = znodes.decode_state("a", 2, store.get(znodes.state_path("a", 2))[0])
    assert (state.leader, state.leader_epoch, state.in_sync_replicas) == (5, 3, [5])
    assert znodes.decode_topic("a", store.get(znodes.topic_path("a"))[0]).partitions == {0: [5], 1: [5], 2: [5]}
    assert znodes.decode_cluster_id(store.get(znodes.CLUSTER_ID)[0]) == CLUSTER
    store.close()
    assert {name for name in fingerprint(path) if name not in before} == {FILE_NAME, f"b-0/{GAPS_CHECKPOINT}"}
    assert read_gap_limit(path / "b-0") == 9, "behind the last gap, which Kafka would keep, too"


@pytest.mark.parametrize("ran", [True, False], ids=["since the boot", "before the boot"])
def test_the_first_start_can_tell_whether_the_machine_went_down_since_kafka_ran(tmp_path, ran):
    """Otherwise a killed Kafka would have to count as one that lost unsynced records."""
    path = make_zookeeper(tmp_path / "data")
    make_log(path, "a", 0)
    write_offset_checkpoint(path / "replication-offset-checkpoint", {("a", 0): 3})
    if not ran:
        os.utime(path / "replication-offset-checkpoint", (1, 1))
    adoption.carry_out(found_in(path))
    store = store_of(path)
    try:
        assert may_have_lost_cache(store) == (not ran)
    finally:
        store.close()


def test_partitions_that_are_not_there_are_an_obstacle(tmp_path):
    path = make_zookeeper(tmp_path / "data")
    make_log(path, "a", 2)
    found = found_in(path)
    (obstacle,) = found.obstacles
    assert "[0, 1] of a" in obstacle and sorted(found.topics["a"].partitions) == [0, 1, 2]


def test_several_directories_are_one_broker(tmp_path):
    paths = [make_zookeeper(tmp_path / name) for name in ("x", "y")]
    make_log(paths[0], "a", 0)
    make_log(paths[1], "a", 1)
    found = found_in(*paths)
    assert not found.obstacles and [one.directory for one in found.topics["a"].partitions.values()] == [0, 1]
    make_log(paths[1], "a", 0)
    assert any("a-0 is in" in line for line in found_in(*paths).obstacles)


# -- KRaft -----------------------------------------------------------------------------------------------------------


def cluster_of(tmp_path, records, **options):
    kraft_writer.write_log(tmp_path / "__cluster_metadata-0", records, **options)
    return read_cluster(tmp_path / "__cluster_metadata-0")


@pytest.mark.parametrize("snapshot_at", [None, 4, 7])
def test_records_of_kraft_are_replayed_from_a_snapshot_or_from_the_start(tmp_path, snapshot_at):
    records = [
        kraft_writer.feature("metadata.version", 25),
        kraft_writer.topic("a", IDS["a"]),
        kraft_writer.partition(IDS["a"], 0, [1, 2], [1, 2], leader=2, leader_epoch=4, partition_epoch=9),
        kraft_writer.config(2, "a", "retention.ms", "5"),
        kraft_writer.config(2, "a", "segment.bytes", "99999999"),
        kraft_writer.change(IDS["a"], 0, isr=[1], leader=1),
        kraft_writer.config(2, "a", "retention.ms", None),
        kraft_writer.producer_ids(3000),
        kraft_writer.topic("b", IDS["b"]),
        kraft_writer.remove(IDS["b"]),
    ]
    cluster = cluster_of(tmp_path, records, snapshot_at=snapshot_at)
    assert {topic.name for topic in cluster.topics.values()} == {"a"}
    partition = cluster.topics[IDS["a"]].partitions[0]
    assert (partition.leader, partition.leader_epoch, partition.partition_epoch) == (1, 5, 10)
    assert (partition.in_sync_replicas, partition.replicas) == ([1], [1, 2])
    assert cluster.topic_configs("a") == {"segment.bytes": "99999999"}
    assert (cluster.next_producer_id, cluster.features["metadata.version"], cluster.end_offset) == (3000, 25, 10)


def test_metadata_transactions_count_when_they_end(tmp_path):
    begin, end, abort = kraft_writer.bare(23), kraft_writer.bare(24), kraft_writer.bare(25)
    topics = {name: kraft_writer.topic(name, IDS[name]) for name in "abc"}
    cluster = cluster_of(tmp_path, [begin, topics["a"], end, begin, topics["b"], abort, begin, topics["c"]])
    assert {topic.name for topic in cluster.topics.values()} == {"a"}


def test_a_torn_metadata_log_is_read_to_there_and_a_rotten_one_refused(tmp_path):
    records = [kraft_writer.topic(name, IDS[name]) for name in "abcdef"]
    kraft_writer.write_log(tmp_path / "m", records, segment_records=3)
    last = tmp_path / "m" / "00000000000000000003.log"
    os.truncate(last, last.stat().st_size - 4)
    cluster = read_cluster(tmp_path / "m")
    assert cluster.torn and len(cluster.topics) == 5
    first = tmp_path / "m" / "00000000000000000000.log"
    os.truncate(first, first.stat().st_size - 4)
    with pytest.raises(ClusterMetadataError, match="not the end of the log"):
        read_cluster(tmp_path / "m")
    first.unlink()
    with pytest.raises(ClusterMetadataError, match="begins at offset 3"):
        read_cluster(tmp_path / "m")


def test_a_record_of_a_newer_kafka_is_refused(tmp_path):
    for value, word in (
        (b"\x01\x63\x00", "kind 99"),
        (b"\x02\x02\x00", "frame version 2"),
        (b"\x01\x02\x09", "version 9"),
    ):
        with pytest.raises(ClusterMetadataError, match=word):
            cluster_of(tmp_path / word.replace(" ", ""), [value])


def test_what_kraft_says_becomes_nodes_with_epochs_and_ids(tmp_path):
    records = [
        kraft_writer.topic("a", IDS["a"]),
        kraft_writer.partition(IDS["a"], 0, [1], [1], leader=1, leader_epoch=4, partition_epoch=9),
        kraft_writer.partition(IDS["a"], 1, [1], [], leader=-1, leader_epoch=2, partition_epoch=3, elr=[1]),
        kraft_writer.config(2, "a", "cleanup.policy", "compact"),
        kraft_writer.config(2, "a", "no.such.key", "1"),
        kraft_writer.config(2, "a", "min.insync.replicas", "2"),
        kraft_writer.config(4, "", "min.insync.replicas", "1"),
        kraft_writer.producer_ids(3000),
    ]
    path = make_kraft(tmp_path / "data", records)
    make_log(path, "a", 0, bases=(0, 7))
    make_log(path, "a", 1, producer_id=4)
    make_log(path, "f", 0)
    found = found_in(path)
    assert not found.obstacles
    assert found.topics["a"].configs == {"cleanup.policy": "compact", "min.insync.replicas": "2"}
    assert any("a (min.insync.replicas=2); acks=all waits" in line for line in found.warnings)
    assert any("no.such.key" in line for line in found.left) and any(
        "f-0 (belongs to no topic" in line for line in found.left
    )
    assert any("min.insync.replicas" in line for line in found.left)
    adoption.carry_out(found)
    store = store_of(path)
    data, stat = store.get(znodes.state_path("a", 0))
    assert znodes.decode_state("a", 0, data).leader_epoch == 4 and stat.version == 9
    assert znodes.decode_state("a", 1, store.get(znodes.state_path("a", 1))[0]).leader_epoch == 3, "of the log"
    assert znodes.decode_topic("a", store.get(znodes.topic_path("a"))[0]).topic_id == IDS["a"]
    block = znodes.decode_producer_id_block(store.get(znodes.PRODUCER_ID_BLOCK)[0])
    assert block.last + 1 == (1 << 40) + 3000
    store.close()
    assert read_gap_limit(path / "a-0") == 7, "so that recovery keeps the gap"
    assert read_gap_limit(path / "a-1") is None


@pytest.mark.parametrize(
    ("partition", "here", "word"),
    [
        ({"replicas": [2, 3], "isr": [2]}, False, "on the brokers [2, 3] only"),
        ({"replicas": [1, 2], "isr": [2]}, True, "not in sync"),
        ({"replicas": [1], "isr": [1]}, False, "has no directory here"),
    ],
)
def test_what_kraft_has_elsewhere_is_an_obstacle(tmp_path, partition, here, word):
    records = [
        kraft_writer.topic("a", IDS["a"]),
        kraft_writer.partition(IDS["a"], 0, partition["replicas"], partition["isr"], leader=2),
    ]
    path = make_kraft(tmp_path / "data", records)
    if here:
        make_log(path, "a", 0)
    (obstacle,) = found_in(path).obstacles
    assert word in obstacle and "a-0" in obstacle


def test_a_directory_of_a_former_topic_of_that_name_stays_aside(tmp_path):
    records = [kraft_writer.topic("a", IDS["c"]), kraft_writer.partition(IDS["c"], 0, [1], [1], leader=1)]
    path = make_kraft(tmp_path / "data", records)
    make_log(path, "a", 0)
    found = found_in(path)
    assert any("former topic" in line for line in found.left) and "created empty" in found.obstacles[0]


# -- crashes, repetition ---------------------------------------------------------------------------------------------


def test_a_crash_at_any_call_leaves_theirs_or_ours_and_can_be_repeated(tmp_path, monkeypatch):
    path = make_zookeeper(tmp_path / "data")
    make_log(path, "a", 0)

    class Crash(BaseException):
        pass

    outcomes = []
    for crash_at in range(20):
        calls = 0

        def count(real, crash_at=crash_at):
            def call(*arguments, **options):
                nonlocal calls
                calls += 1
                if calls == crash_at:
                    raise Crash
                return real(*arguments, **options)

            return call

        with monkeypatch.context() as patched:
            for owner, name in (
                (adoption, "SqliteStore"), (SqliteStore, "fill"), (SqliteStore, "close"), (adoption.os, "fsync"),
                (Path, "replace"), (Path, "unlink"), (adoption, "fsync_directory"),
            ):  # fmt: skip
                patched.setattr(owner, name, count(getattr(owner, name)))
            found = found_in(path)
            try:
                adoption.carry_out(found)
                outcomes.append("done")
            except Crash:
                outcomes.append("crash")
        if (path / FILE_NAME).exists():
            store = store_of(path)
            assert znodes.decode_topic("a", store.get(znodes.topic_path("a"))[0]).topic_id == IDS["a"]
            store.close()
    assert outcomes.count("crash") > 5 and outcomes[-1] == "done"


def test_ids_of_producers_go_on_from_an_earlier_take_over(tmp_path):
    path = make_zookeeper(tmp_path / "data")
    make_log(path, "a", 0)
    adoption.carry_out(found_in(path))
    given = (1 << 40) + 4999
    store = store_of(path)
    store.set(znodes.PRODUCER_ID_BLOCK, znodes.encode_producer_id_block(znodes.ProducerIdBlock(5, given - 999, given)))
    store.close()
    found = found_in(path)
    assert found.again
    adoption.carry_out(found)
    store = store_of(path)
    assert znodes.decode_producer_id_block(store.get(znodes.PRODUCER_ID_BLOCK)[0]).last == given
    store.close()
    (path / FILE_NAME).unlink()
    (path / adoption.FORMER).unlink()
    make_log(path, "a", 1, producer_id=given + 5)
    assert adoption.first_producer_id(found_in(path)) > given + 5, "ids in snapshots count where the store is lost"


# -- the command -----------------------------------------------------------------------------------------------------


def assert_refused(done, *words):
    assert done.returncode == 1, done
    last = done.stderr.splitlines()[-1]
    assert last.startswith("odradek: ") and "Traceback" not in done.stderr
    for word in words:
        assert word in last, last


def test_a_directory_of_this_broker_is_named_as_such(tmp_path):
    with Broker(directory=tmp_path) as broker:
        data = broker.data_dir
    assert_refused(odradek("adopt", "--check", data), "is a directory of Odradek", "nothing to adopt")


def test_errors_are_one_line(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    for option in ("--check", "--yes"):
        assert_refused(odradek("adopt", option, tmp_path / "file"), "is not a directory")
        assert_refused(odradek("adopt", option, tmp_path / "empty"), "no meta.properties")
    assert not list((tmp_path / "empty").iterdir())
    assert_refused(odradek("adopt", "--check"), "name the log directories")
    one = make_zookeeper(tmp_path / "one")
    other = make_zookeeper(tmp_path / "other", cluster="AAAAAAAAAAAAAAAAAAAAAA")
    assert_refused(odradek("adopt", "--check", one, other), "belongs to cluster", "only directories of one broker")
    assert_refused(odradek("adopt", "--check", "--set", "node.id=7", one), "node 5", "node.id is 7")
    assert_refused(odradek("adopt", "--check", make_kraft(tmp_path / "kraft", None)), "__cluster_metadata-0")
    properties = tmp_path / "server.properties"
    properties.write_text(f"log.dirs={one}\n")
    assert_refused(odradek("adopt", "--check", "--config", properties, other), "name exactly these directories")
    assert odradek("adopt", "--check", "--config", properties).returncode == 0


def test_a_held_lock_is_refused(tmp_path):
    path = make_zookeeper(tmp_path / "data")
    make_log(path, "a", 0)
    lock = lock_directory(path)
    try:
        assert_refused(odradek("adopt", "--yes", path), "another broker uses", str(path))
        checked = odradek("adopt", "--check", "--json", path)
        assert checked.returncode == 1 and "stop it first" in json.loads(checked.stdout)["obstacles"][0]
    finally:
        os.close(lock)
    assert not (path / FILE_NAME).exists()


def test_obstacles_must_be_forced_and_nothing_happens_without_a_yes(tmp_path):
    path = make_zookeeper(tmp_path / "data")
    make_log(path, "a", 1)
    assert_refused(odradek("adopt", "--yes", path), "1 obstacle,", "--force")
    assert_refused(odradek("adopt", "--force", path), "Standard input is not a terminal", "--yes")
    assert not (path / FILE_NAME).exists()
    done = odradek("adopt", "--force", "-y", path)
    assert done.returncode == 0 and done.stdout.isascii(), "plain columns into a pipe"
    assert (path / FILE_NAME).exists()
    assert_refused(odradek("adopt", "--yes", path), "was already adopted", "--again")


def test_a_start_that_would_leave_the_adopted_metadata_unused_is_refused(tmp_path):
    """The file of a Kafka broker in ZooKeeper mode names ZooKeeper, which knows nothing of what happens after the adoption."""
    path = make_zookeeper(tmp_path / "data")
    make_log(path, "a", 0)
    settings = tmp_path / "server.properties"
    settings.write_text(
        f"broker.id=5\nlisteners=PLAINTEXT://127.0.0.1:0\nzookeeper.connect=127.0.0.1:1\nlog.dirs={path}\n"
    )
    done = odradek("adopt", "--yes", "--config", settings)
    assert done.returncode == 0 and f"log.dirs={path}, and with metadata.store=embedded" in done.stdout, done
    before = fingerprint(path)
    refused = odradek("start", "--config", settings)
    assert refused.returncode != 0 and f"{path / FILE_NAME} contains this broker's own metadata" in refused.stderr, (
        refused
    )
    assert "set metadata.store=embedded to use them" in refused.stderr
    assert fingerprint(path) == before


def test_a_store_of_another_cluster_is_not_replaced(tmp_path):
    path = make_zookeeper(tmp_path / "data")
    make_log(path, "a", 0)
    store = SqliteStore(path / FILE_NAME)
    store.create(znodes.CLUSTER_ID, znodes.encode_cluster_id(encode_uuid(uuid.UUID(int=5))), make_parents=True)
    store.close()
    assert_refused(odradek("adopt", "--yes", "--again", path), FILE_NAME, CLUSTER)
