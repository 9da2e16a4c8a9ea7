"""The memory of a ParallelConsumer: its division, and the peak of a process whose handlers block."""

import json
import subprocess
import sys

import pytest
from confluent_kafka import Producer

from odradek.clients.consumer_memory import HEADER_BYTES, LEAST_BYTES, RECORD_BYTES, share_out, size_of
from odradek.clients.parallel_consumer import ParallelConsumer
from odradek.testing import Broker

pytestmark = [pytest.mark.xdist_group("parallel-memory"), pytest.mark.timeout(900)]

MIB = 1 << 20
PARTITIONS = 12
NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0}


class Record:
    """The measured part of a `confluent_kafka.Message`."""

    def __init__(self, key, value, headers):
        self.key, self.headers = lambda: key, lambda: headers
        self._value = value

    def __len__(self):
        return len(self._value or b"")


def used(share):
    """Bytes that the buffers and the library's two limits allow together."""
    queue = share.settings["queued.max.messages.kbytes"] << 10
    return share.buffers + queue + share.settings["queued.min.messages"] * 512


@pytest.mark.parametrize("memory_bytes", [LEAST_BYTES, 64 * MIB, 256 * MIB, 1 << 30, 1 << 40])
def test_the_parts_add_up_to_the_memory_and_leave_room_for_answers(memory_bytes):
    share = share_out(memory_bytes, {})
    assert used(share) + 2 * (memory_bytes // 8) == memory_bytes  # for answers and for the allocator
    assert share.settings["fetch.max.bytes"] <= memory_bytes // 8
    assert share.buffers >= memory_bytes // 2


def test_the_buffers_get_what_given_settings_leave():
    default = share_out(64 * MIB, {})
    smaller = share_out(64 * MIB, {"queued.max.messages.kbytes": "1024", "queued.min.messages": 100})
    assert smaller.settings == default.settings | {"queued.max.messages.kbytes": 1024, "queued.min.messages": 100}
    assert used(smaller) == used(default)
    assert smaller.buffers > default.buffers
    larger = share_out(64 * MIB, {"fetch.max.bytes": 16 * MIB})
    assert larger.buffers == default.buffers - 8 * MIB


@pytest.mark.parametrize(
    ("memory_bytes", "config", "message"),
    [
        (LEAST_BYTES - 1, {}, f"memory_bytes={LEAST_BYTES - 1} is too small: use at least {LEAST_BYTES}"),
        (64 * MIB, {"queued.max.messages.kbytes": 65536}, "queued.max.messages.kbytes=65536, .* leaves nothing"),
        (64 * MIB, {"queued.min.messages": "10000000"}, "queued.min.messages=10000000, .* leaves nothing"),
        (64 * MIB, {"fetch.max.bytes": "much"}, "fetch.max.bytes='much' is not an integer"),
    ],
)
def test_too_little_memory_is_refused_with_the_settings_that_use_it(memory_bytes, config, message):
    with pytest.raises(ValueError, match=message):
        ParallelConsumer(NOWHERE | config, ["t"], print, memory_bytes=memory_bytes)


@pytest.mark.parametrize(
    ("config", "answer_bytes"),
    [
        ({}, 4 * MIB),
        ({"message.max.bytes": "10000000"}, 10_000_000),
        ({"receive.message.max.bytes": 1_500_000}, 1_499_488),
        ({"fetch.max.bytes": 2_000_000}, 2_000_000),
    ],
)
def test_the_client_library_accepts_the_settings_beside_related_ones(config, answer_bytes):
    assert share_out(256 * MIB, config).settings["fetch.max.bytes"] == answer_bytes
    ParallelConsumer(NOWHERE | config, ["t"], print)._consumer.close()


def test_key_value_and_headers_of_a_record_count_with_their_overhead():
    assert size_of(Record(None, None, None)) == RECORD_BYTES
    assert size_of(Record(b"key", b"value", [])) == RECORD_BYTES + 8
    headers = [("name", b"12345"), ("other", None)]
    assert size_of(Record(b"key", b"value", headers)) == RECORD_BYTES + 8 + 2 * HEADER_BYTES + 14


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    topics = dict.fromkeys(("huge", "large", "small", "headers"), PARTITIONS)
    with Broker(
        {"group.initial.rebalance.delay.ms": 0}, topics, directory=tmp_path_factory.mktemp("memory")
    ) as running:
        yield running


def fill(broker, topic, records, value_bytes, headers):
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 20})
    for number in range(records):
        named = [(f"header-{i}", bytes(50)) for i in range(headers)]
        producer.produce(topic, bytes(value_bytes), partition=number % PARTITIONS, key=f"key {number}", headers=named)
        producer.poll(0 if len(producer) < 5000 else 0.1)
    assert producer.flush(120) == 0


@pytest.mark.parametrize(
    ("topic", "records", "value_bytes", "headers"),
    [("huge", 120, 900_000, 0), ("large", 5000, 20_000, 0), ("small", 60_000, 50, 0), ("headers", 20_000, 50, 10)],
)
def test_the_limit_covers_read_ahead_and_buffers(broker, topic, records, value_bytes, headers):
    fill(broker, topic, records, value_bytes, headers)
    memory_bytes = 32 * MIB
    settings = {
        "config": {"bootstrap.servers": broker.bootstrap_servers, "group.id": topic, "session.timeout.ms": 60_000},
        "topic": topic,
        "partitions": PARTITIONS,
        "records": records,
        "options": {"memory_bytes": memory_bytes, "buffer_records": records, "max_uncommitted": records},
    }
    command = [sys.executable, "-m", "tests.parallel.hoarder", json.dumps(settings)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["polled"] >= records and found["pauses"] >= PARTITIONS, found
    assert found["grown"] < memory_bytes, found
