"""The clients of a chaos run. Each runs in its own thread, retries requests that a fault may fail, and records errors."""

import contextlib
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.faults.chaos.stream_checker import StreamChecker
from tests.faults.checker import decode_id, encode_id

ANSWER_S = 600
"""How long a producer retries a record: longer than any fault lasts."""
VALUE = b"a record of a chaos run " * 8
QUICK = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 500,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 500,
    "log_level": 0,
}
PRODUCER = QUICK | {"acks": "all", "enable.idempotence": True, "linger.ms": 1, "message.timeout.ms": ANSWER_S * 1000}
CONSUMER = QUICK | {
    "enable.auto.commit": False,
    "auto.offset.reset": "error",
    "check.crcs": True,
    "fetch.wait.max.ms": 50,
}


class Client:
    """A thread that calls `step` until the run ends. An exception that escapes is a fault of the run."""

    def __init__(self, name: str, bootstrap_servers: str) -> None:
        self.name = name
        self.bootstrap_servers = bootstrap_servers
        self.faults: list[str] = []
        self.steps = 0
        self.ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self, timeout_s: float = ANSWER_S) -> None:
        """Ask the thread to end and wait for it."""
        self.ending.set()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            self.faults.append(f"{self.name} did not end within {timeout_s} s")

    def step(self) -> None:
        """One round of work."""
        raise NotImplementedError

    def close(self) -> None:
        """Called in the thread after the last step."""

    def _run(self) -> None:
        try:
            while not self.ending.is_set():
                self.step()
                self.steps += 1
            self.close()
        except Exception:
            self.faults.append(f"{self.name}: {traceback.format_exc()}")


class StreamProducer(Client):
    """An idempotent producer of numbered records, at most `per_second`."""

    def __init__(
        self, name: str, bootstrap_servers: str, topic: str, partitions: int, per_second: int, checker: StreamChecker
    ) -> None:
        super().__init__(name, bootstrap_servers)
        self.sent = 0
        self._topic, self._partitions, self._checker = topic, partitions, checker
        self._burst = max(1, per_second // 50)
        self._producer = Producer(PRODUCER | {"bootstrap.servers": bootstrap_servers, "error_cb": self._error})

    def step(self) -> None:
        for _ in range(self._burst if len(self._producer) < 2000 else 0):
            record = (self.name, self.sent)
            partition = self.sent % self._partitions
            self._producer.produce(
                self._topic, VALUE, encode_id(record), partition=partition, on_delivery=self._delivered
            )
            self.sent += 1
        self._producer.poll(0)
        self.ending.wait(0.02)  # paces the load

    def close(self) -> None:
        if left := self._producer.flush(ANSWER_S):
            self.faults.append(f"{self.name}: {left} records were never answered")

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        record = decode_id(message.key())
        if error is None:
            self._checker.acknowledge(record, message.partition(), message.offset())
        else:
            self.faults.append(f"{self.name}: {record} failed: {error}")

    def _error(self, error: KafkaError) -> None:
        if error.fatal():
            self.faults.append(f"{self.name}: fatal error: {error}")


class StreamReader(Client):
    """Reads every record of the topic in order and reports it to the checker."""

    def __init__(self, bootstrap_servers: str, topic: str, partitions: int, checker: StreamChecker) -> None:
        super().__init__("stream reader", bootstrap_servers)
        self._checker = checker
        self._consumer = Consumer(CONSUMER | {"bootstrap.servers": bootstrap_servers, "group.id": "not joined"})
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])

    def step(self) -> None:
        for message in self._consumer.consume(5000, 0.2):
            error = message.error()
            if error is None:
                self._checker.read(message.partition(), message.offset(), decode_id(message.key()))
            elif not error.retriable() and error.code() not in TRANSIENT:
                self.faults.append(f"{self.name}: {error}")

    def close(self) -> None:
        self._consumer.close()


TRANSIENT = {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._WAIT_COORD,
    KafkaError._STATE,
    KafkaError._MAX_POLL_EXCEEDED,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError.REQUEST_TIMED_OUT,
}


