"""Compressed batches in which the target finds a fault that readers tolerate: they are compressed again. Others stop."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from odradek._ext.records.moved_batches import walk
from odradek.mirror.lane import Lane
from odradek.mirror.source import Fetched
from odradek.storage import compression
from odradek.testing import Broker
from tests.clients.kafka_peer import Peer
from tests.mirror.lanes import records_of, routes_of, running, wait_until_moved
from tests.mirror.test_lane import Pair, producer
from tests.mirror.test_lane_against_kafka import CONFIG
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
