"""Segments are deleted under load: their readers finish, and kills never delete more than the segments to delete.

ODRADEK_FAULT_SEED and ODRADEK_FAULT_ROUNDS as in test_kills.
"""

import contextlib
import os
import random
import socket
import struct
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from odradek.testing import Broker
from tests.faults.checker import RecordId, decode_id, faults
from tests.faults.load import Load
from tests.faults.process_faults import kill_group, kill_one, stop_one_for_a_while
from tests.waiting import until
from tests.wire import Wire, batch, fetch_request

TOPIC, PARTITIONS = "aging", 3
ROUNDS = int(os.environ.get("ODRADEK_FAULT_ROUNDS", "12"))
KEPT_BYTES, SEGMENT_BYTES = 400_000, 40_000
CONFIG = {
    "num.network.threads": 2,
    "log.segment.bytes": SEGMENT_BYTES,
    "log.retention.bytes": KEPT_BYTES,
    "log.retention.check.interval.ms": 20,
    "log.segment.delete.delay.ms": 0,
    "auto.create.topics.enable": "false",
}

pytestmark = [pytest.mark.timeout(600 + 4 * ROUNDS)]

FAULTS = {
    "kill cleaner": lambda broker, rng: kill_when_there(broker, rng, "cleaner"),
    "kill cleaner again": lambda broker, rng: kill_when_there(broker, rng, "cleaner"),
    "kill coordinator": lambda broker, rng: kill_when_there(broker, rng, "coordinator"),
    "kill worker": lambda broker, rng: kill_when_there(broker, rng, "worker"),
    "stop worker": stop_one_for_a_while,
    "kill group": kill_group,
}


def kill_when_there(broker: Broker, rng: random.Random, kind: str) -> str:
    """A process killed in the previous round may not be restarted yet."""
    return kill_one(broker, rng, kind)


def bounds_of(consumer: Consumer, partition: int) -> tuple[int, int]:
    """Log start and high watermark; the library gives up where connections are lost, so it is asked again."""
    deadline = time.monotonic() + 120
    while True:
        try:
            low, high = consumer.get_watermark_offsets(TopicPartition(TOPIC, partition), timeout=10)
            return low, high
        except KafkaException:
            assert time.monotonic() < deadline


def delete_some(admin: AdminClient, rng: random.Random, low: int, high: int, partition: int) -> int | None:
    """The log start offset that the broker returned; None if a fault lost the request."""
    place = TopicPartition(TOPIC, partition, rng.randint(low, high))
    try:
        return admin.delete_records([place], request_timeout=10)[place].result(90).low_watermark
    except KafkaException as error:
        if error.args[0].code() == KafkaError.OFFSET_OUT_OF_RANGE:
            raise
        return None


def read_what_is_left(
    consumer: Consumer, timeout_s: float = 120.0
) -> dict[int, tuple[int, int, list[tuple[int, RecordId]]]]:
    """(log start, log end, records) of each partition; retried if segments were deleted meanwhile."""
    deadline = time.monotonic() + timeout_s
    while True:
        assert time.monotonic() < deadline, "the log start never came to rest"
        places = range(PARTITIONS)
        bounds = {number: bounds_of(consumer, number) for number in places}
        found: dict[int, list[tuple[int, RecordId]]] = {number: [] for number in places}
        consumer.assign([TopicPartition(TOPIC, number, low) for number, (low, _) in bounds.items()])
        left = set(places)
        gone = False
        while left and not gone and time.monotonic() < deadline:
            for message in consumer.consume(10_000, 0.1):
                error = message.error()
                if error is None:
                    found[message.partition()].append((message.offset(), decode_id(message.key())))
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(message.partition())
                elif error.code() in (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET):
                    gone = True
                else:
                    raise KafkaException(error)
        if gone or bounds != {number: bounds_of(consumer, number) for number in places}:
            continue
        return {number: (*bounds[number], records) for number, records in found.items()}


