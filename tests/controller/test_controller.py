"""Topic changes: refusals, created state, and a controller that dies between any two steps of a change."""

import json
import random
import uuid

import pytest

import odradek._ext.partition.slot_facts as slot_facts
from odradek._ext.partition import slots
from odradek._ext.shm.slot import SlotState
from odradek._ext.shm.topics import TopicDirectory
from odradek.config.broker_config import resolve
from odradek.controller import topics
from odradek.controller.assignment import Broker
from odradek.controller.image import ClusterImage, load_image
from odradek.controller.topics import NewPartitions, NewTopic, Refusal, plan_partitions, plan_topic
from odradek.metadata import znodes
from odradek.metadata.sqlite import SqliteStore
from odradek.protocol.errors import ErrorCode
from odradek.storage.log_directory import read_partition_metadata, write_partition_metadata
from tests.controller.mortal_cluster import Death

CONFIG = resolve([])
THREE = [Broker(1), Broker(2), Broker(3)]


def plan(entry, brokers=THREE, image=None, config=CONFIG):
    return plan_topic(entry, image or ClusterImage(), config, brokers, random.Random(0))


def existing(**partitions):
    image = ClusterImage()
    for name, assignment in partitions.items():
        image.put(topics.Topic(name, znodes.TopicAssignment(uuid.uuid4(), assignment), {}, 4))
    return image


