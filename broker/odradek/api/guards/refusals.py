"""The responses that refuse a request as a whole, as those of Kafka's `getErrorResponse`. Pure functions; those whose response
has as many parts as the request work in steps."""

from collections.abc import Callable, Generator, Iterable
from typing import Any

from odradek.api.guards.guarded import Asked, Refused, VerdictInSteps, each_in_steps, made_in_steps
from odradek.api.permits import MESSAGES, NAMES_A_STEP
from odradek.protocol.errors import ErrorCode
from odradek.protocol.registry import by_key
from odradek.protocol.schemas import (
    add_partitions_to_txn,
    alter_client_quotas,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    create_acls,
    delete_acls,
    describe_client_quotas,
    elect_leaders,
    init_producer_id,
    join_group,
    list_partition_reassignments,
    offset_commit,
    offset_fetch,
    txn_offset_commit,
    write_txn_markers,
)
from odradek.stepwise import Pace, Steps


def refused_whole(api_key: int, asked: Asked, code: ErrorCode) -> VerdictInSteps:
    """The verdict with this error for the whole request."""
    return Refused((yield from refusal(api_key, asked.request, asked.version, code)))


def refusal(api_key: int, request: Any, version: int, code: ErrorCode) -> Steps:
    """The response with this error for the whole request."""
    of_api = _OF_API.get(api_key)
    if of_api is not None:
        response = of_api(request, version, code)
        return (yield from response) if isinstance(response, Generator) else response
    response = by_key(api_key).response(error_code=code)
    if hasattr(response, "error_message"):
        response.error_message = MESSAGES[code]
    return response


def _of_parts(
    elements: Iterable[Any],
    parts: str,
    of_part: Callable[[Any], Any],
    of_element: Callable[[Any, list[Any]], Any],
) -> Steps:
    """`of_element(element, [of_part(part), ...])` of each element. :param parts: the element's attribute with its parts."""

    def steps_of(element: Any) -> Steps:
        return of_element(element, (yield from made_in_steps(getattr(element, parts), of_part)))

    return each_in_steps(elements, steps_of)


def _alter_partition_reassignments(request: Any, version: int, code: ErrorCode) -> Steps:
    make = alter_partition_reassignments.Response
    topics = yield from _of_parts(
        request.topics,
        "partitions",
        lambda partition: make.ReassignablePartitionResponse(
            partition_index=partition.partition_index, error_code=code, error_message=MESSAGES[code]
        ),
        lambda topic, partitions: make.ReassignableTopicResponse(name=topic.name, partitions=partitions),
    )
    return make(error_code=code, error_message=MESSAGES[code], responses=topics)


def _list_partition_reassignments(request: Any, version: int, code: ErrorCode) -> Steps:
    make = list_partition_reassignments.Response
    topics = yield from _of_parts(
        request.topics or (),
        "partition_indexes",
        lambda partition: make.OngoingPartitionReassignment(partition_index=partition),
        lambda topic, partitions: make.OngoingTopicReassignment(name=topic.name, partitions=partitions),
    )
    return make(error_code=code, error_message=MESSAGES[code], topics=topics)


def _alter_client_quotas(request: Any, version: int, code: ErrorCode) -> Steps:
    make = alter_client_quotas.Response
    entries = yield from _of_parts(
        request.entries,
        "entity",
        lambda part: make.EntityData(entity_type=part.entity_type, entity_name=part.entity_name),
        lambda entry, entity: make.EntryData(error_code=code, error_message=MESSAGES[code], entity=entity),
    )
    return make(entries=entries)


def _alter_replica_log_dirs(request: Any, version: int, code: ErrorCode) -> Steps:
    make = alter_replica_log_dirs.Response
    named: list[Any] = []
    pace = Pace(NAMES_A_STEP)
    for directory in request.dirs:
        named += directory.topics
        if pace.over():
            yield
    topics = yield from _of_parts(
        named,
        "partitions",
        lambda partition: make.AlterReplicaLogDirPartitionResult(partition_index=partition, error_code=code),
        lambda topic, partitions: make.AlterReplicaLogDirTopicResult(topic_name=topic.name, partitions=partitions),
    )
    return make(results=topics)


def _elect_leaders(request: Any, version: int, code: ErrorCode) -> Steps:
    make = elect_leaders.Response
    topics = yield from _of_parts(
        request.topic_partitions or (),
        "partitions",
        lambda partition: make.PartitionResult(partition_id=partition, error_code=code, error_message=MESSAGES[code]),
        lambda topic, partitions: make.ReplicaElectionResult(topic=topic.topic, partition_result=partitions),
    )
    response = make(replica_election_results=topics)
    if version >= 1:
        response.error_code = code
    return response


