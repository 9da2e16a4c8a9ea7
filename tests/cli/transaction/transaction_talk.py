"""Requests of transactional producers over the wire, of transaction version 1, for the tests of the command."""

import time
from typing import Any

from odradek.protocol.errors import ErrorCode
from odradek.protocol.schemas import add_partitions_to_txn, end_txn, find_coordinator, init_producer_id, produce
from odradek.storage.batch import TRANSACTIONAL
from tests.waiting import until
from tests.wire import Wire, batch, produce_request

BUSY = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)
FIND_VERSION, INIT_VERSION, ADD_VERSION, END_VERSION, PRODUCE_VERSION = 4, 4, 3, 3, 9
TRANSACTION = 1


class TransactionTalk(Wire):
    """A connection to a cluster of one broker, over which producers of several transactional ids speak."""

    def init(self, transactional_id: str, timeout_ms: int = 60_000) -> tuple[int, int]:
        """The producer id and epoch of the id. Waits while the coordinator is not ready."""
        request = init_producer_id.Request(
            transactional_id=transactional_id, transaction_timeout_ms=timeout_ms, producer_id=-1, producer_epoch=-1
        )
        answers: list[Any] = []

        find = find_coordinator.Request(key_type=TRANSACTION, coordinator_keys=[transactional_id])

        def answered() -> bool:
            self.ask(find, find_coordinator.API_KEY, FIND_VERSION)  # the first one creates __transaction_state
            answers.append(self.ask(request, init_producer_id.API_KEY, INIT_VERSION))
            return answers[-1].error_code not in BUSY

        until(answered, "the coordinator answers InitProducerId")
        assert answers[-1].error_code == 0, answers[-1]
        return answers[-1].producer_id, answers[-1].producer_epoch

    def refused(self, transactional_id: str, timeout_ms: int) -> int:
        """The error code for a producer with this transaction timeout."""
        request = init_producer_id.Request(
            transactional_id=transactional_id, transaction_timeout_ms=timeout_ms, producer_id=-1, producer_epoch=-1
        )
        return int(self.ask(request, init_producer_id.API_KEY, INIT_VERSION).error_code)

    def add(self, transactional_id: str, producer: tuple[int, int], topic: str, *partitions: int) -> None:
        """Add partitions to the transaction of the id."""
        make = add_partitions_to_txn.Request
        request = make(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=producer[0],
            v3_and_below_producer_epoch=producer[1],
            v3_and_below_topics=[make.AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))],
        )

        def added() -> bool:
            (result,) = self.ask(request, add_partitions_to_txn.API_KEY, ADD_VERSION).results_by_topic_v3_and_below
            codes = {partition.partition_error_code for partition in result.results_by_partition}
            assert codes <= {0, *BUSY}, result
            return codes == {0}

        until(added, "the partitions are added")

    def write(
        self,
        transactional_id: str,
        producer: tuple[int, int],
        topic: str,
        partition: int,
        sequence: int = 0,
        ago_ms: int = 0,
        version: int = PRODUCE_VERSION,
    ) -> int:
        """Append a transactional record with a timestamp of `ago_ms` ago; its offset. From version 12 on, that adds the
        partition to the transaction."""
        records = batch(
            timestamp=int(time.time() * 1000) - ago_ms,
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=sequence,
            attributes=TRANSACTIONAL,
        )
        request = produce_request([(topic, [(partition, records)])])
        request.transactional_id = transactional_id
        response = self.ask(request, produce.API_KEY, version)
        (answer,) = response.responses[0].partition_responses
        assert answer.error_code == 0, answer
        return int(answer.base_offset)

    def end(self, transactional_id: str, producer: tuple[int, int], commits: bool) -> int:
        """Commit or abort; the error code."""
        request = end_txn.Request(
            transactional_id=transactional_id, producer_id=producer[0], producer_epoch=producer[1], committed=commits
        )
        return int(self.ask(request, end_txn.API_KEY, END_VERSION).error_code)

    def open(self, transactional_id: str, topic: str, *partitions: int, timeout_ms: int = 60_000) -> tuple[int, int]:
        """Begin a transaction and write a record to each partition; the producer."""
        producer = self.init(transactional_id, timeout_ms)
        self.add(transactional_id, producer, topic, *partitions)
        for partition in partitions:
            self.write(transactional_id, producer, topic, partition)
        return producer
