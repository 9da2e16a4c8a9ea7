"""Sizes of the batches that producers send, in /metrics: every batch in its class, the sum to the byte, also over deaths."""

import pytest

from odradek.metrics.names.traffic import BATCH_BYTES
from odradek.testing import Broker
from tests.metrics.scraping import scrape
from tests.metrics.test_reporter import CONFIG, kill
from tests.storage.old_writer import message
from tests.wire import Wire, batch, produce_request

pytestmark = [pytest.mark.xdist_group("metrics-batches"), pytest.mark.timeout(300)]

PRODUCE = 0
HISTOGRAM, LARGEST = "odradek_produced_batch_bytes", "odradek_topic_largest_batch_bytes"
SMALLEST = len(batch(b""))


@pytest.fixture
def broker(tmp_path):
    config = CONFIG | {"num.network.threads": 1, "auto.create.topics.enable": "false", "message.max.bytes": 8 << 20}
    with Broker(config, {"small": 1, "large": 1, "unused": 1}, directory=tmp_path) as one:
        yield one


def of_size(size):
    """A batch of just so many bytes."""
    return next(data for less in range(60, 90) if len(data := batch(bytes(size - less))) == size)


def measured(broker):
    """Count of each class by its upper bound, count, sum, and the largest batch of each topic that was not refused."""
    found = scrape(broker)
    classes = {int(le): found.value(f"{HISTOGRAM}_bucket", le=le) for le in map(str, BATCH_BYTES)}
    assert found.value(f"{HISTOGRAM}_bucket", le="+Inf") == found.value(f"{HISTOGRAM}_count")
    largest = {name: found.value(LARGEST, topic=name) for name in ("small", "large", "unused")}
    return classes, found.value(f"{HISTOGRAM}_count"), found.value(f"{HISTOGRAM}_sum"), largest


def test_batches_are_counted_by_size_and_the_largest_of_a_topic_is_reported(broker):
    assert measured(broker) == (dict.fromkeys(BATCH_BYTES, 0), 0, 0, dict.fromkeys(("small", "large", "unused")))
    sizes = [SMALLEST, 256, 257, 1024, 1025, 300_000, 1 << 20, (1 << 20) + 1]
    with Wire(broker.host, broker.port) as wire:
        for size in sizes:
            assert wire.produce("large", of_size(size) if size > SMALLEST else batch(b"")).error_code == 0
        assert wire.produce("small", of_size(500)).error_code == 0
        both = produce_request([("small", [(0, of_size(400))]), ("large", [(0, of_size(450))])])
        wire.ask(both, PRODUCE, 9)
        old = message(0, b"v" * 100)
        assert wire.produce("small", old, version=2).error_code == 0
        refused = of_size(2 << 20)[:-1]
        assert wire.produce("small", refused).error_code != 0
        assert wire.produce("unused", b"", version=2).error_code == 0
        assert wire.produce("no-such", of_size(2000)).error_code != 0
    sizes += [500, 400, 450, len(old), len(refused)]
    expected = {bound: sum(size <= bound for size in sizes) for bound in BATCH_BYTES}
    largest = {"small": 500, "large": (1 << 20) + 1, "unused": None}
    assert measured(broker) == (expected, len(sizes), sum(sizes), largest)
    for kind in ("reporter", "worker"):
        kill(broker, kind)
        assert measured(broker) == (expected, len(sizes), sum(sizes), largest)
    with Wire(broker.host, broker.port) as wire:
        assert wire.produce("unused", of_size(700)).error_code == 0
    assert scrape(broker).value("odradek_topic_max_message_bytes", topic="unused") == 8 << 20
    assert measured(broker)[1:] == (len(sizes) + 1, sum(sizes) + 700, largest | {"unused": 700})
