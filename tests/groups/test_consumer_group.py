"""Consumer groups (KIP-848): event by event, and under random schedules with lost responses and replays of the log."""

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from odradek.groups.consumer_group import ConsumerGroup
from odradek.groups.consumer_member import HeartbeatRequest
from odradek.groups.consumer_records import replay
from odradek.groups.settings import ConsumerSettings
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas.group_records import read_record
from tests.groups.by_hand import HandLog, HandTimers, Once

SETTINGS = ConsumerSettings(session_timeout_ms=10_000)


class FewTopics:
    def __init__(self):
        self.counts = {"orders": 4, "orders-old": 2, "other": 3}
        self.looked_up = 0

    @property
    def version(self):
        return hash(tuple(self.counts.items()))

    def names(self):
        return list(self.counts)

    def in_store(self):
        return frozenset(self.counts)

    def find(self, name):
        self.looked_up += 1
        return (name.encode().ljust(16, b"_"), self.counts[name]) if name in self.counts else None

    def name_of(self, topic_id):
        return next((name for name in self.counts if self.find(name)[0] == topic_id), None)


class Room:
    def __init__(self):
        self.timers, self.topics, self.log = HandTimers(), FewTopics(), HandLog()
        self.settings = SETTINGS
        self.group = self.new()

    def new(self):
        return ConsumerGroup(
            "g", self.timers, self.settings, self.topics, lambda _, records, then: self.log.append(records, then)
        )

    def beat(self, member_id, epoch, **options):
        if epoch == 0:
            options = {"topics": ("orders",), "rebalance_timeout_ms": 30_000, "owned": frozenset()} | options
        once = Once()
        self.group.heartbeat(HeartbeatRequest(member_id, epoch, **options), once)
        return once.answer

    def commits(self, member_id, epoch, *partitions, topic="orders"):
        """The result of a commit."""
        return self.group.commit_error(member_id, epoch, True, lambda: [(topic, p) for p in partitions])

    def restart(self):
        """Replace the coordinator by one that replays the log."""
        self.group.die(ErrorCode.NOT_COORDINATOR)
        self.group = self.new()
        newest = {}
        for key, value in self.log.records:
            newest.pop(key, None)  # what a compaction leaves stands where it was written last
            newest[key] = value
            replay(self.group, *read_record(key, value))
        compacted = self.new()
        for key, value in newest.items():
            if value is not None:
                replay(compacted, *read_record(key, value))
        assert described(compacted) == described(self.group)
        self.group.loaded()


def described(group):
    return (
        group.epoch,
        group.assignment_epoch,
        group.target,
        {
            member.member_id: (
                member.epoch,
                member.state,
                member.assigned,
                member.revoking,
                member.topics,
                member.since,
            )
            for member in group.members.values()
        },
    )


def test_the_first_member_gets_everything_at_once():
    room = Room()
    response = room.beat("a", 0)
    assert (response.error, response.member_epoch, len(response.assignment)) == (ErrorCode.NONE, 1, 4)
    assert room.beat("a", 1).assignment is None
    assert room.group.state_name == "Stable"


def test_a_second_member_gets_partitions_after_the_first_released_them():
    room = Room()
    everything = room.beat("a", 0).assignment
    response = room.beat("b", 0)
    assert (response.member_epoch, response.assignment) == (2, frozenset())
    kept = room.beat("a", 1, owned=everything)
    assert (kept.member_epoch, len(kept.assignment)) == (1, 2)
    assert room.beat("b", 2).assignment is None, "a partition is assigned only after it is released"
    assert room.beat("a", 1, owned=kept.assignment).member_epoch == 2
    assert room.beat("b", 2).assignment == everything - kept.assignment
    assert room.group.state_name == "Stable"


def test_a_member_that_does_not_release_partitions_in_time_is_expelled():
    room = Room()
    everything = room.beat("a", 0).assignment
    other = room.beat("b", 0)
    room.beat("a", 1, owned=everything)
    held = frozenset()
    for _ in range(4):
        room.timers.advance(9_000)
        response = room.beat("a", 1, owned=everything)
        other = room.beat("b", other.member_epoch)
        held = held if other.assignment is None else other.assignment
    assert response.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert held == everything


