"""A log in use while calls fail one after the other: `python -m tests.faults.failing_writes DIRECTORY CONTROL SEED`.

Run with `failing_calls` preloaded. Prints a JSON object: how often what was done; ends with an error at the first turn
after which an acknowledged record is lost, doubled or misplaced.
"""

import errno
import json
import random
import shutil
import sys
from collections import Counter
from pathlib import Path

from odradek._ext.partition import flushing, slot_upkeep, slots
from odradek._ext.shm.layout import DiskState
from odradek._ext.shm.slot import SlotState
from odradek._ext.storage.segments import load_log
from odradek._ext.testing import slot_probe, storage_probe
from odradek.cleaner import shutdown
from odradek.config.broker_config import BrokerConfig
from odradek.shm import checkpoints
from odradek.storage import file_names
from odradek.storage.batch import read_batch
from odradek.storage.checkpoints import read_offset_checkpoint
from tests.faults.failing_calls import FailingCalls
from tests.shm.one_broker import OneBroker, batch

PRODUCERS = (1, 2)
MAY_END_SERVICE = ("sync", "epoch")  # a sync that failed is not asked again; a leader is none before its epoch is noted


class Turn:
    """A scripted life of a log during which some calls fail."""

    def __init__(self, path: Path, calls: FailingCalls, seed: int) -> None:
        self.rng = random.Random(seed)
        self.calls = calls
        self.path = path
        self.sequences = dict.fromkeys(PRODUCERS, 0)
        self.acknowledged: list[tuple[int, bytes]] = []  # base offset, batch as sent
        self.tried = self.failing = ""  # what is being done, and what was when a call failed

    def run(self, number: int, error: int, halves: bool) -> bool:
        """Whether a call failed."""
        with OneBroker(self.path) as broker:
            self.broker = broker
            self.slot = broker.create(segment_bytes=900, index_interval_bytes=100)
            self.calls.watch(self.path, no_sync=True)
            self.calls.arm(number, error, 2 if halves else 1, halves)
            for step in range(14):
                self._step(step)
            self.failed = self.calls.failed
            self.online = slots.state_of(self.slot) == SlotState.SLOT_ONLINE
            self.calls.disarm()
            if self.failed and error == errno.ENOSPC and self.failing not in MAY_END_SERVICE:
                assert self.online, f"ENOSPC at {self.calls.last_file} put the log offline"
            if self.online:
                self._append()  # whatever failed is over: what is sent now is taken
                assert self.sequences_known(), "an append after the failure was refused"
            shutdown.close_all(BrokerConfig({}), broker.shm, [self.path])
        self._start_again()
        return self.failed > 0

    def _step(self, step: int) -> None:
        try:
            if step % 5 == 4:
                self.tried = "sync"
                flushing.flush(self.slot)
                self.tried = "checkpoint"
                checkpoints.write_checkpoints(self.broker.shm, [self.path])
            elif step == 6:
                self.tried = "epoch"
                self.broker.lead(self.slot, 1)
            elif step == 8:
                self.tried = "snapshot"
                slot_upkeep.snapshot(self.slot)
            elif step == 11:
                self.tried = "roll"
                slot_probe.roll(self.slot)
        except (OSError, slots.SlotChanged):
            assert self.calls.failed, "an error without a call that failed"
        self._note()
        self.tried = "append"
        self._append()
        self._note()

    def _note(self) -> None:
        if self.calls.failed and not self.failing:
            self.failing = self.tried

    def _append(self) -> None:
        # The cleaner, which is not there, looks at the disk and finds room.
        self.broker.shm.set_disk(0, DiskState.DISK_ROOMY, 1 << 40, 1 << 41)
        sent = []
        for producer in PRODUCERS:
            count = self.rng.choice([1, 2, 5])
            data = batch(
                count, value=self.rng.randbytes(20), timestamp=1000 + len(self.acknowledged), producer_id=producer,
                producer_epoch=0, base_sequence=self.sequences[producer],
            )  # fmt: skip
            sent.append((producer, count, data))
        results: list[tuple[int, int, bool]] = []
        for _ in range(3):  # as a producer does: the same again while the error is one to be retried
            try:
                results = slot_probe.append(self.slot, [data for _, _, data in sent])
            except slots.SlotChanged:
                assert self.calls.failed, "an error without a call that failed"
                continue
            if not any(error for error, _, _ in results):
                break
        for (producer, count, data), (error, base, _) in zip(sent, results, strict=False):
            if not error:
                self.acknowledged.append((base, data))
                self.sequences[producer] += count

    def sequences_known(self) -> bool:
        """Whether the newest batches of all producers were acknowledged."""
        known = slot_probe.producers(self.slot)
        return all(known[one][1][0][1] == self.sequences[one] - 1 for one in PRODUCERS)

    def _start_again(self) -> None:
        """Check the next start: every acknowledged record once, without gaps."""
        clean = (self.path / file_names.CLEAN_SHUTDOWN).exists()
        points = read_offset_checkpoint(self.path / file_names.RECOVERY_POINT_CHECKPOINT)
        directory = self.path / "t-0"
        loaded = load_log(directory, 0, points.get(("t", 0), 0), clean, 100)
        log = b"".join(
            (directory / f"{base:020d}.log").read_bytes() for base in storage_probe.segment_base_offsets(loaded)
        )
        found, at, end = {}, 0, 0
        seen: set[tuple[int, int]] = set()
        while at < len(log):
            one, behind = read_batch(log, at)
            assert one.base_offset == end, f"offset {one.base_offset} where {end} was due"
            assert (one.producer_id, one.base_sequence) not in seen, f"twice in the log: {one}"
            seen.add((one.producer_id, one.base_sequence))
            found[end] = log[at + 16 : behind]
            at, end = behind, one.last_offset + 1
        assert loaded.log_end_offset == end
        for base, data in self.acknowledged:
            assert found.get(base) == data[16:], f"acknowledged at offset {base}, and not there (clean: {clean})"
        for one in loaded.producers:
            newest = max(sequence for producer, sequence in seen if producer == one.producer_id)
            assert one.batches[-1].base_sequence == newest


def main(path: Path, control: Path, seed: int) -> None:
    calls = FailingCalls(control)
    done: Counter[str] = Counter()
    for error, halves in ((errno.ENOSPC, False), (errno.ENOSPC, True), (errno.EIO, False)):
        number = 0
        while True:
            number += 1
            data = path / "turn"
            data.mkdir()
            turn = Turn(data, calls, seed)
            try:
                fired = turn.run(number, error, halves)
            except BaseException as caught:
                caught.add_note(f"call {number} failed with {errno.errorcode[error]}: {calls.last_file}, {halves=}")
                raise
            shutil.rmtree(data)
            if not fired:
                break
            done["rounds calls that failed by turns"] += 1
            kind = Path(calls.last_file).suffix.removeprefix(".") if "t-0" in calls.last_file else "checkpoint"
            name = errno.errorcode[error] + (" after half a write" if halves else "")
            done[f"{name} at {kind or 'epoch checkpoint or directory'}"] += 1
    print(json.dumps(done))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
