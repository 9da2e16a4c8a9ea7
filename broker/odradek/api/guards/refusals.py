"""The responses that refuse a request as a whole, as those of Kafka's `getErrorResponse`. Pure functions."""

from collections.abc import Callable
from typing import Any

from odradek.api import not_controller
from odradek.api.permits import MESSAGES
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


def refusal(api_key: int, request: Any, version: int, code: ErrorCode) -> Any:
    """The response with this error for the whole request."""
    of_api = _OF_API.get(api_key)
    if of_api is not None:
        return of_api(request, version, code)
    response = by_key(api_key).response(error_code=code)
    if hasattr(response, "error_message"):
        response.error_message = MESSAGES[code]
    return response


def _alter_partition_reassignments(request: Any, version: int, code: ErrorCode) -> Any:
    make = alter_partition_reassignments.Response
    return make(
        error_code=code,
        error_message=MESSAGES[code],
        responses=[
            make.ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    make.ReassignablePartitionResponse(
                        partition_index=partition.partition_index, error_code=code, error_message=MESSAGES[code]
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _list_partition_reassignments(request: Any, version: int, code: ErrorCode) -> Any:
    make = list_partition_reassignments.Response
    return make(
        error_code=code,
        error_message=MESSAGES[code],
        topics=[
            make.OngoingTopicReassignment(
                name=topic.name,
                partitions=[
                    make.OngoingPartitionReassignment(partition_index=partition)
                    for partition in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ],
    )


def _alter_client_quotas(request: Any, version: int, code: ErrorCode) -> Any:
    make = alter_client_quotas.Response
    return make(
        entries=[
            make.EntryData(
                error_code=code,
                error_message=MESSAGES[code],
                entity=[
                    make.EntityData(entity_type=part.entity_type, entity_name=part.entity_name) for part in entry.entity
                ],
            )
            for entry in request.entries
        ]
    )


def _alter_replica_log_dirs(request: Any, version: int, code: ErrorCode) -> Any:
    make = alter_replica_log_dirs.Response
    return make(
        results=[
            make.AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=[
                    make.AlterReplicaLogDirPartitionResult(partition_index=partition, error_code=code)
                    for partition in topic.partitions
                ],
            )
            for directory in request.dirs
            for topic in directory.topics
        ]
    )


def _elect_leaders(request: Any, version: int, code: ErrorCode) -> Any:
    response = not_controller.refusal(elect_leaders.API_KEY, version, request, code, MESSAGES[code])
    if version >= 1:
        response.error_code = code
    return response


def _write_txn_markers(request: Any, version: int, code: ErrorCode) -> Any:
    make = write_txn_markers.Response
    return make(
        markers=[
            make.WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    make.WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            make.WritableTxnMarkerPartitionResult(partition_index=partition, error_code=code)
                            for partition in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )


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


def _offset_commit(request: Any, version: int, code: ErrorCode) -> Any:
    make = offset_commit.Response
    return make(
        topics=[
            make.OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    make.OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _txn_offset_commit(request: Any, version: int, code: ErrorCode) -> Any:
    make = txn_offset_commit.Response
    return make(
        topics=[
            make.TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    make.TxnOffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def _offset_fetch(request: Any, version: int, code: ErrorCode) -> Any:
    """Of versions 0 to 7: before version 2 the response has no error of its own."""
    make = offset_fetch.Response
    if version >= 2:
        return make(error_code=code)
    return make(
        topics=[
            make.OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    make.OffsetFetchResponsePartition(
                        partition_index=partition, committed_offset=-1, metadata="", error_code=code
                    )
                    for partition in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


def _add_partitions_to_txn(request: Any, version: int, code: ErrorCode) -> Any:
    make = add_partitions_to_txn.Response
    if version >= 4:
        return make(error_code=code)
    return make(
        results_by_topic_v3_and_below=[
            make.AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=[
                    make.AddPartitionsToTxnPartitionResult(partition_index=partition, partition_error_code=code)
                    for partition in topic.partitions
                ],
            )
            for topic in request.v3_and_below_topics
        ]
    )


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
