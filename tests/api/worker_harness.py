"""The request path of a worker in the test's own process, stepped by hand: locks can be held, replicas can lag, work waits.

One connection or several to a DataLoop over a shared mapping without other processes. What a worker would do on its own (work
of the append thread, retries, wake-ups, deadlines) happens when the test says so.
"""

import select
import socket
from pathlib import Path
from typing import Any

from broker._ext.data_loop import DataLoop
from broker._ext.fetch import Fetching
from broker._ext.produce import Producing
from broker._ext.requests import RequestHandler
from broker._ext.topics import TopicDirectory
from broker._ext.waiting import WaitingRoom

from broker.storage.down_conversion import convert
from broker.storage.incoming import prepare
from tests.api.wire import Wire
from tests.shm.one_broker import OneBroker


class HandWorker:
    """The worker. `offloaded`: pendings whose `work` is due; `retries`: those that met a taken lock;
    `conversions`: what old consumers wait for."""

    def __init__(self, path: Path) -> None:
        self.broker = OneBroker(path)
        self.topics = TopicDirectory()
        self.offloaded: list[Any] = []
        self.retries: list[Any] = []
        self.conversions: list[Any] = []
        self.room = WaitingRoom(lambda deadline_ms: None)
        self.handler = RequestHandler(
            Producing(self.topics, self.room, self.offloaded.append, self.retries.append, prepare),
            Fetching(self.topics, self.room, [str(path)], 0, 100, 1 << 26, self._down_convert),
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

    def connect(self) -> Wire:
        """A client; it must `send` and the test `turn` before it can `receive`."""
        ours, theirs = socket.socketpair()
        wire = Wire.over(ours)
        self._wires.append(wire)
        self.loop.add(theirs.detach(), len(self._wires), 0, f"client-{len(self._wires)}")
        return wire

    def turn(self) -> None:
        """Read what clients sent, and tell whoever waits for a slot that moved."""
        while select.select([self.loop.fileno()], [], [], 0)[0]:
            self.loop.on_events()
        self.room.serve()
        self.loop.flush_dirty()

    def append(self) -> None:
        """What the append thread does, and the loop after it."""
        while self.offloaded:
            pending = self.offloaded.pop(0)
            pending.work()
            pending.worked()
            self.loop.flush_dirty()
        self.turn()

    def convert(self) -> None:
        """What the conversion thread does, and the loop after it."""
        while self.conversions:
            work, done = self.conversions.pop(0)
            done(convert(*work))
            self.loop.flush_dirty()
        self.turn()

    def _down_convert(self, work: Any, done: Any) -> None:
        self.conversions.append((work, done))

    def retry(self) -> None:
        """Once more what met a taken lock, in the order of arrival."""
        due = self.retries[:]
        self.retries.clear()
        for pending in due:
            pending.again()
        self.loop.flush_dirty()
        self.turn()

    def expire(self) -> None:
        """As after the longest deadline."""
        self.room.finish_all()
        self.loop.flush_dirty()

    def close(self) -> None:
        """End the connections."""
        for wire in self._wires:
            wire.socket.close()
        self.loop.close_all()
        self.broker.close()

    def _no_other_request(self, *request: Any) -> Any:
        raise AssertionError(f"not a Produce or Fetch: {request}")


def nothing_came(wire: Wire) -> bool:
    """Whether no byte waits for the client."""
    return not select.select([wire.socket], [], [], 0)[0]
