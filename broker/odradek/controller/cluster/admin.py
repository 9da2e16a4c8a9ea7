"""Requests that only the controller of a cluster serves: topics, reassignments, elections, and the requests of brokers.

Runs in the coordinator's store thread. Every method reports NOT_CONTROLLER if this broker is not the controller or loses the
role meanwhile.
"""

import random
import uuid
from collections.abc import Callable, Generator, Sequence
from typing import NamedTuple, TypeVar

from odradek.config.broker_config import BrokerConfig
from odradek.controller import topics as plans
from odradek.controller.assignment import Broker
from odradek.controller.cluster import (
    deletion,
    in_sync,
    leadership,
    producer_id_blocks,
    reassignment,
    shutdown,
    topic_events,
)
from odradek.controller.cluster.cluster_controller import ClusterController
from odradek.controller.cluster.context import ControllerContext, Partition
from odradek.controller.cluster.effects import Create, Group, Read, Set, Steps, Write
from odradek.controller.image import ClusterImage, Topic
from odradek.controller.outcomes import Charge, Outcome, Request, free_of_charge, named, plan_deletions, plan_each
from odradek.controller.policies import Policies
from odradek.controller.store_errors import NotController, code_of_topic
from odradek.controller.topic_names import folded
from odradek.controller.topics import NewPartitions, NewTopic, Plan, Refusal
from odradek.metadata import znodes
from odradek.metadata.store import Refused, StoreError
from odradek.metadata.znodes import ProducerIdBlock
from odradek.protocol.errors import ErrorCode
from odradek.topic_partition import TopicPartition

Result = TypeVar("Result")

NOT_CONTROLLER = "This broker is not the controller."
REASSIGNED_A_STEP = 1_000
"""The number of reassignments that one step plans; each step writes the nodes of its topics as a whole."""


class Reassignment(NamedTuple):
    """A request to reassign a partition. ``replicas``: None to cancel the reassignment in progress."""

    topic: str
    partition: int
    replicas: Sequence[int] | None


class OngoingReassignment(NamedTuple):
    """A reassignment in progress; ``replicas``: all replicas, with those that it adds and removes."""

    topic: str
    partition: int
    replicas: Sequence[int]
    adding: Sequence[int]
    removing: Sequence[int]


class ElectionResult(NamedTuple):
    """The result of a requested election."""

    topic: str
    partition: int
    code: ErrorCode
    message: str | None


