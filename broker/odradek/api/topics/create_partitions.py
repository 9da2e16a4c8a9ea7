"""CreatePartitions (37): adds partitions to topics. Executed by the coordinator, in its store thread.

A topic's `count` in the request is its total number of partitions afterwards.
"""

from typing import Any

from odradek.api.api import Api, Place
from odradek.api.coordinator_call import CoordinatorCall
from odradek.api.elements import Elements
from odradek.api.guarding import (
    Asked,
    Merged,
    VerdictInSteps,
    appended,
    repeated_in,
)
from odradek.api.topics.topic_changes import AwaitedTopic
from odradek.api.topics.topic_steps import parts_of
from odradek.controller.topics import NewPartitions
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import create_partitions
from odradek.security.acl import Operation, ResourceType
from odradek.security.needs import (
    TOPIC,
    TOPIC_DENIED,
    need,
)
from odradek.stepwise import Steps

API = Api(
    create_partitions.SCHEMA,
    versions=(0, 3),
    place=Place.CONTROLLER,
    rights=need(Operation.ALTER, TOPIC, f"{TOPIC_DENIED} for the topic"),
    elements=30_000,
    charged_from=3,
    refused=Elements(create_partitions.SCHEMA, "topics", "results"),
)


def guard(asked: Asked) -> VerdictInSteps:
    """ALTER on the topics."""
    request = asked.request
    repeated = repeated_in([topic.name for topic in request.topics])
    names = (topic.name for topic in request.topics if topic.name not in repeated)
    denied = yield from asked.permits.denied_in_steps(Operation.ALTER, ResourceType.TOPIC, names)
    if not denied:
        return None
    request.topics = [topic for topic in request.topics if topic.name not in denied]
    make = create_partitions.Response.CreatePartitionsTopicResult
    return Merged(
        appended(
            "results", [make(name=name, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED) for name in sorted(denied)]
        )
    )


def handle(request: create_partitions.Request, call: CoordinatorCall) -> Steps:
    """Add partitions, or only validate the request, in steps; each topic succeeds or fails independently."""
    results: list[Any] = []
    parts = yield from parts_of(request.topics, _addition, lambda addition: max(addition.count, 1))
    for number, part in enumerate(parts):
        if number:
            yield
        outcomes = yield from call.view.controller.create_partitions_in_steps(
            part, bool(request.validate_only), call.charge
        )
        results += [
            create_partitions.Response.CreatePartitionsTopicResult(
                name=outcome.name, error_code=outcome.code, error_message=outcome.message
            )
            for outcome in outcomes
        ]
    return create_partitions.Response(results=results)


def _addition(topic: Any) -> NewPartitions:
    return NewPartitions(
        topic.name,
        topic.count,
        None if topic.assignments is None else [assignment.broker_ids for assignment in topic.assignments],
    )


def awaited(request: create_partitions.Request, response: create_partitions.Response) -> list[AwaitedTopic]:
    """See `odradek.api.api`."""
    if request.validate_only:
        return []
    counts = {topic.name: topic.count for topic in request.topics}
    return [
        AwaitedTopic(row.name, None, counts[row.name], row)
        for row in response.results
        if row.error_code == ErrorCode.NONE
    ]
