"""Lists, describes and ends the transactions of a cluster, and finds hanging ones (KIP-664). Functions over a `Cluster`.

A *hanging* transaction is open in a partition, and no coordinator will ever end it. The last stable offset of the partition
cannot pass it, so consumers with isolation level read_committed receive no record after it.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from fnmatch import fnmatchcase
from re import escape
from shlex import quote
from typing import Any, NamedTuple

from odradek.clients import configs, topics
from odradek.clients.cluster import TRANSACTION, Cluster, Partition, View
from odradek.clients.errors import ClientError, RefusedError, UnreachableError, UnsupportedError, hint_on
from odradek.clients.wire import Connection
from odradek.protocol.errors import ErrorCode
from odradek.topic_partition import TopicPartition

STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "PrepareEpochFence")
"""Kafka's names of the states of a transactional id."""
OPEN = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
"""The states in which an id has a transaction that has not ended in all its partitions."""
DECIDED = {"PrepareCommit": "commit", "PrepareAbort": "abort", "PrepareEpochFence": "abort"}
"""The outcome of a transaction that is decided but not complete, by state."""
MAX_TIMEOUT_KEY = "transaction.max.timeout.ms"
DEFAULT_MAX_TIMEOUT_MS = 900_000
GRACE_MS = 300_000
"""A transaction is late if it is open for the maximum timeout and this time in addition, as in Kafka."""
FENCING_TIMEOUT_MS = 60_000
"""The transaction timeout for an id whose present timeout the coordinator does not accept: the default of producers."""
IDS_AT_A_TIME = 1000
PARTITIONS_AT_A_TIME = 1000
NONE = -1
WITH_DURATION, WITH_PATTERN = 1, 2
"""The first versions of ListTransactions with the filters by duration and by a pattern of ids."""


class TransactionListing(NamedTuple):
    """A transactional id in a list. :param coordinator: broker id."""

    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


class TransactionDescription(NamedTuple):
    """A transactional id, and its transaction if it has one.

    :param started_ms: ms since 1970; -1 without a transaction. :param partitions: those of the transaction, sorted.
    """

    transactional_id: str
    coordinator: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int
    partitions: tuple[TopicPartition, ...]

    @property
    def is_open(self) -> bool:
        """Whether the id has a transaction that has not ended in all its partitions."""
        return self.state in OPEN

    @property
    def outcome(self) -> str | None:
        """ "commit" or "abort" if it is decided and not complete; otherwise None."""
        return DECIDED.get(self.state)


class PartitionProducer(NamedTuple):
    """A producer that a partition knows, as the partition's leader describes it.

    :param coordinator_epoch: of the producer's last marker in the partition; -1 if it has none.
    :param start_offset: the first offset of its open transaction; -1 if it has none.
    :param written_ms: the timestamp of the producer's last record, in ms since 1970.
    """

    topic: str
    partition: int
    leader: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    written_ms: int


class OpenTransaction(PartitionProducer):
    """A transaction that is open in a partition: a producer whose `start_offset` is an offset."""

    @property
    def place(self) -> TopicPartition:
        return self.topic, self.partition

    @property
    def abort_command(self) -> str:
        """The command that ends this transaction if it is hanging."""
        return (
            f"odradek transaction abort --topic {quote(self.topic)} --partition {self.partition}"
            f" --start-offset {self.start_offset}"
        )


class HangingTransaction(NamedTuple):
    """An open transaction that no coordinator will end. :param transactional_id: None if no coordinator knows the producer."""

    open: OpenTransaction
    transactional_id: str | None
    reason: str


class Search(NamedTuple):
    """The result of `find_late`.

    :param hanging: late transactions that no coordinator will end.
    :param known: late transactions that belong to the open transaction of a transactional id; its coordinator has to end them.
    :param unchecked: the reason for each partition whose leader did not describe its producers.
    :param blocked: for each partition with an open transaction the number of offsets from its last stable offset to its high
        watermark, which consumers with read_committed do not receive.
    :param younger: open transactions that are not late; the search does not look for their owners (`without_owner` does).
    """

    hanging: list[HangingTransaction]
    known: list[tuple[OpenTransaction, TransactionDescription]]
    unchecked: dict[TopicPartition, str]
    blocked: dict[TopicPartition, int]
    younger: Sequence[OpenTransaction] = ()


