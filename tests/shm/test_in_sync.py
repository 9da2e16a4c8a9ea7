"""Followers of a leader, the high watermark that waits for them, and changes of the in-sync set [R 10]."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek._ext.partition import followers, in_sync, roles, slot_facts, slots
from odradek._ext.testing import replica_probe, slot_probe
from tests.shm.one_broker import OneBroker, batch

NOT_LEADER, FENCED, UNKNOWN_EPOCH, OUT_OF_RANGE = 6, 74, 75, 1
LAG_MS = 30000


class Leader:
    """A partition of three replicas that this broker (1) leads in epoch 5; all replicas are alive."""

    def __init__(self, path: Path, *, in_sync: tuple[int, ...] = (1, 2, 3), min_in_sync: int = 2) -> None:
        self.broker = OneBroker(path)
        replica_probe.cluster([1, 2, 3], lag_limit_ms=LAG_MS)
        self.slot = self.broker.create(alone=False, min_in_sync_replicas=min_in_sync)
        self.lead(5, in_sync)

    def lead(self, epoch: int, in_sync: tuple[int, ...]) -> None:
        self.incarnation = slot_probe.incarnation_of(self.slot)
        roles.become_leader(
            self.slot, self.incarnation, leader_id=1, leader_epoch=epoch, partition_epoch=epoch, controller_epoch=1,
            replicas=[1, 2, 3], in_sync=list(in_sync),
        )  # fmt: skip
        replica_probe.begin_term(self.slot)
        self.epoch = epoch

    def append(self, count: int = 1) -> None:
        slot_probe.append(self.slot, [batch(count)])

    def fetch(self, broker_id: int, offset: int, **options: int) -> int:
        return int(replica_probe.note_fetch(self.slot, broker_id, offset, leader_epoch=self.epoch, **options))

    def propose(self, *members: int) -> int:
        return int(in_sync.propose_in_sync(self.slot, self.incarnation, self.epoch, list(members)))

    def commit(self, serial: int, partition_epoch: int, *members: int) -> bool:
        return in_sync.commit_in_sync(self.slot, self.incarnation, self.epoch, serial, list(members), partition_epoch)

    @property
    def high_watermark(self) -> int:
        return int(slots.high_watermark(self.slot))

    @property
    def sets(self) -> tuple[set[int], set[int]]:
        committed, maximal = in_sync.in_sync_sets(self.slot)
        return set(committed), set(maximal)


@pytest.fixture()
def leader(tmp_path: Path) -> Iterator[Leader]:
    leader = Leader(tmp_path)
    yield leader
    leader.broker.close()


def test_high_watermark_is_the_lowest_end_of_the_set(leader: Leader) -> None:
    leader.append(10)
    assert leader.high_watermark == 0
    assert leader.fetch(2, 10) == 0
    assert leader.high_watermark == 0
    assert leader.fetch(3, 4) == 0
    assert leader.high_watermark == 4
    assert leader.fetch(3, 10) == 0
    assert leader.high_watermark == 10


def test_high_watermark_does_not_move_below_min_in_sync(tmp_path: Path) -> None:
    leader = Leader(tmp_path, in_sync=(1,))
    leader.append(10)
    replica_probe.cluster([1])
    leader.append(10)
    assert leader.high_watermark == 0
    leader.broker.close()


def test_lone_leader_waits_for_a_replica_that_is_about_to_join(tmp_path: Path) -> None:
    leader = Leader(tmp_path, in_sync=(1,), min_in_sync=1)
    assert leader.fetch(2, 0) == 0
    leader.append(10)
    assert leader.high_watermark == 0, "replica 2 was caught up just now"
    assert leader.fetch(2, 7) == 0
    assert leader.high_watermark == 7
    replica_probe.cluster([1, 3])
    leader.append()
    assert leader.high_watermark == 11, "replica 2 is dead"
    leader.broker.close()


def test_checks_of_a_fetch(leader: Leader) -> None:
    leader.append(10)
    probe, slot = replica_probe.note_fetch, leader.slot
    assert probe(slot, 2, 0, leader_epoch=4) == FENCED
    assert probe(slot, 2, 0, leader_epoch=6) == UNKNOWN_EPOCH
    assert probe(slot, 9, 0, leader_epoch=5) == UNKNOWN_EPOCH
    assert probe(slot, 9, 0) == NOT_LEADER
    assert probe(slot, 2, 11, leader_epoch=5) == OUT_OF_RANGE
    assert probe(slot, 2, 3, leader_epoch=5, broker_epoch=70) == 0
    assert probe(slot, 2, 10, leader_epoch=5, broker_epoch=69) == NOT_LEADER, "an earlier registration of broker 2"
    assert probe(slot, 2, 3, leader_epoch=5, incarnation=leader.incarnation + 1) == 3
    facts = {found.broker_id: found for found in followers.followers_of(slot)}
    assert facts[2].log_end_offset == 3 and facts[2].broker_epoch == 70
    assert facts[3].log_end_offset == -1 and facts[3].fetched_before_ms == -1


def test_caught_up_by_the_end_at_the_last_fetch(leader: Leader) -> None:
    """A follower of a busy leader never has its whole log; it is caught up if it has what the leader had a fetch ago."""
    now = 10**9
    leader.append(10)
    leader.fetch(2, 5, now_ms=now)
    leader.append(10)
    leader.fetch(2, 10, now_ms=now + 500)
    leader.append(10)
    leader.fetch(2, 15, now_ms=now + 900)  # the leader had 20 at 500
    before = {found.broker_id: found.caught_up_before_ms for found in followers.followers_of(leader.slot)}
    fetched = {found.broker_id: found.fetched_before_ms for found in followers.followers_of(leader.slot)}
    assert before[2] - fetched[2] == pytest.approx(900, abs=50) or before[2] == fetched[2] == 0


def test_expansion_is_proposed_committed_and_holds_the_high_watermark(tmp_path: Path) -> None:
    leader = Leader(tmp_path, in_sync=(1, 2))
    leader.append(10)
    leader.fetch(2, 10)
    assert leader.high_watermark == 10
    assert leader.fetch(3, 9) == 0
    assert in_sync.wanted_slots() == [] and in_sync.expansion_of(leader.slot) is None
    assert leader.fetch(3, 10) == 0
    assert in_sync.wanted_slots() == [leader.slot]
    proposal = in_sync.expansion_of(leader.slot)
    assert proposal is not None and set(proposal.in_sync) == {1, 2, 3} and in_sync.wanted_slots() == []
    serial = leader.propose(*proposal.in_sync)
    assert leader.sets == ({1, 2}, {1, 2, 3})
    assert in_sync.pending() == [(leader.slot, serial)]
    replica_probe.cluster([1, 2])  # even if the controller sees it dead: it may have committed the set before
    leader.append(5)
    leader.fetch(2, 15)
    assert leader.high_watermark == 10
    with pytest.raises(slots.SlotChanged):
        leader.propose(1)
    assert not leader.commit(serial - 1, 6, 1, 2, 3)
    assert leader.commit(serial, 6, 1, 2, 3)
    assert leader.sets == ({1, 2, 3}, {1, 2, 3}) and in_sync.pending() == []
    assert not leader.commit(serial, 7, 1), "a second response to the same proposal"
    leader.broker.close()


def test_only_a_fetch_lets_a_follower_join(tmp_path: Path) -> None:
    """What the leader knows of a follower may be from before it lost the end of its log."""
    leader = Leader(tmp_path, in_sync=(1,))
    leader.append(10)
    assert leader.fetch(3, 10, broker_epoch=70) == 0
    found = in_sync.expansion_of(leader.slot)
    assert found is not None and dict(zip(found.in_sync, found.broker_epochs, strict=True)) == {1: -1, 3: 70}
    serial = leader.propose(1, 3)
    assert in_sync.revert_in_sync(leader.slot, leader.incarnation, 5, serial), "broker 3 has ended meanwhile"
    assert leader.fetch(2, 10) == 0
    found = in_sync.expansion_of(leader.slot)
    assert found is not None and dict(zip(found.in_sync, found.broker_epochs, strict=True)) == {1: -1, 2: -1}
    assert leader.fetch(3, 10, broker_epoch=80) == 0
    found = in_sync.expansion_of(leader.slot)
    assert found is not None and dict(zip(found.in_sync, found.broker_epochs, strict=True)) == {1: -1, 3: 80}
    leader.broker.close()


def test_a_proposal_keeps_the_broker_epoch_on_which_it_is_based(tmp_path: Path) -> None:
    """A successor of the coordinator sends it again, and the controller refuses it if the follower has registered again."""
    leader = Leader(tmp_path, in_sync=(1, 2))
    leader.append(10)
    assert leader.fetch(2, 10) == leader.fetch(3, 10, broker_epoch=70) == 0
    leader.propose(1, 2, 3)
    assert leader.fetch(3, 10, broker_epoch=80) == 0
    found = in_sync.proposal_of(leader.slot)
    assert found is not None and dict(zip(found.in_sync, found.broker_epochs, strict=True)) == {1: -1, 2: -1, 3: 70}
    leader.broker.close()


@pytest.mark.parametrize("change", ["high watermark", "registration", "death", "fetch of less"])
def test_a_follower_that_may_not_join_any_more_is_not_proposed(tmp_path: Path, change: str) -> None:
    """The set is suggested and proposed in two holds of the lock. Meanwhile the high watermark does not wait."""
    leader = Leader(tmp_path, in_sync=(1, 3))
    leader.append(10)
    leader.fetch(3, 5)
    leader.fetch(2, 5, broker_epoch=70)
    proposal = in_sync.expansion_of(leader.slot)
    assert proposal is not None and set(proposal.in_sync) == {1, 2, 3}
    if change == "high watermark":
        leader.fetch(3, 10)
        assert leader.high_watermark == 10, "acks=all of records 5 to 9 is answered"
    elif change == "registration":
        leader.fetch(2, 5, broker_epoch=80)
    elif change == "death":
        replica_probe.cluster([1, 3])
    else:
        leader.fetch(2, 4, broker_epoch=70)
    place = (leader.slot, proposal.incarnation, proposal.leader_epoch, proposal.in_sync)
    with pytest.raises(slots.SlotChanged, match="cannot join"):
        in_sync.propose_in_sync(*place, proposal.broker_epochs)
    assert leader.sets == ({1, 3}, {1, 3}) and in_sync.pending() == []
    replica_probe.cluster([1, 2, 3])
    leader.fetch(3, 10)
    leader.fetch(2, 10, broker_epoch=80)
    found = in_sync.expansion_of(leader.slot)
    assert found is not None, "its next fetch makes it a candidate again"
    assert in_sync.propose_in_sync(*place, found.broker_epochs) and leader.sets == ({1, 3}, {1, 2, 3})
    leader.broker.close()


def test_a_follower_whose_broker_epoch_went_back_may_fetch_when_no_high_watermark_waits_for_it(tmp_path: Path) -> None:
    """ZooKeeper was restored from an older backup: the broker's new registration has a smaller epoch than its former one."""
    leader = Leader(tmp_path, in_sync=(1, 2))
    leader.append(10)
    assert leader.fetch(2, 10, broker_epoch=87) == leader.fetch(3, 4, broker_epoch=87) == 0
    assert leader.fetch(2, 10, broker_epoch=84) == NOT_LEADER, "an in-sync replica"
    assert leader.fetch(3, 10, broker_epoch=84) == 0
    found = in_sync.expansion_of(leader.slot)
    assert found is not None and dict(zip(found.in_sync, found.broker_epochs, strict=True)) == {1: -1, 2: -1, 3: 84}
    assert leader.propose(1, 2, 3)
    assert leader.fetch(3, 10, broker_epoch=83) == NOT_LEADER, "the high watermark waits for it already"
    leader.broker.close()