class Progress:
    """The offset up to which members of a group have processed each partition; shared by the group's members."""

    def __init__(self, partitions: int) -> None:
        self._lock = threading.Lock()
        self._next = [0] * partitions

    def process(self, partition: int, offset: int) -> str | None:
        """Note a processed record; a line if records before it were never delivered to the group."""
        with self._lock:
            expected = self._next[partition]
            self._next[partition] = max(expected, offset + 1)
            return None if offset <= expected else f"group: partition {partition}: offset {offset} after {expected - 1}"

    def position(self, partition: int) -> int:
        """Everything before it was delivered to the group."""
        with self._lock:
            return self._next[partition]


class GroupMember(Client):
    """A member of a consumer group that commits what it processed: no record may be skipped."""

    def __init__(self, name: str, bootstrap_servers: str, topic: str, protocol: str, progress: Progress) -> None:
        super().__init__(name, bootstrap_servers)
        self._progress = progress
        settings: dict[str, Any] = {"group.id": f"chaos-{protocol}", "group.protocol": protocol}
        settings |= {"session.timeout.ms": 10_000} if protocol == "classic" else {}
        self._consumer = Consumer(
            CONSUMER | settings | {"bootstrap.servers": bootstrap_servers, "auto.offset.reset": "earliest"}
        )
        self._consumer.subscribe([topic])

    def step(self) -> None:
        messages = [one for one in self._consumer.consume(2000, 0.2) if self._good(one)]
        for message in messages:
            if fault := self._progress.process(message.partition(), message.offset()):
                self.faults.append(fault)
        if messages:
            try:
                self._consumer.commit(asynchronous=False)
            except KafkaException as error:
                if not error.args[0].retriable() and error.args[0].code() not in TRANSIENT | {KafkaError._NO_OFFSET}:
                    self.faults.append(f"{self.name}: commit: {error}")

    def close(self) -> None:
        self._consumer.close()

    def _good(self, message: Message) -> bool:
        error = message.error()
        if error is not None and not error.retriable() and error.code() not in TRANSIENT:
            self.faults.append(f"{self.name}: {error}")
        return error is None


class CompactedTopic(Client):
    """Writes growing versions of keys to a compacted topic."""

    KEYS = 500

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        super().__init__("compacted topic", bootstrap_servers)
        self._topic = topic
        self._sent = 0
        self._acknowledged: dict[bytes, int] = {}
        self._producer = Producer(PRODUCER | {"bootstrap.servers": bootstrap_servers})

    def step(self) -> None:
        for _ in range(20 if len(self._producer) < 1000 else 0):
            key = b"key-%d" % (self._sent % self.KEYS)
            self._producer.produce(self._topic, b"%d %s" % (self._sent, VALUE), key, on_delivery=self._delivered)
            self._sent += 1
        self._producer.poll(0)
        self.ending.wait(0.02)  # paces the load

    def close(self) -> None:
        if left := self._producer.flush(ANSWER_S):
            self.faults.append(f"{self.name}: {left} records were never answered")

    def check(self) -> int:
        """Read the topic from its start: versions of a key grow, and the newest is the last acknowledged; records read."""
        consumer = Consumer(
            CONSUMER
            | {"bootstrap.servers": self.bootstrap_servers, "group.id": "not joined", "enable.partition.eof": True}
        )
        newest: dict[bytes, int] = {}
        records = 0
        consumer.assign([TopicPartition(self._topic, 0, 0)])
        deadline = time.monotonic() + ANSWER_S
        done = False
        while not done and time.monotonic() < deadline:
            for message in consumer.consume(5000, 0.5):
                if message.error() is None:
                    records += 1
                    version = int(message.value().split(b" ", 1)[0])
                    if version <= newest.get(message.key(), -1):
                        self.faults.append(f"{self.name}: {message.key()!r}: {version} after {newest[message.key()]}")
                    newest[message.key()] = version
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    done = True
        consumer.close()
        if newest != self._acknowledged:
            wrong = [key for key in self._acknowledged if newest.get(key) != self._acknowledged[key]]
            self.faults.append(f"{self.name}: {len(wrong)} keys have not their last acknowledged value: {wrong[:3]}")
        return records

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.faults.append(f"{self.name}: {error}")
            return
        version = int(message.value().split(b" ", 1)[0])
        self._acknowledged[message.key()] = max(version, self._acknowledged.get(message.key(), -1))


