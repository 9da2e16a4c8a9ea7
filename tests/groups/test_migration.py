"""Members of both protocols in one group: upgrade, translation, downgrade, and the resulting log."""

import struct
from dataclasses import fields, replace

import pytest

from odradek.groups import migration
from odradek.groups.classic_member import MALFORMED, JoinRequest, SyncRequest
from odradek.groups.consumer_member import ConsumerMember, HeartbeatRequest
from odradek.groups.consumer_metadata import assignment_of
from odradek.groups.coordinator import GroupCoordinator
from odradek.groups.history import client_text
from odradek.groups.migration import upgrade_obstacle
from odradek.groups.settings import ConsumerSettings, GroupSettings
from odradek.groups.visible_topics import Visible
from odradek.protocol import encode
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas.consumer_protocol import Assignment, Subscription
from odradek.stepwise import Stepwise
from tests.groups.by_hand import HandLog, HandTimers, Once
from tests.groups.test_consumer_group import FewTopics

SESSION_MS = 10_000


def subscription(owned=(), version=1, topics=("orders",), **fields):
    make = Subscription.TopicPartition
    places = [make(topic=topic, partitions=list(partitions)) for topic, partitions in owned]
    message = Subscription(topics=list(topics), user_data=None, owned_partitions=places, **fields)
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

    def join(self, member_id="", owned=(), protocol=None, **options):
        once = Once()
        options.setdefault("id_required", False)
        protocols = [("range", protocol or subscription(owned))]
        request = JoinRequest(member_id, SESSION_MS, 30_000, "consumer", protocols, "c", "/h", **options)
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


STATED = {"rack_id", "rebalance_timeout_ms", "topics", "pattern", "assignor", "classic", "visible"}
"""Fields of a member that its program states: nothing of them remains when another program takes its place."""
IDENTITY = {"member_id", "instance_id", "client_id", "client_host"}
KEPT = {"epoch", "previous_epoch", "state", "assigned", "revoking", "since", "reported_assignment"}
"""The partitions of a static member, which the next member with its instance id receives."""
OF_THE_COORDINATOR = {"confirmed", "claimed_by", "session", "revocation"}


def stated(member):
    return {name: getattr(member, name) for name in STATED}


def restored_members(coordinator):
    after = GroupsUnderTest()
    after.groups.shards.begin(0, after.log)
    after.groups.shards.replay(0, coordinator.log.records)
    after.groups.loaded(0)
    return after.group().consumer.members


def test_each_field_of_a_member_is_stated_by_its_program_or_not():
    assert {field.name for field in fields(ConsumerMember)} == STATED | IDENTITY | KEPT | OF_THE_COORDINATOR


FULL = {"pattern": "oth.*", "assignor": "uniform", "rack_id": "r", "rebalance_timeout_ms": 7}
SIGHT = Visible(frozenset({"other"}))


def with_static_member(interval_ms=0, **options):
    """A group of the consumer protocol with a member that reads nothing, and the static member "i"."""
    coordinator = GroupsUnderTest(assignment_interval_ms=interval_ms)
    coordinator.beat("stays", 0, topics=("nothing",))
    coordinator.beat("static", 0, instance_id="i", **options)
    return coordinator


@pytest.mark.parametrize("leaves", [False, True])
def test_nothing_that_a_member_stated_remains_when_it_returns_with_the_classic_protocol(leaves):
    coordinator = with_static_member(topics=("other",), visible=SIGHT, **FULL)
    if leaves:
        coordinator.beat("static", -2, instance_id="i")
    joined = coordinator.join(instance_id="i", protocol=subscription(topics=("orders-old",))).answer
    member = coordinator.group().consumer.members[joined.member_id]
    expected = {"rack_id": None, "rebalance_timeout_ms": 30_000, "topics": ("orders-old",), "pattern": None}
    expected |= {"assignor": None, "visible": None, "classic": member.classic}
    assert stated(member) == expected
    assert coordinator.group().consumer.patterns == frozenset()
    assert {topic.rstrip(b"_") for topic, _ in member.assigned} <= {b"orders-old"}
    assert stated(restored_members(coordinator)[joined.member_id]) == expected


