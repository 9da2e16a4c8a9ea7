"""Every request that can create a group is subject to the limits of groups; groups that exist are served and loaded."""

import pytest

from odradek.groups.classic_member import JoinRequest
from odradek.groups.commits import Commit
from odradek.groups.consumer_member import HeartbeatRequest
from odradek.groups.coordinator import GroupCoordinator
from odradek.groups.offsets import CommittedOffset
from odradek.groups.settings import ConsumerSettings, GroupSettings
from odradek.protocol.errors import ErrorCode
from odradek.quotas.new_names import NameLimits
from odradek.security.owners import Client
from tests.groups.by_hand import HandTimers, OffsetsHandLog, Once
from tests.groups.test_consumer_group import FewTopics

LENGTH, OF_CLIENT, IN_ALL = 300, 3, 5
LIMITS = NameLimits("groups", "odradek.groups.max", IN_ALL, OF_CLIENT, LENGTH, few=0)


class Groups:
    def __init__(self, log=None, limits=LIMITS):
        self.timers, self.log = HandTimers(), log or OffsetsHandLog()
        self.coordinator = GroupCoordinator(
            self.timers, GroupSettings(names=limits), 1, FewTopics(), ConsumerSettings(), lambda _: None
        )
        self.coordinator.shards.begin(0, self.log)
        self.coordinator.shards.replay(0, self.log.records)
        self.coordinator.loaded(0)

    def commit(self, group_id, client, principal="User:ANONYMOUS"):
        once = Once()
        place = {("orders", 0): CommittedOffset(5, commit_timestamp_ms=self.timers.wall_ms())}
        self.coordinator.commit(Commit(group_id, "", -1, None, place), once, Client(principal, client))
        return once.answer

    def commit_in_transaction(self, group_id, client, principal="User:ANONYMOUS"):
        once = Once()
        place = {("orders", 0): CommittedOffset(5, commit_timestamp_ms=self.timers.wall_ms())}
        self.coordinator.commit_in_transaction(
            Commit(group_id, "", -1, None, place),
            1,
            0,
            lambda then: then(ErrorCode.NONE),
            once,
            Client(principal, client),
        )
        return once.answer

    def join(self, group_id, client, principal="User:ANONYMOUS"):
        once = Once()
        request = JoinRequest(
            "",
            10_000,
            10_000,
            "consumer",
            [("range", b"")],
            client_id="c",
            client_host=f"/{client}",
            id_required=True,
            principal=principal,
        )
        self.coordinator.members.join(group_id, request, once)
        return ErrorCode.NONE if once.answer.error is ErrorCode.MEMBER_ID_REQUIRED else once.answer.error

    def heartbeat(self, group_id, client, principal="User:ANONYMOUS"):
        once = Once()
        request = HeartbeatRequest(
            "m",
            0,
            rebalance_timeout_ms=1000,
            topics=("orders",),
            owned=frozenset(),
            client_host=f"/{client}",
            principal=principal,
        )
        self.coordinator.members.beat(group_id, request, once)
        return once.answer.error


WAYS = ["commit", "commit_in_transaction", "join", "heartbeat"]


@pytest.mark.parametrize("way", WAYS)
def test_an_id_that_is_too_long_creates_no_group(way):
    groups = Groups()
    create = getattr(groups, way)
    assert create("g" * (LENGTH + 1), "10.0.0.1") is ErrorCode.INVALID_GROUP_ID
    assert not list(groups.coordinator.shards.groups())
    assert create("g" * LENGTH, "10.0.0.1") is ErrorCode.NONE


@pytest.mark.parametrize("way", WAYS)
def test_an_address_creates_no_more_groups_than_its_share(way):
    groups = Groups()
    create = getattr(groups, way)
    answers = [create(f"g{number}", "10.0.0.1") for number in range(OF_CLIENT + 2)]
    assert answers == [ErrorCode.NONE] * OF_CLIENT + [ErrorCode.POLICY_VIOLATION] * 2
    assert create("g0", "10.0.0.1") is not ErrorCode.POLICY_VIOLATION, "a group that exists is served"
    assert [create(f"h{number}", "10.0.0.2") for number in range(3)] == [ErrorCode.NONE] * 2 + [
        ErrorCode.POLICY_VIOLATION
    ]
    assert len(list(groups.coordinator.shards.groups())) == IN_ALL


def test_what_was_accepted_is_loaded_and_served_with_smaller_limits():
    groups = Groups()
    names = [f"{number}" + "g" * 200 for number in range(3)]
    assert [groups.commit(name, "10.0.0.1") for name in names] == [ErrorCode.NONE] * 3
    smaller = Groups(groups.log, NameLimits("groups", "odradek.groups.max", 1, 1, 10, few=0))
    assert {group.group_id for group in smaller.coordinator.shards.groups()} == set(names)
    assert [smaller.commit(name, "10.0.0.1") for name in names] == [ErrorCode.NONE] * 3
    assert smaller.commit("new", "10.0.0.1") is ErrorCode.POLICY_VIOLATION


@pytest.mark.parametrize("way", WAYS)
def test_with_a_login_the_share_is_that_of_the_principal(way):
    create = getattr(Groups(), way)
    answers = [create(f"a{number}", f"10.0.0.{number}", "User:alice") for number in range(OF_CLIENT + 1)]
    assert answers == [ErrorCode.NONE] * OF_CLIENT + [ErrorCode.POLICY_VIOLATION]
    assert create("b", "10.0.0.1", "User:bob") is ErrorCode.NONE


@pytest.mark.parametrize("way", WAYS)
def test_all_addresses_of_a_network_of_ipv6_have_one_share(way):
    create = getattr(Groups(), way)
    answers = [create(f"a{number}", f"2001:db8::{number + 1:x}") for number in range(OF_CLIENT + 1)]
    assert answers == [ErrorCode.NONE] * OF_CLIENT + [ErrorCode.POLICY_VIOLATION]
    assert create("b", "2001:db8:0:1::1") is ErrorCode.NONE
