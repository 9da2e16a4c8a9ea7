"""Real clients' figures in /metrics, to the record and the byte; and as a real Prometheus sees them over deaths."""

import re
import time

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from odradek.metrics.names import METRICS
from odradek.testing import Broker
from tests.committing import commit
from tests.metrics.prometheus import Prometheus
from tests.metrics.scraping import scrape
from tests.metrics.test_collector import IN_CLUSTERS
from tests.metrics.test_reporter import CONFIG, kill
from tests.quotas.talk import set_quota
from tests.waiting import until
from tests.wire import Wire

pytestmark = [pytest.mark.xdist_group("metrics-traffic"), pytest.mark.timeout(900)]

PREFIX = "kafka_server_brokertopicmetrics_"
OF_LOGINS = {name for name in METRICS if re.search("authentication_total$|expired_connections_killed_total$", name)}
"""Metrics of SASL listeners: tests/processes/test_logins.py."""
OF_LISTENERS = {
    name
    for name in METRICS
    if name.startswith(
        ("odradek_jwks_", "odradek_tls_certificate_", "odradek_tls_truststore_", "odradek_tls_reload_failed")
    )
} | {"odradek_failing_broker_logins"}
"""Metrics of listeners with OAUTHBEARER or TLS, or of secure listeners between brokers: tests/processes/test_oauth_logins.py,
tests/tls/test_broker_with_tls.py, tests/cli/health/test_doctor_security.py, tests/cluster/test_secure_cluster.py."""
WHO = {"principal": "User:ANONYMOUS"}


class Writer:
    """A client that counts what it sent and had acknowledged."""

    def __init__(self, broker, client_id):
        self.client_id = client_id
        self.sent = 0
        self._producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "client.id": client_id,
                "linger.ms": 1,
                "enable.idempotence": True,
            }
        )

    def send(self, topic, count, size=100):
        for _ in range(count):
            self._producer.produce(topic, b"x" * size, on_delivery=self._delivered)
        assert self._producer.flush(60) == 0

    def _delivered(self, error, _):
        assert error is None, error
        self.sent += 1


def read(broker, client_id, topic, count):
    """Read from the beginning and commit nothing."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": client_id,
            "client.id": client_id,
            "enable.auto.commit": False,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(2)])
        found = 0

        def all_read():
            nonlocal found
            found += len(consumer.consume(1000, 0.2))
            return found >= count

        until(all_read, f"{count} records")
        # One more fetch says where it stands now.
        until(lambda: scrape(broker).sum("odradek_reader_lag", client_id=client_id, topic=topic) == 0, "no lag")
    finally:
        consumer.close()


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with Broker(CONFIG, {"t": 2, "u": 1}, directory=tmp_path_factory.mktemp("traffic")) as one:
        yield one


def test_records_and_bytes_of_each_client_are_exact(broker):
    writers = [Writer(broker, f"writer-{number}") for number in range(3)]
    for number, writer in enumerate(writers):
        writer.send("t", 100 * (number + 1))
        writer.send("u", 7)
    read(broker, "reader", "t", 600)
    found = scrape(broker)
    for writer, count in zip(writers, (100, 200, 300), strict=True):
        labels = WHO | {"client_id": writer.client_id, "api": "Produce"}
        assert found.value("odradek_usage_records_in_total", topic="t", **labels) == count
        assert found.value("odradek_usage_records_in_total", topic="u", **labels) == 7
    assert found.value(PREFIX + "messagesin_total", topic="t") == 600
    assert found.value(PREFIX + "messagesin_total") == 621
    # Batches stay as they were sent: what is in the logs is what came in, and what was read.
    stored = {topic: found.value("odradek_topic_stored_bytes", topic=topic) for topic in "tu"}
    assert found.value(PREFIX + "bytesin_total", topic="t") == stored["t"]
    assert found.value(PREFIX + "bytesin_total") == stored["t"] + stored["u"]
    assert found.value(PREFIX + "bytesout_total", topic="t") >= stored["t"]
    labels = WHO | {"client_id": "reader", "topic": "t", "api": "Fetch"}
    assert found.value("odradek_usage_records_out_total", **labels) == 600

    # All usage together is all that went over the sockets; of what is under way nobody may move now.
    def settled():
        one = scrape(broker)
        read_bytes = one.sum("odradek_socket_bytes_in_total")
        return one.sum("odradek_usage_bytes_in_total") == read_bytes and one

    until(settled, "a moment without a frame under way")


def test_a_reader_without_commits_has_a_lag_in_records_and_seconds(broker):
    Writer(broker, "late").send("u", 20)
    end = scrape(broker).value("kafka_topic_partition_current_offset", topic="u", partition="0")
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "none",
            "client.id": "spark",
            "enable.auto.commit": False,
            "fetch.message.max.bytes": 1,
            "queued.min.messages": 1,
        }
    )
    try:
        consumer.assign([TopicPartition("u", 0, int(end))])
        place = WHO | {"client_id": "spark", "topic": "u", "partition": "0"}

        def at_the_end():
            consumer.poll(0.05)
            return scrape(broker).value("odradek_reader_position", **place) == end

        until(at_the_end, "the reader's position")
        assert scrape(broker).value("odradek_reader_lag", **place) == 0
        assert scrape(broker).value("odradek_reader_lag_seconds", **place) == 0
    finally:
        consumer.close()
    Writer(broker, "late").send("u", 30)
    found = scrape(broker)
    assert found.value("odradek_reader_lag", **place) == 30
    age = found.value("odradek_reader_lag_seconds", **place)
    until(lambda: scrape(broker).value("odradek_reader_lag_seconds", **place) > age + 0.5, "a greater age")


def test_requests_their_times_and_connections_are_reported(broker):
    writer = Writer(broker, "timed")
    times, requests = "kafka_network_requestmetrics_totaltimems", "kafka_network_requestmetrics_requests_total"

    def settled():
        """An answer's time is known once it was sent: to the worker a moment after its client has it."""
        one = scrape(broker)
        return one.sum(requests, request="Produce") == one.sum(f"{times}_count", request="Produce") and one

    before = until(settled, "the times of all before")
    writer.send("t", 50)
    found = until(settled, "the times of all requests")
    for what in ("count", "sum"):
        assert found.sum(f"{times}_{what}", request="Produce") > before.sum(f"{times}_{what}", request="Produce")
    low, high = (found.value(times, request="Produce", quantile=share) for share in ("0.5", "0.999"))
    assert 0 < low <= high
    assert found.sum(requests, request="Produce") == found.value(f"{times}_count", request="Produce")
    assert found.sum("kafka_server_socket_server_metrics_connection_count", listener="PLAINTEXT") >= 1
    assert found.sum("kafka_server_socket_server_metrics_connections", clientsoftwarename="confluent-kafka-python") >= 1
    assert 0 <= found.value("kafka_network_socketserver_networkprocessoravgidle_percent") <= 1
    assert found.sum("odradek_worker_connections") >= 1


