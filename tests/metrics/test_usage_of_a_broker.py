"""Usage of a real broker under real clients: exact figures by the command, the spool through deaths and restarts."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from odradek.metrics.spool_files import list_files
from odradek.metrics.spool_history import History
from odradek.metrics.spool_reader import Interval, read_file
from odradek.testing import Broker
from tests.cli.command import Command
from tests.metrics.scraping import scrape
from tests.waiting import PATIENCE_S, until

pytestmark = [pytest.mark.xdist_group("usage-of-a-broker"), pytest.mark.timeout(900)]

FOREVER = 1 << 60
CONFIG = {
    "metrics.listener": "127.0.0.1:0",
    "num.network.threads": 2,
    "offsets.topic.num.partitions": 2,
    "group.initial.rebalance.delay.ms": 0,
    "usage.spool.max.bytes": 1 << 30,
    "usage.spool.interval.ms": 1000,
}
TOPICS = {"orders": 2, "audit": 1}


def produce(broker, client, topic, count, size=100):
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "client.id": client, "linger.ms": 5})
    for number in range(count):
        producer.produce(topic, b"x" * size, partition=number % TOPICS[topic])
    assert producer.flush(60) == 0


def consume(broker, client, topic, count, group=None):
    """Reads so many from the beginning; a group commits, without one nothing is ever committed."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "client.id": client,
            "group.id": group or f"of-{client}",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "max.poll.interval.ms": 3_600_000,  # nobody polls again
        }
    )
    if group is None:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(TOPICS[topic])])
    else:
        consumer.subscribe([topic])
    left = count
    while left:
        got = consumer.consume(left, 90)
        assert got and all(one.error() is None for one in got)
        left -= len(got)
    if group is not None:
        consumer.commit(asynchronous=False)
    return consumer


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with Broker(CONFIG, TOPICS, directory=tmp_path_factory.mktemp("usage")) as one:
        produce(one, "web", "orders", 1000)
        produce(one, "cron", "orders", 10)
        produce(one, "cron", "audit", 7, size=10)
        readers = [consume(one, "etl", "orders", 1010), consume(one, "bill", "orders", 1010, "billing")]
        yield one
        for reader in readers:
            reader.close()


@pytest.fixture(scope="module")
def usage(broker):
    command = Command(broker.bootstrap_servers)

    def ask(*arguments):
        return command.json("usage", *arguments, "--data-dir", broker.data_dir)

    ask.command = command
    return ask


def rows(report, *names):
    return {tuple(one[name] for name in names): one for one in report["rows"]}


def test_records_are_counted_exactly_by_client_and_topic(broker, usage):
    found = rows(usage("show", "--by", "client", "--by", "topic", "--by", "api"), "client", "topic", "api")
    assert found["web", "orders", "Produce"]["rin"] == 1000
    assert found["cron", "orders", "Produce"]["rin"] == 10 and found["cron", "audit", "Produce"]["rin"] == 7
    assert found["web", "orders", "Produce"]["in"] > 1000 * 100 and found["web", "orders", "Produce"]["out"] == 0
    for client in ("etl", "bill"):
        until(
            lambda who=client: (
                rows(usage("show", "--by", "client", "--api", "Fetch"), "client").get((who,), {}).get("rout") == 1010
            ),
            f"all that {client} read",
        )
    assert ("web", "audit", "Produce") not in found


def test_a_request_is_counted_without_a_topic_and_once_more_with_each_topic_that_it_names(broker, usage):
    """As the format of the spool says (`spool.py`); each request of librdkafka's producers names one topic."""
    found = rows(usage("show", "--by", "client", "--by", "topic", "--by", "api"), "client", "topic", "api")
    requests = [found["cron", topic, "Produce"]["req"] for topic in (None, "orders", "audit")]
    assert requests[0] == requests[1] + requests[2] and min(requests) > 0
    assert rows(usage("show", "--by", "client"), "client")["cron",]["req"] == sum(
        row["req"] for (client, topic, _), row in found.items() if client == "cron" and topic is None
    )


def test_the_sums_over_clients_are_the_bytes_on_the_sockets(broker, usage):
    """The readers' next requests are on their way meanwhile: the sums lie between those of two looks at the sockets."""

    def sockets():
        seen = scrape(broker)
        return [seen.sum(f"odradek_socket_bytes_{way}_total") for way in ("in", "out")]

    def agree():
        before = sockets()
        report = usage("show", "--by", "client")
        seen[:] = [before, report["sum"], sockets()]
        for way in ("in", "out"):
            assert sum(one[way] for one in report["rows"]) == report["sum"][way]
        return all(
            low <= report["sum"][way] <= high for way, low, high in zip(("in", "out"), before, seen[2], strict=True)
        )

    seen = []
    until(agree, lambda: f"sums between those of the sockets: {seen}")  # a worker may rest between its two counts


