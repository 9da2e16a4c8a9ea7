"""Rates over half a minute: within 5 % of the quota, with one client on many connections to one to four workers, and with
Kafka's performance tools."""

import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from odradek.protocol import encode
from odradek.testing import Broker
from tests import toolchains
from tests.quotas.talk import BYTES_IN, BYTES_OUT, set_quota
from tests.wire import Wire, batch, fetch_request, produce_request

pytestmark = [pytest.mark.timeout(900), pytest.mark.xdist_group("measured-rates")]

WINDOWS = 3
"""Few, so that what a client may use at first is used up soon."""
SETTLED_S, MEASURED_S = 6.0, 30.0
RATE = 1_000_000.0
WITHIN = 0.05
CONNECTIONS = 6
SIZE = 5000
"""Small: each connection may be ahead by one request, and they all wait for the same moment."""
KAFKAS_BYTES, KAFKAS_RECORDS, KAFKAS_WINDOWS = 45_000_000, 45_000, 11
ONCE_MORE = 0.01
"""The part of what Kafka's consumer receives that it has received before."""
UNSETTLED_REPORTS = 2
"""Of five seconds each."""


def broker_of(workers: int, path: Path, windows: int = WINDOWS) -> Broker:
    config = {"num.network.threads": workers, "quota.window.num": windows}
    return Broker(config, {"t": 1}, directory=path)


def measured(broker: Broker, request: Callable[[Wire], int]) -> float:
    """Bytes per second that connections of one client get, from `SETTLED_S` on."""
    began = time.monotonic()
    counts = [0] * CONNECTIONS

    def run(number: int) -> None:
        with Wire.to(broker) as wire:
            wire.client_id = "limited"
            while (now := time.monotonic()) < began + SETTLED_S + MEASURED_S:
                done = request(wire)
                if now >= began + SETTLED_S:
                    counts[number] += done

    threads = [threading.Thread(target=run, args=(number,)) for number in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / MEASURED_S


def close(rate: float, limit: float) -> None:
    print(f"measured {rate:,.0f} bytes per second, {rate / limit - 1:+.2%} of the limit")
    assert abs(rate / limit - 1) <= WITHIN, f"{rate:,.0f} bytes per second instead of {limit:,.0f}"


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
def test_a_producer_keeps_its_rate(tmp_path: Path, workers: int) -> None:
    frame = produce_request([("t", [(0, batch(bytes(SIZE)))])])
    size = len(encode(frame, 9))

    def request(wire: Wire) -> int:
        wire.ask(frame, 0, 9)
        return size

    with broker_of(workers, tmp_path) as broker, Wire.to(broker) as admin:
        admin.client_id = "admin"
        set_quota(admin, {"client-id": "limited"}, **{BYTES_IN: RATE})
        close(measured(broker, request), RATE)


@pytest.mark.parametrize("workers", [1, 4])
def test_a_consumer_keeps_its_rate(tmp_path: Path, workers: int) -> None:
    def request(wire: Wire) -> int:
        told = wire.ask(fetch_request([("t", 0, 0)], partition_max_bytes=SIZE), 1, 12)
        return sum(len(partition.records or b"") for topic in told.responses for partition in topic.partitions)

    with broker_of(workers, tmp_path) as broker, Wire.to(broker) as admin:
        admin.client_id = "admin"
        for _ in range(3):
            admin.ask(produce_request([("t", [(0, batch(bytes(SIZE)))])]), 0, 9)
        set_quota(admin, {"client-id": "limited"}, **{BYTES_OUT: RATE})
        close(measured(broker, request), RATE)


@pytest.mark.java
@pytest.mark.parametrize("workers", [1, 4])
def test_kafkas_producer_tool_keeps_the_rate(tmp_path: Path, workers: int) -> None:
    """By what the tool reports every five seconds, without the first reports: what a client may use at first does not count."""
    with broker_of(workers, tmp_path) as broker, Wire.to(broker) as admin:
        admin.client_id = "admin"
        set_quota(admin, {"client-id": "perf"}, **{BYTES_IN: RATE})
        printed = produce_with_the_tool(broker, "client.id=perf", "batch.size=8192")
    reports = re.findall(r"^(\d+) records sent, ([\d.]+) records/sec", printed, re.M)[UNSETTLED_REPORTS:-1]
    assert len(reports) >= 5
    seconds = sum(int(sent) / float(rate) for sent, rate in reports)
    close(sum(int(sent) for sent, _ in reports) * KAFKAS_BYTES / KAFKAS_RECORDS / seconds, RATE)


@pytest.mark.java
@pytest.mark.parametrize("workers", [1, 4])
def test_kafkas_consumer_tool_keeps_the_rate(tmp_path: Path, workers: int) -> None:
    """Between ten elevenths of the limit and the limit, as in Kafka. This client takes at once what the eleven windows permit,
    and waits until the oldest one ends. At that moment the new window has just begun, so ten windows' worth is permitted, and
    no more until eleven windows later.

    The last batch of a response, which is cut off, is received again and counted once: a batch is a hundredth of a response."""
    with broker_of(workers, tmp_path, KAFKAS_WINDOWS) as broker, Wire.to(broker) as admin:
        admin.client_id = "admin"
        produce_with_the_tool(broker, "client.id=admin", "batch.size=4096")
        set_quota(admin, {"client-id": "perf"}, **{BYTES_OUT: RATE})
        properties = tmp_path / "consumer.properties"
        properties.write_text("client.id=perf\nmax.partition.fetch.bytes=400000\nrequest.timeout.ms=120000\n")
        printed = tool(
            "org.apache.kafka.tools.ConsumerPerformance", "--bootstrap-server", f"{broker.host}:{broker.port}", "--topic", "t",
            "--num-records", str(KAFKAS_RECORDS), "--timeout", "120000", "--command-config", str(properties),
        )  # fmt: skip
        titles, values = (line.split(", ") for line in printed.splitlines() if ", " in line)
        rate = KAFKAS_BYTES * 1000 / float(dict(zip(titles, values, strict=True))["fetch.time.ms"])
        print(f"measured {rate:,.0f} bytes per second, {rate / RATE - 1:+.2%} of the limit")
        assert (1 - 1 / KAFKAS_WINDOWS - ONCE_MORE) * RATE <= rate <= (1 + WITHIN) * RATE


def produce_with_the_tool(broker: Broker, *properties: str) -> str:
    """Produce `KAFKAS_BYTES` as fast as the broker permits; what the tool prints."""
    return tool(
        "org.apache.kafka.tools.ProducerPerformance", "--bootstrap-server", f"{broker.host}:{broker.port}", "--topic", "t",
        "--num-records", str(KAFKAS_RECORDS), "--record-size", str(KAFKAS_BYTES // KAFKAS_RECORDS), "--throughput", "-1",
        "--command-property", *properties, "delivery.timeout.ms=300000", "request.timeout.ms=120000",
    )  # fmt: skip


def tool(main_class: str, *arguments: str) -> str:
    """What a tool prints."""
    printed = toolchains.run_java(main_class, *arguments, timeout_s=400)
    print(printed)
    return printed
