"""The machine of partitions: NonExistent, New, Online, Offline; and the writes of partition states.

Pure, see `effects`. A state is written before any broker learns of it: a partition joins the batch of requests only when the
store has its new state.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from odradek.controller.cluster.context import ControllerContext, Partition, PartitionStatus
from odradek.controller.cluster.effects import Create, Group, Read, Set, Steps, Write
from odradek.controller.cluster.elections import (
    Choice,
    elect_for_reassignment,
    elect_for_shutdown,
    elect_offline,
    elect_preferred,
    first_leader,
)
from odradek.controller.cluster.requests import RequestBatch
from odradek.metadata import znodes
from odradek.metadata.corrupt_nodes import usable
from odradek.metadata.store import NodeExists, Refused, Stat
from odradek.metadata.znodes import PartitionState

log = logging.getLogger("odradek.controller")

NON_EXISTENT, NEW = PartitionStatus.NON_EXISTENT, PartitionStatus.NEW
ONLINE, OFFLINE = PartitionStatus.ONLINE, PartitionStatus.OFFLINE

ALLOWED: Mapping[PartitionStatus, frozenset[PartitionStatus]] = {
    NEW: frozenset({NON_EXISTENT}),
    ONLINE: frozenset({NEW, ONLINE, OFFLINE}),
    OFFLINE: frozenset({NEW, ONLINE, OFFLINE}),
    NON_EXISTENT: frozenset({OFFLINE}),
}
"""The states from which a partition may come to a state."""

INITIAL_LEADER_EPOCH = 0
RECOVERING = 1
ATTEMPTS = 5
"""How often an election is repeated when another program changes the state at the same time."""

UNCLEAN_KEY = "unclean.leader.election.enable"

Elect = Callable[[ControllerContext, Partition, PartitionState, bool], Choice | None]
"""(context, partition, its state, whether its topic allows unclean elections) -> the choice, or None."""


def offline_election(
    context: ControllerContext, partition: Partition, state: PartitionState, unclean: bool
) -> Choice | None:
    """Elect after a failure of the leader."""
    return elect_offline(partition.replicas, state.in_sync_replicas, context.online_for(partition), unclean)


def reassignment_election(
    context: ControllerContext, partition: Partition, state: PartitionState, unclean: bool
) -> Choice | None:
    """Elect a leader among the target replicas of a reassignment."""
    return elect_for_reassignment(partition.target_replicas, state.in_sync_replicas, context.online_for(partition))


def preferred_election(
    context: ControllerContext, partition: Partition, state: PartitionState, unclean: bool
) -> Choice | None:
    """Elect the first replica of the assignment."""
    return elect_preferred(partition.replicas, state.in_sync_replicas, context.online_for(partition))


def shutdown_election(
    context: ControllerContext, partition: Partition, state: PartitionState, unclean: bool
) -> Choice | None:
    """Elect a leader on a broker that does not shut down."""
    online = context.online_for(partition, shutting_down_too=True)
    return elect_for_shutdown(partition.replicas, state.in_sync_replicas, online, context.shutting_down)


@dataclass
class UncleanElections:
    """Which topics allow unclean elections; those whose settings cannot be decoded do not.

    :param default: whether topics without a setting of their own allow it (``unclean.leader.election.enable``).
    :param forced: whether an operator requested an unclean election, which every topic allows.
    """

    default: bool = False
    forced: bool = False
    _known: dict[str, bool] = field(default_factory=dict)

    def allowed(self, topics: Iterable[str]) -> Steps[Collection[str]]:
        """Those of the topics that allow unclean elections; settings are read once per object."""
        names = set(topics)
        if self.forced:
            return names
        missing = sorted(names - self._known.keys())
        if missing:
            nodes = yield Read([znodes.topic_config_path(name) for name in missing])
            for name, node in zip(missing, nodes, strict=True):
                settings = {} if node is None else _usable_settings(name, node[0])
                value = "false" if settings is None else settings.get(UNCLEAN_KEY)
                self._known[name] = self.default if value is None else value.strip().lower() == "true"
        return {name for name in names if self._known[name]}


def _usable_settings(topic: str, data: bytes) -> Mapping[str, str] | None:
    path = znodes.topic_config_path(topic)
    consequence = f"no unclean election for topic {topic}"
    return usable(path, lambda: znodes.decode_config(path, data), None, consequence)


def move(partitions: Iterable[Partition], target: PartitionStatus) -> list[Partition]:
    """Move partitions to a state whose change has no effect on brokers; returns those that moved.

    A partition whose state does not allow the move is left as it is, and an error is logged.
    """
    moved = []
    for partition in allowed(partitions, target):
        partition.status = target
        moved.append(partition)
    return moved


def allowed(partitions: Iterable[Partition], target: PartitionStatus) -> list[Partition]:
    """The partitions that may move to a state; an error is logged for each of the others."""
    sources = ALLOWED[target]
    result = []
    for partition in partitions:
        if partition.status in sources:
            result.append(partition)
        else:
            log.error("partition %s cannot move from %s to %s", partition, partition.status.value, target.value)
    return result


def bring_online(
    context: ControllerContext,
    partitions: Iterable[Partition],
    elect: Elect,
    batch: RequestBatch,
    unclean: UncleanElections | None = None,
) -> Steps[list[Partition]]:
    """Move partitions to Online: create the states of New partitions, elect leaders of the others.

    :param unclean: only for elections that can be unclean.

    Returns the partitions that have no new leader, because no replica can lead; their state does not change.
    """
    new: list[Partition] = []
    existing: list[Partition] = []
    for partition in allowed(partitions, ONLINE):
        (new if partition.status is NEW else existing).append(partition)
    failed: list[Partition] = []
    if new:
        failed += yield from create_states(context, new, batch)
    if existing:
        failed += yield from elect_leaders(context, existing, elect, batch, unclean)
    return failed


# -- new partitions ---------------------------------------------------------------------------------------------------


def create_states(
    context: ControllerContext, partitions: Sequence[Partition], batch: RequestBatch
) -> Steps[list[Partition]]:
    """Create the state of new partitions with at least one online replica. Returns the others, which stay New."""
    failed, creating, groups, states = [], [], [], []
    encoded = StateEncoder()
    for partition in partitions:
        choice = first_leader(partition.replicas, context.online_for(partition))
        if choice is None:
            failed.append(partition)
            continue
        state = PartitionState(context.epoch, choice.leader, INITIAL_LEADER_EPOCH, choice.in_sync)
        name = partition.topic.name
        creating.append(partition)
        states.append(state)
        groups.append(
            (
                Create(znodes.partition_path(name, partition.index)),
                Create(znodes.state_path(name, partition.index), encoded(state)),
            )
        )
    if not creating:
        return failed
    yield from _create_parents(creating)
    results = yield Write(groups)
    again: list[int] = [place for place, result in enumerate(results) if isinstance(result, NodeExists)]
    if again:  # a former controller created the partition's node without its state
        retried = yield Write([groups[place][1:] for place in again])
        for place, result in zip(again, retried, strict=True):
            results[place] = result
    present = []
    for partition, state, result in zip(creating, states, results, strict=True):
        if isinstance(result, Refused):
            log.error("cannot create the state of partition %s: %s", partition, result)
            present.append(partition)
            continue
        partition.state, partition.partition_epoch = state, 0
        partition.status = ONLINE
        batch.lead(state.in_sync_replicas, partition, is_new=True)
    if present:
        failed += yield from _adopt_states(context, present, batch)
    return failed


def _adopt_states(
    context: ControllerContext, partitions: Sequence[Partition], batch: RequestBatch
) -> Steps[list[Partition]]:
    """Elect leaders of new partitions whose state another program has created. Returns those that have none."""
    yield from read_states(partitions)
    adopted = [partition for partition in partitions if partition.state is not None]
    for partition in adopted:
        partition.status = OFFLINE
    failed = yield from elect_leaders(context, adopted, offline_election, batch)
    return failed + [partition for partition in partitions if partition.state is None]


def _create_parents(partitions: Iterable[Partition]) -> Steps[None]:
    """Create the node ``partitions`` of the topics that lack it."""
    paths = list(dict.fromkeys(znodes.partitions_path(partition.topic.name) for partition in partitions))
    nodes = yield Read(paths)
    missing: list[Group] = [(Create(path),) for path, node in zip(paths, nodes, strict=True) if node is None]
    if missing:
        yield Write(missing)


# -- elections --------------------------------------------------------------------------------------------------------


def elect_leaders(
    context: ControllerContext,
    partitions: Sequence[Partition],
    elect: Elect,
    batch: RequestBatch,
    unclean: UncleanElections | None = None,
) -> Steps[list[Partition]]:
    """Elect leaders of partitions that have a state, in a new leader epoch. Returns those for which no replica can lead."""
    failed: list[Partition] = []
    remaining = list(partitions)
    for _ in range(ATTEMPTS):
        may_be_unclean = yield from _unclean_topics(context, remaining, elect, unclean)
        changes: list[tuple[Partition, PartitionState]] = []
        unclean_ones: set[Partition] = set()
        for partition in remaining:
            state = partition.state
            choice = None
            if state is not None:
                choice = elect(context, partition, state, partition.topic.name in may_be_unclean)
            if state is None or choice is None:
                failed.append(partition)
                continue
            if choice.unclean:
                unclean_ones.add(partition)
                log.warning(
                    "unclean election: broker %d leads partition %s, in-sync replicas were %s: records may be lost",
                    choice.leader, partition, state.in_sync_replicas,
                )  # fmt: skip
            recovering = RECOVERING if choice.unclean else state.leader_recovery_state
            changes.append(
                (
                    partition,
                    PartitionState(context.epoch, choice.leader, state.leader_epoch + 1, choice.in_sync, recovering),
                )
            )
        refused = yield from write_states(context, changes)
        context.unclean_elections += len(unclean_ones.difference(refused))
        for partition, _ in changes:
            if partition not in refused:
                partition.status = ONLINE
                online = context.online_for(partition, shutting_down_too=elect is shutdown_election)
                batch.lead([replica for replica in partition.replicas if replica in online], partition)
        if not refused:
            return failed
        remaining = list(refused)
    log.error("cannot elect leaders of %s: their states could not be written %d times", remaining[:20], ATTEMPTS)
    return failed + remaining


def _unclean_topics(
    context: ControllerContext, partitions: Iterable[Partition], elect: Elect, unclean: UncleanElections | None
) -> Steps[Collection[str]]:
    """The topics among those with a partition without an eligible leader that allow unclean elections."""
    if unclean is None:
        return ()
    names = {
        partition.topic.name
        for partition in partitions
        if partition.state is not None and elect(context, partition, partition.state, False) is None
    }
    return (yield from unclean.allowed(names)) if names else ()


# -- states in the store ----------------------------------------------------------------------------------------------


class StateEncoder:
    """Encodes partition states; equal states, which are most of thousands, are encoded once."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, ...], bytes] = {}

    def __call__(self, state: PartitionState) -> bytes:
        key = (*state[:3], *state.in_sync_replicas, state.leader_recovery_state)
        data = self._known.get(key)
        if data is None:
            data = self._known[key] = znodes.encode_state(state)
        return data


