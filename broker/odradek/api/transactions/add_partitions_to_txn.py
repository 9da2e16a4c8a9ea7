"""AddPartitionsToTxn (24): adds partitions to a transaction, or verifies that they were added. Executed by the coordinator, in
its loop.

Producers send versions 0 to 3, for one transaction. Brokers send versions 4 and 5, for several transactions: the leader of
a partition sends it before the first append of a transaction (KIP-890), and translates the error code for its producer. If
a partition does not exist, or if a producer names a partition of an internal topic, no partition of the transaction is
added, and its other partitions get OPERATION_NOT_ATTEMPTED.
"""

from collections.abc import Callable, Generator, Mapping, Set
from functools import partial
from typing import Any

from odradek._ext.protocol.arrays import new_array
from odradek.api.api import Api, Place
from odradek.api.elements import Elements
from odradek.api.guarding import (
    Asked,
    Verdict,
    VerdictInSteps,
    refused_whole,
)
from odradek.api.transactions.transaction_call import A_STEP, Producer, TransactionCall, fenced_before
from odradek.controller.topic_names import INTERNAL
from odradek.coordination.gathering import Gathering
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import add_partitions_to_txn
from odradek.security.acl import Operation, ResourceType
from odradek.security.needs import (
    ID_DENIED,
    TOPIC,
    TOPIC_DENIED,
    TXN,
    each,
)
from odradek.stepwise import Later, Pace, Steps, waited
from odradek.topic_partition import TopicPartition

FIRST_OF_BROKERS = 4
FIRST_WITH_FENCED = 2
ADDED_BY_BROKERS = 2
"""The transaction version of producers whose partitions are added by brokers."""
MOST_ADDED = 2_000
"""The number of partitions that are added at once: a record with all partitions of the transaction is encoded and appended,
and a mark is set in the slot of each new one."""
Response = add_partitions_to_txn.Response
Results = Mapping[TopicPartition, ErrorCode]
API = Api(
    add_partitions_to_txn.SCHEMA,
    versions=(0, 5),
    place=Place.TRANSACTIONS,
    rights=each(
        (Operation.WRITE, TXN),
        (Operation.WRITE, TOPIC),
        refused=f"{ID_DENIED}, {TOPIC_DENIED} for each partition",
        note="from version 4 on, which brokers send: CLUSTER_ACTION on cluster",
    ),
    per_partition=2,
    refused={
        0: Elements(
            add_partitions_to_txn.SCHEMA,
            "v3_and_below_topics.partitions",
            "results_by_topic_v3_and_below.results_by_partition",
        ),
        FIRST_OF_BROKERS: None,
    },
)


