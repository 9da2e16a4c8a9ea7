"""AddPartitionsToTxn (24): adds partitions to a transaction, or verifies that they were added. Executed by the coordinator, in
its loop.

Producers send versions 0 to 3, for one transaction. Brokers send versions 4 and 5, for several transactions: the leader of
a partition sends it before the first append of a transaction (KIP-890), and translates the error code for its producer. If
a partition does not exist, or if a producer names a partition of an internal topic, no partition of the transaction is
added, and its other partitions get OPERATION_NOT_ATTEMPTED.
"""

from collections.abc import Callable, Generator, Mapping, Set
from typing import Any

from odradek._ext.protocol.arrays import new_array
from odradek.api.transaction_call import A_STEP, Answer, Producer, TransactionCall, fenced_before
from odradek.controller.topic_names import INTERNAL
from odradek.coordination.gathering import gather_in_steps
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import add_partitions_to_txn
from odradek.security.acl import Operation, ResourceType
from odradek.stepwise import Pace, Steps
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


def handle(request: Any, call: TransactionCall, answer: Answer) -> None:
    """Answer when the log of the transactional id has the partitions."""
    if call.version >= FIRST_OF_BROKERS:
        _of_brokers(request, call, answer)
        return
    producer = Producer(
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
    )
    if call.is_late("AddPartitionsToTxn", producer):
        return
    call.in_steps(_of_producer(request.v3_and_below_topics, producer, call, answer))


def _of_producer(topics: Any, producer: Producer, call: TransactionCall, answer: Answer) -> Steps:
    """Add the partitions of a producer. Before and after the append, a request with many partitions works in steps."""
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

    def respond(results: Results) -> Steps:
        of_topics = yield from _topics(topics, results)
        answer(Response(results_by_topic_v3_and_below=of_topics))

    if refused:
        yield from respond(refused)
        return
    if late and call.is_late("AddPartitionsToTxn", producer):
        return

    def add_from(first: int) -> None:
        """Add MOST_ADDED partitions, and when the log has them, the others. An error, or a client that disconnects, leaves the
        transaction with those that were added before. The client then ends it, or its timeout does."""
        end = first + MOST_ADDED

        def added(code: ErrorCode, allowed: Any) -> None:
            if code is ErrorCode.NONE:
                call.view.newest.note(producer, call.connection_id)
                if end < len(places):
                    call.in_steps(add_later(end))
                    return
            # If a mark could not be set, the leader asks again before the first batch of the partition.
            call.in_steps(respond(_Same(fenced_before(FIRST_WITH_FENCED, code, call.version))))

        call.view.coordinator.add_partitions(*producer, places[first:end], 0, added, owner=call.owner)

    def add_later(first: int) -> Steps:
        yield
        if not call.is_late("AddPartitionsToTxn", producer):
            add_from(first)

    add_from(0)


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


def _of_brokers(request: Any, call: TransactionCall, answer: Answer) -> None:
    """The results of all transactions; in steps, because one request may name tens of thousands of transactions."""

    def ask() -> Steps:
        pace = Pace(A_STEP)

        def add(transaction: Any, then: Callable[[Results], None]) -> None:
            call.in_steps(_one(call, transaction, then))

        questions = gather_in_steps(
            request.transactions,
            add,
            lambda results: call.in_steps(respond(results)),
        )
        for transaction, _ in zip(request.transactions, questions, strict=True):
            if pace.over(_size(transaction)):
                yield

    def respond(results: list[Results]) -> Steps:
        pace = Pace(A_STEP)
        of_transactions = new_array()
        for transaction, outcome in zip(request.transactions, results, strict=True):
            of_topics = yield from _topics(transaction.topics, outcome, transaction.verify_only)
            of_transactions.append(
                Response.AddPartitionsToTxnResult(
                    transactional_id=transaction.transactional_id, topic_results=of_topics
                )
            )
            if pace.over(_size(transaction)):
                yield
        answer(Response(results_by_transaction=of_transactions))

    call.in_steps(ask())


def _size(transaction: Any) -> int:
    """The amount of work that a transaction of a request causes."""
    return 1 + sum(len(topic.partitions) for topic in transaction.topics)


def _one(call: TransactionCall, transaction: Any, then: Callable[[Results], None]) -> Steps:
    """Add or verify the partitions of one transaction; in steps before that."""
    pace = Pace(A_STEP)
    places: list[TopicPartition] = []
    for topic in transaction.topics:
        for partition in topic.partitions:
            places.append((topic.name, partition))
            if pace.over():
                yield
    refused = yield from _refused(places, call, None)
    if refused:
        then(refused)
        return
    producer = transaction.transactional_id, transaction.producer_id, transaction.producer_epoch
    if transaction.verify_only:

        def verified(codes: Mapping[TopicPartition, ErrorCode | None]) -> None:
            # A mark that could not be set now (None) is asked for with the first batch of the partition.
            then({place: ErrorCode.NONE if code is None else code for place, code in codes.items()})

        call.view.coordinator.verify(*producer, places, verified, call.owner)
        return

    def added(code: ErrorCode, allowed: Any) -> None:
        then(_Same(code))

    call.view.coordinator.add_partitions(*producer, places, ADDED_BY_BROKERS, added, owner=call.owner)


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