class ClusterAdmin:
    """See the module. :param rng: chooses the brokers of the first replicas of topics."""

    def __init__(self, controller: ClusterController, config: BrokerConfig, rng: random.Random | None = None) -> None:
        self.policies = Policies(config)
        self._controller = controller
        self._config = config
        self._rng = rng or random.Random()

    def _context(self) -> ControllerContext:
        if self._controller.context is None:
            raise NotController(NOT_CONTROLLER)
        return self._controller.context

    @property
    def active(self) -> bool:
        """Whether this broker is the controller, as far as it knows."""
        return self._controller.active

    @property
    def deleted(self) -> int:
        """The number of topics that were deleted while this broker was the controller."""
        return self._controller.deleted

    # -- topics ---------------------------------------------------------------------------------------------------

    def create_topics(
        self, requests: Sequence[NewTopic], validate_only: bool = False, charge: Charge = free_of_charge
    ) -> list[Outcome]:
        """Create topics independently of each other; one outcome for each distinct name, in the order of the requests.

        The topics exist when this returns. Later steps of the controller, or a successor, create their partitions, see
        `topic_events.begin_partitions`.
        """

        def make_plan(request: NewTopic, image: ClusterImage, brokers: list[Broker]) -> Plan:
            plan = plans.plan_topic(request, image, self._config, brokers, self._rng, any_broker=True)
            plans.refuse_too_large(plan)
            self.policies.check_topic(request, plan)
            return plan

        return self._change(requests, make_plan, validate_only, charge)

    def create_partitions(
        self, requests: Sequence[NewPartitions], validate_only: bool = False, charge: Charge = free_of_charge
    ) -> list[Outcome]:
        """Add partitions to topics, independently of each other; one outcome for each distinct name."""

        def make_plan(request: NewPartitions, image: ClusterImage, brokers: list[Broker]) -> Plan:
            topic = self._context().topics.get(request.name)
            if topic is not None and any(partition.reassigning for partition in topic.partitions.values()):
                raise Refusal(
                    ErrorCode.REASSIGNMENT_IN_PROGRESS,
                    f"Topic '{request.name}' has a reassignment in progress; add partitions when it has finished.",
                )
            plan = plans.plan_partitions(request, image, self._config, brokers, self._rng)
            plans.refuse_too_large(plan)
            return plan

        return self._change(requests, make_plan, validate_only, charge)

    def _change(
        self,
        requests: Sequence[Request],
        make_plan: Callable[[Request, ClusterImage, list[Broker]], Plan],
        validate_only: bool,
        charge: Charge,
    ) -> list[Outcome]:
        """Plan all requests, then carry out those that are not refused."""
        try:
            context = self._context()
            image = image_of(context, [request.name for request in requests])
            accepted, outcomes = plan_each(requests, make_plan, image, live_brokers(context), charge)
            if accepted and not validate_only:
                refused = self._controller.run(carry_out(context, accepted))
                for name, error in refused.items():
                    outcomes[name] = Outcome(name, *code_of_topic(error))
        except (NotController, StoreError) as error:
            return [
                Outcome(name, *code_of_topic(error)) for name in dict.fromkeys(request.name for request in requests)
            ]
        return list(outcomes.values())

    def delete_topics(self, requests: Sequence[str | uuid.UUID], charge: Charge = free_of_charge) -> list[Outcome]:
        """Begin to delete topics by name or id; one outcome for each request, in order; no name for an unknown id.

        The topics are invisible when this returns; their nodes go when all brokers have deleted their replicas.
        """
        try:
            context = self._context()
        except NotController as error:
            return [named(Outcome("", *code_of_topic(error)), request) for request in requests]
        enabled = bool(self._config["delete.topic.enable"])
        outcomes, deletable = plan_deletions(
            requests, context, enabled, lambda name: len(context.topics[name].partitions), charge
        )
        if deletable:
            try:
                self._controller.run(mark_and_delete(context, [outcome.name for outcome in deletable]))
            except (NotController, StoreError) as error:
                for outcome in deletable:
                    outcome.code, outcome.message = code_of_topic(error)
        return outcomes

    # -- leaders and replicas -------------------------------------------------------------------------------------

    def alter_reassignments_in_steps(
        self, requests: Sequence[Reassignment], factor_may_change: bool = True
    ) -> Generator[None, None, list[tuple[ErrorCode, str | None]]]:
        """`alter_reassignments` in steps. Raises NotController, StoreError only in the first one; an error of a later one is
        the answer to each of its requests."""
        answers: list[tuple[ErrorCode, str | None]] = []
        for first in range(0, len(requests), REASSIGNED_A_STEP):
            part = requests[first : first + REASSIGNED_A_STEP]
            if first:
                yield
            try:
                answers += self.alter_reassignments(part, factor_may_change)
            except (NotController, StoreError) as error:
                if not first:
                    raise
                answers += [code_of_topic(error)] * len(part)
        return answers

    def alter_reassignments(
        self, requests: Sequence[Reassignment], factor_may_change: bool = True
    ) -> list[tuple[ErrorCode, str | None]]:
        """Begin or cancel reassignments independently of each other; a code and a message for each request.

        Raises NotController, StoreError.
        """
        context = self._context()
        answers: list[tuple[ErrorCode, str | None]] = []
        changes: dict[Partition, reassignment.Assignment] = {}
        places: dict[Partition, int] = {}
        for place, request in enumerate(requests):
            partition = context.find(request.topic, request.partition)
            try:
                assignment = reassignment.planned(context, partition, request.replicas, factor_may_change)
            except Refusal as refusal:
                answers.append((refusal.code, refusal.message))
                continue
            assert partition is not None
            answers.append((ErrorCode.NONE, None))
            changes[partition], places[partition] = assignment, place
        if changes:
            for partition, error in self._controller.run(reassignment.begin(context, changes)).items():
                answers[places[partition]] = reassignment.refusal_of(error)
        return answers

    def reassignments(self) -> list["OngoingReassignment"]:
        """The reassignments in progress, by topic and partition. Raises NotController."""
        return [
            OngoingReassignment(
                partition.topic.name, partition.index, partition.replicas, partition.adding, partition.removing
            )
            for partition in reassignment.in_progress(self._context())
        ]

    def partitions(self) -> list[TopicPartition]:
        """The topic and the index of each partition. Raises NotController."""
        return [(partition.topic.name, partition.index) for partition in self._context().partitions()]

    def elect_leaders(self, partitions: Sequence[TopicPartition], election_type: int) -> list[ElectionResult]:
        """Elect leaders, see `leadership.elect`. Raises NotController, StoreError."""
        context = self._context()
        found = [context.find(*key) for key in partitions]
        codes = self._controller.run(leadership.elect(context, found, election_type))
        return [
            ElectionResult(*key, code, leadership.message_of(code)) for key, code in zip(partitions, codes, strict=True)
        ]

    # -- requests of brokers --------------------------------------------------------------------------------------

    def topic_name(self, topic_id: uuid.UUID) -> str | None:
        """The name of a topic; None if the id is unknown. Raises NotController."""
        topic = self._context().by_id.get(topic_id)
        return None if topic is None else topic.name

    def find(self, topic: str, partition: int) -> Partition | None:
        """A partition of the context. Raises NotController."""
        return self._context().find(topic, partition)

    def alter_partition(
        self, broker_id: int, broker_epoch: int, proposals: Sequence[in_sync.Proposal], version: int
    ) -> tuple[ErrorCode, list[in_sync.Verdict]]:
        """Judge proposals of in-sync replicas, see `in_sync.alter`; first a code for the request. Raises StoreError.

        `after_alter_partition` continues what waited for the change.
        """
        try:
            context = self._context()
            code = in_sync.check_sender(context, broker_id, broker_epoch)
            if code != ErrorCode.NONE:
                return code, []
            return code, self._controller.run(in_sync.alter(context, broker_id, proposals, version))
        except NotController:
            return ErrorCode.NOT_CONTROLLER, []

    def after_alter_partition(self, verdicts: Sequence[in_sync.Verdict]) -> None:
        """Continue the reassignments that waited for in-sync replicas. Raises StoreError."""
        changed = [
            verdict.partition
            for verdict in verdicts
            if verdict.code == ErrorCode.NONE and verdict.partition is not None and verdict.partition.reassigning
        ]
        if changed:
            try:
                self._controller.run(in_sync.after_change(self._context(), changed))
            except NotController:
                pass  # the successor resumes them

    def controlled_shutdown(self, broker_id: int, broker_epoch: int) -> tuple[ErrorCode, list[Partition]]:
        """See `shutdown.controlled_shutdown`. Raises StoreError."""
        try:
            return self._controller.run(shutdown.controlled_shutdown(self._context(), broker_id, broker_epoch))
        except NotController:
            return ErrorCode.NOT_CONTROLLER, []

    def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> tuple[ErrorCode, ProducerIdBlock | None]:
        """See `producer_id_blocks.allocate`. Raises StoreError."""
        try:
            return self._controller.run(producer_id_blocks.allocate(self._context(), broker_id, broker_epoch))
        except NotController:
            return ErrorCode.NOT_CONTROLLER, None


