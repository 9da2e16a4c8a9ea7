"""The outcomes of requests that create topics or partitions, for the embedded controller and that of a cluster. Pure."""

import uuid
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

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


def charge_deletions(outcomes: Iterable[Outcome], partitions: Callable[[str], int], charge: Charge) -> None:
    """Charge the deletions that are not refused. :param partitions: the number of partitions of a topic."""
    for outcome in outcomes:
        if outcome.code == ErrorCode.NONE:
            try:
                charge(partitions(outcome.name))
            except Refusal as refusal:
                outcome.code, outcome.message = refusal.code, refusal.message


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
