"""The same batches in a compacted topic of this broker and of a real Kafka: both keep the same records; Kafka's tool reads our
log.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.storage.batch import Record, build_batch
from odradek.storage.checkpoints import read_offset_checkpoint
from odradek.testing import Broker
from tests.clients import dump_log_segments
from tests.clients.kafka_peer import Peer
from tests.shm.compaction_model import Kept, parse, seen
from tests.wire import Wire

pytestmark = [pytest.mark.xdist_group("against-kafka"), pytest.mark.timeout(900), pytest.mark.java]

TOPIC = "compacted"
TOPIC_CONFIG = {"cleanup_policy": "compact", "segment_bytes": 1 << 20, "min_cleanable_dirty_ratio": 0.01}
CONFIG = {"log.cleaner.backoff.ms": 300, "auto.create.topics.enable": "false"}
START = 1_700_000_000_000
BATCHES = 400
PRODUCERS = (-1, 9001, 9002)
PATIENCE_S = 120


def batches() -> Iterator[bytes]:
    """Keys, tombstones, codecs and idempotent producers, the same each time."""
    rng = random.Random(11)
    sequences = dict.fromkeys(PRODUCERS, 0)
    for number in range(BATCHES):
        codec, producer = rng.randrange(5), rng.choice(PRODUCERS[: 2 if number > BATCHES // 2 else 3])
        records = [
            Record(
                f"k{rng.randrange(60)}".encode(),
                None if rng.random() < 0.1 else rng.randbytes(rng.randrange(4000)),
                START + number * 10 + place,
                ((b"h", b"1"),) if rng.random() < 0.2 else (),
            )
            for place in range(rng.randrange(1, 9))
        ]
        fields = {}
        if producer >= 0:
            fields = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequences[producer]}
            sequences[producer] += len(records)
        yield build_batch(records, codec=codec, **fields)


def fill(host: str, port: int) -> None:
    """Create the topic and put the batches into it, one a request, so that the log is cut into the same segments."""
    with Wire(host, port) as wire:
        wire.create(TOPIC, 1, **TOPIC_CONFIG)
        wire.until_led(TOPIC)
        for data in batches():
            assert wire.produce(TOPIC, data).error_code == 0


def wait_until_compacted(data_dir: Path) -> list[Kept]:
    """The log once its cleaner has gone over all but the active segment."""
    directory = data_dir / f"{TOPIC}-0"
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        active = max(int(path.stem) for path in directory.glob("*.log"))
        done = read_offset_checkpoint(data_dir / "cleaner-offset-checkpoint").get((TOPIC, 0), 0)
        if done >= active:
            return [seen(one) for path in sorted(directory.glob("*.log")) for one in parse(path.read_bytes())]
        time.sleep(0.2)
    raise AssertionError(f"compacted up to {done}, of {active}")


def untimed(log: list[Kept]) -> list[tuple[object, ...]]:
    """What must be the same: not the clock's delete horizon, which only has to be there or not, nor the leader's epoch."""
    return [
        (one.base_offset, one.last_offset, one.producer, one.flags, one.codec, one.horizon is None, one.records)
        for one in log
    ]


def test_both_keep_the_same_records(tmp_path: Path) -> None:
    with Broker(CONFIG, directory=tmp_path / "ours") as ours:
        fill(ours.host, ours.port)
        found = wait_until_compacted(ours.data_dir)
        first, last = found[0].base_offset, found[-1].last_offset
        with Wire(ours.host, ours.port) as wire:  # readers cope with the gaps
            read, offset = [], 0
            while offset <= last:
                answer = wire.fetch(TOPIC, offset)
                assert answer.error_code == 0
                part = parse(bytes(answer.records))
                read += [record for one in part for record in one.records() if record.offset >= offset]
                offset = part[-1].last_offset + 1
        assert read == [record for one in found for record in one.records]
    data = ours.data_dir
    files = [path for suffix in (".log", ".index", ".timeindex") for path in dump_log_segments.files_of(data, suffix)]
    _, complaints = dump_log_segments.dump(data, files, "--deep-iteration")
    assert [line for line in complaints if " is followed by " not in line] == []
    with Peer(tmp_path / "kafka", CONFIG) as kafka:
        host, port = kafka.bootstrap_servers.split(":")
        fill(host, int(port))
        expected = wait_until_compacted(kafka.data_dir)
    assert (first, last) == (expected[0].base_offset, expected[-1].last_offset)
    assert untimed(found) == untimed(expected)
    assert len([record for one in found for record in one.records]) < sum(1 for one in batches()) * 2
