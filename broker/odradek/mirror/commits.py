"""The positions of a lane on the target, and its transactions: the requests to the coordinators.

Used in the thread of one lane. An object lives for one session, as its `TargetWriter`. With exactly once, a new session aborts
the transaction that the former session left open, and increments the epoch of the transactional id, which fences former
owners. Without exactly once, positions are committed as offsets of a group that has no members.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from odradek.backoff import Waits
from odradek.clients.cluster import GROUP, TRANSACTION, Cluster
from odradek.clients.errors import ClientError, RefusedError, code_of, describe_code
from odradek.clients.groups import FIRST_STABLE, FIRST_WITH_GROUPS, NEWEST_BY_NAME
from odradek.clients.wire import Connection
from odradek.mirror.routes import LaneOptions
from odradek.protocol.errors import ErrorCode
from odradek.protocol.schema import ApiSchema
from odradek.protocol.schemas import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    end_txn,
    init_producer_id,
    offset_commit,
    offset_fetch,
    txn_offset_commit,
)
from odradek.topic_partition import TopicPartition

NO_TRANSACTION_MS = (1 << 31) - 1
BY_CLIENTS = 3
"""The last version of AddPartitionsToTxn that clients send."""
WITHOUT_NEW_EPOCH = 4
"""The last versions of EndTxn and TxnOffsetCommit with which the client adds partitions, and keeps its epoch."""
WITH_PRODUCER = 3
"""The first version of InitProducerId that takes the present epoch, and so does not fence a newer owner."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.002, 0.1
FENCED = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    }
)
"""Errors after another owner of the transactional id began, or the coordinator aborted the transaction."""
AGAIN = frozenset(
    {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.UNSTABLE_OFFSET_COMMIT}
)
"""Errors of a coordinator that is not ready yet."""
OF_A_PARTITION = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
    }
)
"""The position of one partition is refused; those of others would be taken."""
OTHER_COORDINATOR = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})


class LaneFencedError(ClientError):
    """Another process has the lane's transactional id, or the target aborted the transaction for its age."""


class PositionRefusedError(RefusedError):
    """The target does not take the position of one partition. :param place: the partition of the target."""

    def __init__(self, code: int, place: TopicPartition) -> None:
        self.place = place
        super().__init__(code, what=f"the target refuses the position of {place[0]}-{place[1]}")


class Position(NamedTuple):
    """A committed position. :param offset: the next one of the source. :param metadata: of the commit."""

    offset: int
    metadata: str


class Producer(NamedTuple):
    """The identity of a producer; (-1, -1): none."""

    producer_id: int
    epoch: int


NO_PRODUCER = Producer(-1, -1)


class _Request(NamedTuple):
    """A request to a coordinator. :param newest: the last version that may be used; None: the last that both know."""

    api: ApiSchema
    message: Any
    newest: int | None


