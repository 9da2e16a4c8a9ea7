"""A partition in plain Python: its log, producers, epochs and offsets after each operation, by Kafka's rules."""

from dataclasses import dataclass, field

from odradek.storage.batch import ABORT, COMMIT, build_end_marker, read_batch

BATCHES_KEPT = 5
EPOCHS_KEPT = 8
OUT_OF_ORDER, FENCED, WRONG_STATE, COORDINATOR_FENCED = 45, 47, 48, 52
LAST_EPOCH = (1 << 15) - 1
SEQUENCES = 1 << 31
NEVER = 1 << 62


@dataclass
class Producer:
    epoch: int
    batches: list[tuple[int, int, int, int]] = field(
        default_factory=list
    )  # newest first, as slot_probe.producers shows them
    transaction_first: int = -1
    coordinator_epoch: int = -1


class Model:
    def __init__(self) -> None:
        self.log: list[bytes] = []
        self.log_end = 0
        self.high_watermark = 0
        self.flushed = 0
        self.flush_messages = NEVER
        self.leader_epoch = 0
        self.epochs: list[tuple[int, int]] = [(0, 0)]
        self.producers: dict[int, Producer] = {}
        self.aborted: list[tuple[int, int, int, int]] = []
        self.ended: list[tuple[int, int]] = []
        self.held: list[list[tuple[int, int]]] = [[], []]
        """(first offset, marker) of each transaction that ended, and of those that hold the last stable offset."""

    # -- verbs ----------------------------------------------------------------------------------------------------

    def append(self, data: bytes) -> tuple[int, int, bool]:
        """(error, base offset, duplicate) of a leader's append; without error or duplicate the batch is in the log now."""
        new, _ = read_batch(data)
        known = self.producers.get(new.producer_id)
        if new.producer_id >= 0 and not new.is_control and known is not None:
            last = (new.base_sequence + new.last_offset_delta) % SEQUENCES
            if new.producer_epoch < known.epoch:
                return FENCED, -1, False
            if new.producer_epoch == known.epoch:
                for first_sequence, last_sequence, base, _ in known.batches:
                    if (first_sequence, last_sequence) == (new.base_sequence, last):
                        if new.is_transactional and not 0 <= known.transaction_first <= base:
                            return WRONG_STATE, -1, False  # Kafka says: a duplicate
                        return 0, base, True
            if known.transaction_first >= 0 and not new.is_transactional:
                return WRONG_STATE, -1, False
            same = new.producer_epoch == known.epoch and known.batches
            if new.base_sequence != ((known.batches[0][1] + 1) % SEQUENCES if same else 0):
                return OUT_OF_ORDER, -1, False
        placed = self.log_end.to_bytes(8, "big") + data[8:12] + self.leader_epoch.to_bytes(4, "big") + data[16:]
        self.take(placed)
        return 0, self.log_end - new.last_offset_delta - 1, False

    def end(
        self, producer: int, epoch: int, coordinator_epoch: int, commits: bool, version: int, timestamp: int
    ) -> tuple[int, int]:
        """(error, offset) of a marker; offset -1: it was not appended. In version 2 its epoch is above that of batches."""
        known = self.producers.get(producer)
        repeated = False
        if known is not None:
            opened = known.transaction_first >= 0
            repeated = version == 2 and epoch == known.epoch and not opened
            same = version == 2 and epoch == known.epoch and opened and epoch != LAST_EPOCH
            if epoch < known.epoch or same:
                return FENCED, -1
            if coordinator_epoch < known.coordinator_epoch:
                return COORDINATOR_FENCED, -1
        if repeated:
            return 0, -1
        place = {"base_offset": self.log_end, "partition_leader_epoch": self.leader_epoch, "timestamp": timestamp}
        identity = {"producer_id": producer, "producer_epoch": epoch, "coordinator_epoch": coordinator_epoch}
        self.take(build_end_marker(COMMIT if commits else ABORT, **identity, **place))
        return 0, self.log_end - 1

    def take(self, data: bytes) -> None:
        """A batch as it is, at its own offset."""
        new, _ = read_batch(data)
        self.note_epoch(new.partition_leader_epoch, new.base_offset)
        self.log.append(data)
        self.log_end = new.last_offset + 1
        self.apply(data)

    def note_epoch(self, epoch: int, start: int) -> None:
        if not self.epochs or self.epochs[-1][0] < epoch:
            while self.epochs and self.epochs[-1][1] >= start:
                self.epochs.pop()
            self.epochs.append((epoch, start))

    def apply(self, data: bytes) -> None:
        new, _ = read_batch(data)
        if new.producer_id < 0:
            return
        known = self.producers.setdefault(new.producer_id, Producer(-1))
        if new.is_control:
            kind = int.from_bytes(new.records()[0].key[2:4], "big")
            if known.transaction_first >= 0:
                first, known.transaction_first = known.transaction_first, -1
                if kind == ABORT:
                    stable = min(self.open_offsets(), default=new.base_offset + 1)
                    self.aborted.append((new.producer_id, first, new.base_offset, stable))
                self.ended.append((first, new.base_offset))
                if self.high_watermark <= new.base_offset:
                    self.held[bool(self.held[0])].append((first, new.base_offset))
            known.coordinator_epoch = int.from_bytes(new.records()[0].value[2:6], "big", signed=True)
            if known.epoch != new.producer_epoch:
                known.epoch, known.batches = new.producer_epoch, []
            return
        if new.producer_epoch != known.epoch:
            known.epoch, known.batches = new.producer_epoch, []
        last = -1 if new.base_sequence < 0 else (new.base_sequence + new.last_offset_delta) % SEQUENCES
        known.batches = [
            (new.base_sequence, last, new.base_offset, new.last_offset),
            *known.batches[: BATCHES_KEPT - 1],
        ]
        if new.is_transactional and known.transaction_first < 0:
            known.transaction_first = new.base_offset

    def truncate(self, offset: int) -> None:
        """The log ends there, or where the batch that holds the offset begins: a part of a batch is no batch."""
        holding = (
            found for data in self.log if (found := read_batch(data)[0]).base_offset < offset <= found.last_offset
        )
        offset = next((found.base_offset for found in holding), offset)
        self.epochs = [entry for entry in self.epochs if entry[1] < offset]
        if offset == self.log_end:
            return
        self.log = [data for data in self.log if read_batch(data)[0].last_offset < offset]
        self.log_end = offset
        self.high_watermark = min(self.high_watermark, offset)
        self.flushed = min(self.flushed, offset)
        self.producers, self.aborted, self.ended, self.held = {}, [], [], [[], []]
        for data in self.log:
            self.apply(data)

    def follow_device(self) -> None:
        """A lone leader's high watermark: the log end, or what is flushed where flush.messages are not."""
        reached = self.log_end if self.log_end - self.flushed < self.flush_messages else self.flushed
        self.raise_high_watermark(reached)

    def raise_high_watermark(self, offset: int) -> None:
        """Transactions that end while others wait for the high watermark wait after them, so that no wait is endless."""
        self.high_watermark = max(self.high_watermark, offset)
        while self.held[0] and self.held[0][-1][1] < self.high_watermark:
            self.held = [self.held[1], []]

    # -- what follows ---------------------------------------------------------------------------------------------

    def open_offsets(self) -> list[int]:
        return sorted(known.transaction_first for known in self.producers.values() if known.transaction_first >= 0)

    @property
    def last_stable(self) -> int:
        return min([self.high_watermark, *self.open_offsets(), *(first for first, _ in self.held[0] + self.held[1])])

    @property
    def last_stable_of_kafka(self) -> int:
        unreplicated = [first for first, marker in self.ended if marker >= self.high_watermark]
        return min([self.high_watermark, *self.open_offsets(), *unreplicated])

    def held_shown(self) -> list[tuple[int, int]]:
        return [(min(first for first, _ in part), part[-1][1]) if part else (-1, -1) for part in self.held]

    def producers_shown(self) -> dict[int, tuple[int, list[tuple[int, int, int, int]]]]:
        return {number: (known.epoch, known.batches) for number, known in self.producers.items()}