def list_transactions(
    cluster: Cluster,
    states: Collection[str] = (),
    producer_ids: Collection[int] = (),
    older_than_ms: int | None = None,
    pattern: str | None = None,
) -> list[TransactionListing]:
    """The transactional ids of all coordinators, sorted. Raises RefusedError, ClientError.

    :param older_than_ms: only ids whose last transaction began longer ago; UnsupportedError from brokers before Kafka 3.8.
    :param pattern: a shell pattern that the whole id must match, such as "orders-*".
    """
    from odradek.protocol.schemas import list_transactions as api

    def work(_: int, connection: Connection) -> Any:
        filters_names = pattern is not None and "[" not in pattern and connection.version_of(api.SCHEMA) >= WITH_PATTERN
        request = api.Request(
            state_filters=list(states),
            producer_id_filters=list(producer_ids),
            duration_filter=NONE if older_than_ms is None else older_than_ms,
            transactional_id_pattern=regular_expression(pattern) if pattern and filters_names else None,
        )
        return connection.ask(api.SCHEMA, request, oldest=0 if older_than_ms is None else WITH_DURATION)

    listings = []
    brokers = cluster.view(fresh=True).brokers
    responses = cluster.of_each_until(brokers, work, lambda response: [response.error_code])
    for node_id, response in responses.items():
        if isinstance(response, ClientError):
            raise response
        if response.error_code:
            raise RefusedError(response.error_code, what=f"cannot list the transactions of broker {node_id}")
        listings += [
            TransactionListing(state.transactional_id, state.producer_id, state.transaction_state, node_id)
            for state in response.transaction_states
            if pattern is None or fnmatchcase(state.transactional_id, pattern)
        ]
    return sorted(listings)


def regular_expression(pattern: str) -> str:
    """The regular expression of a shell pattern without [], in the syntax that Java and RE2 share."""
    wild = {"*": ".*", "?": "."}
    return "".join(wild.get(character) or escape(character) for character in pattern)


def describe(cluster: Cluster, transactional_id: str) -> TransactionDescription:
    """Describe a transactional id. Raises RefusedError if its coordinator does not know it, ClientError."""
    from odradek.protocol.schemas import describe_transactions as api

    node_id = cluster.coordinator_of(transactional_id, TRANSACTION)
    response = cluster.ask_coordinator(
        transactional_id,
        api.SCHEMA,
        api.Request(transactional_ids=[transactional_id]),
        lambda response: [response.transaction_states[0].error_code],
        kind=TRANSACTION,
    )
    (state,) = response.transaction_states
    if state.error_code:
        raise _refused(cluster, transactional_id, state.error_code)
    return _description(state, node_id)


def describe_listed(cluster: Cluster, listings: Iterable[TransactionListing]) -> dict[str, TransactionDescription]:
    """Describe listed ids, by id; ids that their coordinator no longer knows or serves are omitted. Raises ClientError."""
    from odradek.protocol.schemas import describe_transactions as api

    of_node: dict[int, list[str]] = defaultdict(list)
    for listing in listings:
        of_node[listing.coordinator].append(listing.transactional_id)

    def work(node_id: int, connection: Connection) -> list[Any]:
        ids = of_node[node_id]
        states = []
        for first in range(0, len(ids), IDS_AT_A_TIME):
            request = api.Request(transactional_ids=ids[first : first + IDS_AT_A_TIME])
            states += connection.ask(api.SCHEMA, request).transaction_states
        return states

    described = {}
    for node_id, states in cluster.of_each(of_node, work).items():
        if isinstance(states, ClientError):
            raise states
        for state in states:
            if state.error_code == 0:
                described[state.transactional_id] = _description(state, node_id)
            elif state.error_code not in (ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, ErrorCode.NOT_COORDINATOR):
                raise _refused(cluster, state.transactional_id, state.error_code)
    return described


def _description(state: Any, coordinator: int) -> TransactionDescription:
    return TransactionDescription(
        state.transactional_id,
        coordinator,
        state.transaction_state,
        state.producer_id,
        state.producer_epoch,
        state.transaction_timeout_ms,
        state.transaction_start_time_ms if state.transaction_state in OPEN else -1,
        tuple(sorted((topic.topic, number) for topic in state.topics for number in topic.partitions)),
    )


def _refused(cluster: Cluster, transactional_id: str, code: int) -> RefusedError:
    if code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        hint = hint_on(
            transactional_id,
            lambda: [listing.transactional_id for listing in list_transactions(cluster)],
            "`odradek transaction list` shows all ids",
        )
        return RefusedError(code, f"transactional id '{transactional_id}' does not exist, or has expired; {hint}")
    return RefusedError(code, what=f"transactional id '{transactional_id}'")