def test_epochs_are_fenced_and_a_lost_response_is_tolerated():
    room = Room()
    everything = room.beat("a", 0).assignment
    assert room.beat("a", 7).error is ErrorCode.FENCED_MEMBER_EPOCH
    assert room.beat("nobody", 1).error is ErrorCode.UNKNOWN_MEMBER_ID
    room.topics.counts["orders"] = 5
    assert room.beat("a", 1).member_epoch == 2
    assert room.beat("a", 1, owned=everything).error is ErrorCode.NONE
    assert room.beat("a", 1).error is ErrorCode.FENCED_MEMBER_EPOCH
    assert room.commits("a", 1, 4) is ErrorCode.STALE_MEMBER_EPOCH
    assert room.commits("a", 2, 4) is ErrorCode.NONE
    assert room.group.commit_error("a", 2, False, list) is ErrorCode.UNSUPPORTED_VERSION


def test_patterns_follow_the_topics():
    room = Room()
    response = room.beat("a", 0, topics=(), pattern="orders.*")
    assert len(response.assignment) == 6
    room.topics.counts["orders-new"] = 3
    assert len(room.beat("a", 1).assignment) == 9
    del room.topics.counts["orders-old"]
    shrunk = room.beat("a", 2, owned=frozenset())
    assert len(shrunk.assignment) == 7
    assert room.beat("b", 0, topics=(), pattern="(").error is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_a_rejoining_static_member_takes_over_its_former_assignment():
    room = Room()
    everything = room.beat("a", 0, instance_id="i").assignment
    assert room.beat("a2", 0, instance_id="i").error is ErrorCode.UNRELEASED_INSTANCE_ID
    assert room.beat("a", -2, instance_id="i").error is ErrorCode.NONE
    back = room.beat("a2", 0, instance_id="i")
    assert (back.error, back.assignment) == (ErrorCode.NONE, everything)
    assert room.beat("a", 1, instance_id="i").error is ErrorCode.FENCED_INSTANCE_ID


def test_a_member_may_request_only_offered_assignors():
    room = Room()
    assert room.beat("a", 0, assignor="cosmic").error is ErrorCode.UNSUPPORTED_ASSIGNOR
    assert room.beat("a", 0, assignor="range").error is ErrorCode.NONE
    assert room.group.assignor == "range"


class Schedule(RuleBasedStateMachine):
    """Members own the assigned partitions, release partitions that are no longer assigned, and may miss responses."""

    def __init__(self):
        super().__init__()
        self.room = Room()
        self.held = {}
        self.unsure = set()
        self.count = 0

    @rule()
    def joins(self):
        member_id = f"m{self.count}"
        self.count += 1
        response = self.room.beat(member_id, 0)
        self.held[member_id] = (response.member_epoch, response.assignment)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), lost=st.booleans())
    def beats(self, data, lost):
        member_id = data.draw(st.sampled_from(sorted(self.held)))
        error = self.beat(member_id, lost)
        assert error in (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH)

    def beat(self, member_id, lost=False):
        """Send a full heartbeat after a lost response, as clients do."""
        epoch, held = self.held[member_id]
        full = {"topics": ("orders",), "rebalance_timeout_ms": 30_000} if member_id in self.unsure else {}
        response = self.room.beat(member_id, epoch, owned=held, **full)
        self.unsure.discard(member_id)
        if lost:
            self.unsure.add(member_id)
        elif response.error is not ErrorCode.NONE:
            del self.held[member_id]
        else:
            self.held[member_id] = response.member_epoch, held if response.assignment is None else response.assignment
        return ErrorCode.NONE if lost else response.error

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def leaves(self, data):
        member_id = data.draw(st.sampled_from(sorted(self.held)))
        self.room.beat(member_id, -1)
        del self.held[member_id]

    @rule(count=st.integers(1, 8))
    def the_topic_grows(self, count):
        self.room.topics.counts["orders"] = max(self.room.topics.counts["orders"], count)

    @rule(ms=st.sampled_from([1000, 5000, 11_000]))
    def time_passes(self, ms):
        self.room.timers.advance(ms)

    @rule()
    def the_coordinator_dies(self):
        self.room.restart()

    @invariant()
    def nobody_shares_a_partition(self):
        living = {member_id: held for member_id, (_, held) in self.held.items() if member_id in self.room.group.members}
        places = [place for held in living.values() for place in held]
        assert len(places) == len(set(places))

    def teardown(self):
        """When all remaining members send heartbeats, the group becomes stable and every partition has an owner."""
        for _ in range(4 * len(self.held) + 4):
            for member_id in sorted(self.held):
                self.beat(member_id)
        for member_id in set(self.room.group.members) - set(self.held):
            self.room.beat(member_id, -1)
        for _ in range(4):
            for member_id in sorted(self.held):
                assert self.beat(member_id) is ErrorCode.NONE
        if self.held:
            assert self.room.group.state_name == "Stable"
            assert sum(len(held) for _, held in self.held.values()) == self.room.topics.counts["orders"]


