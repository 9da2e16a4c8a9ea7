"""TxnOffsetCommit (28): stores offsets of a group as part of a transaction. Executed by the coordinator, in its loop.

The group's partition of `__consumer_offsets` must belong to the transaction: clients of versions 0 to 4 have added it with
AddOffsetsToTxn, and the transaction coordinator confirms that; from version 5 on (KIP-890) it adds the partition.
"""

from collections.abc import Callable
from typing import Any

from odradek.api.group_call import GroupCall, Pause, answered
from odradek.groups.commits import Commit
from odradek.groups.offsets import CommittedOffset, Place
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import txn_offset_commit

FIRST_WITH_LOADING = 2
FIRST_WITH_ABORTABLE = 4
FIRST_THAT_ADDS = 5

ERROR_OF_TRANSACTION = {
    ErrorCode.PRODUCER_FENCED: ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}
"""What the client receives for errors of the transaction coordinator, if not these errors."""

Places = dict[tuple[int, int], Place]
"""Topic and partition by their positions in the request."""


async def handle(request: Any, call: GroupCall) -> Any:
    """Check the topics, then the transaction, then the group, and store the offsets of all valid partitions together."""
    places, offsets, errors = await _checked(request, call)
    if places:
        outcome = _for_version(await _commit(request, offsets, call), call.version)
        if outcome is not ErrorCode.NONE:
            errors |= dict.fromkeys(places, outcome)
    make = txn_offset_commit.Response
    response = make()
    for t, topic in enumerate(request.topics):
        rows = [
            make.TxnOffsetCommitResponsePartition(
                partition_index=partition.partition_index, error_code=errors.get((t, p), ErrorCode.NONE)
            )
            for p, partition in enumerate(topic.partitions)
        ]
        response.topics.append(make.TxnOffsetCommitResponseTopic(name=topic.name, partitions=rows))
    return response


async def _checked(
    request: Any, call: GroupCall
) -> tuple[Places, dict[Place, CommittedOffset], dict[tuple[int, int], ErrorCode]]:
    """The existing partitions, the offsets to be stored, and the errors of the other partitions."""
    groups = call.view.groups
    longest, now_ms = groups.shards.settings.offset_metadata_max_bytes, groups.wall_ms()
    places: Places = {}
    offsets: dict[Place, CommittedOffset] = {}
    errors: dict[tuple[int, int], ErrorCode] = {}
    pause = Pause()
    for t, topic in enumerate(request.topics):
        known = call.topic(topic.name)
        for p, partition in enumerate(topic.partitions):
            await pause.after()
            if known is None or not 0 <= partition.partition_index < known.count:
                errors[t, p] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            place = places[t, p] = known.name, partition.partition_index
            metadata = partition.committed_metadata or ""
            if len(metadata) > longest:
                errors[t, p] = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                offsets[place] = CommittedOffset(
                    partition.committed_offset, partition.committed_leader_epoch, metadata, now_ms
                )
    return places, offsets, errors


async def _commit(request: Any, offsets: dict[Place, CommittedOffset], call: GroupCall) -> ErrorCode:
    """Store the offsets once the transaction coordinator has confirmed the transaction."""
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    groups, transactions = call.view.groups, call.view.transactions
    producer = request.producer_id, request.producer_epoch
    partition = groups.shards.partition_of(request.group_id)
    verify_only = call.version < FIRST_THAT_ADDS

    def confirm(then: Callable[[ErrorCode], None]) -> None:
        def asked(error: ErrorCode) -> None:
            if error is ErrorCode.NONE and request.producer_id < 0:  # it was not verified
                error = ErrorCode.INVALID_PRODUCER_ID_MAPPING
            elif error is ErrorCode.NONE and request.producer_epoch < 0:
                error = ErrorCode.INVALID_PRODUCER_EPOCH
            then(ERROR_OF_TRANSACTION.get(error, error))

        transactions.add_or_verify(request.transactional_id, *producer, partition, verify_only, asked)

    commit = Commit(request.group_id, request.member_id, request.generation_id, request.group_instance_id, offsets)
    return await answered(lambda then: groups.commit_in_transaction(commit, *producer, confirm, then))


def _for_version(error: ErrorCode, version: int) -> ErrorCode:
    """The error that a client of this version knows instead."""
    if error is ErrorCode.TRANSACTION_ABORTABLE and version < FIRST_WITH_ABORTABLE:
        return ErrorCode.INVALID_TXN_STATE
    if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < FIRST_WITH_LOADING:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return error