def write_states(
    context: ControllerContext, changes: Sequence[tuple[Partition, PartitionState]]
) -> Steps[Collection[Partition]]:
    """Replace the states of partitions, each at its partition epoch, then in the context.

    Returns the partitions whose state another program had changed, or whose change the store refused: their states are read
    again, and not replaced.
    """
    if not changes:
        return ()
    encoded = StateEncoder()
    results = yield Write(
        [
            (Set(znodes.state_path(partition.topic.name, partition.index), encoded(state), partition.partition_epoch),)
            for partition, state in changes
        ]
    )
    refused = []
    for (partition, state), result in zip(changes, results, strict=True):
        if isinstance(result, Refused):
            log.warning("cannot change the state of partition %s: %s; reading it again", partition, result)
            refused.append(partition)
            continue
        (stat,) = result
        assert isinstance(stat, Stat)
        partition.state, partition.partition_epoch = state, stat.version
    if refused:
        yield from read_states(refused)
    return frozenset(refused)


def read_states(partitions: Sequence[Partition]) -> Steps[list[int]]:
    """Read the states of partitions from the store into the context.

    Returns for each the number of the transaction that wrote it, 0 if there is none.
    """
    nodes = yield Read([znodes.state_path(partition.topic.name, partition.index) for partition in partitions])
    decoded: dict[bytes, PartitionState] = {}  # most of thousands of states are equal
    modified = []
    for partition, node in zip(partitions, nodes, strict=True):
        modified.append(0 if node is None else node[1].modified)
        if node is None:
            partition.state, partition.partition_epoch = None, 0
            continue
        data, stat = node
        state = decoded.get(data)
        if state is None:
            try:
                state = decoded[data] = znodes.decode_state(partition.topic.name, partition.index, data)
            except znodes.CorruptNode as error:
                log.error("partition %s has no leader until its node is correct: %s", partition, error)
                partition.state, partition.partition_epoch = None, stat.version
                continue
        partition.state, partition.partition_epoch = state, stat.version
    return modified


