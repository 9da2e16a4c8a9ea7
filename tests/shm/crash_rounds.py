"""A random log, a crash at a random commit, random damage that a crash may cause, and a check of what must have survived.

One round takes a few milliseconds: the log is written by the broker's functions through a slot, without processes. Synced data
is kept as it was at the last flush; of all other data anything may survive. The expected log is computed from the damaged files
and the model's batches alone, before the broker's recovery reads the files.
"""

import os
import random
import shutil
from collections import Counter
from pathlib import Path

import odradek._ext.partition.slot_facts as slot_facts
from odradek._ext.partition import flushing, slots
from odradek._ext.storage.lookup import time_of
from odradek._ext.storage.segments import LoadedLog, load_log
from odradek._ext.testing import slot_probe, storage_probe
from odradek.storage.batch import ABORT, COMMIT, TRANSACTIONAL, Record, build_batch, build_end_marker, read_batch
from odradek.storage.checkpoints import read_leader_epochs
from odradek.storage.file_names import LEADER_EPOCH_CHECKPOINT
from odradek.storage.indexes import OFFSET_ENTRY, TIME_ENTRY, TXN_ENTRY, read_txn_index
from odradek.storage.lookup import find_in_compressed
from tests.shm.model import Model
from tests.shm.one_broker import SETTINGS, OneBroker
from tests.storage.log_files import read_offset_index, read_time_index

IDEMPOTENT, TRANSACTIONS = (1, 2, 3, 4), (11, 12)
ENTRY_BYTES = {".index": OFFSET_ENTRY.size, ".timeindex": TIME_ENTRY.size, ".txnindex": TXN_ENTRY.size}
TAILS = ("kept", "lost", "torn", "zeros", "garbage", "torn with zeros behind", "hole of zeros", "flipped bit")
LEFTOVERS = (".deleted", ".cleaned", ".swap", ".tmp")
LEADER_EPOCH = range(12, 16)


def _is_leader_epoch(log: bytes, position: int) -> bool:
    """Whether the byte at `position` is of a batch's leader epoch."""
    at = 0
    while position >= (behind := read_batch(log, at)[1]):
        at = behind
    return position - at in LEADER_EPOCH


