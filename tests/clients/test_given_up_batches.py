"""A batch that an application gave up by an abort after its connection was lost: librdkafka uses its sequence for the next one.

The batch may be in the log. If the broker called the next one a duplicate, its record would be acknowledged and committed, and
be nowhere: that is what happens with Kafka.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from odradek.protocol.schemas import produce
from odradek.testing.broker_process import Broker
from tests.frame_relay import FORWARD, Fate, Frame, FrameRelay
from tests.markers import wait_for_markers
from tests.waiting import PATIENCE_S

RETRY_MS = 10_000
"""Long enough that nothing is sent again before the abort, which waits for it, too."""


class Writer:
    """A transactional producer on a connection that a test can cut, and what it knows of its queue."""

    def __init__(self, servers: str) -> None:
        self.waiting = self.in_flight = 0
        self.noted_s = 0.0  # when the client took these numbers (monotonic clock), which may be seen late
        self.delivered: list[tuple[KafkaError | None, int | None]] = []
        self.producer = Producer(
            {
                "bootstrap.servers": servers,
                "transactional.id": "writer",
                "linger.ms": 0,
                "retry.backoff.ms": RETRY_MS,
                "retry.backoff.max.ms": RETRY_MS,
                "reconnect.backoff.ms": 20,
                "statistics.interval.ms": 20,
                "stats_cb": self._note,
                "error_cb": lambda error: None,
                "log_level": 0,
            }
        )

    def _note(self, text: str) -> None:
        statistics = json.loads(text)
        partition = statistics["topics"].get("t", {}).get("partitions", {}).get("0", {})
        self.noted_s = statistics["ts"] / 1e6
        self.waiting = partition.get("msgq_cnt", 0) + partition.get("xmit_msgq_cnt", 0)
        self.in_flight = partition.get("msgs_inflight", 0)

    def write(self, value: bytes) -> None:
        self.producer.produce("t", value, partition=0, on_delivery=self._delivered)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        self.delivered.append((error, None if error else message.offset()))

    def poll_until(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < end, "the producer did not come to the expected state"
            self.producer.poll(0.02)


def read_committed(servers: str) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "reader",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition("t", 0, 0)])
    values = []
    try:
        while (message := consumer.poll(PATIENCE_S)) is not None and message.error() is None:
            values.append(message.value())
        assert message is not None and message.error().code() == KafkaError._PARTITION_EOF
    finally:
        consumer.close()
    return values


@pytest.mark.timeout(300)
def test_no_record_is_acknowledged_in_place_of_a_batch_that_was_given_up() -> None:
    lost: list[float] = []

    def lose_one_answer(frame: Frame) -> Fate:
        if frame.api_key == produce.API_KEY and not lost:
            lost.append(time.monotonic())
            return Fate(cut=True)
        return FORWARD

    with FrameRelay() as relay:
        servers = f"127.0.0.1:{relay.port}"
        with Broker({"advertised.listeners": f"PLAINTEXT://{servers}"}, {"t": 1}) as broker:
            relay.server_port = broker.port
            writer = Writer(servers)
            producer = writer.producer
            producer.init_transactions(PATIENCE_S)
            producer.begin_transaction()
            writer.write(b"first")
            producer.commit_transaction(PATIENCE_S)

            relay.rule = lose_one_answer
            producer.begin_transaction()
            writer.write(b"given up")
            writer.poll_until(lambda: bool(lost))
            writer.poll_until(lambda: writer.noted_s > lost[0] and writer.waiting == 1 and writer.in_flight == 0)
            producer.abort_transaction(PATIENCE_S)
            assert writer.delivered[1][0] is not None

            producer.begin_transaction()
            writer.write(b"second")
            with pytest.raises(KafkaException) as raised:
                producer.commit_transaction(PATIENCE_S)
            assert raised.value.args[0].txn_requires_abort()
            assert writer.delivered[2][0].code() == KafkaError.INVALID_TXN_STATE  # type: ignore[union-attr]
            producer.abort_transaction(PATIENCE_S)

            producer.begin_transaction()
            writer.write(b"second")
            producer.commit_transaction(PATIENCE_S)
            assert writer.delivered[3][0] is None
            wait_for_markers(servers, "t")
            assert read_committed(servers) == [b"first", b"second"]
