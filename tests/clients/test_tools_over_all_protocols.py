"""Kafka's own tools over each of the four security protocols: topics, settings, quotas, users, ACLs, records."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.clients import users
from odradek.clients.cluster import Cluster
from odradek.security.sasl.scram_credential import SHA_256
from odradek.testing import Broker
from odradek.testing.certificates import CertificateFiles, make_certificates
from tests.clients.kafka_tools import KafkaTools
from tests.sasl import port_of

pytestmark = [pytest.mark.java, pytest.mark.xdist_group("tools-over-all-protocols"), pytest.mark.timeout(600)]

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


class Secured:
    """A broker with one listener for each protocol."""

    def __init__(self, broker: Broker, certificates: CertificateFiles) -> None:
        self.broker = broker
        self.certificates = certificates

    def properties(self, protocol: str, path: Path) -> str:
        """Write the settings of an administrator for a protocol to a file; returns its path."""
        lines = [f"security.protocol={protocol}"]
        if protocol.endswith("SSL"):
            lines += ["ssl.truststore.type=PEM", f"ssl.truststore.location={self.certificates.ca}"]
        if protocol == "SSL":
            lines += ["ssl.keystore.type=PEM", f"ssl.keystore.location={self.certificates.client}"]
        if protocol.startswith("SASL"):
            lines += [
                "sasl.mechanism=SCRAM-SHA-256",
                f'sasl.jaas.config={SCRAM} required username="admin" password="admin-secret";',
            ]
        path.write_text("\n".join([*lines, ""]))
        return str(path)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    directory = tmp_path_factory.mktemp("protocols")
    certificates = make_certificates(directory / "tls")
    config = certificates.broker_settings | {
        "listeners": ",".join(f"{protocol}://127.0.0.1:0" for protocol in PROTOCOLS),
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:admin;User:CN=client",
        "offsets.topic.num.partitions": "1",
    }
    with Broker(config, directory=directory / "broker") as broker:
        with Cluster(broker.bootstrap_servers) as cluster:
            users.set_password(cluster, "admin", "admin-secret", [SHA_256], 4096)
        yield Secured(broker, certificates)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_kafkas_tools(secured: Secured, tmp_path: Path, protocol: str) -> None:
    config = secured.properties(protocol, tmp_path / "client.properties")
    topic, user = f"t-{protocol}", f"u-{protocol}"
    server = f"127.0.0.1:{port_of(secured.broker, protocol)}"
    with KafkaTools(server, tmp_path / "errors") as tools:

        def run(tool: str, *arguments: str) -> str:
            result = tools.run(tool, "--command-config", config, *arguments)
            assert result.code == 0, f"{tool} {arguments}: {result.out}\n{result.err}"
            return result.out

        assert f"Created topic {topic}." in run("topics", "--create", "--topic", topic, "--partitions", "2")
        assert topic in run("topics", "--list").splitlines()
        run("configs", "--alter", "--topic", topic, "--add-config", "retention.ms=86400000")
        assert "retention.ms=86400000" in run("configs", "--describe", "--topic", topic)
        of_user = ("--entity-type", "users", "--entity-name", user)
        for setting in ("producer_byte_rate=1000000", "SCRAM-SHA-256=[iterations=4096,password=secret]"):
            run("configs", "--alter", *of_user, "--add-config", setting)
        described = run("configs", "--describe", *of_user)
        assert (
            re.search(r"producer_byte_rate=1000000(\.0)?\b", described) and "SCRAM-SHA-256=iterations=4096" in described
        )
        resource = ("--topic", topic, "--allow-principal", f"User:{user}", "--operation", "Read")
        run("acls", "--add", *resource)
        listed = run("acls", "--list", "--topic", topic)
        assert f"principal=User:{user}, host=*, operation=READ, permissionType=ALLOW" in listed
        run("acls", "--remove", "--force", *resource)
        assert f"User:{user}" not in run("acls", "--list", "--topic", topic)
        sent = run(
            "producer-perf-test", "--topic", topic, "--num-records", "500", "--record-size", "100", "--throughput", "-1"
        )
        assert "500 records sent" in sent
        timeout = ("--timeout-ms", "60000")
        read = run("console-consumer", "--topic", topic, "--from-beginning", "--max-messages", "500", *timeout)
        assert [len(line) for line in read.splitlines()] == [100] * 500
        consumed = run("consumer-perf-test", "--topic", topic, "--num-records", "500", "--timeout", "60000")
        assert any(field.strip() == "500" for line in consumed.splitlines() for field in line.split(",")), consumed
        run("topics", "--delete", "--topic", topic)
        assert topic not in run("topics", "--list").splitlines()
