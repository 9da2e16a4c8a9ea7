"""TxnOffsetCommit (28): stores offsets of a group as part of a transaction. Executed by the coordinator, in its loop.

The group's partition of `__consumer_offsets` must belong to the transaction. Clients of versions 0 to 4 add it with
AddOffsetsToTxn, and the transaction coordinator confirms this. From version 5 on (KIP-890), the transaction coordinator
adds the partition.
"""

import logging
from collections.abc import Callable, Generator
from functools import partial

from odradek._ext.api.offset_commits import CommittedOffset, OffsetCommit, read_transactional
from odradek._ext.shm.metering import count_failed_request
from odradek.api.api import Api, Place
from odradek.api.elements import Elements
from odradek.api.groups.denied import verdict_of_rest
from odradek.api.groups.group_call import (
    FAILED,
    GroupCall,
    GroupView,
    PlainRequest,
    client_of,
    may_read,
)
from odradek.api.guarding import (
    Asked,
    VerdictInSteps,
    refused_elements,
    refused_whole,
    taken_out,
)
from odradek.api.transactions.transaction_call import Producer
from odradek.groups.commits import Commit
from odradek.groups.offsets import CommitRequest
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import txn_offset_commit
from odradek.security.acl import Operation, ResourceType
from odradek.security.needs import (
    GROUP,
    GROUP_DENIED,
    ID_DENIED,
    TOPIC,
    TOPIC_DENIED,
    TXN,
    each,
)
from odradek.security.owners import Client
from odradek.stepwise import Pace, Steps, waited
from odradek.topic_partition import TopicPartition

log = logging.getLogger("odradek.groups")

PARTITIONS_A_STEP = 500
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
"""The error for the client, by the error of the transaction coordinator. Other errors are passed on unchanged."""

Places = dict[tuple[int, int], TopicPartition]
"""Topic and partition by their positions in the request."""
ELEMENTS = Elements(txn_offset_commit.SCHEMA, "topics.partitions", "topics.partitions")
API = Api(
    txn_offset_commit.SCHEMA,
    versions=(0, 5),
    place=Place.GROUPS,
    rights=each(
        (Operation.WRITE, TXN),
        (Operation.READ, GROUP),
        (Operation.READ, TOPIC),
        refused=f"{ID_DENIED}, {GROUP_DENIED}, {TOPIC_DENIED} for each partition",
    ),
    per_partition=2,
    refused=ELEMENTS,
)