def test_a_topic_is_shown_with_writers_readers_and_their_lag(broker, usage):
    def is_complete():
        report.update(usage("topic", "orders", "--interval", "0.5"))
        return report["groups"] and all(one["lag"] == 0 for one in report["readers"])

    report = {}
    until(is_complete, lambda: f"readers at the end, who have asked for more, and groups: {report}")
    assert {(one["client"], one["records"]) for one in report["writers"]} == {("web", 1000), ("cron", 10)}
    assert {(one["client"], one["records"], one["lag"]) for one in report["readers"]} == {
        ("etl", 1010, 0),
        ("bill", 1010, 0),
    }
    assert [(one["group"], one["lag"], one["members"]) for one in report["groups"]] == [("billing", 0, 1)]
    assert report["topic"]["end"] - report["topic"]["start"] == 1010 and report["topic"]["bytes"] > 1010 * 100
    for one in report["writers"] + report["readers"]:
        assert report["counted_since"] <= one["since"] <= one["last"] <= report["at"] + 5000
    assert usage("topic", "audit", "--interval", "0")["readers"] == []
    usage.command.refused("usage", "topic", "order", "--data-dir", broker.data_dir, words=["did you mean 'orders'?"])


def test_top_sees_a_client_at_work(broker, usage):
    command = [sys.executable, "-m", "odradek.cli.main", "usage", "top", "--json", "--interval", "0.3"]
    command += ["--data-dir", str(broker.data_dir), "--client", "busy"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            json.loads(process.stdout.readline())
            produce(broker, "busy", "audit", 500)
            seen, deadline = 0, time.monotonic() + PATIENCE_S
            while seen < 500 and time.monotonic() < deadline:
                seen += json.loads(process.stdout.readline())["sum"]["rin"]
        finally:
            process.terminate()
    assert seen == 500


TORN = "ends in the middle of an interval"


def spool_records(broker, client):
    """Records in by the spool; 0 before its first interval. An interval may be being written, or be cut off by a kill."""

    def readable():
        found[:] = [History(broker.data_dir, 0, FOREVER)]
        return not [one for one in found[0].damages if one.reason != TORN]

    found = []
    until(readable, lambda: f"a spool without damage: {found[0].damages}")
    (history,) = found
    assert not history.gaps
    return sum(one.get("rin") for key, one in history.usage.items() if key.client == client)


def test_the_spool_is_exact_across_kills_of_the_reporter_and_of_workers(tmp_path):
    with Broker(CONFIG, TOPICS, directory=tmp_path / "b") as broker:
        spool = broker.data_dir

        def kill(kind):
            victim = next(one["pid"] for one in broker.processes() if one["kind"] == kind)
            os.kill(victim, signal.SIGKILL)
            until(
                lambda: all(one["state"] == "serving" and one["pid"] != victim for one in broker.processes()),
                f"the successor of the {kind}",
            )

        for number in range(3):
            produce(broker, "web", "orders", 100)
            kill("reporter")
            produce(broker, "web", "orders", 50)
            kill("worker")
            until(lambda n=number: spool_records(broker, "web") == 150 * (n + 1), "what web wrote")
        assert len({file.boot for file in list_files(spool)}) == 1  # one boot
        produce(broker, "last", "audit", 5)
        broker.stop()  # the interval at the end has what came since the one before
        assert (spool_records(broker, "web"), spool_records(broker, "last")) == (450, 5)
        broker.start()
        produce(broker, "web", "orders", 11)
        until(lambda: spool_records(broker, "web") == 461, "what web wrote after the start")
        broker.kill_group()  # what is durable stays, nothing counts twice
        assert spool_records(broker, "web") == 461
        report = Command("").json("usage", "show", "--by", "client", "--since", "-1h", "--data-dir", broker.data_dir)
        assert {one["client"]: one["rin"] for one in report["rows"]}["web"] == 461
        parts = [part for file in list_files(spool) for part in read_file(file.path)]
        intervals = [part for part in parts if isinstance(part, Interval)]
        assert [part for part in parts if part not in intervals and part.reason != TORN] == []
        kinds = {json.loads(line)["kind"] for part in intervals for line in part.rows}
        assert {"usage", "topic", "worker"} <= kinds


def test_without_a_spool_and_without_a_listener_it_says_so(tmp_path):
    command = Command("")
    with Broker({"metrics.listener": "127.0.0.1:0"}, directory=tmp_path / "a") as broker:
        at = ("--data-dir", broker.data_dir)
        assert not list_files(broker.data_dir)
        command.refused("usage", "show", "--since", "-1h", *at, words=["no spool in", "--spool DIR"])
        address = broker.status()["metrics"]
        named = ("-m", f"{address['host']}:{address['port']}")
        command.refused("usage", "show", "--since", "-1h", *named, words=["has no spool", "usage.spool.max.bytes"])
        command("usage", "show", *named)
    with Broker({}, directory=tmp_path / "c") as broker:
        command.refused("usage", "top", "--data-dir", broker.data_dir, words=["metrics.listener is empty"])
    command.refused("usage", "top", "--data-dir", broker.data_dir, words=["no broker runs on"])
