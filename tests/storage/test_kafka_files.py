"""Kafka as the oracle: it reads every file written here, and its files load here with equal values."""

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from odradek._ext.storage.segments import load_log
from odradek._ext.testing import storage_probe
from odradek.storage import checkpoints, log_directory, producer_snapshot
from odradek.storage.batch import Record, build_batch
from odradek.storage.file_names import parse_directory_name
from tests.ports import reserved
from tests.storage.log_files import write_snapshot
from tests.storage.log_writer import LogWriter
from tests.storage.test_segments import fill
from tests.waiting import until

PEER = Path(os.environ.get("KAFKA_PEER", Path(__file__).parents[3] / "shared/peers/kafka/kafka"))
pytestmark = [
    pytest.mark.java,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not PEER.exists() or not shutil.which("java"), reason=f"no Kafka at {PEER}, or no java"),
]
SMALL = {**os.environ, "KAFKA_HEAP": "-Xms128m -Xmx512m"}
TIME = 1_700_000_000_000


def peer(*arguments):
    done = subprocess.run(
        [PEER, *map(str, arguments)], capture_output=True, text=True, env=SMALL, check=False, timeout=280
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def test_kafka_dumps_what_is_written_here(tmp_path):
    writer = LogWriter(tmp_path / "t-0", 300)
    writer.append(build_batch([Record(b"k", None, TIME, ((b"h", None), (b"h", b"v")))], partition_leader_epoch=0))
    fill(writer, 60, seed=12, roll_every=30)
    writer.write()
    for path in (tmp_path / "t-0").iterdir():
        if path.suffix in (".index", ".timeindex", ".txnindex"):
            path.write_bytes(b"")
    load_log(tmp_path / "t-0", index_interval_bytes=300)
    files = sorted((tmp_path / "t-0").glob("0*"))
    assert {path.suffix for path in files} == {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}
    dump = peer(
        "run", "org.apache.kafka.tools.DumpLogSegments", "--deep-iteration", "--files", ",".join(map(str, files))
    )
    for complaint in ("Mismatch", "mismatch", "Found", "rror", "xception", "isvalid: false"):
        assert complaint not in dump, dump
    assert dump.count("| offset: ") == sum(
        int.from_bytes(data[at + 57 : at + 61], "big")
        for segment in writer.segments
        for data, at in ((segment.log, position) for _, _, position, _ in segment.positions)
    )
    assert f"lastOffset: {writer.end - 1}" in dump
    for state in writer.snapshots[writer.segments[1].base_offset]:
        assert f"producerId: {state.producer_id} producerEpoch: {state.producer_epoch}" in dump
    for aborted in (each for segment in writer.segments for each in segment.txns):
        assert f"producerId: {aborted.producer_id} firstOffset: {aborted.first_offset}" in dump


def produce(port):
    """Several segments, idempotent, compressed and transactional producers; {topic-partition: log end offset}."""
    server = {"bootstrap.servers": f"127.0.0.1:{port}"}
    small = {"segment.bytes": "1048576", "index.interval.bytes": "1024"}
    topics = [NewTopic(name, 1, 1, config=small) for name in ("plain", "idempotent", "packed", "txn")]
    admin = AdminClient(server)
    for created in admin.create_topics(topics).values():
        created.result(120)

    def send(producer, topic, count, start=0):
        for number in range(start, start + count):
            producer.produce(topic, key=b"%d" % number, value=b"v" * 300, timestamp=TIME + number)
            if number % 40 == 0:
                producer.flush()
        producer.flush()

    send(Producer(server), "plain", 8000)
    send(Producer(server | {"enable.idempotence": True}), "idempotent", 1500)
    send(Producer(server | {"compression.type": "zstd"}), "packed", 1500)
    producer = Producer(server | {"transactional.id": "t"})
    producer.init_transactions(120)
    for number in range(12):
        producer.begin_transaction()
        send(producer, "txn", 50, 50 * number)
        if number % 3:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    # Kafka writes the marker of a transaction after it answered the producer.
    until(lambda: ends(server)["txn"] == 12 * (50 + 1), "the last transaction has its marker")
    return ends(server)


def ends(server):
    """{topic: log end offset}; retries while a starting broker does not lead the partition yet."""
    consumer = Consumer(server | {"group.id": "g"})
    found = {}
    deadline = time.monotonic() + 90
    for topic in ("plain", "idempotent", "packed", "txn"):
        while topic not in found:
            try:
                found[topic] = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)[1]
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
                consumer.list_topics(topic, timeout=10)
    consumer.close()
    return found


def files_of(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.suffix != ".snapshot"}


@pytest.fixture(scope="module")
def kafka_directory(tmp_path_factory):
    """(data as Kafka left it after a clean stop, a copy taken while it ran, {topic: end offset})."""
    home = tmp_path_factory.mktemp("kafka")
    with reserved(2) as port:
        peer("start", port, home / "broker", "log.index.interval.bytes=1024", "log.retention.ms=-1")
        try:
            found = produce(port)
            shutil.copytree(home / "broker" / "data", home / "running")
        finally:
            peer("stop", home / "broker")
    return home / "broker", home / "running", found