def test_broker_epochs_of_a_proposal_are_those_of_its_members(leader: Leader) -> None:
    with pytest.raises(ValueError, match="2 members, but 1 broker epochs"):
        in_sync.propose_in_sync(leader.slot, leader.incarnation, leader.epoch, [1, 2], [-1])


def test_a_follower_that_fetches_less_is_no_candidate_any_more(tmp_path: Path) -> None:
    leader = Leader(tmp_path, in_sync=(1, 2))
    leader.append(10)
    assert leader.fetch(2, 10) == leader.fetch(3, 10) == 0
    assert leader.fetch(3, 4) == 0
    assert in_sync.expansion_of(leader.slot) is None
    leader.broker.close()


def test_shrink_moves_the_high_watermark_when_it_is_committed(leader: Leader) -> None:
    leader.append(10)
    leader.fetch(2, 10)
    replica_probe.cluster([1, 2])
    assert in_sync.lagging_slots(LAG_MS) == []
    assert in_sync.lagging_of(leader.slot, LAG_MS) is None
    replica_probe.begin_term(leader.slot, now_ms=1)
    leader.fetch(2, 10)
    assert in_sync.lagging_slots(1) == [leader.slot]
    proposal = in_sync.lagging_of(leader.slot, 1)
    assert proposal is not None and set(proposal.in_sync) == {1, 2}
    serial = leader.propose(*proposal.in_sync)
    assert leader.sets == ({1, 2, 3}, {1, 2, 3})
    leader.append()
    leader.fetch(2, 11)
    assert leader.high_watermark == 0, "the controller may not have committed the smaller set"
    known = in_sync.proposal_of(leader.slot)
    assert known is not None and (known.serial, set(known.in_sync)) == (serial, {1, 2})
    assert leader.commit(serial, 5, 1, 2), "an equal partition epoch: the controller had committed it before"
    assert leader.high_watermark == 11 and leader.sets == ({1, 2}, {1, 2})


