"""Kafka's own command-line tools: ProducerPerformance, the console producer, the console consumer by partition and offset."""

from __future__ import annotations

import re

import pytest

from tests import toolchains
from tests.clients.conftest import Cluster
from tests.clients.contract import CODECS
from tests.clients.offsets import end_offset

pytestmark = [pytest.mark.xdist_group("clients"), pytest.mark.timeout(600), pytest.mark.java]

_codecs = pytest.mark.parametrize("codec", CODECS)

#: Headers, key and value as the console producer reads them: tabs between, `NULL` for null.
LINES = (
    "a:1,b:2\tkey\tvalue",
    "again:1,again:2\tkey\t",
    "n:NULL\tNULL\tno key",
    "e:\tempty header\tvaleur \u00e9\u4e2d",
    "a:1\ttombstone\tNULL",
    *(f"n:{number}\tkey {number}\tvalue {number}" for number in range(200)),
)


def _run(main_class: str, *arguments: str, text: str | None = None) -> str:
    """Run one of Kafka's tools and return what it printed; fail with its errors if it fails or complains."""
    return toolchains.run_java(main_class, *arguments, text=text, quiet=True)


@_codecs
def test_producer_performance_sends_every_record(cluster: Cluster, codec: str) -> None:
    topic = f"performance-{codec}"
    cluster.create_topics({topic: codec}, partitions=1)
    output = _run(
        "org.apache.kafka.tools.ProducerPerformance",
        "--bootstrap-server", cluster.bootstrap_servers, "--topic", topic,
        "--num-records", "10000", "--record-size", "200", "--throughput", "-1",
        "--command-property", f"compression.type={codec}", "batch.size=4096",
    )  # fmt: skip
    cluster.idempotent.add(topic)
    assert re.search(r"^10000 records sent, [\d.]+ records/sec", output, re.MULTILINE), output
    assert end_offset(cluster.bootstrap_servers, topic, 0) == 10_000


@_codecs
def test_console_consumer_reads_by_offset_what_console_producer_wrote(cluster: Cluster, codec: str) -> None:
    topic = f"console-{codec}"
    cluster.create_topics({topic: codec}, partitions=1)
    _run(
        "org.apache.kafka.tools.ConsoleProducer",
        "--bootstrap-server", cluster.bootstrap_servers, "--topic", topic, "--compression-codec", codec,
        "--reader-property", "parse.key=true", "--reader-property", "parse.headers=true",
        "--reader-property", "null.marker=NULL",
        text="".join(line + "\n" for line in LINES),
    )  # fmt: skip
    cluster.idempotent.add(topic)

    first = 2
    output = _run(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        "--bootstrap-server", cluster.bootstrap_servers, "--topic", topic, "--partition", "0", "--offset", str(first),
        "--max-messages", str(len(LINES) - first), "--timeout-ms", "120000",
        *(f"--formatter-property=print.{field}=true" for field in ("offset", "headers", "key", "value")),
        "--formatter-property=null.literal=NULL",
    )  # fmt: skip
    expected = [f"Offset:{offset}\t{line}" for offset, line in enumerate(LINES)][first:]
    assert output.splitlines() == expected