def test_what_kafka_closed_opens_with_equal_numbers(kafka_directory):
    data = kafka_directory[0] / "data"
    points = checkpoints.read_offset_checkpoint(data / "recovery-point-offset-checkpoint")
    assert log_directory.read_meta_properties(data).node_id == 1
    opened = 0
    for path in sorted(path for path in data.iterdir() if path.is_dir()):
        named = parse_directory_name(path.name)
        if named.topic == "__cluster_metadata":
            continue
        before = files_of(path)
        loaded = load_log(path, clean=True, index_interval_bytes=1024)
        assert loaded.events == []
        assert files_of(path) == before
        assert points.get((named.topic, named.partition), 0) == loaded.log_end_offset
        assert loaded.epochs == checkpoints.read_leader_epochs(path / "leader-epoch-checkpoint")
        assert log_directory.read_partition_metadata(path) is not None
        if named.topic in kafka_directory[2]:
            assert loaded.log_end_offset == kafka_directory[2][named.topic]
            opened += 1
    assert opened == 4
    assert len(storage_probe.segment_base_offsets(load_log(data / "plain-0", clean=True))) > 2


def test_what_kafka_left_open_is_recovered_to_what_it_would_have_closed(kafka_directory):
    broker, running, found = kafka_directory
    for topic, end in found.items():
        closed = broker / "data" / f"{topic}-0"
        loaded = load_log(running / f"{topic}-0", index_interval_bytes=1024)
        assert loaded.log_end_offset == end
        assert files_of(running / f"{topic}-0") == files_of(closed)
        snapshot = producer_snapshot.read_snapshot(closed / f"{end:020d}.snapshot")
        assert [
            (each.producer_id, each.producer_epoch, each.last_timestamp, *each.batches[-1][1::2])
            for each in loaded.producers
        ] == [
            (
                state.producer_id,
                state.producer_epoch,
                state.last_timestamp,
                state.batches[-1].last_sequence,
                state.batches[-1].last_offset,
            )
            for state in snapshot
        ]


def test_kafka_goes_on_with_files_written_here(kafka_directory):
    """Rewritten small files, rebuilt indexes and snapshots: Kafka starts on them without recovery or error."""
    broker, _, found = kafka_directory
    data = broker / "data"
    for name in ("recovery-point", "log-start", "replication"):
        path = data / f"{name}-offset-checkpoint"
        checkpoints.write_offset_checkpoint(path, checkpoints.read_offset_checkpoint(path))
    log_directory.write_meta_properties(data, log_directory.read_meta_properties(data))
    for topic, end in found.items():
        path = data / f"{topic}-0"
        for name in ("*.index", "*.timeindex", "*.txnindex", "*.snapshot"):
            for each in path.glob(name):
                each.unlink()
        loaded = load_log(path, index_interval_bytes=1024)
        states = [
            producer_snapshot.ProducerState(
                *producer[:5],
                tuple(
                    producer_snapshot.ProducerBatch(
                        b.last_sequence, b.last_offset, b.last_offset - b.base_offset, b.timestamp
                    )
                    for b in producer.batches
                ),
            )
            for producer in loaded.producers
        ]
        write_snapshot(path / f"{end:020d}.snapshot", states)
        checkpoints.write_leader_epochs(path / "leader-epoch-checkpoint", loaded.epochs)
        log_directory.write_partition_metadata(path, log_directory.read_partition_metadata(path))
    was_clean, epoch = log_directory.take_clean_shutdown(data)
    assert was_clean
    log_directory.write_clean_shutdown(data, epoch)
    before = {topic: files_of(data / f"{topic}-0") for topic in found}
    with reserved(2) as port:
        # The peer's properties are written by `start`; its log is read below.
        peer("start", port, broker, "log.index.interval.bytes=1024", "log.retention.ms=-1")
        try:
            server = {"bootstrap.servers": f"127.0.0.1:{port}"}
            assert ends(server) == found
            consumer = Consumer(
                server | {"group.id": "g2", "isolation.level": "read_committed", "enable.partition.eof": True}
            )
            consumer.assign([TopicPartition("txn", 0, 0)])
            values = 0
            while (message := consumer.poll(90)) is not None and not message.error():
                values += 1
            consumer.close()
            assert values == 8 * 50
        finally:
            peer("stop", broker)
    log = (broker / "server.log").read_text()
    for topic in found:
        for line in log.splitlines():
            assert not (f"{topic}-0" in line and ("WARN" in line or "ERROR" in line)), line
    for topic, end in found.items():
        assert load_log(data / f"{topic}-0", clean=True).log_end_offset == end
        now = files_of(data / f"{topic}-0")
        assert now | {"leader-epoch-checkpoint": b""} == before[topic] | {"leader-epoch-checkpoint": b""}
