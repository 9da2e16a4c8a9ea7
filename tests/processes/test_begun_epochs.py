"""After a start that may have lost records, logs are led in new leader epochs, which are stored before any client is served
(KIP-320).
"""

import json

import pytest

import odradek._ext.partition.slot_facts as slot_facts
from odradek._ext.partition import slots
from odradek._ext.shm.slot import BegunEpoch, SlotState
from odradek._ext.testing import slot_probe
from odradek.controller.topics import NewTopic
from odradek.metadata import cluster as cluster_module
from odradek.metadata import znodes
from odradek.metadata.cluster import ADOPTED_PRODUCER_IDS_FROM, machine_boot
from odradek.metadata.sqlite import SqliteStore
from odradek.metadata.store import StoreUnavailable
from odradek.processes import loader
from odradek.processes.loader import BegunEpochs
from odradek.storage.batch import Record, build_batch
from odradek.storage.checkpoints import read_leader_epochs, write_leader_epochs, write_offset_checkpoint
from odradek.storage.file_names import LEADER_EPOCH_CHECKPOINT, RECOVERY_POINT_CHECKPOINT
from tests.controller.mortal_cluster import single_broker
from tests.processes.test_loader import begin, load
from tests.shm.one_broker import batch


@pytest.fixture
def cluster(tmp_path):
    with single_broker(tmp_path) as make:
        yield make()


def stored(cluster, topic, partition=0):
    """(leader epoch, version of the node)."""
    store = SqliteStore(cluster.path)
    try:
        data, stat = store.get(znodes.state_path(topic, partition))
    finally:
        store.close()
    return json.loads(data)["leader_epoch"], stat.version


def in_slot(cluster, topic, partition=0):
    """(leader epoch, partition epoch, whether the store has it) of a partition that this process finds in its table."""
    state = slot_facts.describe(cluster.table.find(topic, partition))
    return state.leader_epoch, state.partition_epoch, state.begun_epoch != BegunEpoch.EPOCH_UNSTORED


def place(cluster, topic, partition=0):
    (directory,) = [path for data in cluster.data for path in data.glob(f"{topic}-{partition}")]
    return directory


def test_logs_that_were_not_closed_cleanly_get_a_new_epoch_at_each_start(cluster):
    cluster.controller.create_topics([NewTopic("a", 2), NewTopic("b")])
    for count in (1, 2, 3):
        load(cluster, clean=False)
        assert {stored(cluster, topic, partition) for topic, partition in (("a", 0), ("a", 1), ("b", 0))} == {
            (count, count)
        }
        begin(cluster)
        assert in_slot(cluster, "a", 1) == in_slot(cluster, "b") == (count, count, True)
    load(cluster, clean=True)
    assert stored(cluster, "a") == (3, 3)
    begin(cluster)
    assert in_slot(cluster, "a") == (3, 3, True)


def test_all_epochs_of_a_start_are_one_transaction(cluster, monkeypatch):
    cluster.controller.create_topics([NewTopic("a", 20), NewTopic("b", 20)])
    calls = []
    set_many = SqliteStore.set_many
    monkeypatch.setattr(
        SqliteStore, "set_many", lambda *arguments: (calls.append(len(arguments[1])), set_many(*arguments))
    )
    load(cluster, clean=False)
    assert calls == [40]


@pytest.mark.parametrize("how", ["the loader dies", "the store fails"])
def test_epochs_that_the_loader_did_not_store_are_stored_by_the_coordinator(cluster, monkeypatch, caplog, how):
    cluster.controller.create_topics([NewTopic("a", 3), NewTopic("b")])

    def fail(*_):
        raise StoreUnavailable("full")

    with monkeypatch.context() as broken:
        if how == "the loader dies":
            broken.setattr(BegunEpochs, "store", lambda *_: None)
        else:
            broken.setattr(SqliteStore, "set_many", fail)
        load(cluster, clean=False)
    assert stored(cluster, "a", 2) == stored(cluster, "b") == (0, 0)
    begin(cluster)
    for partition in range(3):
        assert in_slot(cluster, "a", partition) == (1, 1, True)
        assert stored(cluster, "a", partition) == (1, 1)
    assert stored(cluster, "b") == (1, 1)


def test_a_coordinator_that_dies_after_the_store_changes_nothing_twice(cluster, monkeypatch):
    """The flag in the slot is still there, and the store has the epoch already."""
    cluster.controller.create_topics([NewTopic("a")])
    with monkeypatch.context() as broken:
        broken.setattr("odradek._ext.partition.slot_life.epochs_stored", lambda *_: None)
        load(cluster, clean=False)
    assert stored(cluster, "a") == (1, 1)
    begin(cluster)
    assert in_slot(cluster, "a") == (1, 1, True)
    assert stored(cluster, "a") == (1, 1)


