"""A power loss keeps a later segment but not the one before it: the log ends at the hole, also if it is compacted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from confluent_kafka import Producer

from odradek.storage.batch_file import Damage, read_file
from odradek.storage.checkpoints import read_gap_limit, read_offset_checkpoint
from odradek.testing import Broker
from tests.waiting import until
from tests.wire import Wire

SEGMENT_BYTES = 1 << 20
VALUE_BYTES = 20_000  # some fifty records a segment
EARLIEST, LATEST = -2, -1


def bases(directory: Path) -> list[int]:
    return sorted(int(path.stem) for path in directory.glob("*.log"))


def offsets_of(directory: Path) -> list[int]:
    """The base offset of each batch in the directory's logs, in order."""
    found = []
    for path in sorted(directory.glob("*.log")):
        with path.open("rb") as file:
            for one in read_file(file.fileno(), path.stat().st_size):
                assert not isinstance(one, Damage)
                found.append(one.base_offset)
    return found


def verified(data: Path) -> tuple[int, str]:
    command = [sys.executable, "-m", "odradek.cli.main", "log", "verify", str(data)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout


def put(producer: Producer, key: str) -> None:
    producer.produce("t", os.urandom(VALUE_BYTES), key)
    producer.flush()


def test_a_hole_behind_what_was_compacted_ends_the_log_and_verify_names_it(tmp_path: Path) -> None:
    config = {
        "num.network.threads": 1,
        "log.cleaner.backoff.ms": 50,
        "log.cleaner.min.cleanable.ratio": 0.01,
        "auto.create.topics.enable": "false",
    }
    topic = {"partitions": "1", "cleanup.policy": "compact", "segment.bytes": str(SEGMENT_BYTES)}
    with Broker(config, {"t": topic}, directory=tmp_path) as broker:
        data, path = broker.data_dir, broker.data_dir / "t-0"
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "acks": "all", "log_level": 0})
        while len(bases(path)) < 3:
            put(producer, f"old-{len(bases(path)) % 2}")
        until(lambda: "compacted t-0" in broker.log_file.read_text(), "a pass has gone over it")
        # From here on nothing is compacted any more, and no recovery point moves.
        broker.stop()
        broker.config |= {"log.cleaner.enable": "false", "log.flush.offset.checkpoint.interval.ms": "3600000"}
        broker.start()
        limit = read_gap_limit(path)
        assert limit is not None
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "acks": "all", "log_level": 0})
        behind = len(bases(path)) + 3
        while len(bases(path)) < behind:
            put(producer, "new")
        for _ in range(5):
            put(producer, "newest")
        broker.kill_group()
        *_, lost, last = bases(path)
        (path / f"{lost:020d}.log").write_bytes(b"")  # the others were written back, this one was not
        code, said = verified(data)
        assert code == 1 and f"offsets {lost} to {last - 1} are missing" in said, said
        broker.start()
        with Wire(broker.host, broker.port) as wire:
            assert wire.offset_at("t", LATEST).offset == lost, "it ends at the hole"
            assert wire.offset_at("t", EARLIEST).offset == 0
        kept = offsets_of(path)
        assert kept[-1] == lost - 1
        assert [one for one in kept if one >= limit] == list(range(limit, lost))
        assert len([one for one in kept if one < limit]) < limit, "gaps of compaction stay"
        assert read_offset_checkpoint(data / "cleaner-offset-checkpoint")["t", 0] <= limit
        broker.stop()
        code, said = verified(data)
        assert code == 0, said
