"""Kafka's own tools over TLS with a client certificate: console and performance tools, and kafka-configs, which
replaces a key store."""

import shutil
import socket
import ssl

import pytest

from odradek.testing import Broker
from odradek.testing.certificates import make_certificates
from tests.toolchains import run_java

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def broker():
    settings = {"ssl.client.auth": "required", "ssl.allow.dn.changes": "true", "num.network.threads": "2"}
    with Broker(settings, tls=True) as running:
        yield running


def test_console_and_performance_tools(broker):
    how = ("--bootstrap-server", broker.bootstrap_servers, "--command-config", broker.certificates.client_properties)
    lines = [f"line {number}" for number in range(100)]
    run_java("org.apache.kafka.tools.ConsoleProducer", *how, "--topic", "t", text="\n".join(lines) + "\n")
    read = run_java(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *how,
        "--topic",
        "t",
        "--from-beginning",
        "--max-messages",
        100,
    )
    assert sorted(read.splitlines()) == sorted(lines)
    written = run_java(
        "org.apache.kafka.tools.ProducerPerformance", "--topic", "perf", "--num-records", 20_000, "--record-size", 1000,
        "--throughput", -1, *how,
    )  # fmt: skip
    assert "20000 records sent" in written
    consumed = run_java("org.apache.kafka.tools.ConsumerPerformance", *how, "--topic", "perf", "--num-records", 20_000)
    assert any(field.strip() == "20000" for line in consumed.splitlines() for field in line.split(","))


def test_kafka_configs_replaces_a_key_store(broker):
    def serial_number():
        context = ssl.create_default_context(cafile=str(broker.certificates.ca))
        context.load_cert_chain(str(broker.certificates.client))
        with (
            socket.create_connection(("127.0.0.1", broker.port)) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as tls,
        ):
            return tls.getpeercert()["serialNumber"]

    before = serial_number()
    other = make_certificates(broker.directory / "other")
    shutil.copy(other.broker, broker.certificates.broker)
    certificates = broker.certificates
    certificates.ca.write_text(certificates.ca.read_text() + other.ca.read_text())
    run_java(
        "kafka.admin.ConfigCommand", "--bootstrap-server", broker.bootstrap_servers, "--command-config",
        certificates.client_properties, "--alter", "--entity-type", "brokers", "--entity-name", "1", "--add-config",
        f"listener.name.ssl.ssl.keystore.location={certificates.broker}",
    )  # fmt: skip
    assert serial_number() != before
