"""The outcomes of requests that create or delete topics, for the embedded controller and that of a cluster. Pure."""

import uuid
from collections import Counter
from collections.abc import Callable, Container, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from odradek.controller.assignment import Broker
from odradek.controller.image import ClusterImage, Topic
from odradek.controller.topics import NewPartitions, NewTopic, Plan, Refusal
from odradek.protocol.errors import ErrorCode

Request = TypeVar("Request", NewTopic, NewPartitions)


@dataclass
class Outcome:
    """The result of one request: ``code`` NONE and the topic after the change (or validation), or an error and its message."""

    name: str
    code: ErrorCode
    message: str | None = None
    topic: Topic | None = None
    topic_id: uuid.UUID | None = None


OutcomesInSteps = Generator[Any, None, list[Outcome]]
"""The steps of a change, see `odradek.stepwise`."""
Charge = Callable[[int], None]
"""Called with the number of partitions that are created or deleted, before that is done. Raises Refusal if the client's quota
is exceeded."""


def free_of_charge(_: int) -> None:
    """A `Charge` of a client without a quota."""


class KnownTopic(Protocol):
    """A topic, as a controller keeps it in memory."""

    @property
    def name(self) -> str: ...

    @property
    def topic_id(self) -> uuid.UUID | None: ...


class KnownTopics(Protocol):
    """The topics that a controller keeps in memory, by name and by id; ``deleting``: the names of those to delete."""

    @property
    def topics(self) -> Mapping[str, KnownTopic]: ...

    @property
    def by_id(self) -> Mapping[uuid.UUID, KnownTopic]: ...

    @property
    def deleting(self) -> Container[str]: ...


def plan_deletions(
    requests: Sequence[str | uuid.UUID],
    known: KnownTopics,
    enabled: bool,
    partitions: Callable[[str], int],
    charge: Charge,
    under_way: Container[str] = (),
) -> tuple[list[Outcome], list[Outcome]]:
    """Decide which topics may be deleted, and charge these deletions.

    :param requests: names or ids. :param enabled: whether topics may be deleted at all.
    :param partitions: the number of partitions of a topic. :param under_way: the names of topics that another change creates
        or extends.

    Returns the outcome of each request, in order, with an empty name for an unknown id; and those of them that are not refused.
    """
    outcomes = [named(_deletion(request, known, enabled, under_way), request) for request in requests]
    counts = Counter(outcome.name for outcome in outcomes)
    for outcome in outcomes:
        if outcome.name and counts[outcome.name] > 1:
            outcome.code = ErrorCode.INVALID_REQUEST
            outcome.message = f"The request contains the topic '{outcome.name}' more than once."
        if outcome.code == ErrorCode.NONE:
            try:
                charge(partitions(outcome.name))
            except Refusal as refusal:
                outcome.code, outcome.message = refusal.code, refusal.message
    return outcomes, [outcome for outcome in outcomes if outcome.code == ErrorCode.NONE]


def _deletion(request: str | uuid.UUID, known: KnownTopics, enabled: bool, under_way: Container[str]) -> Outcome:
    if isinstance(request, str):
        topic, unknown = known.topics.get(request), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    else:
        topic, unknown = known.by_id.get(request), ErrorCode.UNKNOWN_TOPIC_ID
    name = request if isinstance(request, str) else "" if topic is None else topic.name
    if name in under_way:
        return Outcome(name, ErrorCode.REQUEST_TIMED_OUT, busy(name))
    if topic is None or topic.name in known.deleting:
        return Outcome("", unknown, f"The topic '{request}' does not exist.")
    if not enabled:
        code, message = ErrorCode.TOPIC_DELETION_DISABLED, "delete.topic.enable is false on this broker."
        return Outcome(topic.name, code, message, None, topic.topic_id)
    return Outcome(topic.name, ErrorCode.NONE, None, None, topic.topic_id)


def named(outcome: Outcome, request: str | uuid.UUID) -> Outcome:
    """Set the name or the id in the outcome as in the request."""
    if isinstance(request, str):
        outcome.name = request
    else:
        outcome.topic_id = request
    return outcome


def busy(name: str) -> str:
    """The message of a request for a topic that another change is creating or extending."""
    return f"Topic '{name}' is being created or gets partitions now; repeat the request when that has finished."


def plan_each(
    requests: Sequence[Request],
    make_plan: Callable[[Request, ClusterImage, list[Broker]], Plan],
    image: ClusterImage,
    brokers: list[Broker],
    charge: Charge = free_of_charge,
) -> tuple[list[Plan], dict[str, Outcome]]:
    """Plan requests one after the other, so that each plan knows the topics of those before it.

    :param make_plan: returns the plan of a request; if it raises Refusal, that is the outcome.
    :param image: receives the planned topics. :param brokers: the live ones. :param charge: called for each plan.

    Returns the plans of the requests that are not refused, and the outcome of each request by the name of its topic.
    """
    plans: list[Plan] = []
    outcomes: dict[str, Outcome] = {}
    counts = Counter(request.name for request in requests)
    for request in requests:
        try:
            if counts[request.name] > 1:
                raise Refusal(
                    ErrorCode.INVALID_REQUEST,
                    f"The request contains the topic '{request.name}' {counts[request.name]} times.",
                )
            plan = make_plan(request, image, brokers)
            charge(len(plan.added))
        except Refusal as refusal:
            outcomes[request.name] = Outcome(request.name, refusal.code, refusal.message)
            continue
        image.put(plan.topic)
        plans.append(plan)
        outcomes[request.name] = Outcome(request.name, ErrorCode.NONE, None, plan.topic, plan.topic.topic_id)
    return plans, outcomes
