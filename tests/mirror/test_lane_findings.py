"""What reviews of the lanes found: many small batches, partitions of the target that cannot be written, paused owners."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from odradek._ext.records.batch_builder import BatchBuilder
from odradek.clients.cluster import Cluster, Partition, TopicInfo
from odradek.clients.wire import Buffer
from odradek.mirror import target
from odradek.mirror.commits import Commits, Producer
from odradek.mirror.leaders import LookedUp
from odradek.mirror.routes import LaneOptions, Route
from odradek.mirror.target import IN_FLIGHT, Outgoing, TargetWriter
from odradek.protocol.errors import ErrorCode

ROUTE = Route(("t", 0), ("a.t", 0))


class FullBuffers:
    """A broker that reads no more requests when as many answers as fit into the buffers wait for the client."""

    streams, buffered, address = False, False, "127.0.0.1:1"

    def __init__(self) -> None:
        self.waiting: deque[int] = deque()
        self.received = 0

    def version_of(self, *_: Any) -> int:
        return 8

    def send_parts(self, _: Any, version: int, bodies: Iterable[Sequence[Buffer]]) -> None:
        for body in bodies:
            self.waiting.append(sum(map(len, body)))
            assert len(self.waiting) <= IN_FLIGHT, "the broker waits for the client, and the client for the broker"

    def receive(self) -> Any:
        self.waiting.popleft()
        self.received += 1
        part = SimpleNamespace(index=0, error_code=0, error_message=None, base_offset=self.received - 1)
        return SimpleNamespace(responses=[SimpleNamespace(name="a.t", partition_responses=[part])])


def small_batch(offset: int) -> Outgoing:
    builder: Any = BatchBuilder()
    builder.add(None, b"v", 1)
    data = bytearray(builder.finish(0, lambda codec, payload: payload))
    return Outgoing(ROUTE, memoryview(data), 1, offset, offset + 1, 1)


def writer_to(broker: FullBuffers, monkeypatch: pytest.MonkeyPatch) -> TargetWriter:
    commits = SimpleNamespace(
        producer=Producer(1, 0), join=lambda places: {}, commit=lambda positions, meanwhile: meanwhile()
    )
    info = TopicInfo("a.t", bytes(16), False, (Partition("a.t", 0, 1, 0, (1,), (1,), (), ErrorCode.NONE),))
    monkeypatch.setattr(target, "look_up", lambda *_: LookedUp({"a.t": info}, {}))
    cluster = SimpleNamespace(broker=lambda _: broker)
    return TargetWriter(cast(Cluster, cluster), cast(Commits, commits), "id", LaneOptions())


def test_answers_are_received_while_many_small_batches_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = FullBuffers()
    writer = writer_to(broker, monkeypatch)
    count = 5 * IN_FLIGHT + 3
    for offset in range(count):
        writer.put(small_batch(offset))
    writer.flush()
    assert writer.unacknowledged == len(broker.waiting) <= IN_FLIGHT
    written = writer.commit({})
    assert [batch.source_offset for batch in written] == list(range(count))
    assert [batch.target_offset for batch in written] == list(range(count))