def test_a_cleanly_closed_log_that_ends_before_its_recovery_point_gets_a_new_epoch(cluster, caplog):
    cluster.controller.create_topics([NewTopic("a", 2)])
    for partition, end in ((0, 3), (1, 5)):
        log = b"".join(
            build_batch([Record(b"k")], base_offset=offset, partition_leader_epoch=0) for offset in range(end)
        )
        (place(cluster, "a", partition) / f"{0:020d}.log").write_bytes(log)
    for data in cluster.data:
        write_offset_checkpoint(data / RECOVERY_POINT_CHECKPOINT, {("a", 0): 5, ("a", 1): 5})
    load(cluster, clean=True)
    assert "2 offsets before its recovery point" in caplog.text
    begin(cluster)
    assert (in_slot(cluster, "a", 0), stored(cluster, "a", 0)) == ((1, 1, True), (1, 1))
    assert (in_slot(cluster, "a", 1), stored(cluster, "a", 1)) == ((0, 0, True), (0, 0))
    state = slot_facts.describe(cluster.table.find("a", 0))
    assert (state.log_end_offset, state.flushed_offset) == (3, 0), "nothing of it is known to be on the device"


def test_a_partition_without_its_directory_gets_a_new_epoch(cluster):
    cluster.controller.create_topics([NewTopic("a", 2)])
    place(cluster, "a", 1).rename(cluster.data[0] / "away-0")
    load(cluster, clean=True)
    assert [stored(cluster, "a", partition)[0] for partition in (0, 1)] == [0, 1]


def test_a_log_with_batches_of_an_epoch_newer_than_the_store_gets_a_higher_epoch(cluster):
    """As after a restored store, or when Kafka had the log in between."""
    cluster.controller.create_topics([NewTopic("a")])
    path = place(cluster, "a")
    (path / f"{0:020d}.log").write_bytes(build_batch([Record(b"k")], partition_leader_epoch=7))
    write_leader_epochs(path / LEADER_EPOCH_CHECKPOINT, [(7, 0)])
    load(cluster, clean=True)
    begin(cluster)
    assert in_slot(cluster, "a") == (8, 1, True)
    assert stored(cluster, "a") == (8, 1)


def test_the_epoch_is_written_to_its_file_by_the_first_append(cluster):
    cluster.controller.create_topics([NewTopic("a", 2)])
    for partition in range(2):
        slot_probe.append(cluster.table.find("a", partition), [batch(3)])
    load(cluster, clean=False)
    begin(cluster)
    slot_probe.append(cluster.table.find("a", 1), [batch()])
    assert [read_leader_epochs(place(cluster, "a", partition) / LEADER_EPOCH_CHECKPOINT) for partition in range(2)] == [
        [(0, 0)],
        [(0, 0), (1, 3)],
    ]
    load(cluster, clean=False)
    begin(cluster)
    assert in_slot(cluster, "a", 1)[0] == 2
    assert slot_facts.describe(cluster.table.find("a", 1)).epochs == [(0, 0), (1, 3)]


def test_logs_that_wait_for_disk_space_are_opened_in_a_new_epoch_if_they_may_have_lost_records(cluster, monkeypatch):
    """Its gaps are those of compaction, though its policy is delete by now; the recovery point holds, too."""
    cluster.controller.create_topics([NewTopic("a")])
    path = place(cluster, "a")
    for base, count in ((0, 10), (100, 100), (200, 50)):
        log = b"".join(
            build_batch([Record(b"k")], base_offset=base + n, partition_leader_epoch=0) for n in range(count)
        )
        (path / f"{base:020d}.log").write_bytes(log)
    write_offset_checkpoint(path.parent / "cleaner-offset-checkpoint", {("a", 0): 200})
    write_offset_checkpoint(path.parent / RECOVERY_POINT_CHECKPOINT, {("a", 0): 200})
    with monkeypatch.context() as full:

        def no_room(*_, **__):
            raise OSError(28, "No space left on device")

        full.setattr("odradek.shm.partition_table.load_log", no_room)
        load(cluster, clean=True)
        begin(cluster)
    slot = cluster.table.find("a", 0)
    assert slots.state_of(slot) == SlotState.SLOT_LOADING
    log_dir = cluster.data.index(path.parent)
    cluster.shm.set_disk(log_dir, 0, 1 << 30, 1 << 31)
    cluster.controller.open_waiting()
    state = slot_facts.describe(slot)
    assert (state.state, state.log_end_offset) == (SlotState.SLOT_ONLINE, 250)
    assert in_slot(cluster, "a") == (1, 1, True)
    assert stored(cluster, "a") == (1, 1)


