"""OffsetDelete (47): a group's committed offsets are forgotten. Executed by the coordinator, in its loop."""

from typing import Any

from odradek.api.group_call import GroupCall, Pause, answered
from odradek.groups.offsets import Place
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import offset_delete

Response = offset_delete.Response
AT_ONCE = 1000
Outcome = tuple[ErrorCode, dict[Place, ErrorCode]]


async def _delete(group_id: str, places: list[Place], call: GroupCall) -> Outcome:
    def verb(then: Any) -> None:
        call.view.groups.delete_offsets(group_id, places, lambda *outcome: then(outcome))

    outcome: Outcome = await answered(verb)
    return outcome


async def handle(request: Any, call: GroupCall) -> Any:
    """Offsets of topics that a member subscribes to stay. A part of a large request is forgotten at a time."""
    places: list[Place] = []
    pause = Pause()
    for topic in request.topics:
        known = call.topic(topic.name)
        count = known.count if known is not None else 0
        places += [(topic.name, p.partition_index) for p in topic.partitions if 0 <= p.partition_index < count]
        await pause.after(1 + len(topic.partitions))
    results: dict[Place, ErrorCode] = {}
    for first in range(0, len(places), AT_ONCE) or (0,):
        error, of_some = await _delete(request.group_id, places[first : first + AT_ONCE], call)
        if error is not ErrorCode.NONE:
            return Response(error_code=error)
        results |= of_some
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    answer = Response()
    for topic in request.topics:
        told = [
            Response.OffsetDeleteResponsePartition(
                partition_index=one.partition_index,
                error_code=results.get((topic.name, one.partition_index), unknown),
            )
            for one in topic.partitions
        ]
        answer.topics.append(Response.OffsetDeleteResponseTopic(name=topic.name, partitions=told))
        await pause.after(1 + len(told))
    return answer
