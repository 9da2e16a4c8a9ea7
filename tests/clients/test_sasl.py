"""Clients log in with PLAIN and SCRAM, renew their logins while they work, and report wrong passwords as such."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from odradek.clients import users
from odradek.clients.cluster import Cluster
from odradek.security.sasl.scram_credential import SHA_256, SHA_512
from odradek.testing import Broker
from tests import toolchains
from tests.clients.written_and_read import by_aiokafka, by_kafka_python
from tests.sasl import port_of, settings
from tests.waiting import PATIENCE_S, until

pytestmark = [pytest.mark.xdist_group("sasl-clients"), pytest.mark.timeout(600)]

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_mechanisms = pytest.mark.parametrize("mechanism", MECHANISMS)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    config = settings("SASL_PLAINTEXT", "SHORT") | {
        "num.network.threads": "2",
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "1",
        "connection.failed.authentication.delay.ms": "0",
        "metrics.listener": "127.0.0.1:0",
        "listener.name.short.connections.max.reauth.ms": "2500",
    }
    topics = dict.fromkeys((*MECHANISMS, "kafka-python", "aiokafka", "renewed", "java", "franz-go", "kafkajs"), 1)
    with Broker(config, topics, directory=tmp_path_factory.mktemp("sasl-clients")) as running:
        with Cluster(running.bootstrap_servers) as cluster:
            users.set_password(cluster, "alice", "alice-secret", [SHA_256, SHA_512], 4096)
        yield running


def servers(broker: Broker, listener: str = "SASL_PLAINTEXT") -> str:
    return f"127.0.0.1:{port_of(broker, listener)}"


def rdkafka(broker: Broker, mechanism: str, password: str = "alice-secret", **options: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": servers(broker),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": "alice",
        "sasl.password": password,
    } | options


@_mechanisms
def test_librdkafka_writes_and_reads(broker: Broker, mechanism: str) -> None:
    producer = Producer(rdkafka(broker, mechanism))
    producer.produce(mechanism, b"value")
    assert producer.flush(PATIENCE_S) == 0
    consumer = Consumer(rdkafka(broker, mechanism, **{"group.id": mechanism, "auto.offset.reset": "earliest"}))
    try:
        consumer.subscribe([mechanism])
        message = consumer.poll(PATIENCE_S)
        assert message is not None and message.value() == b"value"
        consumer.commit(message, asynchronous=False)
    finally:
        consumer.close()


@_mechanisms
def test_librdkafka_reports_a_wrong_password_as_an_authentication_error(broker: Broker, mechanism: str) -> None:
    errors: list[KafkaError] = []
    producer = Producer(rdkafka(broker, mechanism, "wrong", error_cb=errors.append))
    until(
        lambda: producer.poll(0.1) is not None and any(error.code() == KafkaError._AUTHENTICATION for error in errors),
        "an authentication error",
    )


def test_librdkafkas_admin_client_changes_and_describes_credentials(broker: Broker) -> None:
    admin = AdminClient(rdkafka(broker, "PLAIN"))
    upsertion = UserScramCredentialUpsertion("bob", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 8192), b"x")
    for future in admin.alter_user_scram_credentials([upsertion]).values():
        future.result(PATIENCE_S)
    (described,) = [future.result(PATIENCE_S) for future in admin.describe_user_scram_credentials(["bob"]).values()]
    assert [(info.mechanism, info.iterations) for info in described.scram_credential_infos] == [
        (ScramMechanism.SCRAM_SHA_256, 8192)
    ]


def test_librdkafka_renews_its_login_while_requests_are_in_flight(broker: Broker) -> None:
    """KIP-368: sessions of 2.5 s; a producer and a consumer with long polls work through them.

    On a machine that stands still for longer, the client renews too late and must connect again: no record is lost either.
    """
    options = {"bootstrap.servers": servers(broker, "SHORT")}
    failures: list[KafkaError] = []
    producer = Producer(rdkafka(broker, "SCRAM-SHA-256", error_cb=failures.append, **options))
    consumer = Consumer(
        rdkafka(
            broker, "PLAIN", error_cb=failures.append, **options, **{"group.id": "r", "auto.offset.reset": "earliest"}
        )
    )
    sent = received = 0
    began = time.monotonic()

    def renewals() -> float:
        from tests.metrics.scraping import scrape

        return scrape(broker).sum(
            "kafka_server_socket_server_metrics_successful_reauthentication_total", listener="SHORT"
        )

    try:
        consumer.subscribe(["renewed"])
        while received < 100 or sent % 20 or renewals() < 3:
            assert time.monotonic() - began < PATIENCE_S
            producer.produce("renewed", b"x" * 1000)
            producer.poll(0)
            sent += 1
            message = consumer.poll(0.02)
            received += message is not None and message.error() is None
        assert producer.flush(PATIENCE_S) == 0
        while received < sent:
            message = consumer.poll(PATIENCE_S)
            assert message is not None and message.error() is None
            received += 1
    finally:
        consumer.close()
    assert [str(error) for error in failures if error.code() == KafkaError._AUTHENTICATION] == []


@_mechanisms
def test_kafka_python_writes_and_reads(broker: Broker, mechanism: str) -> None:
    options = {
        "bootstrap_servers": servers(broker),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
    }
    options["sasl_plain_password"] = "alice-secret"
    assert by_kafka_python(options, "kafka-python", [mechanism.encode()]) == [mechanism.encode()]


@_mechanisms
def test_aiokafka_writes_and_reads_and_reports_a_wrong_password(broker: Broker, mechanism: str) -> None:
    options = {
        "bootstrap_servers": servers(broker),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "alice",
    }

    async def talk() -> None:
        right = options | {"sasl_plain_password": "alice-secret"}
        assert await by_aiokafka(right, "aiokafka", [mechanism.encode()]) == [mechanism.encode()]
        wrong = AIOKafkaProducer(**options, sasl_plain_password="wrong")
        try:
            with pytest.raises(KafkaConnectionError):
                await wrong.start()
        finally:
            await wrong.stop()

    asyncio.run(talk())


@pytest.mark.java
def test_kafkas_tools_add_a_user_who_then_writes_and_reads(broker: Broker, tmp_path: Path) -> None:
    run = toolchains.run_java

    def properties(mechanism: str, user: str, password: str) -> str:
        module = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
        path = tmp_path / f"{user}-{mechanism}.properties"
        path.write_text(
            f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\nsasl.jaas.config="
            f'org.apache.kafka.common.security.{module}LoginModule required username="{user}" password="{password}";\n'
        )
        return str(path)

    admin = properties("PLAIN", "admin", "admin-secret")
    entity = (
        "--bootstrap-server",
        servers(broker),
        "--command-config",
        admin,
        "--entity-type",
        "users",
        "--entity-name",
        "jo",
    )
    credential = "SCRAM-SHA-512=[iterations=8192,password=jo-secret]"
    assert "Completed updating" in run("kafka.admin.ConfigCommand", *entity, "--alter", "--add-config", credential)
    assert "SCRAM-SHA-512=iterations=8192" in run("kafka.admin.ConfigCommand", *entity, "--describe")
    jo = properties("SCRAM-SHA-512", "jo", "jo-secret")
    common = ("--bootstrap-server", servers(broker), "--topic", "java")
    run("org.apache.kafka.tools.ConsoleProducer", *common, "--command-config", jo, text="one\ntwo\n")
    read = ("--from-beginning", "--max-messages", "2", "--timeout-ms", "60000", "--command-config", jo)
    assert run("org.apache.kafka.tools.consumer.ConsoleConsumer", *common, *read).split() == ["one", "two"]
    assert "Completed updating" in run(
        "kafka.admin.ConfigCommand", *entity, "--alter", "--delete-config", "SCRAM-SHA-512"
    )


def _run(command: list[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=240, check=False)


@pytest.mark.golang
@_mechanisms
def test_franz_go_writes_and_reads(broker: Broker, mechanism: str) -> None:
    program = [str(toolchains.go_program()), "sasl", servers(broker), mechanism, "alice"]
    done = _run(program, "alice-secret", "franz-go")
    assert (done.returncode, done.stdout.strip()) == (0, f"read {mechanism}"), done.stderr
    done = _run(program, "wrong", "franz-go")
    assert done.returncode == 1 and "SASL_AUTHENTICATION_FAILED" in done.stderr, done.stderr


@pytest.mark.node
@_mechanisms
def test_kafkajs_writes(broker: Broker, mechanism: str) -> None:
    program = ["node", str(toolchains.node_program().with_name("sasl.js")), servers(broker), mechanism, "alice"]
    done = _run(program, "alice-secret", "kafkajs")
    assert (done.returncode, done.stdout.strip()) == (0, f"wrote {mechanism}"), done.stderr
    done = _run(program, "wrong", "kafkajs")
    assert done.returncode == 1 and "uthentication failed" in done.stderr, done.stderr
