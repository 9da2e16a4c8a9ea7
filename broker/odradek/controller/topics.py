"""Topic changes as pure logic: a wish and what exists, in; a plan or a refusal, out; and plans as store transactions.

Runs in the coordinator's controller thread. A plan is carried out by `Plan.operations`, of which the first
transaction makes the topic exist (or have its new partitions) and the rest only completes it, so that a successor of
a dead controller can complete it as well.
"""

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from odradek.config.broker_config import BrokerConfig
from odradek.config.errors import ConfigError
from odradek.controller import topic_names
from odradek.controller.assignment import Broker, assign_replicas
from odradek.controller.image import ClusterImage, Topic
from odradek.metadata import znodes
from odradek.metadata.cluster import new_uuid
from odradek.metadata.store import Store, Transaction
from odradek.metadata.znodes import PartitionState, TopicAssignment
from odradek.protocol.errors import ErrorCode

DEFAULT = -1
OPERATIONS_A_TRANSACTION = 1000  # far below what ZooKeeper takes in one request (1 MiB)
INITIAL_LEADER_EPOCH = 0
MOST_LISTED = 20
"""Partitions, in an error's message."""


class Refusal(Exception):
    """A wish that is not granted: Kafka's error code, and what is wrong and would be right."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass
class NewTopic:
    """A topic as somebody wants it. DEFAULT stands for the broker's own number.

    ``assignments``: replicas by partition index, instead of the two numbers; empty if the broker may choose.
    """

    name: str
    num_partitions: int = DEFAULT
    replication_factor: int = DEFAULT
    assignments: Sequence[tuple[int, Sequence[int]]] = ()
    configs: Sequence[tuple[str, str | None]] = ()


@dataclass
class NewPartitions:
    """How many partitions a topic shall have in all; ``assignments``: replicas of each one added, or None."""

    name: str
    count: int
    assignments: Sequence[Sequence[int]] | None = None


@dataclass
class Plan:
    """A topic as it shall be. ``added`` are the partitions that are new; ``replaces`` the version of the old node."""

    topic: Topic
    added: list[int]
    replaces: int | None = None
    states: dict[int, PartitionState] = field(default_factory=dict)


def internal_topic(name: str, config: BrokerConfig, brokers: int) -> NewTopic:
    """A topic of the broker itself, with the settings that its coordinator needs.

    Where there are fewer brokers than replicas are asked for it gets as many as there are: a broker alone serves groups.
    """
    prefix = "offsets.topic" if name == topic_names.CONSUMER_OFFSETS else "transaction.state.log"
    factor = min(config.integer(f"{prefix}.replication.factor"), max(brokers, 1))
    settings = [
        ("cleanup.policy", "compact"),
        ("compression.type", "producer"),
        ("segment.bytes", str(config.integer(f"{prefix}.segment.bytes"))),
    ]
    if name == topic_names.TRANSACTION_STATE:
        settings.append(("min.insync.replicas", str(min(config.integer(f"{prefix}.min.isr"), factor))))
    return NewTopic(name, config.integer(f"{prefix}.num.partitions"), factor, configs=settings)


def plan_topic(
    wish: NewTopic, image: ClusterImage, config: BrokerConfig, brokers: Sequence[Broker], chance: random.Random
) -> Plan:
    """The topic that a CreateTopics entry asks for. Raises Refusal."""
    reason = topic_names.why_illegal(wish.name)
    if reason is None and wish.name == topic_names.CLUSTER_METADATA:
        reason = f"topic {wish.name} belongs to KRaft and cannot be created"
    if reason is not None:
        raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
    if wish.name in image.topics or wish.name in image.deleting:
        state = "is being deleted; try again when it is gone" if wish.name in image.deleting else "already exists"
        raise Refusal(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{wish.name}' {state}.")
    other = image.colliding(wish.name)
    if other is not None:
        raise Refusal(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{wish.name}' collides with the existing topic '{other}': they differ only in . and _",
        )
    nulls = [name for name, value in wish.configs if value is None]
    if nulls:
        raise Refusal(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {', '.join(nulls)}")
    settings = checked_config({name: value for name, value in wish.configs if value is not None}, config)
    if wish.assignments:
        partitions = _manual_assignment(wish, brokers)
    else:
        count = _count(wish.num_partitions, config.integer("num.partitions"))
        _refuse_too_many(wish.name, count, config.integer("odradek.max.partitions"))
        factor = _factor(wish.replication_factor, config.integer("default.replication.factor"), brokers)
        ring = chance.randrange(len(brokers)), chance.randrange(len(brokers))
        partitions = assign_replicas(brokers, range(count), factor, start=ring[0], shift=ring[1])
    return Plan(Topic(wish.name, TopicAssignment(new_uuid(), partitions), settings), sorted(partitions))


def plan_partitions(
    wish: NewPartitions, image: ClusterImage, config: BrokerConfig, brokers: Sequence[Broker], chance: random.Random
) -> Plan:
    """The topic with the partitions that a CreatePartitions entry asks for. Raises Refusal."""
    topic = image.topics.get(wish.name)
    if topic is None or wish.name in image.deleting:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{wish.name}' does not exist.")
    old = topic.assignment.partitions
    if wish.count <= len(old):
        wrong = f"it cannot be lowered to {wish.count}" if wish.count < len(old) else f"{wish.count} is no increase"
        raise Refusal(
            ErrorCode.INVALID_PARTITIONS,
            f"Topic '{wish.name}' has {len(old)} partition(s): {wrong}, count must be greater.",
        )
    _refuse_too_many(wish.name, wish.count, config.integer("odradek.max.partitions"))
    added = list(range(len(old), wish.count))
    factor = len(old[min(old)]) if old else 1
    if wish.assignments is None:
        if factor > len(brokers):
            raise _too_few_brokers(factor, brokers)
        start, shift = _continue_ring(old, brokers, chance)
        partitions = assign_replicas(brokers, added, factor, start=start, shift=shift)
    else:
        if len(wish.assignments) != len(added):
            raise Refusal(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Topic '{wish.name}' gets {len(added)} more partition(s), but assignments has {len(wish.assignments)}:"
                " there must be one for each.",
            )
        partitions = dict(zip(added, map(list, wish.assignments), strict=True))
        _check_replicas(partitions, brokers, factor)
    assignment = topic.assignment._replace(partitions={**old, **partitions})
    return Plan(Topic(topic.name, assignment, topic.config, topic.version + 1), added, replaces=topic.version)


def checked_config(settings: dict[str, str], config: BrokerConfig) -> dict[str, str]:
    """A topic's settings, if all are known and in range. Raises Refusal."""
    try:
        config.topic_config(settings)
    except ConfigError as error:
        raise Refusal(ErrorCode.INVALID_CONFIG, str(error)) from None
    return settings


