"""One round: clients begin, something fails while they work, they end, and the checker looks at what they did and
saw.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Protocol

from tests.transactions.checker.anomalies import Anomaly, anomalies
from tests.transactions.checker.history import Outcome, Place
from tests.transactions.final_logs import read_logs
from tests.transactions.rounds.library_clients import LibraryReader, LibraryWriter
from tests.transactions.rounds.scene import Client, Scene
from tests.transactions.rounds.wire_clients import AssignedReader, Copier, Writer
from tests.transactions.wire_calls import Address, Timing
from tests.transactions.wire_reader import READ_COMMITTED, READ_UNCOMMITTED
from tests.waiting import until

PROGRESS = 12
"""The number of transactions that must be committed before a fault, and after it."""
PATIENCE_S = 180.0
ENDS_WITHIN_S = 30.0

Fault = Callable[[random.Random], str]
"""Lets something fail, and returns a line about it when clients can work again."""


class Progressing(Protocol):
    """The clients of a round, for faults that wait until clients go on."""

    def progress(self, records: int, timeout_s: float = 90.0) -> float:
        """Wait until so many more transactions were committed; the seconds that took. Raises TimeoutError."""

    def describe(self) -> str:
        """How far the clients are."""


@dataclass
class Plan:
    """What a round does.

    ``servers``: addresses for clients. ``replicas``: of the topics. ``create``, ``delete``: make and remove topics.
    """

    servers: list[Address]
    transaction_version: int
    seed: int
    name: str
    create: Callable[[str, int], None]
    delete: Callable[[str], None]
    fault: Fault
    attach: Callable[[Progressing], None] = lambda load: None
    writers: int = 3
    library: bool = True
    answer_s: float = 1.0
    timeout_ms: int = 3000


@dataclass
class Result:
    """What a round found. ``counts``: how often each thing happened."""

    found: list[Anomaly]
    counts: dict[str, int]
    errors: list[str]
    fault: str
    transactions: int
    committed: int
    unknown: int
    records: int
    seconds: float

    @property
    def good(self) -> bool:
        """Whether nothing was wrong."""
        return not self.found and not self.errors


def play(plan: Plan) -> Result:
    """Play a round."""
    began = time.monotonic()
    rng = random.Random(plan.seed)
    topics = {f"{plan.name}-data": 3, f"{plan.name}-source": 2, f"{plan.name}-output": 2}
    for topic, partitions in topics.items():
        plan.create(topic, partitions)
    data, source, output = ([Place(topic, n) for n in range(count)] for topic, count in topics.items())
    scene = Scene(
        plan.servers, len(plan.servers) == 1, plan.transaction_version, Timing(plan.answer_s), plan.timeout_ms,
        data, source, output, plan.name,
    )  # fmt: skip
    history = scene.history
    history.copies = {output[0].topic: source[0].topic}
    writers: list[Client] = [
        Writer(scene, f"writer-{n}", rng.randrange(1 << 32), scene.writers_end) for n in range(plan.writers)
    ]
    copier = Copier(scene, "copier", rng.randrange(1 << 32), scene.copiers_end)
    wire_reader = AssignedReader(scene, "wire reader", scene.readers_end)
    readers: list[Client] = [wire_reader]
    if plan.library:
        writers.append(LibraryWriter(scene, "librdkafka", rng.randrange(1 << 32), scene.writers_end))
        readers.append(LibraryReader(scene, "librdkafka reader", scene.readers_end))
        group = f"{plan.name}-members"
        readers += [LibraryReader(scene, f"member {n}", scene.readers_end, group=group) for n in range(2)]
        history.groups[group] = frozenset(topics)
    clients = [*writers, copier, *readers]
    with ExitStack() as stack:
        stack.callback(_end_all, scene, clients)
        for client in clients:
            client.start()
        plan.attach(_Load(scene))
        _progress(scene)
        fault = plan.fault(rng)
        _progress(scene)
        scene.writers_end.set()
        _join(scene, writers)
        ends = _ends(scene, source)
        until(lambda: copier.copied_to(ends) or scene.errors, lambda: f"the copier copies up to {ends}", PATIENCE_S)
        scene.copiers_end.set()
        _join(scene, [copier])
        places = [*data, *source, *output]
        read_logs(scene.reader, history, places, ENDS_WITHIN_S)
        if not scene.errors:
            _wait_for_readers(scene)
        scene.readers_end.set()
        _join(scene, readers)
    for topic in topics:
        plan.delete(topic)
    outcomes = [transaction.outcome for transaction in history.transactions.values()]
    return Result(
        anomalies(history), dict(scene.counts), scene.errors, fault, len(outcomes), outcomes.count(Outcome.COMMITTED),
        outcomes.count(Outcome.UNKNOWN), sum(len(log.everything) for log in history.logs.values()),
        time.monotonic() - began,
    )  # fmt: skip


class _Load:
    def __init__(self, scene: Scene) -> None:
        self._scene = scene

    def progress(self, records: int, timeout_s: float = 90.0) -> float:
        began = time.monotonic()
        wanted = self._scene.counts["commit: committed"] + records
        try:
            until(lambda: self._scene.counts["commit: committed"] >= wanted, "commits", timeout_s)
        except AssertionError as error:
            raise TimeoutError(self.describe()) from error
        return time.monotonic() - began

    def describe(self) -> str:
        return str(dict(self._scene.counts))


def _progress(scene: Scene) -> None:
    """Wait until more transactions were committed, by writers and by the copier."""

    def done() -> tuple[int, int]:
        return scene.counts["commit: committed"], scene.counts["copy, commit: committed"]

    before = done()

    def more() -> bool:
        now = done()
        return bool(scene.errors) or (now[0] >= before[0] + PROGRESS and now[1] > before[1])

    until(more, lambda: f"transactions are committed: {dict(scene.counts)}", PATIENCE_S)


def _ends(scene: Scene, places: list[Place]) -> dict[Place, int]:
    """The last stable offsets, once no transaction is open; the checker tells if one stays open."""
    reader = scene.reader(places)
    ends: dict[Place, int] = {}

    def stable() -> bool:
        for place in places:
            ends[place] = reader.end(place, READ_COMMITTED)
        return all(reader.end(place, READ_UNCOMMITTED) == end for place, end in ends.items())

    try:
        until(stable, "no transaction is open", ENDS_WITHIN_S)
    except AssertionError:
        return ends
    finally:
        reader.close()
    return ends


def _wait_for_readers(scene: Scene) -> None:
    """Wait until each reader, and each group as a whole, has received the last committed record of each partition."""
    last = {place: log.committed[-1].offset for place, log in scene.history.logs.items() if log.committed}

    def behind() -> list[str]:
        found = []
        newest: dict[tuple[str, Place], int] = {}
        for reader in list(scene.history.readers):
            name = reader.group or reader.name
            for poll in list(reader.polls):
                newest[name, poll.place] = max(newest.get((name, poll.place), -1), poll.records[-1].offset)
        for reader in scene.history.readers:
            name = reader.group or reader.name
            if reader.group in (None, *scene.history.groups):
                found += [f"{name} {place} {newest.get((name, place))} < {end}" for place, end in last.items()
                          if newest.get((name, place), -1) < end]  # fmt: skip
        return found

    until(lambda: scene.errors or not behind(), lambda: f"all readers reach the end: {behind()}", PATIENCE_S)


def _join(scene: Scene, clients: list[Client]) -> None:
    for client in clients:
        client.join(PATIENCE_S)
        if client.is_alive():
            scene.errors.append(f"{client.name} does not end")


def _end_all(scene: Scene, clients: list[Client]) -> None:
    for event in (scene.writers_end, scene.copiers_end, scene.readers_end):
        event.set()
    for client in clients:
        if client.ident is not None:
            client.join(PATIENCE_S)
