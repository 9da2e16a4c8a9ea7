"""Topics, partitions, settings and ACLs of the target follow those of the source."""

import itertools

import pytest

from odradek.clients import acls, configs, topics
from odradek.clients.configs import Resource
from odradek.clients.errors import ClientError
from odradek.mirror import topic_settings
from odradek.mirror.following import FlowError
from odradek.mirror.names import Patterns
from odradek.mirror.routes import Route
from odradek.mirror.topic_settings import Setting
from odradek.security.acl import Acl, AclFilter, Operation, PatternType, Permission, ResourceType
from tests.mirror.clusters import following, pair

NUMBERS = itertools.count()
SUPER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture(scope="module")
def brokers():
    with pair(SUPER, SUPER) as both:
        yield both


@pytest.fixture
def name():
    """A name of a topic that no other test uses."""
    return f"t{next(NUMBERS)}"


@pytest.fixture
def flow(brokers, tmp_path, name):
    """Enter with more lines of the file; the flow mirrors only the topics of this test."""

    def enter(lines=""):
        return following(brokers.settings(tmp_path, f"topics = {name}.*\n{lines}"))

    return enter


def count(cluster, topic):
    found = cluster.metadata([topic]).topics.get(topic)
    return None if found is None else len(found.partitions)


def test_a_topic_is_created_with_partitions_and_settings_of_its_source(flow, name):
    with flow("replication.factor = 1") as (follower, source, target):
        topics.create(
            source,
            name,
            3,
            configs={"retention.ms": "86400000", "cleanup.policy": "compact", "min.insync.replicas": "1"},
        )
        routes = follower.follow(follower.plan())
        (info,) = source.topics([name])
        assert routes == [Route((name, part), (f"a.{name}", part), info.topic_id, True) for part in range(3)]
        made = configs.describe(target, Resource("topic", f"a.{name}"))
        assert (made["retention.ms"].value, made["cleanup.policy"].value) == ("86400000", "compact")
        assert made["min.insync.replicas"].source != configs.TOPIC_SOURCE  # config.properties.exclude


def test_partitions_grow_with_the_source_and_never_shrink(flow, name):
    with flow() as (follower, source, target):
        topics.create(source, name, 2)
        assert len(follower.follow(follower.plan())) == 2
        topics.grow(source, name, 5)
        assert len(follower.follow(follower.plan())) == 5
        assert count(target, f"a.{name}") == 5
        topics.grow(target, f"a.{name}", 7)
        plan = follower.plan()
        assert len(follower.follow(plan)) == 5
        assert any(f"'a.{name}' of b has 7 partitions" in line for line in plan.warnings)


def test_a_plan_and_a_trial_change_nothing(flow, name):
    with flow() as (follower, source, target):
        topics.create(source, name, 2)
        plan = follower.plan()
        follower.try_out(plan)
        assert not plan.refused
        assert count(target, f"a.{name}") is None
        assert [(topic.target, topic.present, topic.partitions) for topic in plan.topics] == [(f"a.{name}", 0, 2)]


def test_a_topic_that_the_target_refuses_is_named_and_the_others_continue(flow, name):
    with flow("replication.policy.separator = .") as (follower, source, _):
        long = name + "x" * (249 - len(name))  # its copy would have 251 characters
        topics.create(source, long, 1)
        topics.create(source, name, 1)
        plan = follower.plan()
        assert [route.source for route in follower.follow(plan)] == [(name, 0)]
        assert "251 characters; a topic's name has at most 249" in plan.refused[long]


def test_a_replication_factor_that_the_target_cannot_give_is_a_sentence_with_the_key(flow, name):
    with flow("replication.factor = 3") as (follower, source, _):
        topics.create(source, name, 1)
        plan = follower.plan()
        follower.try_out(plan)
        assert f"'a.{name}' cannot be created in b" in plan.refused[name]
        assert plan.refused[name].endswith("; set replication.factor")


def test_internal_topics_copies_of_the_target_and_excluded_ones_are_not_mirrored(flow, name):
    with flow(f"topics.exclude = {name}-no.*") as (follower, source, _):
        for topic in (name, f"{name}-internal", f"{name}-no1", f"b.{name}", f"{name}.checkpoints.internal"):
            topics.create(source, topic, 1)
        assert [topic.source.name for topic in follower.plan().topics] == [name]
        assert not follower.selects("__consumer_offsets")
        assert (
            follower.selects("heartbeats") and follower.selects("c.heartbeats") and not follower.selects("b.heartbeats")
        )


