"""Kafka's own tools over TLS with a client certificate: console and performance tools, and kafka-configs, which
replaces a key store."""

import shutil
import socket
import ssl
import subprocess

import pytest

from odradek.testing import Broker
from odradek.testing.certificates import make_certificates
from tests.toolchains import JVM_OPTIONS, kafka_jars, require_command

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def broker():
    settings = {"ssl.client.auth": "required", "ssl.allow.dn.changes": "true", "num.network.threads": "2"}
    with Broker(settings, tls=True) as running:
        yield running


def tool(name, *arguments, text=None):
    """Run a tool of Kafka; returns its standard output."""
    java = require_command("java", "default-jre-headless")
    command = [java, *JVM_OPTIONS, "-cp", f"{kafka_jars()}/*", name, *map(str, arguments)]
    result = subprocess.run(command, input=text, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, f"{result.stdout}\n{result.stderr}"
    return result.stdout


def test_console_and_performance_tools(broker):
    how = ("--bootstrap-server", broker.bootstrap_servers, "--command-config", broker.certificates.client_properties)
    lines = [f"line {number}" for number in range(100)]
    tool("org.apache.kafka.tools.ConsoleProducer", *how, "--topic", "t", text="\n".join(lines) + "\n")
    read = tool(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *how,
        "--topic",
        "t",
        "--from-beginning",
        "--max-messages",
        100,
    )
    assert sorted(read.splitlines()) == sorted(lines)
    written = tool(
        "org.apache.kafka.tools.ProducerPerformance", "--topic", "perf", "--num-records", 20_000, "--record-size", 1000,
        "--throughput", -1, *how,
    )  # fmt: skip
    assert "20000 records sent" in written
    consumed = tool("org.apache.kafka.tools.ConsumerPerformance", *how, "--topic", "perf", "--num-records", 20_000)
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
    tool(
        "kafka.admin.ConfigCommand", "--bootstrap-server", broker.bootstrap_servers, "--command-config",
        certificates.client_properties, "--alter", "--entity-type", "brokers", "--entity-name", "1", "--add-config",
        f"listener.name.ssl.ssl.keystore.location={certificates.broker}",
    )  # fmt: skip
    assert serial_number() != before