class Commits:
    """The coordinators' part of a session. Raises ClientError, LaneFencedError.

    :param control: connections to the target's brokers, for nothing else: no request waits behind batches.
    :param transactional_id: and `group_id`: of the lane, and of the positions of its flow.
    :param former: the identity from the lane's former session, NO_PRODUCER for its first one.
    :ivar producer: the identity of this session.
    """

    def __init__(
        self, control: Cluster, transactional_id: str, group_id: str, options: LaneOptions, former: Producer
    ) -> None:
        self._control = control
        self._transactional_id = transactional_id
        self._group_id = group_id
        self._options = options
        self._coordinators: dict[int, int] = {}
        self._in_transaction: set[TopicPartition] = set()
        self._offsets_added = False
        self._opened_at: float | None = None
        self.producer = self._begin(former)

    def _begin(self, former: Producer) -> Producer:
        """Fence former owners, and end their transaction; or only get an id for idempotent writes."""
        api, transactional = init_producer_id, self._options.exactly_once
        connection = self._control.any_broker()
        if not transactional and connection.serves(api.API_KEY) is None:
            return NO_PRODUCER
        newest = 4 if connection.version_of(api.SCHEMA) >= WITH_PRODUCER else None
        if transactional:
            self._abort(former)
        if newest is None or not transactional:
            former = NO_PRODUCER
        request = api.Request(
            transactional_id=self._transactional_id if transactional else None,
            transaction_timeout_ms=self._options.transaction_timeout_ms if transactional else NO_TRANSACTION_MS,
            producer_id=former.producer_id,
            producer_epoch=former.epoch,
        )
        if transactional:
            response = self._ask(
                TRANSACTION, [_Request(api.SCHEMA, request, newest)], lambda answer: [answer.error_code]
            )[0]
        else:
            response = connection.ask(api.SCHEMA, request, newest=newest)
        self.check(response.error_code, "InitProducerId")
        return Producer(response.producer_id, response.producer_epoch)

    def _abort(self, former: Producer) -> None:
        """Abort the open transaction of the lane's former session. Raises LaneFencedError if there is a newer owner."""
        if former == NO_PRODUCER:
            return
        request = end_txn.Request(
            transactional_id=self._transactional_id,
            producer_id=former.producer_id,
            producer_epoch=former.epoch,
            committed=False,
        )
        requests = [_Request(end_txn.SCHEMA, request, WITHOUT_NEW_EPOCH)]
        (answer,) = self._ask(TRANSACTION, requests, lambda answer: [answer.error_code])
        if answer.error_code in FENCED:
            raise LaneFencedError(
                f"the transactional id '{self._transactional_id}' has another owner, or the target aborted its transaction, "
                f"because it was open for longer than odradek.mirror.transaction.timeout.ms: {describe_code(answer.error_code)}"
            )
        if answer.error_code != ErrorCode.INVALID_TXN_STATE:  # no transaction is open
            self.check(answer.error_code, "EndTxn")

    def fence(self, transactional_id: str) -> None:
        """Fence the owner of another lane's transactional id, and abort its open transaction. Raises ClientError."""
        api = init_producer_id
        request = api.Request(
            transactional_id=transactional_id,
            transaction_timeout_ms=self._options.transaction_timeout_ms,
            producer_id=NO_PRODUCER.producer_id,
            producer_epoch=NO_PRODUCER.epoch,
        )
        answer = self._control.ask_coordinator(
            transactional_id, api.SCHEMA, request, lambda answer: [answer.error_code], kind=TRANSACTION, newest=4
        )
        if answer.error_code:
            raise RefusedError(answer.error_code, what=f"InitProducerId of '{transactional_id}' at the target")

    # -- positions ------------------------------------------------------------------------------------------------

    def positions(self, places: Iterable[TopicPartition]) -> tuple[dict[TopicPartition, Position], set[TopicPartition]]:
        """The committed positions of target partitions, without those that have none; and the partitions that are denied."""
        wanted: dict[str, list[int]] = {}
        for name, number in places:
            wanted.setdefault(name, []).append(number)
        if not wanted:
            return {}, set()
        connection = self._coordinator(GROUP)
        version = connection.version_of(offset_fetch.SCHEMA, oldest=1, newest=NEWEST_BY_NAME)
        make = offset_fetch.Request
        if version >= FIRST_WITH_GROUPS:
            topics = [
                make.OffsetFetchRequestTopics(name=name, partition_indexes=found) for name, found in wanted.items()
            ]
            groups = [make.OffsetFetchRequestGroup(group_id=self._group_id, topics=topics)]
            request = make(groups=groups, require_stable=True)
        else:
            old = [make.OffsetFetchRequestTopic(name=name, partition_indexes=found) for name, found in wanted.items()]
            # Older brokers do not return what an open transaction committed, and InitProducerId has ended the lane's.
            request = make(group_id=self._group_id, topics=old, require_stable=version >= FIRST_STABLE)
        answer = self._ask(GROUP, [_Request(offset_fetch.SCHEMA, request, version)], _codes_of_positions)[0]
        for code in _codes_of_positions(answer):
            if code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                self.check(code, f"OffsetFetch of the group '{self._group_id}'")
        group = answer.groups[0] if answer.groups else answer
        found = {(topic.name, part.partition_index): part for topic in group.topics for part in topic.partitions}
        committed = {
            place: Position(part.committed_offset, part.metadata or "")
            for place, part in found.items()
            if part.committed_offset >= 0 and not part.error_code
        }
        return committed, {place for place, part in found.items() if part.error_code}

    # -- the transaction ------------------------------------------------------------------------------------------

    def join(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, ErrorCode]:
        """Add partitions, and the group's offsets, to the transaction, in one round trip; nothing without exactly once.

        Returns the partitions that were refused: then the session must end.
        """
        if not self._options.exactly_once:
            return {}
        added = [place for place in places if place not in self._in_transaction]
        requests = [self._add_partitions(added)] if added else []
        if not self._offsets_added:
            requests.append(self._add_offsets())
        if not requests:
            return {}
        began = time.monotonic()
        answers = self._ask(TRANSACTION, requests, _codes_of_additions)
        if self._opened_at is None:
            self._opened_at = began
        codes = {code for answer in answers for code in _codes_of_additions(answer)}
        for code in sorted(codes & FENCED):
            self.check(code, "joining the transaction")
        refused = {
            (topic.name, result.partition_index): code_of(result.partition_error_code)
            for topic in (answers[0].results_by_topic_v3_and_below if added else ())
            for result in topic.results_by_partition
            if result.partition_error_code not in (ErrorCode.NONE, ErrorCode.OPERATION_NOT_ATTEMPTED)
        }
        if refused:
            return refused
        for number in sorted(codes):
            self.check(number, "joining the transaction")
        self._in_transaction.update(added)
        self._offsets_added = True
        return {}

    def _add_partitions(self, places: Iterable[TopicPartition]) -> _Request:
        make = add_partitions_to_txn.Request
        topics: dict[str, list[int]] = {}
        for name, number in places:
            topics.setdefault(name, []).append(number)
        request = make(
            v3_and_below_transactional_id=self._transactional_id,
            v3_and_below_producer_id=self.producer.producer_id,
            v3_and_below_producer_epoch=self.producer.epoch,
            v3_and_below_topics=[
                make.AddPartitionsToTxnTopic(name=name, partitions=numbers) for name, numbers in topics.items()
            ],
        )
        return _Request(add_partitions_to_txn.SCHEMA, request, BY_CLIENTS)

    def _add_offsets(self) -> _Request:
        request = add_offsets_to_txn.Request(
            transactional_id=self._transactional_id,
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.epoch,
            group_id=self._group_id,
        )
        return _Request(add_offsets_to_txn.SCHEMA, request, None)

    def commit(self, positions: Mapping[TopicPartition, Position], meanwhile: Callable[[], None]) -> None:
        """Commit what was written together with these positions. If this raises, the outcome is unknown.

        :param positions: by target partition. :param meanwhile: waits for the acknowledgements of all batches.
        """
        if self._options.exactly_once:
            self._commit_transaction(positions, meanwhile)
        else:
            meanwhile()
            self._commit_offsets(positions)

    def _commit_transaction(self, positions: Mapping[TopicPartition, Position], meanwhile: Callable[[], None]) -> None:
        if not self._offsets_added:
            self.join(())  # positions without records
        make = txn_offset_commit.Request
        request = make(
            transactional_id=self._transactional_id,
            group_id=self._group_id,
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.epoch,
            topics=_by_topic(positions, make.TxnOffsetCommitRequestTopic, make.TxnOffsetCommitRequestPartition),
        )
        api, newest = txn_offset_commit.SCHEMA, WITHOUT_NEW_EPOCH
        (answer,) = self._ask(GROUP, [_Request(api, request, newest)], _codes_of_commits, meanwhile)
        self._check_commits(answer)
        ended = end_txn.Request(
            transactional_id=self._transactional_id,
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.epoch,
            committed=True,
        )
        (end,) = self._ask(
            TRANSACTION, [_Request(end_txn.SCHEMA, ended, WITHOUT_NEW_EPOCH)], lambda answer: [answer.error_code]
        )
        self.check(end.error_code, "EndTxn")
        self._in_transaction.clear()
        self._offsets_added = False
        self._opened_at = None

    def _commit_offsets(self, positions: Mapping[TopicPartition, Position]) -> None:
        make = offset_commit.Request
        request = make(
            group_id=self._group_id,
            topics=_by_topic(positions, make.OffsetCommitRequestTopic, make.OffsetCommitRequestPartition),
        )
        (answer,) = self._ask(GROUP, [_Request(offset_commit.SCHEMA, request, NEWEST_BY_NAME)], _codes_of_commits)
        self._check_commits(answer)

    def _check_commits(self, answer: Any) -> None:
        for topic in answer.topics:
            for part in topic.partitions:
                if part.error_code in OF_A_PARTITION:
                    raise PositionRefusedError(part.error_code, (topic.name, part.partition_index))
                self.check(
                    part.error_code,
                    f"the position of {topic.name}-{part.partition_index} in the group '{self._group_id}'",
                )

    # -- coordinators ---------------------------------------------------------------------------------------------

    def _ask(
        self,
        kind: int,
        requests: Sequence[_Request],
        codes: Callable[[Any], Iterable[int]],
        meanwhile: Callable[[], None] | None = None,
    ) -> list[Any]:
        """Send requests (schema, request, newest version) to a coordinator, pipelined, and return the responses.

        Requests whose errors pass soon are sent again until the timeout. :param meanwhile: called before the responses are
        awaited.
        """
        backoff = Waits(FIRST_PAUSE_S, LONGEST_PAUSE_S, self._options.request_timeout_s)
        while True:
            connection = self._coordinator(kind)
            for api, request, newest in requests:
                connection.send(api, request, version=connection.version_of(api, newest=newest))
            if meanwhile is not None:
                meanwhile()
            answers = [connection.receive() for _ in requests]
            found = {code for answer in answers for code in codes(answer)}
            if not found & (AGAIN | OTHER_COORDINATOR) or not backoff.wait():
                return answers
            if found & OTHER_COORDINATOR:
                del self._coordinators[kind]

    def _coordinator(self, kind: int) -> Connection:
        if kind not in self._coordinators:
            name = self._transactional_id if kind == TRANSACTION else self._group_id
            self._coordinators[kind] = self._control.coordinator_of(name, kind)
        return self._control.broker(self._coordinators[kind])

    def fenced(self, reason: str) -> LaneFencedError:
        """The error after the target has answered with one of FENCED. :param reason: of the broker.

        The codes do not tell another owner from the timeout of a transaction, which also increments the epoch.
        """
        name, limit_ms = f"the transactional id '{self._transactional_id}'", self._options.transaction_timeout_ms
        open_s = 0.0 if self._opened_at is None else time.monotonic() - self._opened_at
        if open_s * 1000 >= limit_ms:
            return LaneFencedError(
                f"the target aborted the transaction of {name}, which was open for {open_s:.1f} s; a transaction may be open "
                f"for {limit_ms / 1000:g} s (odradek.mirror.transaction.timeout.ms): the source or the target was slow "
                f"({reason})"
            )
        return LaneFencedError(f"{name} has another owner: {reason}")

    def check(self, code: int, what: str) -> None:
        """Raise the error for a request of a coordinator that has an error code."""
        if code in FENCED:
            raise self.fenced(describe_code(code))
        if code:
            raise RefusedError(code, what=f"{what} at the target")


def _by_topic(positions: Mapping[TopicPartition, Position], make_topic: Any, make_partition: Any) -> list[Any]:
    topics: dict[str, list[Any]] = {}
    for (name, number), position in positions.items():
        topics.setdefault(name, []).append(
            make_partition(
                partition_index=number, committed_offset=position.offset, committed_metadata=position.metadata
            )
        )
    return [make_topic(name=name, partitions=partitions) for name, partitions in topics.items()]


def _codes_of_positions(answer: Any) -> list[int]:
    groups = answer.groups or [answer]
    codes = [group.error_code for group in groups]
    return codes + [part.error_code for group in groups for topic in group.topics for part in topic.partitions]


def _codes_of_additions(answer: Any) -> list[int]:
    topics = getattr(answer, "results_by_topic_v3_and_below", ())
    codes = [result.partition_error_code for topic in topics for result in topic.results_by_partition]
    return [*codes, answer.error_code]


def _codes_of_commits(answer: Any) -> list[int]:
    return [part.error_code for topic in answer.topics for part in topic.partitions]
