"""What the clients of one round share: topics, timing, the history in the making, and when to end."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.transactions.checker.history import History, Place, Reader, Transaction
from tests.transactions.wire_calls import Address, Routes, Timing
from tests.transactions.wire_reader import READ_COMMITTED, WireReader


@dataclass
class Scene:
    """A round's topics and clients.

    ``servers``: the addresses for clients. ``single``: whether there is one broker. ``transaction_version``: that of
    the wire-level producers. ``timeout_ms``: of transactions. ``data``, ``source``: partitions that producers write
    to; ``output``: partitions to which the values of ``source`` are copied.
    """

    servers: list[Address]
    single: bool
    transaction_version: int
    timing: Timing
    timeout_ms: int
    data: list[Place]
    source: list[Place]
    output: list[Place]
    name: str
    history: History = field(default_factory=History)
    writers_end: threading.Event = field(default_factory=threading.Event)
    copiers_end: threading.Event = field(default_factory=threading.Event)
    readers_end: threading.Event = field(default_factory=threading.Event)
    counts: Counter[str] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)
    _numbers: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def bootstrap_servers(self) -> str:
        """The addresses as client libraries want them."""
        return ",".join(f"{host}:{port}" for host, port in self.servers)

    @property
    def written(self) -> list[Place]:
        """The partitions that writers write to."""
        return [*self.data, *self.source]

    def number(self) -> int:
        """The number of the next transaction."""
        return next(self._numbers)

    def take(self, transaction: Transaction) -> Transaction:
        """Put a transaction into the history."""
        self.history.transactions[transaction.number] = transaction
        return transaction

    def routes(self) -> Routes:
        """New routes for a client."""
        return Routes(list(self.servers), self.timing.answer_s, fixed=self.single)

    def reader(self, places: Iterable[Place], isolation: int = READ_COMMITTED) -> WireReader:
        """A new wire-level reader."""
        return WireReader(self.routes(), places, self.timing, isolation)

    def add_reader(self, name: str, group: str | None = None) -> Reader:
        """A new reader of the history."""
        reader = Reader(name, group)
        self.history.readers.append(reader)
        return reader

    def note(self, event: str) -> None:
        """Count an event."""
        self.counts[event] += 1


class Client(threading.Thread):
    """A client in a thread of its own: `step` until `ending`. An exception of a step is an error of the round."""

    def __init__(self, scene: Scene, name: str, ending: threading.Event) -> None:
        super().__init__(name=name, daemon=True)
        self.scene = scene
        self.ending = ending

    def begin(self) -> None:
        """Before the first step."""

    def step(self) -> None:
        """Do something."""
        raise NotImplementedError

    def end(self) -> None:
        """After the last step, also after an error."""

    def run(self) -> None:
        try:
            self.begin()
            while not self.ending.is_set():
                self.step()
        except Exception as error:
            import traceback

            self.scene.errors.append(f"{self.name}: {error!r}\n{traceback.format_exc()}")
        finally:
            self.end()
