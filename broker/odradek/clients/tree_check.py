"""Compares the state of a cluster in ZooKeeper with what each broker reports. Functions over a `Cluster`; nothing is changed.

Every broker answers Metadata from what the controller sent to it. Odradek brokers also report their role in each partition
(ExplainPartition). A difference may be a change under way: only one that two looks find in the same way counts.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import Any, NamedTuple

from odradek.clients.cluster import Cluster, TopicInfo, View, view_from
from odradek.clients.errors import ClientError
from odradek.clients.wire import Connection
from odradek.metadata.tree import ClusterTree, TreePartition
from odradek.protocol.errors import error_text

NO_TOPIC_ID = bytes(16)
LEADER = "leader"
REQUESTS_AHEAD = 100
"""The number of requests for roles that are sent before the first of their responses is received."""


class Difference(NamedTuple):
    """A difference. ``broker_id``: None for one within the tree. ``subject``: a partition, a topic, or "cluster"."""

    broker_id: int | None
    subject: str
    field: str
    in_tree: str
    reported: str
    meaning: str


class Looked(NamedTuple):
    """The result of a look. ``silent``: why brokers did not answer, by id."""

    differences: list[Difference]
    silent: dict[int, str]
    brokers: int
    partitions: int


def look(cluster: Cluster, tree: ClusterTree, topics: Collection[str] | None, roles: bool) -> Looked:
    """Compare the tree with the answers of all registered brokers.

    :param topics: compare only these; None: all. :param roles: also ask Odradek brokers for their roles, a request for each
        replica.

    Raises ClientError if no bootstrap server answers.
    """
    wanted = {name: topic for name, topic in tree.topics.items() if topics is None or name in topics}
    tree = tree._replace(topics=wanted)
    found = list(judge_tree(tree))
    silent: dict[int, str] = {}

    def ask(broker_id: int, connection: Connection) -> list[Difference]:
        return [
            *judge_view(broker_id, view_of(connection), tree, topics is None),
            *(_judge_roles(broker_id, connection, tree) if roles else ()),
        ]

    for broker_id, result in cluster.of_each(tree.brokers, ask).items():
        if isinstance(result, ClientError):
            silent[broker_id] = str(result)
        else:
            found += result
    return Looked(found, silent, len(tree.brokers), sum(len(topic.partitions) for topic in wanted.values()))


def lasting(first: Looked, second: Looked) -> Looked:
    """What two looks found in the same way."""
    kept = set(first.differences)
    silent = {broker_id: reason for broker_id, reason in second.silent.items() if broker_id in first.silent}
    return second._replace(differences=[found for found in second.differences if found in kept], silent=silent)


def view_of(connection: Connection) -> View:
    """What one broker answers to a Metadata request for all topics. Raises ClientError."""
    from odradek.protocol.schemas import metadata

    response = connection.ask(metadata.SCHEMA, metadata.Request(topics=None), oldest=7)
    return view_from(response)


# -- the tree ---------------------------------------------------------------------------------------------------------


def judge_tree(tree: ClusterTree) -> Iterator[Difference]:
    """Contradictions within the tree."""
    if tree.controller is None:
        yield Difference(None, "cluster", "controller", "none", "-", "no broker is the controller: no leader changes")
    elif tree.controller not in tree.brokers:
        meaning = "the controller is not registered: its session ends soon, or it could not register again"
        yield Difference(None, "cluster", "controller", str(tree.controller), "not registered", meaning)
    for name, topic in tree.topics.items():
        for index, partition in topic.partitions.items():
            if not topic.deleting:
                yield from _judge_state(f"{name}-{index}", partition, tree)


def _judge_state(subject: str, partition: TreePartition, tree: ClusterTree) -> Iterator[Difference]:
    state = partition.state
    if state is None:
        meaning = "the controller has not created the partition: it has no leader"
        yield Difference(None, subject, "state", "none", "-", meaning)
        return
    if state.leader >= 0 and state.leader not in tree.brokers:
        meaning = "the controller has not elected another leader: clients can neither read nor write"
        yield Difference(None, subject, "leader", str(state.leader), "not registered", meaning)
    if state.leader < 0:
        meaning = f"none of the in-sync replicas ({_ids(state.in_sync_replicas)}) is alive: start one of these brokers"
        yield Difference(None, subject, "leader", "none", "-", meaning)
    if not set(state.in_sync_replicas) <= set(partition.replicas):
        meaning = "in-sync replicas are not assigned; a program other than a controller has changed the tree"
        yield Difference(None, subject, "in sync", _ids(state.in_sync_replicas), _ids(partition.replicas), meaning)


# -- Metadata ---------------------------------------------------------------------------------------------------------


def judge_view(broker_id: int, view: View, tree: ClusterTree, every_topic: bool) -> Iterator[Difference]:
    """Differences between the tree and what a broker answers to clients. :param every_topic: the tree has all topics."""
    behind = "the broker has not received or executed the controller's last UpdateMetadata: it sends clients to wrong brokers"
    if view.controller_id != (-1 if tree.controller is None else tree.controller):
        yield Difference(broker_id, "cluster", "controller", str(tree.controller), str(view.controller_id), behind)
    if view.brokers.keys() != tree.brokers:
        yield Difference(
            broker_id, "cluster", "live brokers", _ids(sorted(tree.brokers)), _ids(sorted(view.brokers)), behind
        )
    for name, topic in tree.topics.items():
        known = view.topics.get(name)
        if topic.deleting:
            continue
        if known is None:
            yield Difference(broker_id, name, "topic", "exists", "unknown", behind)
            continue
        if topic.topic_id is not None and known.topic_id not in (NO_TOPIC_ID, topic.topic_id):
            meaning = "the broker knows a deleted topic of the same name"
            yield Difference(broker_id, name, "topic id", topic.topic_id.hex(), known.topic_id.hex(), meaning)
        yield from _judge_topic(broker_id, name, known, topic.partitions, tree, behind)
    if every_topic:
        for name in view.topics.keys() - tree.topics.keys():
            meaning = "the broker has not received or executed the deletion of the topic"
            yield Difference(broker_id, name, "topic", "none", "exists", meaning)


def _judge_topic(
    broker_id: int, name: str, known: TopicInfo, expected: Any, tree: ClusterTree, behind: str
) -> Iterator[Difference]:
    shown = {partition.number: partition for partition in known.partitions}
    for index, partition in expected.items():
        state, answer = partition.state, shown.get(index)
        subject = f"{name}-{index}"
        if state is None:
            continue
        if answer is None:
            yield Difference(broker_id, subject, "partition", "exists", "unknown", behind)
            continue
        leader = state.leader if state.leader in tree.brokers else -1
        rows: list[tuple[str, Any, Any]] = [
            ("leader", leader, answer.leader),
            ("replicas", sorted(partition.replicas), sorted(answer.replicas)),
            ("in sync", sorted(state.in_sync_replicas), sorted(answer.in_sync)),
        ]
        if leader >= 0 and answer.leader == leader:
            rows.append(("leader epoch", state.leader_epoch, answer.leader_epoch))
        yield from _unequal(broker_id, subject, rows, behind)


# -- roles ------------------------------------------------------------------------------------------------------------


def _judge_roles(broker_id: int, connection: Connection, tree: ClusterTree) -> Iterator[Difference]:
    """Differences between the tree and the roles of a broker. A broker that is not Odradek does not report roles."""
    from odradek.protocol.schemas import explain_partition as api

    if connection.serves(api.API_KEY) is None:
        return
    version = connection.version_of(api.SCHEMA)
    replicas = [
        (name, index, partition)
        for name, topic in tree.topics.items()
        for index, partition in topic.partitions.items()
        if not topic.deleting and partition.state is not None and broker_id in partition.replicas
    ]
    for first in range(0, len(replicas), REQUESTS_AHEAD):
        window = replicas[first : first + REQUESTS_AHEAD]
        for name, index, _ in window:
            connection.send(api.SCHEMA, api.Request(topic_name=name, partition_index=index), version=version)
        for name, index, partition in window:
            facts = connection.receive()
            if facts.error_code:
                meaning = "the broker has a replica by the assignment, but does not know the partition"
                yield Difference(broker_id, f"{name}-{index}", "role", "replica", error_text(facts.error_code), meaning)
            else:
                yield from judge_role(broker_id, f"{name}-{index}", facts, partition)


def judge_role(broker_id: int, subject: str, facts: Any, partition: TreePartition) -> Iterator[Difference]:
    """Differences between a partition in the tree and the role of a broker with a replica of it.

    :param facts: an ExplainPartition response.
    """
    state = partition.state
    assert state is not None
    leads = state.leader == broker_id
    behind = "the broker has not received or executed the controller's last LeaderAndIsr"
    if facts.state != "online":
        meaning = "the log of the replica is not in service: look at its log directory and the broker's log"
        yield Difference(broker_id, subject, "log", "online", facts.state, meaning)
    role = LEADER if leads else "follower" if state.leader >= 0 else facts.role
    rows: list[tuple[str, Any, Any]] = [("role", role, facts.role)]
    if state.leader >= 0:
        rows.append(("leader epoch", state.leader_epoch, facts.leader_epoch))
    yield from _unequal(broker_id, subject, rows, behind)
    if leads and facts.role == LEADER:
        meaning = "the leader counts other replicas for its high watermark than the controller for elections"
        rows = [("in sync", sorted(state.in_sync_replicas), sorted(facts.in_sync_replicas))]
        if facts.leader_epoch == state.leader_epoch:
            rows.append(("partition epoch", partition.partition_epoch, facts.partition_epoch))
        rows.append(("replicas", sorted(partition.replicas), sorted(facts.replicas)))
        yield from _unequal(broker_id, subject, rows, meaning)
    if facts.role == "follower" and facts.fetch_error:
        meaning = "the replica falls behind: the broker's log names the error"
        yield Difference(broker_id, subject, "fetches", "yes", f"no, error {facts.fetch_error}", meaning)


def _unequal(broker_id: int, subject: str, rows: Iterable[tuple[str, Any, Any]], meaning: str) -> Iterator[Difference]:
    for field, expected, found in rows:
        if expected != found:
            yield Difference(broker_id, subject, field, _text(expected), _text(found), meaning)


def _text(value: Any) -> str:
    return _ids(value) if isinstance(value, list) else str(value)


def _ids(ids: Iterable[int]) -> str:
    return ",".join(map(str, ids)) or "none"