def test_a_real_prometheus_sees_what_was_sent_over_every_death(broker, tmp_path):
    writer = Writer(broker, "steady")
    writer.send("t", 1)
    name = PREFIX + 'messagesin_total{topic="t"}'
    with Prometheus(tmp_path, broker) as prometheus:
        until(
            lambda: prometheus.value(name) == scrape(broker).value(PREFIX + "messagesin_total", topic="t"), "the start"
        )
        first = until(lambda: prometheus.value(name), "what was sent first")
        writer.sent = 0
        for kind in ("worker", "reporter", "coordinator", "cleaner", None):
            for _ in range(20):
                writer.send("t", 25)
                time.sleep(0.02)  # the load is spread over time, so that there is a rate
            if kind is not None:
                kill(broker, kind)
        sent = writer.sent
        until(lambda: prometheus.value(name) == first + sent, "what was sent last")
        window = "[1h]"  # all that this Prometheus has seen
        spread = prometheus.value(f"max_over_time({name}{window}) - min_over_time({name}{window})")
        assert spread == sent == 2500
        # rate() takes a fall for a start at nothing: there must be none in any counter.
        names = '__name__=~".+_total|.+_count|.+_bucket",__name__!~"process_.+|.*connection_count"'
        series = prometheus.scraped(f"{{{names}}}{window}")
        assert len(series) > 100
        for labels, values in series:
            assert values == sorted(values), labels
        by_client = 'odradek_usage_records_in_total{client_id="steady",topic="t"}'
        until(
            lambda: prometheus.value(by_client) == sent + 1, "what the client sent"
        )  # a scrape may have been too slow
        # It estimates what happened before the first sample and after the last: at each end at most 1.1 of their mean distance.
        most = 1 + 2.2 / (prometheus.value(f"count_over_time({name}{window})") - 1)
        assert sent * 0.999 <= prometheus.value(f"rate({name}{window})") * 3600 <= sent * most * 1.001


def test_every_metric_has_samples_under_load(tmp_path):
    config = CONFIG | {"usage.spool.max.bytes": 1 << 20, "usage.spool.interval.ms": 1000}
    with Broker(config, {"t": 2}, directory=tmp_path) as broker:
        with Wire.to(broker) as admin:
            set_quota(
                admin, {"user": "ANONYMOUS"}, producer_byte_rate=1e9, consumer_byte_rate=1e9, request_percentage=1e6
            )
        writer = Writer(broker, "writer")  # stays connected
        writer.send("t", 10)
        commit(broker.bootstrap_servers, "g", "t", 0, 4)
        read(broker, "reader", "t", 10)
        payments = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "payments"})
        payments.init_transactions(30)
        payments.begin_transaction()
        payments.produce("t", b"paid")
        payments.commit_transaction(30)
        lost = Consumer(
            {"bootstrap.servers": broker.bootstrap_servers, "group.id": "lost", "auto.offset.reset": "error"}
        )
        try:
            lost.assign([TopicPartition("t", 0, 1_000_000)])
            until(lambda: (one := lost.poll(0.2)) is not None and one.error(), "OFFSET_OUT_OF_RANGE")
            for offset in (1, 0):  # it moves back
                lost.assign([TopicPartition("t", 0, offset)])
                until(lambda: (one := lost.poll(0.2)) is not None and not one.error(), "a record")
        finally:
            lost.close()

        def missing():
            families = {line.split()[2] for line in scrape(broker).text.splitlines() if line.startswith("# TYPE")}
            assert families <= set(METRICS)
            return set(METRICS) - families - IN_CLUSTERS - OF_LOGINS - OF_LISTENERS

        try:
            until(lambda: not missing(), "every name")
        except AssertionError:
            raise AssertionError(f"these never came: {missing()}") from None