def terminate(cluster: Cluster, described: TransactionDescription) -> TransactionDescription:
    """Abort the open transaction of an id and fence its producer; return the new description. Raises RefusedError, ClientError.

    Sends an InitProducerId request for the id, as a second producer with the id would; the coordinator then does both. The
    request contains the present transaction timeout of the id, so this does not change. It is repeated until the
    transaction has ended in all partitions.
    """
    from odradek.protocol.schemas import init_producer_id as api

    def attempt(timeout_ms: int) -> int:
        request = api.Request(
            transactional_id=described.transactional_id,
            transaction_timeout_ms=timeout_ms,
            producer_id=-1,
            producer_epoch=-1,
        )
        response = cluster.ask_coordinator(
            described.transactional_id,
            api.SCHEMA,
            request,
            lambda response: [response.error_code],
            kind=TRANSACTION,
            newest=5,
        )
        return int(response.error_code)

    code = attempt(described.timeout_ms)
    if code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
        code = attempt(FENCING_TIMEOUT_MS)
    if code == ErrorCode.CONCURRENT_TRANSACTIONS:
        raise RefusedError(
            code,
            f"the coordinator has not completed the abort within {cluster.timeout_s:g} s; "
            f"`odradek transaction describe {described.transactional_id}` shows the partitions that it waits for",
        )
    if code:
        raise RefusedError(code, what=f"transactional id '{described.transactional_id}'")
    return describe(cluster, described.transactional_id)


def open_transactions(
    cluster: Cluster, partitions: Iterable[Partition]
) -> tuple[list[OpenTransaction], dict[TopicPartition, str]]:
    """The open transactions of partitions, and the reason for each partition whose leader did not describe its producers.

    Raises UnsupportedError if a leader does not serve DescribeProducers (before Kafka 2.8), ClientError.
    """
    found, unchecked = producers(cluster, partitions)
    return [OpenTransaction(*producer) for producer in found if producer.start_offset >= 0], unchecked


def producers(
    cluster: Cluster, partitions: Iterable[Partition]
) -> tuple[list[PartitionProducer], dict[TopicPartition, str]]:
    """The producers that partitions know, sorted, and the reason for each partition whose leader did not describe them.

    Raises UnsupportedError if a leader does not serve DescribeProducers (before Kafka 2.8), ClientError.
    """
    found: list[PartitionProducer] = []
    unchecked: dict[TopicPartition, str] = {}
    of_leader: dict[int, list[TopicPartition]] = defaultdict(list)
    for partition in partitions:
        if partition.leader < 0:
            unchecked[partition.topic, partition.number] = "it has no leader"
        else:
            of_leader[partition.leader].append((partition.topic, partition.number))
    answers = cluster.of_each(of_leader, lambda node_id, connection: _producers(connection, of_leader[node_id]))
    for node_id, answer in answers.items():
        if isinstance(answer, UnreachableError):
            unchecked |= dict.fromkeys(of_leader[node_id], str(answer))
            continue
        if isinstance(answer, ClientError):
            raise answer
        for place, described in answer.items():
            if described.error_code:
                unchecked[place] = RefusedError(described.error_code, described.error_message).reason
                continue
            found += [
                PartitionProducer(
                    *place,
                    node_id,
                    producer.producer_id,
                    producer.producer_epoch,
                    producer.coordinator_epoch,
                    producer.current_txn_start_offset,
                    producer.last_timestamp,
                )
                for producer in described.active_producers
            ]
    return sorted(found), unchecked


def _producers(connection: Connection, places: Sequence[TopicPartition]) -> dict[TopicPartition, Any]:
    """The DescribeProducers answer for each partition. A broker may limit the producers of a response: then it refuses the last
    partitions with INVALID_REQUEST, and they are asked for again."""
    from odradek.protocol.schemas import describe_producers as api

    answers: dict[TopicPartition, Any] = {}
    waiting = list(places)
    while waiting:
        asked, waiting = waiting[:PARTITIONS_AT_A_TIME], waiting[PARTITIONS_AT_A_TIME:]
        numbers: dict[str, list[int]] = defaultdict(list)
        for topic, number in asked:
            numbers[topic].append(number)
        request = api.Request(
            topics=[api.Request.TopicRequest(name=name, partition_indexes=some) for name, some in numbers.items()]
        )
        described = {
            (topic.name, partition.partition_index): partition
            for topic in connection.ask(api.SCHEMA, request).topics
            for partition in topic.partitions
        }
        refused = [place for place, answer in described.items() if answer.error_code == ErrorCode.INVALID_REQUEST]
        if len(refused) < len(described):
            waiting = refused + waiting
            for place in refused:
                del described[place]
        answers |= described
    return answers


