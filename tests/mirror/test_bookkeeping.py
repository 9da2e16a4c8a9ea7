"""The thread of a flow that writes the internal topics: failures, offsets of groups in the target, ends."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Consumer

from odradek.clients import groups
from odradek.clients.cluster import Cluster
from odradek.clients.errors import RefusedError, UnreachableError
from odradek.mirror import checkpoints
from odradek.mirror.bookkeeping import Bookkeeping, BookkeepingOptions, checkpoints_topic, offset_syncs_topic
from odradek.mirror.internal_topic import InternalTopic
from odradek.mirror.offset_syncs import OffsetSyncs
from odradek.mirror.records import Checkpoint, OffsetSync, read_offset_sync
from odradek.mirror.routes import Moved, Route
from odradek.testing import Broker
from tests.waiting import until

ROUTE = Route(("orders", 0), ("a.orders", 0))
ONLY_SYNCS = BookkeepingOptions(offset_syncs_interval_s=0.02, checkpoints_enabled=False, heartbeats_enabled=False)


@contextmanager
def running(bookkeeping: Bookkeeping) -> Iterator[None]:
    thread = threading.Thread(target=bookkeeping.run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        bookkeeping.stop()
        thread.join(60)
        assert not thread.is_alive()


def test_a_failure_is_logged_once_and_the_job_goes_on_with_new_connections(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "odradek.mirror")
    with Broker() as a:
        broken = threading.Event()

        def connect() -> Cluster:
            if broken.is_set():
                raise UnreachableError("cannot connect to a: it is away")
            return Cluster(a.bootstrap_servers)

        syncs = OffsetSyncs()
        broken.set()
        syncs.moved(Moved(ROUTE, 5, 3, 10, 5, 1, 0))
        bookkeeping = Bookkeeping("a", "b", syncs, connect, connect, ONLY_SYNCS)
        with running(bookkeeping):
            until(lambda: bookkeeping.counts.failures >= 3, "three failures")
            assert bookkeeping.counts.failing == 1
            broken.clear()
            until(lambda: bookkeeping.counts.offset_syncs == 2, "the syncs are written")
            until(lambda: bookkeeping.counts.failing == 0, "the job works again")
        lines = [record.getMessage() for record in caplog.records if record.name == "odradek.mirror"]
        assert lines == [
            "a->b: cannot write offset syncs: cannot connect to a: it is away; retrying in 0.04 s",
            "a->b: offset syncs are written again",
        ]
        with Cluster(a.bootstrap_servers) as cluster:
            topic = InternalTopic(cluster, "mm2-offset-syncs.b.internal", -1)
            assert list(topic.read(read_offset_sync)) == [
                OffsetSync(("orders", 0), 5, 3),
                OffsetSync(("orders", 0), 9, 7),
            ]


def test_a_group_that_is_refused_does_not_hold_up_the_checkpoints_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def offsets(_: object, group_id: str) -> dict[tuple[str, int], groups.CommittedOffset]:
        if group_id == "denied":
            raise RefusedError(30, what="cannot read the offsets of group 'denied'")
        return {ROUTE.source: groups.CommittedOffset(7)}

    monkeypatch.setattr(groups, "fetch_offsets", offsets)
    monkeypatch.setattr(checkpoints.Checkpoints, "groups", lambda *_: ["denied", "good"])
    syncs = OffsetSyncs()
    syncs.moved(Moved(ROUTE, 5, 3, 10, 5, 1, 0))
    bookkeeping = Bookkeeping("a", "b", syncs, lambda: None, lambda: None, BookkeepingOptions())  # type: ignore[arg-type, return-value]
    written: list[object] = []
    topic = SimpleNamespace(write=lambda records: written.extend(records) or len(written))
    job: Any = SimpleNamespace(topic=lambda *_: topic, cluster=lambda _: None)
    with pytest.raises(RefusedError, match="group 'denied'"):
        bookkeeping._write_checkpoints(job)
    assert len(written) == 1 and bookkeeping.counts.checkpoints == 1


def test_the_next_worker_takes_over_what_the_former_one_wrote() -> None:
    with Broker() as a:
        connect = lambda: Cluster(a.bootstrap_servers)  # noqa: E731
        for first in (0, 100):
            syncs = OffsetSyncs()
            syncs.assign([ROUTE])
            with running(Bookkeeping("a", "b", syncs, connect, connect, ONLY_SYNCS)):
                until(lambda: not syncs.unloaded(), "the former syncs are read")  # noqa: B023
                syncs.moved(Moved(ROUTE, first, first + 7, first + 50, 50, 1, 0))
        # 0-49 were moved by the first worker: the second knows the places of its first and last record
        assert syncs.translate(ROUTE.source, "g", 0) == (ROUTE.target, 7)
        assert syncs.translate(ROUTE.source, "g", 30) == (ROUTE.target, 8)
        assert syncs.translate(ROUTE.source, "g", 50) == (ROUTE.target, 57)
        assert syncs.translate(ROUTE.source, "g", 130) == (ROUTE.target, 137)


def test_offsets_in_the_target_move_only_forward_and_not_while_the_group_has_members() -> None:
    with Broker(topics={"a.orders": 2}) as b, Cluster(b.bootstrap_servers) as cluster:

        def commit(offset: int) -> int:
            return checkpoints.commit(cluster, "g", [Checkpoint("g", ("a.orders", 0), 1, offset, "m")])

        assert commit(5) == 1 and commit(5) == 0 and commit(3) == 0 and commit(9) == 1
        assert groups.fetch_offsets(cluster, "g") == {("a.orders", 0): groups.CommittedOffset(9, metadata="m")}
        member = Consumer({"bootstrap.servers": b.bootstrap_servers, "group.id": "g"})
        member.subscribe(["a.orders"])
        until(lambda: member.poll(0.05) is None and member.assignment(), "the member joined")
        assert commit(12) == 0
        member.close()
        assert commit(12) == 1


def test_the_names_of_the_topics_are_those_of_mirror_maker() -> None:
    assert offset_syncs_topic("b") == "mm2-offset-syncs.b.internal"
    assert offset_syncs_topic("b", "_") == "mm2-offset-syncs_b_internal"
    assert checkpoints_topic("a") == "a.checkpoints.internal"
