"""Planning of topic changes: pure functions that make a `Plan` or raise `Refusal`, and the store transactions of plans.

Runs in the coordinator's store thread. The first transaction of a plan (`write_plans`) creates the topic, or its new
partitions; the other transactions only complete it. So the successor of a controller that died can complete it as well.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from odradek._ext.shm.brokers import MOST_REPLICAS
from odradek.config.broker_config import BrokerConfig
from odradek.config.errors import ConfigError
from odradek.controller import topic_names
from odradek.controller.assignment import Broker, assign_replicas
from odradek.controller.image import ClusterImage, Topic
from odradek.metadata import znodes
from odradek.metadata.cluster import new_uuid
from odradek.metadata.store import REQUEST_BYTES, Store, Transaction
from odradek.metadata.znodes import PartitionState, TopicAssignment
from odradek.protocol.errors import ErrorCode

DEFAULT = -1
OPERATIONS_A_TRANSACTION = 400  # a step of the store thread; far below the size of a ZooKeeper request (1 MiB)
OF_NEW_TOPIC, OF_TOPIC = 3, 1
"""Operations of the topic itself."""
INITIAL_LEADER_EPOCH = 0
SPARE_BYTES = 2048
"""More than a request that creates a topic needs besides the settings and the replicas: paths, operations, the ids."""
PARTITION_BYTES, REPLICA_BYTES = 16, 11
"""The most that a partition and each of its replicas need in the node of a topic."""
MOST_TEXT = 4_000
"""The maximum length of an error message."""
MOST_LISTED = 20
"""The maximum number of partitions in an error message."""


class Refusal(Exception):
    """A refused request: Kafka's error code and a message with the error and what is allowed."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        if (
            len(message) > MOST_TEXT
        ):  # a request may name ten thousand wrong settings; a response has room for 32,767 bytes
            message = message[:MOST_TEXT] + " ..."
        super().__init__(message)
        self.code = code
        self.message = message


Admit = Callable[[int], None]
"""Called with the number of new partitions before they are planned; raises Refusal. A plan takes time for each partition, and a
request of a few bytes may want many."""


def admit_all(_: int) -> None:
    """The default `Admit`."""


@dataclass
class NewTopic:
    """A request to create a topic. DEFAULT means the number in the broker's configuration.

    ``assignments``: replicas by partition index, instead of the two numbers; empty if the broker chooses.
    """

    name: str
    num_partitions: int = DEFAULT
    replication_factor: int = DEFAULT
    assignments: Sequence[tuple[int, Sequence[int]]] = ()
    configs: Sequence[tuple[str, str | None]] = ()


@dataclass
class NewPartitions:
    """A request to add partitions. ``count``: the new total; ``assignments``: the replicas of each new partition, or None."""

    name: str
    count: int
    assignments: Sequence[Sequence[int]] | None = None


@dataclass
class Plan:
    """A topic after a change. ``added``: the new partitions; ``replaces``: the version of the existing node, or None."""

    topic: Topic
    added: list[int]
    replaces: int | None = None
    states: dict[int, PartitionState] = field(default_factory=dict)


def internal_topic(name: str, config: BrokerConfig, brokers: int) -> NewTopic:
    """A request to create an internal topic, with the settings that its coordinator needs.

    The number of replicas is at most the number of brokers, so that a single broker can serve groups.
    """
    transactions = name == topic_names.TRANSACTION_STATE
    prefix = "transaction.state.log" if transactions else "offsets.topic"
    factor = min(config.integer(f"{prefix}.replication.factor"), max(brokers, 1))
    settings = [
        ("cleanup.policy", "compact"),
        ("compression.type", "uncompressed" if transactions else "producer"),
        ("segment.bytes", str(config.integer(f"{prefix}.segment.bytes"))),
    ]
    if transactions:
        settings.append(("min.insync.replicas", str(min(config.integer(f"{prefix}.min.isr"), factor))))
        settings.append(("unclean.leader.election.enable", "false"))
    return NewTopic(name, config.integer(f"{prefix}.num.partitions"), factor, configs=settings)


