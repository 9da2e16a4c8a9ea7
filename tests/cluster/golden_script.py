"""What an administrator does to a cluster, by Kafka's own tools; the same for brokers of Kafka and of Odradek."""

import json
import signal
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import NamedTuple, Protocol

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata
from kazoo.client import KazooClient

from odradek.metadata import znodes
from odradek.metadata.znodes import NO_LEADER
from tests.clients.kafka_tools import KafkaTools
from tests.cluster.golden_trees import STATE, TOPIC, Tree, read_tree
from tests.waiting import until

IDS = (1, 2, 3)
BY_CHANCE = frozenset({"factor", "automatic", "__consumer_offsets"})
"""The topics of the script whose replicas the brokers choose."""
RECORD, RECORDS = bytes(50_000), 80
"""More than a follower gets in one response, so that a throttle has an effect."""


class Member(Protocol):
    """A broker of the cluster."""

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def kill(self) -> None: ...

    def applied(self, entity: str, setting: str) -> bool:
        """Whether the broker has begun to apply a setting, and has applied all earlier ones."""
        ...


class Side:
    """A cluster of three brokers, its tree, and the tools for it.

    :param hold: stops and continues the replication to a broker, if a throttle of the tool does not do that.
    """

    def __init__(
        self,
        name: str,
        members: Mapping[int, Member],
        servers: str,
        zookeeper: KazooClient,
        tools: KafkaTools,
        directory: Path,
        hold: Callable[[int, int], None],
    ) -> None:
        self.name, self.members, self.servers = name, members, servers
        self.zookeeper, self.tools, self.hold = zookeeper, tools, hold
        self._directory = directory

    def tree(self) -> Tree:
        """The present tree."""
        return read_tree(self.zookeeper)

    def run(self, tool: str, *arguments: str) -> str:
        """Run a tool, which must succeed; returns its output."""
        done = self.tools.run(tool, *arguments)
        assert done.code == 0, f"{self.name}: {tool} {arguments}: {done.out}{done.err}"
        return done.out

    def file(self, name: str, content: object) -> str:
        """The path of a file of JSON for a tool."""
        path = self._directory / name
        path.write_text(json.dumps(content))
        return str(path)

    def wait(self, condition: Callable[[Tree], object], what: str) -> None:
        """Wait for a state of the tree."""
        until(lambda: condition(self.tree()), lambda: f"{self.name}: {what}: {describe(self.tree())}")


def describe(tree: Tree) -> str:
    """The nodes that may still change, for messages."""
    return "\n".join(
        f"{path} {node.data!r}" for path, node in sorted(tree.items()) if path.startswith(("/brokers", "/admin"))
    )


class Step(NamedTuple):
    """A step of the script. ``done``: the state of the tree that it leads to."""

    name: str
    do: Callable[[Side], None]
    done: Callable[[Tree], bool]


def live(tree: Tree) -> set[int]:
    """The registered brokers."""
    return {int(name) for name in tree.below(znodes.BROKER_IDS)}


def in_sync(tree: Tree) -> bool:
    """Whether every partition has a leader and all live replicas in sync, if a replica that can lead lives."""
    return all(_in_sync(tree, name) for name in tree.below(znodes.TOPICS))


def _in_sync(tree: Tree, topic: str) -> bool:
    for partition, replicas in tree.json(znodes.topic_path(topic))["partitions"].items():
        path = znodes.state_path(topic, int(partition))
        if path not in tree:
            return False
        state = tree.json(path)
        alive = set(replicas) & live(tree)
        can_lead = alive.intersection(state["isr"])
        if can_lead and (set(state["isr"]) != alive or state["leader"] not in alive):
            return False
        if not can_lead and state["leader"] != NO_LEADER:
            return False
    return True


def settled(tree: Tree) -> bool:
    """Whether nothing is under way: no reassignment, no deletion, no election, no replica that is not in sync."""
    assignments = [tree.json(path) for path in tree if TOPIC.fullmatch(path)]
    moving = any(value["adding_replicas"] or value["removing_replicas"] for value in assignments)
    return not moving and not tree.below(znodes.DELETE_TOPICS) and in_sync(tree)


