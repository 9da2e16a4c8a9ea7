"""AlterPartition: leaders request changes of the in-sync replicas, and of the recovery state.

Pure, see `effects`. The state's leader epoch stays, so no LeaderAndIsr is sent: the leader learns the new partition epoch from
the response, the other brokers from UpdateMetadata.
"""

import json
import logging
from collections.abc import Sequence
from typing import NamedTuple

from odradek.controller.cluster import reassignment
from odradek.controller.cluster.context import ControllerContext, Partition
from odradek.controller.cluster.effects import Children, Delete, Read, Send, Steps, Write
from odradek.controller.cluster.partition_states import RECOVERING, read_states, write_states
from odradek.controller.cluster.requests import RequestBatch
from odradek.metadata.znodes import UNDECODABLE, PartitionState
from odradek.protocol.errors import ErrorCode

log = logging.getLogger("odradek.controller")

ISR_CHANGES = "/isr_change_notification"
UNKNOWN_EPOCH = -1
WITH_INELIGIBLE_REPLICA = 2
"""The first version whose senders know INELIGIBLE_REPLICA."""


class Proposal(NamedTuple):
    """What a leader proposes. ``in_sync``: (broker id, broker epoch) of each member; the epoch is -1 if it is not known."""

    partition: Partition | None
    leader_epoch: int
    partition_epoch: int
    in_sync: Sequence[tuple[int, int]]
    leader_recovery_state: int = 0

    @property
    def members(self) -> list[int]:
        """The broker ids."""
        return [broker_id for broker_id, _ in self.in_sync]


class Verdict(NamedTuple):
    """The answer to a proposal: an error, or NONE. The partition's state in the context answers it if the code is NONE."""

    code: ErrorCode
    partition: Partition | None


def check_sender(context: ControllerContext, broker_id: int, broker_epoch: int) -> ErrorCode:
    """Whether a request comes from the present incarnation of a registered broker: NONE or STALE_BROKER_EPOCH."""
    broker = context.brokers.get(broker_id)
    return ErrorCode.NONE if broker is not None and broker.epoch == broker_epoch else ErrorCode.STALE_BROKER_EPOCH


def judge(
    context: ControllerContext, leader_id: int, proposal: Proposal, version: int
) -> tuple[ErrorCode, PartitionState | None]:
    """Check a proposal, in Kafka's order. Returns an error; or NONE and the state to write, None if it is the present state.

    Only members that are new must be eligible: a leader that shuts down can hand over only to a follower that joins meanwhile.

    :param version: the version of the request.
    """
    partition = proposal.partition
    if partition is None or partition.state is None or partition.topic.deletion_started:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
    state = partition.state
    members = proposal.members
    if proposal.leader_epoch > state.leader_epoch or proposal.partition_epoch > partition.partition_epoch:
        return ErrorCode.NOT_CONTROLLER, None
    if proposal.leader_epoch < state.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH, None
    recovery = proposal.leader_recovery_state
    same = (leader_id, members, recovery) == (state.leader, state.in_sync_replicas, state.leader_recovery_state)
    if same:
        return ErrorCode.NONE, None
    if proposal.partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION, None
    invalid = (
        leader_id != state.leader
        or leader_id not in members
        or len(set(members)) != len(members)
        or not set(members) <= set(partition.replicas)
        or (recovery == RECOVERING and len(members) > 1)
        or (recovery == RECOVERING and state.leader_recovery_state != RECOVERING)
    )
    if invalid:
        return ErrorCode.INVALID_REQUEST, None
    new = [member for member in proposal.in_sync if member[0] not in state.in_sync_replicas]
    if not all(_eligible(context, partition, *member) for member in new):
        older = ErrorCode.OPERATION_NOT_ATTEMPTED
        return (ErrorCode.INELIGIBLE_REPLICA if version >= WITH_INELIGIBLE_REPLICA else older), None
    return ErrorCode.NONE, PartitionState(context.epoch, state.leader, state.leader_epoch, members, recovery)


def _eligible(context: ControllerContext, partition: Partition, broker_id: int, broker_epoch: int) -> bool:
    """Whether a broker may be in sync: live, not shutting down, its log directory works, and it is the known incarnation."""
    if not context.is_online(partition, broker_id):
        return False
    return broker_epoch in (UNKNOWN_EPOCH, context.brokers[broker_id].epoch)


def alter(
    context: ControllerContext, leader_id: int, proposals: Sequence[Proposal], version: int
) -> Steps[list[Verdict]]:
    """Judge the proposals of a leader and write those that are accepted; one verdict for each."""
    codes: list[ErrorCode] = []
    changes: list[tuple[Partition, PartitionState]] = []
    changing: set[Partition] = set()
    for proposal in proposals:
        code, state = judge(context, leader_id, proposal, version)
        if state is not None and proposal.partition in changing:
            code, state = ErrorCode.INVALID_REQUEST, None  # the request names the partition twice
        codes.append(code)
        if state is not None:
            assert proposal.partition is not None
            changing.add(proposal.partition)
            changes.append((proposal.partition, state))
    refused = yield from write_states(context, changes)
    verdicts = []
    for proposal, code in zip(proposals, codes, strict=True):
        if code == ErrorCode.NONE and proposal.partition in refused:
            code = ErrorCode.INVALID_UPDATE_VERSION
        verdicts.append(Verdict(code, proposal.partition))
    written = [partition for partition, _ in changes if partition not in refused]
    if written:
        batch = RequestBatch(context)
        batch.update_all(written)
        yield Send(batch.take())
    return verdicts


def after_change(context: ControllerContext, partitions: Sequence[Partition]) -> Steps[None]:
    """Continue the reassignments that wait for in-sync replicas, after the leader received its answer."""
    ready = [
        partition for partition in partitions if partition.reassigning and reassignment.is_complete(partition)
    ]  # fmt: skip
    if ready:
        yield from reassignment.resume(context, ready)


# -- brokers of inter-broker protocols below 2.7 ------------------------------------------------------------------------


def in_sync_changes_reported(context: ControllerContext) -> Steps[None]:
    """Brokers of old inter-broker protocols changed states themselves: read these states, and inform all brokers."""
    names = yield Children(ISR_CHANGES, watched=True)
    if not names:
        return
    paths = [f"{ISR_CHANGES}/{name}" for name in names]
    changed: dict[Partition, None] = {}
    for node in (yield Read(paths)):
        if node is not None:
            changed.update(dict.fromkeys(_named_partitions(context, node[0])))
    if changed:
        yield from _read_again(context, list(changed))
    yield Write([(Delete(path),) for path in paths])


def _named_partitions(context: ControllerContext, data: bytes) -> list[Partition]:
    try:
        entries = json.loads(data)["partitions"]
        found = [context.find(str(entry["topic"]), int(entry["partition"])) for entry in entries]
    except UNDECODABLE as error:
        log.error("cannot decode a notification of in-sync replicas (%s): %r; skipping it", error, data[:200])
        return []
    return [partition for partition in found if partition is not None]


def _read_again(context: ControllerContext, partitions: Sequence[Partition]) -> Steps[None]:
    yield from read_states(partitions)
    batch = RequestBatch(context)
    batch.update_all(partitions)
    yield Send(batch.take())
    yield from after_change(context, partitions)
