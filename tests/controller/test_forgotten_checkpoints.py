"""The lines of a deleted topic are removed from the checkpoints before another topic can have its name."""

import fcntl
import os

import pytest

import odradek._ext.partition.slot_facts as slot_facts
import odradek.shm.checkpoints as checkpoints
from odradek._ext.partition import slot_upkeep
from odradek._ext.testing import slot_probe
from odradek.controller.topics import NewTopic
from odradek.protocol.errors import ErrorCode
from odradek.shm.checkpoints import ALL_FILES, write_checkpoints
from odradek.storage.checkpoints import read_offset_checkpoint, write_offset_checkpoint
from odradek.storage.file_names import LOG_START_OFFSET_CHECKPOINT
from tests.controller.mortal_cluster import Death
from tests.processes.test_loader import begin, load
from tests.shm.one_broker import batch


def state_offsets(cluster, *logs):
    """Write a line for each of these logs to every checkpoint of every directory."""
    for data in cluster.data:
        for name in ALL_FILES:
            write_offset_checkpoint(data / name, {log: 1000 + number for number, log in enumerate(logs)})


def stated(cluster):
    """The logs in any checkpoint."""
    return {log for data in cluster.data for name in ALL_FILES for log in read_offset_checkpoint(data / name)}


def test_a_deletion_removes_the_lines_of_its_partitions_from_all_checkpoints(cluster):
    cluster.controller.create_topics([NewTopic("a", 2), NewTopic("aa"), NewTopic("b")])
    state_offsets(cluster, ("a", 0), ("a", 1), ("aa", 0), ("b", 0))
    cluster.controller.delete_topics(["a", "b"])
    assert stated(cluster) == {("aa", 0)}
    for data in cluster.data:
        for name in ALL_FILES:
            assert read_offset_checkpoint(data / name) == {("aa", 0): 1002}


def test_a_later_topic_of_that_name_uses_no_checkpoint_of_the_former(cluster):
    cluster.controller.create_topics([NewTopic("a")])
    state_offsets(cluster, ("a", 0))
    cluster.controller.delete_topics(["a"])
    cluster.controller.create_topics([NewTopic("a")])
    slot_probe.append(cluster.table.find("a", 0), [batch(5)])
    load(cluster, clean=False)
    begin(cluster)
    state = slot_facts.describe(cluster.table.find("a", 0))
    assert (state.log_start_offset, state.log_end_offset, state.flushed_offset) == (0, 5, 0)


def test_lines_cannot_come_back_while_the_topic_is_deleted(cluster, monkeypatch):
    """Each writer locks the directory before it reads the slots; a deletion locks it after its slots are deleted."""
    cluster.controller.create_topics([NewTopic("a")])
    held = []

    def locked(path):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    offsets, forget = slot_upkeep.checkpoint_offsets, checkpoints._forget

    def looking():
        held.append(any(locked(data) for data in cluster.data))
        return offsets()

    def forgetting(path, *arguments):
        held.append(locked(path.parent) and not cluster.table.find("a", 0) >= 0)
        forget(path, *arguments)

    monkeypatch.setattr(slot_upkeep, "checkpoint_offsets", looking)
    monkeypatch.setattr(checkpoints, "_forget", forgetting)
    write_checkpoints(cluster.shm, cluster.data)
    cluster.controller.delete_topics(["a"])
    assert held == [True] * (2 + 2 * len(ALL_FILES))


def test_a_topic_name_stays_reserved_while_the_disk_is_too_full_for_a_checkpoint(cluster, monkeypatch, caplog):
    cluster.controller.create_topics([NewTopic("a"), NewTopic("b")])
    state_offsets(cluster, ("a", 0), ("b", 0))
    with monkeypatch.context() as full:

        def no_room(*_, **__):
            raise OSError(28, "No space left on device")

        full.setattr("odradek.shm.checkpoints.CheckpointLines.write", no_room)
        (outcome,) = cluster.controller.delete_topics(["a"])
        assert outcome.code == ErrorCode.NONE, "the deletion takes effect, a successor completes it"
        assert cluster.served() == {"b": [0]}
        (again,) = cluster.controller.create_topics([NewTopic("a")])
        assert again.code == ErrorCode.TOPIC_ALREADY_EXISTS
        cluster.succeed()
        assert cluster.served() == {"b": [0]}
    assert "cannot finish the deletion of a" in caplog.text
    (made,) = cluster.controller.create_topics([NewTopic("a")])
    assert made.code == ErrorCode.NONE
    assert stated(cluster) == {("b", 0)}
    assert cluster.served() == {"a": [0], "b": [0]}


def test_a_failed_log_directory_does_not_prevent_the_deletion_of_a_topic(cluster, monkeypatch):
    cluster.controller.create_topics([NewTopic("a", 2)])
    state_offsets(cluster, ("a", 0))
    write = checkpoints.CheckpointLines.write

    def failing(lines, path, **options):
        if cluster.data[1] in path.parents:
            raise OSError(5, "Input/output error")
        write(lines, path, **options)

    monkeypatch.setattr("odradek.shm.checkpoints.CheckpointLines.write", failing)
    (outcome,) = cluster.controller.delete_topics(["a"])
    assert outcome.code == ErrorCode.NONE
    assert not cluster.controller.image.deleting
    assert cluster.shm.log_dir_offline(1) and not cluster.shm.log_dir_offline(0)
    assert read_offset_checkpoint(cluster.data[0] / LOG_START_OFFSET_CHECKPOINT) == {}


@pytest.mark.parametrize("deaths", range(4))
def test_a_deletion_that_a_start_finishes_keeps_the_lines_of_other_topics(cluster, deaths):
    """The first loader completes the deletion, when most logs have no slot yet."""
    names = [f"{letter}{number}" for letter in "ax" for number in range(3)]
    cluster.controller.create_topics([NewTopic(name) for name in names] + [NewTopic("middle", 2)])
    for name in names:
        slot_probe.append(cluster.table.find(name, 0), [batch(5)])
    for data in cluster.data:
        for name in ALL_FILES:
            write_offset_checkpoint(data / name, {(topic, 0): 3 for topic in [*names, "middle"]})
    cluster.table.lives = deaths
    with pytest.raises(Death):
        cluster.controller.delete_topics(["middle"])
    load(cluster, clean=False)
    begin(cluster)
    assert cluster.served() == {name: [0] for name in names}
    assert {slot_facts.describe(cluster.table.find(name, 0)).log_start_offset for name in names} == {3}
    assert not [log for log in stated(cluster) if log[0] == "middle"]
    assert [
        stray for stray in cluster.directories() if stray.startswith("middle") and not stray.endswith("-delete")
    ] == []


def test_a_directory_of_a_former_topic_is_renamed_and_its_checkpoint_lines_are_ignored(cluster):
    """Its line may be there if its log directory was offline while it was deleted."""
    cluster.controller.create_topics([NewTopic("a")])
    ((data, path),) = [(data, path) for data in cluster.data for path in data.glob("a-0")]
    (path / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
    for name in ALL_FILES:
        write_offset_checkpoint(data / name, {("a", 0): 700})
    load(cluster, clean=True)
    state = slot_facts.describe(cluster.table.find("a", 0))
    assert (state.log_start_offset, state.log_end_offset, state.gap_limit) == (0, 0, 0)
