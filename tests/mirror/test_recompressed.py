"""Compressed batches in which the target finds a fault that readers tolerate: they are compressed again. Others stop."""

from __future__ import annotations

import gzip
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from odradek._ext.records.batch_builder import BatchBuilder
from odradek._ext.records.moved_batches import walk
from odradek.mirror import lane
from odradek.mirror.lane import Lane
from odradek.mirror.routes import LaneOptions
from odradek.mirror.source import Fetched
from odradek.mirror.target import Outgoing, PartitionRefusedError, TargetWriter
from odradek.protocol.errors import ErrorCode
from odradek.storage import compression
from odradek.testing import Broker
from tests.clients.kafka_peer import Peer
from tests.mirror.lanes import GROUP, Watcher, records_of, routes_of, running, wait_until_moved
from tests.mirror.test_lane import Pair, check_equal, producer, write
from tests.mirror.test_lane_against_kafka import CONFIG
from tests.mirror.test_lane_findings import ROUTE, FullBuffers, writer_to
from tests.storage.compressed_variants import LARGE, LARGE_RECORDS, SMALL, SMALL_RECORDS, VARIANTS, Variant
from tests.waiting import until


def plain(variant: Variant) -> bytes:
    """The records as readers find them; empty if they cannot read the batch."""
    try:
        return compression.decompress(variant.codec, variant.payload, 1 << 21)
    except ValueError:
        return b""


def test_what_the_target_refuses_is_compressed_again_or_stops_with_its_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = {name: variant for name, variant in VARIANTS.items() if not variant.here}
    with Broker() as source, Broker() as target:
        check(Pair(source, target), refused, monkeypatch)


def test_what_kafka_refuses_is_compressed_again_or_stops_with_its_offset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = {name: variant for name, variant in VARIANTS.items() if not variant.kafka}
    with Broker() as source, Peer(tmp_path, CONFIG) as target:
        check(Pair(source, cast(Any, target)), refused, monkeypatch)


def check(pair: Pair, refused: dict[str, Variant], monkeypatch: pytest.MonkeyPatch) -> None:
    """The source has one batch of a variant in each partition. No broker takes them, so the lane's response is replaced."""
    topic = pair.topic(partitions=len(refused))
    routes = routes_of(pair.source, [topic])
    made = producer(pair.source)
    variants = dict(zip(routes, refused.items(), strict=True))
    for route, (_, variant) in variants.items():
        for _ in LARGE_RECORDS if variant.large else SMALL_RECORDS:
            made.produce(topic, b"replaced", partition=route.source[1])
    made.flush()
    take = Lane._take

    def replaced(self: Lane, session: object, event: Fetched) -> None:
        data = memoryview(bytearray(variants[event.route][1].batch()))
        take(self, session, Fetched(event.route, data, walk(data, 0)))  # type: ignore[arg-type]

    monkeypatch.setattr(Lane, "_take", replaced)
    good = [route for route, (_, variant) in variants.items() if plain(variant) == (LARGE if variant.large else SMALL)]
    with running(pair.source, pair.target, routes) as (_, watcher):
        until(lambda: len(watcher.stops) >= len(routes) - len(good), lambda: f"{len(good)} {watcher.stops}")
        wait_until_moved(watcher, pair.source, pair.target, good)
    assert "lz4: linked blocks" in {variants[route][0] for route in good}
    for route, (name, variant) in variants.items():
        if route in good:
            expected = [record.value for record in (LARGE_RECORDS if variant.large else SMALL_RECORDS)]
            assert [seen.value for seen in records_of(pair.target, route.target)] == expected, name
            assert records_of(pair.target, route.target)[0].codec == variant.codec
        else:
            assert "offset 0" in watcher.stops[route.target], name
            assert records_of(pair.target, route.target) == []


GZIP = 1


@pytest.mark.parametrize("code", [ErrorCode.INVALID_RECORD, ErrorCode.UNKNOWN_SERVER_ERROR])
@pytest.mark.parametrize("codec", [0, GZIP])
def test_only_a_refused_batch_that_is_compressed_can_be_compressed_again(
    codec: int, code: ErrorCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder: Any = BatchBuilder()
    builder.add(None, b"v" * 1000, 1)
    data = bytearray(builder.finish(codec, lambda _, payload: gzip.compress(payload)))
    broker = FullBuffers()
    broker.error_code = int(code)
    writer = writer_to(broker, monkeypatch)
    writer.put(Outgoing(ROUTE, memoryview(data), 1, 7, 8, 1))
    writer.flush()
    with pytest.raises(PartitionRefusedError, match=code.name) as raised:
        writer.commit({})
    assert raised.value.of_content == (codec == GZIP)


def test_an_error_that_passes_does_not_make_the_lane_compress_again_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    shift_s, again, refusals = 0.0, [], []
    put, outgoing = TargetWriter.put, lane._outgoing

    def refuse_once(self: TargetWriter, batch: Outgoing) -> None:
        if not refusals:
            refusals.append(batch.first_offset)
            raise PartitionRefusedError(batch.route, batch.first_offset, "an error", True, True, of_content=True)
        put(self, batch)

    def note(route: object, data: memoryview, batch: Any, recompress: bool) -> Outgoing | None:
        again.append(recompress)
        return outgoing(route, data, batch, recompress)  # type: ignore[arg-type]

    monkeypatch.setattr(TargetWriter, "put", refuse_once)
    monkeypatch.setattr(lane, "_outgoing", note)
    monkeypatch.setattr(lane, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + shift_s))
    with Broker() as source, Broker() as target:
        pair = Pair(source, target)
        topic = pair.topic()
        routes = routes_of(pair.source, [topic])
        made = producer(pair.source, **{"compression.type": "gzip"})
        write(made, topic, 1, range(100))
        with running(pair.source, pair.target, routes) as (_, watcher):
            wait_until_moved(watcher, pair.source, pair.target, routes)
            assert again[0] is False and again[-1] is True
            shift_s = lane.RECOMPRESS_S + 1
            count = len(again)
            write(made, topic, 1, range(100, 200))
            wait_until_moved(watcher, pair.source, pair.target, routes)
        assert True not in again[count:]
        assert check_equal(pair, routes) == 200
    assert "for the next 10 minutes" in watcher.failures[0]


def test_a_batch_that_is_refused_also_when_it_is_compressed_again_stops_or_is_tried_as_it_is() -> None:
    watcher: Any = Watcher()
    tried: Any = Lane(0, "id.1.0", GROUP, SimpleNamespace, SimpleNamespace, LaneOptions(), watcher)
    refused = PartitionRefusedError(ROUTE, 7, "invalid", True, False, of_content=True)
    tried._refused(refused)
    assert ROUTE.target in tried._recompressed and not tried._halts
    tried._refused(refused)
    assert ROUTE.target not in tried._recompressed and tried._halts[ROUTE.target].first_offset == 7