def all_live(tree: Tree) -> bool:
    """Whether all brokers are registered and nothing is under way."""
    return live(tree) == set(IDS) and settled(tree)


# -- topics -----------------------------------------------------------------------------------------------------------


def create_topics(side: Side) -> None:
    settings = ("--config", "max.message.bytes=2000000", "--config", "cleanup.policy=compact")
    side.run("topics", "--create", "--topic", "assigned", "--replica-assignment", "1:2:3,2:3:1,3:1:2", *settings)
    side.run("topics", "--create", "--topic", "plain", "--replica-assignment", "1:2,2:1")
    side.run("topics", "--create", "--topic", "factor", "--partitions", "2", "--replication-factor", "2")


def add_partitions(side: Side) -> None:
    assignment = "1:2,2:1,3:1,2:3"
    side.run("topics", "--alter", "--topic", "plain", "--partitions", "4", "--replica-assignment", assignment)
    side.run("topics", "--alter", "--topic", "factor", "--partitions", "3")


def use_group(side: Side) -> None:
    """A producer with a producer id and a topic that is created when it is used, and a group that commits."""
    with closing(KafkaProducer(bootstrap_servers=side.servers, acks="all", enable_idempotence=True)) as producer:
        sent = [producer.send(topic, RECORD, partition=0) for topic in ("automatic", "plain") for _ in range(RECORDS)]
        for record in sent:
            record.get(60)
    with closing(
        KafkaConsumer("automatic", bootstrap_servers=side.servers, group_id="readers", auto_offset_reset="earliest")
    ) as consumer:

        def committed() -> bool:
            consumer.poll(timeout_ms=200)
            try:
                consumer.commit({TopicPartition("automatic", 0): OffsetAndMetadata(10, "", -1)})
            except KafkaError:
                return False
            return True

        until(committed, f"{side.name}: the group commits")


def delete_records(side: Side) -> None:
    offsets = {"version": 1, "partitions": [{"topic": "plain", "partition": 0, "offset": 5}]}
    side.run("delete-records", "--offset-json-file", side.file("offsets.json", offsets))


def delete_group(side: Side) -> None:
    side.run("groups", "--delete", "--group", "readers")


def delete_topics(side: Side) -> None:
    for name in ("automatic", "factor"):
        side.run("topics", "--delete", "--topic", name)


# -- settings ---------------------------------------------------------------------------------------------------------


def alter(side: Side, *entity: str, add: str = "", delete: str = "") -> None:
    """Change the settings of an entity: its types and names in the words of kafka-configs."""
    words = [*(("--add-config", add) if add else ()), *(("--delete-config", delete) if delete else ())]
    side.run("configs", "--alter", *entity, *words)


TOPIC_ENTITY = ("--entity-type", "topics", "--entity-name", "plain")
BROKER_ENTITIES = (
    ("--entity-type", "brokers", "--entity-name", "2"),
    ("--entity-type", "brokers", "--entity-default"),
)
USER, CLIENT, ADDRESS = ("--entity-type", "users"), ("--entity-type", "clients"), ("--entity-type", "ips")
ONE, DEFAULT = ("--entity-name",), ("--entity-default",)
QUOTAS: tuple[tuple[tuple[str, ...], str], ...] = (
    ((*USER, *ONE, "alice"), "producer_byte_rate=1024,consumer_byte_rate=2048"),
    ((*USER, *ONE, "bob b/c*~+%"), "request_percentage=12.5"),
    ((*USER, *DEFAULT), "controller_mutation_rate=10"),
    ((*CLIENT, *ONE, "billing"), "producer_byte_rate=1000000000000,request_percentage=200"),
    ((*CLIENT, *DEFAULT), "consumer_byte_rate=1"),
    ((*USER, *ONE, "alice", *CLIENT, *ONE, "billing"), "producer_byte_rate=7"),
    ((*USER, *ONE, "carol", *CLIENT, *ONE, "billing"), "producer_byte_rate=8"),
    ((*USER, *ONE, "alice", *CLIENT, *DEFAULT), "consumer_byte_rate=9"),
    ((*USER, *DEFAULT, *CLIENT, *DEFAULT), "consumer_byte_rate=10"),
    ((*ADDRESS, *ONE, "127.0.0.1"), "connection_creation_rate=11"),
    ((*ADDRESS, *DEFAULT), "connection_creation_rate=12"),
)


