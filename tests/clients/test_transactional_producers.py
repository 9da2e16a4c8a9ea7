"""Transactions are not supported: transactional producers of all client libraries fail at once with a reason.

Each client would otherwise go on asking until a time-out of its own, which is longer than the tests wait.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import textwrap

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import NewTopic

from tests import toolchains
from tests.clients.conftest import Cluster
from tests.clients.kafka_tools import KafkaTools

pytestmark = [pytest.mark.xdist_group("clients"), pytest.mark.timeout(300)]

AT_ONCE_S = 60
"""Far longer than a response takes on a busy machine; the clients' timeouts are twice as long."""
OWN_TIMEOUT_S = 2 * AT_ONCE_S
REASON = "this broker does not support transactions"


def run(command: list[str], given: str = "") -> str:
    """The output of a program that must end at once."""
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=AT_ONCE_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_librdkafka(cluster: Cluster) -> None:
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "librdkafka", "log_level": 0}
    )
    with pytest.raises(KafkaException) as raised:
        producer.init_transactions(AT_ONCE_S)
    error: KafkaError = raised.value.args[0]
    assert (error.fatal(), error.retriable()) == (True, False)
    assert REASON in error.str()


@pytest.mark.java
def test_the_java_client(cluster: Cluster) -> None:
    properties = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "transactional.id": "java",
        "max.block.ms": OWN_TIMEOUT_S * 1000,
    }
    printed = run(
        toolchains.java_command("Outcomes", classes=True), json.dumps({"properties": properties, "records": []}) + "\n"
    )
    answer = json.loads(printed)
    assert answer["error"] == "KafkaException"
    assert REASON in answer["message"]


@pytest.mark.java
def test_kafkas_tool_for_transactions(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> None:
    cluster.admin.create_topics([NewTopic("without-transactions", 1, 1)])["without-transactions"].result(90)
    with KafkaTools(cluster.bootstrap_servers, tmp_path_factory.mktemp("tools") / "errors") as tools:
        described = tools.run("transactions", "describe", "--transactional-id", "t")
        assert described.code != 0 and "Failed to describe transaction state" in described.err
        aborted = tools.run(
            "transactions", "abort", "--topic", "without-transactions", "--partition", "0", "--producer-id", "1",
            "--producer-epoch", "0", "--coordinator-epoch", "0",
        )  # fmt: skip
        assert aborted.code != 0 and "WRITE_TXN_MARKERS" in aborted.out + aborted.err
        assert tools.run("transactions", "list").code == 0


def test_kafka_python(cluster: Cluster) -> None:
    program = f"""
    from kafka import KafkaProducer
    producer = KafkaProducer(
        bootstrap_servers={cluster.bootstrap_servers!r}, transactional_id="kafka-python", max_block_ms={OWN_TIMEOUT_S * 1000}
    )
    try:
        producer.init_transactions()
    except Exception as error:
        print(type(error).__name__, error)
    """
    printed = run([sys.executable, "-c", textwrap.dedent(program)])
    assert "Could not find a coordinator" in printed and "UnsupportedVersion" in printed


def test_aiokafka(cluster: Cluster) -> None:
    from aiokafka import AIOKafkaProducer
    from aiokafka.errors import TransactionalIdAuthorizationFailed

    async def start() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, transactional_id="aiokafka")
        try:
            await producer.start()
        finally:
            await producer.stop()

    with pytest.raises(TransactionalIdAuthorizationFailed):
        asyncio.run(asyncio.wait_for(start(), AT_ONCE_S))


@pytest.mark.golang
def test_franz_go(cluster: Cluster) -> None:
    printed = run([str(toolchains.go_program()), "transaction", cluster.bootstrap_servers])
    assert "UNSUPPORTED_VERSION" in printed


@pytest.mark.node
def test_kafkajs(cluster: Cluster) -> None:
    printed = run(["node", str(toolchains.node_program()), "transaction", cluster.bootstrap_servers])
    assert "Failed to find group coordinator" in printed
