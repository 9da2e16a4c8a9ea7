"""Clients log in with OAUTHBEARER: tokens of their own, of a file, and of an identity provider; they renew their logins."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka.abc import AbstractTokenProvider
from confluent_kafka import Consumer, KafkaError, Producer
from kafka.net.sasl.oauth import AbstractTokenProvider as KafkaPythonProvider

from odradek.testing import Broker
from tests import toolchains
from tests.cli.command import Command
from tests.clients.written_and_read import by_aiokafka, by_kafka_python
from tests.identity_provider import CLIENT, SECRET, IdentityProvider, token
from tests.metrics.scraping import scrape
from tests.sasl import port_of, settings
from tests.waiting import PATIENCE_S, until

pytestmark = [pytest.mark.xdist_group("oauth-clients"), pytest.mark.timeout(600)]

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"


@pytest.fixture(scope="module")
def provider() -> Iterator[IdentityProvider]:
    with IdentityProvider() as running:
        yield running


@pytest.fixture(scope="module")
def broker(provider: IdentityProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    config = settings("OA", mechanisms="OAUTHBEARER") | {
        "sasl.oauthbearer.jwks.endpoint.url": provider.url(),
        "num.network.threads": "2",
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "1",
        "connection.failed.authentication.delay.ms": "0",
        "metrics.listener": "127.0.0.1:0",
    }
    topics = dict.fromkeys(("rdkafka", "oidc", "renewed", "kafka-python", "aiokafka", "java", "ours"), 1)
    with Broker(config, topics, directory=tmp_path_factory.mktemp("oauth")) as running:
        yield running


def servers(broker: Broker) -> str:
    return f"127.0.0.1:{port_of(broker, 'OA')}"


def rdkafka(broker: Broker, **options: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": servers(broker),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
    } | options


def written_and_read(topic: str, options: dict[str, Any]) -> None:
    producer = Producer(options)
    producer.produce(topic, b"value")
    assert producer.flush(PATIENCE_S) == 0
    consumer = Consumer(options | {"group.id": topic, "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([topic])
        message = consumer.poll(PATIENCE_S)
        assert message is not None and message.value() == b"value"
    finally:
        consumer.close()


def test_librdkafka_writes_and_reads_with_a_callback(broker: Broker) -> None:
    options = rdkafka(broker, oauth_cb=lambda _: (token(), time.time() + 60, "", {"traceId": "7"}))
    written_and_read("rdkafka", options)


def test_librdkafka_writes_and_reads_with_oidc(broker: Broker, provider: IdentityProvider) -> None:
    options = {
        "method": "oidc",
        "client.id": CLIENT,
        "client.secret": SECRET,
        "token.endpoint.url": provider.url("token"),
    }
    written_and_read("oidc", rdkafka(broker, **{f"sasl.oauthbearer.{name}": value for name, value in options.items()}))


def test_librdkafka_reports_a_refused_token_as_an_authentication_error(broker: Broker) -> None:
    errors: list[KafkaError] = []
    producer = Producer(
        rdkafka(broker, oauth_cb=lambda _: (token(exp=1, iat=1), time.time() + 60), error_cb=errors.append)
    )
    until(
        lambda: producer.poll(0.1) is not None and any(error.code() == KafkaError._AUTHENTICATION for error in errors),
        "an authentication error",
    )


def test_librdkafka_renews_its_login_when_the_token_ends(broker: Broker) -> None:
    """Tokens of four seconds; the session of the broker has the same end."""

    def fresh(_: str) -> tuple[str, float]:
        ends = time.time() + 4
        return token(exp=ends), ends

    producer = Producer(rdkafka(broker, oauth_cb=fresh))

    def renewals() -> float:
        return scrape(broker).sum("kafka_server_socket_server_metrics_successful_reauthentication_total", listener="OA")

    began, sent = time.monotonic(), 0
    while renewals() < 2:
        assert time.monotonic() - began < PATIENCE_S
        producer.produce("renewed", b"x")
        producer.poll(0.05)
        sent += 1
    assert producer.flush(PATIENCE_S) == 0


def test_kafka_python_writes_and_reads(broker: Broker) -> None:
    class Tokens(KafkaPythonProvider):
        def token(self) -> str:
            return token()

    options = {
        "bootstrap_servers": servers(broker),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": Tokens(),
    }
    assert by_kafka_python(options, "kafka-python", [b"value"]) == [b"value"]


def test_aiokafka_writes_and_reads(broker: Broker) -> None:
    class Tokens(AbstractTokenProvider):
        async def token(self) -> str:
            return token()

    options = {
        "bootstrap_servers": servers(broker),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": Tokens(),
    }

    assert asyncio.run(by_aiokafka(options, "aiokafka", [b"value"])) == [b"value"]


def properties(path: Path, url: str, options: str = "", *lines: str) -> str:
    """A file for Kafka's tools and ours."""
    path.write_text(
        "\n".join(
            (
                "security.protocol=SASL_PLAINTEXT",
                "sasl.mechanism=OAUTHBEARER",
                f"sasl.login.callback.handler.class={HANDLER}",
                f"sasl.oauthbearer.token.endpoint.url={url}",
                f"sasl.jaas.config={MODULE} {options};",
                *lines,
            )
        )
    )
    return str(path)