def begin_epochs(context: ControllerContext, partitions: Sequence[Partition]) -> Steps[list[Partition]]:
    """Begin a new leader epoch with the same leader and in-sync replicas. Returns the partitions that have it."""
    remaining = [partition for partition in partitions if partition.state is not None]
    begun: list[Partition] = []
    for _ in range(ATTEMPTS):
        changes = [
            (partition, partition.state._replace(controller_epoch=context.epoch, leader_epoch=partition.state.leader_epoch + 1))
            for partition in remaining
            if partition.state is not None
        ]  # fmt: skip
        refused = yield from write_states(context, changes)
        begun += [partition for partition, _ in changes if partition not in refused]
        if not refused:
            break
        remaining = list(refused)
    return begun


def initial_status(context: ControllerContext, partition: Partition) -> PartitionStatus:
    """The state of a partition when a controller begins: New without a state node, else by its leader."""
    if partition.state is None:
        return NEW
    return ONLINE if context.is_online(partition, partition.state.leader) else OFFLINE


def to_elect(context: ControllerContext) -> list[Partition]:
    """The partitions that wait for a leader: New or Offline, and not queued for deletion."""
    return [
        partition
        for partition in context.partitions()
        if partition.status in (NEW, OFFLINE) and not context.is_deleting(partition)
    ]
