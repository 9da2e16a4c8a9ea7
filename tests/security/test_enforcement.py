"""ACLs over the wire: what clients may do, and when a change is in force."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

from odradek.api.permits import NAMES_A_STEP
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import (
    delete_records,
    describe_producers,
    fetch,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
)
from odradek.security.acl import AclFilter, Operation, PatternType, Permission, ResourceType
from odradek.testing import Broker
from tests.security.over_wire import (
    ACLS_OF_ADMIN,
    ADMIN,
    CLUSTER,
    CLUSTER_NAME,
    CONFIG,
    GROUP,
    OTHER,
    TOPIC,
    Client,
    acl,
)
from tests.waiting import until
from tests.wire import batch, fetch_request

OK, DENIED, GROUP_DENIED, CLUSTER_DENIED = 0, 29, 30, 31


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(CONFIG | {"num.network.threads": 2}) as broker, Client(broker, ADMIN) as admin:
        assert set(admin.create_acls(ACLS_OF_ADMIN)) == {0}
        admin.create("open", 1)
        admin.create("other", 1)
        yield broker


@pytest.fixture
def admin(broker: Broker) -> Iterator[Client]:
    with Client(broker, ADMIN) as admin:
        yield admin
    with Client(broker, ADMIN) as again:  # a test may have restarted the broker
        again.set_acls([])


def test_a_client_may_do_what_an_acl_allows_and_nothing_else(broker: Broker, admin: Client) -> None:
    admin.set_acls([acl(TOPIC, "open", Operation.WRITE)])
    with Client(broker) as client:
        assert client.produce("open", batch(b"v")).error_code == OK
        assert client.produce("other", batch(b"v")).error_code == DENIED
        assert client.produce("no such topic", batch(b"v")).error_code == DENIED
        assert client.fetch("open", 0).error_code == DENIED
        assert client.fetch("no such topic", 0).error_code == DENIED
        assert client.create_acls([acl(TOPIC, "other", Operation.ALL)]) == [CLUSTER_DENIED]
        assert client.described_acls().error_code == CLUSTER_DENIED
    with Client(broker, OTHER) as other:
        assert other.produce("open", batch(b"v")).error_code == DENIED


HIDDEN = [f"hidden-{number}" for number in range(5 * NAMES_A_STEP)]
LIST, EPOCHS, PRODUCERS, DELETE = (
    schema.Request for schema in (list_offsets, offset_for_leader_epoch, describe_producers, delete_records)
)
LONG: dict[str, tuple[Any, int, Callable[[list[str]], Any]]] = {
    "ListOffsets": (list_offsets, 7, lambda names: LIST(
        replica_id=-1, topics=[LIST.ListOffsetsTopic(name=name, partitions=[
            LIST.ListOffsetsPartition(partition_index=0, timestamp=-1)]) for name in names])),
    "OffsetForLeaderEpoch": (offset_for_leader_epoch, 4, lambda names: EPOCHS(
        replica_id=-2, topics=[EPOCHS.OffsetForLeaderTopic(topic=name, partitions=[
            EPOCHS.OffsetForLeaderPartition(partition=0, leader_epoch=0)]) for name in names])),
    "DescribeProducers": (describe_producers, 0, lambda names: PRODUCERS(
        topics=[PRODUCERS.TopicRequest(name=name, partition_indexes=[0]) for name in names])),
    "DeleteRecords": (delete_records, 2, lambda names: DELETE(
        timeout_ms=30_000, topics=[DELETE.DeleteRecordsTopic(name=name, partitions=[
            DELETE.DeleteRecordsPartition(partition_index=0, offset=0)]) for name in names])),
}  # fmt: skip


@pytest.mark.parametrize("name", LONG)
def test_a_request_whose_guard_works_in_steps_is_executed_for_what_is_allowed(
    broker: Broker, admin: Client, name: str
) -> None:
    admin.set_acls([acl(TOPIC, "open", Operation.ALL)])
    schema, version, make = LONG[name]
    with Client(broker) as client, Client(broker) as gone:

        def codes(*names: str) -> dict[str, list[int]]:
            topics = client.ask(make([*names]), schema.API_KEY, version).topics
            return {
                getattr(topic, "name", None) or topic.topic: [part.error_code for part in topic.partitions]
                for topic in topics
            }

        gone.send(make(HIDDEN), schema.API_KEY, version)
        gone.socket.close()  # while the guard works
        assert codes(*HIDDEN, "open") == {hidden: [DENIED] for hidden in HIDDEN} | {"open": [OK]}
        assert client.produce("open", batch(b"v")).error_code == OK


def test_metadata_hides_what_may_not_be_described(broker: Broker, admin: Client) -> None:
    admin.set_acls([acl(TOPIC, "open", Operation.READ)])
    with Client(broker) as client:
        everything = client.ask(metadata.Request(topics=None), metadata.API_KEY, 12).topics
        assert [topic.name for topic in everything] == ["open"]
        named = {topic.name: topic for topic in client.metadata("open", "other", "no-such").topics}
        assert [named[name].error_code for name in ("open", "other", "no-such")] == [OK, DENIED, DENIED]
        assert named["other"].topic_id == bytes(16) and not named["other"].partitions


def test_a_right_taken_away_is_gone_for_every_request_after_the_answer(broker: Broker, admin: Client) -> None:
    clients = [Client(broker) for _ in range(8)]
    rule = acl(TOPIC, "open", Operation.WRITE)
    for _ in range(20):
        assert admin.create_acls([rule]) == [0]
        assert [client.produce("open", batch(b"v")).error_code for client in clients] == [OK] * 8
        (result,) = admin.delete_acls(AclFilter(*rule))
        assert len(result.matching_acls) == 1
        assert [client.produce("open", batch(b"v")).error_code for client in clients] == [DENIED] * 8
    for client in clients:
        client.socket.close()


def test_a_right_taken_away_ends_a_long_poll(broker: Broker, admin: Client) -> None:
    rule = acl(TOPIC, "other", Operation.READ)
    admin.set_acls([rule])
    with Client(broker) as client:
        request = fetch_request([("other", 0, admin.latest("other", 0))], wait_ms=80_000)
        client.send(request, fetch.API_KEY, 12)
        admin.delete_acls(AclFilter(*rule))
        assert client.receive().responses[0].partitions[0].error_code == DENIED


def test_a_deny_for_everybody_counts_before_every_allow(broker: Broker, admin: Client) -> None:
    deny = acl(
        TOPIC,
        "op",
        Operation.WRITE,
        principal="User:*",
        host="*",
        permission=Permission.DENY,
        pattern=PatternType.PREFIXED,
    )
    admin.set_acls([acl(TOPIC, "open", Operation.ALL), deny])
    with Client(broker) as client:
        assert client.produce("open", batch(b"v")).error_code == DENIED
        assert client.fetch("open", 0).error_code == OK
    assert admin.produce("open", batch(b"v")).error_code == DENIED


def test_acls_are_described_deleted_and_outlive_the_broker_and_the_coordinator(broker: Broker, admin: Client) -> None:
    rules = [
        acl(TOPIC, "a", Operation.READ),
        acl(TOPIC, "a", Operation.WRITE, pattern=PatternType.PREFIXED, principal="User:CN=x,O=y/z", host="*"),
        acl(GROUP, "a group/with.every%thing", Operation.ALL, permission=Permission.DENY),
        acl(ResourceType.TRANSACTIONAL_ID, "..", Operation.DESCRIBE),
        acl(ResourceType.USER, "User:bob", Operation.CREATE_TOKENS),
    ]
    admin.set_acls(rules)
    assert admin.acls() == sorted([*rules, *ACLS_OF_ADMIN])
    assert admin.create_acls(rules) == [0] * len(rules)  # an ACL that exists is no error
    assert admin.acls(AclFilter(TOPIC, PatternType.MATCH, "abc")) == sorted([rules[1], ACLS_OF_ADMIN[0]])
    broker.restart()
    with Client(broker, ADMIN) as again:
        assert again.acls() == sorted([*rules, *ACLS_OF_ADMIN])
        (result,) = again.delete_acls(AclFilter(principal="User:CN=x,O=y/z"))
        assert [one.resource_name for one in result.matching_acls] == ["a"]
        again.set_acls([])
        assert again.acls() == sorted(ACLS_OF_ADMIN)


def test_bad_acls_are_refused_each_with_its_reason(broker: Broker, admin: Client) -> None:
    good, nameless = acl(TOPIC, "t", Operation.READ), acl(TOPIC, "", Operation.READ)
    wrong_cluster = acl(CLUSTER, "cluster", Operation.ALTER)
    no_type = acl(ResourceType.ANY, "t", Operation.READ)
    assert admin.create_acls([good, nameless, wrong_cluster, no_type]) == [0, 42, 42, 42]
    assert admin.acls() == sorted([good, *ACLS_OF_ADMIN])
    assert admin.delete_acls(AclFilter(operation=Operation.UNKNOWN))[0].error_code == 42
    assert admin.described_acls(AclFilter(pattern_type=PatternType.UNKNOWN)).error_code == 42


def test_a_principal_with_cluster_describe_sees_all_groups(broker: Broker, admin: Client) -> None:
    admin.until_coordinated("first")
    admin.joined("first")
    admin.joined("second")
    admin.set_acls([acl(GROUP, "second", Operation.READ)])
    with Client(broker) as client:
        assert [group.group_id for group in client.list_groups().groups] == ["second"]
        admin.set_acls([acl(CLUSTER, CLUSTER_NAME, Operation.ALTER)])
        assert sorted(group.group_id for group in client.list_groups().groups) == ["first", "second"]


def test_automatic_creation_needs_create_and_shows_nothing_without_describe(broker: Broker, admin: Client) -> None:
    names = [f"auto-{number}" for number in range(3)]
    described = [acl(TOPIC, "auto-", Operation.DESCRIBE, pattern=PatternType.PREFIXED)]
    admin.set_acls(described)
    with Client(broker) as client:
        (topic,) = client.metadata(names[0], create=True).topics
        assert topic.error_code == DENIED
        assert client.metadata(names[0]).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        admin.set_acls([*described, acl(TOPIC, names[0], Operation.CREATE)])
        assert client.metadata(names[0], create=True).topics[0].error_code == OK
        assert client.metadata(names[1], create=True).topics[0].error_code == DENIED
        admin.set_acls([*described, acl(CLUSTER, CLUSTER_NAME, Operation.CREATE)])
        assert client.metadata(names[1], create=True).topics[0].error_code == OK
        admin.set_acls([acl(CLUSTER, CLUSTER_NAME, Operation.CREATE)])
        assert client.metadata(names[2], create=True).topics[0].error_code == DENIED
    assert admin.metadata(names[2]).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_members_of_groups_are_refused_on_the_native_paths_too(broker: Broker, admin: Client) -> None:
    admin.until_coordinated("native")
    admin.set_acls([acl(GROUP, "native", Operation.READ), acl(TOPIC, "open", Operation.READ)])
    with Client(broker) as client:
        member, generation = client.joined("native")
        assert client.heartbeat("native", member, generation).error_code == OK
        held = {"member_id": member, "generation_id_or_member_epoch": generation}
        answer = client.commit("native", {("open", 0): 1, ("other", 0): 1, ("no-such", 0): 1}, **held)
        assert {topic.name: topic.partitions[0].error_code for topic in answer.topics} == {
            "open": OK,
            "other": DENIED,
            "no-such": DENIED,
        }
        assert admin.committed("native") == {("open", 0): 1}
        admin.set_acls([acl(TOPIC, "open", Operation.READ)])
        assert client.heartbeat("native", member, generation).error_code == GROUP_DENIED
        assert client.join("native", member).error_code == GROUP_DENIED
        assert client.sync("native", member, generation).error_code == GROUP_DENIED
        refused = client.commit("native", {("open", 0): 2}, **held)
        assert refused.topics[0].partitions[0].error_code == GROUP_DENIED
    assert admin.committed("native") == {("open", 0): 1}


def test_a_pattern_subscribes_to_topics_that_the_member_may_describe(broker: Broker, admin: Client) -> None:
    admin.until_coordinated("by-pattern")
    ids = {name: admin.metadata(name).topics[0].topic_id for name in ("open", "other")}
    group = acl(GROUP, "by-pattern", Operation.READ)
    admin.set_acls([group, acl(TOPIC, "open", Operation.DESCRIBE)])
    with Client(broker) as client, Client(broker) as second:
        epoch = client.topics_of_pattern("by-pattern", "o.*", [ids["open"]])
        admin.set_acls([group, acl(TOPIC, "o", Operation.DESCRIBE, pattern=PatternType.PREFIXED)])
        epoch = client.until_assigned(
            "by-pattern", "m", client.beat("by-pattern", "m", epoch), [ids["open"], ids["other"]]
        )
        ids["o-new"] = admin.create("o-new", 1)
        epoch = client.until_assigned("by-pattern", "m", client.beat("by-pattern", "m", epoch), list(ids.values()))
        admin.set_acls([group, acl(TOPIC, "other", Operation.DESCRIBE)])
        client.until_assigned("by-pattern", "m", client.beat("by-pattern", "m", epoch), [ids["other"]])
        refused = second.beat("by-pattern", "n", 0, subscribed_topic_regex="(", subscribed_topic_names=None)
        assert refused.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
        assert client.beat("by-pattern", "m", -1).error_code == OK


def test_a_new_topic_is_one_rebalance_for_all_members_with_a_pattern(broker: Broker, admin: Client) -> None:
    admin.until_coordinated("many")
    admin.set_acls(
        [acl(GROUP, "many", Operation.ALL), acl(TOPIC, "many", Operation.DESCRIBE, pattern=PatternType.PREFIXED)]
    )
    first_topic = admin.create("many-1", 4)
    fields = {"subscribed_topic_regex": "many.*", "subscribed_topic_names": None}
    with Client(broker) as client:
        epoch = client.topics_of_pattern("many", "many.*", [first_topic], "m")
        epochs = {"m": epoch, "n": client.beat("many", "n", 0, **fields).member_epoch}

        def group_epoch_after(member: str) -> int:
            answer = client.beat("many", member, epochs[member])
            assert answer.error_code == OK
            epochs[member] = answer.member_epoch
            return int(client.describe_consumer("many").groups[0].group_epoch)

        before = group_epoch_after("n")
        admin.create("many-2", 4)
        until(lambda: group_epoch_after("m") == before + 1, "the new topic begins a rebalance")
        assert group_epoch_after("n") == group_epoch_after("m") == before + 1
        for member in ("m", "n"):
            assert client.beat("many", member, -1).error_code == OK


def test_the_death_of_the_coordinator_changes_no_rule(broker: Broker, admin: Client) -> None:
    admin.set_acls([acl(TOPIC, "open", Operation.WRITE)])
    (coordinator,) = [process for process in broker.processes() if process["kind"] == "coordinator"]
    with Client(broker) as client:
        os.kill(coordinator["pid"], signal.SIGKILL)
        for _ in range(50):
            assert client.produce("open", batch(b"v")).error_code == OK
            assert client.produce("other", batch(b"v")).error_code == DENIED
    until(lambda: _answers(broker), "the next coordinator answers")
    with Client(broker, ADMIN) as again:
        assert acl(TOPIC, "open", Operation.WRITE) in again.acls()
        again.set_acls([])
    with Client(broker) as client:
        assert client.produce("open", batch(b"v")).error_code == DENIED


def _answers(broker: Broker) -> bool:
    with suppress(OSError, EOFError), Client(broker, ADMIN) as admin:
        return bool(admin.acls())
    return False


def test_a_broker_whose_rules_nobody_may_change_says_so() -> None:
    with Broker({"authorizer.class.name": CONFIG["authorizer.class.name"]}) as locked:
        assert "nobody may change ACLs" in locked.log_tail()
        assert locked.status()["access"] == {"acls": 0, "acl_version": 1, "super_users": 0, "locked_out": True}
        with Client(locked) as client:
            assert client.create_acls(ACLS_OF_ADMIN) == [CLUSTER_DENIED] * 4
            assert client.produce("t", batch(b"v")).error_code == DENIED
    with Broker({"authorizer.class.name": CONFIG["authorizer.class.name"], "super.users": "User:ANONYMOUS"}) as free:
        assert not free.status()["access"]["locked_out"]
        with Client(free) as client:
            client.create("t")
            assert client.produce("t", batch(b"v")).error_code == OK