def _count(wanted: int, default: int) -> int:
    if wanted == DEFAULT:
        return default
    if wanted < 1:
        raise Refusal(
            ErrorCode.INVALID_PARTITIONS,
            f"Number of partitions must be at least 1, or -1 for the broker's num.partitions, not {wanted}.",
        )
    return wanted


def _refuse_too_many(name: str, count: int, most: int) -> None:
    """Before anything is made for each of them: a request of a few bytes may ask for 2^31 partitions."""
    if count > most:
        raise Refusal(
            ErrorCode.INVALID_PARTITIONS,
            f"Topic '{name}' cannot have {count} partitions: a broker can hold {most} (odradek.max.partitions).",
        )


def _factor(wanted: int, default: int, brokers: Sequence[Broker]) -> int:
    factor = default if wanted == DEFAULT else wanted
    if factor < 1:
        raise Refusal(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Replication factor must be at least 1, or -1 for the broker's default.replication.factor, not {wanted}.",
        )
    if factor > len(brokers):
        raise _too_few_brokers(factor, brokers)
    return factor


def _too_few_brokers(factor: int, brokers: Sequence[Broker]) -> Refusal:
    return Refusal(
        ErrorCode.INVALID_REPLICATION_FACTOR,
        f"Replication factor: {factor} larger than available brokers: {len(brokers)}.",
    )


def _manual_assignment(wish: NewTopic, brokers: Sequence[Broker]) -> dict[int, list[int]]:
    if wish.num_partitions != DEFAULT or wish.replication_factor != DEFAULT:
        raise Refusal(
            ErrorCode.INVALID_REQUEST,
            f"Topic '{wish.name}' has assignments and also num_partitions={wish.num_partitions},"
            f" replication_factor={wish.replication_factor}: with assignments both must be -1.",
        )
    partitions = {partition: list(replicas) for partition, replicas in wish.assignments}
    if sorted(partition for partition, _ in wish.assignments) != list(range(len(wish.assignments))):
        raise Refusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Topic '{wish.name}': assignments must name each partition from 0 to {len(wish.assignments) - 1} once,"
            f" not {', '.join(str(partition) for partition, _ in wish.assignments[:MOST_LISTED])}"
            f"{', ...' if len(wish.assignments) > MOST_LISTED else ''}.",
        )
    _check_replicas(partitions, brokers, len(partitions[0]))
    return dict(sorted(partitions.items()))


def _check_replicas(partitions: Mapping[int, Sequence[int]], brokers: Sequence[Broker], factor: int) -> None:
    """Refuse replicas that are none, repeated, on unknown brokers, or not `factor` many."""
    known = {broker.id for broker in brokers}
    for partition, replicas in partitions.items():
        unknown = [broker for broker in replicas if broker not in known]
        wrong = (
            "has no replicas"
            if not replicas
            else f"names a broker twice: {list(replicas)}"
            if len(set(replicas)) != len(replicas)
            else f"names the broker(s) {unknown}; there are {sorted(known)}"
            if unknown
            else f"has {len(replicas)} replica(s) where the others have {factor}"
            if len(replicas) != factor
            else None
        )
        if wrong is not None:
            raise Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The assignment of partition {partition} {wrong}.")


def _continue_ring(
    old: Mapping[int, Sequence[int]], brokers: Sequence[Broker], chance: random.Random
) -> tuple[int, int]:
    """Where in the ring partition 0's leader is now, so that new partitions go on after the last; the shift is lost."""
    ids = sorted(broker.id for broker in brokers)
    leader = old[min(old)][0] if old else -1
    start = ids.index(leader) if leader in ids else chance.randrange(len(ids))
    return start, chance.randrange(len(ids))


