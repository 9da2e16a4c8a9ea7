"""A broker with a listener SASL_SSL and a SCRAM user, and the settings with which clients use it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from odradek.clients import users
from odradek.clients.cluster import Cluster
from odradek.security.sasl.scram_credential import SHA_512
from odradek.testing import Broker
from odradek.testing.certificates import make_certificates
from tests.sasl import port_of

MECHANISM = "SCRAM-SHA-512"
USER, PASSWORD = "alice", "alice-secret"
LISTENERS = "PLAINTEXT://127.0.0.1:0,SASL_SSL://127.0.0.1:0"


class Secured:
    """A broker with a listener SASL_SSL, where alice has a SCRAM password.

    :param ca: the path of the certificate of the authority that signed the broker's.
    """

    def __init__(self, broker: Broker, ca: Path) -> None:
        self.broker = broker
        self.ca = str(ca)
        self.servers = f"127.0.0.1:{port_of(broker, 'SASL_SSL')}"

    def java_properties(self, path: Path, password: str = PASSWORD) -> str:
        """Write the settings of a Java client to a file; returns its path."""
        path.write_text(
            "".join(f"{key}={value}\n" for key, value in self.java_settings(password).items())
            + "delivery.timeout.ms=60000\nrequest.timeout.ms=30000\nlinger.ms=0\n"
        )
        return str(path)

    def java_settings(self, password: str = PASSWORD) -> dict[str, str]:
        """Settings of a Java client."""
        line = f'ScramLoginModule required username="{USER}" password="{password}";'
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": MECHANISM,
            "sasl.jaas.config": f"org.apache.kafka.common.security.scram.{line}",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.ca,
        }

    def librdkafka_settings(self, **options: Any) -> dict[str, Any]:
        """Settings of a client that is built on librdkafka."""
        return {
            "bootstrap.servers": self.servers,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": MECHANISM,
            "sasl.username": USER,
            "sasl.password": PASSWORD,
            "ssl.ca.location": self.ca,
        } | options


@contextmanager
def secured_broker(directory: Path, **topics: int) -> Iterator[Secured]:
    """Start a broker with these topics, by name the number of partitions, and add the user."""
    certificates = make_certificates(directory / "tls")
    config = {
        "listeners": LISTENERS,
        "sasl.enabled.mechanisms": MECHANISM,
        "ssl.keystore.location": str(certificates.broker),
        "num.network.threads": "2",
        "connection.failed.authentication.delay.ms": "0",
    }
    with Broker(config, topics, directory=directory / "broker") as broker:
        with Cluster(broker.bootstrap_servers) as cluster:
            users.set_password(cluster, USER, PASSWORD, [SHA_512], 4096)
        yield Secured(broker, certificates.ca)