def test_nothing_goes_that_was_to_stay_whoever_is_killed(tmp_path):
    seed = int(os.environ.get("ODRADEK_FAULT_SEED") or random.SystemRandom().randrange(1 << 32))
    rng = random.Random(seed)
    plan = [*FAULTS, *(rng.choice(list(FAULTS)) for _ in range(ROUNDS - len(FAULTS)))]
    rng.shuffle(plan)
    print(f"\nODRADEK_FAULT_SEED={seed}")
    told_starts = dict.fromkeys(range(PARTITIONS), 0)
    with (
        Broker(CONFIG, {TOPIC: PARTITIONS}, directory=tmp_path) as broker,
        Load(broker.bootstrap_servers, TOPIC, PARTITIONS, idempotent=2, plain=1) as load,
    ):
        settings = {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0}
        admin = AdminClient(settings)
        consumer = Consumer(
            {
                **settings,
                "group.id": "unused",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "enable.partition.eof": True,
                "check.crcs": True,
                "fetch.wait.max.ms": 20,
            }
        )
        load.progress(200)
        for number, name in enumerate(plan):
            reached = load.progress(rng.randrange(20, 800))
            told = FAULTS[name](broker, rng)
            partition = rng.randrange(PARTITIONS)
            low, high = bounds_of(consumer, partition)
            assert low >= told_starts[partition], "the log begins before what was told to be deleted"
            start = delete_some(admin, rng, low, high, partition)
            if start is not None:
                told_starts[partition] = start
            print(f"{number:2} after {reached:4.1f} s of load  {name}: {told}; partition {partition} from {start}")
        load.progress(100)
        load.finish()
        failed = [failure for producer in load.producers for failure in producer.failed]
        fatal = [error for producer in load.producers for error in producer.fatal]
        assert not failed and not fatal, (len(failed), failed[:3], fatal)
        left = read_what_is_left(consumer)
        consumer.close()
        for partition, (low, _, _) in left.items():
            assert low > 0 and low >= told_starts[partition]
        # The checker knows logs that begin at 0: what is left is moved there.
        partitions = {
            number: (high - low, [(offset - low, record) for offset, record in records])
            for number, (low, high, records) in left.items()
        }
        acknowledged = {
            record: (partition, offset - left[partition][0])
            for producer in load.producers
            for record, (partition, offset) in producer.acknowledged.items()
            if offset >= left[partition][0]
        }
        assert len(acknowledged) > 100
        wrong = faults(partitions, acknowledged, {one.name for one in load.producers if one.idempotent})
        assert not wrong, wrong
        for number in range(PARTITIONS):
            directory = broker.data_dir / f"{TOPIC}-{number}"
            until(  # the cleaner may have yet to be started again
                lambda directory=directory: kept_bytes(directory) < KEPT_BYTES + 2 * SEGMENT_BYTES,
                lambda directory=directory: f"{directory} holds no more than retention leaves: {kept_bytes(directory)}",
            )
            until_gone(directory, "*.deleted")
        everything = sum(high for _, high, _ in left.values())
        print(f"{len(plan)} rounds, {everything} records, of which {len(acknowledged)} are left")
        assert "Traceback" not in broker.log_file.read_text()


def kept_bytes(directory: Path) -> int:
    """The files of remaining segments; one may be deleted meanwhile."""
    kept = 0
    for path in directory.glob("*.log"):
        with contextlib.suppress(FileNotFoundError):
            kept += path.stat().st_size
    return kept


def until_gone(directory: Path, pattern: str) -> None:
    until(lambda: not list(directory.glob(pattern)), f"{pattern} stays")


@pytest.fixture
def aging(tmp_path):
    """A broker that keeps the newest segment of its topic, of 24 batches of 1 MB, and removes the others at once."""
    config = {
        "num.network.threads": 1,
        "log.retention.check.interval.ms": 20,
        "log.segment.delete.delay.ms": 0,
        "message.max.bytes": 2_000_000,
        "log.retention.bytes": 1,
        "log.segment.bytes": 24_500_000,
    }
    with Broker(config, directory=tmp_path) as broker, Wire(broker.host, broker.port) as wire:
        wire.create(TOPIC)
        yield broker, wire


def open_deleted_files(broker: Broker) -> list[str]:
    (worker,) = [one for one in broker.processes() if one["kind"] == "worker"]
    found = []
    for descriptor in Path(f"/proc/{worker['pid']}/fd").iterdir():
        try:
            found.append(str(descriptor.readlink()))
        except FileNotFoundError:
            continue  # closed meanwhile
    return [target for target in found if target.endswith("(deleted)") and ".log" in target]


def test_a_slow_reader_of_a_segment_that_goes_gets_all_its_bytes(aging):
    broker, wire = aging
    sent = b""
    for number in range(24):
        one = batch(bytes([number]) * 1_000_000)
        assert wire.produce(TOPIC, one).base_offset == number
        sent += number.to_bytes(8, "big") + one[8:12] + bytes(4) + one[16:]  # as the broker keeps it
    first = broker.data_dir / f"{TOPIC}-0" / f"{0:020d}.log"
    assert first.read_bytes() == sent
    with Wire(broker.host, broker.port) as slow:
        slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        slow.send(fetch_request([(TOPIC, 0, 0)], partition_max_bytes=1 << 26), 1, 12)
        begun = slow.socket.recv(1000)
        assert len(begun) >= 4
        for number in range(24, 26):  # the second one rolls
            assert wire.produce(TOPIC, batch(bytes(1_000_000))).base_offset == number
        until_gone(first.parent, f"{0:020d}.log*")
        assert open_deleted_files(broker), "the answer was sent before the file went: nothing is tested"
        (length,) = struct.unpack(">i", begun[:4])
        received = bytearray(begun)
        while len(received) < 4 + length:
            received += slow.socket.recv(1 << 20)
        assert bytes(received).find(sent) > 0
        slow.send(fetch_request([(TOPIC, 0, 0)]), 1, 12)
        slow._sent.pop(0)
        assert slow.receive().responses[0].partitions[0].error_code == 1
    # And then the space comes back, though nobody fetches any more.
    until(lambda: not open_deleted_files(broker), "nobody holds the deleted files")