# -- plans as transactions --------------------------------------------------------------------------------------------


def initial_states(plan: Plan, alive: Iterable[int], controller_epoch: int) -> dict[int, PartitionState]:
    """Leaders and in-sync replicas of the plan's new partitions: the living replicas, the first of them leads."""
    living = set(alive)
    states = {}
    for partition in plan.added:
        in_sync = [broker for broker in plan.topic.assignment.partitions[partition] if broker in living]
        leader = in_sync[0] if in_sync else znodes.NO_LEADER
        states[partition] = PartitionState(controller_epoch, leader, INITIAL_LEADER_EPOCH, in_sync)
    return states


def write_plans(store: Store, plans: Sequence[Plan], controller_epoch_version: int) -> None:
    """Make plans durable, many in a transaction; of a large one the first transaction holds the topic itself.

    Partition states that do not fit go into transactions of their own afterwards: if this process dies in between, its
    successor writes them with `write_missing_states`.

    :param controller_epoch_version: of the node of the epoch: a controller that was succeeded writes nothing.
    :raises BadVersion: if another controller was elected meanwhile, or the topic's node changed.
    :raises NodeExists: if a topic exists that the image does not know.
    """
    for operations in _chunks(plans):
        transaction = _begin(store, controller_epoch_version)
        for verb, path, data, version in operations:
            if verb == "create":
                transaction.create(path, data)
            else:
                transaction.set(path, data, version)
        transaction.commit()


def _chunks(plans: Sequence[Plan]) -> Iterator[list[tuple[str, str, bytes, int]]]:
    """The operations of all plans by transaction; a plan that fits into one is not torn apart."""
    pending: list[tuple[str, str, bytes, int]] = []
    for plan in plans:
        operations = _operations(plan)
        if pending and len(pending) + len(operations) > OPERATIONS_A_TRANSACTION:
            yield pending
            pending = []
        pending += operations
        while len(pending) > OPERATIONS_A_TRANSACTION:
            yield pending[:OPERATIONS_A_TRANSACTION]
            pending = pending[OPERATIONS_A_TRANSACTION:]
    if pending:
        yield pending


def _begin(store: Store, controller_epoch_version: int) -> Transaction:
    return store.transaction().check(znodes.CONTROLLER_EPOCH, controller_epoch_version)


def _operations(plan: Plan) -> list[tuple[str, str, bytes, int]]:
    name = plan.topic.name
    data = znodes.encode_topic(plan.topic.assignment)
    if plan.replaces is None:
        operations = [
            ("create", znodes.topic_config_path(name), znodes.encode_config(plan.topic.config), 0),
            ("create", znodes.topic_path(name), data, 0),
            ("create", znodes.partitions_path(name), b"", 0),
        ]
    else:
        operations = [("set", znodes.topic_path(name), data, plan.replaces)]
    for partition, state in plan.states.items():
        operations.append(("create", znodes.partition_path(name, partition), b"", 0))
        operations.append(("create", znodes.state_path(name, partition), znodes.encode_state(state), 0))
    return operations


def write_missing_states(
    store: Store, topic: Topic, states: Mapping[int, PartitionState], controller_epoch_version: int
) -> None:
    """Complete a topic that a dead controller left without some of its partitions' states.

    Raises BadVersion, NodeExists if somebody else is at it.
    """
    if store.exists(znodes.partitions_path(topic.name)) is None:
        store.create(znodes.partitions_path(topic.name))
    pending = list(states.items())
    for at in range(0, len(pending), OPERATIONS_A_TRANSACTION // 2):
        transaction = _begin(store, controller_epoch_version)
        for partition, state in pending[at : at + OPERATIONS_A_TRANSACTION // 2]:
            if store.exists(znodes.partition_path(topic.name, partition)) is None:
                transaction.create(znodes.partition_path(topic.name, partition))
            transaction.create(znodes.state_path(topic.name, partition), znodes.encode_state(state))
        transaction.commit()


def write_states(store: Store, changes: Sequence[tuple[str, bytes, int]], controller_epoch_version: int) -> None:
    """Replace states of partitions (path, data, version), as the controller. Raises BadVersion if somebody else is at it."""
    for at in range(0, len(changes), OPERATIONS_A_TRANSACTION):
        transaction = _begin(store, controller_epoch_version)
        for path, data, version in changes[at : at + OPERATIONS_A_TRANSACTION]:
            transaction.set(path, data, version)
        transaction.commit()


def give_ids(store: Store, image: ClusterImage) -> None:
    """Give an id to every topic that has none, as Kafka does with topics made before 2.8. Raises StoreError."""
    for topic in [topic for topic in image.topics.values() if topic.topic_id is None]:
        assignment = topic.assignment._replace(topic_id=new_uuid())
        stat = store.set(znodes.topic_path(topic.name), znodes.encode_topic(assignment), topic.version)
        image.put(Topic(topic.name, assignment, topic.config, stat.version))
