"""A transactional producer that speaks the protocol itself, in both of its forms, and records what it did.

Transaction version 1 (TV1), as librdkafka and Java clients up to 3.9: AddPartitionsToTxn before the first record of
each partition, AddOffsetsToTxn, EndTxn up to 4, Produce below 12; the epoch stays. Version 2 (TV2, KIP-890), as Java
clients from 4.0 and franz-go: Produce 12 and TxnOffsetCommit 5 add partitions by themselves, and EndTxn 5 answers the
epoch of the next transaction.

Requests to coordinators go over connections of their own, as librdkafka's. A request without an answer is sent again
on a new connection, and the records keep their sequence numbers. Each producer belongs to one thread.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    end_txn,
    init_producer_id,
    produce,
    txn_offset_commit,
)
from odradek.storage.batch import TRANSACTIONAL, Record, build_batch
from tests.transactions.checker.history import Outcome, Place, Transaction, Value, Write
from tests.transactions.wire_calls import (
    GROUP,
    TRANSACTION,
    Address,
    Calls,
    Connections,
    LostError,
    NotSentError,
    RefusedError,
    Routes,
    Timing,
    TooLateError,
)

ALL = -1
RING_OF_SEQUENCES = 1 << 31


class Versions(NamedTuple):
    """The versions of requests that a producer sends."""

    init: int
    add_partitions: int | None
    add_offsets: int | None
    offset_commit: int
    produce: int
    end: int


VERSIONS = {1: Versions(4, 3, 3, 3, 9, 3), 2: Versions(5, None, None, 5, 12, 5)}
"""By transaction version: the newest ones."""
OLDEST = Versions(1, 0, 0, 0, 3, 1)
"""Those of librdkafka, of what it can send."""


class WireProducer:
    """One instance of a transactional producer."""

    def __init__(
        self,
        routes: Routes,
        transactional_id: str,
        transaction_version: int,
        timing: Timing,
        transaction_timeout_ms: int = 60_000,
        versions: Versions | None = None,
    ) -> None:
        self.transactional_id = transactional_id
        self.producer_id, self.epoch = -1, -1
        self.timeout_ms = transaction_timeout_ms
        self.versions = versions or VERSIONS[transaction_version]
        self.coordinator_connections = Connections(timing.answer_s)
        self.leader_connections = Connections(timing.answer_s)
        self._second_version = transaction_version == 2
        self._routes = routes
        self._calls = Calls(routes, timing)
        self._sequences: dict[Place, int] = {}
        self._added: set[Place | str] = set()
        self._lost_sequence = False  # a record was not acknowledged: the epoch must be bumped before the next one
        self._open: Transaction | None = None

    @property
    def open(self) -> Transaction | None:
        """The open transaction."""
        return self._open

    @property
    def timing(self) -> Timing:
        """How long the producer waits for answers, and how long it repeats a request."""
        return self._calls.timing

    @timing.setter
    def timing(self, timing: Timing) -> None:
        self._calls.timing = timing

    def close(self) -> None:
        """Close all connections, without an end of the transaction."""
        self.coordinator_connections.close()
        self.leader_connections.close()
        self._routes.close()

    # -- beginning -----------------------------------------------------------------------------------------------------

    def init(self) -> None:
        """Fence other instances and end their transaction. Raises RefusedError or TooLateError."""
        self._init(-1, -1)

    def _init(self, producer_id: int, epoch: int) -> None:
        fields = {} if self.versions.init < 3 else {"producer_id": producer_id, "producer_epoch": epoch}
        request = init_producer_id.Request(
            transactional_id=self.transactional_id, transaction_timeout_ms=self.timeout_ms, **fields
        )
        answer = self._coordinate(request, init_producer_id.API_KEY, self.versions.init)
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self._sequences.clear()
        self._lost_sequence = False

    def begin(self, number: int) -> Transaction:
        """Begin a transaction, which tells the broker nothing."""
        self._added.clear()
        self._open = Transaction(number, self.transactional_id)
        return self._open

    # -- writing -------------------------------------------------------------------------------------------------------

    def write(self, place: Place, count: int = 1, inputs: tuple[Value, ...] = ()) -> list[Write]:
        """Append records in one batch, each of a value of its own. Raises RefusedError or TooLateError: then only
        `abort` helps.
        """
        assert self._open is not None
        first = len(self._open.writes)
        writes = [Write(place, Value(self._open.number, first + n), None, *inputs[n : n + 1]) for n in range(count)]
        if self.versions.add_partitions is not None and place not in self._added:
            self._add(place)
        self._open.writes += writes
        try:
            base = self._append(place, writes)
        except (RefusedError, TooLateError):
            self._lost_sequence = True
            raise
        for index, write in enumerate(writes):
            write.offset = base + index if base >= 0 else -1
        return writes

    def _append(self, place: Place, writes: list[Write]) -> int:
        request = self.produce_request(place, writes)

        def codes(answer: Any) -> list[int]:
            return [answer.responses[0].partition_responses[0].error_code]

        answer = self._calls.until_final(
            f"Produce to {place}",
            lambda: self._routes.leader(place),
            self.leader_connections,
            (request, produce.API_KEY, self.versions.produce),
            codes,
            accepted=[ErrorCode.DUPLICATE_SEQUENCE_NUMBER],
        )
        self._sequences[place] = (self._sequences.get(place, 0) + len(writes)) % RING_OF_SEQUENCES
        part = answer.responses[0].partition_responses[0]
        return -1 if part.error_code else part.base_offset

    def produce_request(self, place: Place, writes: list[Write]) -> Any:
        """The Produce request for the next records of a partition."""
        now = int(time.time() * 1000)
        data = build_batch(
            [Record(None, write.value.encode(), now) for write in writes],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=self._sequences.get(place, 0),
            attributes=TRANSACTIONAL,
        )
        make = produce.Request
        topic = make.TopicProduceData(
            name=place.topic, partition_data=[make.PartitionProduceData(index=place.partition, records=data)]
        )
        return make(transactional_id=self.transactional_id, acks=ALL, timeout_ms=10_000, topic_data=[topic])

    def _add(self, place: Place) -> None:
        make = add_partitions_to_txn.Request
        request = make(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[make.AddPartitionsToTxnTopic(name=place.topic, partitions=[place.partition])],
        )

        def codes(answer: Any) -> list[int]:
            (topic,) = answer.results_by_topic_v3_and_below
            return [one.partition_error_code for one in topic.results_by_partition]

        self._coordinate(request, add_partitions_to_txn.API_KEY, self.versions.add_partitions or 0, codes)
        self._added.add(place)

    def send_offsets(self, group: str, offsets: Mapping[Place, int]) -> None:
        """Commit offsets of a group in the transaction, as a client that assigns itself partitions. Raises as
        `write`.
        """
        if self.versions.add_offsets is not None and group not in self._added:
            request = add_offsets_to_txn.Request(
                transactional_id=self.transactional_id,
                producer_id=self.producer_id,
                producer_epoch=self.epoch,
                group_id=group,
            )
            self._coordinate(request, add_offsets_to_txn.API_KEY, self.versions.add_offsets)
            self._added.add(group)

        def codes(answer: Any) -> list[int]:
            return [one.error_code for topic in answer.topics for one in topic.partitions]

        self._calls.until_final(
            f"TxnOffsetCommit of {group}",
            lambda: self._routes.coordinator(GROUP, group),
            self.coordinator_connections,
            (self.offset_commit_request(group, offsets), txn_offset_commit.API_KEY, self.versions.offset_commit),
            codes,
        )

    def offset_commit_request(self, group: str, offsets: Mapping[Place, int]) -> Any:
        """The TxnOffsetCommit request for offsets."""
        make = txn_offset_commit.Request
        topics: dict[str, list[Any]] = {}
        for place, offset in offsets.items():
            one = make.TxnOffsetCommitRequestPartition(
                partition_index=place.partition, committed_offset=offset, committed_metadata=""
            )
            topics.setdefault(place.topic, []).append(one)
        return make(
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[make.TxnOffsetCommitRequestTopic(name=name, partitions=parts) for name, parts in topics.items()],
            **({"member_id": ""} if self.versions.offset_commit >= 3 else {}),
        )

    # -- ending --------------------------------------------------------------------------------------------------------

    def commit(self) -> None:
        """Commit. Sets the outcome of the transaction; raises RefusedError or TooLateError if it is not a commit."""
        transaction = self._take()
        if not transaction.writes and not self._added:
            transaction.outcome = Outcome.COMMITTED  # as all clients: there is nothing to say to the broker
            return
        transaction.commit_sent_ns = time.monotonic_ns()
        try:
            self._end(True)
        except (RefusedError, TooLateError) as error:
            transaction.outcome = Outcome.UNKNOWN if error.undecided else Outcome.ABORTED
            transaction.note = str(error)
            raise
        transaction.outcome = Outcome.COMMITTED

    def abort(self, new_epoch: bool = True) -> None:
        """Abort. Raises RefusedError or TooLateError: `init` helps.

        :param new_epoch: whether to ask for a new epoch if records were not acknowledged, as clients do since KIP-360.
        """
        transaction = self._take()
        if transaction.writes or self._added or self._lost_sequence:
            self._end(False)
        if self._lost_sequence and new_epoch and not self._second_version:
            self._init(self.producer_id, self.epoch)
        self._lost_sequence = False

    def _take(self) -> Transaction:
        assert self._open is not None
        taken, self._open = self._open, None
        return taken

    def end_request(self, committed: bool) -> Any:
        """The EndTxn request."""
        return end_txn.Request(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=committed,
        )

    def _end(self, committed: bool) -> None:
        answer = self._coordinate(self.end_request(committed), end_txn.API_KEY, self.versions.end)
        if self._second_version:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self._sequences.clear()

    # -- dying ---------------------------------------------------------------------------------------------------------

    def send_end(self, committed: bool) -> None:
        """Send an EndTxn whose answer will not be read: as a client that dies just then."""
        transaction = self._take()
        if committed:
            transaction.commit_sent_ns = time.monotonic_ns()
            transaction.outcome = Outcome.UNKNOWN
        with suppress(LostError, NotSentError):
            self.coordinator_connections.send(
                self._coordinator(), self.end_request(committed), end_txn.API_KEY, self.versions.end
            )

    def send_write(self, place: Place) -> None:
        """Append a record by a request whose answer will not be read: as a client that dies just then. Raises as
        `write`.
        """
        assert self._open is not None
        write = Write(place, Value(self._open.number, len(self._open.writes)))
        if self.versions.add_partitions is not None and place not in self._added:
            self._add(place)
        self._open.writes.append(write)
        with suppress(LostError, NotSentError):
            request = self.produce_request(place, [write])
            self.leader_connections.send(self._routes.leader(place), request, produce.API_KEY, self.versions.produce)

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _coordinator(self) -> Address:
        return self._routes.coordinator(TRANSACTION, self.transactional_id)

    def _coordinate(self, request: Any, api_key: int, version: int, codes: Any = None) -> Any:
        return self._calls.until_final(
            f"{type(request).__name__} of {self.transactional_id}",
            self._coordinator,
            self.coordinator_connections,
            (request, api_key, version),
            codes or (lambda answer: [answer.error_code]),
        )