Schedule.TestCase.settings = settings(max_examples=100, stateful_step_count=30)
test_random_schedules = Schedule.TestCase


class Unwalked(dict):
    """A dict that allows look-ups but no iteration."""

    def refuse(self, *_):
        raise AssertionError("a heartbeat without news goes through all of them")

    __iter__ = values = items = keys = refuse


def test_an_unchanged_heartbeat_looks_up_no_other_member_and_no_topic():
    room = Room()
    room.topics.counts["orders"] = 40
    epochs = {str(number): room.beat(str(number), 0).member_epoch for number in range(20)}
    held = dict.fromkeys(epochs, frozenset())
    for _ in range(4):
        for member_id, epoch in epochs.items():
            response = room.beat(member_id, epoch, owned=held[member_id])
            epochs[member_id] = response.member_epoch
            held[member_id] = held[member_id] if response.assignment is None else response.assignment
    assert room.group.state_name == "Stable"
    assert sum(map(len, held.values())) == 40
    looked_up, records = room.topics.looked_up, len(room.log.records)
    group = room.group
    holdings = group._holdings
    group.members, holdings._holders, group.target = map(Unwalked, (group.members, holdings._holders, group.target))
    for member_id, epoch in epochs.items():
        response = room.beat(member_id, epoch)
        assert (response.error, response.member_epoch, response.assignment) == (ErrorCode.NONE, epoch, None)
    assert (room.topics.looked_up, len(room.log.records)) == (looked_up, records)


def test_two_assignments_of_a_group_are_at_least_the_assignment_interval_apart():
    room = Room()
    room.settings = replace(SETTINGS, assignment_interval_ms=1000)
    room.group = room.new()
    everything = room.beat("a", 0).assignment
    room.timers.advance(999)
    early = room.beat("b", 0)
    assert (early.member_epoch, early.assignment, room.group.epoch) == (1, frozenset(), 2)
    assert room.beat("a", 1, owned=everything).assignment is None
    assert room.group.state_name == "Assigning"
    room.timers.advance(1)
    kept = room.beat("a", 1, owned=everything)
    assert (kept.member_epoch, len(kept.assignment)) == (1, 2)
    assert room.beat("a", 1, owned=kept.assignment).member_epoch == 2
    response = room.beat("b", 1, owned=frozenset())
    assert (response.member_epoch, response.assignment) == (2, everything - kept.assignment)
    assert room.group.state_name == "Stable"


def test_settings_are_looked_up_at_each_use():
    class Changing:
        now = SETTINGS

        def of(self, group_id):
            assert group_id == "g"
            return self.now

    room = Room()
    room.settings = Changing()
    room.group = room.new()
    room.beat("a", 0)
    room.settings.now = replace(SETTINGS, session_timeout_ms=SETTINGS.session_timeout_ms * 3)
    room.beat("a", 1)
    room.timers.advance(SETTINGS.session_timeout_ms * 2)
    assert room.beat("a", 1).error is ErrorCode.NONE
    room.settings.now = replace(SETTINGS, max_size=1)
    assert room.beat("b", 0).error is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_an_assignment_is_restored_from_any_compaction_of_its_records():
    room = Room()
    everything = room.beat("a", 0, instance_id="i").assignment
    assert room.beat("a", 1, instance_id="i", client_host="/elsewhere").member_epoch == 1
    room.restart()
    assert room.group.members["a"].assigned == everything
    assert room.group.static_members == {"i": "a"}
    assert room.beat("a", 1, instance_id="i", client_host="/elsewhere").error is ErrorCode.NONE
    assert room.beat("b", 0, instance_id="i").error is ErrorCode.UNRELEASED_INSTANCE_ID