@pytest.mark.java
def test_kafkas_tools_write_and_read_with_a_token_of_a_provider_and_of_a_file(
    broker: Broker, provider: IdentityProvider, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text(token())
    urls = provider.url("token"), f"file://{tmp_path}/token"
    granted = properties(
        tmp_path / "granted.properties", urls[0], f'clientId="{CLIENT}" clientSecret="{SECRET}" scope="a"'
    )
    of_file = properties(tmp_path / "file.properties", urls[1], 'extension_traceId="7"')
    allowed = {"urls": ",".join(urls), "files": f"{tmp_path}/token"}
    flags = " ".join(f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.{name}={value}" for name, value in allowed.items())

    def run(main_class: str, *arguments: str, text: str | None = None) -> str:
        command = toolchains.java_command(main_class, *arguments)
        environment = os.environ | {"JAVA_TOOL_OPTIONS": flags}
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=240, check=False, env=environment
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    common = ("--bootstrap-server", servers(broker), "--topic", "java")
    run("org.apache.kafka.tools.ConsoleProducer", *common, "--command-config", granted, text="one\ntwo\n")
    read = ("--from-beginning", "--max-messages", "2", "--timeout-ms", "60000", "--command-config", of_file)
    assert run("org.apache.kafka.tools.consumer.ConsoleConsumer", *common, *read).split() == ["one", "two"]


def test_our_commands_log_in_and_report_a_refusal_as_one_line(
    broker: Broker, provider: IdentityProvider, tmp_path: Path
) -> None:
    run = Command(servers(broker))
    granted = properties(
        tmp_path / "granted.properties", provider.url("token"), f'clientId="{CLIENT}" clientSecret="{SECRET}"'
    )
    run("produce", "ours", "--create", "--command-config", granted, stdin="one\n")
    (tmp_path / "token").write_text(token())
    of_file = properties(tmp_path / "file.properties", f"file://{tmp_path}/token")
    assert "one" in run("consume", "ours", "--from", "start", "--max", "1", "--command-config", of_file)
    assert "ours" in run("topic", "list", "--command-config", of_file)
    (tmp_path / "token").write_text(token(exp=1, iat=1))
    run.refused("topic", "list", "--command-config", of_file, words=("cannot log in", "invalid_token"))
    wrong = properties(tmp_path / "wrong.properties", provider.url("token"), f'clientId="{CLIENT}" clientSecret="no"')
    for command in (("topic", "list"), ("consume", "ours", "--group", "g")):  # the second one uses librdkafka
        run.refused(
            *command, "--command-config", wrong, words=("cannot log in", CLIENT, "status 401", "invalid_client")
        )
