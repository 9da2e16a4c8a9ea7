"""librdkafka's own tests of TLS, logins and ACLs (`toolchains.LIBRDKAFKA_TESTS`), unchanged, against this broker.

Of those that have parts with share consumers, the other parts run. Not among them: 0097, which accepts only the TLS alerts of
Java, and fails if a handshake ends within the first call of the client; 0126, which needs a server of OpenID Connect; 0128,
whose client makes tokens that are not signed.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from odradek.clients import users
from odradek.clients.cluster import Cluster
from odradek.security.sasl.scram_credential import SHA_256
from odradek.testing import Broker
from tests.clients.librdkafka_tests import run, three_brokers
from tests.sasl import port_of, settings

pytestmark = [
    pytest.mark.xdist_group("librdkafka"),
    pytest.mark.timeout(3300),
    pytest.mark.java,
    pytest.mark.node,
]
SESSIONS = {"connections.max.reauth.ms": "3000", "offsets.topic.num.partitions": "1"}


def client_settings(mechanism: str) -> dict[str, str]:
    """Of librdkafka, for alice."""
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": "alice-secret",
    }


def servers_of(broker: Broker) -> str:
    return f"127.0.0.1:{port_of(broker, 'SASL_PLAINTEXT')}"


@pytest.mark.parametrize("name", ["0115_producer_auth", "0119_consumer_auth"])
def test_denials(name: str, tmp_path: Path) -> None:
    config = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
        "offsets.topic.num.partitions": "1",
    }
    with Broker(config, directory=tmp_path / "broker") as broker:
        run(name, broker.bootstrap_servers, tmp_path)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("0135_sasl_credentials", "do_test:"),
        ("0142_reauthentication", "do_test_producer:"),
        ("0142_reauthentication", "do_test_txn_producer:"),
        ("0142_reauthentication", "do_test_reauth_failure:"),
    ],
)
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_logins(name: str, part: str, mechanism: str, tmp_path: Path) -> None:
    config = settings("SASL_PLAINTEXT") | SESSIONS | {"transaction.state.log.num.partitions": "1"}
    with Broker(config, directory=tmp_path / "broker") as broker:
        with Cluster(broker.bootstrap_servers) as cluster:
            users.set_password(cluster, "alice", "alice-secret", [SHA_256], 4096)
        run(name, servers_of(broker), tmp_path, client_settings(mechanism), {"SUBTESTS": part})


def test_a_consumer_renews_its_login(tmp_path: Path) -> None:
    """The test creates a topic with three replicas."""
    with ExitStack() as stack:
        brokers = three_brokers(stack, tmp_path / "brokers", settings("SASL_PLAINTEXT") | SESSIONS)
        servers = ",".join(servers_of(broker) for broker in brokers)
        run("0142_reauthentication", servers, tmp_path, client_settings("PLAIN"), {"SUBTESTS": "do_test_consumer:"})
