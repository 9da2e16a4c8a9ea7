"""ListPartitionReassignments (46): lists reassignments under way.

The controller executes it, because only the controller knows which replicas a reassignment adds and removes.
"""

from typing import Any

from odradek.api.api import Api, Place
from odradek.api.coordinator_call import CoordinatorCall
from odradek.api.elements import Elements
from odradek.api.guarding import (
    of_whole,
)
from odradek.protocol.schemas import list_partition_reassignments
from odradek.security.needs import (
    DESCRIBES,
)

Response = list_partition_reassignments.Response
API = Api(
    list_partition_reassignments.SCHEMA,
    versions=(0, 0),
    place=Place.CONTROLLER,
    rights=DESCRIBES,
    per_partition=2,
    refused=Elements(list_partition_reassignments.SCHEMA, "topics.partition_indexes", "topics.partitions"),
)
guard = of_whole(API)


def handle(request: list_partition_reassignments.Request, call: CoordinatorCall) -> Any:
    """Return the requested reassignments, or all of them."""
    ongoing = call.view.reassignments()
    wanted = None
    if request.topics is not None and ongoing:
        wanted = {topic.name: set(topic.partition_indexes) for topic in request.topics}
    topics: dict[str, Any] = {}
    for reassignment in ongoing:
        if wanted is not None and reassignment.partition not in wanted.get(reassignment.topic, ()):
            continue
        topic = topics.setdefault(
            reassignment.topic, Response.OngoingTopicReassignment(name=reassignment.topic, partitions=[])
        )
        topic.partitions.append(
            Response.OngoingPartitionReassignment(
                partition_index=reassignment.partition,
                replicas=list(reassignment.replicas),
                adding_replicas=list(reassignment.adding),
                removing_replicas=list(reassignment.removing),
            )
        )
    return Response(error_message=None, topics=list(topics.values()))
