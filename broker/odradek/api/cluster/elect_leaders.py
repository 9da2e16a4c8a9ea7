"""ElectLeaders (43): elects the preferred replica, or any living replica, as the leader. Executed in the store thread.

On a single broker, every partition that can have a leader is led by its only replica, so an election changes nothing. In a
cluster, the controller elects.
"""

from collections.abc import Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import odradek._ext.partition.slot_facts as slot_facts
from odradek._ext.protocol.arrays import new_array
from odradek.api.api import Api, Place
from odradek.api.coordinator_call import CoordinatorCall
from odradek.api.elements import Elements
from odradek.api.guarding import (
    of_whole,
)
from odradek.controller.store_errors import NotController, code_of
from odradek.metadata.store import StoreError
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import elect_leaders
from odradek.security.needs import (
    ALTERS,
)
from odradek.stepwise import Pace, Steps
from odradek.topic_partition import TopicPartition

if TYPE_CHECKING:
    from odradek.controller.cluster.admin import ClusterAdmin

NO_LEADER = -1
PREFERRED, UNCLEAN = 0, 1
FIRST_WITH_TYPE = 1
STEP = 200
Response = elect_leaders.Response
NOT_REPORTED = frozenset({ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
"""The results that the response to a request for all partitions does not contain; a partition may have been deleted since the
request began."""
REFUSED = Elements(elect_leaders.SCHEMA, "topic_partitions.partitions", "replica_election_results.partition_result")
API = Api(
    elect_leaders.SCHEMA,
    versions=(0, 2),
    place=Place.CONTROLLER,
    rights=ALTERS,
    per_partition=2,
    refused=REFUSED,
)
guard = of_whole(API)


def handle(request: elect_leaders.Request, call: CoordinatorCall) -> Steps:
    """Handle each named partition, a few topics per step. If none are named, the response contains the partitions that an
    election would change: none."""
    if call.version >= FIRST_WITH_TYPE and request.election_type not in (PREFERRED, UNCLEAN):
        unknown = f"Unknown election type {request.election_type}: use 0 (preferred) or 1 (unclean)."
        return (yield from REFUSED.refusal(request, call.version, ErrorCode.INVALID_REQUEST, unknown))
    if request.topic_partitions is None and call.view.cluster is None:
        return Response()
    unclean = call.version >= FIRST_WITH_TYPE and request.election_type == UNCLEAN
    if call.view.cluster is not None:
        return (yield from _in_cluster(request, UNCLEAN if unclean else PREFERRED, call.view.cluster))
    response = Response()
    pace = Pace(STEP)
    for topic in request.topic_partitions or ():
        results = new_array()
        for partition in topic.partitions:
            results.append(_result(topic.topic, partition, unclean, call))
            if pace.over():
                yield
        response.replica_election_results.append(
            Response.ReplicaElectionResult(topic=topic.topic, partition_result=results)
        )
        if pace.over():
            yield
    return response


def _in_cluster(request: elect_leaders.Request, election_type: int, cluster: "ClusterAdmin") -> Steps:
    """If a part fails that is not the first one, its error is that of its partitions: the leaders of others are elected."""
    from odradek.controller.cluster.admin import ElectionResult  # here: a single broker does without it

    topics: dict[str, Any] = {}
    try:
        parts = _parts(request, cluster)
    except NotController:
        return Response(error_code=ErrorCode.NOT_CONTROLLER)
    for number, partitions in enumerate(parts):
        if number:
            yield
        try:
            results = cluster.elect_leaders(partitions, election_type)
        except (NotController, StoreError) as error:
            if not number and isinstance(error, StoreError):
                raise
            if not number:
                return Response(error_code=ErrorCode.NOT_CONTROLLER)
            results = [ElectionResult(*place, code_of(error), str(error)) for place in partitions]
        for result in results:
            if request.topic_partitions is None and result.code in NOT_REPORTED:
                continue
            topic = topics.get(result.topic)
            if topic is None:
                topic = topics[result.topic] = Response.ReplicaElectionResult(topic=result.topic)
            topic.partition_result.append(
                Response.PartitionResult(
                    partition_id=result.partition, error_code=result.code, error_message=result.message
                )
            )
    return Response(replica_election_results=list(topics.values()))


def _parts(request: elect_leaders.Request, cluster: "ClusterAdmin") -> Iterator[list[TopicPartition]]:
    """The partitions of a request, some at a time. Raises NotController."""
    places = (
        iter(cluster.partitions())
        if request.topic_partitions is None
        else ((topic.topic, partition) for topic in request.topic_partitions for partition in topic.partitions)
    )
    first = list(islice(places, STEP))  # the first part may be empty
    return chain([first], iter(lambda: list(islice(places, STEP)), []))


def _result(topic: str, partition: int, unclean: bool, call: CoordinatorCall) -> Any:
    slot = call.view.table.find(topic, partition)
    if slot < 0:
        code, message = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist."
    elif slot_facts.describe(slot).leader_id == NO_LEADER:
        which = "PREFERRED_LEADER_NOT_AVAILABLE" if not unclean else "ELIGIBLE_LEADERS_NOT_AVAILABLE"
        code, message = ErrorCode[which], "No replica of the partition is alive."
    else:
        code, message = (
            ErrorCode.ELECTION_NOT_NEEDED,
            "The partition already has the leader that the election would choose.",
        )
    return Response.PartitionResult(partition_id=partition, error_code=code, error_message=message)
