"""Logs that waited for disk space are opened in one new leader epoch, which is stored before clients are served in it."""

from contextlib import contextmanager

import pytest

import odradek._ext.partition.slot_facts as slot_facts
from odradek._ext.partition import slots
from odradek._ext.shm.slot import SlotState
from odradek.controller import controller as controller_module
from odradek.controller.controller import Controller
from odradek.controller.topics import NewTopic
from odradek.metadata.cluster import machine_boot
from odradek.metadata.store import StoreUnavailable
from odradek.storage.batch import Record, build_batch
from tests.controller.mortal_cluster import Death, single_broker
from tests.processes.test_begun_epochs import adopt, in_slot, place, stored
from tests.processes.test_loader import begin, load

CLUSTERS = pytest.mark.parametrize("adopted", [False, True], ids=["own cluster", "adopted cluster"])


@pytest.fixture
def cluster(tmp_path):
    with single_broker(tmp_path) as make:
        yield make()


@contextmanager
def no_room_for(monkeypatch, call):
    """A call of the opening of a log finds no room on the disk."""

    def no_room(*_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(f"odradek.shm.partition_table.{call}", no_room)
        yield


def wait_for_room(cluster, monkeypatch, adopted):
    """The broker starts; partition a-0, with three batches and a torn one, waits for room; its slot.

    No epoch has begun for it, as for a log that was served and then left half way.
    """
    cluster.controller.create_topics([NewTopic("a")])
    if adopted:
        adopt(cluster, machine_boot())
    batches = [build_batch([Record(b"k")], base_offset=offset, partition_leader_epoch=0) for offset in range(3)]
    (place(cluster, "a") / f"{0:020d}.log").write_bytes(b"".join(batches) + b"torn" * 30)
    with no_room_for(monkeypatch, "load_log"), monkeypatch.context() as before:
        before.setattr(Controller, "_begin_epochs", lambda *_: None, raising=False)
        load(cluster)
        begin(cluster)
    slot = cluster.table.find("a", 0)
    assert slots.state_of(slot) == SlotState.SLOT_LOADING
    assert stored(cluster, "a") == (0, 0)
    return slot


def try_to_open(cluster):
    """The disk has room, and the coordinator tries again."""
    for index in range(len(cluster.data)):
        cluster.shm.set_disk(index, 0, 1 << 30, 1 << 31)
    cluster.controller.open_waiting()


@CLUSTERS
def test_several_failed_attempts_to_open_a_log_begin_one_leader_epoch(cluster, monkeypatch, adopted):
    """The first attempt cuts the torn batch off, so the later ones find nothing lost."""
    slot = wait_for_room(cluster, monkeypatch, adopted)
    with no_room_for(monkeypatch, "slot_loading.fill"):
        for _ in range(3):
            try_to_open(cluster)
            assert slots.state_of(slot) == SlotState.SLOT_LOADING
            assert stored(cluster, "a") == (1, 1)
    try_to_open(cluster)
    assert slots.state_of(slot) == SlotState.SLOT_ONLINE
    assert slot_facts.describe(slot).log_end_offset == 3
    assert in_slot(cluster, "a") == (1, 1, True)
    assert stored(cluster, "a") == (1, 1)


@CLUSTERS
def test_a_start_without_room_begins_at_most_one_leader_epoch(cluster, monkeypatch, adopted):
    """Whether the first attempt of the coordinator is the one that opens the log, or a later one."""
    cluster.controller.create_topics([NewTopic("a")])
    if adopted:
        adopt(cluster, machine_boot())
    with no_room_for(monkeypatch, "load_log"):
        load(cluster)
        begin(cluster)
        for _ in range(3):
            try_to_open(cluster)
            cluster.succeed()
    try_to_open(cluster)
    expected = 0 if adopted else 1
    assert in_slot(cluster, "a")[:2] == stored(cluster, "a") == (expected, expected)


@pytest.mark.parametrize("opened_by", ["the coordinator", "its successor"])
@CLUSTERS
def test_a_leader_epoch_is_stored_before_a_log_that_waited_is_served(cluster, monkeypatch, adopted, opened_by):
    slot = wait_for_room(cluster, monkeypatch, adopted)
    seen = []
    write_states = controller_module.write_states

    def watched(store, changes, version):
        write_states(store, changes, version)
        seen.extend(slots.state_of(slot) for _ in changes)

    monkeypatch.setattr(controller_module, "write_states", watched)
    if opened_by == "the coordinator":
        try_to_open(cluster)
    else:
        cluster.succeed()
    assert seen == [SlotState.SLOT_LOADING]
    assert slots.state_of(slot) == SlotState.SLOT_ONLINE
    assert in_slot(cluster, "a") == (1, 1, True)
    assert stored(cluster, "a") == (1, 1)


@pytest.mark.parametrize("stored_before", [False, True], ids=["before it is stored", "before it is in the slot"])
@CLUSTERS
def test_a_coordinator_that_dies_while_an_epoch_begins_leaves_it_to_its_successor(
    cluster, monkeypatch, adopted, stored_before
):
    slot = wait_for_room(cluster, monkeypatch, adopted)
    cluster.store.lives, cluster.store.after = 0, stored_before
    with pytest.raises(Death):
        try_to_open(cluster)
    assert slots.state_of(slot) == SlotState.SLOT_LOADING
    assert stored(cluster, "a") == ((1, 1) if stored_before else (0, 0))
    cluster.succeed()
    assert slots.state_of(slot) == SlotState.SLOT_ONLINE
    assert in_slot(cluster, "a") == (1, 1, True)
    assert stored(cluster, "a") == (1, 1)


@CLUSTERS
def test_a_log_waits_until_its_leader_epoch_can_be_stored(cluster, monkeypatch, adopted):
    slot = wait_for_room(cluster, monkeypatch, adopted)

    def fail(*_):
        raise StoreUnavailable("full")

    with monkeypatch.context() as broken:
        broken.setattr(controller_module, "write_states", fail)
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                try_to_open(cluster)
            assert slots.state_of(slot) == SlotState.SLOT_LOADING
    try_to_open(cluster)
    assert slots.state_of(slot) == SlotState.SLOT_ONLINE
    assert in_slot(cluster, "a") == (1, 1, True)
    assert stored(cluster, "a") == (1, 1)


def test_a_log_that_lost_nothing_keeps_its_epoch_in_an_adopted_cluster(cluster, monkeypatch):
    slot = wait_for_room(cluster, monkeypatch, True)
    log = place(cluster, "a") / f"{0:020d}.log"
    log.write_bytes(log.read_bytes().removesuffix(b"torn" * 30))
    try_to_open(cluster)
    assert slots.state_of(slot) == SlotState.SLOT_ONLINE
    assert in_slot(cluster, "a")[:2] == stored(cluster, "a") == (0, 0)


def test_a_new_partition_without_a_directory_keeps_its_epoch(cluster, monkeypatch):
    with no_room_for(monkeypatch, "write_partition_metadata"), no_room_for(monkeypatch, "Path.mkdir"):
        cluster.controller.create_topics([NewTopic("a")])
    slot = cluster.table.find("a", 0)
    assert slots.state_of(slot) == SlotState.SLOT_LOADING
    try_to_open(cluster)
    assert slots.state_of(slot) == SlotState.SLOT_ONLINE
    assert in_slot(cluster, "a")[:2] == stored(cluster, "a") == (0, 0)
