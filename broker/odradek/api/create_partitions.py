"""CreatePartitions (37). Executed by the coordinator, in its controller thread. `count` is the number in all."""

from typing import Any

from odradek.api.coordinator_call import CoordinatorCall
from odradek.api.stepwise import Steps
from odradek.api.topic_steps import in_steps
from odradek.controller.topics import NewPartitions
from odradek.protocol.schemas import create_partitions


def handle(request: Any, call: CoordinatorCall) -> Steps:
    """Add, or only check, partitions, of a few topics at a step; each topic of the request succeeds or fails for itself."""
    wishes = [
        NewPartitions(
            topic.name,
            topic.count,
            None if topic.assignments is None else [one.broker_ids for one in topic.assignments],
        )
        for topic in request.topics
    ]
    results: list[Any] = []
    for some in in_steps(wishes, cost=lambda wish: max(wish.count, 1)):
        if results:
            yield
        results += [
            create_partitions.Response.CreatePartitionsTopicResult(
                name=outcome.name, error_code=outcome.code, error_message=outcome.message
            )
            for outcome in call.view.controller.create_partitions(some, bool(request.validate_only))
        ]
    return create_partitions.Response(results=results)
