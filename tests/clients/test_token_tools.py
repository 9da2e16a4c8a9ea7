"""Kafka's own tools with delegation tokens: kafka-delegation-tokens, and Java clients that log in with a token."""

import re

import pytest

from odradek.testing import Broker
from tests.sasl import port_of, settings
from tests.tokens import PLAIN_USERS
from tests.toolchains import run_java

pytestmark = [pytest.mark.java, pytest.mark.timeout(600)]

TOKENS = "org.apache.kafka.tools.DelegationTokenCommand"
CONFIG = settings() | {
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": PLAIN_USERS,
    "delegation.token.secret.key": "the secret of all brokers",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:alice;User:ANONYMOUS",
    "num.network.threads": "2",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with Broker(CONFIG, {"t": 1}, directory=tmp_path_factory.mktemp("token-tools")) as running:
        yield running


def test_tokens_are_managed_and_used_with_kafkas_tools(broker, tmp_path):
    servers = f"127.0.0.1:{port_of(broker, 'SASL_PLAINTEXT')}"

    def login(name, mechanism, line):
        path = tmp_path / name
        path.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\nsasl.jaas.config={line}\n")
        return path

    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    alice = login("alice", "PLAIN", f'{module} username="alice" password="alice-secret";')

    def tokens(*arguments):
        return run_java(TOKENS, "--bootstrap-server", servers, "--command-config", alice, *arguments)

    made = tokens("--create", "--max-life-time-period", -1, "--renewer-principal", "User:bob")
    token_id = re.search(r"(?m)^(\S{22})\s", made)[1]
    hmac = re.search(r"\S{86}==", made)[0]
    described = tokens("--describe", "--owner-principal", "User:alice")
    assert token_id in described and hmac in described and "User:bob" in described
    assert "Completed renew operation" in tokens("--renew", "--renew-time-period", -1, "--hmac", hmac)

    module = "org.apache.kafka.common.security.scram.ScramLoginModule required"
    line = f'{module} username="{token_id}" password="{hmac}" tokenauth="true";'
    by_token = login("token", "SCRAM-SHA-512", line)
    how = ("--bootstrap-server", servers, "--command-config", by_token, "--topic", "t")
    run_java("org.apache.kafka.tools.ConsoleProducer", *how, text="of a client with a token\n")
    read = run_java("org.apache.kafka.tools.consumer.ConsoleConsumer", *how, "--from-beginning", "--max-messages", 1)
    assert read == "of a client with a token\n"
    assert "Completed expire operation" in tokens("--expire", "--expiry-time-period", -1, "--hmac", hmac)
    assert token_id not in tokens("--describe", "--owner-principal", "User:alice")
    assert hmac not in broker.log_file.read_text()
