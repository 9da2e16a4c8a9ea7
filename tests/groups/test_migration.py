"""Members of both protocols in one group: upgrade, translation, downgrade, and the resulting log."""

import struct
from dataclasses import replace

import pytest

from odradek.groups.classic_member import JoinRequest, SyncRequest
from odradek.groups.consumer_member import HeartbeatRequest
from odradek.groups.consumer_metadata import assignment_of
from odradek.groups.coordinator import GroupCoordinator
from odradek.groups.migration import upgrade_obstacle
from odradek.groups.settings import ConsumerSettings, GroupSettings
from odradek.protocol import encode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas.consumer_protocol import Assignment, Subscription
from tests.groups.by_hand import HandLog, HandTimers, Once
from tests.groups.test_consumer_group import FewTopics

SESSION_MS = 10_000


def subscription(owned=(), version=1):
    make = Subscription.TopicPartition
    places = [make(topic=topic, partitions=list(partitions)) for topic, partitions in owned]
    message = Subscription(topics=["orders"], user_data=None, owned_partitions=places)
    return struct.pack(">h", version) + encode(message, version)


def assignment(*partitions):
    make = Assignment.TopicPartition
    places = [make(topic="orders", partitions=list(partitions))] if partitions else []
    return struct.pack(">h", 1) + encode(Assignment(assigned_partitions=places, user_data=None), 1)


def partitions_in(data):
    return sorted(p for topic in assignment_of(data).assigned_partitions for p in topic.partitions)


class GroupsUnderTest:
    def __init__(self, settings=None, **options):
        self.timers, self.topics, self.log = HandTimers(), FewTopics(), HandLog()
        self.diverged = []
        self.groups = GroupCoordinator(
            self.timers,
            settings or GroupSettings(initial_rebalance_delay_ms=0),
            1,
            self.topics,
            ConsumerSettings(session_timeout_ms=SESSION_MS, **options),
            self.diverged.append,
        )
        self.groups.shards.begin(0, self.log)
        self.groups.loaded(0)

    def group(self):
        return self.groups.shards.find("g")[1]

    def join(self, member_id="", owned=(), **options):
        once = Once()
        options.setdefault("id_required", False)
        request = JoinRequest(
            member_id, SESSION_MS, 30_000, "consumer", [("range", subscription(owned))], "c", "/h", **options
        )
        self.groups.members.join("g", request, once)
        return once

    def sync(self, member_id, generation, assignments=None):
        once = Once()
        self.groups.members.sync("g", SyncRequest(member_id, generation, assignments or {}), once)
        return once.answer

    def heartbeat(self, member_id, generation):
        return self.groups.members.heartbeat("g", member_id, generation, None)

    def beat(self, member_id, epoch, group="g", **options):
        if epoch == 0:
            options = {"topics": ("orders",), "rebalance_timeout_ms": 30_000, "owned": frozenset()} | options
        once = Once()
        self.groups.members.beat(group, HeartbeatRequest(member_id, epoch, **options), once)
        return once.answer

    def classic_member(self):
        """A stable classic group of one member that reads all four partitions; its id."""
        joined = self.join().answer
        response = self.sync(joined.member_id, joined.generation_id, {joined.member_id: assignment(0, 1, 2, 3)})
        assert partitions_in(response.assignment) == [0, 1, 2, 3]
        return joined.member_id

    def both(self):
        """Add a member of the consumer protocol; each owns half. Returns (classic member id, its generation)."""
        old = self.classic_member()
        assert self.beat("new", 0).error is ErrorCode.NONE
        assert self.heartbeat(old, 1) is ErrorCode.REBALANCE_IN_PROGRESS
        joined = self.join(old, [("orders", range(4))]).answer
        kept = partitions_in(self.sync(old, joined.generation_id).assignment)
        assert len(kept) == 2
        assert self.heartbeat(old, joined.generation_id) is ErrorCode.REBALANCE_IN_PROGRESS
        joined = self.join(old, [("orders", kept)]).answer
        assert partitions_in(self.sync(old, joined.generation_id).assignment) == kept
        assert self.heartbeat(old, joined.generation_id) is ErrorCode.NONE
        return old, joined.generation_id


