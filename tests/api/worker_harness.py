"""The request path of a worker in the test's process, executed step by step: a test can hold locks, delay replicas and defer
work.

One or several connections to a DataLoop over a shared mapping, without other processes. Work that a worker does by itself (the
append thread, retries, wake-ups, deadlines) happens when the test triggers it.
"""

import socket
import uuid
from pathlib import Path
from typing import Any

from odradek._ext.api.fetch import FetchHandler
from odradek._ext.api.fetch_sessions import FetchSessions
from odradek._ext.api.produce import ProduceHandler
from odradek._ext.api.purgatory import Purgatory
from odradek._ext.api.requests import RequestHandler
from odradek._ext.net.data_loop import DataLoop
from odradek._ext.partition import slots
from odradek._ext.shm.topics import TopicDirectory
from odradek._ext.testing import slot_probe
from odradek.stepwise import Stepwise
from odradek.storage.down_conversion import conversion
from odradek.storage.incoming import prepare
from tests.shm.one_broker import OneBroker
from tests.waiting import readable
from tests.wire import Wire


class HandWorker:
    """The worker. `offloaded`: pendings of which a `step` is due; `retries`: those that met a taken lock; `questions`: what the
    coordinator of transactions was asked: (pending, number, questions, deadline), see `answer`;
    `conversions`: what old consumers wait for; `slices`: steps of long work in the loop, which `turn` takes to their end."""

    def __init__(
        self,
        path: Path,
        *,
        max_slots: int = 64,
        processes: int = 1,
        ordinal: int = 0,
        workers: int = 1,
        max_sessions: int = 100,
        max_session_partitions: int = 100_000,
        max_partitions: int = 100_000,
        max_wait_ms: int = 2**31 - 1,
        max_opened_bytes: int = 1 << 29,
        replicas: Any = None,
    ) -> None:
        """:param replicas: the ReplicaView of a broker in a cluster."""
        self.broker = OneBroker(path, processes=processes, max_slots=max_slots)
        self.topics = TopicDirectory()
        self.offloaded: list[Any] = []
        self.retries: list[Any] = []
        self.questions: list[tuple[Any, int, list[Any], int]] = []
        self.conversions: list[Any] = []
        self.slices: list[Any] = []
        self.room = Purgatory(lambda deadline_ms: None)
        self.fetch_handler = FetchHandler(
            self.topics,
            self.room,
            [str(path)],
            FetchSessions(ordinal, workers, max_sessions=max_sessions, max_partitions=max_session_partitions),
            self._down_convert,
            self.slices.append,
            max_bytes=1 << 26,
            max_wait_ms=max_wait_ms,
            max_partitions=max_partitions,
            replicas=replicas,
        )
        self.handler = RequestHandler(
            ProduceHandler(
                self.topics,
                self.room,
                self.offloaded.append,
                self.retries.append,
                self._ask,
                prepare,
                max_opened_bytes=max_opened_bytes,
                max_partitions=max_partitions,
                replicas=replicas,
            ),
            self.fetch_handler,
            self.room,
            self._no_other_request,
        )
        self.loop = DataLoop(self.handler)
        self._wires: list[Wire] = []

    def create(self, topic: str, **options: Any) -> int:
        """A partition of its own topic; its slot."""
        slot = self.broker.create(topic, **options)
        self.topics.refresh()
        return slot

    def create_many(self, topic: str, count: int, **options: Any) -> list[int]:
        """A topic with many partitions; their slots."""
        topic_id = uuid.uuid4().bytes
        slots = [
            self.broker.create(topic, number, topic_id=topic_id, announce=False, **options) for number in range(count)
        ]
        self.broker.table.announce(slots)
        self.topics.refresh()
        return slots

    def connect(self, *, tcp: bool = False, address: str | None = None) -> Wire:
        """A client; it must `send` and the test `turn` before it can `receive`. Over TCP its buffers are small.

        :param address: of the client, one of this machine; over TCP. Without it every client has an address of its own.
        """
        ours, theirs = tcp_pair(address or "127.0.0.1") if tcp or address else socket.socketpair()
        wire = Wire.over(ours)
        self._wires.append(wire)
        peer = ":".join(map(str, theirs.getpeername())) if address else f"client-{len(self._wires)}"
        self.loop.add(theirs.detach(), len(self._wires), 0, peer)
        return wire

    def turn(self) -> None:
        """Read what clients sent, and tell whoever waits for a slot that moved."""
        self.read()
        self.slice()
        self.loop.flush_dirty()

    def read(self) -> None:
        """As `turn`, but for the long work of the loop, which waits for its slices."""
        while readable(self.loop.fileno()):
            self.loop.on_events()
        self.room.serve()
        self.loop.flush_dirty()

    def slice(self) -> None:
        """Take the long work of the loop to its end, a slice of each at a time."""
        while self.slices:
            step = self.slices.pop(0)
            if step():
                self.slices.append(step)

    def append(self) -> None:
        """What the append threads do, and the loop after them."""
        while self.offloaded:
            pending = self.offloaded.pop(0)
            while self.step(pending):
                pass
            pending.worked()
            self.loop.flush_dirty()
        self.turn()

    def step(self, pending: Any) -> bool:
        """A step of a request on the append threads; whether there is another one."""
        if pending.step():
            return True
        if pending.large_next:
            pending.open_large()
            return True
        return False

    def convert(self) -> None:
        """What the conversion thread does, and the loop after it."""
        while self.conversions:
            work, cancelled, done = self.conversions.pop(0)
            done(Stepwise(conversion(*work), cancelled).finish())
            self.loop.flush_dirty()
        self.turn()

    def _down_convert(self, work: Any, cancelled: Any, done: Any) -> None:
        self.conversions.append((work, cancelled, done))

    def retry(self) -> None:
        """Once more what met a taken lock, in the order of arrival."""
        due = self.retries[:]
        self.retries.clear()
        for pending in due:
            pending.again()
        self.loop.flush_dirty()
        self.turn()

    def answer(self, *codes: int, at: int = 0, mark: bool = True) -> None:
        """Answer the question `at` of the coordinator: with these codes, or with 0 for each partition.

        :param mark: set the marks of the partitions with code 0, as the coordinator does.
        """
        pending, number, questions, _ = self.questions.pop(at)
        asked = [(question, place) for question in questions for place in question[-1]]
        codes = codes or (0,) * len(asked)
        if mark:
            codes = tuple(
                code or self._mark(*question[:4], *place) for code, (question, place) in zip(codes, asked, strict=True)
            )
        pending.verified(number, codes)
        self.loop.flush_dirty()
        self.turn()

    def _mark(
        self, transactional_id: str, producer_id: int, epoch: int, verify_only: bool, topic: str, partition: int
    ) -> int:
        slot = self.topics.get(topic).slot(partition)
        version = 0 if verify_only else 2
        incarnation = slot_probe.incarnation_of(slot)
        return slots.allow_transaction(slot, incarnation, -1, transactional_id, producer_id, epoch, version)

    def no_answer(self) -> None:
        """The coordinator ends before it answers the oldest question."""
        pending, number, _, _ = self.questions.pop(0)
        pending.verified(number, None)
        self.loop.flush_dirty()
        self.turn()

    def _ask(self, pending: Any, questions: list[Any], deadline_ms: int) -> None:
        self.questions.append((pending, pending.questions, questions, deadline_ms))

    def expire(self) -> None:
        """As after the longest deadline."""
        self.room.finish_all()
        self.loop.flush_dirty()

    def close(self) -> None:
        """End the connections."""
        for wire in self._wires:
            wire.socket.close()
        self.loop.connections.close_all()
        self.broker.close()

    def _no_other_request(self, *request: Any) -> Any:
        raise AssertionError(f"not a Produce or Fetch: {request}")


def tcp_pair(address: str = "127.0.0.1") -> tuple[socket.socket, socket.socket]:
    """Both ends of a TCP connection: the client's, which receives little at a time, and the worker's, which sends so.

    :param address: of the client.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.bind((address, 0))
        client.connect(listener.getsockname())
        accepted, _ = listener.accept()
    accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    return client, accepted


def nothing_came(wire: Wire) -> bool:
    """Whether no byte waits for the client."""
    return not readable(wire.socket.fileno())
