"""Clients that write to a broker while it is backed up, and remember what was acknowledged; and a reader of whole logs."""

import itertools
import threading
from collections.abc import Iterator

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition

PLAIN, TABLE, LEFT, RIGHT = "orders", "customers", "left", "right"
PARTITIONS = 2
KEYS = 40
COPIER, READERS = "copier", "readers"
FLUSH_EVERY = 50
PAUSE_S = 0.01
"""Between two portions of records, so that the load leaves time for others."""
ABORT_EVERY = 5


class Writer:
    """Something that runs in a thread until it is stopped; `check` raises what it raised."""

    def __init__(self, servers: str) -> None:
        self.servers = servers
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=type(self).__name__)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        self.check()

    def check(self) -> None:
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self.work(self._numbers())
        except BaseException as error:  # raised again by `check`
            self._error = error

    def _numbers(self) -> Iterator[int]:
        for number in itertools.count():
            if self._stop.is_set():
                return
            yield number

    def work(self, numbers: Iterator[int]) -> None:
        raise NotImplementedError


class Records(Writer):
    """Writes to `topic`. `written`: value by (partition, offset), acknowledged; `keys`: the keys of the records."""

    def __init__(self, servers: str, topic: str, partitions: int) -> None:
        super().__init__(servers)
        self.topic, self.partitions = topic, partitions
        self.written: dict[tuple[int, int], tuple[bytes, bytes]] = {}

    def work(self, numbers: Iterator[int]) -> None:
        producer = Producer({"bootstrap.servers": self.servers, "enable.idempotence": True, "linger.ms": 0})

        def acknowledged(error: KafkaError | None, message) -> None:
            if error is not None:
                raise KafkaException(error)
            self.written[message.partition(), message.offset()] = (message.key(), message.value())

        for number in numbers:
            key, value = b"%d" % (number % KEYS), b"%d-" % number + b"x" * 200
            producer.produce(self.topic, value, key, partition=number % self.partitions, on_delivery=acknowledged)
            if number % FLUSH_EVERY == 0:
                producer.flush()
                self._stop.wait(PAUSE_S)
        producer.flush()


class Transactions(Writer):
    """Writes each number to two topics, and its successor as the offset of a group, in one transaction; aborts every fifth one.
    `committed`: the numbers of acknowledged transactions; `tried`: of those that may be committed."""

    def __init__(self, servers: str) -> None:
        super().__init__(servers)
        self.committed: list[int] = []
        self.tried: list[int] = []

    def work(self, numbers: Iterator[int]) -> None:
        producer = Producer({"bootstrap.servers": self.servers, "transactional.id": "copier", "linger.ms": 0})
        producer.init_transactions()
        group = Consumer({"bootstrap.servers": self.servers, "group.id": COPIER}).consumer_group_metadata()
        for number in numbers:
            producer.begin_transaction()
            producer.produce(LEFT, b"%d" % number, partition=0)
            producer.produce(RIGHT, b"%d" % number, partition=number % PARTITIONS)
            if number % ABORT_EVERY == 0:
                producer.abort_transaction()
                continue
            producer.send_offsets_to_transaction([TopicPartition(PLAIN, 0, number + 1)], group)
            self.tried.append(number)
            producer.commit_transaction()
            self.committed.append(number)


class Reader(Writer):
    """Reads a topic in a group, and commits. `committed`: acknowledged offsets by partition."""

    def __init__(self, servers: str, topic: str) -> None:
        super().__init__(servers)
        self.topic = topic
        self.committed: dict[int, int] = {}

    def work(self, numbers: Iterator[int]) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": READERS,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe([self.topic])
        try:
            for _ in numbers:
                if [message for message in consumer.consume(100, timeout=0.2) if message.error() is None]:
                    for place in consumer.commit(asynchronous=False) or ():
                        self.committed[place.partition] = place.offset
        finally:
            consumer.close()


def read_all(servers: str, topic: str, partitions: int, *, committed: bool = True) -> dict[tuple[int, int], tuple]:
    """(key, value) by (partition, offset) of all records of a topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "nobody",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
        }
    )
    found: dict[tuple[int, int], tuple] = {}
    try:
        consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(partitions)])
        ended: set[int] = set()
        while len(ended) < partitions:
            for message in consumer.consume(500, timeout=0.1):
                error = message.error()
                if error is None:
                    found[message.partition(), message.offset()] = (message.key(), message.value())
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended.add(message.partition())
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()
    return found


def committed_offsets(servers: str, group: str, topic: str, partitions: int) -> dict[int, int]:
    """The committed offsets of a group, by partition; partitions without one are missing."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": group})
    try:
        places = consumer.committed([TopicPartition(topic, partition) for partition in range(partitions)], timeout=30)
        return {place.partition: place.offset for place in places if place.offset >= 0}
    finally:
        consumer.close()


def watermarks(servers: str, topic: str, partition: int) -> tuple[int, int]:
    """The first offset of a partition and its high watermark."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "nobody"})
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
        return low, high
    finally:
        consumer.close()
