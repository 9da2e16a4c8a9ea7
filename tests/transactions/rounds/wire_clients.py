"""Wire-level clients of a round: writers that also crash and are fenced, copiers, and readers of assigned partitions."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from odradek.protocol.errors import ErrorCode
from tests.transactions.checker.history import Place, Poll, Record, Transaction
from tests.transactions.rounds.scene import Client, Scene
from tests.transactions.wire_calls import RefusedError, TooLateError
from tests.transactions.wire_producer import WireProducer

FAILURES = (RefusedError, TooLateError)
MOST_COPIED = 8
PAUSE_S = 0.01


class _Producing(Client):
    """A client with a transactional producer, which is replaced by a new instance after each failure."""

    def __init__(self, scene: Scene, name: str, seed: int, *ending: object) -> None:
        super().__init__(scene, name, *ending)  # type: ignore[arg-type]
        self.rng = random.Random(seed)
        self.producer = self.instance()

    def instance(self) -> WireProducer:
        """A new instance of the producer."""
        scene = self.scene
        return WireProducer(
            scene.routes(), f"{scene.name}-{self.name}", scene.transaction_version, scene.timing, scene.timeout_ms
        )

    def begin(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Go on with a new instance, as a client that was started again."""
        while True:
            self.producer.close()
            self.producer = self.instance()
            try:
                self.producer.init()
            except FAILURES as error:
                self.scene.note(f"init: {_reason(error)}")
                if self.ending.is_set():
                    return
            else:
                return

    def end(self) -> None:
        self.producer.close()

    def begin_transaction(self) -> Transaction:
        return self.scene.take(self.producer.begin(self.scene.number()))

    def failed(self, transaction: Transaction, error: Exception) -> None:
        """A transaction failed with an error: abort it, or go on with a new instance."""
        transaction.note = transaction.note or str(error)
        self.scene.note(_reason(error))
        if self.producer.open is transaction and self.rng.random() < 0.6:
            try:
                self.producer.abort()
            except FAILURES as other:
                self.scene.note(f"abort: {_reason(other)}")
            else:
                return
        self.renew()


class Writer(_Producing):
    """Writes transactions to all partitions, and reads in some of them; some it aborts, in some it crashes or is
    fenced.
    """

    ACTIONS = {
        "commit": 60, "abort": 15, "crash": 6, "crash in a write": 4, "crash in the end": 6, "fence": 8, "stall": 1,
    }  # fmt: skip

    def begin(self) -> None:
        super().begin()
        self.reader = self.scene.reader(self.scene.data)

    def end(self) -> None:
        super().end()
        self.reader.close()

    def step(self) -> None:
        transaction = self.begin_transaction()
        action = self.rng.choices(list(self.ACTIONS), list(self.ACTIONS.values()))[0]
        try:
            for _ in range(self.rng.randrange(1, 5)):
                self.producer.write(self.rng.choice(self.scene.written), self.rng.choice([1, 1, 1, 3]))
                if self.rng.random() < 0.2:
                    transaction.reads += self.reader.poll()
            self._ends()[action]()
        except FAILURES as error:
            if action == "fence":
                self.scene.note("fenced")
            self.failed(transaction, error)
        else:
            self.scene.note(f"{action}: {transaction.outcome.value}")
        time.sleep(self.rng.random() * PAUSE_S)

    def _ends(self) -> dict[str, Callable[[], None]]:
        return {
            "commit": self.producer.commit,
            "abort": self.producer.abort,
            "crash": self.renew,
            "crash in a write": self._crash_in_a_write,
            "crash in the end": self._crash_in_the_end,
            "fence": self._be_fenced,
            "stall": self._stall,
        }

    def _crash_in_a_write(self) -> None:
        self.producer.send_write(self.rng.choice(self.scene.written))
        self.renew()

    def _crash_in_the_end(self) -> None:
        self.producer.send_end(self.rng.random() < 0.7)
        self.renew()

    def _be_fenced(self) -> None:
        """Another instance begins; this one goes on as if it did not know."""
        transaction = self.producer.open
        other = self.instance()
        try:
            other.init()
            assert transaction is not None
            transaction.fenced_ns = time.monotonic_ns()
            try:
                if self.rng.random() < 0.5:
                    self.producer.write(self.rng.choice(self.scene.written))
            finally:
                self.producer.commit()
        finally:
            other.close()

    def _stall(self) -> None:
        self.ending.wait(1.3 * self.scene.timeout_ms / 1000)  # until the broker has aborted the transaction
        self.producer.commit()