@pytest.mark.parametrize("by", ["new", None])
def test_nothing_that_a_classic_member_stated_remains_when_it_returns_with_the_consumer_protocol(by):
    coordinator = with_static_member()
    coordinator.beat("static", -1)
    joined = coordinator.join(instance_id="i", protocol=subscription(version=3, rack_id="r")).answer
    assert coordinator.group().consumer.members[joined.member_id].rack_id == "r"
    member_id = by or joined.member_id
    coordinator.beat(member_id, 0, instance_id="i", topics=None, pattern="oth.*", rebalance_timeout_ms=5)
    member = coordinator.group().consumer.members[member_id]
    expected = {"rack_id": None, "rebalance_timeout_ms": 5, "topics": (), "pattern": "oth.*", "assignor": None}
    expected |= {"visible": None, "classic": None}
    assert stated(member) == expected
    assert stated(restored_members(coordinator)[member_id]) == expected


def test_nothing_that_a_member_stated_remains_when_another_program_takes_its_instance_id():
    coordinator = with_static_member(topics=("other",), **FULL)
    coordinator.beat("static", -2, instance_id="i")
    coordinator.beat("next", 0, instance_id="i", topics=("orders-old",), rebalance_timeout_ms=5)
    member = coordinator.group().consumer.members["next"]
    assert (member.topics, member.pattern, member.assignor, member.rack_id) == (("orders-old",), None, None, None)
    assert stated(restored_members(coordinator)["next"]) == stated(member)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_that_returns_before_the_next_target_receives_no_topic_of_its_predecessor(protocol):
    interval_ms = 2_000
    coordinator = with_static_member(interval_ms, topics=(), pattern="o.*")
    coordinator.timers.advance(interval_ms)
    coordinator.beat("static", coordinator.group().consumer.members["static"].epoch)
    group = coordinator.group().consumer
    former = group.members["static"].assigned
    assert {topic.rstrip(b"_") for topic, _ in former} == {b"orders", b"orders-old", b"other"}
    coordinator.beat("static", -2, instance_id="i")
    if protocol == "classic":
        member_id = coordinator.join(instance_id="i", protocol=subscription(topics=("other",))).answer.member_id
    else:
        member_id = coordinator.beat("next", 0, instance_id="i", topics=("other",)).member_id
    kept = frozenset(place for place in former if place[0].startswith(b"other"))
    assert group.members[member_id].assigned == group.target[member_id] == kept
    assert restored_members(coordinator)[member_id].assigned == kept


def test_a_member_that_returns_with_the_same_subscription_begins_no_rebalance():
    coordinator = with_static_member(topics=(), visible=SIGHT, **FULL)
    held = coordinator.beat("static", coordinator.group().consumer.epoch, instance_id="i").assignment
    group = coordinator.group().consumer
    assigned, epoch = group.members["static"].assigned, group.epoch
    assert assigned
    coordinator.beat("static", -2, instance_id="i")
    coordinator.beat("next", 0, instance_id="i", topics=(), visible=Visible(frozenset({"other"})), **FULL)
    assert (group.members["next"].assigned, group.epoch) == (assigned, epoch), held


def test_a_classic_member_that_rejoins_without_its_rack_has_none():
    coordinator = with_static_member()
    joined = coordinator.join(protocol=subscription(version=3, rack_id="r")).answer
    coordinator.join(joined.member_id, protocol=subscription(version=3))
    assert coordinator.group().consumer.members[joined.member_id].rack_id is None
    assert restored_members(coordinator)[joined.member_id].rack_id is None


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


def refusals(coordinator):
    return [event for event in coordinator.group().protocol.history if event.kind == "refused"]


def test_a_member_that_a_classic_group_refused_is_in_its_history():
    coordinator = GroupsUnderTest()
    coordinator.classic_member()
    request = JoinRequest("", SESSION_MS, 30_000, "connect", [("compatible", b"")], "odd", "/h", id_required=False)
    for _ in range(200):
        once = Once()
        coordinator.groups.members.join("g", request, once)
        assert once.answer.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    (refused,) = refusals(coordinator)
    assert refused.client == "odd at h"
    assert refused.why.startswith(
        "INCONSISTENT_GROUP_PROTOCOL: its protocol type is 'connect', its assignors are compatible"
    )
    for number in range(200):
        coordinator.groups.members.join("g", request._replace(client_id=f"odd-{number}"), Once())
    kinds = [event.kind for event in coordinator.group().protocol.history]
    assert kinds.count("refused") == 16
    assert "joined" in kinds, "refusals push nothing else out"


