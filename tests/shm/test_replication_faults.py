"""A kill between every two steps of a change of roles, views, in-sync replicas, followers and followers' logs [R 10]: the next
process finds the state before or after the change, or a role that the controller must assign again.

Needs the debug build, and runs in its copy of the project: ``make test-faults``.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import odradek._ext.partition.leader_epochs as leader_epochs
import odradek._ext.partition.slot_facts as slot_facts
from odradek._ext.partition import in_sync, roles, slot_upkeep, slots
from odradek._ext.partition.role_facts import describe_role
from odradek._ext.shm import views
from odradek._ext.shm.faults import FaultPoint
from odradek._ext.shm.slot import Role
from odradek._ext.testing import replica_probe, slot_probe
from odradek.shm import truncation
from tests.shm.fault_build import require_fault_points
from tests.shm.one_broker import OneBroker, batch

pytestmark = pytest.mark.faults
require_fault_points()

BEFORE, AFTER = 4, 5  # leader epochs
REPLICAS = [1, 2, 3]


def points(*prefixes: str) -> list[FaultPoint]:
    """The fault points with these prefixes of their names."""
    return [point for point in FaultPoint if point.name.startswith(prefixes)]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OneBroker]:
    data = tmp_path / "data"
    data.mkdir()
    with OneBroker(data, processes=3) as made:
        replica_probe.cluster(REPLICAS)
        yield made


@pytest.fixture
def slot(broker: OneBroker) -> int:
    """A partition of three replicas that this broker follows in epoch `BEFORE`, with 10 records."""
    slot = broker.create(alone=False, min_in_sync_replicas=2)
    assign(slot, BEFORE, leader=False)
    slots.follow(slot, batch(10, base_offset=0, partition_leader_epoch=BEFORE), 10)
    return slot


def assign(slot: int, epoch: int, *, leader: bool, in_sync_replicas: tuple[int, ...] = (1, 2)) -> bool:
    """Assign a role, as the replicas thread does. Returns whether the epoch is new."""
    become = roles.become_leader if leader else roles.become_follower
    return bool(
        become(
            slot, slot_probe.incarnation_of(slot), leader_id=1 if leader else 2, leader_epoch=epoch,
            partition_epoch=epoch, controller_epoch=1, replicas=REPLICAS, in_sync=list(in_sync_replicas),
        )
    )  # fmt: skip


def fetch(slot: int, broker_id: int, offset: int) -> int:
    """Note a follower's fetch in epoch `AFTER`. Returns the error code."""
    return int(replica_probe.note_fetch(slot, broker_id, offset, leader_epoch=AFTER))


def propose(slot: int, *members: int) -> int:
    return int(in_sync.propose_in_sync(slot, slot_probe.incarnation_of(slot), AFTER, list(members)))


def commit(slot: int, serial: int, *members: int) -> bool:
    return bool(in_sync.commit_in_sync(slot, slot_probe.incarnation_of(slot), AFTER, serial, list(members), AFTER + 1))


def check_sets(slot: int) -> tuple[set[int], set[int]]:
    """(committed, maximal) in-sync replicas. The first is always contained in the second."""
    committed, maximal = in_sync.in_sync_sets(slot)
    assert set(committed) <= set(maximal)
    return set(committed), set(maximal)


# -- roles and views ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("leader", [True, False], ids=["leader", "follower"])
@pytest.mark.parametrize("point", points("ROLE_"), ids=lambda point: point.name)
def test_a_role_is_complete_or_is_assigned_again(broker: OneBroker, slot: int, point: FaultPoint, leader: bool) -> None:
    if not leader and point == FaultPoint.ROLE_EPOCH_NOTED:
        assign(slot, AFTER, leader=False)
        assert [epoch for epoch, _ in slot_facts.describe(slot).epochs] == [BEFORE], "a follower begins no epoch"
        return
    broker.die(lambda: assign(slot, AFTER, leader=leader), point)
    slot_upkeep.recover_dead()
    facts, wanted = describe_role(slot), Role.ROLE_LEADER if leader else Role.ROLE_FOLLOWER
    if point == FaultPoint.ROLE_EPOCH_NOTED:
        assert (facts.role, roles.role_epoch(slot), facts.leader_epoch) == (Role.ROLE_FOLLOWER, BEFORE, BEFORE)
    elif point == FaultPoint.ROLE_EPOCH_STORED:
        assert (facts.role, roles.role_epoch(slot), facts.leader_epoch) == (wanted, AFTER, AFTER)
    else:
        assert (facts.role, roles.role_epoch(slot)) == (Role.ROLE_NONE, -1)
        with pytest.raises(slots.SlotChanged):
            slots.follow(slot, batch(1, base_offset=10, partition_leader_epoch=BEFORE), 10)
    assert assign(slot, AFTER, leader=leader) is (point != FaultPoint.ROLE_EPOCH_STORED)
    facts = describe_role(slot)
    assert (facts.role, facts.leader_epoch, facts.in_sync, facts.log_end_offset) == (wanted, AFTER, [1, 2], 10)
    if leader:
        slot_probe.append(slot, [batch(5)])
        assert fetch(slot, 2, 15) == 0
        assert slots.high_watermark(slot) == 15
        assert slot_facts.describe(slot).epochs == [(BEFORE, 0), (AFTER, 10)]