def live_brokers(context: ControllerContext) -> list[Broker]:
    """The brokers that can keep replicas, by id."""
    return [Broker(broker_id, context.brokers[broker_id].rack) for broker_id in sorted(context.live)]


def image_of(context: ControllerContext, names: Sequence[str]) -> ClusterImage:
    """What plans need to know: the state of the named topics, and the names of all others."""
    image = ClusterImage(deleting=set(context.deleting))
    image.by_folded_name = {folded(name): name for name in context.topics}
    for name in names:
        topic = context.topics.get(name)
        if topic is not None:
            image.topics[name] = Topic(name, topic.assignment(), {}, topic.version)
            if topic.topic_id is not None:
                image.by_id[topic.topic_id] = image.topics[name]
    return image


def carry_out(context: ControllerContext, accepted: Sequence[Plan]) -> Steps[dict[str, Refused]]:
    """Write planned topics and partitions and begin them; returns the errors of those that could not be written."""
    new = [plan.topic.name for plan in accepted if plan.replaces is None]
    configs = yield Read([znodes.topic_config_path(name) for name in new])
    with_config = {name for name, node in zip(new, configs, strict=True) if node is not None}
    results = yield Write([creation(plan, plan.topic.name in with_config) for plan in accepted])
    refused = {
        plan.topic.name: result
        for plan, result in zip(accepted, results, strict=True)
        if isinstance(result, Refused)
    }  # fmt: skip
    if new:
        yield from topic_events.topics_changed(context)
    for plan in accepted:
        if plan.replaces is not None and plan.topic.name not in refused:
            yield from topic_events.topic_changed(context, plan.topic.name)
    return refused


def creation(plan: Plan, has_config: bool) -> Group:
    """The operations that make a plan true. After them, the topic or its new partitions exist, whoever is the controller.

    :param has_config: whether the node of the topic's settings exists already.
    """
    name = plan.topic.name
    data = znodes.encode_topic(plan.topic.assignment)
    if plan.replaces is not None:
        return (Set(znodes.topic_path(name), data, plan.replaces),)
    settings = znodes.encode_config(plan.topic.config)
    path = znodes.topic_config_path(name)
    return (Set(path, settings) if has_config else Create(path, settings), Create(znodes.topic_path(name), data))


def mark_and_delete(context: ControllerContext, names: Sequence[str]) -> Steps[None]:
    """Write the marks of deletions, which makes them certain, and begin them."""
    yield Write([(Create(znodes.delete_topic_path(name)),) for name in names])
    yield from deletion.deletions_requested(context, enabled=True)
