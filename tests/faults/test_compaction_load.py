"""Compaction under the load of producers and readers with kills of the cleaner: each key keeps its newest record."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from odradek.storage.batch import Record, build_batch
from odradek.storage.checkpoints import read_offset_checkpoint
from odradek.testing import Broker
from tests.shm.compaction_model import parse
from tests.wire import Wire

pytestmark = pytest.mark.timeout(400)

TOPIC = "compacted"
WRITERS, KEYS, BATCHES, KILLS = 3, 40, 250, 4  # of batches as many more as come before the first kill
CONFIG = {
    "log.cleaner.backoff.ms": 20,
    "file.delete.delay.ms": 100,
    "log.segment.delete.delay.ms": 100,
    "num.network.threads": 2,
}


def write(
    broker: Broker,
    writer: int,
    acknowledged: dict[bytes, tuple[int, bytes]],
    failures: list[str],
    killed: threading.Event,
) -> None:
    """Idempotent batches of this writer's keys; what was acknowledged last of each, with its offset."""
    with Wire(broker.host, broker.port) as wire:
        number = -1
        while (number := number + 1) < BATCHES or not killed.is_set():
            content = [
                Record(
                    f"w{writer}k{(number + i) % KEYS}".encode(), f"{number}.{i}".encode() + bytes(600), 1000 + number
                )
                for i in range(8)
            ]
            answer = wire.produce(
                TOPIC,
                build_batch(
                    content, codec=number % 5, producer_id=100 + writer, producer_epoch=0, base_sequence=number * 8
                ),
            )
            if answer.error_code != 0:
                failures.append(f"writer {writer}, batch {number}: error {answer.error_code}")
                return
            for place, one in enumerate(content):
                acknowledged[one.key] = (answer.base_offset + place, one.value)


def read(broker: Broker, offset: int = 0) -> tuple[dict[bytes, tuple[int, bytes]], int]:
    """{key: (offset, value) of its newest record} from the log's start to its end; offsets only ever grow."""
    newest: dict[bytes, tuple[int, bytes]] = {}
    with Wire(broker.host, broker.port) as wire:
        while True:
            answer = wire.fetch(TOPIC, offset)
            assert answer.error_code == 0, f"error {answer.error_code} at offset {offset}"
            data = bytes(answer.records or b"")
            if not data:
                if offset >= answer.high_watermark:
                    return newest, offset
                continue  # a swap was under way
            for batch in parse(data):
                assert batch.last_offset >= offset
                for one in batch.records():
                    if one.offset >= offset:
                        newest[one.key] = (one.offset, one.value)
                offset = batch.last_offset + 1


def kill_cleaner(broker: Broker) -> None:
    """Kill it as soon as it runs: the supervisor starts another one."""
    found: list[int] = []
    while not found:
        found = [one["pid"] for one in broker.processes() if one["kind"] == "cleaner" and one["pid"]]
    with contextlib.suppress(ProcessLookupError):
        os.kill(found[0], signal.SIGKILL)


def test_nothing_acknowledged_is_lost_to_compaction(tmp_path: Path) -> None:
    with Broker(CONFIG, directory=tmp_path) as broker:
        with Wire(broker.host, broker.port) as wire:
            wire.create(TOPIC, 1, cleanup_policy="compact", segment_bytes=1 << 16, min_cleanable_dirty_ratio=0.01)
        acknowledged: list[dict[bytes, tuple[int, bytes]]] = [{} for _ in range(WRITERS)]
        failures: list[str] = []
        killed = threading.Event()
        writers = [
            threading.Thread(target=write, args=(broker, number, acknowledged[number], failures, killed), daemon=True)
            for number in range(WRITERS)
        ]
        for writer in writers:
            writer.start()
        checkpoint = broker.data_dir / "cleaner-offset-checkpoint"
        seen, kills = 0, 0
        while any(writer.is_alive() for writer in writers):
            done = read_offset_checkpoint(checkpoint).get((TOPIC, 0), 0)
            if done > seen and kills < KILLS:
                seen, kills = done, kills + 1
                kill_cleaner(broker)
                killed.set()
            read(broker)
            time.sleep(0.01)
        for writer in writers:
            writer.join()
        assert failures == []
        expected = {key: value for one in acknowledged for key, value in one.items()}
        newest, end = read(broker)
        assert newest == expected
        assert end >= WRITERS * BATCHES * 8
        assert kills > 0
    directory = broker.data_dir / f"{TOPIC}-0"
    held = [one for path in sorted(directory.glob("*.log")) for one in parse(path.read_bytes())]
    assert sum(one.record_count for one in held) < end, "nothing was compacted"
    with Broker(CONFIG, directory=tmp_path) as broker:
        assert read(broker) == (expected, end)