def _write_txn_markers(request: Any, version: int, code: ErrorCode) -> Steps:
    make = write_txn_markers.Response

    def of_marker(marker: Any) -> Steps:
        topics = yield from _of_parts(
            marker.topics,
            "partition_indexes",
            lambda partition: make.WritableTxnMarkerPartitionResult(partition_index=partition, error_code=code),
            lambda topic, partitions: make.WritableTxnMarkerTopicResult(name=topic.name, partitions=partitions),
        )
        return make.WritableTxnMarkerResult(producer_id=marker.producer_id, topics=topics)

    return make(markers=(yield from each_in_steps(request.markers, of_marker)))


def _create_acls(request: Any, version: int, code: ErrorCode) -> Any:
    make = create_acls.Response
    result = make.AclCreationResult(error_code=code, error_message=MESSAGES[code])
    return make(results=[result] * len(request.creations))


def _delete_acls(request: Any, version: int, code: ErrorCode) -> Any:
    make = delete_acls.Response
    result = make.DeleteAclsFilterResult(error_code=code, error_message=MESSAGES[code])
    return make(filter_results=[result] * len(request.filters))


def _alter_user_scram_credentials(request: Any, version: int, code: ErrorCode) -> Any:
    make = alter_user_scram_credentials.Response
    users = dict.fromkeys(entry.name for entry in (*request.deletions, *request.upsertions))
    return make(
        results=[
            make.AlterUserScramCredentialsResult(user=user, error_code=code, error_message=MESSAGES[code])
            for user in users
        ]
    )


def _describe_client_quotas(request: Any, version: int, code: ErrorCode) -> Any:
    return describe_client_quotas.Response(error_code=code, error_message=MESSAGES[code], entries=None)


def _join_group(request: Any, version: int, code: ErrorCode) -> Any:
    return join_group.Response(error_code=code, generation_id=-1, protocol_name=None if version >= 7 else "")


def _init_producer_id(request: Any, version: int, code: ErrorCode) -> Any:
    return init_producer_id.Response(error_code=code, producer_id=-1, producer_epoch=-1)


def _offset_commit(request: Any, version: int, code: ErrorCode) -> Steps:
    make = offset_commit.Response
    topics = yield from _of_parts(
        request.topics,
        "partitions",
        lambda partition: make.OffsetCommitResponsePartition(
            partition_index=partition.partition_index, error_code=code
        ),
        lambda topic, partitions: make.OffsetCommitResponseTopic(
            name=topic.name, topic_id=topic.topic_id, partitions=partitions
        ),
    )
    return make(topics=topics)


def _txn_offset_commit(request: Any, version: int, code: ErrorCode) -> Steps:
    make = txn_offset_commit.Response
    topics = yield from _of_parts(
        request.topics,
        "partitions",
        lambda partition: make.TxnOffsetCommitResponsePartition(
            partition_index=partition.partition_index, error_code=code
        ),
        lambda topic, partitions: make.TxnOffsetCommitResponseTopic(name=topic.name, partitions=partitions),
    )
    return make(topics=topics)


def _offset_fetch(request: Any, version: int, code: ErrorCode) -> Steps:
    """Of versions 0 to 7: before version 2 the response has no error of its own."""
    make = offset_fetch.Response
    if version >= 2:
        return make(error_code=code)
    topics = yield from _of_parts(
        request.topics,
        "partition_indexes",
        lambda partition: make.OffsetFetchResponsePartition(
            partition_index=partition, committed_offset=-1, metadata="", error_code=code
        ),
        lambda topic, partitions: make.OffsetFetchResponseTopic(name=topic.name, partitions=partitions),
    )
    return make(topics=topics)


def _add_partitions_to_txn(request: Any, version: int, code: ErrorCode) -> Steps:
    make = add_partitions_to_txn.Response
    if version >= 4:
        return make(error_code=code)
    topics = yield from _of_parts(
        request.v3_and_below_topics,
        "partitions",
        lambda partition: make.AddPartitionsToTxnPartitionResult(partition_index=partition, partition_error_code=code),
        lambda topic, partitions: make.AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=partitions),
    )
    return make(results_by_topic_v3_and_below=topics)


_OF_API: dict[int, Callable[[Any, int, ErrorCode], Any]] = {
    offset_commit.API_KEY: _offset_commit,
    offset_fetch.API_KEY: _offset_fetch,
    join_group.API_KEY: _join_group,
    init_producer_id.API_KEY: _init_producer_id,
    add_partitions_to_txn.API_KEY: _add_partitions_to_txn,
    write_txn_markers.API_KEY: _write_txn_markers,
    txn_offset_commit.API_KEY: _txn_offset_commit,
    create_acls.API_KEY: _create_acls,
    delete_acls.API_KEY: _delete_acls,
    alter_replica_log_dirs.API_KEY: _alter_replica_log_dirs,
    elect_leaders.API_KEY: _elect_leaders,
    alter_partition_reassignments.API_KEY: _alter_partition_reassignments,
    list_partition_reassignments.API_KEY: _list_partition_reassignments,
    describe_client_quotas.API_KEY: _describe_client_quotas,
    alter_user_scram_credentials.API_KEY: _alter_user_scram_credentials,
    alter_client_quotas.API_KEY: _alter_client_quotas,
}
