"""Random sequences of operations: after each one, the slot, its files and the result of a start agree with the model."""

import itertools
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import odradek._ext.partition.slot_facts as slot_facts
from odradek._ext.partition import flushing, slots
from odradek._ext.shm.slot import Role
from odradek._ext.testing import slot_probe
from odradek.storage.batch import ABORT, COMMIT, TRANSACTIONAL, build_end_marker, read_batch, read_batches
from tests.shm.model import EPOCHS_KEPT, NEVER, SEQUENCES, Model
from tests.shm.one_broker import OneBroker, batch

INTERVAL = 300
KINDS = [
    "next",
    "next",
    "duplicate",
    "older duplicate",
    "gap",
    "new epoch",
    "old epoch",
    "new epoch, wrong sequence",
    "wrap",
]
ITEM = st.tuples(
    st.sampled_from([None, 1, 2, 3, 4, 5, 6]), st.sampled_from(KINDS), st.integers(1, 5), st.integers(0, 3000)
)
STEP = st.one_of(
    st.tuples(st.just("append"), st.lists(ITEM, min_size=1, max_size=9)),
    st.tuples(st.just("append"), st.lists(ITEM, min_size=1, max_size=9)),
    st.tuples(
        st.just("follow"),
        st.lists(
            st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(1, 4), st.integers(0, 3)),
            min_size=1,
            max_size=8,
        ),
        st.integers(0, 70),
        st.integers(0, 100),
    ),
    st.tuples(
        st.just("transact"),
        st.lists(st.tuples(st.sampled_from([20, 21, 22, 23]), st.integers(1, 3)), min_size=1, max_size=5),
    ),
    st.tuples(
        st.just("end"),
        st.lists(
            st.tuples(
                st.sampled_from([20, 20, 21, 21, 22, 23, 24, 1]),
                st.booleans(),
                st.integers(-1, 1),
                st.integers(-1, 1),
                st.sampled_from([0, 2]),
            ),
            min_size=1,
            max_size=6,
        ),
    ),
    st.tuples(st.just("truncate"), st.integers(0, 100), st.booleans()),
    st.tuples(st.just("raise"), st.integers(0, 100)),
    st.tuples(st.just("roll")),
    st.tuples(st.just("flush"), st.booleans()),
    st.tuples(st.just("configure"), st.sampled_from([1, 4, NEVER])),
    st.tuples(st.just("lead"), st.booleans()),
    st.tuples(st.just("obey")),
)