def test_a_named_topic_that_does_not_exist_is_a_warning_with_the_closest_name(flow, name, brokers, tmp_path):
    with flow() as (_, source, _):
        topics.create(source, f"{name}-orders", 1)
    with following(brokers.settings(tmp_path, f"topics = {name}-ordrs")) as (follower, _, _):
        (line,) = follower.plan().warnings
        assert line == f"topic '{name}-ordrs' of `topics` does not exist in a; did you mean '{name}-orders'?"


def test_settings_follow_later_changes_and_resets(flow, name):
    with flow() as (follower, source, target):
        topics.create(source, name, 1, configs={"retention.ms": "1000000"})
        follower.follow(follower.plan())
        configs.alter(source, Resource("topic", name), {"segment.bytes": "20000000"}, ["retention.ms"])
        assert follower.sync_settings(follower.plan()) == 1
        made = configs.describe(target, Resource("topic", f"a.{name}"))
        assert made["segment.bytes"].value == "20000000"
        assert made["retention.ms"].source != configs.TOPIC_SOURCE
        assert follower.sync_settings(follower.plan()) == 0


def test_append_time_is_converted_unless_the_target_has_it_too(flow, name):
    with flow() as (follower, source, target):
        topics.create(source, name, 1, configs={"message.timestamp.type": "LogAppendTime"})
        topics.create(target, f"a.{name}", 1, configs={"message.timestamp.type": "LogAppendTime"})
        assert [route.convert_append_time for route in follower.follow(follower.plan())] == [False]
        configs.alter(target, Resource("topic", f"a.{name}"), {"message.timestamp.type": "CreateTime"})
        assert [route.convert_append_time for route in follower.follow(follower.plan())] == [True]


def test_a_smaller_message_limit_of_the_target_is_a_warning_with_both_values(flow, name):
    lines = "config.properties.exclude = max.message.bytes"
    with flow(lines) as (follower, source, target):
        topics.create(source, name, 1, configs={"max.message.bytes": "3000000"})
        topics.create(target, f"a.{name}", 1, configs={"max.message.bytes": "2000000"})
        (line,) = follower.plan().warnings
        assert "is 2000000" in line and "is 3000000" in line and line.endswith("set it to 3000000")
    with flow() as (follower, _, _):
        assert follower.plan().warnings == []  # the setting follows


def test_acls_for_reading_follow_and_those_for_writing_do_not(flow, name):
    def acl(operation, principal="User:x", pattern=PatternType.LITERAL, topic=None, permission=Permission.ALLOW):
        return Acl(ResourceType.TOPIC, pattern, topic or name, principal, "*", operation, permission)

    with flow() as (follower, source, target):
        topics.create(source, name, 1)
        ours = [
            acl(Operation.READ),
            acl(Operation.WRITE),
            acl(Operation.ALL, "User:all"),
            acl(Operation.READ, "User:p", PatternType.PREFIXED),
        ]
        ours += [
            acl(Operation.WRITE, "User:no", permission=Permission.DENY),
            acl(Operation.READ, topic=f"other-{name}"),
        ]
        acls.create(source, ours)
        assert follower.sync_acls(follower.plan()) == 3
        copies = acls.describe(target, AclFilter(ResourceType.TOPIC, PatternType.LITERAL, f"a.{name}"))
        assert sorted((copy.principal, copy.operation, copy.permission) for copy in copies) == [
            ("User:all", Operation.READ, Permission.ALLOW),
            ("User:no", Operation.WRITE, Permission.DENY),
            ("User:x", Operation.READ, Permission.ALLOW),
        ]
        assert follower.sync_acls(follower.plan()) == 0