class TopicChurn(Client):
    """Creates a topic, writes to it, reads it back, deletes it, again and again under the same few names."""

    PARTITIONS, RECORDS = 3, 60

    def __init__(self, bootstrap_servers: str) -> None:
        super().__init__("topic churn", bootstrap_servers)
        self._admin = AdminClient(QUICK | {"bootstrap.servers": bootstrap_servers})

    def step(self) -> None:
        name = f"churn-{self.steps % 7}"
        self._until_done(
            lambda: self._admin.create_topics([NewTopic(name, self.PARTITIONS, 1)])[name].result(30), "create"
        )
        expected = [b"%d %d" % (self.steps, number) for number in range(self.RECORDS)]
        failed: list[str] = []
        # A new client for each topic: librdkafka remembers for a while that a name was deleted.
        producer = Producer(PRODUCER | {"bootstrap.servers": self.bootstrap_servers})
        for number, value in enumerate(expected):
            producer.produce(
                name,
                value,
                partition=number % self.PARTITIONS,
                on_delivery=lambda error, _: failed.append(str(error)) if error else None,
            )
        left = producer.flush(ANSWER_S)
        if failed or left:
            self.faults.append(f"{self.name}: {name}: {left} records unanswered, failed: {failed[:3]}")
        found = self._read(name)
        if sorted(found) != sorted(expected):
            missing = set(expected) - set(found)
            self.faults.append(f"{self.name}: {name}: {len(found)} records, {len(missing)} missing, first {found[:2]}")
        self._until_done(lambda: self._admin.delete_topics([name])[name].result(30), "delete")

    def _read(self, name: str) -> list[bytes]:
        consumer = Consumer(
            CONSUMER
            | {"bootstrap.servers": self.bootstrap_servers, "group.id": "not joined", "enable.partition.eof": True}
        )
        consumer.assign([TopicPartition(name, number, 0) for number in range(self.PARTITIONS)])
        found: list[bytes] = []
        left = set(range(self.PARTITIONS))
        deadline = time.monotonic() + ANSWER_S
        while left and time.monotonic() < deadline:
            for message in consumer.consume(1000, 0.2):
                if message.error() is None:
                    found.append(message.value())
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    left.discard(message.partition())
        consumer.close()
        return found

    def _until_done(self, call: Callable[[], Any], what: str) -> None:
        """Repeat a request until it succeeds; "exists" and "unknown" mean that an earlier attempt had succeeded."""
        deadline = time.monotonic() + ANSWER_S
        while True:
            try:
                call()
            except KafkaException as error:
                code = error.args[0].code()
                if code in (KafkaError.TOPIC_ALREADY_EXISTS, KafkaError.UNKNOWN_TOPIC_OR_PART):
                    return
                if time.monotonic() > deadline:
                    raise
                self.ending.wait(0.1)
            else:
                return


class LogTrimmer(Client):
    """Deletes the records that everybody has read, so that the disk use of the stream stays the same."""

    EVERY_S, KEPT = 2.0, 20_000

    def __init__(
        self, bootstrap_servers: str, topic: str, partitions: int, positions: list[Callable[[int], int]]
    ) -> None:
        super().__init__("log trimmer", bootstrap_servers)
        self._topic, self._partitions, self._positions = topic, partitions, positions
        self._admin = AdminClient(QUICK | {"bootstrap.servers": bootstrap_servers})

    def step(self) -> None:
        self.ending.wait(self.EVERY_S)
        ends = [min(position(number) for position in self._positions) - self.KEPT for number in range(self._partitions)]
        wanted = [TopicPartition(self._topic, number, end) for number, end in enumerate(ends) if end > 0]
        if wanted:
            for answer in self._admin.delete_records(wanted, request_timeout=20).values():
                with contextlib.suppress(KafkaException):  # a fault meanwhile; the next step deletes more
                    answer.result(30)