class CrashRound:
    """One log through several crashes. `done` counts what was done to it; any failure is an AssertionError."""

    def __init__(self, seed: int, path: Path) -> None:
        self.rng = random.Random(seed)
        self.path = path
        self.done: Counter[str] = Counter()
        self.model = Model()
        self.interval = self.rng.choice([1, 200, 700, 4096])
        self.settings = {
            "segment_bytes": self.rng.choice([500, 1500, 6000, 1 << 20]),
            "index_interval_bytes": self.interval,
        }
        self.time = 1_000_000
        self.epoch = 0
        self.last: dict[int, bytes] = {}  # the last batch of each producer as sent
        self.synced: dict[str, bytes] = {}  # files of which the name and this much is on the device
        self.recovery_points = [0]
        self.epochs_lost = False

    def run(self, crashes: int) -> None:
        for number in range(crashes):
            data = self.path / f"{number}"
            data.mkdir(parents=True)
            if number:
                shutil.move(self.path / f"{number - 1}" / "t-0", data / "t-0")
            with OneBroker(data) as broker:
                self._take_over(broker)
                for _ in range(self.rng.randrange(4, 40)):
                    self._act()
                crashed = {path.name: path.read_bytes() for path in self.directory.iterdir()}
                self._is_what_was_written(crashed)
            self._damage(crashed)
            end = self._expected_end()
            assert end >= self.flushed, "the damage was more than a crash may do"
            self._load(end)
            self.model.truncate(end)
            shutil.rmtree(self.path / f"{number - 1}", ignore_errors=True)
        self.done["rounds crashed logs"] += crashes

    # -- the broker at work -------------------------------------------------------------------------------------

    def _take_over(self, broker: OneBroker) -> None:
        """Open the log as a start does and lead it; what its producers were told of last is a duplicate."""
        self.broker = broker
        table = broker.table
        self.slot = table.create(
            "t", bytes(16), 0, log_dir=0, replicas=[1], in_sync=[1], leader_id=1, leader_epoch=self.epoch,
            partition_epoch=0, settings=SETTINGS | self.settings,
        )  # fmt: skip
        self.directory = broker.path / "t-0"
        point = min(self.rng.choice(self.recovery_points), self.model.log_end)
        table.open(self.slot, recovery_point=point, clean=not self.directory.exists())
        self.flushed = point
        self.synced = {path.name: path.read_bytes() for path in self.directory.iterdir()}
        assert slot_facts.describe(self.slot).log_end_offset == self.model.log_end
        self.model.note_epoch(self.epoch, self.model.log_end)
        self.model.leader_epoch = self.epoch
        # The producers' retries of what they have no answer to: what is there is told as a duplicate, at its offset.
        for producer, known in self.model.producers.items():
            if not known.batches or producer not in self.last:
                continue
            first, last, base, _ = known.batches[0]
            again = next(data for data in reversed(self.model.log) if read_batch(data)[0].base_offset == base)
            expected = self.model.append(again)
            assert expected == (0, base, True) or self._open_since(producer) < 0, "the model does not know a retry"
            assert slot_probe.append(self.slot, [again]) == [expected], "a retry after the crash was not known"
            assert first <= last
            self.done["checks retries told as duplicates"] += 1

    def _act(self) -> None:
        acts = ("append", "append", "append", "append", "append", "roll", "flush", "lead", "marker", "retry")
        getattr(self, "_" + self.rng.choice(acts))()

    def _append(self) -> None:
        batches, sequences = [], {}
        for _ in range(self.rng.choice([1, 1, 2, 5])):
            count = self.rng.choice([1, 2, 3] if self.settings["segment_bytes"] < 6000 else [1, 2, 30])
            self.time += self.rng.randrange(-20, 100)
            content = [
                Record(b"k%d" % n, self.rng.randbytes(self.rng.randrange(60)), self.time + self.rng.randrange(-9, 9))
                for n in range(count)
            ]
            header = {}
            producer = self.rng.choice([-1, -1, *IDEMPOTENT, *TRANSACTIONS])
            if producer >= 0:
                known = self.model.producers.get(producer)
                sequence = known.batches[0][1] + 1 if known and known.batches else 0
                sequence = sequences.get(producer, sequence)
                sequences[producer] = sequence + count
                header = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence}
            if producer in TRANSACTIONS:
                header["attributes"] = TRANSACTIONAL
            batches.append(build_batch(content, codec=self.rng.choice([0, 0, 1, 2, 3, 4]), **header))
        results = slot_probe.append(self.slot, batches)
        assert results == [self.model.append(data) for data in batches]
        for data in batches:
            if read_batch(data)[0].producer_id >= 0:
                self.last[read_batch(data)[0].producer_id] = data

    def _retry(self) -> None:
        """Every producer sends its last batch once more: a duplicate, or appended now if a crash took it."""
        for data in list(self.last.values()):
            assert slot_probe.append(self.slot, [data]) == [self.model.append(data)]

    def _roll(self) -> None:
        slot_probe.roll(self.slot)

    def _lead(self) -> None:
        self.epoch += 1
        self.broker.lead(self.slot, self.epoch)
        self.model.leader_epoch = self.epoch
        self.model.note_epoch(self.epoch, self.model.log_end)

    def _marker(self) -> None:
        """Ends an open transaction, as a follower is sent the marker by its leader."""
        open_ones = [number for number in TRANSACTIONS if self._open_since(number) >= 0]
        if not open_ones:
            return
        self.epoch += 1
        self.broker.obey(self.slot, self.epoch)
        end = self.model.log_end
        marker = build_end_marker(
            self.rng.choice([ABORT, COMMIT]), base_offset=end, producer_id=self.rng.choice(open_ones),
            producer_epoch=0, coordinator_epoch=1, timestamp=self.time, partition_leader_epoch=self.epoch,
        )  # fmt: skip
        assert slots.follow(self.slot, marker, end + 1) == end + 1
        self.model.take(marker)
        self._lead()

    def _open_since(self, producer: int) -> int:
        known = self.model.producers.get(producer)
        return known.transaction_first if known else -1

    def _flush(self) -> None:
        flushing.flush(self.slot)
        state = slot_facts.describe(self.slot)
        assert state.flushed_offset == state.log_end_offset == self.model.log_end
        self.flushed = self.model.log_end
        self.synced = {path.name: path.read_bytes() for path in self.directory.iterdir()}
        self.recovery_points.append(self.flushed)

    # -- the crash ----------------------------------------------------------------------------------------------

    def _is_what_was_written(self, files: dict[str, bytes]) -> None:
        log = b"".join(files[name] for name in sorted(files) if name.endswith(".log"))
        assert log == b"".join(self.model.log)

    def _count(self, what: str) -> None:
        if not what.endswith(" kept"):
            self.done[what] += 1

    def _damage(self, crashed: dict[str, bytes]) -> None:
        """What is left of each file: at least what was synced."""
        self.everything_kept = self.rng.random() < 0.15  # the processes died, the machine did not
        self.done["processes killed" if self.everything_kept else "power lost"] += 1
        for name, content in sorted(crashed.items()):
            suffix = Path(name).suffix
            if suffix in (".log", *ENTRY_BYTES) and not self.everything_kept:
                self._damage_appended(name, content)
            elif suffix == ".snapshot":
                self._damage_snapshot(name, content)
        if self.rng.random() < 0.6:
            self._damage_indexes()
        if self.rng.random() < 0.3:
            self._leave_leftovers()
        self._damage_epochs()

    def _damage_appended(self, name: str, content: bytes) -> None:
        safe = self.synced.get(name, b"")
        assert content.startswith(safe), f"{name}: synced bytes were written again"
        if len(safe) == len(content) and name in self.synced:
            return
        path = self.directory / name
        at = self.rng.randrange(len(safe), len(content) + 1)
        kind = self.rng.choice(TAILS)
        if name not in self.synced and self.rng.random() < 0.3:
            if name.endswith(".log"):  # names become lasting in order: those of later segments are gone with it
                for other in list(self.directory.glob("0*")):
                    if other.name[:20] >= name[:20] and other.name not in self.synced:
                        other.unlink()
            path.unlink(missing_ok=True)
            self._count(f"{Path(name).suffix[1:]} never on the device")
            return
        if not path.exists():
            return
        if kind == "lost":
            content = safe
        elif kind == "torn":
            content = content[:at]
        elif kind == "zeros":
            content = safe + bytes(len(content) - len(safe) + self.rng.choice([0, 100]))
        elif kind == "garbage":
            content = content[:at] + self.rng.randbytes(self.rng.randrange(1, 200))
        elif kind == "torn with zeros behind":
            content = content[:at] + bytes(self.rng.randrange(1, 300))
        elif kind == "hole of zeros":
            n = min(self.rng.randrange(8, 200), len(content) - at)
            content = content[:at] + bytes(n) + content[at + n :]
        elif kind == "flipped bit" and at < len(content):
            if name.endswith(".log") and _is_leader_epoch(content, at):
                at += LEADER_EPOCH.stop - LEADER_EPOCH.start  # the one field that nothing vouches for, in Kafka too
            content = self._flipped(content, at)
        path.write_bytes(content)
        self._count(f"{Path(name).suffix[1:]} {kind}")

    def _flipped(self, content: bytes, at: int) -> bytes:
        return content[:at] + bytes([content[at] ^ 1 << self.rng.randrange(8)]) + content[at + 1 :]

    def _damage_snapshot(self, name: str, content: bytes) -> None:
        path = self.directory / name
        if not path.exists() or not content:
            return
        kind = self.rng.choice(("kept", "kept", "missing", "empty", "torn", "flipped"))
        if kind == "missing":
            path.unlink()
        elif kind == "empty":
            path.write_bytes(b"")
        elif kind == "torn":
            path.write_bytes(content[: self.rng.randrange(len(content))])
        elif kind == "flipped":
            path.write_bytes(self._flipped(content, self.rng.randrange(len(content))))
        self._count(f"snapshot {kind}")

    def _damage_indexes(self) -> None:
        """Any index may be lost, also one that was synced; one of a segment that is not recovered can be too short."""
        for path in sorted(self.directory.glob("0*index")):
            if path.suffix not in ENTRY_BYTES or self.rng.random() < 0.7:
                continue
            recovered = int(path.name[:20]) >= self._recovered_from()
            if path.suffix == ".txnindex" and not recovered:
                continue  # nothing but the recovery of its segment can make it anew
            content = path.read_bytes()
            entry = ENTRY_BYTES[path.suffix]
            kinds = ["missing", "torn entry", "stale"] + (["zeros", "long", "flipped", "garbage"] if recovered else [])
            kind = self.rng.choice(kinds)
            if kind == "missing":
                path.unlink()
            elif kind == "torn entry":
                path.write_bytes(content + bytes(self.rng.randrange(1, entry)))
            elif kind == "stale":
                path.write_bytes(content[: self.rng.randrange(len(content) // entry + 1) * entry])
            elif kind == "zeros":
                path.write_bytes(bytes(len(content)))
            elif kind == "long":
                path.write_bytes(content + bytes(entry * self.rng.randrange(1, 40)))
            elif kind == "garbage":
                path.write_bytes(self.rng.randbytes(len(content)))
            elif content:
                path.write_bytes(self._flipped(content, self.rng.randrange(len(content))))
            self._count(f"{path.suffix[1:]} {kind}")

    def _leave_leftovers(self) -> None:
        for _ in range(self.rng.randrange(1, 4)):
            base = self.rng.choice([0, 3, self.model.log_end, self.model.log_end + 7])
            kind = self.rng.choice([".log", ".index", ".timeindex", ".txnindex", ".snapshot"])
            state = self.rng.choice(LEFTOVERS)
            name = f"{base:020d}{kind}{state}"
            if state == ".swap":  # sound ones are put in place: this one is condemned by the .cleaned beside it
                (self.directory / f"{0:020d}.log.cleaned").write_bytes(b"half")
            (self.directory / name).write_bytes(self.rng.randbytes(self.rng.randrange(100)))
            self._count(f"leftover {state}")

    def _damage_epochs(self) -> None:
        """Missing or corrupt, it is made of the batches that are read; a stale one lacks what came after the sync."""
        self.epochs_complete = True
        path = self.directory / LEADER_EPOCH_CHECKPOINT
        kind = self.rng.choice(("kept", "kept", "missing", "corrupt", "stale"))
        if kind == "missing":
            path.unlink(missing_ok=True)
        elif kind == "corrupt":
            content = path.read_bytes()
            path.write_bytes(content[: self.rng.randrange(1, max(2, len(content)))] + b"\x00\x00")
        elif kind == "stale":
            entries = read_leader_epochs(path)
            kept = entries[: self.rng.randrange(len(entries) + 1)]
            text = "".join(f"{epoch} {offset}\n" for epoch, offset in kept)
            path.write_text(f"0\n{len(kept)}\n{text}")
        self.epochs_complete = kind == "kept"
        self._count(f"epoch checkpoint {kind}")

    # -- what has to be there -----------------------------------------------------------------------------------

    def _bases(self) -> list[int]:
        return sorted(int(path.stem) for path in self.directory.glob("0*.log"))

    def _recovered_from(self) -> int:
        """Base offset of the first segment that a start would read, whichever of the recovery points it is given."""
        return max((base for base in self._bases() if base < min(self.recovery_points[-1], self.flushed)), default=0)

    def _expected_end(self) -> int:
        """The offset behind the last batch before which nothing is missing or changed."""
        batches = {read_batch(data)[0].base_offset: data for data in self.model.log}
        end = 0
        for base in self._bases():
            content = (self.directory / f"{base:020d}.log").read_bytes()
            if base != end:
                break
            at = 0
            while end in batches and content[at : at + len(batches[end])] == batches[end]:
                at += len(batches[end])
                end = read_batch(batches[end])[0].last_offset + 1
            if at != len(content):
                break
        return end

    def _load(self, end: int) -> None:
        """Recover, perhaps killed in between; compare everything with the model cut at `end`."""
        directory = self.directory
        point = self.rng.choice([*self.recovery_points, self.recovery_points[-1], 0])
        point = min(point, self.flushed)
        self._count("recovery point " + ("kept" if point == self.flushed else "stale" if point else "missing"))
        if self.flushed == self.model.log_end > self._bases()[-1] and self.rng.random() < 0.2:
            point = self.model.log_end + self.rng.randrange(1, 1000)
            self._count("recovery point beyond the end")
        for _ in range(self.rng.choice([0, 0, 1, 2])):
            try:
                load_log(directory, 0, point, False, self.interval, self.rng.randrange(6))
            except OSError:
                self._count("recovery killed")
        loaded = load_log(directory, 0, point, False, self.interval)
        expected = Model()
        expected.leader_epoch = self.model.leader_epoch
        for data in self.model.log:
            if read_batch(data)[0].last_offset < end:
                expected.take(data)
        assert loaded.log_end_offset == end, (loaded.log_end_offset, end, [one.message for one in loaded.events])
        self._is_whole(loaded, expected)
        self._producers_are_known(loaded, expected)
        self._epochs_are_right(loaded, expected, point, end)
        self._indexes_lead_right(loaded)
        self._aborted_are_listed(expected, point)
        again = load_log(directory, 0, end, True, self.interval)
        assert (again.log_end_offset, again.events) == (end, []), [one.message for one in again.events]

    def _is_whole(self, loaded: LoadedLog, expected: Model) -> None:
        logs = [
            (self.directory / f"{base:020d}.log").read_bytes() for base in storage_probe.segment_base_offsets(loaded)
        ]
        assert b"".join(logs) == b"".join(expected.log)
        names = {path.name for path in self.directory.glob("0*") if path.suffix not in (".snapshot", ".tmp")}
        assert {int(name[:20]) for name in names} == set(storage_probe.segment_base_offsets(loaded)), names

    def _producers_are_known(self, loaded: LoadedLog, expected: Model) -> None:
        found = {one.producer_id: one for one in loaded.producers}
        assert found.keys() == expected.producers.keys()
        for number, known in expected.producers.items():
            one = found[number]
            assert one.producer_epoch == known.epoch
            assert one.current_txn_first_offset == known.transaction_first
            kept = [tuple(batch)[:4] for batch in reversed(one.batches)]
            assert kept == known.batches[: len(kept)] and bool(kept) == bool(known.batches)

    def _epochs_are_right(self, loaded: LoadedLog, expected: Model, point: int, end: int) -> None:
        if not self.epochs_complete and point >= [*storage_probe.segment_base_offsets(loaded), 1 << 62][1]:
            self.epochs_lost = True  # those of segments that were not read again are not known any more
        if not self.epochs_lost:
            in_log, seen = [], -1
            for data in expected.log:
                batch, _ = read_batch(data)
                if batch.partition_leader_epoch > seen:
                    seen = batch.partition_leader_epoch
                    in_log.append((seen, batch.base_offset))
            found = [entry for entry in loaded.epochs if entry[1] < end]
            missing = [entry for entry in in_log if entry not in found]
            assert not missing, (missing, loaded.epochs)
        starts = [offset for _, offset in loaded.epochs]
        assert starts == sorted(starts) and [e for e, _ in loaded.epochs] == sorted(e for e, _ in loaded.epochs)
        assert end == 0 or all(offset < end for offset in starts)

    def _indexes_lead_right(self, loaded: LoadedLog) -> None:
        for base in storage_probe.segment_base_offsets(loaded):
            stem = self.directory / f"{base:020d}"
            log = stem.with_suffix(".log").read_bytes()
            index = read_offset_index(stem.with_suffix(".index").read_bytes(), base)
            times = read_time_index(stem.with_suffix(".timeindex").read_bytes(), base)
            batches, at = {}, 0
            while at < len(log):
                batch, behind = read_batch(log, at)
                batches[at], at = batch, behind
            for offset, position in index:
                assert batches[position].last_offset == offset, f"{stem}.index lies"
            assert index == sorted(set(index)) and times == sorted(set(times))
            for timestamp, offset in times:
                assert max(b.max_timestamp for b in batches.values() if b.last_offset <= offset) == timestamp
            if batches:
                self._looks_up(stem, log, batches, len(index), len(times), base)

    def _looks_up(self, stem, log, batches, index_entries, time_entries, base) -> None:
        files = [os.open(stem.with_suffix(kind), os.O_RDONLY) for kind in (".log", ".index", ".timeindex")]
        try:
            log_fd, index_fd, time_fd = files
            for _ in range(3):
                position, batch = self.rng.choice(list(batches.items()))
                target = self.rng.randrange(batch.base_offset, batch.last_offset + 1)
                found = storage_probe.position_of(log_fd, index_fd, index_entries, base, len(log), target)
                assert (found["position"], found["base_offset"]) == (position, batch.base_offset)
                wanted = batch.max_timestamp - self.rng.randrange(60)
                first = next(
                    (record.offset, record.timestamp)
                    for one in batches.values()
                    for record in one.records()
                    if record.timestamp >= wanted
                )
                files_and_counts = log_fd, index_fd, index_entries, time_fd, time_entries
                position = time_of(*files_and_counts, base, len(log), wanted, base, find_in_compressed)
                assert position is not None and position[:2] == first
        finally:
            for descriptor in files:
                os.close(descriptor)
        self.done["checks look-ups by offset and time"] += 6

    def _aborted_are_listed(self, expected: Model, point: int) -> None:
        listed = [
            (one.producer_id, one.first_offset, one.last_offset)
            for path in sorted(self.directory.glob("0*.txnindex"))
            for one in read_txn_index(path.read_bytes())
        ]
        assert listed == [aborted[:3] for aborted in expected.aborted]