def test_a_classic_group_with_members_shares_partitions_with_a_consumer_member():
    coordinator = GroupsUnderTest()
    coordinator.both()
    response = coordinator.beat("new", coordinator.group().consumer.members["new"].epoch)
    assert len(response.assignment) == 2
    assert coordinator.group().type_name == "consumer"
    assert coordinator.group().state_name == "Stable"


def test_the_group_is_downgraded_when_the_last_consumer_member_leaves():
    coordinator = GroupsUnderTest()
    old, generation = coordinator.both()
    assert coordinator.beat("new", -1).error is ErrorCode.NONE
    assert coordinator.group().type_name == "classic"
    assert coordinator.heartbeat(old, generation) in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION)
    joined = coordinator.join(old, [("orders", range(2))]).answer
    assert joined.error is ErrorCode.NONE
    assert joined.leader == old
    response = coordinator.sync(old, joined.generation_id, {old: assignment(0, 1, 2, 3)})
    assert partitions_in(response.assignment) == [0, 1, 2, 3]


def test_the_group_is_downgraded_when_the_session_of_the_last_consumer_member_expires():
    coordinator = GroupsUnderTest()
    old, generation = coordinator.both()
    for _ in range(3):
        coordinator.timers.advance(SESSION_MS // 2)
        coordinator.heartbeat(old, generation)
    assert coordinator.group().type_name == "classic"


def test_a_new_coordinator_restores_a_mixed_group():
    coordinator = GroupsUnderTest()
    coordinator.both()
    before = coordinator.group().consumer
    after = GroupsUnderTest()
    after.groups.shards.begin(0, after.log)
    after.groups.shards.replay(0, coordinator.log.records)
    after.groups.loaded(0)
    restored = after.group().consumer
    assert restored.members.keys() == before.members.keys()
    for member_id, member in restored.members.items():
        old = before.members[member_id]
        assert (member.epoch, member.assigned, member.classic) == (old.epoch, old.assigned, old.classic)
    turned = GroupsUnderTest()
    assert coordinator.beat("new", -1).error is ErrorCode.NONE
    turned.groups.shards.begin(0, turned.log)
    turned.groups.shards.replay(0, coordinator.log.records)
    turned.groups.loaded(0)
    assert turned.group().type_name == "classic"
    assert len(turned.group().classic.members) == 1


@pytest.mark.parametrize("options", [{"upgrade": False}, {"upgrade": False, "downgrade": False}])
def test_a_consumer_member_is_refused_if_upgrades_are_disabled(options):
    coordinator = GroupsUnderTest(**options)
    old = coordinator.classic_member()
    assert coordinator.beat("new", 0).error is ErrorCode.GROUP_ID_NOT_FOUND
    assert coordinator.heartbeat(old, 1) is ErrorCode.NONE


def test_groups_without_members_change_their_protocol():
    coordinator = GroupsUnderTest()
    coordinator.beat("a", 0)
    coordinator.beat("a", -1)
    joined = coordinator.join().answer
    assert joined.error is ErrorCode.NONE
    assert coordinator.group().type_name == "classic"
    coordinator.groups.members.leave("g", [(joined.member_id, None, "")], Once())
    assert coordinator.beat("b", 0).error is ErrorCode.NONE
    assert coordinator.group().type_name == "consumer"


def test_a_failed_append_reloads_the_groups():
    coordinator = GroupsUnderTest()
    coordinator.log.failing = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert coordinator.beat("a", 0).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert coordinator.diverged == [0]


def test_a_refused_member_does_not_change_the_protocol_of_a_group():
    full = GroupsUnderTest(max_size=1)
    old = full.classic_member()
    written = len(full.log.records)
    assert full.beat("new", 0).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert full.group().type_name == "classic"
    assert full.heartbeat(old, 1) is ErrorCode.NONE
    assert len(full.log.records) == written


def test_a_static_member_replaces_its_classic_self_with_the_consumer_protocol():
    coordinator = GroupsUnderTest()
    first = coordinator.join(instance_id="i").answer
    coordinator.sync(first.member_id, first.generation_id, {first.member_id: assignment(0, 1, 2, 3)})
    response = coordinator.beat("new", 0, instance_id="i")
    assert (response.error, len(response.assignment)) == (ErrorCode.NONE, 4)
    assert coordinator.group().type_name == "consumer"
    assert coordinator.groups.members.heartbeat("g", first.member_id, 1, "i") is ErrorCode.FENCED_INSTANCE_ID
    assert coordinator.beat("newer", 0, instance_id="i").error is ErrorCode.UNRELEASED_INSTANCE_ID
    assert coordinator.group().consumer.members.keys() == {"new"}


def test_a_group_that_is_too_large_for_the_other_protocol_keeps_its_protocol():
    coordinator = GroupsUnderTest(max_size=1)
    joins = [coordinator.join(), coordinator.join()]
    again = coordinator.join(joins[0].answer.member_id)
    assert len(coordinator.group().classic.members) == 2
    assert coordinator.beat("new", 0).error is ErrorCode.GROUP_ID_NOT_FOUND
    assert coordinator.group().type_name == "classic"
    coordinator = GroupsUnderTest()
    coordinator.both()
    coordinator.groups.shards.settings = replace(coordinator.groups.shards.settings, max_size=0)
    assert coordinator.beat("new", -1).error is ErrorCode.NONE
    assert coordinator.group().type_name == "consumer"
    assert again is not None


def test_a_pending_member_id_does_not_exclude_the_other_protocol():
    coordinator = GroupsUnderTest()
    pending = coordinator.join(id_required=True).answer
    assert pending.error is ErrorCode.MEMBER_ID_REQUIRED
    assert coordinator.beat("new", 0).error is ErrorCode.NONE
    assert coordinator.group().type_name == "consumer"
    joined = coordinator.join(pending.member_id, id_required=True).answer
    assert (joined.error, joined.member_id) == (ErrorCode.NONE, pending.member_id)


def test_a_refused_join_does_not_take_over_an_instance_id():
    coordinator = GroupsUnderTest()
    assert coordinator.beat("new", 0, instance_id="i").error is ErrorCode.NONE
    once = Once()
    spoiled = JoinRequest(
        "", SESSION_MS, 30_000, "consumer", [("range", b"")], "c", "/h", instance_id="i", id_required=False
    )
    coordinator.groups.members.join("g", spoiled, once)
    assert once.answer.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    large = subscription() + bytes(coordinator.groups.shards.settings.max_member_bytes - 40)
    once = Once()
    coordinator.groups.members.join("g", spoiled._replace(protocols=[("range", large)]), once)
    assert once.answer.error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert coordinator.beat("new", 1, instance_id="i").error is ErrorCode.NONE


def test_a_subscription_that_is_too_large_for_a_record_changes_nothing():
    coordinator = GroupsUnderTest()
    names = tuple(f"{number:08d}" + "x" * 240 for number in range(5000))
    assert coordinator.beat("a", 0, topics=names).error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert coordinator.group() is None
    assert coordinator.beat("a", 0).error is ErrorCode.NONE
    assert coordinator.beat("a", 1, topics=names).error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert coordinator.group().consumer.members["a"].topics == ("orders",)


def test_a_classic_member_has_the_whole_rebalance_timeout_for_each_rejoin():
    coordinator = GroupsUnderTest()
    old = coordinator.classic_member()
    assert coordinator.beat("new", 0).error is ErrorCode.NONE
    assert coordinator.heartbeat(old, 1) is ErrorCode.REBALANCE_IN_PROGRESS

    def pass_time(generation):
        for _ in range(5):
            coordinator.timers.advance(SESSION_MS // 2)
            assert coordinator.heartbeat(old, generation) is ErrorCode.REBALANCE_IN_PROGRESS
            coordinator.beat("new", coordinator.group().consumer.members["new"].epoch)

    pass_time(1)
    joined = coordinator.join(old, [("orders", range(4))]).answer
    assert joined.error is ErrorCode.NONE
    assert coordinator.heartbeat(old, joined.generation_id) is ErrorCode.REBALANCE_IN_PROGRESS
    pass_time(joined.generation_id)
    assert old in coordinator.group().consumer.members
    coordinator.timers.advance(SESSION_MS // 2)
    assert old not in coordinator.group().consumer.members, "30 s after its second REBALANCE_IN_PROGRESS"


def test_a_refused_join_does_not_change_the_protocol_of_an_empty_group():
    coordinator = GroupsUnderTest()
    coordinator.beat("a", 0)
    coordinator.beat("a", -1)
    written = len(coordinator.log.records)
    assert coordinator.join("who").answer.error is ErrorCode.UNKNOWN_MEMBER_ID
    once = Once()
    coordinator.groups.members.join("g", JoinRequest("", SESSION_MS, 30_000, "consumer", []), once)
    assert once.answer.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert coordinator.group().type_name == "consumer"
    assert len(coordinator.log.records) == written


@pytest.mark.parametrize("partitions, texts", [(2000, 1), (4, 3000)])
def test_the_size_of_a_group_is_estimated_with_its_upgraded_records(partitions, texts):
    coordinator, once = GroupsUnderTest(), Once()
    coordinator.topics.counts["orders"] = partitions
    protocols = [("range", subscription())]
    coordinator.groups.members.join(
        "g", JoinRequest("", SESSION_MS, 30_000, "consumer", protocols, "c" * texts, "h" * texts, "i"), once
    )
    assignments = {once.answer.member_id: assignment(*range(partitions))}
    coordinator.sync(once.answer.member_id, once.answer.generation_id, assignments)
    classic = coordinator.group().classic
    thought = next(most for most in range(100_000) if upgrade_obstacle(classic, 1, most) is None)
    coordinator.log.held = True
    coordinator.groups.members.beat(
        "g", HeartbeatRequest("new", 0, None, topics=("orders",), rebalance_timeout_ms=30_000), Once()
    )
    records, _ = coordinator.log.waiting[0]
    assert sum(len(key) + len(value or b"") for key, value in records) <= thought


def test_a_classic_member_rejoins_only_for_a_new_target():
    coordinator = GroupsUnderTest(assignment_interval_ms=1000)
    old, generation = coordinator.both()
    assert coordinator.beat("newer", 0).member_epoch == generation
    group = coordinator.group().consumer
    assert group.epoch > group.assignment_epoch == generation
    assert coordinator.heartbeat(old, generation) is ErrorCode.NONE
    response = coordinator.join(old, [("orders", range(2))]).answer
    assert (response.error, response.generation_id) == (ErrorCode.NONE, generation)
    assert coordinator.sync(old, generation).error is ErrorCode.NONE
    coordinator.timers.advance(999)
    assert coordinator.heartbeat(old, generation) is ErrorCode.NONE
    coordinator.timers.advance(1)
    assert coordinator.heartbeat(old, generation) is ErrorCode.REBALANCE_IN_PROGRESS
    assert coordinator.sync(old, generation).error is ErrorCode.REBALANCE_IN_PROGRESS
    response = coordinator.join(old, [("orders", range(2))]).answer
    coordinator.sync(old, response.generation_id)
    response = coordinator.join(old, [("orders", range(1))]).answer
    assert response.generation_id == group.assignment_epoch == group.epoch > generation
    assert coordinator.sync(old, response.generation_id).error is ErrorCode.NONE
    assert coordinator.heartbeat(old, response.generation_id) is ErrorCode.NONE


def test_joins_of_classic_members_compute_the_target_of_a_consumer_group():
    coordinator = GroupsUnderTest(assignment_interval_ms=1000, downgrade=False)
    old, _ = coordinator.both()
    coordinator.timers.advance(1000)
    other = coordinator.join().answer
    assert coordinator.beat("new", -1).error is ErrorCode.NONE
    response = coordinator.join(old, [("orders", range(2))]).answer
    assert coordinator.sync(old, response.generation_id).error is ErrorCode.NONE
    group = coordinator.group().consumer
    assert group.all_classic
    assert group.epoch > group.assignment_epoch
    assert coordinator.heartbeat(old, response.generation_id) is ErrorCode.NONE
    coordinator.timers.advance(1000)
    assert coordinator.heartbeat(old, response.generation_id) is ErrorCode.REBALANCE_IN_PROGRESS
    coordinator.join(old, [("orders", range(2))])
    assert group.epoch == group.assignment_epoch
    assert other.error is ErrorCode.NONE


def test_a_classic_member_that_does_not_rejoin_after_its_sync_is_expelled():
    coordinator = GroupsUnderTest()
    old, generation = coordinator.both()
    assert coordinator.beat("newer", 0).error is ErrorCode.NONE
    assert coordinator.sync(old, generation).error is ErrorCode.REBALANCE_IN_PROGRESS
    for _ in range(6):
        assert old in coordinator.group().consumer.members
        coordinator.group().consumer.extend_session(coordinator.group().consumer.members[old])
        coordinator.timers.advance(SESSION_MS // 2)
    assert old not in coordinator.group().consumer.members


def loaded_anew(coordinator):
    """Reload the groups as after a failed append; return the type of the group."""
    assert coordinator.diverged == [0]
    assert coordinator.heartbeat("who", 1) is ErrorCode.NONE, "nobody is served, or expelled, before"
    coordinator.groups.shards.begin(0, coordinator.log)
    coordinator.groups.shards.replay(0, coordinator.log.records)
    coordinator.groups.loaded(0)
    return coordinator.group().type_name


def test_a_failed_downgrade_is_reloaded_and_repeated():
    coordinator = GroupsUnderTest()
    old, generation = coordinator.both()
    coordinator.log.held = True
    left = Once()
    coordinator.groups.members.beat("g", HeartbeatRequest("new", -1), left)
    (records, then), (_, failed) = coordinator.log.waiting
    assert coordinator.group().type_name == "classic"
    coordinator.log.records += records
    then(ErrorCode.NONE)
    failed(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    coordinator.log.waiting.clear()
    coordinator.log.held = False
    assert left.answer.error is ErrorCode.NONE
    assert loaded_anew(coordinator) == "consumer"
    assert coordinator.heartbeat(old, generation) is ErrorCode.REBALANCE_IN_PROGRESS
    assert coordinator.group().type_name == "classic"
    coordinator.diverged.clear()
    after = GroupsUnderTest()
    after.groups.shards.begin(0, after.log)
    after.groups.shards.replay(0, coordinator.log.records)
    after.groups.loaded(0)
    assert after.group().type_name == "classic"


def test_a_failed_change_of_an_empty_groups_protocol_is_reloaded():
    coordinator = GroupsUnderTest()
    coordinator.beat("a", 0)
    coordinator.beat("a", -1)
    coordinator.log.failing = ErrorCode.COORDINATOR_NOT_AVAILABLE
    coordinator.join(id_required=True)
    coordinator.log.failing = None
    assert loaded_anew(coordinator) == "consumer"


def test_a_failed_deletion_of_a_group_is_reloaded():
    coordinator = GroupsUnderTest()
    coordinator.beat("a", 0)
    coordinator.beat("a", -1)
    coordinator.log.failing = ErrorCode.COORDINATOR_NOT_AVAILABLE
    deleted = Once()
    coordinator.groups.delete("g", deleted)
    assert deleted.answer is ErrorCode.COORDINATOR_NOT_AVAILABLE
    coordinator.log.failing = None
    assert loaded_anew(coordinator) == "consumer"


def test_a_downgrade_that_fits_in_no_batch_is_retried_after_the_next_change():
    coordinator = GroupsUnderTest()
    old, generation = coordinator.both()
    settings = coordinator.groups.shards.settings
    coordinator.groups.shards.settings = replace(settings, max_member_bytes=300)
    assert coordinator.beat("new", -1).error is ErrorCode.NONE
    written = len(coordinator.log.records)
    assert coordinator.heartbeat(old, generation) is ErrorCode.REBALANCE_IN_PROGRESS
    assert coordinator.group().type_name == "consumer"
    assert len(coordinator.log.records) == written
    coordinator.groups.shards.settings = settings
    assert coordinator.heartbeat(old, generation) is ErrorCode.REBALANCE_IN_PROGRESS
    assert coordinator.group().type_name == "consumer", "it is as large as it was"
    assert coordinator.group().downgrade_refused_at == coordinator.group().consumer.epoch
    assert coordinator.join(old, [("orders", range(2))]).answer.error is ErrorCode.NONE
    assert coordinator.join().answer.error is ErrorCode.NONE
    assert coordinator.group().type_name == "classic"
    assert coordinator.diverged == []