def plan_topic(
    request: NewTopic,
    image: ClusterImage,
    config: BrokerConfig,
    brokers: Sequence[Broker],
    rng: random.Random,
    *,
    any_broker: bool = False,
    admit: Admit = admit_all,
) -> Plan:
    """Plan a new topic. Raises Refusal.

    :param rng: chooses the brokers of the first replicas.
    :param admit: see `Admit`.
    :param any_broker: assignments may contain brokers that are not in ``brokers``, because they may be down now.
    """
    reason = topic_names.why_illegal(request.name)
    if reason is None and request.name == topic_names.CLUSTER_METADATA:
        reason = f"topic {request.name} belongs to KRaft and cannot be created"
    if reason is not None:
        raise Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
    if request.name in image.topics or request.name in image.deleting:
        state = (
            "is being deleted; retry when its deletion has finished"
            if request.name in image.deleting
            else "already exists"
        )
        raise Refusal(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{request.name}' {state}.")
    other = image.colliding(request.name)
    if other is not None:
        raise Refusal(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{request.name}' collides with the existing topic '{other}': they differ only in . and _",
        )
    nulls = [name for name, value in request.configs if value is None]
    if nulls:
        raise Refusal(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {', '.join(nulls)}")
    settings = checked_config({name: value for name, value in request.configs if value is not None}, config)
    if request.assignments:
        admit(len(request.assignments))
        partitions = _manual_assignment(request, None if any_broker else brokers)
    else:
        count = _count(request.num_partitions, config.integer("num.partitions"))
        _refuse_too_many(request.name, count, config.integer("odradek.max.partitions"))
        factor = _factor(request.replication_factor, config.integer("default.replication.factor"), brokers)
        admit(count)
        ring = rng.randrange(len(brokers)), rng.randrange(len(brokers))
        partitions = assign_replicas(brokers, range(count), factor, start=ring[0], shift=ring[1])
    return Plan(Topic(request.name, TopicAssignment(new_uuid(), partitions), settings), sorted(partitions))


def plan_partitions(
    request: NewPartitions,
    image: ClusterImage,
    config: BrokerConfig,
    brokers: Sequence[Broker],
    rng: random.Random,
    admit: Admit = admit_all,
) -> Plan:
    """Plan new partitions of a topic. Raises Refusal. :param rng: chooses the brokers of the first replicas. :param admit: see
    `Admit`."""
    topic = image.topics.get(request.name)
    if topic is None or request.name in image.deleting:
        raise Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{request.name}' does not exist.")
    old = topic.assignment.partitions
    if request.count <= len(old):
        raise Refusal(
            ErrorCode.INVALID_PARTITIONS,
            f"Topic '{request.name}' has {len(old)} partition(s); the new count must be greater, not {request.count}.",
        )
    _refuse_too_many(request.name, request.count, config.integer("odradek.max.partitions"))
    admit(request.count - len(old))
    added = list(range(len(old), request.count))
    factor = len(old[min(old)]) if old else 1
    if request.assignments is None:
        refuse_too_many_replicas(f"The replication factor of topic '{request.name}'", factor)
        if factor > len(brokers):
            raise _too_few_brokers(factor, brokers)
        start, shift = _continue_ring(old, brokers, rng)
        partitions = assign_replicas(brokers, added, factor, start=start, shift=shift)
    else:
        if len(request.assignments) != len(added):
            raise Refusal(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Topic '{request.name}' gets {len(added)} new partition(s), but assignments has"
                f" {len(request.assignments)} entries; it must have one entry for each new partition.",
            )
        partitions = dict(zip(added, map(list, request.assignments), strict=True))
        _check_replicas(partitions, brokers, factor)
    assignment = topic.assignment._replace(partitions={**old, **partitions})
    return Plan(Topic(topic.name, assignment, topic.config, topic.version + 1), added, replaces=topic.version)


def checked_config(settings: dict[str, str], config: BrokerConfig) -> dict[str, str]:
    """Check the settings of a topic and return them. Raises Refusal for unknown keys and invalid values."""
    try:
        config.topic_config(settings)
    except ConfigError as error:
        raise Refusal(ErrorCode.INVALID_CONFIG, str(error)) from None
    return settings


def _count(requested: int, default: int) -> int:
    if requested == DEFAULT:
        return default
    if requested < 1:
        raise Refusal(
            ErrorCode.INVALID_PARTITIONS,
            f"Number of partitions must be at least 1, or -1 for the broker's num.partitions, not {requested}.",
        )
    return requested


def _refuse_too_many(name: str, count: int, limit: int) -> None:
    """Called before anything is allocated per partition: a request of a few bytes may contain a count of 2^31."""
    if count > limit:
        raise Refusal(
            ErrorCode.INVALID_PARTITIONS,
            f"Topic '{name}' cannot have {count} partitions: a broker can hold at most {limit} (odradek.max.partitions).",
        )


def refuse_too_large(plan: Plan) -> None:
    """Refuse a plan whose nodes ZooKeeper does not accept in one request. Raises Refusal."""
    name, assignment = plan.topic.name, plan.topic.assignment
    config_bytes = 0 if plan.replaces is not None else len(znodes.encode_config(plan.topic.config))
    replicas = sum(map(len, assignment.partitions.values()))
    most = SPARE_BYTES + config_bytes + PARTITION_BYTES * len(assignment.partitions) + REPLICA_BYTES * replicas
    if most <= REQUEST_BYTES:
        return  # the usual case, without an encoding
    topic_bytes = len(znodes.encode_topic(assignment))
    if SPARE_BYTES + config_bytes + topic_bytes <= REQUEST_BYTES:
        return
    if config_bytes > topic_bytes:
        raise Refusal(
            ErrorCode.INVALID_CONFIG,
            f"Topic '{name}': its settings need {config_bytes} bytes, and ZooKeeper accepts {REQUEST_BYTES} bytes in one"
            " request. Use shorter values.",
        )
    raise Refusal(
        ErrorCode.INVALID_PARTITIONS,
        f"Topic '{name}' cannot have {len(assignment.partitions)} partitions with {replicas} replicas in all: its node needs"
        f" {topic_bytes} bytes, and ZooKeeper accepts {REQUEST_BYTES} bytes in one request. Use fewer partitions or replicas.",
    )


def refuse_too_many_replicas(what: str, count: int) -> None:
    """Refuse more replicas of a partition than the brokers' partition tables have room for. Raises Refusal.

    :param what: what has that number.
    """
    if count > MOST_REPLICAS:
        raise Refusal(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"{what} is {count}: a partition can have at most {MOST_REPLICAS} replicas, a leader and"
            f" {MOST_REPLICAS - 1} followers.",
        )


def _factor(requested: int, default: int, brokers: Sequence[Broker]) -> int:
    factor = default if requested == DEFAULT else requested
    if factor < 1:
        raise Refusal(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Replication factor must be at least 1, or -1 for the broker's default.replication.factor, not {requested}.",
        )
    refuse_too_many_replicas("Replication factor", factor)
    if factor > len(brokers):
        raise _too_few_brokers(factor, brokers)
    return factor


def _too_few_brokers(factor: int, brokers: Sequence[Broker]) -> Refusal:
    return Refusal(
        ErrorCode.INVALID_REPLICATION_FACTOR,
        f"Replication factor: {factor} larger than available brokers: {len(brokers)}.",
    )


def _manual_assignment(request: NewTopic, brokers: Sequence[Broker] | None) -> dict[int, list[int]]:
    if request.num_partitions != DEFAULT or request.replication_factor != DEFAULT:
        raise Refusal(
            ErrorCode.INVALID_REQUEST,
            f"Topic '{request.name}' has assignments and also num_partitions={request.num_partitions},"
            f" replication_factor={request.replication_factor}: with assignments both must be -1.",
        )
    partitions = {partition: list(replicas) for partition, replicas in request.assignments}
    if sorted(partition for partition, _ in request.assignments) != list(range(len(request.assignments))):
        raise Refusal(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Topic '{request.name}': assignments must contain each partition from 0 to {len(request.assignments) - 1} once,"
            f" not {', '.join(str(partition) for partition, _ in request.assignments[:MOST_LISTED])}"
            f"{', ...' if len(request.assignments) > MOST_LISTED else ''}.",
        )
    _check_replicas(partitions, brokers, len(partitions[0]))
    return dict(sorted(partitions.items()))


def _check_replicas(partitions: Mapping[int, Sequence[int]], brokers: Sequence[Broker] | None, factor: int) -> None:
    """Refuse empty replica lists, repeated or unknown brokers, and lists whose length is not `factor`.

    :param brokers: None to allow brokers that are not known.
    """
    known = {broker.id for broker in brokers or ()}
    for partition, replicas in partitions.items():
        refuse_too_many_replicas(f"The number of replicas in the assignment of partition {partition}", len(replicas))
        unknown = [broker for broker in replicas if broker not in known and (brokers is not None or broker < 0)]
        error = (
            "has no replicas"
            if not replicas
            else f"contains a broker twice: {list(replicas)}"
            if len(set(replicas)) != len(replicas)
            else f"contains negative broker ids: {unknown}"
            if unknown and brokers is None
            else f"contains the unknown broker(s) {unknown}; the brokers are {sorted(known)}"
            if unknown
            else f"has {len(replicas)} replica(s); it must have {factor}, as the other partitions"
            if len(replicas) != factor
            else None
        )
        if error is not None:
            raise Refusal(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"The assignment of partition {partition} {error}.")


def _continue_ring(old: Mapping[int, Sequence[int]], brokers: Sequence[Broker], rng: random.Random) -> tuple[int, int]:
    """The start and shift for `assign_replicas` so that new partitions continue the ring of brokers.

    The start is the index of partition 0's leader. The original shift is not stored, so the shift is random.
    """
    ids = sorted(broker.id for broker in brokers)
    leader = old[min(old)][0] if old else -1
    start = ids.index(leader) if leader in ids else rng.randrange(len(ids))
    return start, rng.randrange(len(ids))


# -- plans as transactions --------------------------------------------------------------------------------------------


def initial_states(
    plan: Plan, alive: Iterable[int], controller_epoch: int, partitions: Sequence[int] | None = None
) -> dict[int, PartitionState]:
    """The states of the new partitions: all live replicas are in sync, and the first of them is the leader.

    :param partitions: some of the new partitions; None: all.
    """
    live = set(alive)
    states = {}
    for partition in plan.added if partitions is None else partitions:
        in_sync = [broker for broker in plan.topic.assignment.partitions[partition] if broker in live]
        leader = in_sync[0] if in_sync else znodes.NO_LEADER
        states[partition] = PartitionState(controller_epoch, leader, INITIAL_LEADER_EPOCH, in_sync)
    return states


def transactions_of(store: Store, plans: Sequence[Plan], controller_epoch_version: int) -> Iterator[Transaction]:
    """The transactions that store plans, one after the other; one may contain several plans. The first transaction of a large
    plan contains the topic itself.

    Further transactions contain the partition states that do not fit. If this process dies before them, its successor writes
    the states with `write_missing_states`.

    :param controller_epoch_version: version of the epoch node, so that a controller with a successor cannot write.
    Their `commit` raises BadVersion if another controller was elected or the node of the topic changed, and NodeExists if a
    topic exists that is not in the image.
    """
    for operations in _chunks(plans):
        transaction = _begin(store, controller_epoch_version)
        for verb, path, data, version in operations:
            if verb == "create":
                transaction.create(path, data)
            else:
                transaction.set(path, data, version)
        yield transaction


def _chunks(plans: Sequence[Plan]) -> Iterator[list[tuple[str, str, bytes, int]]]:
    """The operations of all plans, by transaction; a plan is split only if it does not fit into one."""
    pending: list[tuple[str, str, bytes, int]] = []
    for plan in plans:
        size = (OF_NEW_TOPIC if plan.replaces is None else OF_TOPIC) + 2 * len(plan.states)
        if pending and len(pending) + size > OPERATIONS_A_TRANSACTION:
            yield pending
            pending = []
        for operation in _operations(plan):
            if len(pending) == OPERATIONS_A_TRANSACTION:
                yield pending
                pending = []
            pending.append(operation)
    if pending:
        yield pending


def _begin(store: Store, controller_epoch_version: int) -> Transaction:
    return store.transaction().check(znodes.CONTROLLER_EPOCH, controller_epoch_version)


def _operations(plan: Plan) -> Iterator[tuple[str, str, bytes, int]]:
    name = plan.topic.name
    data = znodes.encode_topic(plan.topic.assignment)
    if plan.replaces is None:
        yield "create", znodes.topic_config_path(name), znodes.encode_config(plan.topic.config), 0
        yield "create", znodes.topic_path(name), data, 0
        yield "create", znodes.partitions_path(name), b"", 0
    else:
        yield "set", znodes.topic_path(name), data, plan.replaces
    for partition, state in plan.states.items():
        yield "create", znodes.partition_path(name, partition), b"", 0
        yield "create", znodes.state_path(name, partition), znodes.encode_state(state), 0


def write_missing_states(
    store: Store, topic: Topic, states: Mapping[int, PartitionState], controller_epoch_version: int
) -> None:
    """Write the partition states that a controller did not write before it died.

    Raises BadVersion or NodeExists if another controller writes them at the same time.
    """
    if store.exists(znodes.partitions_path(topic.name)) is None:
        store.create(znodes.partitions_path(topic.name))
    pending = list(states.items())
    for first in range(0, len(pending), OPERATIONS_A_TRANSACTION // 2):
        transaction = _begin(store, controller_epoch_version)
        for partition, state in pending[first : first + OPERATIONS_A_TRANSACTION // 2]:
            if store.exists(znodes.partition_path(topic.name, partition)) is None:
                transaction.create(znodes.partition_path(topic.name, partition))
            transaction.create(znodes.state_path(topic.name, partition), znodes.encode_state(state))
        transaction.commit()


def write_states(store: Store, changes: Sequence[tuple[str, bytes, int]], controller_epoch_version: int) -> None:
    """Replace states of partitions. Raises BadVersion if another controller changed them.

    :param changes: (path, data, version).
    """
    for first in range(0, len(changes), OPERATIONS_A_TRANSACTION):
        transaction = _begin(store, controller_epoch_version)
        for path, data, version in changes[first : first + OPERATIONS_A_TRANSACTION]:
            transaction.set(path, data, version)
        transaction.commit()


def give_ids(store: Store, image: ClusterImage) -> None:
    """Assign an id to every topic without one, as Kafka does for topics from before 2.8. Raises StoreError."""
    for topic in [topic for topic in image.topics.values() if topic.topic_id is None]:
        assignment = topic.assignment._replace(topic_id=new_uuid())
        stat = store.set(znodes.topic_path(topic.name), znodes.encode_topic(assignment), topic.version)
        image.put(Topic(topic.name, assignment, topic.config, stat.version))