def test_a_member_that_rejoins_without_partitions_need_not_release_any():
    room = Room()
    everything = room.beat("a", 0).assignment
    other = room.beat("b", 0)
    response = room.beat("a", 0)  # it was fenced, and holds nothing any more
    assert (response.error, response.member_epoch, len(response.assignment)) == (ErrorCode.NONE, 2, 2)
    assert response.assignment | room.beat("b", other.member_epoch).assignment == everything
    assert room.group.state_name == "Stable"


def test_unused_patterns_of_subscriptions_are_dropped():
    room = Room()
    epoch = room.beat("a", 0, topics=(), pattern="orders").member_epoch
    for number in range(50):
        epoch = room.beat("a", epoch, pattern=f"orders-{number}", owned=frozenset()).member_epoch
    assert len(room.group._subscriptions._patterns) <= 2


def test_a_static_member_that_left_for_a_while_has_no_revocation_timeout():
    room = Room()
    everything = room.beat("a", 0, instance_id="i", rebalance_timeout_ms=1_000).assignment
    room.beat("b", 0)
    assert len(room.beat("a", 1, owned=everything, instance_id="i").assignment) == 2
    assert room.beat("a", -2, instance_id="i").error is ErrorCode.NONE
    room.timers.advance(2_000)
    assert "a" in room.group.members
    assert room.beat("a2", 0, instance_id="i").error is ErrorCode.NONE


def test_an_unknown_instance_id_cannot_leave():
    room = Room()
    room.beat("a", 0)
    assert room.beat("a", -1, instance_id="i").error is ErrorCode.UNKNOWN_MEMBER_ID
    assert room.beat("a", -1).error is ErrorCode.NONE
    assert room.commits("whoever", -1, 0) is ErrorCode.NONE, "a group without members is anybody's"


def test_a_member_with_an_older_epoch_may_commit_partitions_that_it_has_had_since():
    """KIP-1251: a client may commit before it receives the response with its newer epoch."""
    none, stale = ErrorCode.NONE, ErrorCode.STALE_MEMBER_EPOCH
    room = Room()
    everything = room.beat("a", 0).assignment
    room.topics.counts["orders"] = 5
    assert room.beat("a", 1, owned=everything).member_epoch == 2
    for _ in range(2):
        assert [room.commits("a", 1, p) for p in range(6)] == [none] * 4 + [stale] * 2
        assert room.commits("a", 1, 0, 4) is stale, "a partition that it may not commit refuses all"
        assert room.commits("a", 2, *range(6)) is none
        assert room.commits("a", 3, 0) is stale
        assert room.commits("a", 0, 0) is stale
        assert room.commits("a", -1, 0) is stale
        assert room.commits("a", 1, 0, topic="deleted") is stale
        assert room.commits("nobody", 1, 0) is ErrorCode.UNKNOWN_MEMBER_ID
        room.restart()
    room.beat("b", 0)
    response = room.beat("a", 2, owned=room.group.members["a"].assigned)
    released = {p for _, p in room.group.members["a"].revoking}
    assert {room.commits("a", 1, p) for p in released - {4}} == {none}, "it has not released them yet"
    assert room.beat("a", 2, owned=response.assignment).member_epoch == 3
    assert {room.commits("a", 2, p) for p in released} == {stale}
    assert {room.commits("a", 2, p) for _, p in response.assignment} == {none}


def test_names_of_missing_topics_do_not_slow_heartbeats():
    """A member may name tens of thousands of topics; a heartbeat must not look up the topics of all members."""
    room = Room()
    many = [f"none-{number:05}" for number in range(20_000)]
    for member_id, topics in (("a", [*many, "orders"]), ("b", ["other", *many]), ("c", [*many, "orders", "other"])):
        room.topics.looked_up = 0
        assert room.beat(member_id, 0, topics=tuple(topics)).error is ErrorCode.NONE
        assert room.topics.looked_up <= 4 * len(room.topics.counts)
    room.topics.counts["none-00007"] = 1
    assert room.group.subscribed() == {"orders", "other", "none-00007"}
    del room.topics.counts["orders"]
    assert room.group.subscribed() == {"other", "none-00007"}


def test_a_topic_that_is_created_after_the_subscription_is_assigned():
    room = Room()
    room.beat("a", 0, topics=("later",))
    room.topics.counts["later"] = 2
    response = room.beat("a", 1)
    assert (response.member_epoch, len(response.assignment)) == (2, 2)