@pytest.mark.parametrize("point", [FaultPoint.ROLE_EPOCH_CLEARED, FaultPoint.ROLE_STORED], ids=lambda point: point.name)
def test_a_leadership_that_is_given_up_has_ended_or_is_given_up_by_the_successor(
    broker: OneBroker, slot: int, point: FaultPoint
) -> None:
    assign(slot, AFTER, leader=True)
    broker.die(lambda: roles.give_up_leadership(slot), point)
    slot_upkeep.recover_dead()
    facts = describe_role(slot)
    assert (facts.role, roles.role_epoch(slot)) == (Role.ROLE_NONE, -1)
    assert roles.led_slots() == [] and not roles.give_up_leadership(slot)
    assert assign(slot, AFTER, leader=True), "the same epoch again is a new assignment"
    assert describe_role(slot).role == Role.ROLE_LEADER and roles.led_slots() == [slot]
    assert slot_facts.describe(slot).epochs == [(BEFORE, 0), (AFTER, 10)]


@pytest.mark.parametrize("point", points("VIEW_"), ids=lambda point: point.name)
def test_a_view_is_the_former_or_the_new_one(broker: OneBroker, slot: int, point: FaultPoint) -> None:
    def publish(epoch: int) -> None:
        views.publish_view(
            slot,
            leader_id=epoch,
            leader_epoch=epoch,
            partition_epoch=epoch,
            replicas=REPLICAS,
            in_sync=[epoch],
            offline=[3],
        )

    publish(1)
    broker.die(lambda: publish(2), point)
    expected = 2 if point == FaultPoint.VIEW_PUBLISHED else 1
    view = views.view_of(slot)
    assert (view.leader_id, view.leader_epoch, view.partition_epoch) == (expected,) * 3
    assert (list(view.replicas), list(view.in_sync), list(view.offline)) == (REPLICAS, [expected], [3])
    publish(3)
    assert views.view_of(slot).leader_epoch == 3


# -- followers and in-sync replicas ------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", points("FOLLOWER_"), ids=lambda point: point.name)
def test_a_followers_fetch_is_repeated_without_harm(broker: OneBroker, slot: int, point: FaultPoint) -> None:
    assign(slot, AFTER, leader=True)
    slot_probe.append(slot, [batch(5)])
    before = slots.high_watermark(slot)
    broker.die(lambda: fetch(slot, 2, 15), point)
    slot_upkeep.recover_dead()
    assert slots.high_watermark(slot) == (15 if point == FaultPoint.FOLLOWER_HIGH_WATERMARK_MOVED else before)
    assert fetch(slot, 2, 15) == 0
    assert slots.high_watermark(slot) == 15


@pytest.mark.parametrize("point", points("IN_SYNC_MAXIMAL", "IN_SYNC_PROPOSED", "IN_SYNC_STATE"), ids=lambda p: p.name)
def test_a_proposal_is_under_way_or_can_be_made_again(broker: OneBroker, slot: int, point: FaultPoint) -> None:
    assign(slot, AFTER, leader=True)
    fetch(slot, 2, 10)
    fetch(slot, 3, 10)
    broker.die(lambda: propose(slot, 1, 2, 3), point)
    slot_upkeep.recover_dead()
    assert check_sets(slot) == ({1, 2}, {1, 2, 3})
    if point == FaultPoint.IN_SYNC_STATE_STORED:
        ((_, serial),) = in_sync.pending()
    else:
        assert in_sync.pending() == []
        serial = propose(slot, 1, 2, 3)
    assert commit(slot, serial, 1, 2, 3)
    assert check_sets(slot) == ({1, 2, 3}, {1, 2, 3})


COMMIT = [(point, 1) for point in points("IN_SYNC_MAXIMAL", "IN_SYNC_PARTLY", "IN_SYNC_COMMIT", "IN_SYNC_STATE")]
COMMIT += [(FaultPoint.IN_SYNC_PARTLY_STORED, 2)]


