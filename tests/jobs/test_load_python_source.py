"""The load's reader in Python with a broker: every record of a range as it is, and what ends a range that cannot be read."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from odradek.clients import partition_leaders
from odradek.clients.cluster import Cluster
from odradek.clients.fetching import FetchedRecords
from odradek.clients.topics import delete_records
from odradek.jobs.load import python_source
from odradek.jobs.load.python_source import OffsetRange, TopicReader
from odradek.testing import Broker
from tests.clients.secured import secured_broker
from tests.jobs.loaded_topics import send_transactions
from tests.ports import reserved
from tests.wire import Record, Wire, batch, build_batch

LAST_MS = 9_223_372_036_854_775
NEWEST = str((1 << 63) - 1)
_names = itertools.count()


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"log.retention.ms": "-1"}) as started:  # some records have timestamps of years ago
        yield started


@pytest.fixture
def wire(broker: Broker) -> Iterator[Wire]:
    with Wire.to(broker) as connected:
        yield connected


@pytest.fixture
def topic(wire: Wire) -> str:
    """A topic of one partition, with any timestamps and records of up to 32 MiB."""
    name = f"orders{next(_names)}"
    wire.create(name, **{"max.message.bytes": 32 << 20, "message.timestamp.after.max.ms": NEWEST})
    return name


def reader_of(servers: str, **options: str) -> TopicReader:
    return TopicReader({"startingOffsets": "{}", "endingOffsets": "{}", "kafka.bootstrap.servers": servers, **options})


def read(broker: Broker, topic: str, start: int, until: int) -> pa.Table:
    batches = reader_of(broker.bootstrap_servers).read(OffsetRange(topic, 0, start, until))
    return pa.Table.from_batches(list(batches), schema=python_source._ARROW)


def reason(broker: Broker | str, topic: str, start: int, until: int, **options: str) -> str:
    """The error of a range that cannot be read."""
    reader = reader_of(broker if isinstance(broker, str) else broker.bootstrap_servers, **options)
    with pytest.raises(RuntimeError) as failed:
        list(reader.read(OffsetRange(topic, 0, start, until)))
    return str(failed.value)


def test_the_range_of_offsets_is_read_whole(broker: Broker, wire: Wire, topic: str) -> None:
    for codec in range(5):
        content = [Record(b"k%d" % n, b"value %d" % n * 50, 1000 + n) for n in range(700 * codec, 700 * codec + 700)]
        assert wire.produce(topic, build_batch(content, codec=codec)).error_code == 0
    found = read(broker, topic, 3, 3333)
    assert found["offset"].to_pylist() == list(range(3, 3333))
    assert found["key"].to_pylist() == [b"k%d" % n for n in range(3, 3333)]
    assert found["value"].to_pylist() == [b"value %d" % n * 50 for n in range(3, 3333)]
    assert set(found["topic"].to_pylist()) == {topic} and set(found["partition"].to_pylist()) == {0}
    assert max(len(chunk) for chunk in found["offset"].chunks) <= 1000


def test_headers_are_read_as_they_are(broker: Broker, wire: Wire, topic: str) -> None:
    strange = ((b"\xff\xfe", b"\xff"), (b"a\x00b", b"\x00"), (b"", None), (b"a", b""), (b"a", b"again"))
    many = tuple((b"h%d" % n, b"") for n in range(20_000))
    for headers in (strange, (), many):
        assert wire.produce(topic, build_batch([Record(None, None, 1, headers=headers)])).error_code == 0
    found = read(broker, topic, 0, 3)
    first, none, last = found["headers"].to_pylist()
    assert [(header["key"], header["value"]) for header in first] == [
        ("\ufffd\ufffd", b"\xff"),
        ("a\x00b", b"\x00"),
        ("", None),
        ("a", b""),
        ("a", b"again"),
    ]
    assert none is None
    assert [header["key"] for header in last] == [f"h{n}" for n in range(20_000)]
    assert found["key"].to_pylist() == found["value"].to_pylist() == [None] * 3


def test_a_timestamp_that_the_column_cannot_have_is_the_last_one_that_it_can(
    broker: Broker, wire: Wire, topic: str
) -> None:
    loaded = {0: 0, 1: 1, LAST_MS: LAST_MS, LAST_MS + 1: LAST_MS, (1 << 63) - 1: LAST_MS}
    for at_ms in loaded:
        assert wire.produce(topic, batch(b"x", timestamp=at_ms)).error_code == 0
    found = read(broker, topic, 0, len(loaded))
    assert found["timestamp"].cast(pa.int64()).to_pylist() == [at_ms * 1000 for at_ms in loaded.values()]
    assert found["timestampType"].to_pylist() == [0] * len(loaded)


def test_the_time_of_the_broker_is_told_from_that_of_the_producer(broker: Broker, wire: Wire) -> None:
    name = f"stamped{next(_names)}"
    wire.create(name, **{"message.timestamp.type": "LogAppendTime"})
    assert wire.produce(name, batch(b"x", b"y", timestamp=1)).error_code == 0
    found = read(broker, name, 0, 2)
    assert found["timestampType"].to_pylist() == [1, 1] and min(found["timestamp"].cast(pa.int64()).to_pylist()) > 1000


def test_a_record_that_is_larger_than_a_fetch_is_read(broker: Broker, wire: Wire, topic: str) -> None:
    large = bytes(range(256)) * (20 << 12)
    for value in (b"before", large, b"after"):
        assert wire.produce(topic, batch(value)).error_code == 0
    found = read(broker, topic, 0, 3)
    assert found["value"].to_pylist() == [b"before", large, b"after"]


@pytest.mark.parametrize("page_bytes", [1, 16 << 20])
def test_aborted_records_are_left_out_also_at_the_end_of_the_range(
    broker: Broker, wire: Wire, topic: str, page_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(python_source, "_PAGE_BYTES", page_bytes)
    send_transactions(broker.bootstrap_servers, topic, 0, 95)  # of one producer
    end = wire.latest(topic, 0)
    committed = [b"value %d" % n for n in range(95)]
    found = read(broker, topic, 0, end)
    assert found["value"].to_pylist() == committed
    last = found["offset"].to_pylist()[-1]
    assert last < end - 1, "a marker is behind it"
    aborted = [offset for offset in range(end) if offset not in found["offset"].to_pylist()]
    for start, until in ((aborted[0], aborted[0] + 5), (last + 1, end), (aborted[3], last + 1), (last, last)):
        part = read(broker, topic, start, until)
        assert part["offset"].to_pylist() == [n for n in found["offset"].to_pylist() if start <= n < until]


def test_a_partition_that_a_broker_sends_twice_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    data = memoryview(build_batch([Record(b"k", b"%d" % n) for n in range(5)]))

    class Twice(python_source.Fetcher):
        def poll(self, timeout_s: float, wake: Any = ()) -> Iterator[FetchedRecords]:
            yield from [FetchedRecords(("orders", 0), data, [])] * 2

        def request(self) -> None:
            """There is no broker."""

    monkeypatch.setattr(python_source, "Fetcher", Twice)
    monkeypatch.setattr(python_source, "_check_certificates", lambda cluster: None)
    batches = reader_of("127.0.0.1:9").read(OffsetRange("orders", 0, 1, 5))
    assert [offset for batch in batches for offset in batch.column("offset").to_pylist()] == [1, 2, 3, 4]


def test_a_broker_that_is_killed_and_started_again_is_waited_for(tmp_path: Path) -> None:
    with Broker(directory=tmp_path / "broker", topics={"orders": 1}) as broker:
        with Wire.to(broker) as wire:
            for number in range(40):
                assert wire.produce("orders", batch(b"%06d" % number * 20_000)).error_code == 0
        batches = reader_of(broker.bootstrap_servers).read(OffsetRange("orders", 0, 0, 40))
        offsets = next(batches).column("offset").to_pylist()
        assert offsets[0] == 0 and len(offsets) < 20
        broker.kill()
        broker.restart()
        offsets += [offset for batch in batches for offset in batch.column("offset").to_pylist()]
        assert offsets == list(range(40))


def test_records_that_were_deleted_are_named(broker: Broker, wire: Wire, topic: str) -> None:
    for _ in range(9):
        assert wire.produce(topic, batch(b"x")).error_code == 0
    with Cluster(broker.bootstrap_servers) as cluster:
        delete_records(cluster, {(topic, 0): 6})
    assert reason(broker, topic, 2, 9) == f"{topic}-0: offsets 2 to 5 were deleted during the load"
    assert read(broker, topic, 6, 9)["offset"].to_pylist() == [6, 7, 8]


def test_offsets_that_are_not_there_yet_or_any_more_are_named(broker: Broker, topic: str) -> None:
    assert reason(broker, topic, 7, 9).startswith(f"{topic}-0 has no offset 7")


def test_a_topic_that_does_not_exist_is_named(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_leaders, "MISSING_S", 0.0)
    said = reason(broker, "nowhere", 0, 1)
    assert said == "nowhere-0: topic 'nowhere' was deleted while it was being read"


def test_brokers_that_send_nothing_end_the_range_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_source, "_SILENCE_S", 0.0)
    with reserved() as port:
        said = reason(f"127.0.0.1:{port}", "orders", 0, 1)
    assert said.startswith(f"orders-0: no broker sent a record within 0 s: cannot connect to 127.0.0.1:{port}")
    assert not said.endswith("retrying")


def test_a_certificate_that_is_not_trusted_ends_the_range_at_once(tmp_path: Path) -> None:
    with secured_broker(tmp_path, orders=1) as secured:
        said = reason(secured.servers, "orders", 0, 1, **{"kafka.security.protocol": "SSL"})
    assert said.startswith("orders-0: ") and "the broker's certificate is not accepted" in said


def test_a_setting_that_is_wrong_is_named() -> None:
    said = reason("127.0.0.1:9", "orders", 0, 1, **{"kafka.security.protocol": "HTTPS"})
    assert said.startswith("orders-0: security.protocol") and "HTTPS" in said


def test_ranges_are_cut_into_the_least_number_of_tasks() -> None:
    options = {"startingOffsets": '{"orders": {"0": 10, "1": 0}}', "endingOffsets": '{"orders": {"0": 110, "1": 100}}'}
    parts = TopicReader({**options, "minPartitions": "4", "kafka.bootstrap.servers": "b:1"}).partitions()
    spans: list[Any] = [(part.partition, part.start, part.until) for part in parts]
    assert spans == [(0, 10, 60), (0, 60, 110), (1, 0, 50), (1, 50, 100)]
