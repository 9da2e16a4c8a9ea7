"""Each client writes a record over SASL_SSL as a user with a SCRAM password, and reads it back; a wrong password fails.

Spark's connector: `tests/clients/test_spark.py`."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from tests import toolchains
from tests.clients.secured import MECHANISM, PASSWORD, USER, Secured, secured_broker
from tests.clients.written_and_read import by_aiokafka, by_kafka_python
from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.xdist_group("sasl-clients"), pytest.mark.timeout(600)]

JAVA_CLIENTS = ("2.8.2", toolchains.KAFKA_VERSION)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured_broker(tmp_path_factory.mktemp("sasl-ssl"), t=1) as started:
        yield started


def run(command: list[str], *arguments: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*command, *arguments], input=text, capture_output=True, text=True, timeout=240, check=False)


def test_confluent_kafka(secured: Secured) -> None:
    reports: list[Any] = []
    producer = Producer(secured.librdkafka_settings())
    producer.produce("t", b"librdkafka", on_delivery=lambda error, message: reports.append((error, message)))
    assert producer.flush(PATIENCE_S) == 0
    ((error, sent),) = reports
    assert error is None
    consumer = Consumer(secured.librdkafka_settings(**{"group.id": "g"}))
    try:
        consumer.assign([TopicPartition("t", sent.partition(), sent.offset())])
        message = consumer.poll(PATIENCE_S)
        assert message is not None and message.value() == b"librdkafka"
    finally:
        consumer.close()


def test_kcat(secured: Secured) -> None:
    kcat = toolchains.require_command("kcat", "kcat")
    settings = [f"-X{key}={value}" for key, value in secured.librdkafka_settings().items()]
    done = run([kcat, *settings, "-P", "-t", "t"], text="kcat\n")
    assert done.returncode == 0, done.stderr
    done = run([kcat, *settings, "-C", "-t", "t", "-e", "-q"])
    assert done.returncode == 0 and "kcat" in done.stdout.splitlines(), done.stderr


def test_kafka_python(secured: Secured) -> None:
    options = {
        "bootstrap_servers": secured.servers,
        "security_protocol": "SASL_SSL",
        "ssl_cafile": secured.ca,
        "sasl_mechanism": MECHANISM,
        "sasl_plain_username": USER,
        "sasl_plain_password": PASSWORD,
    }
    assert by_kafka_python(options, "t", [b"kafka-python"]) == [b"kafka-python"]


def test_aiokafka(secured: Secured) -> None:
    options = {
        "bootstrap_servers": secured.servers,
        "security_protocol": "SASL_SSL",
        "ssl_context": ssl.create_default_context(cafile=secured.ca),
        "sasl_mechanism": MECHANISM,
        "sasl_plain_username": USER,
        "sasl_plain_password": PASSWORD,
    }

    assert asyncio.run(by_aiokafka(options, "t", [b"aiokafka"])) == [b"aiokafka"]


@pytest.mark.java
@pytest.mark.parametrize("version", JAVA_CLIENTS)
def test_java(secured: Secured, tmp_path: Path, version: str) -> None:
    program = toolchains.versioned_java_command("secure", version)
    done = run(program, secured.servers, secured.java_properties(tmp_path / "good"), "t", f"java {version}")
    assert (done.returncode, done.stdout.strip()) == (0, f"read java {version}"), done.stderr
    done = run(program, secured.servers, secured.java_properties(tmp_path / "bad", "wrong"), "t", "x")
    assert done.returncode == 1 and "SaslAuthenticationException" in done.stderr, done.stderr


@pytest.mark.golang
def test_franz_go(secured: Secured) -> None:
    program = [str(toolchains.go_program()), "sasl", secured.servers, MECHANISM, USER]
    done = run(program, PASSWORD, "t", secured.ca)
    assert (done.returncode, done.stdout.strip()) == (0, f"read {MECHANISM}"), done.stderr
    done = run(program, "wrong", "t", secured.ca)
    assert done.returncode == 1 and "SASL_AUTHENTICATION_FAILED" in done.stderr, done.stderr


@pytest.mark.golang
def test_sarama(secured: Secured) -> None:
    program = [str(toolchains.sarama_program()), "login", secured.servers, secured.ca, MECHANISM, USER]
    done = run(program, PASSWORD, "t")
    assert (done.returncode, done.stdout.strip()) == (0, f"read {MECHANISM}"), done.stderr
    done = run(program, "wrong", "t")
    assert done.returncode == 1 and "SASL Authentication failed" in done.stderr, done.stderr


@pytest.mark.node
def test_kafkajs(secured: Secured) -> None:
    program = ["node", str(toolchains.node_program().with_name("sasl.js")), secured.servers, MECHANISM, USER]
    done = run(program, PASSWORD, "t", secured.ca)
    assert (done.returncode, done.stdout.strip()) == (0, f"wrote {MECHANISM}"), done.stderr
    done = run(program, "wrong", "t", secured.ca)
    assert done.returncode == 1 and "uthentication failed" in done.stderr, done.stderr
