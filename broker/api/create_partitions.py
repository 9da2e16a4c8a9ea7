"""CreatePartitions (37). Executed by the coordinator, in its controller thread. `count` is the number in all."""

from typing import Any

from broker.api.coordinator_call import CoordinatorCall
from broker.controller.topics import NewPartitions
from broker.protocol import create_partitions


def handle(request: Any, call: CoordinatorCall) -> Any:
    """Add, or only check, partitions; each topic of the request succeeds or fails for itself."""
    wishes = [
        NewPartitions(
            topic.name,
            topic.count,
            None if topic.assignments is None else [one.broker_ids for one in topic.assignments],
        )
        for topic in request.topics
    ]
    outcomes = call.view.controller.create_partitions(wishes, bool(request.validate_only))
    return create_partitions.Response(
        results=[
            create_partitions.Response.CreatePartitionsTopicResult(
                name=outcome.name, error_code=outcome.code, error_message=outcome.message
            )
            for outcome in outcomes
        ]
    )