# -- a cluster that may go back to Kafka ---------------------------------------------------------------------------------


def adopt(cluster, boot=b""):
    """As if Kafka had made it, and had run since the machine was booted if `boot` says so."""
    block = znodes.encode_producer_id_block(
        znodes.ProducerIdBlock(1, ADOPTED_PRODUCER_IDS_FROM, ADOPTED_PRODUCER_IDS_FROM + 999)
    )
    cluster.store.set(znodes.PRODUCER_ID_BLOCK, block)
    if boot:
        cluster.store.create(znodes.MACHINE_BOOT, boot, make_parents=True)


def noted_boot(cluster):
    store = SqliteStore(cluster.path)
    try:
        return store.get(znodes.MACHINE_BOOT)[0]
    finally:
        store.close()


def test_an_adopted_cluster_keeps_its_epochs_while_the_machine_runs(cluster, monkeypatch, tmp_path):
    """Kafka, once it is back, knows no epochs of ours; a kill loses nothing of the page cache."""
    cluster.controller.create_topics([NewTopic("a")])
    adopt(cluster, machine_boot())
    for _ in range(2):
        load(cluster, clean=False)
        begin(cluster)
        assert in_slot(cluster, "a") == (0, 0, True)
    (tmp_path / "boot").write_text("another\n")
    monkeypatch.setattr(cluster_module, "BOOT_ID", tmp_path / "boot")
    for _ in range(2):  # the first of them after the power came back
        load(cluster, clean=False)
        begin(cluster)
        assert in_slot(cluster, "a") == (1, 1, True)
    load(cluster, clean=True)
    (tmp_path / "boot").write_text("a third\n")
    load(cluster, clean=True)
    assert stored(cluster, "a") == (1, 1), "it was closed in order before the machine went down"
    load(cluster, clean=False)
    assert stored(cluster, "a") == (1, 1), "and that start was of this boot"


@pytest.mark.parametrize("boot", [b"", b"another"])
def test_the_first_start_of_an_adopted_cluster_depends_on_whether_kafka_ran_in_this_boot(cluster, boot):
    cluster.controller.create_topics([NewTopic("a")])
    adopt(cluster, boot)
    load(cluster, clean=False)
    assert stored(cluster, "a") == (1, 1)
    assert noted_boot(cluster) == machine_boot()
    load(cluster, clean=False)
    assert stored(cluster, "a") == (1, 1)


def test_a_boot_is_not_stored_before_its_new_epochs(cluster, monkeypatch):
    cluster.controller.create_topics([NewTopic("a")])
    adopt(cluster)

    def fail(*_):
        raise StoreUnavailable("full")

    with monkeypatch.context() as broken:
        broken.setattr(SqliteStore, "set_many", fail)
        load(cluster, clean=False)
    load(cluster, clean=False)
    assert stored(cluster, "a") == (1, 1)


def test_a_boot_is_not_stored_while_a_log_directory_is_offline(cluster, monkeypatch):
    """What its logs lost of the page cache is to be noticed by the start that finds it again."""
    cluster.controller.create_topics([NewTopic("a")])
    adopt(cluster, b"another")
    find = loader.find_directories

    def without_the_last_one(context):
        context.shm.set_log_dir_offline(len(cluster.data) - 1)
        return find(context)

    monkeypatch.setattr(loader, "find_directories", without_the_last_one)
    load(cluster, clean=False)
    assert noted_boot(cluster) == b"another"


def test_in_an_adopted_cluster_a_log_that_lost_records_gets_a_new_epoch(cluster):
    cluster.controller.create_topics([NewTopic("torn"), NewTopic("short"), NewTopic("whole")])
    adopt(cluster, machine_boot())
    batches = [build_batch([Record(b"k")], base_offset=offset, partition_leader_epoch=0) for offset in range(3)]
    for name in ("torn", "short", "whole"):
        (place(cluster, name) / f"{0:020d}.log").write_bytes(
            b"".join(batches) + (b"torn" * 30 if name == "torn" else b"")
        )
    for data in cluster.data:
        write_offset_checkpoint(data / RECOVERY_POINT_CHECKPOINT, {("short", 0): 5, ("whole", 0): 3})
    load(cluster, clean=False)
    begin(cluster)
    assert {name: stored(cluster, name)[0] for name in ("torn", "short", "whole")} == {
        "torn": 1,
        "short": 1,
        "whole": 0,
    }