def set_topic(side: Side) -> None:
    alter(side, *TOPIC_ENTITY, add="retention.ms=100000,min.insync.replicas=1")
    alter(side, *TOPIC_ENTITY, add="cleanup.policy=[compact,delete]", delete="retention.ms")
    alter(side, *TOPIC_ENTITY, add="min.insync.replicas=1")  # as before


def unset_topic(side: Side) -> None:
    alter(side, *TOPIC_ENTITY, delete="cleanup.policy,min.insync.replicas")
    alter(side, "--entity-type", "topics", "--entity-name", "assigned", delete="cleanup.policy")


def set_brokers(side: Side) -> None:
    for entity in BROKER_ENTITIES:
        for _ in range(2):  # the second time, nothing is different
            alter(side, *entity, add="message.max.bytes=2000000,log.retention.ms=1000000")


def unset_brokers(side: Side) -> None:
    for entity in BROKER_ENTITIES:
        alter(side, *entity, delete="message.max.bytes,log.retention.ms")


def set_quotas(side: Side) -> None:
    for entity, quotas in QUOTAS:
        alter(side, *entity, add=quotas)


def change_quotas(side: Side) -> None:
    """Change one quota of several, and set a quota to the value that it has."""
    alter(side, *USER, *ONE, "alice", add="producer_byte_rate=5,request_percentage=3")
    alter(side, *USER, *ONE, "alice", add="consumer_byte_rate=6", delete="request_percentage")
    alter(side, *CLIENT, *ONE, "billing", add="request_percentage=200")


def unset_quotas(side: Side) -> None:
    for entity, quotas in QUOTAS:
        alter(side, *entity, delete=",".join(quota.partition("=")[0] for quota in quotas.split(",")))


# -- replicas and leaders ---------------------------------------------------------------------------------------------


def plan(side: Side, assignment: Mapping[int, list[int]]) -> str:
    """The file of a reassignment of partitions of the topic `plain`."""
    partitions = [{"topic": "plain", "partition": n, "replicas": replicas} for n, replicas in assignment.items()]
    return side.file("plan.json", {"version": 1, "partitions": partitions})


def reassign(side: Side) -> None:
    file = plan(side, {1: [3, 2], 2: [1, 3]})
    side.run("reassign-partitions", "--reassignment-json-file", file, "--execute", "--throttle", "100000000")


def verify(side: Side) -> None:
    side.run("reassign-partitions", "--reassignment-json-file", plan(side, {1: [3, 2], 2: [1, 3]}), "--verify")


THROTTLED = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")


def reassign_for_long(side: Side) -> None:
    """Begin a reassignment that cannot complete: Kafka's is throttled before it begins, that of Odradek is held."""
    alter(side, *TOPIC_ENTITY, add=",".join(f"{key}=*" for key in THROTTLED))
    for number in IDS:
        entity = ("--entity-type", "brokers", "--entity-name", str(number))
        alter(side, *entity, add=",".join(f"{key}=1000" for key in RATES))
    alter(side, *TOPIC_ENTITY, add=f"{THROTTLED[0]}=3:3")
    # Kafka applies changes in this order, and logs each before it applies it: of the last one it needs only the line.
    for member in side.members.values():
        until(lambda member=member: member.applied("topics/plain", f"{THROTTLED[0]} -> 3:3"), f"{side.name}: throttled")
    side.hold(3, signal.SIGSTOP)
    side.run("reassign-partitions", "--reassignment-json-file", plan(side, {0: [3, 1]}), "--execute")


