"""Producers that continue through all faults of the broker, and record the responses."""

import threading
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from tests.faults.checker import RecordId, encode_id

BURST = 30
PAUSE_S = 0.005
MOST_UNDER_WAY = 2000
VALUE = b"a record's value, of some length so that segments roll " * 6


class LoadProducer:
    """One producer in a thread of its own; records go to the partitions in turn, paced, until `finish`.

    :param burst: how many records it sends every `PAUSE_S` seconds.
    """

    def __init__(
        self, name: str, bootstrap_servers: str, topic: str, partitions: int, idempotent: bool, burst: int = BURST
    ) -> None:
        self.name = name
        self._burst = burst
        self.idempotent = idempotent
        self.acknowledged: dict[RecordId, tuple[int, int]] = {}
        self.failed: list[tuple[RecordId, str]] = []
        self.fatal: list[str] = []
        self.sent = 0
        self._topic = topic
        self._partitions = partitions
        self._ending = threading.Event()
        settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap_servers,
            "acks": "all",
            "enable.idempotence": idempotent,
            "max.in.flight.requests.per.connection": 5,
            "linger.ms": 0,
            "batch.num.messages": 3,  # many requests, so that some are always under way when a process dies
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "retry.backoff.ms": 20,
            "retry.backoff.max.ms": 200,
            "socket.timeout.ms": 20_000,
            "message.timeout.ms": 120_000,
            "error_cb": self._error,
            "log_level": 0,
        }
        self._producer = Producer(settings)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def finish(self, timeout_s: float = 120.0) -> int:
        """Send no more and wait for requests in flight; return the number of records without response."""
        self._ending.set()
        self._thread.join(timeout_s)
        return int(self._producer.flush(timeout_s))

    def abandon(self, timeout_s: float = 30.0) -> None:
        """Send no more and abandon requests in flight: their outcome is unknown, and they are not retried."""
        self._ending.set()
        self._thread.join(timeout_s)
        self._producer.purge(in_queue=True, in_flight=True, blocking=False)
        self._producer.flush(timeout_s)

    def _error(self, error: KafkaError) -> None:
        if error.fatal() or error.code() == KafkaError._FATAL:
            self.fatal.append(str(error))

    def _run(self) -> None:
        while not self._ending.wait(PAUSE_S):
            for _ in range(self._burst if len(self._producer) < MOST_UNDER_WAY else 0):
                record = (self.name, self.sent)
                self._producer.produce(
                    self._topic,
                    VALUE,
                    encode_id(record),
                    partition=self.sent % self._partitions,
                    on_delivery=self._delivered(record),
                )
                self.sent += 1
            self._producer.poll(0)

    def _delivered(self, record: RecordId) -> Callable[[KafkaError | None, Message], None]:
        def told(error: KafkaError | None, message: Message) -> None:
            if error is None:
                offset = message.offset()  # None: the broker recognised a repeated batch without knowing its offset
                self.acknowledged[record] = (message.partition(), -1 if offset is None else offset)
            else:
                self.failed.append((record, str(error)))

        return told


class Load:
    """Several producers at once, as a context; `progress` waits for them."""

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        partitions: int,
        idempotent: int,
        plain: int,
        prefix: str = "",
        burst: int = BURST,
    ) -> None:
        kinds = [(f"{prefix}idempotent-{n}", True) for n in range(idempotent)]
        kinds += [(f"{prefix}plain-{n}", False) for n in range(plain)]
        self.producers = [LoadProducer(name, bootstrap_servers, topic, partitions, one, burst) for name, one in kinds]

    def __enter__(self) -> "Load":
        return self

    def __exit__(self, *_: object) -> None:
        for producer in self.producers:
            producer._ending.set()

    def acknowledged(self) -> int:
        """How many records, of all producers."""
        return sum(len(producer.acknowledged) for producer in self.producers)

    def describe(self) -> str:
        """How far each producer is."""
        lines = [f"{one.name}: {one.sent} sent, {len(one.acknowledged)} acknowledged" for one in self.producers]
        return "\n".join(lines)

    def progress(self, records: int, timeout_s: float = 90.0) -> float:
        """Wait until every producer got `records` more acknowledgements; the seconds it took. Raises TimeoutError."""
        began = time.monotonic()
        wanted = {producer: len(producer.acknowledged) + records for producer in self.producers}
        pause = threading.Event()
        while late := [one.name for one, count in wanted.items() if len(one.acknowledged) < count]:
            if time.monotonic() - began > timeout_s:
                raise TimeoutError(f"no {records} acknowledgements within {timeout_s:g} s for {late}")
            pause.wait(0.005)
        return time.monotonic() - began

    def abandon(self) -> None:
        """Stop; unacknowledged records may be stored or not."""
        for producer in self.producers:
            producer.abandon()

    def finish(self) -> None:
        """Stop after all requests in flight are answered."""
        for producer in self.producers:
            left = producer.finish()
            assert left == 0, f"{left} records of {producer.name} were never answered"