# -- requests and refusals ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "code", "message"),
    [
        (NewTopic(""), ErrorCode.INVALID_TOPIC_EXCEPTION, "empty"),
        (NewTopic(".."), ErrorCode.INVALID_TOPIC_EXCEPTION, "must not be"),
        (NewTopic("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION, "250 characters; the maximum is 249"),
        (NewTopic("naïve"), ErrorCode.INVALID_TOPIC_EXCEPTION, "ASCII"),
        (NewTopic("a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION, "'a/b'"),
        (NewTopic("__cluster_metadata"), ErrorCode.INVALID_TOPIC_EXCEPTION, "KRaft"),
        (NewTopic("old"), ErrorCode.TOPIC_ALREADY_EXISTS, "'old' already exists"),
        (NewTopic("old_one"), ErrorCode.INVALID_TOPIC_EXCEPTION, "'old.one'"),
        (NewTopic("t", 0), ErrorCode.INVALID_PARTITIONS, "not 0"),
        (NewTopic("t", -2), ErrorCode.INVALID_PARTITIONS, "num.partitions"),
        (
            NewTopic("t", 2**31 - 1),
            ErrorCode.INVALID_PARTITIONS,
            "2147483647 partitions: a broker can hold at most 65536",
        ),
        (NewTopic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR, "not 0"),
        (NewTopic("t", 1, 4), ErrorCode.INVALID_REPLICATION_FACTOR, "4 larger than available brokers: 3"),
        (NewTopic("t", 2, assignments=[(0, [1])]), ErrorCode.INVALID_REQUEST, "num_partitions=2"),
        (NewTopic("t", assignments=[(1, [1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "from 0 to 0"),
        (NewTopic("t", assignments=[(0, [1]), (0, [2])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "not 0, 0"),
        (NewTopic("t", assignments=[(0, [])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "no replicas"),
        (NewTopic("t", assignments=[(0, [1, 1])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "twice"),
        (
            NewTopic("t", assignments=[(0, [9])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            r"\[9\]; the brokers are \[1, 2, 3\]",
        ),
        (NewTopic("t", assignments=[(0, [1]), (1, [1, 2])]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "has 2 replica"),
        (NewTopic("t", configs=[("retention.ms", None)]), ErrorCode.INVALID_CONFIG, "retention.ms"),
        (NewTopic("t", configs=[("retention.ms", "x")]), ErrorCode.INVALID_CONFIG, "retention.ms=x"),
        (NewTopic("t", configs=[("no.such.key", "x")]), ErrorCode.INVALID_CONFIG, "no.such.key"),
    ],
)
def test_a_refused_creation_reports_the_error(entry, code, message):
    image = existing(old={0: [1]}, **{"old.one": {0: [1]}})
    with pytest.raises(Refusal, match=message) as raised:
        plan(entry, image=image)
    assert raised.value.code == code


def test_a_topic_that_is_being_deleted_cannot_be_created_yet():
    image = existing()
    image.deleting.add("gone")
    with pytest.raises(Refusal, match="being deleted"):
        plan(NewTopic("gone"), image=image)


def test_defaults_come_from_the_configuration():
    config = resolve([("num.partitions", "5", ""), ("default.replication.factor", "2", "")])
    made = plan(NewTopic("t"), config=config).topic.assignment
    assert list(made.partitions) == [0, 1, 2, 3, 4]
    assert {len(replicas) for replicas in made.partitions.values()} == {2}
    assert made.topic_id.version == 4


def test_manual_assignments_are_not_changed():
    made = plan(NewTopic("t", assignments=[(1, [2, 3]), (0, [3, 1])]))
    assert made.topic.assignment.partitions == {0: [3, 1], 1: [2, 3]}
    assert made.added == [0, 1]


def test_a_manual_assignment_may_contain_brokers_that_are_down_in_a_cluster():
    def planned(replicas):
        entry = NewTopic("t", assignments=[(0, replicas)])
        return plan_topic(entry, ClusterImage(), CONFIG, THREE, random.Random(0), any_broker=True)

    assert planned([9, 1]).topic.assignment.partitions == {0: [9, 1]}
    with pytest.raises(Refusal, match="negative broker ids: \\[-1\\]"):
        planned([1, -1])
    with pytest.raises(Refusal, match="a broker twice"):
        planned([9, 9])


@pytest.mark.parametrize(
    ("entry", "code", "message"),
    [
        (NewPartitions("none", 5), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "'none'"),
        (NewPartitions("t", 2), ErrorCode.INVALID_PARTITIONS, "must be greater, not 2"),
        (NewPartitions("t", 1), ErrorCode.INVALID_PARTITIONS, "must be greater, not 1"),
        (NewPartitions("t", -1), ErrorCode.INVALID_PARTITIONS, "2 partition"),
        (
            NewPartitions("t", 2**31 - 1),
            ErrorCode.INVALID_PARTITIONS,
            "2147483647 partitions: a broker can hold at most 65536",
        ),
        (NewPartitions("t", 4, [[1, 2]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "2 new partition.* has 1"),
        (NewPartitions("t", 3, [[1]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, "1 replica.* must have 2"),
        (NewPartitions("t", 3, [[1, 7]]), ErrorCode.INVALID_REPLICA_ASSIGNMENT, r"\[7\]"),
    ],
)
def test_a_refused_addition_of_partitions_reports_the_error(entry, code, message):
    with pytest.raises(Refusal, match=message) as raised:
        plan_partitions(entry, existing(t={0: [1, 2], 1: [2, 3]}), CONFIG, THREE, random.Random(0))
    assert raised.value.code == code


def test_added_partitions_keep_the_old_ones_and_their_replication():
    image = existing(t={0: [3, 1], 1: [2, 3]})
    made = plan_partitions(NewPartitions("t", 4), image, CONFIG, THREE, random.Random(0))
    assert made.topic.assignment.partitions[0] == [3, 1]
    assert {len(made.topic.assignment.partitions[p]) for p in (2, 3)} == {2}
    assert (made.added, made.replaces, made.topic.version) == ([2, 3], 4, 5)


# -- a broker's topics ----------------------------------------------------------------------------------------------


def codes(outcomes):
    return {outcome.name: outcome.code.name for outcome in outcomes}


def test_a_created_topic_is_in_store_table_and_directory(cluster):
    outcomes = cluster.controller.create_topics([NewTopic("t", 3, 1, configs=[("retention.ms", "77")])])
    assert codes(outcomes) == {"t": "NONE"}
    topic_id = outcomes[0].topic_id
    assert cluster.served() == {"t": [0, 1, 2]}
    assert cluster.directories() == ["t-0", "t-1", "t-2"]
    assert all(any(directory.iterdir()) for directory in cluster.data)  # spread over both
    for directory in cluster.data:
        for path in directory.glob("t-*"):
            assert read_partition_metadata(path) == topic_id
    node = json.loads(cluster.store.get("/brokers/topics/t")[0])
    assert node["partitions"] == {"0": [1], "1": [1], "2": [1]}
    assert json.loads(cluster.store.get("/brokers/topics/t/partitions/2/state")[0]) == {
        "controller_epoch": 1, "leader": 1, "version": 1, "leader_epoch": 0, "isr": [1],
    }  # fmt: skip
    assert json.loads(cluster.store.get("/config/topics/t")[0])["config"] == {"retention.ms": "77"}
    slot = slot_facts.describe(cluster.table.find("t", 0))
    assert (slot.leader_id, slot.in_sync, slot.topic_id) == (1, [1], topic_id.bytes)
    assert cluster.controller.metadata_version == cluster.shm.metadata_version


def test_settings_of_a_topic_without_effect_are_logged_when_they_are_changed(cluster, caplog):
    def warnings():
        """Warnings of the controller. A client of an earlier test may log warnings, too."""
        records = (record for record in caplog.records if record.name == "odradek.controller")
        return [record.getMessage() for record in records if record.levelname == "WARNING"]

    settings = [("preallocate", "true"), ("unclean.leader.election.enable", "false"), ("retention.ms", "77")]
    cluster.controller.create_topics([NewTopic("t", configs=settings)])
    expected = "topic t: preallocate=true has no effect in this broker, see docs/reference/configuration.md"
    assert warnings() == [expected]
    caplog.clear()
    cluster.controller.create_partitions([NewPartitions("t", 2)])
    cluster.controller.alter_topic("t", lambda settings: {**settings, "retention.ms": "78"})
    assert not warnings()
    cluster.controller.alter_topic("t", lambda settings: {**settings, "min.insync.replicas": "2"})
    (line,) = warnings()
    assert line.startswith("topic t: min.insync.replicas=2 exceeds the 1 replica(s) of its partitions")


def test_the_topics_of_a_request_are_independent(cluster):
    cluster.controller.create_topics([NewTopic("old")])
    requests = [
        NewTopic("a"),
        NewTopic("old"),
        NewTopic("b", 0),
        NewTopic("twice"),
        NewTopic("twice"),
        NewTopic("c.d"),
        NewTopic("c_d"),
    ]
    assert codes(cluster.controller.create_topics(requests)) == {
        "a": "NONE",
        "old": "TOPIC_ALREADY_EXISTS",
        "b": "INVALID_PARTITIONS",
        "twice": "INVALID_REQUEST",
        "c.d": "NONE",
        "c_d": "INVALID_TOPIC_EXCEPTION",
    }
    assert set(cluster.served()) == {"old", "a", "c.d"}


def test_validation_alone_changes_nothing(cluster):
    version = cluster.shm.metadata_version
    outcomes = cluster.controller.create_topics([NewTopic("t", 2), NewTopic("u", 1, 2)], validate_only=True)
    assert codes(outcomes) == {"t": "NONE", "u": "INVALID_REPLICATION_FACTOR"}
    assert outcomes[0].topic is not None
    cluster.controller.create_topics([NewTopic("t")])
    assert codes(cluster.controller.create_partitions([NewPartitions("t", 4)], validate_only=True)) == {"t": "NONE"}
    assert (cluster.served(), cluster.directories()) == ({"t": [0]}, ["t-0"])
    assert cluster.shm.metadata_version == version + 1


def test_partitions_are_added(cluster):
    cluster.controller.create_topics([NewTopic("t", 1)])
    assert codes(cluster.controller.create_partitions([NewPartitions("t", 3), NewPartitions("u", 2)])) == {
        "t": "NONE",
        "u": "UNKNOWN_TOPIC_OR_PARTITION",
    }
    assert codes(cluster.controller.create_partitions([NewPartitions("t", 4)])) == {"t": "NONE"}
    assert cluster.served() == {"t": [0, 1, 2, 3]}
    assert load_image(cluster.store) == cluster.controller.image


def test_topics_are_deleted_by_name_and_by_id(cluster):
    made = cluster.controller.create_topics([NewTopic("a", 2), NewTopic("b"), NewTopic("c")])
    unknown = uuid.uuid4()
    outcomes = cluster.controller.delete_topics(["a", made[1].topic_id, "none", unknown])
    assert [(outcome.name, outcome.code.name) for outcome in outcomes] == [
        ("a", "NONE"),
        ("b", "NONE"),
        ("none", "UNKNOWN_TOPIC_OR_PARTITION"),
        ("", "UNKNOWN_TOPIC_ID"),
    ]
    assert (outcomes[1].topic_id, outcomes[3].topic_id) == (made[1].topic_id, unknown)
    assert cluster.served() == {"c": [0]}
    assert len([name for name in cluster.directories() if name.endswith("-delete")]) == 3
    for path in ("/brokers/topics", "/config/topics"):
        assert cluster.store.children(path) == ["c"]
    assert cluster.store.children("/admin/delete_topics") == []
    assert codes(cluster.controller.create_topics([NewTopic("a")])) == {"a": "NONE"}
    assert cluster.served() == {"a": [0], "c": [0]}


def test_a_topic_named_twice_is_not_deleted(cluster):
    (made,) = cluster.controller.create_topics([NewTopic("a")])
    outcomes = cluster.controller.delete_topics(["a", made.topic_id])
    assert [outcome.code for outcome in outcomes] == [ErrorCode.INVALID_REQUEST] * 2
    assert cluster.served() == {"a": [0]}


def test_deletion_can_be_switched_off(make_cluster):
    cluster = make_cluster([("delete.topic.enable", "false", "")])
    cluster.controller.create_topics([NewTopic("a")])
    assert codes(cluster.controller.delete_topics(["a"])) == {"a": "TOPIC_DELETION_DISABLED"}
    assert cluster.served() == {"a": [0]}


def test_automatic_creation_accepts_existing_topics_and_sets_up_internal_topics(make_cluster):
    cluster = make_cluster([("num.partitions", "2", ""), ("offsets.topic.num.partitions", "3", "")])
    cluster.controller.create_topics([NewTopic("old", 1)])
    outcomes = cluster.controller.auto_create(["new", "old", "bad name", "__consumer_offsets", "new"])
    assert codes(outcomes) == {
        "new": "NONE",
        "old": "NONE",
        "bad name": "INVALID_TOPIC_EXCEPTION",
        "__consumer_offsets": "NONE",
    }
    assert cluster.served() == {"old": [0], "new": [0, 1], "__consumer_offsets": [0, 1, 2]}
    assert cluster.controller.image.topics["__consumer_offsets"].config["cleanup.policy"] == "compact"


def test_more_partitions_than_the_table_holds_are_refused_before_anything_happens(make_cluster):
    cluster = make_cluster(max_slots=64)
    assert codes(cluster.controller.create_topics([NewTopic("a", 60), NewTopic("b", 5)])) == {
        "a": "NONE",
        "b": "INVALID_PARTITIONS",
    }
    assert cluster.store.children("/brokers/topics") == ["a"]


def test_a_large_topic_takes_several_transactions(make_cluster, monkeypatch):
    monkeypatch.setattr(topics, "OPERATIONS_A_TRANSACTION", 7)
    cluster = make_cluster()
    outcomes = cluster.controller.create_topics([NewTopic("a", 1), NewTopic("b", 20), NewTopic("c", 1)])
    assert codes(outcomes) == {"a": "NONE", "b": "NONE", "c": "NONE"}
    assert len(cluster.store.children("/brokers/topics/b/partitions")) == 20
    assert cluster.served() == {"a": [0], "b": list(range(20)), "c": [0]}


def test_a_directory_of_a_former_topic_of_that_name_is_renamed(cluster):
    for directory in cluster.data:
        stray = directory / "t-0"
        stray.mkdir()
        write_partition_metadata(stray, uuid.uuid4())
        (stray / "precious").write_text("kept")
    cluster.controller.create_topics([NewTopic("t")])
    assert cluster.served() == {"t": [0]}
    (log_dir,) = [directory for directory in cluster.data if not (directory / "t-0" / "precious").exists()]
    (aside,) = log_dir.glob("t-0.*-stray")
    assert (aside / "precious").read_text() == "kept"


def test_a_partition_without_directory_is_offline_and_the_topic_exists(cluster):
    for directory in cluster.data:
        (directory / "t-0").write_text("a file in the way")
    assert codes(cluster.controller.create_topics([NewTopic("t"), NewTopic("u")])) == {"t": "NONE", "u": "NONE"}
    assert cluster.served() == {"t": [], "u": [0]}
    assert slots.state_of(cluster.table.find("t", 0)) == SlotState.SLOT_OFFLINE


def test_a_store_that_fails_is_a_retriable_error_and_nothing_happened(cluster):
    pages = cluster.store._db.execute("PRAGMA page_count").fetchone()[0]
    cluster.store._db.execute(f"PRAGMA max_page_count={pages}")  # a full disk, as SQLite sees it
    outcomes = cluster.controller.create_topics([NewTopic("t", 50)])
    assert codes(outcomes) == {"t": "KAFKA_STORAGE_ERROR"}
    assert "full" in outcomes[0].message
    assert cluster.served() == {}
    cluster.store._db.execute("PRAGMA max_page_count=100000")
    assert codes(cluster.controller.create_topics([NewTopic("t", 50)])) == {"t": "NONE"}
    assert cluster.served() == {"t": list(range(50))}


def test_a_controller_that_was_succeeded_elsewhere_writes_nothing(cluster):
    rival = SqliteStore(cluster.path)
    rival.set("/controller_epoch", b"99")
    outcomes = cluster.controller.create_topics([NewTopic("t")])
    assert codes(outcomes) == {"t": "NOT_CONTROLLER"}
    assert cluster.store.children("/brokers/topics") == []
    assert cluster.controller.epoch == 100  # elected again, because no broker is the controller
    assert codes(cluster.controller.create_topics([NewTopic("t")])) == {"t": "NONE"}
    rival.close()


# -- deaths ---------------------------------------------------------------------------------------------------------


def topic_directory():
    topics = TopicDirectory()
    topics.refresh()
    return topics


def consistent(cluster, worker):
    """Assert that store, table, directories, and a worker that was running all the time, have the same topics."""
    image = load_image(cluster.store)
    assert not image.deleting
    expected = {name: sorted(topic.assignment.partitions) for name, topic in image.topics.items()}
    assert cluster.served() == expected
    worker.refresh()
    assert {name.decode(): [p for p, _ in topic.partitions()] for name, topic in worker.by_name.items()} == expected
    live = [name for name in cluster.directories() if not name.endswith("-delete")]
    assert sorted(live) == sorted(f"{name}-{p}" for name, partitions in expected.items() for p in partitions)
    for name, topic in image.topics.items():
        for partition in topic.assignment.partitions:
            assert cluster.store.exists(znodes.state_path(name, partition)) is not None
            assert slot_facts.describe(cluster.table.find(name, partition)).topic_id == topic.topic_id.bytes
    return image


CHANGES = {
    "create": lambda controller: controller.create_topics([NewTopic("new", 5), NewTopic("other", 1)]),
    "grow": lambda controller: controller.create_partitions([NewPartitions("old", 6)]),
    "delete": lambda controller: controller.delete_topics(["old", "second"]),
}
DONE = {
    "create": {"old": 2, "second": 1, "new": 5, "other": 1},
    "grow": {"old": 6, "second": 1},
    "delete": {},
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("victim", ["before a transaction", "after a transaction", "in the table"])
def test_a_controller_may_die_between_any_two_steps(make_cluster, monkeypatch, change, victim):
    monkeypatch.setattr(topics, "OPERATIONS_A_TRANSACTION", 6)
    deaths = 0
    while True:
        cluster = make_cluster()
        cluster.controller.create_topics([NewTopic("old", 2), NewTopic("second")])
        before = load_image(cluster.store)
        worker = topic_directory()
        if victim == "in the table":
            cluster.table.lives = deaths
        else:
            cluster.store.lives, cluster.store.after = deaths, victim.startswith("after")
        try:
            CHANGES[change](cluster.controller)
        except Death:
            deaths += 1
        else:
            break
        cluster.succeed()
        image = consistent(cluster, worker)
        for name in before.topics.keys() & image.topics.keys():
            assert image.topics[name].topic_id == before.topics[name].topic_id
        CHANGES[change](cluster.controller)  # the client retries
        image = consistent(cluster, worker)
        assert {name: len(topic.assignment.partitions) for name, topic in image.topics.items()} == DONE[change]
    assert deaths >= (2 if victim != "in the table" else 3)
    assert {name: len(topic.assignment.partitions) for name, topic in load_image(cluster.store).topics.items()} == DONE[
        change
    ]


def test_the_creation_and_deletion_of_a_topic_do_not_depend_on_the_groups_in_the_tree(cluster):
    counts = []
    for groups in (0, 400):
        for group in range(groups):
            cluster.store.create(f"/consumers/group-{group}/offsets/topic/0", b"1", make_parents=True)
        statements = []
        cluster.store._db.set_trace_callback(statements.append)
        (outcome,) = cluster.controller.create_topics([NewTopic("topic", 2)])
        cluster.controller.delete_topics(["topic"])
        cluster.store._db.set_trace_callback(None)
        assert outcome.code == ErrorCode.NONE
        counts.append(len(statements))
    assert counts[0] == counts[1]


def test_a_successor_that_dies_while_it_recovers_is_succeeded_as_well(make_cluster):
    deaths = 0
    while True:
        cluster = make_cluster()
        worker = topic_directory()
        cluster.table.lives = 1
        with pytest.raises(Death):
            cluster.controller.create_topics([NewTopic("new", 4)])
        cluster.store.close()
        cluster.open()
        cluster.table.lives = deaths
        try:
            cluster.controller.become_controller()
        except Death:
            deaths += 1
        else:
            break
        cluster.succeed()
        consistent(cluster, worker)
    assert deaths >= 5