def cancel(side: Side) -> None:
    side.run("reassign-partitions", "--reassignment-json-file", plan(side, {0: [3, 1]}), "--cancel")
    side.hold(3, signal.SIGCONT)


def moving(tree: Tree) -> bool:
    """Whether partition 0 of the topic `plain` is being reassigned."""
    return bool(tree.json(znodes.topic_path("plain"))["adding_replicas"])


def stop_broker(number: int) -> Callable[[Side], None]:
    return lambda side: side.members[number].stop()


def start_broker(number: int) -> Callable[[Side], None]:
    return lambda side: side.members[number].start()


def only(*numbers: int) -> Callable[[Tree], bool]:
    """Whether these brokers are registered, one of them is the controller, and nothing is under way."""

    def done(tree: Tree) -> bool:
        controller = znodes.CONTROLLER in tree and tree.json(znodes.CONTROLLER)["brokerid"] in numbers
        return live(tree) == set(numbers) and controller and settled(tree)

    return done


def elect(side: Side) -> None:
    side.run("leader-election", "--election-type", "preferred", "--all-topic-partitions")


def preferred(tree: Tree) -> bool:
    """Whether the first replica leads every partition of the topics with an assignment."""
    for path in tree:
        found = STATE.fullmatch(path)
        if found and found[1] not in BY_CHANCE:
            replicas = tree.json(znodes.topic_path(found[1]))["partitions"][found[2]]
            if tree.json(path)["leader"] != replicas[0]:
                return False
    return all_live(tree)


def kill_controller(side: Side) -> None:
    side.members[1].kill()


def create_after_failover(side: Side) -> None:
    side.run("topics", "--create", "--topic", "after", "--replica-assignment", "2,2")


def has(*topics: str) -> Callable[[Tree], bool]:
    """Whether these topics exist and nothing is under way."""
    return lambda tree: set(topics) <= set(tree.below(znodes.TOPICS)) and settled(tree)


def has_no(topics: Iterable[str]) -> Callable[[Tree], bool]:
    """Whether these topics do not exist and nothing is under way."""
    return lambda tree: not set(topics) & set(tree.below(znodes.TOPICS)) and settled(tree)


SCRIPT = (
    Step("the brokers are registered", lambda side: None, all_live),
    Step("topics are created", create_topics, has("assigned", "plain", "factor")),
    Step("partitions are added", add_partitions, settled),
    Step("records are produced, a group commits", use_group, has("automatic", "__consumer_offsets")),
    Step("records are deleted", delete_records, settled),
    Step("the group is deleted", delete_group, settled),
    Step("topics are deleted", delete_topics, has_no(("automatic", "factor"))),
    Step("settings of a topic are set", set_topic, settled),
    Step("settings of a topic are deleted", unset_topic, settled),
    Step("settings of brokers are set", set_brokers, settled),
    Step("settings of brokers are deleted", unset_brokers, settled),
    Step("quotas are set", set_quotas, settled),
    Step("quotas are changed", change_quotas, settled),
    Step("quotas are deleted", unset_quotas, settled),
    Step("partitions are reassigned", reassign, settled),
    Step("the reassignment is verified", verify, settled),
    Step("a reassignment takes long", reassign_for_long, moving),
    Step("the reassignment is cancelled", cancel, settled),
    Step("a broker stops", stop_broker(3), only(1, 2)),
    Step("the broker starts", start_broker(3), all_live),
    Step("preferred leaders are elected", elect, preferred),
    Step("a broker stops again", stop_broker(3), only(1, 2)),
    Step("the controller is killed", kill_controller, only(2)),
    Step("a topic is created after the failover", create_after_failover, has("after")),
    Step("a broker starts again", start_broker(3), only(2, 3)),
    Step("the former controller starts", start_broker(1), all_live),
)
