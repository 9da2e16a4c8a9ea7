"""The internal topics against MirrorMaker 2's own classes of Kafka 4.3 and 3.9: bytes, translation, clients."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from odradek.clients import configs, groups
from odradek.clients.cluster import Cluster
from odradek.clients.configs import Resource
from odradek.mirror.bookkeeping import Bookkeeping, BookkeepingOptions
from odradek.mirror.internal_topic import InternalTopic
from odradek.mirror.offset_syncs import OffsetSyncs
from odradek.mirror.records import (
    Checkpoint,
    Heartbeat,
    OffsetSync,
    read_checkpoint,
    read_heartbeat,
    read_offset_sync,
)
from odradek.mirror.routes import Moved, Route
from odradek.testing import Broker
from tests.mirror.mirror_maker import VERSIONS, MirrorMaker
from tests.waiting import until

pytestmark = pytest.mark.java

ROUTE = Route(("orders", 0), ("a.orders", 0))


@pytest.fixture(scope="module", params=VERSIONS)
def mirror_maker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MirrorMaker]:
    with MirrorMaker(request.param, tmp_path_factory.mktemp("jvm") / "errors") as classes:
        yield classes


def test_the_bytes_are_those_of_mirror_maker_in_both_directions(mirror_maker: MirrorMaker) -> None:
    cases: list[tuple[str, Any, Any]] = [
        ("sync", OffsetSync(("orders", 3), 2**40, 77), read_offset_sync),
        ("sync", OffsetSync(("größe.€", 0), 0, -1), read_offset_sync),
        ("checkpoint", Checkpoint("billing", ("a.orders", 11), 5, 2**62, "host 1"), read_checkpoint),
        ("checkpoint", Checkpoint("", ("t", 0), 0, 0, ""), read_checkpoint),
        ("heartbeat", Heartbeat("a", "b-2", 1_700_000_000_000), read_heartbeat),
    ]
    for kind, record, read in cases:
        fields = [part for field in record for part in (field if isinstance(field, tuple) else (field,))]
        key, value = record.encoded()
        assert mirror_maker.ask(["encode", kind, *fields]) == f"{key.hex()}:{value.hex()}"
        assert mirror_maker.ask(["decode", kind, key.hex(), value.hex()]) == "\t".join(map(str, fields))
        theirs = mirror_maker.ask(["encode", kind, *fields]).split(":")
        assert read(*map(bytes.fromhex, theirs)) == record


def test_mirror_maker_translates_with_our_syncs_and_skips_nothing(mirror_maker: MirrorMaker) -> None:
    """Batches of 1 to 7 records; each tenth is followed by a marker in the source, each second in the target."""
    syncs = OffsetSyncs()
    topic: list[str] = []
    pairs: list[tuple[int, int]] = []
    syncs.assign([ROUTE])
    syncs.load({ROUTE.source}, [])
    source = target = 0
    for number in range(300):
        records = number % 7 + 1
        syncs.moved(Moved(ROUTE, source, target, source + records, records, 100, 0))
        pairs += [(source + at, target + at) for at in range(records)]
        source, target = source + records + (number % 10 == 0), target + records + number % 2
        if number % 25 == 24:
            pending = syncs.pending()
            topic += [f"{key.hex()}:{value.hex()}" for key, value in (sync.encoded() for sync in pending.records)]
            syncs.written(pending.up_to)
    offsets = [*range(0, source, 17), pairs[-1][0], pairs[-1][0] + 1]
    answer = mirror_maker.ask(["store", *ROUTE.source, " ".join(map(str, offsets)), *topic]).split()
    for offset, translated in zip(offsets, answer, strict=True):
        expected = next((there for here, there in pairs if here >= offset), pairs[-1][1] + 1)
        assert translated == "none" or int(translated) <= expected, offset
    assert int(answer[-1]) == pairs[-1][1] + 1, "a group that has read everything continues at the end"
    assert sum(int(translated) >= 0 for translated in answer if translated != "none") > len(offsets) // 2


def test_its_client_finds_checkpoints_and_upstream_clusters(mirror_maker: MirrorMaker) -> None:
    topics = {"partitions": "1"}
    with Broker(topics={"orders": topics}) as a, Broker(topics={"a.orders": topics, "a.heartbeats": topics}) as b:
        connect_a, connect_b = (lambda: Cluster(a.bootstrap_servers)), (lambda: Cluster(b.bootstrap_servers))
        with connect_a() as cluster:
            offsets = {("orders", 0): groups.CommittedOffset(7, metadata="m")}
            for group_id in ("billing", "odradek-mirror.x->a", "console-consumer-1"):
                assert not groups.commit_offsets(cluster, group_id, offsets)
        producer = Producer({"bootstrap.servers": b.bootstrap_servers})
        for number in range(20):
            producer.produce("a.orders", b"%d" % number, partition=0)
        assert producer.flush(30) == 0
        syncs = OffsetSyncs()
        syncs.moved(Moved(ROUTE, 2, 5, 12, 10, 100, 0))
        options = BookkeepingOptions(
            offset_syncs_interval_s=0.05,
            checkpoints_interval_s=0.05,
            heartbeats_interval_s=0.05,
            sync_group_offsets=True,
            sync_group_offsets_interval_s=0.05,
            wants_group=lambda group_id: not group_id.startswith("console-consumer-"),
        )
        bookkeeping = Bookkeeping("a", "b", syncs, connect_a, connect_b, options)
        thread = threading.Thread(target=bookkeeping.run, daemon=True)
        thread.start()
        until(lambda: all(bookkeeping.counts[:4]), lambda: f"everything is written: {bookkeeping.counts}")
        assert mirror_maker.ask(["offsets", b.bootstrap_servers, "a", "billing"]) == "a.orders-0=10"
        assert mirror_maker.ask(["checkpoints", b.bootstrap_servers]) == "a.checkpoints.internal"
        assert mirror_maker.ask(["upstream", b.bootstrap_servers]) == "a"
        bookkeeping.stop()
        thread.join(60)
        assert bookkeeping.counts.failures == 0
        with connect_b() as cluster, connect_a() as source:
            points = list(InternalTopic(cluster, "a.checkpoints.internal", -1).read(read_checkpoint))
            assert points == [Checkpoint("billing", ("a.orders", 0), 7, 10, "m")]
            assert groups.fetch_offsets(cluster, "billing") == {
                ("a.orders", 0): groups.CommittedOffset(10, metadata="m")
            }
            assert not groups.fetch_offsets(cluster, "console-consumer-1")
            (beat, *_) = InternalTopic(cluster, "heartbeats", -1).read(read_heartbeat)
            assert beat[:2] == ("a", "b")
            (beat, *_) = InternalTopic(source, "heartbeats", -1).read(read_heartbeat)
            assert beat[:2] == ("b", "a")
            of_syncs = configs.describe(source, Resource("topic", "mm2-offset-syncs.b.internal"))
            assert of_syncs["cleanup.policy"].value == "compact"
            (info,) = source.topics(["mm2-offset-syncs.b.internal"])
            assert len(info.partitions) == 1