def guard(asked: Asked) -> VerdictInSteps:
    """WRITE on the transactional id, READ on the group and on the topics."""
    request, permits = asked.request, asked.permits
    if not permits.transactional_id(Operation.WRITE, request.transactional_id):
        return (yield from refused_whole(API.key, asked, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    if not permits.group(Operation.READ, request.group_id):
        return (yield from refused_whole(API.key, asked, ErrorCode.GROUP_AUTHORIZATION_FAILED))
    refuse = refused_elements(ELEMENTS, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    refused = yield from taken_out(asked, Operation.READ, refuse)
    return verdict_of_rest(request, txn_offset_commit.Response, refused)


def at_once(request: PlainRequest, view: GroupView) -> bool:
    """Serve a request without decoding it to objects. Returns False for malformed requests, which `handle` must decode."""
    groups = view.groups
    longest, elements = groups.shards.settings.offset_metadata_max_bytes, view.limits[txn_offset_commit.API_KEY]
    commit = read_transactional(request.payload, view.topics, longest, groups.wall_ms(), elements)
    if commit is None or not _may_commit(request, view, commit):
        return False
    if commit.version < FIRST_THAT_ADDS and _is_late(request, commit, view):
        return True
    if commit.known:

        def stored(outcome: ErrorCode) -> None:
            if outcome is ErrorCode.NONE and commit.version < FIRST_THAT_ADDS:
                view.newest_commits.note(_producer(commit), request.context.connection_id)
            _answer(request, commit, outcome)

        producer = commit.producer_id, commit.producer_epoch
        client = client_of(request.context)
        _store(commit, commit.transactional_id, producer, commit.version, view, client, stored)
    else:  # no partition of the request exists, so that nobody has checked the producer
        _answer(request, commit, ErrorCode.NONE)
    return True


def _may_commit(request: PlainRequest, view: GroupView, commit: OffsetCommit) -> bool:
    key, context = txn_offset_commit.API_KEY, request.context
    permits = view.permits_of(context.principal, context.peer, key)
    return permits.grants(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, commit.transactional_id) and may_read(
        request, view, key, commit.group_id, commit.topics
    )


def _producer(commit: OffsetCommit) -> Producer:
    return Producer(commit.transactional_id, commit.producer_id, commit.producer_epoch)


def _is_late(request: PlainRequest, commit: OffsetCommit, view: GroupView) -> bool:
    """Whether this request arrived late (see `NewestConnections`). If so, closes its connection."""
    context = request.context
    if not view.newest_commits.is_older(_producer(commit), context.connection_id):
        return False
    log.warning(
        "closing the connection of %s: a TxnOffsetCommit request for the transactional id %r arrived late, after its producer"
        " had used a newer connection; it is not executed",
        context.client, commit.transactional_id, extra=context.log_fields,
    )  # fmt: skip
    request.answer(b"", 0, FAILED)
    return True


def _answer(request: PlainRequest, commit: OffsetCommit, outcome: ErrorCode) -> None:
    response = commit.response(outcome)
    if commit.failed:  # the response does not begin with an error code, so the worker does not count it
        count_failed_request(request.context, txn_offset_commit.API_KEY)
    request.answer(response)


def handle(request: txn_offset_commit.Request, call: GroupCall) -> Steps:
    """Check the topics, then the transaction, then the group, and store the offsets of all valid partitions together."""
    places, offsets, errors = yield from _checked(request, call)
    if places:
        commit = Commit(request.group_id, request.member_id, request.generation_id, request.group_instance_id, offsets)
        producer = request.producer_id, request.producer_epoch
        client = call.client
        store = partial(_store, commit, request.transactional_id, producer, call.version, call.view, client)
        outcome: ErrorCode = yield from waited(store)
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


def _checked(
    request: txn_offset_commit.Request, call: GroupCall
) -> Generator[None, None, tuple[Places, dict[TopicPartition, CommittedOffset], dict[tuple[int, int], ErrorCode]]]:
    """The existing partitions, the offsets to be stored, and the errors of the other partitions."""
    groups = call.view.groups
    longest, now_ms = groups.shards.settings.offset_metadata_max_bytes, groups.wall_ms()
    places: Places = {}
    offsets: dict[TopicPartition, CommittedOffset] = {}
    errors: dict[tuple[int, int], ErrorCode] = {}
    pace = Pace(PARTITIONS_A_STEP)
    for t, topic in enumerate(request.topics):
        known = call.topic(topic.name)
        for p, partition in enumerate(topic.partitions):
            if pace.over():
                yield
            if known is None or not known.exists(partition.partition_index):
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


def _store(
    commit: CommitRequest,
    transactional_id: str,
    producer: tuple[int, int],
    version: int,
    view: GroupView,
    client: Client,
    then: Callable[[ErrorCode], None],
) -> None:
    """Store the offsets when the transaction coordinator has confirmed the transaction. `then` receives the error for the
    client.

    :param producer: producer id and epoch.
    """
    if not commit.group_id:
        then(ErrorCode.INVALID_GROUP_ID)
        return
    partition = view.groups.shards.partition_of(commit.group_id)

    def confirm(confirmed: Callable[[ErrorCode], None]) -> None:
        def asked(error: ErrorCode) -> None:
            if error is ErrorCode.NONE and min(producer) < 0:  # it was not verified
                error = ErrorCode.INVALID_PRODUCER_ID_MAPPING
            confirmed(ERROR_OF_TRANSACTION.get(error, error))

        view.transactions.add_or_verify(transactional_id, *producer, partition, version < FIRST_THAT_ADDS, asked)

    view.groups.commit_in_transaction(
        commit, *producer, confirm, lambda error: then(_for_version(error, version) if error else error), client
    )


def _for_version(error: ErrorCode, version: int) -> ErrorCode:
    """The error for a client of this version, which may not know newer errors."""
    if error is ErrorCode.TRANSACTION_ABORTABLE and version < FIRST_WITH_ABORTABLE:
        return ErrorCode.INVALID_TXN_STATE
    if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < FIRST_WITH_LOADING:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return error