def test_only_acls_of_copied_topics_follow_and_a_check_names_the_others(brokers, tmp_path, name):
    def acl(topic, principal, operation=Operation.READ, pattern=PatternType.LITERAL, permission=Permission.ALLOW):
        return Acl(ResourceType.TOPIC, pattern, topic, principal, "*", operation, permission)

    lines = (
        f"b->a.enabled = true\nreplication.policy.class = IdentityReplicationPolicy\ntopics = {name}.*, \\\\*\n"
        f"b->a.topics.exclude = {name}-one"
    )
    ours = [
        acl(f"{name}-one", "User:reader"),
        acl(f"{name}-two", "User:refused"),  # the topic would come back
        acl(f"{name}-three", "User:early"),  # there is no such topic yet
        acl("*", "User:analyst"),
        acl("*", "User:\x1b[2Jintern", Operation.ALL, permission=Permission.DENY),
        acl(name, "User:prefix", pattern=PatternType.PREFIXED),
    ]
    everything = AclFilter(ResourceType.TOPIC, PatternType.ANY)
    with following(brokers.settings(tmp_path, lines)) as (follower, source, target):
        assert follower.selects("*")
        for topic in (f"{name}-one", f"{name}-two"):
            topics.create(source, topic, 1)
        before = set(acls.describe(target, everything))
        acls.create(source, ours)
        try:
            plan = follower.plan()
            assert follower.sync_acls(plan) == 1
            assert set(acls.describe(target, everything)) - before == {acl(f"{name}-one", "User:reader")}
            wild, prefix, refused = follower.acls_left_out(plan)
        finally:
            acls.delete(source, ours)
        assert wild.startswith("2 ACLs for User:\\x1b[2Jintern, User:analyst of all topics ('*') not copied")
        assert "User:prefix" in prefix and f"'{name}'" in prefix  # beside those of other tests
        assert refused.endswith(f"not copied, because their topics ('{name}-two') are not mirrored")
    lines += "\nsync.topic.acls.enabled = false"
    with following(brokers.settings(tmp_path, lines)) as (follower, _, _):
        assert follower.acls_left_out(follower.plan()) == []


def test_the_same_cluster_twice_is_refused(brokers, tmp_path):
    lines = f"b.bootstrap.servers = {brokers.a.bootstrap_servers}"
    with (
        following(brokers.settings(tmp_path, lines)) as (follower, _, _),
        pytest.raises(FlowError, match="are the same cluster"),
    ):
        follower.plan()


def test_an_unreachable_cluster_is_named_by_its_alias(brokers, tmp_path):
    lines = "b.bootstrap.servers = 127.0.0.1:1"
    with (
        following(brokers.settings(tmp_path, lines)) as (follower, _, _),
        pytest.raises(ClientError, match=r"cluster b: cannot connect to 127\.0\.0\.1:1: Connection refused"),
    ):
        follower.plan()


def test_topics_that_would_come_back_are_refused(brokers, tmp_path, name):
    lines = (
        f"b->a.enabled = true\nreplication.policy.class = IdentityReplicationPolicy\ntopics = {name}.*\n"
        f"b->a.topics.exclude = {name}-one"
    )
    with following(brokers.settings(tmp_path, lines)) as (follower, source, _):
        for topic in (f"{name}-one", f"{name}-two"):
            topics.create(source, topic, 1)
        plan = follower.plan()
        assert [topic.target for topic in plan.topics] == [f"{name}-one"]
        assert "(a->b->a)" in plan.refused[f"{name}-two"] and "topics.exclude" in plan.refused[f"{name}-two"]


NOT_EXCLUDED = Patterns((), ())


def test_changes_of_settings_are_the_least_that_makes_them_equal():
    source = {
        "same": Setting("1", True, False, False),
        "other": Setting("2", True, False, False),
        "broker": Setting("3", False, False, False),
        "default": Setting("4", False, True, False),
        "hidden": Setting(None, True, False, True),
        "new": Setting("6", True, False, False),
        "excluded": Setting("7", True, False, False),
    }
    target = {
        "same": Setting("1", False, True, False),
        "other": Setting("9", True, False, False),
        "broker": Setting("9", False, True, False),
        "default": Setting("9", True, False, False),
        "own": Setting("9", True, False, False),
        "excluded": Setting("9", True, False, False),
    }
    excluded = Patterns(("excl.*",))
    assert topic_settings.changes(source, target, excluded, False) == (
        {"other": "2", "broker": "3"},
        ["default"],
        ["new"],
    )
    values, deletions, _ = topic_settings.changes(source, target, excluded, True)
    assert values["default"] == "4" and deletions == []