class Pair:
    """A slot and its model, driven by the same steps."""

    def __init__(self, broker: OneBroker, scratch: Path) -> None:
        self.broker = broker
        self.scratch = scratch
        self.slot = broker.create(segment_bytes=700, index_interval_bytes=INTERVAL)
        self.model = Model()
        self.leads = self.alone = True
        self.cut = False
        self.times = itertools.count(1000, 7)

    def item(self, producer: int | None, kind: str, count: int, jitter: int) -> bytes:
        """A batch that is `kind` to what the model knows of the producer when the write begins."""
        known = self.model.producers.get(producer) if producer else None
        if producer is None:
            return batch(count, timestamp=next(self.times) - jitter)
        epoch, sequence = (known.epoch, 0) if known else (0, 0)
        if known and known.batches:
            sequence = (known.batches[0][1] + 1) % SEQUENCES
            if "duplicate" in kind:
                first, last, _, _ = known.batches[-1 if kind.startswith("older") else 0]
                sequence, count = first, (last - first) % SEQUENCES + 1
        elif kind == "wrap":
            sequence = SEQUENCES - 2
        if kind == "gap":
            sequence = (sequence + 3) % SEQUENCES
        elif kind == "new epoch":
            epoch, sequence = epoch + 1, 0
        elif kind == "old epoch":
            epoch = max(0, epoch - 1)
        elif kind.startswith("new epoch,"):
            epoch += 1
        fields = {"producer_id": producer, "producer_epoch": epoch, "base_sequence": sequence}
        return batch(count, timestamp=next(self.times) - jitter, **fields)

    def transact(self, items: list[tuple[int, int]]) -> None:
        """Batches of transactions, of producers that `append` does not use."""
        if not self.leads:
            return
        for producer, count in items:
            known = self.model.producers.get(producer)
            sequence = (known.batches[0][1] + 1) % SEQUENCES if known and known.batches else 0
            data = batch(
                count,
                timestamp=next(self.times),
                producer_id=producer,
                producer_epoch=known.epoch if known else 0,
                base_sequence=sequence,
                attributes=TRANSACTIONAL,
            )
            expected = [self.model.append(data)]
            assert slot_probe.append(self.slot, [data]) == expected
            self.follow_slot()

    def end(self, ends: list[tuple[int, bool, int, int, int]]) -> None:
        """Markers, which may be those of former transactions or coordinators."""
        if not self.leads:
            return
        markers = []
        for producer, commits, epochs_on, coordinator_epochs_on, version in ends:
            known = self.model.producers.get(producer)
            epoch = max(0, (known.epoch if known else 0) + epochs_on + (version == 2))
            coordinator_epoch = max(0, (known.coordinator_epoch if known else 0) + coordinator_epochs_on)
            markers.append((producer, epoch, coordinator_epoch, commits, version))
        incarnation, before = slot_probe.incarnation_of(self.slot), len(self.broker.log_bytes(self.slot))
        found = slots.append_markers(self.slot, incarnation, self.model.leader_epoch, markers)
        written = iter(read_batches(self.broker.log_bytes(self.slot)[before:]))
        for marker, result in zip(markers, found, strict=True):
            timestamp = next(written).max_timestamp if result[1] >= 0 else 0
            assert self.model.end(*marker, timestamp) == result
        assert next(written, None) is None
        self.follow_slot()

    def follow_slot(self) -> None:
        """After a write of a lone leader. Only the first of several commits may have moved the high watermark; then the model
        does not know which markers were above it."""
        if self.alone:
            self.appended_alone()
            if self.model.flush_messages != NEVER:
                self.adopt_held()

    def adopt_held(self) -> None:
        """What holds the last stable offset depends on snapshots, or on commits: any part of what it may be is right."""
        shown = slot_facts.describe(self.slot).unreplicated
        ended = [(first, marker) for first, marker in self.model.ended if marker >= self.model.high_watermark]
        self.model.held = [[pair] if pair[0] >= 0 else [] for pair in shown]
        for first, marker in shown:
            assert first < 0 or (first in [first for first, _ in ended] and marker in [marker for _, marker in ended])

    def append(self, items: list[tuple[int | None, str, int, int]]) -> None:
        if not self.leads:
            with pytest.raises(slots.SlotChanged, match="not leader"):
                slot_probe.append(self.slot, [batch()])
            return
        batches = [self.item(*item) for item in items]
        # The same batch twice in one write, and one that continues another of the same write.
        batches.append(batches[0])
        expected = [self.model.append(data) for data in batches]
        assert slot_probe.append(self.slot, batches) == expected
        if self.alone:
            self.appended_alone()

    def appended_alone(self) -> None:
        """A write that rolls is several commits: those before flush.messages were reached are seen, the last one is not."""
        seen = slot_facts.describe(self.slot).high_watermark
        ends = {read_batch(data)[0].last_offset + 1 for data in self.model.log} | {self.model.high_watermark}
        if self.model.log_end - self.model.flushed < self.model.flush_messages:
            ends = {self.model.log_end}
        elif seen > self.model.high_watermark:
            assert seen - self.model.flushed < self.model.flush_messages
        assert seen in ends
        assert seen >= self.model.high_watermark
        self.model.raise_high_watermark(seen)

    def follow(self, sent: list[tuple[int, int, int, int]], cut: int, watermark: int) -> None:
        if self.leads:
            with pytest.raises(slots.SlotChanged, match="not leader"):
                slots.follow(self.slot, batch(), 0)
            return
        epoch = self.model.epochs[-1][0] if self.model.epochs else 0
        offset, data, whole = self.model.log_end, b"", []
        open_ones = {number for number, known in self.model.producers.items() if known.transaction_first >= 0}
        sequences = {10: 1 << 20, 11: 1 << 20}
        for epochs_on, gap, count, what in sent:
            epoch = min(epoch + epochs_on, self.model.leader_epoch)
            offset += gap
            place = {"base_offset": offset, "partition_leader_epoch": epoch}
            producer = 10 + count % 2
            if what == 0:
                one = batch(count, timestamp=next(self.times), **place)
            elif what == 3 and producer in open_ones:
                open_ones.discard(producer)
                kind = ABORT if gap else COMMIT
                identity = {"producer_id": producer, "producer_epoch": 0, "coordinator_epoch": 3}
                one = build_end_marker(kind, timestamp=next(self.times), **identity, **place)
            else:
                open_ones.add(producer)
                identity = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequences[producer]}
                one = batch(count, timestamp=next(self.times), attributes=TRANSACTIONAL, **identity, **place)
                sequences[producer] += count
            whole.append(one)
            data += one
            offset = read_batch(one)[0].last_offset + 1
        partial = data[: len(data) - cut] if cut else data
        end = 0
        for one in whole:
            end += len(one)
            if end <= len(partial):
                self.model.take(one)
        watermark = self.model.log_end * watermark // 100
        self.model.raise_high_watermark(watermark)
        assert slots.follow(self.slot, partial, watermark) == self.model.log_end

    def truncate(self, share: int, at_batch: bool) -> None:
        if self.leads:
            return
        offset = self.model.log_end * share // 100
        if at_batch and self.model.log:
            offset = read_batch(self.model.log[share * (len(self.model.log) - 1) // 100])[0].base_offset
        slots.truncate(self.slot, offset)
        self.model.truncate(offset)
        # Of a producer that comes from a snapshot only the last batch before it is known.
        shown = slot_probe.producers(self.slot)
        for number, known in self.model.producers.items():
            _, batches = shown[number]
            assert batches == known.batches[: len(batches)]
            assert bool(batches) == bool(known.batches)
            known.batches = known.batches[: len(batches)]
        self.cut = True
        self.adopt_held()

    def raise_(self, share: int) -> None:
        watermark = self.model.log_end * share // 100
        slots.raise_high_watermark(self.slot, watermark)
        self.model.raise_high_watermark(watermark)

    def roll(self) -> None:
        slot_probe.roll(self.slot)

    def flush(self, whole: bool) -> None:
        flushing.flush(self.slot, whole)
        if self.model.flushed < self.model.log_end or whole:
            self.model.flushed = self.model.log_end
            if self.leads and self.alone:
                self.model.follow_device()

    def configure(self, flush_messages: int) -> None:
        self.broker.table.configure(self.slot, {"flush_messages": flush_messages})
        self.model.flush_messages = flush_messages
        if self.leads and self.alone:
            self.model.follow_device()

    def lead(self, alone: bool) -> None:
        self.model.leader_epoch += 1
        self.leads, self.alone = True, alone
        self.broker.lead(self.slot, self.model.leader_epoch, alone=alone)
        self.model.note_epoch(self.model.leader_epoch, self.model.log_end)
        if alone:
            self.model.follow_device()

    def obey(self) -> None:
        self.model.leader_epoch += 1
        self.leads = False
        self.broker.obey(self.slot, self.model.leader_epoch)

    def check(self) -> None:
        model, found = self.model, slot_facts.describe(self.slot)
        assert found.log_end_offset == model.log_end
        assert found.high_watermark == model.high_watermark
        assert found.flushed_offset == model.flushed
        self.check_place_of_high_watermark(found)
        self.check_transactions(found)
        assert found.epochs == model.epochs[-EPOCHS_KEPT:]
        assert found.role == (Role.ROLE_LEADER if self.leads else Role.ROLE_FOLLOWER)
        assert found.applied_position == found.size
        assert slot_probe.producers(self.slot) == model.producers_shown()
        assert self.broker.log_bytes(self.slot) == b"".join(model.log)
        self.check_files(found)

    def check_transactions(self, found: slot_facts.SlotFacts) -> None:
        """The last stable offset, the list of open transactions, and the place of the oldest one."""
        model = self.model
        assert found.unreplicated == model.held_shown()
        assert found.last_stable_offset == model.last_stable
        if not self.cut:
            assert found.last_stable_offset <= model.last_stable_of_kafka
        if all(marker < model.high_watermark for _, marker in model.ended):
            assert found.last_stable_offset == model.last_stable_of_kafka
        opened = slots.transactions_of(self.slot)
        assert [one["first_offset"] for one in opened] == model.open_offsets()
        for one in opened:
            known = model.producers[one["producer_id"]]
            assert (one["first_offset"], one["epoch"]) == (known.transaction_first, known.epoch)
            assert one["coordinator_epoch"] == known.coordinator_epoch
        assert found.first_unstable_offset == min(model.open_offsets(), default=-1)
        if found.unstable_base >= 0:
            data = (self.broker.table.path(self.slot) / f"{found.unstable_base:020d}.log").read_bytes()
            assert read_batch(data, found.unstable_position)[0].base_offset == found.first_unstable_offset
        else:
            assert self.cut or not opened
        newest = max((last for _, _, last, _ in model.aborted), default=-1)
        assert found.newest_abort_offset == newest or (self.cut and found.newest_abort_offset > newest)

    def check_place_of_high_watermark(self, found: dict) -> None:
        """Where a consumer's read ends, if the slot says it: behind the last batch below, before the next."""
        if found.high_watermark_base < 0:
            return
        data = (self.broker.table.path(self.slot) / f"{found.high_watermark_base:020d}.log").read_bytes()
        at, end = 0, found.high_watermark_position
        assert end <= len(data)
        while at < len(data):
            one, size = read_batch(data, at)
            assert one.last_offset < found.high_watermark if at < end else one.last_offset >= found.high_watermark
            at = size

    def check_files(self, found: dict) -> None:
        """Indexes are those that a recovery would write; what a start finds is what the slot says."""
        path = self.broker.table.path(self.slot)
        before = {p.name: p.read_bytes() for p in path.glob("*.*index")}
        copy = self.scratch / "copy"
        loaded = self.broker.reload(self.slot, copy, index_interval_bytes=INTERVAL)
        assert (loaded.log_end_offset, loaded.base_offset, loaded.size) == (
            self.model.log_end, found.segment_base, found.size)  # fmt: skip
        # An epoch without a batch may be kept or dropped: whoever leads next notes its own.
        began = [entry for entry in self.model.epochs if entry[1] < self.model.log_end]
        assert [entry for entry in loaded.epochs if entry[1] < self.model.log_end] == began
        shown = {
            one.producer_id: (one.producer_epoch, [(b[0], b[1], b[2], b[3]) for b in reversed(one.batches)])
            for one in loaded.producers
        }
        known = self.model.producers_shown()
        for number, (epoch, batches) in shown.items():
            shown[number] = epoch, batches[: len(known[number][1])]  # it reads more than a truncation did
        assert shown == known
        after = {p.name: p.read_bytes() for p in copy.glob("*.*index")}
        assert before.keys() == after.keys()
        for name, content in before.items():
            if name.endswith(".timeindex"):
                # The last entry of a segment that is not ended in order is missing.
                assert after[name].startswith(content) and len(after[name]) - len(content) in (0, 12), name
            else:
                assert after[name] == content, name
        transactions = b"".join(before[name] for name in sorted(before) if name.endswith(".txnindex"))
        entries = [transactions[at : at + 34] for at in range(0, len(transactions), 34)]
        assert [
            tuple(int.from_bytes(e[at : at + 8], "big") for at in (2, 10, 18, 26)) for e in entries
        ] == self.model.aborted


@settings(max_examples=120, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(STEP, min_size=1, max_size=14))
def test_slot_and_files_follow_the_model(steps: list[tuple]) -> None:
    with tempfile.TemporaryDirectory() as name:
        data, scratch = Path(name) / "data", Path(name) / "scratch"
        data.mkdir()
        scratch.mkdir()
        with OneBroker(data) as broker:
            pair = Pair(broker, scratch)
            for verb, *arguments in steps:
                getattr(pair, "raise_" if verb == "raise" else verb)(*arguments)
                pair.check()
