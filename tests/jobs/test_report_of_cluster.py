"""The report of a real cluster: from its spools, over HTTP and from a Prometheus, equal to what clients sent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic

from odradek.clock import now_ms
from odradek.jobs.usage_report.options import Source
from odradek.testing.broker_process import Broker
from tests.jobs.conftest import Report
from tests.jobs.prometheus_server import PrometheusServer
from tests.metrics.scraping import scrape
from tests.waiting import until
from tests.zookeeper import ZookeeperServer

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.timeout(1800), pytest.mark.java]

DAY_MS = 86_400_000
IDS = (1, 2, 3)
SENT = {"orders": 3000, "events": 700}  # records; orders has three replicas, events one
TOPICS = {"orders": (6, 3), "events": (3, 1)}  # partitions, replicas
BOUNDED = {"retention.ms": "7200000", "retention.bytes": "1000000"}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, Broker]]:
    directory = tmp_path_factory.mktemp("cluster")
    with ExitStack() as stack:
        zookeeper = stack.enter_context(ZookeeperServer())
        yield {
            broker_id: stack.enter_context(
                Broker(
                    {
                        "broker.id": broker_id,
                        "zookeeper.connect": zookeeper.hosts,
                        "offsets.topic.replication.factor": 3,
                        "offsets.topic.num.partitions": 3,
                        "metrics.listener": "127.0.0.1:0",
                        "usage.spool.max.bytes": 1 << 24,
                        "usage.spool.interval.ms": 1000,
                    },
                    directory=directory / str(broker_id),
                )
            )
            for broker_id in IDS
        }


def use(servers: list[str]) -> None:
    """Send the records of `SENT`, and read all of them once."""
    admin = KafkaAdminClient(bootstrap_servers=servers, client_id="admin")
    admin.create_topics([NewTopic(name, *shape, topic_configs=BOUNDED) for name, shape in TOPICS.items()])
    admin.close()
    producer = KafkaProducer(bootstrap_servers=servers, client_id="shop", acks="all", retries=20)
    for topic, count in SENT.items():
        for number in range(count):
            producer.send(topic, b"x" * (100 + number % 50), partition=number % TOPICS[topic][0])
    producer.flush()
    producer.close()
    consumer = KafkaConsumer(
        *SENT, bootstrap_servers=servers, client_id="billing", group_id="g", auto_offset_reset="earliest",
        enable_auto_commit=False,
    )  # fmt: skip
    read = 0

    def all_read() -> bool:
        nonlocal read
        read += sum(map(len, consumer.poll(500).values()))
        return read == sum(SENT.values())

    until(all_read, lambda: f"{read} records were read", 240)
    consumer.commit()
    consumer.close()


def of_topics(rows: list[dict[str, Any]]) -> dict[tuple[str, str, str], dict[str, int]]:
    """The counts of records and bytes by client, topic and API, summed over hours."""
    sums: dict[tuple[str, str, str], dict[str, int]] = {}
    for row in rows:
        if row["topic"] in SENT:
            counts = sums.setdefault((row["client"], row["topic"], row["api"]), {})
            for name in ("bytes_in", "bytes_out", "records_in", "records_out", "errors"):
                counts[name] = counts.get(name, 0) + row[name]
    return {key: counts for key, counts in sums.items() if any(counts.values())}


def latest(rows: list[dict[str, Any]], *keys: str) -> dict[tuple[Any, ...], dict[str, Any]]:
    """The last row by these columns, without its hour."""
    return {
        tuple(row[key] for key in keys): {name: value for name, value in row.items() if name not in ("hour", "day")}
        for row in sorted(rows, key=lambda row: row["hour"])
    }


def test_all_sources_give_the_figures_of_what_was_sent(cluster: dict[int, Broker], spark: Any, tmp_path: Path) -> None:
    brokers = [*cluster.values()]
    server = PrometheusServer(
        tmp_path / "server", [], targets=[urlsplit(broker.metrics_url).netloc for broker in brokers]
    )
    try:
        use([broker.bootstrap_servers for broker in brokers])
        for topic, count in SENT.items():
            everywhere = f'sum(odradek_usage_records_{{}}_total{{topic="{topic}"}}) == {count}'
            for direction in ("in", "out"):
                until(lambda: server.value(everywhere.replace("{}", direction)), f"{topic} {direction}", 120)  # noqa: B023
            lag = f'kafka_consumergroup_lag_sum{{topic="{topic}"}} == bool 0'
            until(lambda: server.value(lag), lambda: f"{lag} {server.value(lag)}", 120)  # noqa: B023
        for broker in brokers:
            written = scrape(broker).value("odradek_spool_intervals_total")
            until(lambda: scrape(broker).value("odradek_spool_intervals_total") > written + 1, "two intervals", 120)  # noqa: B023
        sources = {
            "directories": Source(spools=tuple(str(broker.data_dir) for broker in brokers)),
            "listeners": Source(spools=tuple(broker.metrics_url for broker in brokers)),
            "prometheus": Source(prometheus=server.url, step_s=15),
        }
        reports = {name: Report(tmp_path / name) for name in sources}
        today = now_ms() // DAY_MS * DAY_MS
        for name, source in sources.items():
            reports[name].run(source, today - DAY_MS, today + DAY_MS)
    finally:
        server.stop()
    expected = of_topics(reports["directories"].rows("traffic_hourly"))
    assert {(key[0], key[1]) for key in expected} == {
        (client, topic) for client in ("shop", "billing") for topic in SENT
    }
    for topic, count in SENT.items():
        sent, read = expected["shop", topic, "Produce"], expected["billing", topic, "Fetch"]
        assert (sent["records_in"], read["records_out"], sent["errors"]) == (count, count, 0)
        assert 120 * count < sent["bytes_in"] == read["bytes_out"]  # replicas are in neither of them
    for name, report in reports.items():
        assert of_topics(report.rows("traffic_hourly")) == expected, name
        topics = latest(report.rows("topics_hourly"), "topic")
        for topic, (partitions, replicas) in TOPICS.items():
            assert topics[(topic,)] == {
                "topic": topic, "partitions": partitions, "replicas": partitions * replicas, "end_offsets": SENT[topic],
                "start_offsets": 0, "stored_bytes": replicas * expected["shop", topic, "Produce"]["bytes_in"],
                "largest_partition_bytes": topics[(topic,)]["largest_partition_bytes"], "retention_ms": 7_200_000,
                "retention_bytes": 1_000_000,
            }, name  # fmt: skip
        placed = latest(report.rows("topic_dirs_hourly"), "topic", "broker")
        assert (
            sum(row["stored_bytes"] for key, row in placed.items() if key[0] == "orders")
            == topics["orders",]["stored_bytes"]
        )
        assert {row["broker"] for row in report.rows("log_dirs_hourly")} == {*IDS}
        assert {row["broker"] for row in report.rows("workers_hourly")} == {*IDS}
        lags = latest(report.rows("lag_hourly"), "kind", "name", "topic")
        assert {key for key in lags if key[0] == "group"} == {("group", "g", topic) for topic in SENT}
        assert not [row for row in report.rows("gaps") if "live member" in row["reason"]], name

    # one of the three is down: it is named
    alone = Report(tmp_path / "alone")
    url = brokers[2].metrics_url
    brokers[2].kill()
    said = alone.run(Source(spools=(*sources["listeners"].spools[:2], url)), today, today + DAY_MS)
    assert any(line.startswith(f"warning: --spool {url}: cannot be reached") for line in said), said
    named = {row["source"] for row in alone.rows("gaps")}
    assert {url, "broker 3"} <= named
