"""CreatePartitions (37): adds partitions to topics. Executed by the coordinator, in its store thread.

A topic's `count` in the request is its total number of partitions afterwards.
"""

from typing import Any

from odradek.api.coordinator_call import CoordinatorCall
from odradek.api.topic_steps import parts_of
from odradek.controller.topics import NewPartitions
from odradek.protocol.schemas import create_partitions
from odradek.stepwise import Steps


def handle(request: Any, call: CoordinatorCall) -> Steps:
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