def late_after_ms(cluster: Cluster) -> int:
    """The time after which an open transaction is late: the largest transaction.max.timeout.ms of all brokers, and `GRACE_MS`.

    Raises RefusedError if the brokers' configuration may not be read, ClientError.
    """
    values = [DEFAULT_MAX_TIMEOUT_MS]
    for node_id in cluster.view().brokers:
        entries = configs.describe(cluster, configs.Resource("broker", str(node_id)), [MAX_TIMEOUT_KEY])
        if MAX_TIMEOUT_KEY in entries:
            values.append(int(entries[MAX_TIMEOUT_KEY].value or 0))
    return max(values[1:] or values) + GRACE_MS


def find_late(cluster: Cluster, partitions: Sequence[Partition], limit_ms: int, now_ms: int) -> Search:
    """Find the transactions whose producer last wrote at least `limit_ms` ago. Raises RefusedError, ClientError.

    Only leaders of partitions whose last stable offset is below the high watermark are asked for their producers. Then all
    coordinators are asked for the transactional ids of the late producers, and for the partitions of their transactions.
    """
    places = unstable(cluster, partitions)
    unled = {(part.topic, part.number): "it has no leader" for part in partitions if part.leader < 0}
    chosen = [part for part in partitions if (part.topic, part.number) in places]
    found, unchecked = open_transactions(cluster, chosen)
    late: list[OpenTransaction] = []
    younger: list[OpenTransaction] = []
    for transaction in found:  # a timestamp is in the future if the clock of the client is wrong
        (late if max(0, now_ms - transaction.written_ms) >= limit_ms else younger).append(transaction)
    hanging, known = _judge(cluster, chosen, late)
    return Search(hanging, known, unled | unchecked, places, younger)


def without_owner(
    cluster: Cluster, partitions: Iterable[Partition], younger: Sequence[OpenTransaction]
) -> list[HangingTransaction]:
    """Those of the transactions that belong to no open transaction of a transactional id. Raises RefusedError, ClientError.

    :param partitions: include all partitions of the transactions.
    """
    return _judge(cluster, partitions, younger)[0]


def _judge(
    cluster: Cluster, partitions: Iterable[Partition], found: Sequence[OpenTransaction]
) -> tuple[list[HangingTransaction], list[tuple[OpenTransaction, TransactionDescription]]]:
    """Ask all coordinators for the owners of open transactions. Returns the transactions without an owner, and those with one.

    A transaction that ended after its leader was asked has no owner any more. So the leaders of transactions without an owner
    are asked again, and only those that are still open are returned.

    :param partitions: include all partitions of the transactions.
    """
    orphans: list[HangingTransaction] = []
    known: list[tuple[OpenTransaction, TransactionDescription]] = []
    if not found:
        return orphans, known
    listings = list_transactions(cluster, producer_ids={transaction.producer_id for transaction in found})
    described = {description.producer_id: description for description in describe_listed(cluster, listings).values()}
    for transaction in found:
        description = described.get(transaction.producer_id)
        reason = why_hanging(transaction, description)
        if reason is None:
            assert description is not None
            known.append((transaction, description))
        else:
            name = None if description is None else description.transactional_id
            orphans.append(HangingTransaction(transaction, name, reason))
    places = {orphan.open.place for orphan in orphans}
    chosen = [part for part in partitions if (part.topic, part.number) in places]
    again, unchecked = open_transactions(cluster, chosen) if chosen else ([], {})
    still = {_beginning(transaction) for transaction in again}
    return [each for each in orphans if each.open.place in unchecked or _beginning(each.open) in still], known


def _beginning(transaction: OpenTransaction) -> tuple[TopicPartition, int, int]:
    return transaction.place, transaction.producer_id, transaction.start_offset


def open_longer_than(cluster: Cluster, limit_ms: int, now_ms: int) -> list[TransactionDescription]:
    """The transactions that have been open for longer than this, of all coordinators, sorted by id. Raises ClientError."""
    described = describe_listed(cluster, list_transactions(cluster, OPEN))
    return sorted(
        description
        for description in described.values()
        if description.is_open and now_ms - description.started_ms > limit_ms
    )


