"""A shared mapping with a partition table, for a test's process and its forked children; no supervisor, no sockets."""

import os
import shutil
import signal
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from odradek._ext.partition import append_files, roles
from odradek._ext.shm import arena
from odradek._ext.shm.layout import DiskState, ProcessKind, ProcessState
from odradek._ext.shm.shared_memory import SharedMemory
from odradek._ext.storage.segments import LoadedLog, load_log
from odradek._ext.testing import fault_points, slot_probe
from odradek.cleaner.retention import Retention
from odradek.shm.partition_table import PartitionTable
from odradek.storage.batch import Record, build_batch
from tests.children import end_of, fork

BROKER_ID = 1
NEVER_MS = 10**12
SETTINGS = {
    "segment_bytes": 1 << 20,
    "segment_ms": NEVER_MS,
    "segment_jitter_ms": 0,
    "retention_ms": -1,
    "retention_bytes": -1,
    "flush_messages": 1 << 62,
    "flush_ms": 1 << 62,
    "timestamp_before_max_ms": 1 << 62,
    "timestamp_after_max_ms": 1 << 62,
    "file_delete_delay_ms": 1000,
    "index_interval_bytes": 4096,
    "index_max_bytes": 10 << 20,
    "max_message_bytes": 1 << 20,
    "min_in_sync_replicas": 1,
    "log_append_time": 0,
    "compact": 0,
    "delete_": 1,
    "compression": 255,
    "unclean_election": 0,
    "exact_retention": 0,
}


PRODUCER = 7


def batch(count: int = 1, *, value: bytes = b"v" * 20, timestamp: int = 1000, **fields: Any) -> bytes:
    """A batch of `count` equal records."""
    return build_batch([Record(value=value, timestamp=timestamp) for _ in range(count)], **fields)


def numbered(sequence: int, count: int = 2, **fields: Any) -> bytes:
    """A batch of an idempotent producer, `PRODUCER`: its sequence tells which of its batches are in a log."""
    timestamp = 1000 + sequence
    return batch(count, timestamp=timestamp, producer_id=PRODUCER, producer_epoch=0, base_sequence=sequence, **fields)


def retain_at_once(broker: "OneBroker") -> None:
    """A pass of retention by a new cleaner, in a log directory that is low on room: what is removed is deleted at once."""
    broker.shm.set_disk(0, DiskState.DISK_LOW, 0, 0)
    Retention(broker.shm, [broker.path]).run()


class OneBroker:
    """A mapping of `processes` places, of which this process takes the first."""

    def __init__(
        self, path: Path, *, processes: int = 1, max_slots: int = 64, arena_bytes: int = 1 << 20, **limits: int
    ) -> None:
        """:param limits: of `initialise_arena`."""
        self.shm = SharedMemory(max_slots, arena_bytes)
        arena.initialise_arena(**limits)
        append_files.limit_append_files(1000)
        self.path = path
        self.directory = os.open(path, os.O_RDONLY)
        self.shm.add_log_dir(self.directory)
        self.shm.broker_id = BROKER_ID
        for place in range(processes):
            self.shm.add_process(ProcessKind.WORKER)
            self.shm.process_starts(place)
        self.be(0)
        self.table = PartitionTable(self.shm, [path])

    def be(self, place: int) -> None:
        """Take a place in the process table."""
        self.shm.enter(place)
        self.shm.set_state(ProcessState.SERVING)

    def close(self) -> None:
        os.close(self.directory)

    def __enter__(self) -> "OneBroker":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def create(
        self,
        topic: str = "t",
        partition: int = 0,
        *,
        topic_id: bytes | None = None,
        alone: bool = True,
        announce: bool = True,
        opened: bool = True,
        **settings: int,
    ) -> int:
        """A partition that this broker leads, alone in sync or not, its log opened or not, and announced or not; its slot."""
        slot = self.table.create(
            topic,
            topic_id or uuid.uuid4().bytes,
            partition,
            log_dir=0,
            replicas=[1, 2],
            in_sync=[1] if alone else [1, 2],
            leader_id=BROKER_ID,
            leader_epoch=0,
            partition_epoch=0,
            settings=SETTINGS | settings,
        )
        if opened:
            self.table.open(slot)
        if announce:
            self.table.announce([slot])
        return slot

    def lead(self, slot: int, epoch: int, *, alone: bool = True) -> None:
        roles.become_leader(
            slot, slot_probe.incarnation_of(slot), leader_id=1, leader_epoch=epoch, partition_epoch=epoch, controller_epoch=1,
            replicas=[1, 2], in_sync=[1] if alone else [1, 2],
        )  # fmt: skip

    def obey(self, slot: int, epoch: int) -> None:
        roles.become_follower(
            slot, slot_probe.incarnation_of(slot), leader_id=2, leader_epoch=epoch, partition_epoch=epoch, controller_epoch=1,
            replicas=[1, 2], in_sync=[1, 2],
        )  # fmt: skip

    def log_bytes(self, slot: int) -> bytes:
        """The log as it lies on the disk: all segments' bytes one behind the other."""
        return b"".join(path.read_bytes() for path in sorted(self.table.path(slot).glob("*.log")))

    def reload(self, slot: int, copy: Path, *, clean: bool = False, index_interval_bytes: int = 4096) -> LoadedLog:
        """What a start would find in a copy of the partition's directory."""
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.table.path(slot), copy)
        return load_log(copy, 0, 0, clean, index_interval_bytes)

    def fork(self, place: int, action: Callable[[], object]) -> int:
        """Run `action` in a forked child at `place`; its process id. For its exit code see `children.fork`."""

        def act() -> None:
            self.be(place)
            action()

        return fork(act)

    def reap(self, pid: int, place: int) -> int:
        """Wait for a child and do what the supervisor does after its end; 0, its exit code, or minus its signal."""
        code = end_of(pid)
        self.shm.process_died(place)
        return code

    def die(self, action: Callable[[], object], point: int, *, place: int = 1, countdown: int = 1) -> None:
        """Let a child do `action` and be killed at a fault point."""

        def armed() -> None:
            fault_points.arm_fault(int(point), countdown)
            action()

        code = self.reap(self.fork(place, armed), place)
        assert code == -signal.SIGKILL, f"the child was to die at {point!r}, but ended with {code}"
