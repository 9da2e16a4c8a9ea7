"""A log that was served and could not be changed completely for lack of disk space is opened again: when it gets a new leader
epoch.

Needs the debug build, and runs in its copy of the project: ``make test-faults``.
"""

import errno

import pytest

import odradek._ext.partition.slot_facts as slot_facts
from odradek._ext.partition import roles, slots
from odradek._ext.shm.slot import BegunEpoch, SlotState
from odradek._ext.storage.file_calls import FileCall
from odradek._ext.testing import fault_points
from odradek.controller.topics import NewTopic
from odradek.storage.batch import Record, build_batch
from tests.controller.mortal_cluster import BROKER, single_broker
from tests.processes.test_begun_epochs import adopt, in_slot, place, stored
from tests.processes.test_loader import begin, load
from tests.shm.fault_build import require_fault_points

pytestmark = pytest.mark.faults
require_fault_points("FILE FAULT")


def leave_half_way(cluster, slot):
    """To become leader again the broker writes the epoch into the log's file, and the disk has no room for it."""
    state = slot_facts.describe(slot)
    fault_points.arm_file_fault(errno.ENOSPC, 1, 1 << 30, 0xFF & ~int(FileCall.CALL_READ))
    with pytest.raises(OSError, match="leader-epoch-checkpoint"):
        roles.become_leader(
            slot, state.incarnation, leader_id=BROKER, leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch, controller_epoch=1, replicas=[BROKER], in_sync=[BROKER],
        )  # fmt: skip
    fault_points.arm_file_fault(0)
    assert slots.state_of(slot) == SlotState.SLOT_LOADING


@pytest.mark.parametrize("lost", [False, True], ids=["nothing lost", "records lost"])
@pytest.mark.parametrize("adopted", [False, True], ids=["own cluster", "adopted cluster"])
def test_a_log_that_was_served_in_the_epoch_of_the_start_is_led_in_another_one(tmp_path, adopted, lost):
    with single_broker(tmp_path) as make:
        cluster = make()
        cluster.controller.create_topics([NewTopic("a")])
        if adopted:
            adopt(cluster, b"another boot")
        batches = [build_batch([Record(b"k")], base_offset=offset, partition_leader_epoch=0) for offset in range(3)]
        log = place(cluster, "a") / f"{0:020d}.log"
        log.write_bytes(b"".join(batches))
        load(cluster, clean=False)
        begin(cluster)
        slot = cluster.table.find("a", 0)
        assert in_slot(cluster, "a") == (1, 1, True)
        leave_half_way(cluster, slot)
        assert slot_facts.describe(slot).begun_epoch == BegunEpoch.EPOCH_KEPT
        if lost:
            log.write_bytes(b"".join(batches[:2]))
        for index in range(len(cluster.data)):
            cluster.shm.set_disk(index, 0, 1 << 30, 1 << 31)
        cluster.controller.open_waiting()
        assert slots.state_of(slot) == SlotState.SLOT_ONLINE
        expected = 1 if adopted and not lost else 2
        assert in_slot(cluster, "a")[:2] == stored(cluster, "a") == (expected, expected)