def test_a_member_that_a_consumer_group_refused_is_in_its_history():
    coordinator = GroupsUnderTest(max_size=1)
    coordinator.beat("a", 0)
    coordinator.beat("b", 0, client_id="late", client_host="/h")
    (refused,) = refusals(coordinator)
    assert (refused.member, refused.client) == ("b", "late at h")
    assert refused.why.startswith(
        "GROUP_MAX_SIZE_REACHED: The consumer group has reached its maximum capacity of 1 members"
    )
    coordinator.join(protocol=b"?")
    assert (
        refusals(coordinator)[-1].why == "INCONSISTENT_GROUP_PROTOCOL: its subscription for assignor range is malformed"
    )


def test_a_member_that_cannot_upgrade_a_group_is_in_its_history():
    coordinator = GroupsUnderTest(upgrade=False)
    coordinator.classic_member()
    coordinator.beat("new", 0)
    (refused,) = refusals(coordinator)
    assert refused.why.endswith("group.consumer.migration.policy does not allow upgrades")


# -- long subscriptions ---------------------------------------------------------------------------------------------


def many_names(count):
    """A subscription of many topics, in no order, two of them twice; with partitions of topics that exist and do not."""
    names = [f"t{number * 7919 % count}" for number in range(count)]
    return subscription([("orders", range(4)), *((name, [0]) for name in names)], topics=[*names, "orders", "orders"])


def test_a_long_subscription_is_read_in_steps():
    coordinator = GroupsUnderTest()
    data = many_names(5000)
    pauses = list(coordinator.groups.members.subscribed_in_steps(data))
    assert len(pauses) >= 10
    subscribed = Stepwise(coordinator.groups.members.subscribed_in_steps(data)).finish()
    assert subscribed.topics == tuple(sorted({"orders", *(f"t{number}" for number in range(5000))}))
    assert {partition for _, partition in subscribed.owned} == {0, 1, 2, 3}
    assert len(subscribed.owned) == 4
    assert Stepwise(coordinator.groups.members.subscribed_in_steps(data[:-1])).finish() is MALFORMED
    assert Stepwise(coordinator.groups.members.subscribed_in_steps(b"\0")).finish() is MALFORMED


@pytest.mark.parametrize("before", [True, False])
def test_a_member_whose_subscription_was_read_before_is_as_any_other(before):
    coordinator = GroupsUnderTest()
    old, _ = coordinator.both()
    data = many_names(50)
    options = {"subscribed": Stepwise(coordinator.groups.members.subscribed_in_steps(data)).finish()} if before else {}
    assert coordinator.groups.members.reads_subscriptions("g")
    assert coordinator.join(old, protocol=data, **options).answer.error is ErrorCode.NONE
    assert coordinator.group().consumer.members[old].topics == tuple(sorted({"orders", *(f"t{n}" for n in range(50))}))


def test_a_malformed_subscription_that_was_read_before_is_not_read_again(monkeypatch):
    coordinator = GroupsUnderTest()
    old, _ = coordinator.both()
    monkeypatch.setattr(migration, "subscription_in_steps", lambda data: 1 / 0)
    answer = coordinator.join(old, protocol=b"\0", subscribed=MALFORMED).answer
    assert answer.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_the_subscriptions_of_a_classic_group_are_not_read():
    coordinator = GroupsUnderTest()
    assert not coordinator.groups.members.reads_subscriptions("g")
    coordinator.classic_member()
    assert not coordinator.groups.members.reads_subscriptions("g")


def test_the_subscriptions_of_a_group_that_is_too_large_for_an_upgrade_are_not_read(monkeypatch):
    coordinator = GroupsUnderTest()
    coordinator.classic_member()
    classic = coordinator.group().classic
    monkeypatch.setattr(migration, "subscription_of", lambda data: 1 / 0)
    assert "message.max.bytes" in upgrade_obstacle(classic, 10, 100)


@pytest.mark.parametrize(
    ("client_id", "host", "shown"),
    [("app", "/10.0.0.1", "app at 10.0.0.1"), ("", "/::1", "(empty client id) at ::1"), ("app", "", "app at ")],
)
def test_an_event_names_a_client_by_its_id_and_its_address(client_id, host, shown):
    assert client_text(client_id, host) == shown