class Copier(_Producing):
    """Copies `source` to `output`: each transaction has outputs and the offsets of their inputs. It aborts and
    crashes, too.
    """

    ACTIONS = {"commit": 70, "abort": 12, "crash": 10, "crash in the end": 8}

    @property
    def group(self) -> str:
        return f"{self.scene.name}-{self.name}"

    def begin(self) -> None:
        super().begin()
        self.reader = self.scene.reader(self.scene.source)
        self.inputs = self.scene.add_reader(f"{self.name} (inputs)", self.group)
        self.done: dict[Place, int] = {}  # the offsets below which everything was committed as processed
        self._rewind()

    def end(self) -> None:
        super().end()
        self.reader.close()

    def _rewind(self) -> None:
        """Go back to the offsets that are committed."""
        while True:
            try:
                found = self.reader.committed(self.group, self.scene.source)
            except FAILURES as error:
                self.scene.note(f"offsets: {_reason(error)}")
                if self.ending.is_set():
                    return
            else:
                self.reader.positions = {place: max(offset, 0) for place, offset in found.items()}
                return

    def failed(self, transaction: Transaction, error: Exception) -> None:
        super().failed(transaction, error)
        self._rewind()

    def copied_to(self, ends: dict[Place, int]) -> bool:
        """Whether everything below these offsets was committed as processed."""
        return all(self.done.get(place, 0) >= end for place, end in ends.items())

    def step(self) -> None:
        before = dict(self.reader.positions)
        polls = self.reader.poll()
        if not polls:
            if self.reader.positions != before:
                self.done = dict(self.reader.positions)  # markers and aborted records: there is nothing to process
            return
        self.inputs.polls += polls
        inputs: list[tuple[Place, Record]] = [(poll.place, record) for poll in polls for record in poll.records]
        for at in range(0, len(inputs), MOST_COPIED):
            if not self._copy(inputs[at : at + MOST_COPIED]):
                return  # the positions are those of the group
        self.done = dict(self.reader.positions)

    def _copy(self, inputs: list[tuple[Place, Record]]) -> bool:
        transaction = self.begin_transaction()
        action = self.rng.choices(list(self.ACTIONS), list(self.ACTIONS.values()))[0]
        try:
            for _, record in inputs:
                self.producer.write(self.rng.choice(self.scene.output), 1, (record.value,))
            self.producer.send_offsets(self.group, {place: record.offset + 1 for place, record in inputs})
            if action == "commit":
                self.producer.commit()
            elif action == "abort":
                self.producer.abort()
            else:
                if action == "crash in the end":
                    self.producer.send_end(self.rng.random() < 0.7)
                self.renew()
        except FAILURES as error:
            self.failed(transaction, error)
            return False
        self.scene.note(f"copy, {action}: {transaction.outcome.value}")
        if action != "commit":
            self._rewind()
            return False
        return True


class AssignedReader(Client):
    """Reads all partitions from their starts on."""

    def __init__(self, scene: Scene, name: str, *ending: object) -> None:
        super().__init__(scene, name, *ending)  # type: ignore[arg-type]
        self.into = scene.add_reader(name)
        self.positions: dict[Place, int] = {}

    def begin(self) -> None:
        self.reader = self.scene.reader([*self.scene.written, *self.scene.output])

    def end(self) -> None:
        self.reader.close()

    def step(self) -> None:
        polls: list[Poll] = self.reader.poll()
        self.into.polls += polls
        self.positions = dict(self.reader.positions)


def _reason(error: Exception) -> str:
    if isinstance(error, RefusedError):
        return f"refused: {ErrorCode(error.code).name}"
    return "too late"