def guard(asked: Asked) -> Verdict | VerdictInSteps:
    """Of brokers CLUSTER_ACTION; of producers WRITE on the transactional id and the topics: if a topic is denied, none of the
    partitions is added."""
    request, permits = asked.request, asked.permits
    if asked.version >= FIRST_OF_BROKERS:
        if permits.cluster(Operation.CLUSTER_ACTION):
            return None
        return refused_whole(API.key, asked, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    if not permits.transactional_id(Operation.WRITE, request.v3_and_below_transactional_id):
        return refused_whole(API.key, asked, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    return None  # the handler decides about the topics, because it knows which partitions exist


def handle(request: add_partitions_to_txn.Request, call: TransactionCall) -> Steps:
    """Respond when the log of the transactional id has the partitions."""
    if call.version >= FIRST_OF_BROKERS:
        return (yield from _of_brokers(request, call))
    producer = Producer(
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
    )
    if call.is_late("AddPartitionsToTxn", producer):
        return None
    return (yield from _of_producer(request.v3_and_below_topics, producer, call))


def _of_producer(topics: Any, producer: Producer, call: TransactionCall) -> Steps:
    """Add the partitions of a producer. Before and after the append, a request with many partitions works in steps.

    MOST_ADDED partitions are added, and when the log has them, the others. An error, or a client that disconnects, leaves the
    transaction with those that were added before. The client then ends it, or its timeout does.
    """
    names = (topic.name for topic in topics if topic.name not in INTERNAL)
    denied = yield from call.permits.denied_in_steps(Operation.WRITE, ResourceType.TOPIC, names)
    pace = Pace(A_STEP)
    places: list[TopicPartition] = []
    late = False
    for topic in topics:
        for partition in topic.partitions:
            places.append((topic.name, partition))
            if pace.over():
                late = True
                yield
        if pace.over():
            late = True
            yield
    refused = yield from _refused(places, call, ErrorCode.TOPIC_AUTHORIZATION_FAILED, denied)
    if refused:
        return Response(results_by_topic_v3_and_below=(yield from _topics(topics, refused)))
    code = ErrorCode.NONE
    for first in range(0, max(1, len(places)), MOST_ADDED):
        if first:
            yield
        if (first or late) and call.is_late("AddPartitionsToTxn", producer):
            return None
        added = places[first : first + MOST_ADDED]
        code, _ = yield from waited(partial(_add, call, producer, added, 0))
        if code is not ErrorCode.NONE:
            break
        call.view.newest.note(producer, call.connection_id)
    # If a mark could not be set, the leader asks again before the first batch of the partition.
    results = _Same(fenced_before(FIRST_WITH_FENCED, code, call.version))
    return Response(results_by_topic_v3_and_below=(yield from _topics(topics, results)))


def _add(
    call: TransactionCall,
    producer: tuple[str, int, int],
    places: list[TopicPartition],
    version: int,
    then: Callable[[ErrorCode, Any], None],
) -> None:
    call.view.coordinator.add_partitions(*producer, places, version, then, owner=call.owner)


class _Same(dict[TopicPartition, ErrorCode]):
    """Results of which all are one code."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__()
        self._code = code

    def __missing__(self, place: TopicPartition) -> ErrorCode:
        return self._code


def _refused(
    places: list[TopicPartition], call: TransactionCall, internal: ErrorCode | None, denied: Set[str] = frozenset()
) -> Generator[None, None, Results]:
    """The codes of all places if one of them cannot be added, else an empty mapping. Works in steps.

    :param internal: the code of partitions of internal topics; None if they are allowed.
    :param denied: topics to which the client may not write.
    """
    forbidden = denied if internal is None else denied | INTERNAL
    wrong = _Same(ErrorCode.OPERATION_NOT_ATTEMPTED)
    pace = Pace(A_STEP)
    for place in places:
        if place[0] in forbidden:
            wrong[place] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif not call.has_partition(*place):
            wrong[place] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if pace.over():
            yield
    return wrong


def _of_brokers(request: add_partitions_to_txn.Request, call: TransactionCall) -> Steps:
    """The results of all transactions; in steps, because one request may name tens of thousands of transactions."""
    pace, later = Pace(A_STEP), Later()
    gathering = Gathering(len(request.transactions), later.set)
    for number, transaction in enumerate(request.transactions):
        places: list[TopicPartition] = []
        for topic in transaction.topics:
            for partition in topic.partitions:
                places.append((topic.name, partition))
                if pace.over():
                    yield
        refused = yield from _refused(places, call, None)
        _ask(call, transaction, places, refused, partial(gathering.take, number))
        if pace.over(_size(transaction)):
            yield
    if not later.done:
        yield later
    of_transactions = new_array()
    for transaction, outcome in zip(request.transactions, later.value, strict=True):
        of_topics = yield from _topics(transaction.topics, outcome, transaction.verify_only)
        of_transactions.append(
            Response.AddPartitionsToTxnResult(transactional_id=transaction.transactional_id, topic_results=of_topics)
        )
        if pace.over(_size(transaction)):
            yield
    return Response(results_by_transaction=of_transactions)


def _size(transaction: Any) -> int:
    """The amount of work that a transaction of a request causes."""
    return 1 + sum(len(topic.partitions) for topic in transaction.topics)


def _ask(
    call: TransactionCall,
    transaction: Any,
    places: list[TopicPartition],
    refused: Results,
    then: Callable[[Results], None],
) -> None:
    """Add or verify the partitions of one transaction."""
    producer = transaction.transactional_id, transaction.producer_id, transaction.producer_epoch
    if refused:
        then(refused)
    elif transaction.verify_only:

        def verified(codes: Mapping[TopicPartition, ErrorCode | None]) -> None:
            # A mark that could not be set now (None) is asked for with the first batch of the partition.
            then({place: ErrorCode.NONE if code is None else code for place, code in codes.items()})

        call.view.coordinator.verify(*producer, places, verified, call.owner)
    else:
        _add(call, producer, places, ADDED_BY_BROKERS, lambda code, _: then(_Same(code)))


def _topics(topics: Any, results: Results, once: bool = False) -> Generator[None, None, list[Any]]:
    """The results of the partitions of a request, in steps.

    :param once: only one result of a partition that is in the request several times.
    """
    of_topics = new_array()
    pace = Pace(A_STEP)
    for topic in topics:
        of_partitions = new_array()
        for partition in dict.fromkeys(topic.partitions) if once else topic.partitions:
            of_partitions.append(
                Response.AddPartitionsToTxnPartitionResult(
                    partition_index=partition, partition_error_code=results[topic.name, partition]
                )
            )
            if pace.over():
                yield
        of_topics.append(Response.AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=of_partitions))
        if pace.over():
            yield
    return of_topics
