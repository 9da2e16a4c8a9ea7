"""Adopted directories of old brokers are served: messages of format v0 and v1, several directories, gaps, a crash."""

from __future__ import annotations

import subprocess
import sys

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from odradek.storage.batch import Record, build_batch
from odradek.storage.checkpoints import write_offset_checkpoint
from odradek.testing import Broker
from tests.adopt.test_adoption import make_zookeeper
from tests.storage.log_writer import LogWriter
from tests.storage.old_writer import message, wrapper

pytestmark = pytest.mark.timeout(600)


def odradek(*arguments):
    command = [sys.executable, "-m", "odradek.cli.main", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def read(servers, topic, partition, count):
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "r", "auto.offset.reset": "error"})
    consumer.assign([TopicPartition(topic, partition, 0)])
    found = []
    while len(found) < count:
        got = consumer.poll(90)
        assert got is not None and got.error() is None, (topic, partition, len(found), got and got.error())
        found.append((got.offset(), got.value()))
    consumer.close()
    return found


@pytest.mark.parametrize("clean", [True, False])
def test_an_old_zookeeper_broker_in_two_directories_is_served_and_written_to(tmp_path, clean):
    paths = [make_zookeeper(tmp_path / name) for name in ("x", "y")]
    logs = {("old", 0): paths[0], ("old", 1): paths[1], ("gaps", 0): paths[1]}
    expected = {}
    for (topic, partition), path in logs.items():
        writer = LogWriter(path / f"{topic}-{partition}")
        if topic == "gaps":
            for base in (0, 6, 9):
                writer.append(build_batch([Record(b"k", b"%d" % base, 5)], base_offset=base, partition_leader_epoch=2))
            expected[topic, partition] = [(base, b"%d" % base) for base in (0, 6, 9)]
        else:
            for number in range(4):
                writer.append(message(writer.end, b"plain", magic=partition, timestamp=5 + number))
                contents = [(b"k", b"w%d" % one) for one in range(3)]
                writer.append(
                    wrapper(writer.end, contents, codec=1 + number % 2, magic=partition, timestamps=[7, 8, 9])
                )
            values = [b"plain", b"w0", b"w1", b"w2"] * 4
            # a wrapper states its last offset, which is where the writer's log goes on
            expected[topic, partition] = [(offset, value) for offset, value in enumerate(values)]
        if clean:
            writer.close()
        else:
            writer.write()
    write_offset_checkpoint(paths[1] / "cleaner-offset-checkpoint", {("gaps", 0): 9})
    if not clean:
        for path in paths:
            (path / ".kafka_cleanshutdown").unlink()
    done = odradek("adopt", "--yes", *paths)
    assert done.returncode == 0, done
    config = {"log.dirs": ",".join(map(str, paths)), "log.retention.ms": -1}  # the records are of 1970
    with Broker(config, directory=tmp_path / "ours") as ours:
        for (topic, partition), records in expected.items():
            assert read(ours.bootstrap_servers, topic, partition, len(records)) == records
        producer = Producer({"bootstrap.servers": ours.bootstrap_servers, "enable.idempotence": True})
        for topic, partition in logs:
            producer.produce(topic, b"new", partition=partition, key=b"key")
        assert producer.flush(90) == 0
        for (topic, partition), records in expected.items():
            after = read(ours.bootstrap_servers, topic, partition, len(records) + 1)
            assert after == [*records, (records[-1][0] + 1, b"new")]
    verified = odradek("log", "verify", "--deep", *paths)
    assert verified.returncode == 0, verified


def test_a_directory_in_use_is_verified_while_it_is_written_to(tmp_path):
    """Segments are rolled, appended to and deleted during the verification: none of that is an error."""
    config = {"log.segment.bytes": 1 << 20, "log.index.interval.bytes": 256, "log.retention.check.interval.ms": 50}
    topic = {"partitions": "2", "retention.bytes": str(2 << 20), "file.delete.delay.ms": "0"}
    with Broker(config, {"busy": topic}, directory=tmp_path) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 1, "batch.size": 20000})
        verifying, rounds, sent = None, 0, 0
        while rounds < 4 or sent * 500 < 8 << 20:  # enough to roll and to delete
            for _ in range(200):
                producer.produce("busy", b"x" * 500, partition=sent % 2)
                sent += 1
            producer.flush(30)
            if verifying is None:
                command = [sys.executable, "-m", "odradek.cli.main", "log", "verify", "--json", str(broker.data_dir)]
                verifying = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            elif verifying.poll() is not None:
                output = verifying.communicate()[0]
                assert verifying.returncode == 0, output
                assert '"in_use": true' in output
                verifying, rounds = None, rounds + 1
        if verifying is not None:
            assert verifying.communicate()[0] and verifying.returncode == 0