def why_hanging(transaction: OpenTransaction, description: TransactionDescription | None) -> str | None:
    """Why no coordinator will end this transaction; None if one will.

    :param description: of the transactional id with the producer id of the transaction; None if there is none.
    """
    if description is None:
        return "no coordinator has a transactional id with this producer"
    if transaction.place in description.partitions:
        return None
    name = description.transactional_id
    if description.is_open:
        return f"the open transaction of transactional id '{name}' does not contain this partition"
    return f"transactional id '{name}' has no open transaction (its state is {description.state})"


def unstable(cluster: Cluster, partitions: Sequence[Partition]) -> dict[TopicPartition, int]:
    """The partitions whose last stable offset is below the high watermark, and the number of offsets in between.

    The last stable offset is read first, so no partition is omitted that has had an open transaction since before the call.
    A partition whose leader returns an error for it is included with the number 0. Raises ClientError.
    """
    led = [partition for partition in partitions if partition.leader >= 0]
    stable = topics.list_offsets(cluster, led, topics.LATEST, committed_only=True)
    ends = topics.list_offsets(cluster, led, topics.LATEST)
    found = {}
    for place, end in ends.items():
        start = stable.get(place)
        if start is None or start.error or end.error:
            found[place] = 0
        elif start.offset < end.offset:
            found[place] = end.offset - start.offset
    return found


def abort_in_partition(
    cluster: Cluster, place: TopicPartition, producer_id: int, producer_epoch: int, coordinator_epoch: int
) -> None:
    """Write an abort marker for a producer into one partition, by WriteTxnMarkers. Raises RefusedError, ClientError.

    :param producer_epoch: the producer's own epoch: the marker is not one of transaction version 2.
    :param coordinator_epoch: must not be lower than that of the producer's last marker in the partition.
    """
    from odradek.protocol.schemas import write_txn_markers as api

    topic, number = place
    make = api.Request
    marker = make.WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transaction_result=False,
        topics=[make.WritableTxnMarkerTopic(name=topic, partition_indexes=[number])],
        coordinator_epoch=marker_epoch(coordinator_epoch),
    )

    def codes(response: Any) -> list[int]:
        return [
            partition.error_code
            for result in response.markers
            for of_topic in result.topics
            for partition in of_topic.partitions
        ]

    response = cluster.ask_leader(place, api.SCHEMA, make(markers=[marker]), codes)
    for code in codes(response):
        if code:
            raise _marker_refused(code, f"{topic}-{number}", producer_id, producer_epoch, coordinator_epoch)


def marker_epoch(coordinator_epoch: int) -> int:
    """The coordinator epoch of the marker that `abort_in_partition` writes. :param coordinator_epoch: -1: no marker yet."""
    return max(coordinator_epoch, 0)


def _marker_refused(
    code: int, name: str, producer_id: int, producer_epoch: int, coordinator_epoch: int
) -> RefusedError:
    reason = None
    if code == ErrorCode.INVALID_PRODUCER_EPOCH:
        reason = (
            f"the partition has a newer epoch of producer {producer_id} than {producer_epoch}, so this transaction has ended "
            "(INVALID_PRODUCER_EPOCH)"
        )
    elif code == ErrorCode.TRANSACTION_COORDINATOR_FENCED:
        reason = (
            f"the last marker of producer {producer_id} has a newer coordinator epoch than {marker_epoch(coordinator_epoch)} "
            "(TRANSACTION_COORDINATOR_FENCED)"
        )
    return RefusedError(code, reason, f"no abort marker was written to {name}")


def known_transaction(cluster: Cluster, place: TopicPartition, producer_id: int) -> TransactionDescription | None:
    """The open transaction of a transactional id that has this producer id and contains this partition.

    None if there is none, or if the brokers cannot list transactions. Raises RefusedError, ClientError.
    """
    try:
        listings = list_transactions(cluster, producer_ids=[producer_id])
        described = describe_listed(cluster, listings)
    except UnsupportedError:
        return None
    return next(
        (description for description in described.values() if description.is_open and place in description.partitions),
        None,
    )


def partitions_of(
    view: View, names: Collection[str] | None = None, broker_ids: Collection[int] = ()
) -> list[Partition]:
    """The partitions of these topics that these brokers lead. :param names: None: all topics. :param broker_ids: empty: all."""
    return [
        partition
        for name, info in view.topics.items()
        if names is None or name in names
        for partition in info.partitions
        if not broker_ids or partition.leader in broker_ids
    ]