def test_revert_and_outdated_responses(leader: Leader) -> None:
    leader.lead(6, (1, 2))
    leader.append(10)
    leader.fetch(3, 10)
    serial = leader.propose(1, 2, 3)
    revert = in_sync.revert_in_sync
    assert not revert(leader.slot, leader.incarnation, 5, serial)
    assert revert(leader.slot, leader.incarnation, 6, serial)
    assert leader.sets == ({1, 2}, {1, 2})
    assert not revert(leader.slot, leader.incarnation, 6, serial)
    assert not leader.commit(serial, 7, 1, 2, 3), "the proposal was withdrawn"
    again = leader.propose(1, 2, 3)
    assert not leader.commit(again, 5, 1, 2, 3), "an older partition epoch"
    assert again > serial and leader.commit(again, 7, 1, 2, 3)
    with pytest.raises(ValueError, match="outside the assignment"):
        leader.propose(1, 2, 3, 4)
    with pytest.raises(ValueError, match="present one"):
        leader.propose(1, 2, 3)


def test_a_leader_of_one_replica_is_as_before(tmp_path: Path) -> None:
    with OneBroker(tmp_path) as broker:
        slot = broker.create(min_in_sync_replicas=1)
        slot_probe.append(slot, [batch(3)])
        assert slots.high_watermark(slot) == 3
        assert slot_facts.describe(slot).high_watermark_position == slot_facts.describe(slot).size