@pytest.mark.parametrize("members", [(1, 2, 3), (1, 3), (1,)], ids=str)
@pytest.mark.parametrize("point, countdown", COMMIT, ids=lambda value: getattr(value, "name", str(value)))
def test_a_commit_is_complete_or_is_repeated(
    broker: OneBroker, slot: int, point: FaultPoint, countdown: int, members: tuple[int, ...]
) -> None:
    assign(slot, AFTER, leader=True)
    assert fetch(slot, 3, 10) == 0
    serial = propose(slot, *members)
    broker.die(lambda: commit(slot, serial, *members), point, countdown=countdown)
    slot_upkeep.recover_dead()
    committed, _ = check_sets(slot)
    assert committed >= {1, 2} & set(members), "a member of both sets is never missing"
    if point == FaultPoint.IN_SYNC_STATE_STORED:
        assert in_sync.pending() == [] and not commit(slot, serial, *members)
    else:
        assert in_sync.pending() == [(slot, serial)]
        assert commit(slot, serial, *members), "the controller's repeated response has the same partition epoch"
    assert check_sets(slot) == (set(members), set(members))
    assert describe_role(slot).partition_epoch == AFTER + 1


# -- followers' logs ---------------------------------------------------------------------------------------------------


def check_log(broker: OneBroker, slot: int, scratch: Path, start: int, end: int) -> None:
    """The slot, and what a start would find, agree."""
    facts = slot_facts.describe(slot)
    assert (facts.log_start_offset, facts.log_end_offset, facts.intent) == (start, end, 0)
    loaded = broker.reload(slot, scratch / "copy")
    assert loaded.log_end_offset == end
    assert loaded.epochs == facts.epochs


@pytest.mark.parametrize("offset", [500, 5])
@pytest.mark.parametrize("point", points("RESTART_"), ids=lambda point: point.name)
def test_a_restart_of_a_log_is_finished_by_the_next_process(
    broker: OneBroker, slot: int, tmp_path: Path, point: FaultPoint, offset: int
) -> None:
    broker.die(lambda: truncation.start_at(broker.shm, [broker.path], slot, offset), point)
    slot_upkeep.recover_dead()
    check_log(broker, slot, tmp_path, offset, offset)
    assert truncation.start_at(broker.shm, [broker.path], slot, offset) == offset
    assert slots.follow(slot, batch(5, base_offset=offset, partition_leader_epoch=7), offset) == offset + 5
    check_log(broker, slot, tmp_path, offset, offset + 5)


@pytest.mark.parametrize("point", points("FOLLOW_"), ids=lambda point: point.name)
def test_what_a_follower_appended_stays(broker: OneBroker, slot: int, tmp_path: Path, point: FaultPoint) -> None:
    def follow() -> None:
        data = batch(10, base_offset=10, partition_leader_epoch=BEFORE)
        slots.follow(slot, data, 15, leader_log_start_offset=5)

    broker.die(follow, point)
    slot_upkeep.recover_dead()
    facts = slot_facts.describe(slot)
    assert (facts.log_start_offset, facts.high_watermark, facts.log_end_offset) == (5, 15, 20)
    assert broker.reload(slot, tmp_path / "copy").log_end_offset == 20
    slots.follow(slot, batch(1, base_offset=20, partition_leader_epoch=BEFORE), 21, leader_log_start_offset=6)
    assert slot_facts.describe(slot).log_start_offset == 6


def change_of_epochs(slot: int) -> dict[str, Callable[[], object]]:
    return {
        "a new epoch": lambda: slots.follow(slot, batch(5, base_offset=10, partition_leader_epoch=AFTER), 0),
        "a truncation": lambda: slots.truncate(slot, 0),
    }


@pytest.mark.parametrize("change", ["a new epoch", "a truncation"])
def test_epochs_are_readable_after_a_death_amid_their_change(broker: OneBroker, slot: int, change: str) -> None:
    broker.die(change_of_epochs(slot)[change], FaultPoint.EPOCHS_HALF_CHANGED)
    slot_upkeep.recover_dead()
    expected = (BEFORE, 10) if change == "a new epoch" else (-1, -1)
    assert leader_epochs.find_end_offset(slot, BEFORE) == expected
    if change == "a new epoch":
        change_of_epochs(slot)[change]()
        assert leader_epochs.find_end_offset(slot, AFTER) == (AFTER, 15)


REPLICATION = points("ROLE_", "VIEW_", "FOLLOWER_", "IN_SYNC_", "RESTART_", "FOLLOW_", "EPOCHS_")
